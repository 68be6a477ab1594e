//! The counters of a run: one table, a row for each.
//!
//! A new counter is a variant of [`Counter`] and a row here.

use std::collections::BTreeMap;

use belay_protocol::StopReason;
use serde::{Deserialize, Serialize};

use super::observation::{CallOutcome, Observation};
use super::rule::{Counter, Touched};

mod by_tool;
mod denials;
#[cfg(test)]
mod tests;

use by_tool::ByTool;
use denials::Denials;

/// A row of the table.
pub(crate) struct Row {
    /// The counter.
    pub(crate) counter: Counter,
    /// Its word in the configuration and in evidence.
    pub(crate) word: &'static str,
    /// Its unit.
    pub(crate) unit: Unit,
    /// The ending of a run that reaches a limit of it.
    pub(crate) reason: StopReason,
    /// The measure it belongs to.
    pub(crate) measure: Touched,
    /// The kinds of observations that may change it.
    on: u16,
    /// When it counts and when it begins again.
    change: fn(&Observation<'_>, &Aside) -> Change,
    /// It is about behaviour, so that a recovery turn lets it begin again; what was used up stays used up.
    is_behaviour: bool,
    /// Its evidence names the tool of the newest observation that counted.
    pub(crate) names_tool: bool,
}

/// The unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Things.
    One,
    /// Milliseconds; written in seconds.
    Ms,
    /// Millionths of a US dollar; written in dollars.
    MicroUsd,
}

/// The change that an observation makes to a counter.
enum Change {
    Keep,
    /// So many more.
    Add(u64),
    /// At least so many: nothing runs backwards.
    AtLeast(u64),
    /// It begins again.
    Reset,
}

/// The state of the counters besides their counts.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(default)]
struct Aside {
    /// Totals were told, which know of repeated requests and children: from then on they rule.
    totals: bool,
    /// Bytes of the answer that streams, which its whole text repeats.
    streamed: u64,
    /// The newest answer was empty, and no call has come so far.
    empty: bool,
    calls: ByTool,
    denials: Denials,
}

/// The longest name of a tool that is kept for evidence, in bytes.
const MAX_NAME_BYTES: usize = 128;

const STEP: u16 = 1;
const TEXT: u16 = 1 << 1;
const ASSISTANT: u16 = 1 << 2;
const CALL: u16 = 1 << 3;
const RESULT: u16 = 1 << 4;
const USAGE: u16 = 1 << 5;
const TOTALS: u16 = 1 << 6;
const COMPACTED: u16 = 1 << 7;
/// Time and errors are measured elsewhere, with more than a number.
const ELSEWHERE: u16 = 0;

fn kind_of(seen: &Observation<'_>) -> u16 {
    match seen {
        Observation::Step => STEP,
        Observation::Text(_) => TEXT,
        Observation::Assistant { .. } => ASSISTANT,
        Observation::ToolCall { .. } => CALL,
        Observation::ToolResult { .. } => RESULT,
        Observation::Usage { .. } => USAGE,
        Observation::Totals(_) => TOTALS,
        Observation::Compacted { .. } => COMPACTED,
        _ => ELSEWHERE,
    }
}

const USED: Row = Row {
    counter: Counter::Steps,
    word: "",
    unit: Unit::One,
    reason: StopReason::OperatorRule,
    measure: Touched::NOTHING,
    on: ELSEWHERE,
    change: |_, _| Change::Keep,
    is_behaviour: false,
    names_tool: false,
};
const BEHAVIOUR: Row = Row { is_behaviour: true, ..USED };

