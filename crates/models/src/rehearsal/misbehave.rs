//! Misbehaviour on request: plays the scripts of `misbehaviours.toml`. Each script triggers a guardrail of the loop and
//! then reports which guardrail it saw.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use belay_protocol::{Arguments, ModelErrorKind, ToolCall, ToolStatus};
use serde::Deserialize;
use serde_json::Value;

use super::answer::HELP;
use super::outputs::Offered;
use super::plan::{Ending, Script, Segment, call_id};
use super::request::after_any;
use super::turn::Turn;

/// The beginning of the loop's notice that the steps run out.
const STEP_NOTICE: &str = "You are close to the limit of steps";
/// The beginning of the request of a closing turn.
const CLOSING: &str = "This run ends now";

static MISBEHAVIOURS: LazyLock<BTreeMap<String, Misbehaviour>> =
    LazyLock::new(|| toml::from_str(include_str!("misbehaviours.toml")).expect("the embedded file is valid"));

/// A misbehaviour. The file explains the fields.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Misbehaviour {
    number: Option<Number>,
    words: Option<String>,
    #[serde(default)]
    guardrail: String,
    #[serde(default)]
    hands_over: bool,
    cases: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Number {
    default: Option<u64>,
    max: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Case {
    tools: Option<bool>,
    subagents: Option<bool>,
    outputs: Option<bool>,
    below: Option<usize>,
    odd: Option<bool>,
    nudges_below: Option<usize>,
    noticed: Option<bool>,
    repeat: Option<Repeat>,
    say: String,
    fill: Option<String>,
    calls: Vec<Call>,
    times: Option<u64>,
    cut: Option<Cut>,
    error: Option<Failure>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Repeat {
    times: u32,
    #[serde(default)]
    per_number: bool,
    wait_ms: u64,
    #[serde(default)]
    say: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    name: String,
    arguments: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cut {
    name: String,
    written: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Failure {
    Auth,
    Rate,
    Overloaded,
    Network,
    Context,
    Bad,
}

/// A requested misbehaviour.
#[derive(Clone, Debug)]
pub(super) struct Act {
    /// `None`: there is no such misbehaviour.
    misbehaviour: Option<&'static Misbehaviour>,
    number: u64,
    words: String,
}

impl Act {
    /// Whether its final text is submitted if outputs are declared.
    pub(super) fn hands_over(&self) -> bool {
        self.misbehaviour.is_none_or(|misbehaviour| misbehaviour.hands_over)
    }
}

/// Parses `rehearse …`; `None` if the text is something else.
pub(super) fn read(text: &str) -> Option<Act> {
    let said = after_any(text.trim(), &["rehearse"])?;
    let asked = said.trim_end_matches(['.', '!', '?']).split_whitespace().collect::<Vec<_>>().join(" ");
    if asked.is_empty() {
        return None;
    }
    // In reverse order, so that `stall silent` is tried before `stall`.
    let found = MISBEHAVIOURS.iter().rev().find_map(|(key, it)| Some((key, it, after_any(&asked, &[key])?)));
    let act = found.and_then(|(key, misbehaviour, rest)| {
        let number = match (&misbehaviour.number, &misbehaviour.words) {
            (Some(number), _) if rest.is_empty() => number.default?,
            (Some(number), _) => rest.parse::<u64>().ok()?.min(number.max),
            (None, Some(_)) => 0,
            (None, None) => rest.is_empty().then_some(0)?,
        };
        let words = after_any(said, &[key]).filter(|words| !words.is_empty()).or(misbehaviour.words.as_deref());
        Some(Act { misbehaviour: Some(misbehaviour), number, words: words.unwrap_or_default().to_owned() })
    });
    Some(act.unwrap_or(Act { misbehaviour: None, number: 0, words: String::new() }))
}

/// The script for this step.
pub(super) fn script(act: &Act, turn: &Turn<'_>, offered: &Offered) -> Script {
    let Some(misbehaviour) = act.misbehaviour else {
        return Script::text(format!("There is no such rehearsal.\n\n{HELP}"));
    };
    match misbehaviour.cases.iter().find(|case| case.holds(turn, offered)) {
        Some(case) => case.script(act, turn, &misbehaviour.guardrail),
        None => Script { segments: Vec::new(), ending: Ending::Stop },
    }
}

impl Case {
    fn holds(&self, turn: &Turn<'_>, offered: &Offered) -> bool {
        let batches = turn.batches();
        self.tools.is_none_or(|it| it == offered.tools)
            && self.subagents.is_none_or(|it| it == offered.subagents)
            && self.outputs.is_none_or(|it| it == offered.completion.is_some())
            && self.below.is_none_or(|limit| batches < limit)
            && self.odd.is_none_or(|it| it == (batches % 2 == 1))
            && self.nudges_below.is_none_or(|limit| turn.notices() < limit)
            && self.noticed.is_none_or(|it| it == turn.system_notice().is_some())
    }

    fn script(&self, act: &Act, turn: &Turn<'_>, guardrail: &str) -> Script {
        let fill = |text: &str, n: u64| filled(text, n, act, turn, guardrail);
        let mut segments = self.repeat.as_ref().map(|repeat| repeat.segments(act.number)).unwrap_or_default();
        let text = self.fill.as_ref().map_or_else(|| fill(&self.say, 0), |section| exactly(section, act.number));
        if !text.is_empty() {
            segments.push(Segment::Say(text));
        }
        let call = |n: u64, call: &Call| {
            let arguments = filled_strings(&call.arguments, &|text| fill(text, n));
            object_call(turn, n - 1, &fill(&call.name, n), arguments)
        };
        let ending = match (&self.cut, self.error) {
            (Some(cut), _) => {
                let arguments = Arguments::Malformed(cut.written.clone());
                Ending::Cut(vec![ToolCall { id: call_id(turn, 0), name: cut.name.clone(), arguments }])
            }
            (None, Some(failure)) => Ending::Fail(failure.kind()),
            (None, None) if self.calls.is_empty() => Ending::Stop,
            (None, None) => {
                let rounds = (1..=self.times.unwrap_or(1)).flat_map(|_| &self.calls);
                Ending::Calls((1..).zip(rounds).map(|(n, it)| call(n, it)).collect())
            }
        };
        Script { segments, ending }
    }
}

impl Repeat {
    fn segments(&self, number: u64) -> Vec<Segment> {
        let times = if self.per_number { u64::from(self.times) * number } else { self.times.into() };
        if self.say.is_empty() {
            return vec![Segment::Wait(Duration::from_millis(self.wait_ms * times))];
        }
        let wait = Segment::Wait(Duration::from_millis(self.wait_ms));
        (1..=times).flat_map(|n| [Segment::Say(self.say.replace("{n}", &n.to_string())), wait.clone()]).collect()
    }
}

impl Failure {
    fn kind(self) -> ModelErrorKind {
        match self {
            Self::Auth => ModelErrorKind::Auth,
            Self::Rate => ModelErrorKind::RateLimited { retry_after: Some(Duration::from_secs(1)) },
            Self::Overloaded => ModelErrorKind::Overloaded { retry_after: None },
            Self::Network => ModelErrorKind::Network,
            Self::Context => ModelErrorKind::ContextTooLong,
            Self::Bad => ModelErrorKind::BadRequest,
        }
    }
}

/// Replaces the placeholders of the text.
fn filled(text: &str, n: u64, act: &Act, turn: &Turn<'_>, guardrail: &str) -> String {
    let (calls, nudges, results) = (turn.batches(), turn.notices(), turn.last_results());
    let good: Vec<_> =
        results.iter().filter(|it| it.status == ToolStatus::Success).map(|it| it.text.as_str()).collect();
    let values = [
        ("{n}", n.to_string()),
        ("{calls}", calls.to_string()),
        ("{s}", plural(calls).to_owned()),
        ("{next}", (calls + 1).to_string()),
        ("{nudges}", nudges.to_string()),
        ("{announced}", (nudges + 1).to_string()),
        ("{number}", act.number.to_string()),
        ("{results}", results.len().to_string()),
        ("{good}", good.len().to_string()),
        ("{acted}", acted(turn, guardrail)),
        ("{words}", act.words.clone()),
        ("{good_results}", good.join(", ")),
        ("{result}", results.first().map_or("nothing", |it| it.text.as_str()).to_owned()),
    ];
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        let known = values.iter().find(|(name, _)| rest[at..].starts_with(name));
        let (name, value) = known.map_or(("{", "{"), |(name, value)| (*name, value.as_str()));
        out.push_str(value);
        rest = &rest[at + name.len()..];
    }
    out + rest
}

fn filled_strings(value: &Value, fill: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => fill(text).into(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), filled_strings(value, fill))).collect(),
        other => other.clone(),
    }
}

