//! Prints verdicts: one line of JSON for programs, plain words for people.

use belay_program::output::{Cell, Output, Tone, print_error};
use belay_trajectory::explain::{Explanation, Follow, Row};
use serde_json::{Value, json};

/// The runs of one file, after they were judged.
pub(super) struct Judged {
    /// The file, or the id of a run.
    pub(super) file: String,
    /// What was read of a file of another program.
    pub(super) read: Option<String>,
    /// The runs, with their names.
    pub(super) runs: Vec<(String, Follow)>,
}

/// Prints the verdicts. On a terminal in words; else one line of JSON a run, and the words on stderr. `json`: only JSON,
/// with the explanation in it.
pub(super) fn verdicts(judged: &[Judged], json: bool, out: Output<'_>) {
    let is_single = judged.iter().map(|file| file.runs.len()).sum::<usize>() == 1;
    for file in judged {
        if let Some(read) = file.read.as_ref().filter(|_| !json) {
            print_error(&format!("{}: {read}", file.file));
        }
        for (name, follow) in &file.runs {
            let explanation = follow.explanation();
            let title = match (is_single, name.as_str()) {
                (true, "") => String::new(),
                (_, "") => format!("{}: ", file.file),
                (_, name) => format!("{}, {name}: ", file.file),
            };
            if json || !out.is_terminal() {
                out.line(&line(file, name, follow, (!is_single, json.then_some(&explanation))));
            }
            match (json, out.is_terminal()) {
                (true, _) => {}
                (false, true) => words(&title, &explanation, &mut |line| match line {
                    Line::Text(text) => out.line(&text),
                    Line::Rows(rows) => out.table(&rows),
                }),
                (false, false) => words(&title, &explanation, &mut |line| match line {
                    Line::Text(text) => print_error(&text),
                    Line::Rows(rows) => out.aligned(&rows).iter().for_each(|row| print_error(row.trim_end())),
                }),
            }
        }
    }
}

/// The verdict as one line, also for those who write scripts by trying.
fn line(file: &Judged, name: &str, follow: &Follow, (named, said): (bool, Option<&Explanation>)) -> String {
    let mut verdict = serde_json::to_value(follow.verdict()).unwrap_or_default();
    if named || said.is_some() {
        verdict["file"] = file.file.clone().into();
        verdict["run"] = if name.is_empty() { Value::Null } else { name.into() };
    }
    if let Some(said) = said {
        verdict["read"] = file.read.clone().map_or(Value::Null, Value::from);
        verdict["explanation"] = json!(said);
    }
    verdict.to_string()
}

enum Line {
    Text(String),
    Rows(Vec<Vec<Cell>>),
}

fn words(title: &str, said: &Explanation, print: &mut dyn FnMut(Line)) {
    print(Line::Text(format!("{title}{}", said.verdict)));
    if said.around.is_empty() {
        return;
    }
    print(Line::Rows(said.around.iter().map(row).collect()));
    if let Some(told) = &said.told {
        print(Line::Text(format!("the model would have been told: {told}")));
    } else {
        print(Line::Text("the run would have ended, without another model call but the closing one".into()));
    }
    if !said.settings.is_empty() {
        print(Line::Text(format!("settings that change this: {}", said.settings.join(", "))));
    }
    print(Line::Text("--json prints all of it for programs, --rules FILE judges by other rules".into()));
}

fn row(row: &Row) -> Vec<Cell> {
    let tone = if row.strike { Tone::Bad } else { Tone::Plain };
    let mark = if row.strike { ">" } else { " " };
    let tool = if row.tool.is_empty() { "(answer)" } else { &row.tool };
    vec![
        Cell::new(mark, tone),
        Cell::new(format!("step {}", row.step), tone),
        Cell::new(tool, tone),
        Cell::new(row.said.as_str(), tone),
        Cell::new(row.result.clone().unwrap_or_default(), Tone::Dim),
    ]
}
