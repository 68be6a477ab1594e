//! Grants in advance: calls of one piece of autonomous work that need no approval. The creator of the work gives them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The maximum number of grants of one piece of work.
pub const GRANTS_MAX: usize = 20;

/// Begins a grant in a chat command.
pub const GRANT_OPTION: &str = "--allow";

/// Confirms the grants of a chat command, which are shown without it.
pub const CONFIRM_OPTION: &str = "--yes";

/// The argument of a pattern without a name: the command line of `run_command`.
const UNNAMED: &str = "argv";

/// A grant: calls of a tool that one piece of work may make without an approval. It has the form of a rule of
/// `approvals.rules`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WorkGrant {
    /// The name of the tool.
    pub tool: String,
    /// Patterns for arguments, by argument name. All must match. `*` matches any text; a list is matched as its
    /// elements joined by spaces.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, String>,
    /// Whether it was revoked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub revoked: bool,
}

impl WorkGrant {
    /// Parses `TOOL`, `TOOL: PATTERN` (a pattern for `argv`) or `TOOL: ARGUMENT=PATTERN`.
    ///
    /// # Errors
    /// The problem, as a sentence for the person.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (tool, pattern) = text.split_once(':').unwrap_or((text, ""));
        let (tool, pattern) = (tool.trim(), pattern.trim());
        let mut arguments = BTreeMap::new();
        if !pattern.is_empty() {
            let named = pattern.split_once('=').filter(|(name, _)| is_name(name));
            let (name, pattern) = named.unwrap_or((UNNAMED, pattern));
            arguments.insert(name.to_owned(), pattern.to_owned());
        }
        let grant = Self { tool: tool.to_owned(), arguments, revoked: false };
        grant.check().map(|()| grant)
    }

    /// A line of a list of grants, for people, with a line break before it.
    pub fn line(&self, number: usize) -> String {
        let revoked = if self.revoked { " (revoked)" } else { "" };
        format!("\n{number}. `{self}`{revoked}")
    }

    /// Checks the names. A tool is named exactly: a pattern of tools would grant more than the text shows.
    ///
    /// # Errors
    /// The problem, as a sentence for the person.
    pub fn check(&self) -> Result<(), String> {
        if !is_name(&self.tool) {
            return Err(format!(
                "allow: {:?} is not the name of a tool; write for example run_command: cargo test",
                self.tool
            ));
        }
        match self.arguments.iter().find(|(name, pattern)| !is_name(name) || pattern.trim().is_empty()) {
            Some((name, _)) => Err(format!("allow: the argument {name:?} of {} has no name or no pattern", self.tool)),
            None => Ok(()),
        }
    }
}

/// The options of a chat command that gives grants, and the text after them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantOptions<'a> {
    /// The grants.
    pub allow: Vec<WorkGrant>,
    /// Whether the person has seen them and confirms them.
    pub is_confirmed: bool,
    /// The text after the options.
    pub rest: &'a str,
}

impl<'a> GrantOptions<'a> {
    /// Parses `--allow "GRANT"`, repeated, and `--yes` at the beginning of a text. `None`: a quotation mark is missing, or a
    /// grant is invalid.
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut options = Self { allow: Vec::new(), is_confirmed: false, rest: text.trim() };
        loop {
            let (word, after) = options.rest.split_once(char::is_whitespace).unwrap_or((options.rest, ""));
            if word == CONFIRM_OPTION {
                options.is_confirmed = true;
                options.rest = after.trim_start();
                continue;
            }
            let Some(after) = options.rest.strip_prefix(GRANT_OPTION) else { return Some(options) };
            let quoted = after.trim_start().strip_prefix(['"', '“'])?;
            let (grant, after) = quoted.split_once(['"', '”'])?;
            options.allow.push(WorkGrant::parse(grant).ok()?);
            options.rest = after.trim_start();
        }
    }
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

impl fmt::Display for WorkGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tool)?;
        for (at, (name, pattern)) in self.arguments.iter().enumerate() {
            let before = if at == 0 { ": " } else { ", " };
            write!(f, "{before}{name}={pattern}")?;
        }
        if self.arguments.is_empty() { f.write_str(" with any arguments") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_read_and_shown_with_its_argument() {
        for (text, shown) in [
            ("run_command: cargo test", Ok("run_command: argv=cargo test")),
            ("write_file: path=notes/*", Ok("write_file: path=notes/*")),
            ("run_command: make A=b", Ok("run_command: argv=make A=b")),
            ("fetch_url", Ok("fetch_url with any arguments")),
            ("run_*: ls", Err(())),
            (": ls", Err(())),
            ("two words: ls", Err(())),
        ] {
            let read = WorkGrant::parse(text).map(|grant| grant.to_string()).map_err(drop);
            assert_eq!(read, shown.map(str::to_owned), "{text}");
        }
    }

    #[test]
    fn options_stand_before_the_text_in_any_order() {
        let of = |text| {
            let GrantOptions { allow, is_confirmed, rest } = GrantOptions::parse(text)?;
            Some((allow.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "), is_confirmed, rest))
        };
        let test = "run_command: argv=cargo test";
        for (text, read) in [
            ("tidy up", Some(("", false, "tidy up"))),
            (r#"--allow "run_command: cargo test" test it"#, Some((test, false, "test it"))),
            (r#"--yes --allow "run_command: cargo test" test it"#, Some((test, true, "test it"))),
            ("--allow “run_command: cargo test” --yes test --yes", Some((test, true, "test --yes"))),
            (r#"--yes"#, Some(("", true, ""))),
            ("--yesterday", Some(("", false, "--yesterday"))),
            (r#"--allow "run_command: cargo test"#, None),
            (r#"--allow "two words: x" test it"#, None),
        ] {
            assert_eq!(of(text), read.map(|(allow, yes, rest)| (allow.to_owned(), yes, rest)), "{text}");
        }
    }
}