/// Every counter, in the order of [`Counter`].
#[rustfmt::skip]
pub(crate) const TABLE: &[Row] = &[
    Row { counter: Counter::Steps, word: "steps", measure: Touched::STEPS, on: STEP, change: |_, _| Change::Add(1), ..USED },
    Row { counter: Counter::WallMs, word: "wall_clock_s", unit: Unit::Ms, reason: StopReason::WallClock, measure: Touched::TIME, ..USED },
    Row { counter: Counter::ActiveMs, word: "active_s", unit: Unit::Ms, reason: StopReason::ActiveTime, measure: Touched::TIME, ..USED },
    Row { counter: Counter::ModelCalls, word: "model_calls", reason: StopReason::ModelCalls, measure: Touched::MODEL_CALLS,
          on: STEP | TOTALS, change: model_calls, ..USED },
    Row { counter: Counter::ToolCalls, word: "tool_calls", reason: StopReason::ToolCalls, measure: Touched::TOOL_CALLS,
          on: CALL | TOTALS, change: tool_calls, ..USED },
    Row { counter: Counter::TokensIn, word: "tokens_in", reason: StopReason::Tokens, measure: Touched::TOKENS,
          on: USAGE | TOTALS, change: |seen, aside| usage(seen, aside).0, ..USED },
    Row { counter: Counter::TokensOut, word: "tokens_out", reason: StopReason::Tokens, measure: Touched::TOKENS,
          on: USAGE | TOTALS, change: |seen, aside| usage(seen, aside).1, ..USED },
    Row { counter: Counter::TokensTotal, word: "tokens_total", reason: StopReason::Tokens, measure: Touched::TOKENS, ..USED },
    Row { counter: Counter::RunMicroUsd, word: "run_usd", unit: Unit::MicroUsd, reason: StopReason::RunCost, measure: Touched::MONEY,
          on: TOTALS, change: |seen, _| money(seen).0, ..USED },
    Row { counter: Counter::SessionMicroUsd, word: "session_usd", unit: Unit::MicroUsd, reason: StopReason::SessionCost, measure: Touched::MONEY,
          on: TOTALS, change: |seen, _| money(seen).1, ..USED },
    Row { counter: Counter::OutputBytes, word: "output_bytes", reason: StopReason::OutputBytes, measure: Touched::OUTPUT,
          on: TEXT | ASSISTANT | RESULT | STEP | TOTALS, change: output_bytes, ..USED },
    Row { counter: Counter::Errors, word: "consecutive_errors", reason: StopReason::ConsecutiveErrors, measure: Touched::ERRORS, ..BEHAVIOUR },
    Row { counter: Counter::EmptyReplies, word: "empty_replies", reason: StopReason::EmptyReplies, measure: Touched::EMPTY_REPLIES,
          on: STEP | ASSISTANT | CALL, change: empty_replies, ..BEHAVIOUR },
    Row { counter: Counter::UnknownTools, word: "unknown_tools", reason: StopReason::UnknownTools, measure: Touched::UNKNOWN_TOOLS,
          on: RESULT, change: |seen, _| in_a_row(seen, CallOutcome::UnknownTool), names_tool: true, ..BEHAVIOUR },
    Row { counter: Counter::InvalidArguments, word: "invalid_arguments", reason: StopReason::InvalidArguments, measure: Touched::INVALID_ARGUMENTS,
          on: RESULT, change: |seen, _| in_a_row(seen, CallOutcome::InvalidArguments), names_tool: true, ..BEHAVIOUR },
    Row { counter: Counter::ApprovalReasks, word: "approval_reasks", reason: StopReason::ApprovalReasks, measure: Touched::APPROVAL_REASKS,
          on: RESULT, change: |_, aside| Change::AtLeast(aside.denials.newest()), names_tool: true, ..BEHAVIOUR },
    Row { counter: Counter::Compactions, word: "compactions_without_gain", reason: StopReason::CompactionLoop, measure: Touched::COMPACTIONS,
          on: COMPACTED, change: compactions, ..BEHAVIOUR },
];

/// Each step is a request, until totals tell better.
fn model_calls(seen: &Observation<'_>, aside: &Aside) -> Change {
    match seen {
        Observation::Step if !aside.totals => Change::Add(1),
        Observation::Totals(totals) => Change::AtLeast(totals.model_calls),
        _ => Change::Keep,
    }
}

fn tool_calls(seen: &Observation<'_>, aside: &Aside) -> Change {
    match seen {
        Observation::ToolCall { .. } if !aside.totals => Change::Add(1),
        Observation::Totals(totals) => Change::AtLeast(totals.tool_calls),
        _ => Change::Keep,
    }
}

/// What each model call tells of tokens, until totals tell better: read, and generated.
fn usage(seen: &Observation<'_>, aside: &Aside) -> (Change, Change) {
    match *seen {
        Observation::Usage { input, output } if !aside.totals => (Change::Add(input), Change::Add(output)),
        Observation::Totals(totals) => (Change::AtLeast(totals.tokens_in), Change::AtLeast(totals.tokens_out)),
        _ => (Change::Keep, Change::Keep),
    }
}

/// Totals alone know a price: of the run, and of the session.
fn money(seen: &Observation<'_>) -> (Change, Change) {
    match seen {
        Observation::Totals(totals) => {
            (Change::AtLeast(totals.run_micro_usd), Change::AtLeast(totals.session_micro_usd))
        }
        _ => (Change::Keep, Change::Keep),
    }
}

/// A whole answer repeats what was streamed of it.
fn output_bytes(seen: &Observation<'_>, aside: &Aside) -> Change {
    let bytes = match seen {
        Observation::Totals(totals) => return Change::AtLeast(totals.output_bytes),
        _ if aside.totals => return Change::Keep,
        Observation::Text(text) | Observation::ToolResult { text, .. } => text.len() as u64,
        Observation::Assistant { text, .. } => (text.len() as u64).saturating_sub(aside.streamed),
        _ => return Change::Keep,
    };
    Change::Add(bytes)
}

/// An empty answer is judged only when the loop goes on, since calls may follow it. One that a brake has answered is passed
/// over.
fn empty_replies(seen: &Observation<'_>, aside: &Aside) -> Change {
    match seen {
        Observation::Assistant { text, nudged: false } if !text.trim().is_empty() => Change::Reset,
        Observation::ToolCall { .. } => Change::Reset,
        _ => Change::Add(u64::from(aside.empty)),
    }
}

