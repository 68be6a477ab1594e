//! `belay runs show --timeline`: where the time of a run went, made of its stored events.

#[cfg(test)]
mod tests;

use belay_program::exit::Failure;
use belay_program::output::{Cell, Output, Tone, note};
use serde_json::Value as Json;

use crate::client::{Client, duration_text, number, seconds_of, text};

/// Characters of the bar, and of the name of a part: a row fits 80 columns.
const BAR_CHARS: u64 = 20;
const NAME_CHARS: usize = 24;

/// Prints the spans of a run that has ended. It waits for the end of one that has not.
pub(super) async fn print(client: &Client, id: &str, ended: bool, out: Output<'_>) -> Result<(), Failure> {
    if !ended {
        note("the run has not ended: its timeline follows its end");
    }
    let mut events = client.events(&["api", "v1", "runs", id, "events"]).await?;
    let mut facts = Vec::new();
    while let Some(fact) = events.next().await {
        let end = text(&fact, "/type") == "run_ended";
        facts.push(fact);
        if end {
            break;
        }
    }
    match spans(&facts) {
        spans if spans.is_empty() => out.line("\nits events are not kept any more"),
        spans => {
            out.line("");
            out.table(&rows(&spans));
        }
    }
    Ok(())
}

/// A part of the run; times in milliseconds, `from` since its acceptance.
#[derive(Debug, PartialEq, Eq)]
struct Span {
    part: &'static str,
    name: String,
    from: u64,
    took: u64,
    tokens: Option<(u64, u64)>,
    failed: bool,
}

/// The spans of these facts, in order of their start: model calls, tool calls, questions, subagents and the wait.
fn spans(facts: &[Json]) -> Vec<Span> {
    let begin = facts.first().map_or(0, at);
    let open = |opening: &str, field: &str, fact: &Json| {
        let same = |other: &&Json| text(other, "/type") == opening && text(other, field) == text(fact, field);
        facts.iter().filter(same).find(|other| number(other, "/seq") < number(fact, "/seq"))
    };
    let span = |part, name: &str, from: u64, to: u64| Span {
        part,
        name: name.chars().take(NAME_CHARS).collect(),
        from: from.saturating_sub(begin),
        took: to.saturating_sub(from),
        tokens: None,
        failed: false,
    };
    let mut spans: Vec<Span> = facts
        .iter()
        .filter_map(|fact| {
            let took = number(fact, "/took_ms");
            let end = at(fact);
            match text(fact, "/type") {
                "run_started" if end > begin && open("run_started", "/type", fact).is_none() => {
                    Some(span("waiting", "its turn", begin, end))
                }
                "model_called" => Some(Span {
                    tokens: Some((number(fact, "/input"), number(fact, "/output"))),
                    failed: !text(fact, "/error").is_empty(),
                    ..span("model", &model_call(fact), end.saturating_sub(took), end)
                }),
                "tool_finished" => Some(Span {
                    failed: text(fact, "/status") != "success",
                    ..span("tool", &tool_call(fact), end.saturating_sub(took), end)
                }),
                "approval_resolved" => open("approval_requested", "/approval", fact)
                    .map(|asked| span("person", text(asked, "/summary"), at(asked), end)),
                "subagent_ended" => open("subagent_started", "/call_id", fact)
                    .map(|started| span("subagent", text(started, "/task"), at(started), end)),
                _ => None,
            }
        })
        .collect();
    spans.sort_by_key(|span| span.from);
    spans
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

fn rows(spans: &[Span]) -> Vec<Vec<Cell>> {
    let whole = spans.iter().map(|span| span.from + span.took).max().unwrap_or_default().max(1);
    let head = ["BEGAN", "PART", "WHAT", "TOOK", "TOKENS", "WHEN"].map(|name| Cell::new(name, Tone::Dim));
    let row = |span: &Span| {
        let tone = if span.failed { Tone::Bad } else { Tone::Plain };
        vec![
            format!("+{}", milliseconds_text(span.from)).into(),
            span.part.into(),
            Cell::new(span.name.as_str(), tone),
            milliseconds_text(span.took).into(),
            span.tokens.map_or(String::new(), |(input, output)| format!("{input} + {output}")).into(),
            Cell::new(bar(span, whole), tone),
        ]
    };
    std::iter::once(head.into()).chain(spans.iter().map(row)).collect()
}

/// The place of a span in the whole run, at least one character.
fn bar(span: &Span, whole: u64) -> String {
    let before = (span.from * BAR_CHARS / whole).min(BAR_CHARS - 1);
    let chars = (span.took * BAR_CHARS).div_ceil(whole).clamp(1, BAR_CHARS - before);
    [" ".repeat(usize::try_from(before).unwrap_or(0)), "█".repeat(usize::try_from(chars).unwrap_or(1))].concat()
}

fn milliseconds_text(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..10_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => duration_text(std::time::Duration::from_millis(ms)),
    }
}

/// The time of a fact in milliseconds since 1970: `2026-11-20T19:43:00.123Z`.
fn at(fact: &Json) -> u64 {
    let at = text(fact, "/at");
    let fraction = at.get(20..23).and_then(|digits| digits.parse::<u64>().ok()).unwrap_or_default();
    seconds_of(at).unwrap_or_default() * 1000 + fraction
}
