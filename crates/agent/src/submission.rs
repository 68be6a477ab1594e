//! Parses messages: the grammar of commands. Pure functions.
//!
//! A command is a message that begins with a command word, followed by arguments. Upper and lower case are equivalent,
//! and `@botname` may follow the word. Everything else is input for the model, unchanged.

mod freeze;
mod settings;

use std::borrow::Cow;

use belay_protocol::grant::{CONFIRM_OPTION, GRANT_OPTION, GrantOptions};
use belay_protocol::{
    CommandInfo, Decision, FreezeRequest, GoalCommand, GoalMessage, GoalRequest, IdPrefix, PeopleRequest, PlanCommand,
    PlanMessage, PlanRequest, Skill, SkillLocation, Skills,
};

use serde::{Deserialize, Serialize};

pub use belay_automation::jobs::JobCommand;
pub use belay_run::tool_health::ToolsCommand;
pub use settings::{Change, Setting, SettingCommand};

use belay_automation::routines::{self, RoutineCommand};
use belay_run::tool_health;
use belay_text::near::nearest;

/// A parsed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submission {
    /// Input for the model.
    Input,
    /// `/plan TEXT`: input for the model, which makes a plan for TEXT and works through it.
    Plan(PlanRequest),
    /// `/goal TEXT until CHECK`: input for the model, which works until the check holds.
    Goal(Box<GoalRequest>),
    /// `/NAME [TEXT]` of a skill: input for the model, unchanged. Holds the instructions about the skill.
    Skill(String),
    /// `/retry` and `/edit TEXT`: input for the model, which replaces the last turn.
    Repeat(Repeat),
    /// A command that exists.
    Command(Command),
    /// An unknown command word.
    Unknown {
        /// The word of the message.
        word: String,
        /// The most similar known word.
        nearest: &'static str,
    },
}

/// The text of a message that replaces the last turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Repeat {
    /// `/retry`: the text of the turn.
    Same,
    /// `/edit TEXT`: another text.
    Other(String),
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `/quit` `/exit` `/shutdown`: shuts the daemon down.
    Quit,
    /// `/stop [RUN or SESSION or all]`: ends the running turn and clears the queue.
    Stop(Option<String>),
    /// `/interrupt`: ends the running turn; the queue continues.
    Interrupt,
    /// `/freeze [REASON]` `/thaw`, with the options of the command line: stops everything, or a part, until the thaw;
    /// `/freezes` lists; operators only.
    Freeze(FreezeRequest),
    /// `/status`: shows the status.
    Status,
    /// `/help` `/help all`: lists the most used commands, or all.
    Help(HelpPart),
    /// `/start`: greets; without a greeting, lists the most used commands.
    Start,
    /// `/version`: shows the version.
    Version,
    /// `/ping`: checks that Belay answers.
    Ping,
    /// `/tools` `/tools disable NAME WHY` `/tools enable NAME`: lists the tools of the model; operators disable and
    /// enable them.
    Tools(ToolsCommand),
    /// `/queue` `/think` `/reasoning` `/verbose` `/model`: settings of the conversation for all its runs.
    Setting(SettingCommand),
    /// `/undo` `/redo` `/clear` `/new` `/reset` `/compact` `/summarize` `/sessions` `/resume` `/fork`: lists the threads, or changes the thread, in order with its turns.
    Thread(ThreadCommand),
    /// `/approve [ID]` `/always [ID]` `/deny [ID]`: answers the waiting approval request, or the one with this id.
    Decide(Decision, Option<String>),
    /// `/plan` `/plan approve` `/plan drop N` …: the plan that runs here.
    Plan(PlanCommand),
    /// `/goal` `/goal cancel`: the goal that runs here.
    Goal(GoalCommand),
    /// `/routine …`: routines.
    Routine(RoutineCommand),
    /// `/memory` `/forget ID`: lists the notes of the person, or of the group in a group, and deletes one.
    Memory(MemoryCommand),
    /// `/pair CODE`: admits a stranger; operators only.
    People(PeopleRequest),
    /// `/job TASK` `/job ID [TEXT]` `/jobs` `/cancel ID`: jobs.
    Job(JobCommand),
    /// A command with a missing or invalid argument. The text is its usage.
    Usage(Cow<'static, str>),
}