/// Calls in a row with this outcome. What was not executed says nothing about it.
fn in_a_row(seen: &Observation<'_>, wanted: CallOutcome) -> Change {
    match seen {
        Observation::ToolResult { outcome: CallOutcome::NotExecuted, .. } => Change::Keep,
        Observation::ToolResult { outcome, .. } if *outcome == wanted => Change::Add(1),
        _ => Change::Reset,
    }
}

/// A tenth: shortening costs a model call over nearly the whole context, and what it won is filled again after a step.
fn compactions(seen: &Observation<'_>, _: &Aside) -> Change {
    let Observation::Compacted { before, after } = *seen else { return Change::Keep };
    let gained = u128::from(after) * 10 <= u128::from(before) * 9;
    if gained { Change::Reset } else { Change::Add(1) }
}

impl Counter {
    /// Its row.
    pub(crate) fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// How many of what is counted make one of what is written: milliseconds in a second, millionths in a dollar.
    pub(crate) fn scale(self) -> u64 {
        match self.row().unit {
            Unit::One => 1,
            Unit::Ms => 1000,
            Unit::MicroUsd => 1_000_000,
        }
    }
}

/// The measures that an observation may change, of those that are counters.
pub(crate) fn touched_by(seen: &Observation<'_>) -> Touched {
    let kind = kind_of(seen);
    let rows = TABLE.iter().filter(|row| row.on & kind != 0);
    rows.fold(Touched::NOTHING, |touched, row| touched.and(row.measure))
}

/// The counts of a run. Stored with it.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(default)]
pub struct Counters {
    /// What is not there is 0.
    counts: BTreeMap<Counter, u64>,
    /// The tools that evidence names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tools: BTreeMap<Counter, String>,
    aside: Aside,
}

impl Counters {
    /// Takes what was seen. Tools in `named`, those that rules ask about, are always counted by name.
    pub fn observe(&mut self, named: &[String], seen: &Observation<'_>) {
        self.aside.denials.observe(seen);
        let kind = kind_of(seen);
        for row in TABLE.iter().filter(|row| row.on & kind != 0) {
            let count = self.count(row.counter);
            let new = match (row.change)(seen, &self.aside) {
                Change::Keep => count,
                Change::Add(more) => count.saturating_add(more),
                Change::AtLeast(least) => count.max(least),
                Change::Reset => 0,
            };
            if new != count {
                self.set(row, new, seen);
            }
        }
        self.note(named, seen);
    }

    fn set(&mut self, row: &Row, count: u64, seen: &Observation<'_>) {
        if count == 0 {
            self.forget(row.counter);
            return;
        }
        self.counts.insert(row.counter, count);
        if let Observation::ToolResult { name, .. } = seen
            && row.names_tool
        {
            let tool = self.tools.entry(row.counter).or_default();
            name[..name.floor_char_boundary(MAX_NAME_BYTES)].clone_into(tool);
        }
    }

    fn note(&mut self, named: &[String], seen: &Observation<'_>) {
        let aside = &mut self.aside;
        match seen {
            Observation::Text(piece) => aside.streamed = aside.streamed.saturating_add(piece.len() as u64),
            Observation::Step => (aside.streamed, aside.empty) = (0, false),
            Observation::Assistant { text, nudged } => {
                (aside.streamed, aside.empty) = (0, !nudged && text.trim().is_empty());
            }
            Observation::ToolCall { name, .. } => {
                aside.empty = false;
                aside.calls.add(named, name);
            }
            Observation::Totals(_) => aside.totals = true,
            _ => {}
        }
    }

    /// So far, or in a row.
    pub fn count(&self, counter: Counter) -> u64 {
        if counter == Counter::TokensTotal {
            return self.count(Counter::TokensIn).saturating_add(self.count(Counter::TokensOut));
        }
        self.counts.get(&counter).copied().unwrap_or(0)
    }

    /// Calls of that tool in this run itself, without what its children called.
    pub fn calls_of(&self, tool: &str) -> u64 {
        self.aside.calls.of(tool)
    }

    /// The tool of the newest observation that counted; empty without one.
    pub fn tool(&self, counter: Counter) -> &str {
        self.tools.get(&counter).map_or("", String::as_str)
    }

    /// Lets the counters of these measures begin again, as far as they are about behaviour.
    pub(crate) fn clear(&mut self, behind: Touched) {
        for row in TABLE.iter().filter(|row| row.is_behaviour && behind.meets(row.measure)) {
            self.forget(row.counter);
            match row.counter {
                Counter::EmptyReplies => self.aside.empty = false,
                Counter::ApprovalReasks => self.aside.denials = Denials::default(),
                _ => {}
            }
        }
    }

    fn forget(&mut self, counter: Counter) {
        self.counts.remove(&counter);
        self.tools.remove(&counter);
    }
}
