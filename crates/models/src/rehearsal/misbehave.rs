//! Misbehaviour on request: each one calls a brake of the loop into action and then says which brake it saw.

use std::time::Duration;

use belay_protocol::{Arguments, ModelErrorKind, ToolCall, ToolResult, ToolStatus};
use serde_json::json;

use super::answer::HELP;
use super::outputs::Offered;
use super::plan::{Beat, Ending, Script, call_id};
use super::request::after_any;
use super::turn::Turn;

/// Longest rehearsed wait. An hour: longer than every limit a run has.
const MAX_STALL: u64 = 3600;
/// Usual length of a stall, in seconds.
const STALL: u64 = 30;
/// Time between two words of a stall.
const STALL_BEAT: Duration = Duration::from_millis(250);
/// How often the chant repeats its sentence, and how fast.
const CHANTS: usize = 200;
const CHANT_BEAT: Duration = Duration::from_millis(10);
const CHANT: &str = "The rope holds as long as someone holds the rope, and so on we go. ";
/// Calls of a storm.
const STORM: u64 = 20;
/// Calls after which `failures` gives up by itself.
const FAILURES: usize = 10;
/// Nudges after which `intent` expects its text to be let through.
const NUDGES: usize = 2;
/// How the notice begins that the steps run out, as the loop words it.
const STEP_NOTICE: &str = "You are close to the limit of steps";
/// How the request of a closing turn begins.
const CLOSING: &str = "This run ends now";
/// Most characters of `long`.
const MAX_LONG: usize = 1_000_000;

/// A way to misbehave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Loop,
    /// The same call, which succeeds, again and again.
    Stubborn,
    /// Two calls that take turns, again and again.
    PingPong,
    /// Ends its own run by the tool.
    Terminate {
        success: bool,
    },
    Chant,
    Intent,
    Truncation,
    Failures,
    Stall(u64),
    SilentStall(u64),
    Storm,
    UnknownTool,
    /// A tool that does not exist, another one each time, again and again.
    UnknownTools,
    /// Arguments that the tool refuses, others each time, again and again.
    InvalidArguments,
    Empty,
    Silent,
    Long(usize),
    Error(ModelErrorKind),
    /// Has a part of the work done by a subagent.
    Subagent,
    /// Never hands over what is declared.
    MissOutput,
    /// Asked for something that is not on the list.
    Unknown,
}

impl Act {
    /// Whether its final text is handed over, where outputs are declared. What is about the text itself stays one.
    pub(super) fn hands_over(self) -> bool {
        matches!(self, Self::Subagent | Self::Storm | Self::UnknownTool | Self::Failures | Self::Unknown)
    }
}

/// Reads `rehearse …`; `None` when the text is nothing of the kind.
pub(super) fn read(text: &str) -> Option<Act> {
    let rest = after_any(text.trim(), &["rehearse"])?.trim_end_matches(['.', '!', '?']).to_ascii_lowercase();
    let words: Vec<&str> = rest.split_whitespace().collect();
    let seconds = |word: &str| word.parse().ok().map(|n: u64| n.min(MAX_STALL));
    Some(match words.as_slice() {
        [] => return None,
        ["loop"] => Act::Loop,
        ["stubborn"] => Act::Stubborn,
        ["ping", "pong"] => Act::PingPong,
        ["terminate"] => Act::Terminate { success: true },
        ["give", "up"] => Act::Terminate { success: false },
        ["chant"] => Act::Chant,
        ["intent"] => Act::Intent,
        ["truncation"] => Act::Truncation,
        ["failures"] => Act::Failures,
        ["stall"] => Act::Stall(STALL),
        ["stall", "silent"] => Act::SilentStall(STALL),
        ["stall", "silent", n] => seconds(n).map_or(Act::Unknown, Act::SilentStall),
        ["stall", n] => seconds(n).map_or(Act::Unknown, Act::Stall),
        ["storm"] => Act::Storm,
        ["subagent", ..] => Act::Subagent,
        ["miss-output" | "miss-outputs"] => Act::MissOutput,
        ["unknown", "tool"] => Act::UnknownTool,
        ["unknown", "tools"] => Act::UnknownTools,
        ["invalid", "arguments"] => Act::InvalidArguments,
        ["empty"] => Act::Empty,
        ["silent"] => Act::Silent,
        ["long", n] => n.parse().map_or(Act::Unknown, |n: usize| Act::Long(n.min(MAX_LONG))),
        ["error", kind] => error(kind).map_or(Act::Unknown, Act::Error),
        _ => Act::Unknown,
    })
}