/// The part of the commands that `/help` lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelpPart {
    /// The most used ones.
    MostUsed,
    /// All.
    All,
}

impl HelpPart {
    /// The part that the argument of `/help` asks for.
    fn of(argument: Option<&str>) -> Self {
        if argument.is_some_and(|word| word.eq_ignore_ascii_case("all")) { Self::All } else { Self::MostUsed }
    }
}

/// A command about notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryCommand {
    /// Lists the notes.
    List,
    /// Deletes the note with this number.
    Forget(u64),
}

/// A command that changes the thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ThreadCommand {
    /// Hides the last turn.
    Undo,
    /// Shows the hidden turn again.
    Redo,
    /// Hides all turns.
    Clear,
    /// Opens another thread.
    New,
    /// Lists the threads of the session. Acts at once, also during a turn.
    List,
    /// `/resume ID`: continues an earlier thread.
    Resume(IdPrefix),
    /// Continues in a copy of the thread.
    Fork,
    /// `/compact [INSTRUCTIONS]`: replaces the older part by a summary that follows the instructions.
    Compact(Option<String>),
    /// `/summarize`: shows a summary of the conversation and changes nothing.
    Summarize,
    /// `/loops on|off`: enables or disables loop detection. Takes effect at once, also in the running turn.
    Loops(bool),
    /// `/hide`: leaves the session out of lists until its next message; operators only. Acts at once, also during a
    /// turn.
    Hide,
    /// Deletes the whole session. Only programs of operators request it; there is no command word for it.
    Delete,
}

/// All command words by groups, with their help texts: short, so that the whole list fits a screen of 80 × 24. Suggestions
/// use the words too.
pub const GROUPS: &[(&str, &[(&str, &str)])] = &[
    (
        "Work",
        &[
            ("/status", "what runs"),
            ("/stop", "end the turn, clear the queue"),
            ("/interrupt", "end the turn, go on with the queue"),
            ("/plan TEXT", "work step by step"),
            ("/goal TEXT until CHECK", "work until it holds"),
        ],
    ),
    ("Questions", &[("/approve", "yes"), ("/always", "yes, also to similar ones"), ("/deny", "no")]),
    (
        "Conversation",
        &[
            ("/new", "begin a new one"),
            ("/reset", ALIAS),
            ("/clear", "delete it"),
            ("/undo", "take the last turn back"),
            ("/redo", "restore it"),
            ("/retry", "send the last message again"),
            ("/edit TEXT", "send TEXT instead"),
            ("/compact", "shorten the older part"),
            ("/summarize", "show a summary"),
            ("/sessions", "list all"),
            ("/resume ID", "continue one"),
            ("/fork", "copy it"),
        ],
    ),
    ("Memory", &[("/memory", "list notes"), ("/forget ID", "delete one")]),
    (
        "Background",
        &[
            ("/job TASK", "start a job; /job ID TEXT writes to it"),
            ("/jobs", "list them"),
            ("/cancel ID", "cancel one"),
            ("/routine", "list routines; create, show, on, off, next, fire, delete"),
        ],
    ),
    (
        "Settings",
        &[
            ("/model", "show or choose the model"),
            ("/think", "off, low, medium, high"),
            ("/reasoning", "off, on, stream"),
            ("/verbose", "a line for each tool call: on, off"),
            ("/queue", "messages during a turn: steer, followup, collect, interrupt"),
            ("/loops", "loop detection: on, off"),
            ("/hide", "no list shows this until the next message"),
        ],
    ),
    (
        "Belay",
        &[
            ("/tools", "list tools; operators: disable, enable"),
            ("/help", "the most used; /help all: this list"),
            ("/freeze", "stop all work until /thaw (operators)"),
            ("/freezes", "list them (operators)"),
            ("/thaw", "end the freeze"),
            ("/pair CODE", "admit a stranger (operators)"),
            ("/ping", "does it answer"),
            ("/version", "its version"),
            ("/quit", "stop the daemon (operators)"),
            ("/exit", ALIAS),
            ("/shutdown", ALIAS),
        ],
    ),
];

