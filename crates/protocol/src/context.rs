//! The surroundings of a run that its prompt contains: files of the workspace, skills, the date. Also the report of a
//! context for operators.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;

use crate::ids::{ChannelId, SessionKey};
use crate::message::Message;
use crate::options::RunOptions;
use crate::secret::Secret;
use crate::time::UnixMillis;

/// The one file of the workspace that the prompts of subagents, steps of plans and workers contain too.
pub const RULES_FILE: &str = "AGENTS.md";

/// Reads the surroundings of a run in their present state. Unchanged content is the same `Arc` as before, so that
/// callers can cache what they derive from it.
#[async_trait]
pub trait ContextSource: Send + Sync {
    /// The files of the workspace that are part of every prompt. Checked at each call, read when they have changed.
    async fn bootstrap(&self) -> Arc<Bootstrap>;

    /// The skills. Searched at each call, read when they have changed.
    async fn skills(&self) -> Arc<Skills>;

    /// The skills of the last search. Never waits. For commands that name a skill.
    fn known_skills(&self) -> Arc<Skills>;

    /// A small text file of the workspace; `None`: there is no file at that path.
    ///
    /// # Errors
    /// The reason why the file cannot be used. A file of more than `max_bytes` cannot.
    async fn file(&self, path: &str, max_bytes: u64) -> Result<Option<String>, Unusable>;

    /// The beginning of a text file of the workspace, and whether the file has more than `max_bytes`; `None`: there is
    /// no file at that path.
    ///
    /// # Errors
    /// The reason why the file cannot be used.
    async fn file_start(&self, path: &str, max_bytes: u64) -> Result<Option<(String, bool)>, Unusable>;

    /// The date and the time zone in words, without the time of day: it changes once a day, so that prompts stay the
    /// same. `None`: prompts contain no date.
    fn today(&self, now: UnixMillis) -> Option<String>;
}

/// Empty surroundings.
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

    async fn file(&self, _path: &str, _max_bytes: u64) -> Result<Option<String>, Unusable> {
        Ok(None)
    }

    async fn file_start(&self, _path: &str, _max_bytes: u64) -> Result<Option<(String, bool)>, Unusable> {
        Ok(None)
    }

    fn today(&self, _now: UnixMillis) -> Option<String> {
        None
    }
}

/// The files of the workspace that are part of every prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bootstrap {
    /// The existing files, in their order.
    pub files: Vec<BootstrapFile>,
    /// Existing files that cannot be used.
    pub skipped: Vec<Skipped>,
}

/// A file of the workspace that is part of every prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapFile {
    /// Its path in the workspace.
    pub name: String,
    /// The text in the prompt: the whole file, or its beginning and its end with a line between them that tells how
    /// much is left out.
    pub text: String,
    /// The length of the whole file in characters.
    pub whole_chars: usize,
    /// Whether a part is left out.
    pub cut: bool,
}

/// A file or a skill that exists and cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Skipped {
    /// Its path, or its name.
    pub what: String,
    /// The reason, for people.
    pub why: String,
    /// Whether it could not be opened or read at this moment. Its content may be fine, so that no run begins without it.
    #[serde(skip)]
    pub unread: bool,
}

/// The reason why an existing file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The reason, as the end of a sentence.
    pub why: String,
    /// The kind of reason.
    pub kind: UnusableKind,
}

/// The kind of reason why an existing file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnusableKind {
    /// It is something else than a text file of the workspace, or too large.
    Content,
    /// It may not be read.
    Denied,
    /// It could not be opened or read, such as when no file descriptors are left.
    NotNow,
}

impl Unusable {
    /// A file that could not be opened or read at this moment.
    pub fn not_now(why: impl Into<String>) -> Self {
        Self { why: why.into(), kind: UnusableKind::NotNow }
    }

    /// Whether the content of the file may be fine: work that needs it does not begin without it.
    pub fn is_unread(&self) -> bool {
        self.kind != UnusableKind::Content
    }
}

