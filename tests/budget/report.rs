//! What a person, or a program, reads of a run.

use std::io::{IsTerminal as _, Write as _};

use serde_json::json;

use crate::counts::Figures;
use crate::scripts::Script;
use crate::table::{Compared, Verdict};

/// One script and its figures.
pub(crate) type Measured = (Script, Figures);

/// The rows as JSON, and what is only printed.
pub(crate) fn json(rows: &[Compared], measured: &[Measured]) -> String {
    let printed: serde_json::Map<_, _> =
        measured.iter().map(|(script, figures)| (script.name().to_owned(), json!(figures.printed))).collect();
    format!("{:#}", json!({"rows": rows, "printed": printed}))
}

/// The rows as lines, and then what to do about those that differ. The last line counts them.
pub(crate) fn lines(rows: &[Compared], measured: &[Measured], quiet: bool, update: bool) -> String {
    let coloured = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let mut text = String::new();
    for (script, figures) in measured {
        for row in rows.iter().filter(|row| row.script == script.name()) {
            text.push_str(&line(row, update, coloured));
        }
        if !quiet {
            let printed = figures.printed.iter().map(|(name, count)| format!("{name} {}", number(*count)));
            text.push_str(&format!("       {:12} {}\n", script.name(), printed.collect::<Vec<_>>().join(", ")));
        }
    }
    let any = |verdict| rows.iter().any(|row| row.verdict == verdict);
    if any(Verdict::NotCounted) {
        text.push_str("System calls are not counted here: the system does not permit to trace a process.\n");
    }
    if any(Verdict::TooBusy) {
        text.push_str("Too busy: other programs use the processors, so counts that depend on the load are not compared. Run it again on a quieter machine.\n");
    }
    if update {
        if any(Verdict::Above) || any(Verdict::Unexplained) {
            text.push_str("Write the reason of each row that has risen over its \"?\" in tests/budget/table.toml.\n");
        }
        text.push_str("The table is written.");
        return text;
    }
    if any(Verdict::Above) {
        text.push_str("Above the table. If it has to be: run `make budget UPDATE=1`, and write the reason into `why` in tests/budget/table.toml.\n");
    }
    if any(Verdict::Missing) {
        text.push_str("Not in the table: run `make budget UPDATE=1`.\n");
    }
    if any(Verdict::Unexplained) {
        text.push_str("Has risen without a reason: replace the \"?\" in tests/budget/table.toml.\n");
    }
    if any(Verdict::Lower) {
        text.push_str("Below the table: `make budget UPDATE=1` lowers it.\n");
    }
    let count = |of: fn(Verdict) -> bool| rows.iter().filter(|row| of(row.verdict)).count();
    let (failed, skipped) =
        (count(Verdict::fails), count(|verdict| matches!(verdict, Verdict::NotCounted | Verdict::TooBusy)));
    text.push_str(&format!("{} passed, {failed} failed, {skipped} skipped", rows.len() - failed - skipped));
    text
}

fn line(row: &Compared, update: bool, coloured: bool) -> String {
    let (word, colour) = match row.verdict {
        Verdict::Kept => ("ok", "32"),
        Verdict::Above if update => ("raised", "31"),
        Verdict::Missing if update => ("new", "33"),
        Verdict::Unexplained if update => ("?", "31"),
        Verdict::Lower => ("lower", "33"),
        Verdict::Above | Verdict::Missing | Verdict::Unexplained => ("FAILED", "31"),
        // As a test that is left out.
        Verdict::NotCounted => ("ok", "33"),
        Verdict::TooBusy => ("busy", "33"),
    };
    let show = |count: Option<f64>| count.map_or("–".to_owned(), number);
    let change = match (row.old, row.new) {
        (Some(old), Some(new)) if old > 0.0 && row.verdict != Verdict::Kept => {
            format!(" ({:+.0} %)", (new / old - 1.0) * 100.0)
        }
        (_, None) => " (not counted here)".into(),
        _ => String::new(),
    };
    let since = match (row.first, row.new) {
        (Some(first), Some(new)) if first > 0.0 => format!("  {:.2} × the first count", new / first),
        _ => String::new(),
    };
    let text = format!("{word:6} {:12} {:17}", row.script, row.count);
    let text = if coloured { format!("\x1b[{colour}m{text}\x1b[0m") } else { text };
    format!("{text} {:>9} → {:>9}{since}{change}\n", show(row.old), show(row.new))
}

fn number(count: f64) -> String {
    let text = if count < 100.0 { format!("{count:.2}") } else { format!("{count:.0}") };
    match text.strip_suffix(".00") {
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

/// Prints to stdout. Ignores a closed pipe.
pub(crate) fn print(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