/// Commands that only operators may use.
const OPERATORS_ONLY: [&str; 7] = ["/freeze", "/freezes", "/thaw", "/pair", "/quit", "/exit", "/shutdown"];

/// Commands for the menu of a group. The others work there too.
const IN_GROUPS: [&str; 11] =
    ["/status", "/stop", "/approve", "/deny", "/new", "/undo", "/summarize", "/memory", "/job", "/jobs", "/help"];

/// The description of a command that does the same as the one before it.
const ALIAS: &str = "the same";

/// The commands for the menu of a platform, without aliases.
pub fn menu() -> Vec<CommandInfo> {
    let commands = GROUPS.iter().flat_map(|(_, commands)| *commands).filter(|(_, description)| *description != ALIAS);
    let info = |(usage, description): &(&'static str, &'static str)| {
        let word = word_in(usage);
        CommandInfo {
            name: word.trim_start_matches('/'),
            description,
            operators_only: OPERATORS_ONLY.contains(&word),
            in_groups: IN_GROUPS.contains(&word),
        }
    };
    commands.map(info).collect()
}

/// The word at the beginning of a usage.
fn word_in(usage: &'static str) -> &'static str {
    usage.split(' ').next().unwrap_or(usage)
}

/// All command words.
pub fn words() -> impl Iterator<Item = &'static str> {
    let usages = GROUPS.iter().flat_map(|(_, commands)| commands.iter().map(|(usage, _)| *usage));
    usages.map(word_in)
}

const JOB_USAGE: &str = "Add the task: /job TASK. The job runs in the background, and its result is sent to this \
conversation. /jobs lists jobs, /job ID shows one, /job ID TEXT sends it a message.";

const CANCEL_USAGE: &str = "Add the job's id, as /jobs shows it: /cancel ID.";

const EDIT_USAGE: &str = "Add the new text: /edit TEXT. It replaces your last message and its answer. /retry sends \
the last message again as it was. A command cannot be the text.";

const FORGET_USAGE: &str = "Add the number of the note, as /memory shows it: /forget 7.";

const PAIR_USAGE: &str = "Add the code that the bot has sent to the person: /pair CODE. The person may write in the \
private chat then. `belay people` lists everybody.";

const RESUME_USAGE: &str = "Add the conversation's id, as /sessions shows it: /resume ID.";

/// Maximum length of a command word; the longest one has 10 bytes.
const MAX_WORD_BYTES: usize = 32;

impl Submission {
    /// Whether the message becomes a run, in order with the other messages of the conversation.
    pub fn is_input(&self) -> bool {
        matches!(self, Self::Input | Self::Plan(_) | Self::Goal(_) | Self::Skill(_) | Self::Repeat(_))
    }
}

