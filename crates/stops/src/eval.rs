//! `belay stops eval`: evaluates the stop rules on a labelled set.

use std::io::{IsTerminal, Write};

use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Output, Tone};
use belay_trajectory::eval::{Failure as Wrong, NoCopies, Report, evaluate};
use belay_trajectory::rule_set::{Part, belay};

use super::{ALL_PARTS, EvalArgs, rules, set};

/// Judges the set and prints the figures.
pub fn eval(args: &EvalArgs, out: Output<'_>) -> Result<Exit, Failure> {
    let rules = rules::of_file(args.rules.as_deref())?;
    let is_named = |part: &Part| args.without.iter().any(|word| word == part.word() || word == ALL_PARTS);
    let left_out: Vec<Part> = Part::ALL.into_iter().filter(is_named).collect();
    let candidates = belay(&rules, &left_out);
    if let Some(name) = args.failures.as_deref().filter(|name| *name != "all")
        && !candidates.iter().any(|candidate| candidate.name == name)
    {
        let names: Vec<_> = candidates.iter().map(|candidate| candidate.name).collect();
        return Err(Failure::new(Exit::WrongUsage, format!("--failures: there is no rule set `{name}`"))
            .next(format!("there are {}, and all", names.join(", "))));
    }
    let cases = set::read(&args.dir)?;
    let shown = std::io::stderr().is_terminal();
    let report = evaluate(&cases, &candidates, &NoCopies, &|done, of| {
        if shown && (done % 64 == 0 || done == of) {
            progress(done, of);
        }
    });
    show(args, &report, out);
    Ok(Exit::Fine)
}

/// Shows the progress as one terminal line, which is removed at the end.
fn progress(done: usize, of: usize) {
    let line = if done == of { String::new() } else { format!("{done} of {of} runs judged") };
    let _ = write!(std::io::stderr().lock(), "\r\x1b[K{line}"); // if stderr is closed, nobody can be told
}

fn show(args: &EvalArgs, report: &Report, out: Output<'_>) {
    if args.json {
        return out.json(&serde_json::to_value(report).unwrap_or_default());
    }
    if args.markdown {
        out.line(report.markdown().trim_end());
    } else {
        let of = |row: Vec<String>| row.into_iter().map(Cell::from).collect();
        let mut rows: Vec<Vec<Cell>> = report.rows().into_iter().map(of).collect();
        if let Some(head) = rows.first_mut() {
            *head = report.rows()[0].iter().map(|name| Cell::new(name.as_str(), Tone::Dim)).collect();
        }
        out.table(&rows);
    }
    if let Some(name) = &args.failures {
        let sets = report.sets.iter().filter(|set| name == "all" || set.name == name);
        let rows: Vec<_> = sets.flat_map(|set| set.failures.iter().map(|wrong| row(set.name, wrong))).collect();
        out.line("");
        match rows.as_slice() {
            [] => out.line("no failures"),
            rows => out.table(rows),
        }
    }
}

fn row(set: &str, wrong: &Wrong) -> Vec<Cell> {
    let at = |event: Option<usize>| event.map_or("–".to_owned(), |event| event.to_string());
    vec![
        Cell::new(wrong.kind.word(), Tone::Bad),
        set.into(),
        wrong.file.as_str().into(),
        format!("event {}", at(wrong.at_event)).into(),
        format!("onset {}", at(wrong.onset)).into(),
        wrong.rule.as_deref().unwrap_or("–").into(),
    ]
}