fn error(kind: &str) -> Option<ModelErrorKind> {
    Some(match kind {
        "auth" => ModelErrorKind::Auth,
        "rate" => ModelErrorKind::RateLimited { retry_after: Some(Duration::from_secs(1)) },
        "overloaded" => ModelErrorKind::Overloaded { retry_after: None },
        "network" => ModelErrorKind::Network,
        "context" => ModelErrorKind::ContextTooLong,
        "bad" => ModelErrorKind::BadRequest,
        _ => return None,
    })
}

/// What to do at this step. Errors fail whether tools are offered or not, as a broken provider would.
pub(super) fn script(act: Act, turn: &Turn<'_>, offered: &Offered) -> Script {
    let tools_offered = offered.tools;
    match act {
        Act::Loop if tools_offered => Script::calls(vec![read_file(turn, "rehearsal/no-such-file.txt")]),
        Act::Loop => Script::text(after_loop(turn)),
        Act::Stubborn | Act::PingPong | Act::UnknownTools | Act::InvalidArguments if tools_offered => {
            Script::calls(vec![again(act, turn)])
        }
        Act::Stubborn | Act::PingPong | Act::UnknownTools | Act::InvalidArguments => Script::text(format!(
            "Rehearsal of going round in circles: I called {} time{}, and now no tools are offered.",
            turn.batches(),
            plural(turn.batches())
        )),
        Act::Terminate { success } => terminate(turn, tools_offered, success),
        Act::Chant if !tools_offered => Script::text("Rehearsal of chanting: I was told to come to an end.".to_owned()),
        Act::Chant => chant(),
        Act::Intent => Script::text(intent(turn, tools_offered)),
        Act::Truncation if tools_offered => cut_off(turn),
        Act::Truncation => Script::text(format!(
            "Rehearsal of truncation: my calls were cut off by the length limit each time, and none of them ran. {}",
            acted(turn, "truncation brake")
        )),
        Act::Failures => failures(turn, tools_offered),
        // Told to come to an end, it does.
        Act::Stall(_) | Act::SilentStall(_) if !tools_offered && turn.system_notice().is_some() => {
            Script::text("Rehearsal of a stall: I was told to come to an end.".to_owned())
        }
        Act::Stall(seconds) => stall(seconds),
        Act::SilentStall(seconds) => Script {
            beats: vec![
                Beat::Wait(Duration::from_secs(seconds)),
                Beat::Say(format!(
                    "Rehearsal of a silent stall: I said nothing for {seconds} s, and nothing stopped me."
                )),
            ],
            ending: Ending::Stop,
        },
        Act::Storm => storm(turn, tools_offered),
        Act::UnknownTool => unknown_tool(turn, tools_offered),
        Act::Empty => Script { beats: Vec::new(), ending: Ending::Stop },
        Act::Silent => Script::text("NO_REPLY".to_owned()),
        Act::Long(characters) => Script::text(long(characters)),
        Act::Error(kind) => Script { beats: Vec::new(), ending: Ending::Fail(kind) },
        Act::Subagent => subagent(turn, offered),
        Act::MissOutput => Script::text(miss_output(offered)),
        Act::Unknown => Script::text(format!("There is no such rehearsal.\n\n{HELP}")),
    }
}