/// Parses a message.
pub fn parse(text: &str) -> Submission {
    let trimmed = text.trim();
    if !trimmed.starts_with('/') {
        return Submission::Input;
    }
    let (word, rest) = trimmed.split_once(char::is_whitespace).unwrap_or((trimmed, ""));
    let word = word.split_once('@').map_or(word, |(word, _bot)| word);
    if word.len() > MAX_WORD_BYTES {
        return Submission::Input;
    }
    let word = word.to_lowercase();
    // A path such as `/etc/hosts` is text, not a command.
    if word.len() < 2 || !word[1..].chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-') {
        return Submission::Input;
    }
    let argument = Some(rest.trim()).filter(|rest| !rest.is_empty()).map(str::to_owned);
    if let Some(setting) = Setting::of(&word) {
        let command = setting.parse(argument.as_deref());
        return Submission::Command(command.map_or(Command::Usage(setting.usage().into()), Command::Setting));
    }
    let command = match word.as_str() {
        "/quit" | "/exit" | "/shutdown" => Command::Quit,
        "/stop" => Command::Stop(argument),
        "/interrupt" => Command::Interrupt,
        "/freeze" => freeze::freeze(argument.as_deref()).map_or(Command::Usage(freeze::USAGE.into()), Command::Freeze),
        "/thaw" => freeze::thaw(argument.as_deref()).map_or(Command::Usage(freeze::USAGE.into()), Command::Freeze),
        "/freezes" => Command::Freeze(FreezeRequest::ListAll),
        "/status" => Command::Status,
        "/help" => Command::Help(HelpPart::of(argument.as_deref())),
        // Every Telegram client sends it when a bot is opened for the first time.
        "/start" => Command::Start,
        "/version" => Command::Version,
        "/ping" => Command::Ping,
        "/tools" => match ToolsCommand::parse(argument.as_deref()) {
            Some(command) => Command::Tools(command),
            None => Command::Usage(tool_health::USAGE.into()),
        },
        "/undo" => Command::Thread(ThreadCommand::Undo),
        "/redo" => Command::Thread(ThreadCommand::Redo),
        "/clear" => Command::Thread(ThreadCommand::Clear),
        "/new" | "/reset" => Command::Thread(ThreadCommand::New),
        "/retry" => return Submission::Repeat(Repeat::Same),
        "/edit" => match argument
            .filter(|text| matches!(parse(text), Submission::Input | Submission::Plan(_) | Submission::Goal(_)))
        {
            Some(text) => return Submission::Repeat(Repeat::Other(text)),
            None => Command::Usage(EDIT_USAGE.into()),
        },
        "/sessions" => Command::Thread(ThreadCommand::List),
        "/memory" => Command::Memory(MemoryCommand::List),
        "/forget" => match argument.and_then(|id| id.parse().ok()) {
            Some(id) => Command::Memory(MemoryCommand::Forget(id)),
            None => Command::Usage(FORGET_USAGE.into()),
        },
        "/resume" => match argument.and_then(|id| IdPrefix::parse(&id).ok()) {
            Some(id) => Command::Thread(ThreadCommand::Resume(id)),
            None => Command::Usage(RESUME_USAGE.into()),
        },
        "/hide" => Command::Thread(ThreadCommand::Hide),
        "/pair" => {
            argument.map_or(Command::Usage(PAIR_USAGE.into()), |code| Command::People(PeopleRequest::Pair { code }))
        }
        "/fork" => Command::Thread(ThreadCommand::Fork),
        "/summarize" => Command::Thread(ThreadCommand::Summarize),
        "/compact" => Command::Thread(ThreadCommand::Compact(argument)),
        "/plan" => match PlanMessage::parse(argument.as_deref().unwrap_or_default()) {
            PlanMessage::Request(request) => return Submission::Plan(request),
            PlanMessage::Command(command) => Command::Plan(command),
            PlanMessage::Usage(usage) => Command::Usage(usage.into()),
        },
        "/goal" => match GoalMessage::parse(argument.as_deref().unwrap_or_default()) {
            GoalMessage::Request(request) => return Submission::Goal(request),
            GoalMessage::Command(command) => Command::Goal(command),
            GoalMessage::Usage(usage) => Command::Usage(usage.into()),
        },
        "/routine" | "/routines" => match RoutineCommand::parse(argument.as_deref()) {
            Some(command) => Command::Routine(command),
            None => Command::Usage(routines::USAGE.into()),
        },
        "/loops" => match argument.as_deref().map(str::to_lowercase).as_deref() {
            Some("on") => Command::Thread(ThreadCommand::Loops(true)),
            Some("off") => Command::Thread(ThreadCommand::Loops(false)),
            _ => Command::Usage(Cow::Borrowed(
                "/loops on turns loop detection on in this conversation (the default), /loops off \
                                 turns it off.",
            )),
        },
        "/job" => job(argument),
        "/jobs" => Command::Job(JobCommand::List),
        "/cancel" => match argument.and_then(|id| IdPrefix::parse(&id).ok()) {
            Some(id) => Command::Job(JobCommand::Cancel(id)),
            None => Command::Usage(CANCEL_USAGE.into()),
        },
        "/approve" => Command::Decide(Decision::Approve, argument),
        "/always" => Command::Decide(Decision::Always, argument),
        "/deny" => Command::Decide(Decision::Deny, argument),
        other => return Submission::Unknown { nearest: nearest_command(other), word },
    };
    Submission::Command(command)
}

