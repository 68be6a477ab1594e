//! Settings of `[channels.adapters.NAME]`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The maximum length of an adapter's name. It begins the keys of its sessions.
const NAME_MAX: usize = 32;

/// The maximum length of an id, in bytes. 128: with the adapter's name it fits a session key.
const ID_MAX: usize = 128;

/// The minimum of `max_text`. Shorter pieces have no room for the fences of a code block.
const TEXT_MIN: usize = 32;

/// The minimum length of an adapter's token, in bytes. Wrong tokens are not counted, so it cannot be guessed.
pub const TOKEN_MIN: usize = 16;

/// Settings of one adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdapterConfig {
    /// Environment variable of the token that the adapter shows; empty: none.
    pub token_env: String,
    /// File of that token.
    pub token_file: Option<PathBuf>,
    /// The people who may write, by the platform's ids of them.
    pub allow: Vec<String>,
    /// The people who may do everything.
    pub operators: Vec<String>,
    /// The conversations of several people that are served, by the platform's ids of them.
    pub groups: Vec<String>,
    /// The maximum length of a text that the platform can show; `None`: there is none.
    pub max_text: Option<usize>,
    /// The unit of that length.
    pub unit: TextUnit,
}

/// The unit of a platform's lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextUnit {
    /// Bytes of UTF-8.
    #[default]
    Bytes,
    /// Code points of Unicode.
    CodePoints,
    /// Units of UTF-16.
    Utf16,
}

impl AdapterConfig {
    /// Lists all problems, each starting with its key. `taken`: names that no adapter may have.
    pub fn validate(&self, name: &str, taken: &[&str]) -> Vec<String> {
        let key = format!("channels.adapters.{name}");
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
        let mut problems = Vec::new();
        if !cfg!(feature = "adapters") {
            problems.push(format!("{key}: this build of Belay has no adapters (feature adapters); remove the setting"));
        }
        if !begins || !name.chars().all(is_plain) || name.len() > NAME_MAX {
            let form = format!("at most {NAME_MAX} lower-case letters, digits and hyphens, beginning with a letter");
            problems.push(format!("{key}: the name of an adapter has {form}"));
        } else if taken.contains(&name) {
            problems
                .push(format!("{key}: {name} is reserved for a part of Belay; choose another name, such as my-{name}"));
        }
        if self.token_env.is_empty() && self.token_file.is_none() {
            let next = format!("set {key}.token_env or {key}.token_file to a text of {TOKEN_MIN} bytes or more");
            problems.push(format!("{key}: an adapter needs a token: {next}"));
        }
        let lists = [("allow", &self.allow), ("operators", &self.operators), ("groups", &self.groups)];
        for (list, ids) in lists {
            let wrong = ids.iter().filter(|id| !is_id(id));
            problems.extend(wrong.map(|id| format!("{key}.{list}: {id:?} is no id: 1 to 128 visible bytes")));
        }
        if let Some(max) = self.max_text.filter(|max| *max < TEXT_MIN) {
            problems.push(format!("{key}.max_text: {max} is too small; the minimum is {TEXT_MIN}"));
        }
        problems
    }
}

/// Whether a text can be the id of a message, a person or a conversation.
pub(crate) fn is_id(text: &str) -> bool {
    let is_visible = belay_text::is_clear(text) && !text.contains(char::is_control);
    (1..=ID_MAX).contains(&text.len()) && text.trim() == text && is_visible
}

#[cfg(all(test, feature = "adapters"))]
mod tests {
    use super::*;

    #[test]
    fn names_tokens_and_ids_are_checked() {
        let valid = || AdapterConfig { token_env: "T".into(), allow: vec!["ann".into()], ..AdapterConfig::default() };
        let none = AdapterConfig::default();
        let odd = AdapterConfig { groups: vec!["a\u{7}".into(), String::new()], ..valid() };
        let short = AdapterConfig { max_text: Some(31), ..valid() };
        for (name, config, problems) in [
            ("irc", valid(), &[][..]),
            ("irc", short, &["channels.adapters.irc.max_text: 31"]),
            ("irc-2", valid(), &[]),
            ("http", valid(), &["channels.adapters.http: http is reserved"]),
            ("2", valid(), &["channels.adapters.2: the name"]),
            ("Irc", valid(), &["channels.adapters.Irc: the name"]),
            ("", valid(), &["channels.adapters.: the name"]),
            ("irc", none, &["channels.adapters.irc: an adapter needs a token"]),
            ("irc", odd, &["channels.adapters.irc.groups: \"a\\u{7}\"", "channels.adapters.irc.groups: \"\""]),
        ] {
            let found = config.validate(name, &["http"]);
            let fits = found.len() == problems.len() && found.iter().zip(problems).all(|(one, is)| one.starts_with(is));
            assert!(fits, "{name}: {found:?}");
        }
    }
}
