//! Settings: the list `[[hooks]]`.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use belay_protocol::{HookFailure, HookKind, HookPoint};
use belay_text::near::nearest;
use globset::Glob;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::audit::AuditConfig;
use crate::redact::RedactConfig;

/// Longest time limit of a hook. 10 minutes: a hook that needs more should start work of its own and answer at once.
const MAX_TIMEOUT: Duration = Duration::from_secs(600);
/// Most hooks. 64: each message may ask all of them.
const MAX_HOOKS: usize = 64;
/// Longest name of a hook in bytes. Refusals contain it, which people and the model read.
const MAX_NAME: usize = 64;

/// `[[hooks]]`: every hook. The order counts among hooks of the same priority.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HooksConfig(pub Vec<HookConfig>);

/// One `[[hooks]]` entry. Exactly one of `command`, `url`, `redact` and `audit` defines its kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HookConfig {
    /// Its name, in the log and in the text of a refusal: letters, digits, `_`, `-` and `.`, at most 64 of them.
    pub name: String,
    /// The points at which it is asked. May be absent for `redact` and `audit`, which have default points.
    pub on: Points,
    /// A program and its arguments, started for each event without a shell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Variables for the program, in addition to `PATH`, `HOME` and `LANG`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// An address to which each event is posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The environment variable with a token for that address. It is sent as `Authorization: Bearer …`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_env: Option<String>,
    /// Replaces matches in texts that are sent or that enter a conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redact: Option<RedactConfig>,
    /// Writes events to a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditConfig>,
    /// Hooks with a higher priority are asked first.
    pub priority: i32,
    /// Time limit for one answer in milliseconds, 1 to 600 000. Absent: the default of each point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The effect of its failure: `open` continues, `closed` refuses. Absent: the default of each point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<HookFailure>,
    /// At the points of tool calls, only for these tools: names, or patterns such as `run_*`. Empty: all tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
}

/// The name of a point, or several.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Points(pub Vec<String>);

impl<'de> Deserialize<'de> for Points {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected the name of a point, or a list of names")]
        enum Written {
            One(String),
            Several(Vec<String>),
        }
        Ok(Self(match Written::deserialize(deserializer)? {
            Written::One(name) => vec![name],
            Written::Several(names) => names,
        }))
    }
}

impl HooksConfig {
    /// Every problem, each starting with its key; empty if there is none.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.0.len() > MAX_HOOKS {
            problems.push(format!("hooks: at most {MAX_HOOKS} of them, and these are {}", self.0.len()));
        }
        let mut names = HashSet::new();
        for (at, hook) in self.0.iter().enumerate() {
            let own = hook.problems().into_iter().map(|(key, what)| format!("hooks[{at}]{key}: {what}"));
            problems.extend(own);
            if !hook.name.is_empty() && !names.insert(&hook.name) {
                problems.push(format!("hooks[{at}].name: {} is taken by another hook; give each its own", hook.name));
            }
        }
        problems
    }
}

impl HookConfig {
    /// The configured points. Unknown names are left out; [`HooksConfig::validate`] reports them.
    pub(crate) fn points(&self) -> Vec<HookPoint> {
        let mut points: Vec<HookPoint> = match (&self.on.0[..], &self.redact, &self.audit) {
            ([], Some(_), _) => RedactConfig::POINTS.to_vec(),
            ([], _, Some(_)) => AuditConfig::POINTS.to_vec(),
            (names, ..) => names.iter().filter_map(|name| HookPoint::from_word(name)).collect(),
        };
        points.sort();
        points.dedup();
        points
    }