/// Parses the argument of `/job`. Its first word may be the id of a job. If the beginning of an id is followed by a
/// text, only the store knows whether it is an id or a part of a task.
fn job(argument: Option<String>) -> Command {
    let Some(argument) = argument else { return Command::Usage(JOB_USAGE.into()) };
    let (first, rest) = argument.split_once(char::is_whitespace).unwrap_or((&argument, ""));
    if matches!(first, GRANT_OPTION | CONFIRM_OPTION) {
        return allowed(&argument).map_or(Command::Usage(ALLOW_USAGE.into()), Command::Job);
    }
    if first == "revoke"
        && let Some((id, number)) = rest.trim().split_once(char::is_whitespace)
        && let (Some(id), Ok(number)) = (job_id(id), number.trim().parse())
    {
        return Command::Job(JobCommand::Revoke(id, number));
    }
    Command::Job(match (job_id(first), rest.trim()) {
        (Some(id), "") => JobCommand::Show(id),
        (Some(id), text) if id.is_whole() => JobCommand::Message(id, text.to_owned()),
        (Some(id), text) => {
            let text = text.to_owned();
            JobCommand::MessageOrCreate { id, text, task: argument }
        }
        (None, _) => match GoalMessage::of(&argument) {
            Some(GoalMessage::Usage(usage)) => return Command::Usage(usage.into()),
            Some(GoalMessage::Request(goal)) => match goal.check_for_job() {
                Ok(()) => JobCommand::Create(argument),
                Err(usage) => return Command::Usage(usage.into()),
            },
            _ => JobCommand::Create(argument),
        },
    })
}

/// Parses the grants of a job, and the task after them. `None`: a quotation mark, a grant or the task is missing.
fn allowed(argument: &str) -> Option<JobCommand> {
    let GrantOptions { allow, is_confirmed, rest } = GrantOptions::parse(argument)?;
    if allow.is_empty() || rest.is_empty() {
        return None;
    }
    Some(match is_confirmed {
        true => JobCommand::CreateAllowed { allow, task: rest.to_owned() },
        false => JobCommand::ShowGrants { allow, argument: argument.to_owned() },
    })
}

const ALLOW_USAGE: &str = "Write a grant as /job --allow \"run_command: cargo test\" TASK: the name of a tool, and a \
pattern of its command line, or ARGUMENT=PATTERN. `*` fits any text. Repeat --allow for more grants. The answer \
shows them; --yes gives them.";

/// Parses the id of a job, or its beginning, in a position where the word may also begin a task.
fn job_id(word: &str) -> Option<IdPrefix> {
    IdPrefix::parse(word).ok().filter(|id| id.as_str().len() >= JOB_ID_MIN_CHARS)
}

/// Minimum length of an id in such a position, in characters. 8: lists show as many characters.
const JOB_ID_MIN_CHARS: usize = 8;

/// Parses a message. The word of a skill calls the skill, unless it is a command.
pub fn parse_with(text: &str, skills: &Skills) -> Submission {
    match parse(text) {
        Submission::Unknown { word, nearest } => match skills.by_command(&word) {
            Some(skill) => Submission::Skill(asks_for(skill)),
            None => Submission::Unknown { word, nearest },
        },
        other => other,
    }
}

/// Instructions for the model about a message that calls a skill.
fn asks_for(skill: &Skill) -> String {
    let how = match &skill.place {
        SkillLocation::Workspace(path) => format!("read {path} with read_file"),
        SkillLocation::Elsewhere => "read its instructions with read_skill".to_owned(),
    };
    format!(
        "When a message of the user begins with /{}, the user asks for the skill {}: {how} first, and follow it. The rest of that \
         message is its input.",
        skill.command(),
        skill.name
    )
}

/// The command word of a text, as answers show it: in lower case, without arguments and bot name.
pub fn word_of(text: &str) -> String {
    let word = text.split_whitespace().next().unwrap_or_default();
    word.split_once('@').map_or(word, |(word, _)| word).to_lowercase()
}

