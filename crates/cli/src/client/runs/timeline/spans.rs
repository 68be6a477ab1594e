//! The parts of a run in time, made of its facts. Pure.

use serde_json::{Value as Json, json};

use crate::client::{number, seconds_of, text};

/// A part of the run; times in milliseconds, `from` since its acceptance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) part: &'static str,
    pub(super) name: String,
    pub(super) from: u64,
    pub(super) took: u64,
    /// Tokens read and written; those of all model calls of a subagent or a step.
    pub(super) tokens: Option<(u64, u64)>,
    pub(super) failed: bool,
    /// How many subagents and steps of plans it is in.
    pub(super) level: usize,
    /// The numbers of the facts that begin and end it.
    facts: (u64, u64),
    call: String,
}

impl Span {
    /// Whether it contains other parts.
    pub(super) fn is_group(&self) -> bool {
        matches!(self.part, "subagent" | "step")
    }

    fn contains(&self, other: &Self) -> bool {
        let (begin, end) = self.facts;
        self.is_group() && begin < other.facts.1 && other.facts.1 < end && (!other.is_group() || begin < other.facts.0)
    }

    /// The span for programs. `cost`: its share of the cost of the run.
    pub(super) fn json(&self, cost: Option<u64>) -> Json {
        json!({
            "part": self.part, "name": self.name, "level": self.level, "from_ms": self.from, "took_ms": self.took,
            "input": self.tokens.map(|(input, _)| input), "output": self.tokens.map(|(_, output)| output),
            "cost_share_micro_usd": cost, "failed": self.failed,
        })
    }
}

/// The spans of these facts, in order of their start: model calls, tool calls, questions, subagents, steps of a plan and the
/// wait.
pub(super) fn spans(facts: &[Json]) -> Vec<Span> {
    let mut spans: Vec<Span> = facts.iter().filter_map(|fact| span_of(facts, fact)).collect();
    // The call that has started a subagent is as long as the subagent.
    let subagents: Vec<String> =
        spans.iter().filter(|span| span.part == "subagent").map(|span| span.call.clone()).collect();
    spans.retain(|span| span.part != "tool" || span.failed || !subagents.contains(&span.call));
    // A group begins before all that it contains.
    spans.sort_by_key(|span| (span.from, !span.is_group(), span.facts.0));
    for at in 0..spans.len() {
        let around = spans.iter().filter(|group| group.contains(&spans[at]));
        // Groups are sorted by their beginning, so those around this span have their level.
        spans[at].level = around.map(|group| group.level + 1).max().unwrap_or(0);
    }
    for at in 0..spans.len() {
        let inner = spans.iter().filter(|span| span.part == "model" && spans[at].contains(span));
        let sum = |(input, output): (u64, u64), tokens: (u64, u64)| (input + tokens.0, output + tokens.1);
        if spans[at].is_group() {
            spans[at].tokens = inner.filter_map(|span| span.tokens).reduce(sum);
        }
    }
    spans
}

/// The span that a fact ends.
fn span_of(facts: &[Json], fact: &Json) -> Option<Span> {
    let begin = facts.first().map_or(0, at);
    let seq = number(fact, "/seq");
    let span = |part, name: String, from: u64, first: u64| Span {
        part,
        name,
        from: from.saturating_sub(begin),
        took: at(fact).saturating_sub(from),
        tokens: None,
        failed: false,
        level: 0,
        facts: (first, seq),
        call: text(fact, "/call_id").to_owned(),
    };
    let timed = |part, name| span(part, name, at(fact).saturating_sub(number(fact, "/took_ms")), seq);
    let since = |part, opening: &str, field: &str, name: &str| {
        let opened = opening_of(facts, fact, opening, field)?;
        Some(span(part, text(opened, name).to_owned(), at(opened), number(opened, "/seq")))
    };
    match text(fact, "/type") {
        "run_started" if at(fact) > begin && opening_of(facts, fact, "run_started", "/type").is_none() => {
            Some(span("waiting", "its turn".to_owned(), begin, number(&facts[0], "/seq")))
        }
        "model_called" => Some(Span {
            tokens: Some((number(fact, "/input"), number(fact, "/output"))),
            failed: !text(fact, "/error").is_empty(),
            ..timed("model", model_call(fact))
        }),
        "tool_finished" => Some(Span { failed: text(fact, "/status") != "success", ..timed("tool", tool_call(fact)) }),
        "approval_resolved" => since("person", "approval_requested", "/approval", "/summary"),
        "subagent_ended" => since("subagent", "subagent_started", "/call_id", "/task"),
        "plan_step" if text(fact, "/status") != "in_progress" => {
            let (index, begun) = (number(fact, "/index"), |other: &&Json| text(other, "/status") == "in_progress");
            let same = |other: &&Json| text(other, "/type") == "plan_step" && number(other, "/index") == index;
            let first = facts.iter().filter(same).find(begun)?;
            let planned = facts.iter().rfind(|other| number(other, "/seq") < seq && other.pointer("/steps").is_some());
            let words = planned.map_or("", |plan| text(plan, &format!("/steps/{index}")));
            let name = format!("{}. {words}", index + 1);
            let failed = text(fact, "/status") == "blocked";
            Some(Span { failed, ..span("step", name.trim_end().to_owned(), at(first), number(first, "/seq")) })
        }
        _ => None,
    }
}

/// The first fact of this type before `fact` with the same value of a field.
fn opening_of<'a>(facts: &'a [Json], fact: &Json, opening: &str, field: &str) -> Option<&'a Json> {
    let same = |other: &&Json| text(other, "/type") == opening && text(other, field) == text(fact, field);
    facts.iter().filter(same).find(|other| number(other, "/seq") < number(fact, "/seq"))
}

/// The name of a model call: its step, or the question that it answers beside the work.
fn model_call(fact: &Json) -> String {
    match text(fact, "/purpose") {
        "" => format!("step {}", number(fact, "/step")),
        "closing" => "closing turn".to_owned(),
        "judge" => "judge of the stop rules".to_owned(),
        "goal" => "judge of the goal".to_owned(),
        "completion" => "check of the answer".to_owned(),
        other => other.to_owned(),
    }
}

/// The name of a tool call. The run itself makes the call that checks its goal, and its id begins with the end of the
/// run's.
fn tool_call(fact: &Json) -> String {
    let run = text(fact, "/run_id").rsplit('-').next().unwrap_or_default();
    let checks = !run.is_empty() && text(fact, "/call_id").starts_with(&format!("goal-{run}-"));
    format!("{}{}", if checks { "check: " } else { "" }, text(fact, "/name"))
}

/// The time of a fact in milliseconds since 1970: `2026-11-20T19:43:00.123Z`.
fn at(fact: &Json) -> u64 {
    let at = text(fact, "/at");
    let fraction = at.get(20..23).and_then(|digits| digits.parse::<u64>().ok()).unwrap_or_default();
    seconds_of(at).unwrap_or_default() * 1000 + fraction
}