    /// Keys within the table, with the problem of each.
    fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        let mut wrong = |key: &'static str, what: &str| problems.push((key, what.to_owned()));
        if !is_name(&self.name) {
            wrong(".name", "give a name of letters, digits, `_`, `-` and `.`, at most 64 of them");
        }
        let given = [!self.command.is_empty(), self.url.is_some(), self.redact.is_some(), self.audit.is_some()];
        if given.iter().filter(|given| **given).count() != 1 {
            wrong("", "give one of `command`, `url`, `redact` and `audit`, which says what the hook is");
        }
        if self.command.first().is_some_and(|program| program.trim().is_empty())
            || self.command.iter().any(|word| word.contains('\0'))
        {
            wrong(".command", "the first word is the program, and no word may have a NUL character");
        }
        if !self.env.is_empty() && self.command.is_empty() {
            wrong(".env", "is for `command` alone");
        }
        if self.env.iter().any(|(name, value)| !is_variable(name) || value.contains('\0')) {
            wrong(".env", "a variable has a name without `=`, and no NUL character in name or value");
        }
        if let Some(problem) = self.url.as_deref().and_then(url_problem) {
            wrong(".url", problem);
        }
        if let Some(variable) = &self.token_env {
            if self.url.is_none() {
                wrong(".token_env", "is for `url` alone; a command takes its token from `env`");
            } else if !is_environment_variable(variable) {
                wrong(
                    ".token_env",
                    "is no name of an environment variable; if it is the token itself, put it into a variable and name that",
                );
            }
        }
        if let Some(redact) = &self.redact {
            problems.extend(redact.problems());
        }
        if let Some(audit) = &self.audit {
            problems.extend(audit.problems());
        }
        if self.timeout_ms.is_some_and(|ms| !(1..=MAX_TIMEOUT.as_millis() as u64).contains(&ms)) {
            problems.push((".timeout_ms", format!("must be 1 to {}", MAX_TIMEOUT.as_millis())));
        }
        problems.extend(self.problems_of_points());
        problems
    }

    fn problems_of_points(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        for name in self.on.0.iter().filter(|name| HookPoint::from_word(name).is_none()) {
            let hint = match nearest(name, HookPoint::ALL.iter().map(|point| point.word())) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("there are {}", HookPoint::ALL.in_words()),
            };
            problems.push((".on", format!("there is no point {name:?}; {hint}")));
        }
        let points = self.points();
        if points.is_empty() && self.on.0.is_empty() {
            problems.push((".on", format!("name at least one point: {}", HookPoint::ALL.in_words())));
        }
        if self.redact.is_some() {
            for point in points.iter().filter(|point| !RedactConfig::POSSIBLE.contains(point)) {
                let words = RedactConfig::POSSIBLE.in_words();
                problems.push((".on", format!("there is no text to redact at {}; {words} have one", point.word())));
            }
        }
        if self.on_failure == Some(HookFailure::Closed) {
            for point in points.iter().filter(|point| point.kind() != HookKind::Decide) {
                let what = format!(
                    "nothing can be refused at {}; leave this away, or name that point in a hook of its own",
                    point.word()
                );
                problems.push((".on_failure", what));
            }
        }
        if !self.tools.is_empty() && !points.iter().any(|point| is_of_tools(*point)) && !points.is_empty() {
            problems.push((".tools", format!("is for {}", TOOL_POINTS.in_words())));
        }
        for pattern in self.tools.iter().filter(|pattern| Glob::new(pattern).is_err()) {
            problems.push((".tools", format!("{pattern:?} is no pattern; `run_*` would be one")));
        }
        problems
    }
}

/// The points that concern a tool call.
const TOOL_POINTS: [HookPoint; 3] = [HookPoint::BeforeToolCall, HookPoint::AfterToolCall, HookPoint::ToolResultPersist];

/// Whether a point concerns a tool call.
pub(crate) fn is_of_tools(point: HookPoint) -> bool {
    TOOL_POINTS.contains(&point)
}

/// Names of points on one line.
trait Words {
    fn in_words(&self) -> String;
}

impl Words for [HookPoint] {
    fn in_words(&self) -> String {
        self.iter().map(|point| point.word()).collect::<Vec<_>>().join(", ")
    }
}

fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    (1..=MAX_NAME).contains(&name.len()) && name.chars().all(fits)
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

/// Whether a name looks like that of an environment variable. Anything else may be a secret in the wrong setting and is
/// not shown.
fn is_environment_variable(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.len() <= MAX_NAME
}