/// Describes what took the tools away, as far as the conversation shows it.
fn acted(turn: &Turn<'_>, guardrail: &str) -> String {
    match (turn.system_notice(), turn.notices()) {
        (Some(said), _) if said.starts_with(CLOSING) => {
            format!("A rule or a limit acted. I was told: \"{}\"", first_sentence(said))
        }
        (_, n @ 1..) => {
            format!("The {guardrail} acted: {n} notice{} came, and then the request offered no tools.", plural(n))
        }
        (Some(said), 0) if said.starts_with(STEP_NOTICE) => {
            "The step limit acted: a notice announced it, and then the request offered no tools.".to_owned()
        }
        (Some(said), 0) => {
            format!("The request offers no tools. The last that I was told is: \"{}\"", first_sentence(said))
        }
        (None, 0) => "The request offers no tools, and nothing in the conversation says why.".to_owned(),
    }
}

fn first_sentence(text: &str) -> &str {
    text.split_inclusive(". ").next().unwrap_or(text).trim_end()
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

pub(super) fn object_call(turn: &Turn<'_>, at: u64, name: &str, arguments: Value) -> ToolCall {
    let arguments = Arguments::parse(&arguments.to_string());
    ToolCall { id: call_id(turn, at), name: name.to_owned(), arguments }
}

/// Makes a text of exactly this many characters: numbered copies of an ASCII section, then dots.
fn exactly(section: &str, characters: u64) -> String {
    let characters = usize::try_from(characters).unwrap_or(usize::MAX);
    let sections = (1..).map(|n: u64| section.replace("{n}", &n.to_string()));
    let mut text = String::with_capacity(characters);
    for section in sections {
        if text.len() + section.len() > characters {
            break;
        }
        text.push_str(&section);
    }
    text.push_str(&".".repeat(characters - text.len()));
    text
}
