//! Tells the kinds of loops apart.

use belay_protocol::{Arguments, Finding, StopReason};
use serde_json::Value;

use super::calls::SeenCall;
use super::equal::Equal;
use super::group::{Group, has, rule};
use super::kind::LoopKind;
use super::target::Target;
use crate::policies::tool_loops::{
    CONSECUTIVE_IDENTICAL_TOOL_CALLS, POLLING_WITHOUT_PROGRESS, Role, SAME_RESULT_FOR_VARIED_ARGUMENTS,
};

/// The kind of the loop that a finding is about.
pub(super) fn kind(finding: &Finding, group: &Group<'_, '_>) -> LoopKind {
    let calls = &group.calls;
    match finding.reason {
        StopReason::ToolLoop | StopReason::ConsecutiveErrors if is_dead(calls) => LoopKind::DeadEnvironment,
        StopReason::ToolLoop => of_loop(finding, group),
        StopReason::ConsecutiveErrors if is_varied(calls) => of_varied(calls),
        StopReason::ConsecutiveErrors => LoopKind::Errors,
        StopReason::Chanting if finding.facts.contains_key("lines") => LoopKind::RepeatedLines,
        StopReason::Chanting => LoopKind::Chanting,
        StopReason::RepeatedReplies => LoopKind::RepeatedAnswers,
        StopReason::EmptyReplies => LoopKind::EmptyReplies,
        StopReason::UnknownTools => LoopKind::UnknownTools,
        StopReason::InvalidArguments => LoopKind::InvalidArguments,
        StopReason::ApprovalReasks => LoopKind::Denied,
        StopReason::CompactionLoop => LoopKind::Compactions,
        StopReason::JudgedLoop => LoopKind::Judged,
        _ => LoopKind::OwnRule,
    }
}

fn of_loop(finding: &Finding, Group { calls, edits }: &Group<'_, '_>) -> LoopKind {
    let runs = calls.iter().filter(|call| call.outline.role == Role::Runs).count();
    let different = different(calls);
    match rule(finding) {
        POLLING_WITHOUT_PROGRESS => LoopKind::Polling,
        // Each return needs a write, and the first state one more.
        _ if has(finding, "returned") && *edits as u64 > finding.count => LoopKind::OscillatingWrites,
        _ if has(finding, "idle") => LoopKind::NoNews,
        _ if is_debugging(calls) => LoopKind::Debugger,
        _ if *edits > 1 && runs > 1 => LoopKind::EditRun,
        CONSECUTIVE_IDENTICAL_TOOL_CALLS if finding.fingerprints.len() > 1 => LoopKind::Cycle,
        SAME_RESULT_FOR_VARIED_ARGUMENTS => of_varied(calls),
        _ if is_varied(calls) => of_varied(calls),
        _ if different > 1 => LoopKind::Cycle,
        _ => LoopKind::SameCall,
    }
}

fn different(calls: &[&SeenCall<'_>]) -> usize {
    let mut different: Vec<u64> = calls.iter().map(|call| call.outline.fingerprint).collect();
    different.sort_unstable();
    different.dedup();
    different.len()
}

/// Whether most of these calls of one tool have arguments of their own, and all have one result.
fn is_varied(calls: &[&SeenCall<'_>]) -> bool {
    let different = different(calls);
    let one_tool = calls.iter().all(|call| call.name == calls[0].name);
    one_tool && 2 * different > calls.len() && different > 2 && Equal::of(calls).is_some()
}

fn of_varied(calls: &[&SeenCall<'_>]) -> LoopKind {
    let refused = |call: &&SeenCall<'_>| call.failed || call.result.is_some_and(|text| says(text, REFUSALS));
    match () {
        () if is_growing(calls) => LoopKind::GrowingArguments,
        () if calls.len() > 1 && calls.iter().all(refused) => LoopKind::Guessing,
        () => LoopKind::VariedArguments,
    }
}

/// Whether each argument continues the one before.
fn is_growing(calls: &[&SeenCall<'_>]) -> bool {
    let longest = |call: &&SeenCall<'_>| match call.arguments {
        Arguments::Object(map) => {
            map.values().filter_map(Value::as_str).max_by_key(|text| text.len()).unwrap_or_default().to_owned()
        }
        Arguments::Malformed(raw) => raw.clone(),
    };
    let texts: Vec<String> = calls.iter().map(longest).collect();
    let continues = |pair: &[String]| pair[0].len() > pair[1].len() && pair[0].contains(&pair[1]);
    texts.len() > 2 && texts.windows(2).all(continues)
}

fn is_debugging(calls: &[&SeenCall<'_>]) -> bool {
    let debugs = |call: &&&SeenCall<'_>| {
        let name = call.name.to_lowercase();
        let command = Target::of(call.arguments).map(|target| target.text).unwrap_or_default();
        let mut words = command.split(|c: char| !c.is_alphanumeric());
        DEBUGGERS.iter().any(|debugger| name.contains(debugger)) || words.any(|word| DEBUGGERS.contains(&word))
    };
    let count = calls.iter().filter(debugs).count();
    count > 1 && 2 * count >= calls.len()
}

fn is_dead(calls: &[&SeenCall<'_>]) -> bool {
    let mut results = calls.iter().filter_map(|call| call.result).peekable();
    calls.len() > 1 && results.peek().is_some() && results.all(|text| says(text, DEAD))
}

/// Whether a short text contains one of these phrases.
fn says(text: &str, phrases: &[&str]) -> bool {
    let text = text[..text.floor_char_boundary(SHORT_BYTES)].to_lowercase();
    phrases.iter().any(|phrase| text.contains(phrase))
}

/// A refusal and the message of a dead environment are at the beginning of a result. 400: some lines.
const SHORT_BYTES: usize = 400;

const DEBUGGERS: &[&str] =
    &["debug", "debugger", "gdb", "lldb", "pdb", "ipdb", "dlv", "jdb", "rdbg", "radare2", "windbg"];

const REFUSALS: &[&str] = &[
    "wrong",
    "incorrect",
    "invalid",
    "denied",
    "refused",
    "rejected",
    "not allowed",
    "not valid",
    "try again",
    "forbidden",
    "no match for",
    "does not match",
    "failed",
    "error",
    "unauthorized",
];

const DEAD: &[&str] = &[
    "connection refused",
    "connection closed",
    "connection reset",
    "connection lost",
    "broken pipe",
    "not connected",
    "no such container",
    "is not running",
    "no longer running",
    "has been closed",
    "has exited",
    "has terminated",
    "session has ended",
    "session is closed",
    "session not found",
    "socket hang up",
    "transport closed",
    "target closed",
    "environment is dead",
    "container stopped",
    "bad file descriptor",
];
