//! One mistake in the settings: its key, the problem, its origin, and a suggestion.

use std::fmt;

use belay_text::near::nearest;

use super::removed::{instead_of, instead_of_section};

/// A mistake. It never contains a value that could be a secret.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// The full key; or the file, if it cannot be read at all.
    pub key: String,
    /// What is wrong.
    pub what: String,
    /// Where the value came from, for example `/etc/belay/belay.toml, line 3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// A suggestion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Problem {
    /// A problem of that key.
    pub fn new(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self { key: key.into(), what: what.into(), origin: None, hint: None }
    }

    /// Sets the origin.
    #[must_use]
    pub fn from(mut self, origin: Option<&str>) -> Self {
        self.origin = origin.map(str::to_owned);
        self
    }

    /// Sets the hint.
    #[must_use]
    pub fn hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.what)?;
        if let Some(origin) = &self.origin {
            write!(f, " ({origin})")?;
        }
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// A suggestion for an unknown key. `known` are all full keys.
pub(crate) fn hint_for_unknown(key: &str, known: &[String]) -> Option<String> {
    if let Some(instead) = instead_of(key) {
        return Some(instead);
    }
    let below =
        |section: &str| known.iter().any(|key| key.strip_prefix(section).is_some_and(|rest| rest.starts_with('.')));
    if let Some(instead) = instead_of_section(key).filter(|_| !below(key)) {
        return Some(instead);
    }
    let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
    let secret = ["key", "token", "secret", "password"].iter().any(|word| name.ends_with(word));
    let (env, file) = (format!("{key}_env"), format!("{key}_file"));
    let places: Vec<&str> = [&env, &file].into_iter().filter(|key| known.contains(key)).map(String::as_str).collect();
    if secret && !places.is_empty() {
        return Some(format!("a secret is no setting: did you mean {} (which says where it is)?", places.join(" or ")));
    }
    let sections = || sections_of(known);
    let likely = nearest(key, known)
        .or_else(|| same_section(section, name, known))
        .or_else(|| {
            // Not the section that contains the key: its name was written correctly.
            let around = |known: &str| key.strip_prefix(known).is_some_and(|rest| rest.starts_with('.'));
            sections().into_iter().find(|known| !around(known) && nearest(key, [*known]).is_some())
        })
        .or_else(|| known.iter().map(String::as_str).find(|known| known.rsplit('.').next() == Some(name)));
    match likely {
        Some(likely) => Some(format!("did you mean {likely}?")),
        None if below(section) => Some(format!("[{section}] has {}", names_in(section, known).join(", "))),
        None => Some(format!("the sections are {}", sections().join(", "))),
    }
}

fn same_section<'a>(section: &str, name: &str, known: &'a [String]) -> Option<&'a str> {
    let near = nearest(name, names_in(section, known))?;
    known.iter().map(String::as_str).find(|key| key.rsplit_once('.') == Some((section, near)))
}

fn names_in<'a>(section: &str, known: &'a [String]) -> Vec<&'a str> {
    known.iter().filter_map(|key| key.rsplit_once('.')).filter(|(s, _)| *s == section).map(|(_, name)| name).collect()
}

fn sections_of(known: &[String]) -> Vec<&str> {
    let mut sections: Vec<&str> = known.iter().filter_map(|key| Some(key.rsplit_once('.')?.0)).collect();
    sections.sort_unstable();
    sections.dedup();
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_answered_with_what_was_meant() {
        let known: Vec<String> = [
            "llm.model",
            "llm.max_tokens",
            "llm.api_key_env",
            "llm.api_key_file",
            "gateway.listen",
            "channels.telegram.token_env",
            "channels.telegram.allow",
            "agent.plan.enabled",
        ]
        .map(str::to_owned)
        .into();
        for (key, hint) in [
            ("llm.max_tokns", "did you mean llm.max_tokens?"),
            ("llm.mdl", "did you mean llm.model?"),
            ("model", "did you mean llm.model?"),
            ("lmm.model", "did you mean llm.model?"),
            ("llm.listen", "did you mean gateway.listen?"),
            ("gatway", "did you mean gateway?"),
            ("telegram.allow", "did you mean channels.telegram.allow?"),
            ("zzz.qqq", "the sections are agent.plan, channels.telegram, gateway, llm"),
            ("agent.plan.foo", "[agent.plan] has enabled"),
            ("gateway.qqqqqqqq", "[gateway] has listen"),
        ] {
            assert_eq!(hint_for_unknown(key, &known).as_deref(), Some(hint), "{key}");
        }
        let secret = hint_for_unknown("llm.api_key", &known).unwrap_or_default();
        assert!(secret.contains("llm.api_key_env or llm.api_key_file"), "{secret}");
        let token = hint_for_unknown("channels.telegram.token", &known).unwrap_or_default();
        assert!(token.contains("channels.telegram.token_env"), "{token}");
    }
}