/// What took the tools away, as far as the conversation shows it.
fn acted(turn: &Turn<'_>, brake: &str) -> String {
    match (turn.system_notice(), turn.notices()) {
        (Some(said), _) if said.starts_with(CLOSING) => {
            format!("A rule or a limit acted. I was told: \"{}\"", first_sentence(said))
        }
        (_, n @ 1..) => {
            format!("The {brake} acted: {n} notice{} came, and then the request offered no tools.", plural(n))
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

fn after_loop(turn: &Turn<'_>) -> String {
    let n = turn.batches();
    format!(
        "Rehearsal of a loop: I made the same failing call {n} time{}. {}",
        plural(n),
        acted(turn, "duplicate-call brake")
    )
}

/// What a model does that does not listen.
fn again(act: Act, turn: &Turn<'_>) -> ToolCall {
    let n = turn.batches();
    match act {
        Act::PingPong if n % 2 == 1 => object_call(turn, 0, "calculate", json!({ "expression": "1+1" })),
        Act::UnknownTools => object_call(turn, 0, &format!("teleport_{}", n + 1), json!({ "to": "the moon" })),
        Act::InvalidArguments => object_call(turn, 0, "calculate", json!({ "formula": format!("{n}+1") })),
        _ => object_call(turn, 0, "list_files", json!({ "path": "." })),
    }
}

fn terminate(turn: &Turn<'_>, tools_offered: bool, success: bool) -> Script {
    if !tools_offered || turn.batches() > 0 {
        return Script::text("Rehearsal of terminate: the tool is not offered here (agent.terminate).".to_owned());
    }
    let (status, summary) = match success {
        true => ("success", "Rehearsal of terminate: the work is done."),
        false => ("failure", "Rehearsal of terminate: this cannot be done."),
    };
    let arguments = json!({ "status": status, "summary": summary });
    // What stands behind it is never executed.
    Script::calls(vec![
        object_call(turn, 0, "terminate", arguments),
        object_call(turn, 1, "calculate", json!({ "expression": "6*7" })),
    ])
}

fn chant() -> Script {
    let mut beats = Vec::with_capacity(2 * CHANTS + 1);
    for _ in 0..CHANTS {
        beats.push(Beat::Say(CHANT.to_owned()));
        beats.push(Beat::Wait(CHANT_BEAT));
    }
    beats.push(Beat::Say(format!(
        "\n\nRehearsal of chanting: I said the same sentence {CHANTS} times, and nothing stopped me."
    )));
    Script { beats, ending: Ending::Stop }
}

fn intent(turn: &Turn<'_>, tools_offered: bool) -> String {
    let nudges = turn.notices();
    if !tools_offered {
        return "Rehearsal of the tool-intent brake: no tools are offered here, so there is nothing to announce."
            .to_owned();
    }
    if nudges < NUDGES {
        return "Let me search for that.".to_owned();
    }
    format!(
        "Let me search for that.\n\nRehearsal of the tool-intent brake: I announced a tool {} times and called none. The \
         loop nudged me {nudges} times and now lets this text through.",
        nudges + 1
    )
}

fn cut_off(turn: &Turn<'_>) -> Script {
    let arguments = format!("{{\"path\": \"rehearsal/{}", "a-very-long-name/".repeat(20));
    let call =
        ToolCall { id: call_id(turn, 0), name: "read_file".to_owned(), arguments: Arguments::Malformed(arguments) };
    Script { beats: vec![Beat::Say("This call is going to be long.".to_owned())], ending: Ending::Cut(vec![call]) }
}

fn failures(turn: &Turn<'_>, tools_offered: bool) -> Script {
    let n = turn.batches();
    if tools_offered && n < FAILURES {
        return Script::calls(vec![read_file(turn, &format!("rehearsal/missing-{}.txt", n + 1))]);
    }
    let end = if tools_offered { "I gave up by myself.".to_owned() } else { acted(turn, "error brake") };
    Script::text(format!("Rehearsal of failures: {n} different call{} failed. {end}", plural(n)))
}

fn stall(seconds: u64) -> Script {
    let mut beats = Vec::new();
    for word in 1..=seconds * 4 {
        beats.push(Beat::Say(format!("{word} ")));
        beats.push(Beat::Wait(STALL_BEAT));
    }
    beats.push(Beat::Say(format!(
        "\n\nRehearsal of a stall: I streamed slowly for {seconds} s, and nothing stopped me."
    )));
    Script { beats, ending: Ending::Stop }
}

fn storm(turn: &Turn<'_>, tools_offered: bool) -> Script {
    if turn.batches() > 0 {
        let results = turn.last_results();
        let good: Vec<&str> = results.iter().filter(|r| succeeded(r)).map(|r| r.text.as_str()).collect();
        return Script::text(format!(
            "Rehearsal of a storm: {} calls in one batch, {} succeeded. Their results in order: {}",
            results.len(),
            good.len(),
            good.join(", ")
        ));
    }
    if !tools_offered {
        return Script::text("Rehearsal of a storm: no tools are offered here, so nothing was called.".to_owned());
    }
    let square = |n: u64| object_call(turn, n, "calculate", json!({ "expression": format!("{n}*{n}") }));
    Script::calls((1..=STORM).map(square).collect())
}

fn unknown_tool(turn: &Turn<'_>, tools_offered: bool) -> Script {
    if turn.batches() == 0 && tools_offered {
        return Script::calls(vec![object_call(turn, 0, "teleport", json!({ "to": "the moon" }))]);
    }
    let answer = turn.last_results().first().map_or("nothing", |result| result.text.as_str());
    Script::text(format!(
        "Rehearsal of an unknown tool: I called teleport, which does not exist, and was told: \"{answer}\""
    ))
}

/// What follows "rehearse subagent" is the task.
fn subagent(turn: &Turn<'_>, offered: &Offered) -> Script {
    if turn.batches() > 0 {
        let result = turn.last_results().first().map_or("nothing", |result| result.text.as_str());
        return Script::text(format!("Rehearsal of a subagent. What came back:\n{result}"));
    }
    if !offered.subagents {
        return Script::text("Rehearsal of a subagent: none can be started here (agent.subagents).".to_owned());
    }
    let task = after_any(turn.asked.trim(), &["rehearse subagent"]).filter(|task| !task.is_empty());
    let task = task.unwrap_or("calculate 17*23");
    let arguments = json!({ "task": task, "outputs": { "answer": "string" } });
    Script::calls(vec![object_call(turn, 0, "spawn_subagent", arguments)])
}

fn miss_output(offered: &Offered) -> String {
    match offered.completion {
        Some(_) => "Rehearsal of missing outputs: this is a text, and it hands over nothing.".to_owned(),
        None => "Rehearsal of missing outputs: none are declared here, so none are missing.".to_owned(),
    }
}

fn succeeded(result: &ToolResult) -> bool {
    result.status == ToolStatus::Success
}

fn read_file(turn: &Turn<'_>, path: &str) -> ToolCall {
    object_call(turn, 0, "read_file", json!({ "path": path }))
}

pub(super) fn object_call(turn: &Turn<'_>, at: u64, name: &str, arguments: serde_json::Value) -> ToolCall {
    let arguments = Arguments::parse(&arguments.to_string());
    ToolCall { id: call_id(turn, at), name: name.to_owned(), arguments }
}

/// Markdown of exactly so many characters: sections with prose and a code block, then dots to fill.
fn long(characters: usize) -> String {
    let mut text = String::with_capacity(characters);
    for part in 1.. {
        let section = format!(
            "## Part {part}\n\nThis is part {part} of a *long* answer, with a [link](https://example.org/{part}) and \
             some `code`.\n\n```rust\nfn part_{part}() -> u32 {{\n    {part}\n}}\n```\n\n- one\n- two\n\n"
        );
        if text.len() + section.len() > characters {
            break;
        }
        text.push_str(&section);
    }
    text.push_str(&".".repeat(characters - text.len())); // every character above is one byte
    text
}