fn url_problem(url: &str) -> Option<&'static str> {
    match Url::parse(url) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") || !url.has_host() => {
            Some("must begin with http:// or https:// and name a host")
        }
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            Some("must not hold a name or password; put a token into a variable and name it in `token_env`")
        }
        Ok(_) => None,
        Err(_) => Some("must be an address such as http://127.0.0.1:9000/hook"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        #[derive(Deserialize)]
        struct File {
            hooks: HooksConfig,
        }
        toml::from_str::<File>(text).expect("the text parses").hooks.validate()
    }

    #[test]
    fn hooks_of_every_kind_are_valid_as_the_guide_shows_them() {
        let text = r#"
            [[hooks]]
            name = "guard"
            on = "before_tool_call"
            command = ["/usr/local/bin/guard", "--strict"]
            env = { MODE = "strict" }
            tools = ["run_*"]
            priority = 10
            timeout_ms = 2000
            on_failure = "closed"

            [[hooks]]
            name = "desk"
            on = ["message_received", "agent_end"]
            url = "http://127.0.0.1:9000/hook"
            token_env = "DESK_TOKEN"

            [[hooks]]
            name = "no-keys"
            redact = { patterns = ["sk-[A-Za-z0-9]{20,}"] }

            [[hooks]]
            name = "book"
            audit = { file = "/var/log/belay/audit.jsonl" }
        "#;
        assert_eq!(problems(text), Vec::<String>::new());
    }

    #[test]
    fn each_problem_is_told_with_its_key_and_what_would_work() {
        let command = "command = ['x']\non = 'agent_end'\n";
        for (text, expected) in [
            (format!("name = ''\n{command}"), vec!["hooks[0].name: give a name of letters"]),
            ("name = 'a'\non = 'agent_end'".into(), vec!["hooks[0]: give one of `command`, `url`"]),
            (format!("name = 'a'\nurl = 'http://x/'\n{command}"), vec!["hooks[0]: give one of"]),
            ("name = 'a'\ncommand = ['x']".into(), vec!["hooks[0].on: name at least one point: agent:bootstrap, "]),
            (
                "name = 'a'\ncommand = ['x']\non = 'before_tool_cal'".into(),
                vec!["hooks[0].on: there is no point \"before_tool_cal\"; did you mean before_tool_call?"],
            ),
            (
                "name = 'a'\ncommand = ['x']\non = 'lunch'".into(),
                vec!["hooks[0].on: there is no point \"lunch\"; there are"],
            ),
            ("name = 'a'\ncommand = ['']\non = 'agent_end'".into(), vec!["hooks[0].command: the first word"]),
            (format!("name = 'a'\n{command}env = {{ 'A=B' = '1' }}"), vec!["hooks[0].env: a variable has a name"]),
            (format!("name = 'a'\n{command}token_env = 'T'"), vec!["hooks[0].token_env: is for `url` alone"]),
            (format!("name = 'a'\n{command}timeout_ms = 0"), vec!["hooks[0].timeout_ms: must be 1 to 600000"]),
            (
                format!("name = 'a'\n{command}on_failure = 'closed'"),
                vec!["hooks[0].on_failure: nothing can be refused"],
            ),
            (format!("name = 'a'\n{command}tools = ['x']"), vec!["hooks[0].tools: is for before_tool_call, "]),
            (
                "name = 'a'\ncommand = ['x']\non = 'after_tool_call'\ntools = ['[']".into(),
                vec!["hooks[0].tools: \"[\" is no pattern"],
            ),
            ("name = 'a'\non = 'agent_end'\nurl = 'ftp://x/'".into(), vec!["hooks[0].url: must begin with http://"]),
            ("name = 'a'\non = 'agent_end'\nurl = 'http://a:b@x/'".into(), vec!["hooks[0].url: must not hold a name"]),
            ("name = 'a'\non = 'agent_end'\nurl = 'x'".into(), vec!["hooks[0].url: must be an address"]),
            (
                "name = 'a'\non = 'agent_end'\nurl = 'http://x/'\ntoken_env = 's3-cret'".into(),
                vec!["hooks[0].token_env: is no name of an environment variable; if it is the token itself"],
            ),
            ("name = 'a'\nredact = { patterns = ['('] }".into(), vec!["hooks[0].redact.patterns: "]),
            ("name = 'a'\nredact = { patterns = [] }".into(), vec!["hooks[0].redact.patterns: "]),
            (
                "name = 'a'\non = 'agent_end'\nredact = { patterns = ['x'] }".into(),
                vec!["hooks[0].on: there is no text to redact at agent_end"],
            ),
            ("name = 'a'\naudit = { file = '' }".into(), vec!["hooks[0].audit.file: "]),
            ("name = 'a'\naudit = { file = 'x', max_bytes = 1 }".into(), vec!["hooks[0].audit.max_bytes: "]),
            (
                format!("name = 'a'\n{command}[[hooks]]\nname = 'a'\n{command}"),
                vec!["hooks[1].name: a is taken by another hook"],
            ),
        ] {
            let found = problems(&format!("[[hooks]]\n{text}"));
            let fits = found.len() == expected.len()
                && found.iter().zip(&expected).all(|(found, expected)| found.starts_with(expected));
            assert!(fits, "{text}\n{found:#?}");
        }
    }
}