/// A reason that lies in the content.
impl From<String> for Unusable {
    fn from(why: String) -> Self {
        Self { why, kind: UnusableKind::Content }
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// The skills that can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skills {
    /// In the order of their directories, then of their paths. Names are unique.
    pub list: Vec<Skill>,
    /// Existing skills that cannot be used.
    pub skipped: Vec<Skipped>,
    /// The maximum length of their list in a prompt, in characters.
    pub max_prompt_chars: usize,
}

/// Instructions for a kind of task. The model reads them when it has such a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// Its name: one line, at most 64 characters.
    pub name: String,
    /// Its purpose, in one line.
    pub description: String,
    /// The location of its instructions, for the tool that reads them.
    pub place: SkillLocation,
    /// Whether people may invoke it by a command.
    pub user_invocable: bool,
    /// Whether the prompt lists it.
    pub listed: bool,
    /// Environment variables for the commands of runs that have it.
    pub variables: Vec<Variable>,
}

/// The location of a skill's instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkillLocation {
    /// In the workspace, under this path: `read_file` reads it.
    Workspace(String),
    /// In a directory of the operator. `read_skill` reads it by the skill's name.
    Elsewhere,
}

/// An environment variable of commands. Its value may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Secret,
}

/// The maximum length of a skill's command, in characters. 32: the limit of Telegram.
const COMMAND_MAX_CHARS: usize = 32;

impl Skill {
    /// The command that invokes it, without its slash: lower case, letters, digits and `_`.
    pub fn command(&self) -> String {
        let fits = |c: char| if c.is_alphanumeric() { c } else { '_' };
        self.name.chars().flat_map(char::to_lowercase).map(fits).take(COMMAND_MAX_CHARS).collect()
    }
}

impl Skills {
    /// The skill of this command, given with its slash. `-` and `_` are the same.
    pub fn by_command(&self, word: &str) -> Option<&Skill> {
        let word = word.strip_prefix('/')?.replace('-', "_");
        self.list.iter().find(|skill| skill.user_invocable && skill.command() == word)
    }

    /// The variables of all skills. Of two with the same name the first one counts.
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

/// A stored conversation, for the report of its context.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// The summary of older messages that compaction has replaced.
    pub summary: Option<String>,
    /// The visible messages of ended turns, oldest first.
    pub messages: Vec<Arc<Message>>,
    /// The options of the session.
    pub options: RunOptions,
    /// The channel of its newest message.
    pub channel: Option<ChannelId>,
    /// The principal of its newest message.
    pub principal: Option<Arc<str>>,
    /// Whether the store has the skills that it began with.
    pub has_skills: bool,
}

/// The context that the model of a session would get now. Tokens are estimates: a quarter of the bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContextReport {
    /// The session.
    pub session: SessionKey,
    /// The model's name.
    pub model: String,
    /// The size of the model's context, in tokens.
    pub context_tokens: u64,
    /// The tokens that are used before the next message.
    pub used_tokens: u64,
    /// The parts of the system prompt, in order.
    pub prompt: Vec<PartReport>,
    /// The files in the system prompt.
    pub files: Vec<FileReport>,
    /// The skills.
    pub skills: Vec<SkillReport>,
    /// Existing files and skills that cannot be used.
    pub skipped: Vec<Skipped>,
    /// The tools: their descriptions and schemas.
    pub tools: Vec<PartReport>,
    /// The summary of older messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<PartReport>,
    /// The number of messages.
    pub messages: usize,
    /// The size of the messages.
    pub conversation: PartReport,
}

/// The size of one part of a context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PartReport {
    /// The name of the part.
    pub name: String,
    /// Its length in characters.
    pub chars: usize,
    /// Its estimated tokens.
    pub tokens: u64,
    /// The text, if the request asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A file of the workspace in a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileReport {
    /// Its path in the workspace.
    pub name: String,
    /// The length of the whole file in characters.
    pub chars: usize,
    /// The length of the text in the prompt, in characters.
    pub told_chars: usize,
    /// Whether a part is left out.
    pub cut: bool,
}

/// A skill in a report. The report has the names of its variables, never their values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SkillReport {
    /// Its name.
    pub name: String,
    /// The command that invokes it; absent: people cannot invoke it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Whether the prompt lists it.
    pub listed: bool,
    /// Its path in the workspace; absent: it is in a directory of the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The names of the variables that its commands get.
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
            place: SkillLocation::Elsewhere,
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
