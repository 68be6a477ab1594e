//! `belay costs`: what model calls have cost.

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Output, Tone};
use serde_json::Value as Json;

use super::{Client, dollars, number, text};
use crate::args::{CostKeyArg, CostsArgs};

/// The part of a budget from which on its row is yellow, in percent.
const NEARLY_USED: u64 = 80;

/// Prints the costs by a key, and the budgets of today.
pub async fn costs(args: &CostsArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let mut query = vec![("by", args.by.word())];
    query.extend(args.since.as_deref().map(|since| ("since", since)));
    query.extend(args.until.as_deref().map(|until| ("until", until)));
    let report = Client::find(&args.client, env)?.get(&["api", "v1", "costs"], &query).await?;
    if args.client.json {
        out.json(&report);
        return Ok(Exit::Fine);
    }
    match list(&report, "/rows") {
        [] => out.line(&format!(
            "no model calls from {} to {} (UTC)",
            text(&report, "/first_day"),
            text(&report, "/last_day")
        )),
        rows => out.table(&table(args.by, rows)),
    }
    out.line("");
    out.table(&budgets(&report));
    Ok(Exit::Fine)
}

fn list<'a>(report: &'a Json, pointer: &str) -> &'a [Json] {
    report.pointer(pointer).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn table(by: CostKeyArg, rows: &[Json]) -> Vec<Vec<Cell>> {
    let head = [&*by.word().to_uppercase(), "COST", "READ", "WRITTEN", "CALLS"].map(|name| Cell::new(name, Tone::Dim));
    let total = |field: &str| rows.iter().map(|row| number(row, field)).fold(0, u64::saturating_add);
    let figures = |of: &dyn Fn(&str) -> u64| {
        [
            dollars(of("/cost_micro_usd")),
            of("/input_tokens").to_string(),
            of("/output_tokens").to_string(),
            of("/calls").to_string(),
        ]
    };
    let row = |row: &Json| {
        let cells = figures(&|field| number(row, field)).map(Cell::from);
        std::iter::once(key(by, row)).chain(cells).collect::<Vec<_>>()
    };
    let sum = figures(&total).map(|figure| Cell::new(figure, Tone::Dim));
    let sum = std::iter::once(Cell::new("total", Tone::Dim)).chain(sum).collect();
    std::iter::once(head.into()).chain(rows.iter().map(row)).chain([sum]).collect()
}

/// The key of a row, with words where it is empty.
fn key(by: CostKeyArg, row: &Json) -> Cell {
    match (text(row, "/key"), text(row, "/name"), by) {
        ("", _, CostKeyArg::Person) => Cell::new("nobody (outside a run)", Tone::Dim),
        ("", _, _) => Cell::new("without a price", Tone::Dim),
        (key, "", _) => key.into(),
        (key, name, _) => format!("{key} ({name})").into(),
    }
}

/// The money of today, the budgets, and the reservations of calls in progress.
fn budgets(report: &Json) -> Vec<Vec<Cell>> {
    let row = |name: String, value: Cell| vec![Cell::new(name, Tone::Dim), value];
    let mut rows = vec![row("today".into(), dollars(number(report, "/today/cost_micro_usd")).into())];
    for cap in list(report, "/caps") {
        let (spent, limit) = (number(cap, "/spent_micro_usd"), number(cap, "/limit_micro_usd"));
        let name = match text(cap, "/purpose") {
            "" => "budget".to_owned(),
            purpose => format!("budget {purpose}"),
        };
        let tone = match spent.saturating_mul(100).checked_div(limit) {
            None | Some(100..) => Tone::Bad,
            Some(NEARLY_USED..) => Tone::Warn,
            Some(_) => Tone::Plain,
        };
        rows.push(row(name, Cell::new(format!("{} of {}", dollars(spent), dollars(limit)), tone)));
    }
    let calls = number(report, "/open_reservations/calls");
    if calls > 0 {
        let reserved = dollars(number(report, "/open_reservations/cost_micro_usd"));
        rows.push(row("reserved".into(), format!("{reserved} for {calls} calls in progress").into()));
    }
    rows
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use serde_json::json;

    use super::*;

    #[test]
    fn costs_are_a_table_with_a_total_and_empty_keys_have_words() {
        let rows = [
            json!({"key": "telegram:42", "name": "Ann", "cost_micro_usd": 1_500_000, "input_tokens": 10, "output_tokens": 5, "calls": 1}),
            json!({"key": "", "cost_micro_usd": 200, "input_tokens": 1, "output_tokens": 2, "calls": 3}),
        ];
        let error = OnceLock::new();
        let lines = Output::plain(&error).aligned(&table(CostKeyArg::Person, &rows));
        let words: Vec<_> = lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            words,
            [
                "PERSON COST READ WRITTEN CALLS",
                "telegram:42 (Ann) $1.50 10 5 1",
                "nobody (outside a run) $0.0002 1 2 3",
                "total $1.50 11 7 4",
            ]
        );
    }

    #[test]
    fn a_budget_shows_how_near_it_is() {
        let caps = [(1, 10), (8, 10), (10, 10), (0, 0)].map(|(spent, limit)| {
            json!({"purpose": "job", "limit_micro_usd": limit * 1_000_000, "spent_micro_usd": spent * 1_000_000})
        });
        let report = json!({"today": {"cost_micro_usd": 5}, "caps": caps, "open_reservations": {"calls": 0}});
        let expected = [
            ("$1.00 of $10.00", Tone::Plain),
            ("$8.00 of $10.00", Tone::Warn),
            ("$10.00 of $10.00", Tone::Bad),
            ("$0.0000 of $0.0000", Tone::Bad),
        ];
        let shown: Vec<_> = budgets(&report).into_iter().skip(1).map(|mut row| row.remove(1)).collect();
        assert_eq!(shown, expected.map(|(words, tone)| Cell::new(words, tone)));
    }
}