/// The most similar command word; `/help` if no word is similar.
fn nearest_command(word: &str) -> &'static str {
    nearest(word, words()).unwrap_or("/help")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(command: Command) -> Submission {
        Submission::Command(command)
    }

    fn prefix(text: &str) -> IdPrefix {
        IdPrefix::parse(text).expect("the beginning of an id")
    }

    #[test]
    fn messages_are_read_as_the_contract_says() {
        let id = belay_protocol::JobId::new().to_string();
        for (text, expected) in [
            ("hello", Submission::Input),
            ("", Submission::Input),
            ("  /stop", command(Command::Stop(None))),
            ("/STOP@MyBot", command(Command::Stop(None))),
            ("/stop  all ", command(Command::Stop(Some("all".into())))),
            ("/stopp", Submission::Unknown { word: "/stopp".into(), nearest: "/stop" }),
            ("/modelfoo", Submission::Unknown { word: "/modelfoo".into(), nearest: "/model" }),
            ("/queue", command(Command::Setting(SettingCommand { setting: Setting::Queue, change: Change::Show }))),
            (
                "/Think default",
                command(Command::Setting(SettingCommand { setting: Setting::Thinking, change: Change::Default })),
            ),
            ("/verbose loudly", command(Command::Usage(Setting::Verbose.usage().into()))),
            ("/quit", command(Command::Quit)),
            ("/Exit", command(Command::Quit)),
            ("/retry please", Submission::Repeat(Repeat::Same)),
            ("/Edit@MyBot  two\nlines ", Submission::Repeat(Repeat::Other("two\nlines".into()))),
            ("/edit /plan tidy", Submission::Repeat(Repeat::Other("/plan tidy".into()))),
            ("/edit", command(Command::Usage(EDIT_USAGE.into()))),
            ("/edit /plan drop 2", command(Command::Usage(EDIT_USAGE.into()))),
            ("/plan", command(Command::Plan(PlanCommand::Show))),
            ("/Plan drop 2", command(Command::Plan(PlanCommand::Drop { step: 2 }))),
            ("/edit /stop", command(Command::Usage(EDIT_USAGE.into()))),
            ("/edit /retry", command(Command::Usage(EDIT_USAGE.into()))),
            ("/shutdown now", command(Command::Quit)),
            ("please /quit", Submission::Input),
            ("/etc/hosts is a file", Submission::Input),
            (&format!("/{}", "a".repeat(100_000)), Submission::Input),
            ("/", Submission::Input),
            ("//", Submission::Input),
            ("/new", command(Command::Thread(ThreadCommand::New))),
            ("/sessions", command(Command::Thread(ThreadCommand::List))),
            ("/resume 0199e3a0", command(Command::Thread(ThreadCommand::Resume(prefix("0199e3a0"))))),
            ("/resume", command(Command::Usage(RESUME_USAGE.into()))),
            ("/resume garden", command(Command::Usage(RESUME_USAGE.into()))),
            ("/fork", command(Command::Thread(ThreadCommand::Fork))),
            ("/hide", command(Command::Thread(ThreadCommand::Hide))),
            ("/memory", command(Command::Memory(MemoryCommand::List))),
            ("/Forget@MyBot 7", command(Command::Memory(MemoryCommand::Forget(7)))),
            ("/forget", command(Command::Usage(FORGET_USAGE.into()))),
            ("/forget me", command(Command::Usage(FORGET_USAGE.into()))),
            ("/reset", command(Command::Thread(ThreadCommand::New))),
            ("/jobs", command(Command::Job(JobCommand::List))),
            ("/job", command(Command::Usage(JOB_USAGE.into()))),
            ("/Job@MyBot  count the\nfiles ", command(Command::Job(JobCommand::Create("count the\nfiles".into())))),
            (&format!("/job {id}"), command(Command::Job(JobCommand::Show(prefix(&id))))),
            (
                &format!("/job {id}  /stop that"),
                command(Command::Job(JobCommand::Message(prefix(&id), "/stop that".into()))),
            ),
            (&format!("/cancel {id}"), command(Command::Job(JobCommand::Cancel(prefix(&id))))),
            ("/cancel everything", command(Command::Usage(CANCEL_USAGE.into()))),
            ("/job /goal x until `true`", command(Command::Job(JobCommand::Create("/goal x until `true`".into())))),
            ("/goal", command(Command::Goal(GoalCommand::Show))),
            ("/goal cancel", command(Command::Goal(GoalCommand::Cancel))),
            ("/cancel 0199e3a0", command(Command::Job(JobCommand::Cancel(prefix("0199e3a0"))))),
            ("/job 0199e3a0-7b", command(Command::Job(JobCommand::Show(prefix("0199e3a0-7b"))))),
            (
                "/job EE7F84BF-b050-80d3-b2d4-3b90d2fef700  stop",
                command(Command::Job(JobCommand::Message(
                    prefix("ee7f84bf-b050-80d3-b2d4-3b90d2fef700"),
                    "stop".into(),
                ))),
            ),
            (
                "/job 01022026 report",
                command(Command::Job(JobCommand::MessageOrCreate {
                    id: prefix("01022026"),
                    text: "report".into(),
                    task: "01022026 report".into(),
                })),
            ),
            ("/job facade of the church", command(Command::Job(JobCommand::Create("facade of the church".into())))),
            ("/plan  ", command(Command::Plan(PlanCommand::Show))),
            (
                "/Plan@MyBot tidy\nthe house ",
                Submission::Plan(PlanRequest { text: "tidy\nthe house".into(), review: false }),
            ),
            ("/planet earth", Submission::Unknown { word: "/planet".into(), nearest: "/plan" }),
            ("/approve", command(Command::Decide(Decision::Approve, None))),
            ("/Deny  abc", command(Command::Decide(Decision::Deny, Some("abc".into())))),
            ("yes", Submission::Input),
            ("/help\nme", command(Command::Help(HelpPart::MostUsed))),
            ("/Help@MyBot  All", command(Command::Help(HelpPart::All))),
            ("NO_REPLY", Submission::Input),
            ("/ünknown", Submission::Unknown { word: "/ünknown".into(), nearest: "/help" }),
        ] {
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_word_of_a_skill_asks_for_it_and_takes_no_word_of_ours() {
        let skill = |name: &str, place| Skill {
            name: name.into(),
            description: "d".into(),
            place,
            user_invocable: true,
            listed: true,
            variables: Vec::new(),
        };
        let inside = SkillLocation::Workspace("skills/web/SKILL.md".into());
        let list = vec![
            skill("Web Search", inside),
            skill("taxes", SkillLocation::Elsewhere),
            skill("stop", SkillLocation::Elsewhere),
        ];
        let skills = Skills { list, ..Skills::default() };
        for (text, word, what) in [
            ("/web-search@Bot  two\nlines ", "/web_search", "Web Search: read skills/web/SKILL.md with read_file"),
            ("/TAXES", "/taxes", "taxes: read its instructions with read_skill"),
        ] {
            let expected = format!(
                "When a message of the user begins with {word}, the user asks for the skill {what} first, and follow it. The rest of \
                 that message is its input."
            );
            assert_eq!(parse_with(text, &skills), Submission::Skill(expected), "{text:?}");
        }
        for text in ["/stop", "/stopp", "taxes", "/etc/taxes", "hello"] {
            assert_eq!(parse_with(text, &skills), parse(text), "{text:?}");
        }
    }

    #[test]
    fn the_menu_has_each_command_once_with_names_that_platforms_accept() {
        let menu = menu();
        // Telegram: BotCommand: 1 to 32 characters out of a-z, 0-9 and _, and a description of 1 to 256.
        assert!(menu.iter().all(|it| (1..=32).contains(&it.name.len())
            && it.name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
            && (1..=256).contains(&it.description.chars().count())));
        let mut names: Vec<_> = menu.iter().map(|it| it.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!((names.len(), menu.len()), (menu.len(), words().count() - 3), "three words are aliases");
        let marked = |marks: &[&str]| marks.iter().all(|word| words().any(|known| known == *word));
        assert!(marked(&OPERATORS_ONLY) && marked(&IN_GROUPS));
        assert_eq!(menu.iter().filter(|it| it.in_groups).count(), IN_GROUPS.len());
        assert!(menu.iter().all(|it| !(it.in_groups && it.operators_only)));
    }

    #[test]
    fn every_listed_word_is_a_command() {
        for word in words() {
            assert!(matches!(parse(word), Submission::Command(_) | Submission::Repeat(_)), "{word}");
        }
    }
}
