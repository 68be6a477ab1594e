//! What a run is told besides its conversation: files of the workspace, skills, the date. And the account of it that an
//! operator reads.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;

use crate::ids::{ChannelId, SessionKey};
use crate::message::Message;
use crate::options::RunOptions;
use crate::secret::Secret;
use crate::time::UnixMillis;

/// The one file of the workspace that subagents, steps of plans and workers are told of as well.
pub const RULES_FILE: &str = "AGENTS.md";

/// Gives what the surroundings of a run say, as it stands now. What has not changed is the same `Arc` as before, so that
/// whoever has made something of it can tell.
#[async_trait]
pub trait ContextSource: Send + Sync {
    /// The files of the workspace that are part of every prompt. Looked at each time, read when they have changed.
    async fn bootstrap(&self) -> Arc<Bootstrap>;

    /// The skills. Looked for each time, read when they have changed.
    async fn skills(&self) -> Arc<Skills>;

    /// The skills as they were when they were last looked for; never waits. For commands that name one.
    fn known_skills(&self) -> Arc<Skills>;

    /// A small text of the workspace; `None`: there is no file under that path. Longer than `max_bytes`, it is not read.
    ///
    /// # Errors
    /// Why it cannot be used, as the rest of a sentence.
    async fn file(&self, path: &str, max_bytes: u64) -> Result<Option<String>, String>;

    /// The beginning of a text of the workspace, and whether there is more of it than `max_bytes`; `None`: there is no file
    /// under that path.
    ///
    /// # Errors
    /// Why it cannot be used, as the rest of a sentence.
    async fn file_start(&self, path: &str, max_bytes: u64) -> Result<Option<(String, bool)>, String>;

    /// The date and the time zone in words, without the time of day: it changes once a day, so that prompts stay the same.
    /// `None`: nobody is told.
    fn today(&self, now: UnixMillis) -> Option<String>;
}

/// Surroundings that say nothing.
#[derive(Debug, Default)]
pub struct NoContext;

#[async_trait]
impl ContextSource for NoContext {
    async fn bootstrap(&self) -> Arc<Bootstrap> {
        Arc::default()
    }

    async fn skills(&self) -> Arc<Skills> {
        Arc::default()
    }

    fn known_skills(&self) -> Arc<Skills> {
        Arc::default()
    }

    async fn file(&self, _path: &str, _max_bytes: u64) -> Result<Option<String>, String> {
        Ok(None)
    }

    async fn file_start(&self, _path: &str, _max_bytes: u64) -> Result<Option<(String, bool)>, String> {
        Ok(None)
    }

    fn today(&self, _now: UnixMillis) -> Option<String> {
        None
    }
}

/// The files of the workspace that are part of every prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bootstrap {
    /// Those that are there, in their order.
    pub files: Vec<BootstrapFile>,
    /// Those that are there and cannot be used.
    pub skipped: Vec<Skipped>,
}

/// A file of the workspace that is part of every prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapFile {
    /// Its path in the workspace.
    pub name: String,
    /// What of it is told: the whole, or its beginning and its end with a line between that says what is left out.
    pub text: String,
    /// Characters of the whole file.
    pub whole_chars: usize,
    /// Whether a part is left out.
    pub cut: bool,
}

/// Something that is there and cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its path, or its name.
    pub what: String,
    /// Why, in plain words.
    pub why: String,
}

/// The skills that can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skills {
    /// In the order of their places, then of their paths; no name is there twice.
    pub list: Vec<Skill>,
    /// Those that are there and cannot be used.
    pub skipped: Vec<Skipped>,
    /// Most characters that their list may take in a prompt.
    pub max_prompt_chars: usize,
}

/// Instructions for a kind of task, which the model reads when it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// Its name: one line, at most 64 characters.
    pub name: String,
    /// What it is for, in one line.
    pub description: String,
    /// Where its instructions are, for the tool that reads them.
    pub place: SkillPlace,
    /// Whether people may ask for it by a command.
    pub user_invocable: bool,
    /// Whether the model is told of it.
    pub listed: bool,
    /// Variables for the commands of runs that have it.
    pub variables: Vec<Variable>,
}

/// Where the instructions of a skill are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkillPlace {
    /// In the workspace, under this path: `read_file` reads it.
    Workspace(String),
    /// In a directory of the operator's: `read_skill` reads it by the skill's name.
    Elsewhere,
}

/// A variable of the environment of commands. Its value may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Secret,
}

/// Longest command of a skill, in characters. 32: what Telegram takes.
const COMMAND_MAX_CHARS: usize = 32;

