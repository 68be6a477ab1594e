//! The counters of a run, as one table with a row for each.
//!
//! To add a counter, add a variant of [`Counter`] and a row here.

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
    /// The counter of this row.
    pub(crate) counter: Counter,
    /// The word in the configuration and in the evidence.
    pub(crate) word: &'static str,
    /// The unit.
    pub(crate) unit: Unit,
    /// The stop reason of a run that reaches a limit of this counter.
    pub(crate) reason: StopReason,
    /// The measure that the counter belongs to.
    pub(crate) measure: Touched,
    /// The kinds of observations that may change it.
    on: u16,
    /// The change that an observation makes: whether it counts, or resets the counter.
    change: fn(&Observation<'_>, &CounterContext) -> Change,
    /// Whether it counts behaviour. A recovery turn resets such a counter; counters of used resources are never reset.
    is_behaviour: bool,
    /// Whether the evidence names the tool of the newest observation that counted.
    pub(crate) names_tool: bool,
}

/// The unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A plain number.
    One,
    /// Milliseconds. The settings contain seconds.
    Ms,
    /// Millionths of a US dollar. The settings contain dollars.
    MicroUsd,
}

/// The change that an observation makes to a counter.
enum Change {
    Keep,
    /// Increases the count by this number.
    Add(u64),
    /// Raises the count to at least this number. A count never decreases this way.
    AtLeast(u64),
    /// Sets the count to 0.
    Reset,
}

/// The state that the counters need in addition to their counts.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(default)]
struct CounterContext {
    /// Totals have been observed. They include repeated requests and child runs, so single observations no longer
    /// count.
    totals: bool,
    /// Bytes of the answer that were streamed. The complete answer repeats them.
    streamed: u64,
    /// The newest answer was empty, and no call has followed it yet.
    empty: bool,
    calls: ByTool,
    denials: Denials,
}

/// Longest tool name that is stored for the evidence, in bytes.
const MAX_NAME_BYTES: usize = 128;

const STEP: u16 = 1;
const TEXT: u16 = 1 << 1;
const ASSISTANT: u16 = 1 << 2;
const CALL: u16 = 1 << 3;
const RESULT: u16 = 1 << 4;
const USAGE: u16 = 1 << 5;
const TOTALS: u16 = 1 << 6;
const COMPACTED: u16 = 1 << 7;
/// No kind of observation: time and errors are measured by structs of their own.
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

/// Counts each step as one request, until totals are known.
fn model_calls(seen: &Observation<'_>, aside: &CounterContext) -> Change {
    match seen {
        Observation::Step if !aside.totals => Change::Add(1),
        Observation::Totals(totals) => Change::AtLeast(totals.model_calls),
        _ => Change::Keep,
    }
}

fn tool_calls(seen: &Observation<'_>, aside: &CounterContext) -> Change {
    match seen {
        Observation::ToolCall { .. } if !aside.totals => Change::Add(1),
        Observation::Totals(totals) => Change::AtLeast(totals.tool_calls),
        _ => Change::Keep,
    }
}

/// Tokens read, and tokens generated. Adds the figures of each model call, until totals are known.
fn usage(seen: &Observation<'_>, aside: &CounterContext) -> (Change, Change) {
    match *seen {
        Observation::Usage { input, output } if !aside.totals => (Change::Add(input), Change::Add(output)),
        Observation::Totals(totals) => (Change::AtLeast(totals.tokens_in), Change::AtLeast(totals.tokens_out)),
        _ => (Change::Keep, Change::Keep),
    }
}

/// Money of the run, and of the session. Only totals contain it.
fn money(seen: &Observation<'_>) -> (Change, Change) {
    match seen {
        Observation::Totals(totals) => {
            (Change::AtLeast(totals.run_micro_usd), Change::AtLeast(totals.session_micro_usd))
        }
        _ => (Change::Keep, Change::Keep),
    }
}

/// Counts the bytes of a text only once: a complete answer repeats what was streamed of it.
fn output_bytes(seen: &Observation<'_>, aside: &CounterContext) -> Change {
    let bytes = match seen {
        Observation::Totals(totals) => return Change::AtLeast(totals.output_bytes),
        _ if aside.totals => return Change::Keep,
        Observation::Text(text) | Observation::ToolResult { text, .. } => text.len() as u64,
        Observation::Assistant { text, .. } => (text.len() as u64).saturating_sub(aside.streamed),
        _ => return Change::Keep,
    };
    Change::Add(bytes)
}

/// Counts an empty answer only when the loop continues after it, because calls may follow it. An answer that a
/// guardrail has handled does not count.
fn empty_replies(seen: &Observation<'_>, aside: &CounterContext) -> Change {
    match seen {
        Observation::Assistant { text, nudged: false } if !text.trim().is_empty() => Change::Reset,
        Observation::ToolCall { .. } => Change::Reset,
        _ => Change::Add(u64::from(aside.empty)),
    }
}

/// Counts calls in a row with this outcome. A call that was not executed changes nothing.
fn in_a_row(seen: &Observation<'_>, wanted: CallOutcome) -> Change {
    match seen {
        Observation::ToolResult { outcome: CallOutcome::NotExecuted, .. } => Change::Keep,
        Observation::ToolResult { outcome, .. } if *outcome == wanted => Change::Add(1),
        _ => Change::Reset,
    }
}

/// Counts compactions that saved less than a tenth of the context. Such a compaction costs a model call over nearly the
/// whole context, and the next step fills the context again.
fn compactions(seen: &Observation<'_>, _: &CounterContext) -> Change {
    let Observation::Compacted { before, after } = *seen else { return Change::Keep };
    let gained = u128::from(after) * 10 <= u128::from(before) * 9;
    if gained { Change::Reset } else { Change::Add(1) }
}

impl Counter {
    /// The row of this counter in the table.
    pub(crate) fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Stored units in one unit of the settings: milliseconds in a second, millionths in a dollar.
    pub(crate) fn scale(self) -> u64 {
        match self.row().unit {
            Unit::One => 1,
            Unit::Ms => 1000,
            Unit::MicroUsd => 1_000_000,
        }
    }
}

/// The counter measures that an observation may change.
pub(crate) fn touched_by(seen: &Observation<'_>) -> Touched {
    let kind = kind_of(seen);
    let rows = TABLE.iter().filter(|row| row.on & kind != 0);
    rows.fold(Touched::NOTHING, |touched, row| touched.and(row.measure))
}

/// The counts of a run. Stored with the run.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(default)]
pub struct Counters {
    /// A missing counter is 0.
    counts: BTreeMap<Counter, u64>,
    /// The tools that the evidence names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tools: BTreeMap<Counter, String>,
    aside: CounterContext,
}

impl Counters {
    /// Processes an observation. Tools in `named`, which rules ask about, are always counted by name.
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

    /// The current count: in total, or in a row.
    pub fn count(&self, counter: Counter) -> u64 {
        if counter == Counter::TokensTotal {
            return self.count(Counter::TokensIn).saturating_add(self.count(Counter::TokensOut));
        }
        self.counts.get(&counter).copied().unwrap_or(0)
    }

    /// Calls of this tool in this run, without those of child runs.
    pub fn calls_of(&self, tool: &str) -> u64 {
        self.aside.calls.of(tool)
    }

    /// The tool of the newest observation that counted; empty if there is none.
    pub fn tool(&self, counter: Counter) -> &str {
        self.tools.get(&counter).map_or("", String::as_str)
    }

    /// Resets the counters of behaviour that belong to these measures.
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
