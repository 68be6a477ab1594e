//! `belay runs show --timeline`: where the time of a run went, made of its stored events.

mod spans;
#[cfg(test)]
mod tests;

use belay_program::exit::Failure;
use belay_program::output::{Cell, Column, Output, Tone, fitted, note};
use serde_json::Value as Json;

use self::spans::{Span, spans};
use crate::client::{Client, dollars, duration_text, number, text};

/// Characters of the bar in a pipe, at least on a terminal, and at most.
const BAR_CHARS: usize = 20;
const BAR_MAX: usize = 60;

/// The columns of a terminal that the other columns usually take.
const OTHERS: usize = 80;

/// How a row fits a terminal. The bar says when a part began, too.
const COLUMNS: [Column; 7] = [
    Column::optional(3),
    Column::WHOLE,
    Column::cut(12),
    Column::WHOLE,
    Column::optional(1),
    Column::optional(2),
    Column::WHOLE,
];

/// The time of a run that has ended. It waits for the end of one that has not.
pub(super) struct Timeline {
    spans: Vec<Span>,
    /// The cost of the run, and the tokens of all its model calls.
    cost_micro_usd: u64,
    tokens: u64,
}

impl Timeline {
    /// Reads the events of a run.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub(super) async fn read(client: &Client, run: &Json) -> Result<Self, Failure> {
        if text(run, "/ended_at").is_empty() {
            note("the run has not ended: its timeline follows its end");
        }
        let mut events = client.events(&["api", "v1", "runs", text(run, "/run_id"), "events"]).await?;
        let mut facts = Vec::new();
        while let Some(fact) = events.next().await {
            let end = text(&fact, "/type") == "run_ended";
            facts.push(fact);
            if end {
                break;
            }
        }
        Ok(Self::of(&facts, number(run, "/cost_micro_usd")))
    }

    fn of(facts: &[Json], cost_micro_usd: u64) -> Self {
        let spans = spans(facts);
        let calls = spans.iter().filter(|span| span.part == "model").filter_map(|span| span.tokens);
        let tokens = calls.map(|(input, output)| input + output).sum();
        Self { spans, cost_micro_usd, tokens }
    }

    /// The spans for programs.
    pub(super) fn json(&self) -> Json {
        self.spans.iter().map(|span| span.json(self.share(span))).collect()
    }

    /// Prints a row for each span.
    pub(super) fn print(&self, out: Output<'_>) {
        if self.spans.is_empty() {
            return out.line("\nits events are not kept any more");
        }
        out.line("");
        out.table(&self.rows(out.columns()));
    }

    /// The share of the cost of the run, by tokens: the daemon keeps no cost of a step. `None`: it has no tokens, or the run
    /// has cost nothing.
    fn share(&self, span: &Span) -> Option<u64> {
        let (input, output) = span.tokens.filter(|_| self.cost_micro_usd > 0 && self.tokens > 0)?;
        let share = u128::from(self.cost_micro_usd) * u128::from(input + output) / u128::from(self.tokens);
        u64::try_from(share).ok()
    }

    /// The rows for a terminal of this width; `None`: for a program, with nothing cut.
    fn rows(&self, width: Option<usize>) -> Vec<Vec<Cell>> {
        let whole = self.spans.iter().map(|span| span.from + span.took).max().unwrap_or_default().max(1);
        let chars = width.map_or(BAR_CHARS, |width| width.saturating_sub(OTHERS).clamp(BAR_CHARS, BAR_MAX));
        let cost = if self.cost_micro_usd > 0 { "COST" } else { "" };
        let scale = format!("0{:>1$}", milliseconds_text(whole), chars - 1);
        let head =
            ["BEGAN", "PART", "WHAT", "TOOK", "TOKENS", cost, scale.as_str()].map(|name| Cell::new(name, Tone::Dim));
        let row = |span: &Span| {
            let tone = if span.failed { Tone::Bad } else { Tone::Plain };
            let indent = match span.level {
                0 => String::new(),
                level => "  ".repeat(level - 1) + "└ ",
            };
            vec![
                format!("+{}", milliseconds_text(span.from)).into(),
                span.part.into(),
                Cell::new(format!("{indent}{}", span.name), tone),
                milliseconds_text(span.took).into(),
                span.tokens.map_or(String::new(), |(input, output)| format!("{input} + {output}")).into(),
                self.share(span).map_or(String::new(), dollars).into(),
                Cell::new(bar(span, whole, chars), tone),
            ]
        };
        let rows: Vec<Vec<Cell>> = std::iter::once(head.into()).chain(self.spans.iter().map(row)).collect();
        match width {
            Some(width) => fitted(&rows, &COLUMNS, width),
            None => rows,
        }
    }
}

/// The place of a span in the whole run, at least one character. A part that contains others is drawn lighter.
fn bar(span: &Span, whole: u64, chars: usize) -> String {
    let width = chars as u64;
    let before = (span.from * width / whole).min(width - 1);
    let filled = (span.took * width).div_ceil(whole).clamp(1, width - before);
    let mark = if span.is_group() { "░" } else { "█" };
    [" ".repeat(usize::try_from(before).unwrap_or(0)), mark.repeat(usize::try_from(filled).unwrap_or(1))].concat()
}

fn milliseconds_text(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..10_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => duration_text(std::time::Duration::from_millis(ms)),
    }
}