impl Skill {
    /// The word that asks for it in a conversation, without its slash: lower case, letters, digits and `_`.
    pub fn command(&self) -> String {
        let fits = |c: char| if c.is_alphanumeric() { c } else { '_' };
        self.name.chars().flat_map(char::to_lowercase).map(fits).take(COMMAND_MAX_CHARS).collect()
    }
}

impl Skills {
    /// The skill that a person asks for by this word, its slash included; `-` and `_` are the same.
    pub fn by_command(&self, word: &str) -> Option<&Skill> {
        let word = word.strip_prefix('/')?.replace('-', "_");
        self.list.iter().find(|skill| skill.user_invocable && skill.command() == word)
    }

    /// The variables of all of them; of two with one name the first stays.
    pub fn variables(&self) -> Arc<[Variable]> {
        let mut all: Vec<Variable> = Vec::new();
        for variable in self.list.iter().flat_map(|skill| &skill.variables) {
            if all.iter().all(|known| known.name != variable.name) {
                all.push(variable.clone());
            }
        }
        all.into()
    }
}

/// A conversation as it stands in the store, for whoever wants to know what the model would be told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// The account of older messages that compaction has replaced.
    pub summary: Option<String>,
    /// The visible messages of ended turns, oldest first.
    pub messages: Vec<Arc<Message>>,
    /// What the session asks of its runs.
    pub options: RunOptions,
    /// The channel of its newest message.
    pub channel: Option<ChannelId>,
}

/// What the model of a session would be told now. Tokens are estimates: a quarter of the bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ContextReport {
    /// The session.
    pub session: SessionKey,
    /// The model's name.
    pub model: String,
    /// Size of its context in tokens.
    pub context_tokens: u64,
    /// Of these, what is taken before the next message.
    pub used_tokens: u64,
    /// The parts of the system prompt, in order.
    pub prompt: Vec<PartReport>,
    /// The files among them.
    pub files: Vec<FileReport>,
    /// The skills.
    pub skills: Vec<SkillReport>,
    /// Files and skills that are there and cannot be used.
    pub skipped: Vec<Skipped>,
    /// The tools: their descriptions and schemas.
    pub tools: Vec<PartReport>,
    /// The account of older messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<PartReport>,
    /// How many messages there are.
    pub messages: usize,
    /// What they take.
    pub conversation: PartReport,
}

/// A part of what the model is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartReport {
    /// What it is.
    pub name: String,
    /// Characters.
    pub chars: usize,
    /// Estimated tokens.
    pub tokens: u64,
    /// The text itself, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A file of the workspace in a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileReport {
    /// Its path in the workspace.
    pub name: String,
    /// Characters of the whole.
    pub chars: usize,
    /// Characters that are told.
    pub told_chars: usize,
    /// Whether a part is left out.
    pub cut: bool,
}

/// A skill in a report. Its variables are named, never shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkillReport {
    /// Its name.
    pub name: String,
    /// The command that asks for it; absent: people cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Whether the model is told of it.
    pub listed: bool,
    /// Where it is; absent: in a directory of the operator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Names of the variables that its commands get.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill(name: &str, user_invocable: bool, variables: &[&str]) -> Skill {
        let variable = |name: &&str| Variable { name: (*name).to_owned(), value: Secret::new("hush".to_owned()) };
        Skill {
            name: name.into(),
            description: "d".into(),
            place: SkillPlace::Elsewhere,
            user_invocable,
            listed: true,
            variables: variables.iter().map(variable).collect(),
        }
    }

    #[test]
    fn a_skill_is_asked_for_by_its_name_as_a_command() {
        let list = vec![skill("Web Search", true, &[]), skill("inner", false, &[]), skill(&"x".repeat(64), true, &[])];
        let skills = Skills { list, ..Skills::default() };
        for (word, expected) in [
            ("/web_search", Some("Web Search")),
            ("/web-search", Some("Web Search")),
            ("web_search", None),
            ("/inner", None),
            ("/", None),
        ] {
            assert_eq!(skills.by_command(word).map(|skill| &*skill.name), expected, "{word}");
        }
        assert_eq!(skills.list[2].command().len(), COMMAND_MAX_CHARS);
    }

    #[test]
    fn of_two_variables_with_one_name_the_first_stays_and_no_value_is_shown() {
        let skills =
            Skills { list: vec![skill("a", true, &["K", "L"]), skill("b", true, &["L", "M"])], ..Skills::default() };
        let variables = skills.variables();
        let names: Vec<_> = variables.iter().map(|variable| &*variable.name).collect();
        assert_eq!(names, ["K", "L", "M"]);
        assert!(!format!("{skills:?}").contains("hush"));
    }
}
