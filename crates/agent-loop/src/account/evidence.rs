//! The evidence of a finding as a value.

use belay_protocol::Finding;
use serde_json::{Map, Value};

use super::calls::SeenCall;
use super::classify;
use super::equal::{Equal, first_line};
use super::group::{Group, edits};
use super::kind::LoopKind;
use super::marks::Marks;
use super::target::{Target, cut, line};
use crate::policies::tool_loops::Role;

/// Longest tool name that is shown, in bytes.
const NAME_BYTES: usize = 40;
/// Longest quote of the model's own text that is shown, in bytes.
const QUOTE_BYTES: usize = 80;

/// The evidence of a finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The kind of loop.
    pub kind: LoopKind,
    /// The figure that the rule counted.
    pub count: u64,
    /// The rule.
    pub rule: String,
    /// The tool of the newest call.
    pub tool: Option<String>,
    /// The target of the newest call.
    pub target: Option<Target>,
    /// Whether the calls run a program.
    pub runs: bool,
    /// Number of calls.
    pub calls: usize,
    /// The steps of the oldest and of the newest call, from 1.
    pub steps: Option<(u32, u32)>,
    /// The calls of a cycle in their order, each with its target.
    pub cycle: Vec<String>,
    /// Changes between the calls.
    pub edits: usize,
    /// The part of the results that stayed equal.
    pub equal: Option<Equal>,
    /// The first line of the newest result.
    pub newest: Option<String>,
    /// Lines of a repeated group of lines.
    pub lines: Option<u64>,
    /// The beginning of repeated text of the model.
    pub quote: Option<String>,
    /// The markers of the newest result, if it is untrusted content.
    pub(super) marks: Marks,
}

impl Evidence {
    /// Collects the evidence of a finding from the newest calls of the run, newest first.
    pub fn of(finding: &Finding, seen: &[SeenCall<'_>]) -> Self {
        let group = Group::of(finding, seen);
        let kind = classify::kind(finding, &group);
        let calls = telling(kind, &group.calls);
        let newest = calls.iter().find(|call| call.result.is_some()).or(calls.first());
        let equal = match kind {
            LoopKind::Cycle | LoopKind::NoNews | LoopKind::OscillatingWrites => None,
            _ => Equal::of(&calls),
        };
        let known = |step: u32| (step > 0).then_some(step);
        let steps = calls.last().zip(calls.first()).and_then(|(a, b)| Some((known(a.step)?, known(b.step)?)));
        Self {
            kind,
            count: finding.count,
            rule: finding.rule.clone(),
            tool: newest.map(|call| line(call.name, NAME_BYTES)).or_else(|| fact(finding, "tool")),
            target: newest.and_then(|call| Target::of(call.arguments)),
            runs: newest.is_some_and(|call| call.outline.role == Role::Runs),
            calls: calls.len(),
            steps,
            cycle: if kind == LoopKind::Cycle { cycle(&calls) } else { Vec::new() },
            edits: edits(seen, &calls),
            equal,
            newest: newest.and_then(|call| call.result).map(first_line).filter(|line| !line.is_empty()),
            lines: finding.facts.get("lines").and_then(Value::as_u64),
            quote: finding.quote.as_deref().map(|quote| line(quote, QUOTE_BYTES)),
            marks: newest.map_or(Marks::None, |call| Marks::of(call)),
        }
    }

    /// The evidence as facts for the end of a run: figures and names, no text of a result.
    pub fn facts(&self) -> Map<String, Value> {
        let mut facts = Map::new();
        let mut add = |key: &str, value: Option<Value>| value.map(|value| facts.insert(key.to_owned(), value));
        add("kind", Some(self.kind.word().into()));
        add("tool", self.tool.clone().map(Value::from));
        add("target", self.target.as_ref().map(|target| target.text.clone().into()));
        add("calls", (self.calls > 0).then(|| self.calls.into()));
        add("first_step", self.steps.map(|(first, _)| first.into()));
        add("last_step", self.steps.map(|(_, last)| last.into()));
        add("edits", (self.kind == LoopKind::EditRun).then(|| self.edits.into()));
        add("equal_lines", self.equal.as_ref().map(|equal| equal.lines.into()));
        add("differs", self.equal.as_ref().and_then(|equal| equal.differs.word()).map(Value::from));
        facts
    }
}

fn fact(finding: &Finding, key: &str) -> Option<String> {
    finding.facts.get(key).and_then(Value::as_str).map(|value| line(value, NAME_BYTES))
}

/// The calls of the sentence: of edits and runs, only the runs; and only calls that were executed, if there are any.
fn telling<'s, 'a>(kind: LoopKind, calls: &[&'s SeenCall<'a>]) -> Vec<&'s SeenCall<'a>> {
    let wanted = |call: &&&SeenCall<'_>| kind != LoopKind::EditRun || call.outline.role == Role::Runs;
    let calls: Vec<_> = calls.iter().filter(wanted).copied().collect();
    let executed: Vec<_> = calls.iter().filter(|call| call.result.is_some()).copied().collect();
    if executed.len() > 1 { executed } else { calls }
}

/// The different calls, oldest first: each tool with its target.
fn cycle(calls: &[&SeenCall<'_>]) -> Vec<String> {
    let mut known: Vec<u64> = Vec::new();
    let mut labels = Vec::new();
    for call in calls {
        if known.contains(&call.outline.fingerprint) {
            continue;
        }
        known.push(call.outline.fingerprint);
        let name = line(call.name, NAME_BYTES);
        labels.push(match Target::of(call.arguments) {
            Some(target) => format!("{name} (“{}”)", cut(&target.text, NAME_BYTES)),
            None => name,
        });
    }
    labels.reverse();
    labels
}
