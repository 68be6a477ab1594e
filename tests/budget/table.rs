//! The table: what each script may cost, and the comparison with what it costs.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::counts::{Count, Counted, Figures};
use crate::load::TOO_BUSY;
use crate::scripts::Script;

/// A count may rise by this share before it needs a reason.
const SHARE: f64 = 0.05;
/// The reason of a row whose reason is still to be written.
const NO_REASON: &str = "?";

const HEAD: &str = "\
# What the daemon may cost: for each script the counts of one repetition. docs/develop/performance.md explains both.
#
# `make budget` compares, `make budget UPDATE=1` writes this file. A count that has risen gets why = \"?\", which fails
# until you replace it by the reason.
";

/// The rows of all scripts.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(crate) struct Table(BTreeMap<String, BTreeMap<String, Row>>);

/// One count of one script.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Row {
    count: f64,
    /// The count that the row began with, if it differs.
    #[serde(default)]
    first: Option<f64>,
    /// Why it is as much as that.
    #[serde(default)]
    why: Option<String>,
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// As in the table.
    Kept,
    /// Lower: the table can be lowered.
    Lower,
    /// Above the table.
    Above,
    /// The table has no such row.
    Missing,
    /// The row has risen, and nobody has written why.
    Unexplained,
    /// It could not be counted here.
    NotCounted,
    /// Above the table, on a machine that was too busy to tell.
    TooBusy,
}

impl Verdict {
    /// Whether the script is measured again before this counts. What only could be lowered can wait for the update.
    pub(crate) fn is_checked(self, update: bool) -> bool {
        matches!(self, Self::Above | Self::TooBusy) || (update && self == Self::Lower)
    }

    /// Whether the change may not pass.
    pub(crate) fn fails(self) -> bool {
        matches!(self, Self::Above | Self::Missing | Self::Unexplained)
    }
}

/// A row beside what was counted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Compared {
    pub(crate) script: &'static str,
    pub(crate) count: &'static str,
    /// The count that the row began with.
    pub(crate) first: Option<f64>,
    pub(crate) old: Option<f64>,
    pub(crate) new: Option<f64>,
    pub(crate) verdict: Verdict,
}

impl Table {
    /// Reads a table.
    ///
    /// # Errors
    /// It is no TOML of this form, or names a script or a count that does not exist.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let table: Self = toml::from_str(text)?;
        for (script, rows) in &table.0 {
            ensure!(Script::ALL.iter().any(|known| known.name() == script), "there is no script \"{script}\"");
            for count in rows.keys() {
                ensure!(
                    Count::ALL.iter().any(|known| known.name() == count),
                    "{script}: there is no count \"{count}\""
                );
            }
        }
        Ok(table)
    }

    /// What an idle daemon may cost in a minute.
    pub(crate) fn idle_minute(&self) -> Counted {
        let rows = self.0.get(Script::Idle.name());
        let count = |count: Count| Some((count, rows?.get(count.name())?.count));
        Count::ALL.into_iter().filter_map(count).collect()
    }

    /// Compares the figures of a script with its rows.
    pub(crate) fn compare(&self, script: Script, figures: &Figures) -> Vec<Compared> {
        let rows = self.0.get(script.name());
        let compared = |count: Count| {
            let row = rows.and_then(|rows| rows.get(count.name()));
            let (old, new) = (row.map(|row| row.count), figures.counts.get(&count).map(|new| rounded(*new)));
            let verdict = match (row, new) {
                (_, None) => Verdict::NotCounted,
                (None, Some(_)) => Verdict::Missing,
                (Some(row), Some(_)) if row.why.as_deref() == Some(NO_REASON) => Verdict::Unexplained,
                (Some(row), Some(new)) => match verdict(row.count, new, count.noise(script)) {
                    Verdict::Above if figures.others > TOO_BUSY && count.depends_on_load(script) => Verdict::TooBusy,
                    verdict => verdict,
                },
            };
            let first = row.map(|row| row.first.unwrap_or(row.count));
            Compared { script: script.name(), count: count.name(), first, old, new, verdict }
        };
        Count::ALL.into_iter().map(compared).collect()
    }

    /// Of two measurements of a script the figures that are nearer to the table. A difference has to show in both; one on a quiet
    /// machine is enough to tell.
    pub(crate) fn nearest(&self, script: Script, mut figures: Figures, again: &Figures) -> Figures {
        let Some(rows) = self.0.get(script.name()) else { return figures };
        figures.others = figures.others.min(again.others);
        for (count, figure) in &mut figures.counts {
            let Some(other) = again.counts.get(count) else { continue };
            let Some(row) = rows.get(count.name()) else { continue };
            if (other - row.count).abs() < (*figure - row.count).abs() {
                *figure = *other;
            }
        }
        figures
    }

    /// Takes over what differs. A row that has risen needs a new reason.
    pub(crate) fn update(&mut self, compared: &[Compared]) {
        for Compared { script, count, new, verdict, .. } in compared {
            let Some(new) = *new else { continue };
            let rows = self.0.entry((*script).to_owned()).or_default();
            match verdict {
                Verdict::Missing => drop(rows.insert((*count).to_owned(), Row { count: new, first: None, why: None })),
                Verdict::Above | Verdict::Lower => {
                    if let Some(row) = rows.get_mut(*count) {
                        row.first.get_or_insert(row.count);
                        row.count = new;
                        if *verdict == Verdict::Above {
                            row.why = Some(NO_REASON.into());
                        }
                    }
                }
                Verdict::Kept | Verdict::Unexplained | Verdict::NotCounted | Verdict::TooBusy => {}
            }
        }
    }

    /// The table as a file, in the order of scripts and counts.
    pub(crate) fn text(&self) -> Result<String> {
        let mut text = HEAD.to_owned();
        for script in Script::ALL {
            let Some(rows) = self.0.get(script.name()) else { continue };
            text.push_str(&format!("\n[{}]\n", script.name()));
            for count in Count::ALL {
                let Some(Row { count: number, first, why }) = rows.get(count.name()) else { continue };
                let first = first.map_or(String::new(), |first| format!(", first = {first}"));
                let why = match why {
                    Some(why) => format!(", why = {}", toml::Value::String(why.clone())),
                    None => String::new(),
                };
                text.push_str(&format!("{} = {{ count = {number}{first}{why} }}\n", count.name()));
            }
        }
        // What is written must be what is read.
        let read = Self::parse(&text).context("the written table")?;
        ensure!(read == *self, "the table cannot be written as it is");
        Ok(text)
    }
}

/// Compares two counts: small differences say nothing, be they small by themselves or as a share.
fn verdict(old: f64, new: f64, noise: f64) -> Verdict {
    let difference = new - old;
    match difference.abs() > noise.max(old * SHARE) {
        false => Verdict::Kept,
        true if difference > 0.0 => Verdict::Above,
        true => Verdict::Lower,
    }
}

/// A count as the table shows it: hundredths below 100, else whole.
fn rounded(count: f64) -> f64 {
    if count < 100.0 { (count * 100.0).round() / 100.0 } else { count.round() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(statements: f64) -> Figures {
        Figures { counts: [(Count::WriteStatements, statements)].into(), ..Figures::default() }
    }

    fn table(row: &str) -> Table {
        Table::parse(&format!("[message]\nwrite-statements = {{ {row} }}\n")).expect("a table")
    }

    fn of_statements(table: &Table, statements: f64) -> Verdict {
        table.compare(Script::Message, &figures(statements))[0].verdict
    }

    #[test]
    fn a_count_is_compared_by_its_share_and_by_its_noise() {
        for (old, new, verdict) in [
            (20.0, 20.0, Verdict::Kept),
            (20.0, 21.0, Verdict::Kept),
            (20.0, 21.1, Verdict::Above),
            (20.0, 18.0, Verdict::Lower),
            (2.0, 2.5, Verdict::Kept),
            (2.0, 3.0, Verdict::Above),
            (0.0, 0.4, Verdict::Kept),
            (0.0, 1.0, Verdict::Above),
            (1.0, 0.0, Verdict::Lower),
        ] {
            assert_eq!(of_statements(&table(&format!("count = {old}")), new), verdict, "{old} → {new}");
        }
    }

    #[test]
    fn on_a_busy_machine_only_counts_that_do_not_depend_on_it_fail() {
        let rows = "[message]\nwrite-statements = { count = 5 }\nsyncs = { count = 1 }\n";
        let table = Table::parse(rows).expect("a table");
        let measured = |others: f64| Figures {
            counts: [(Count::WriteStatements, 7.0), (Count::Syncs, 3.0)].into(),
            others,
            ..Figures::default()
        };
        let verdicts = |figures: &Figures| {
            let compared = table.compare(Script::Message, figures);
            let of = |name: &str| compared.iter().find(|row| row.count == name).expect("a row").verdict;
            (of("write-statements"), of("syncs"))
        };
        assert_eq!(verdicts(&measured(0.1)), (Verdict::Above, Verdict::Above));
        assert_eq!(verdicts(&measured(0.5)), (Verdict::Above, Verdict::TooBusy));
        let (busy, quiet) = (measured(0.5), measured(0.1));
        assert_eq!(verdicts(&table.nearest(Script::Message, busy, &quiet)), (Verdict::Above, Verdict::Above));
        assert!(Verdict::TooBusy.is_checked(false) && !Verdict::TooBusy.fails());
    }

    #[test]
    fn a_row_needs_a_count_and_a_reason() {
        assert_eq!(of_statements(&Table::default(), 1.0), Verdict::Missing);
        assert_eq!(of_statements(&table("count = 1, why = \"?\""), 1.0), Verdict::Unexplained);
        assert_eq!(of_statements(&table("count = 1, why = \"a title\""), 1.0), Verdict::Kept);
        let none = table("count = 1").compare(Script::Message, &Figures::default());
        assert!(none.iter().all(|row| row.verdict == Verdict::NotCounted && !row.verdict.fails()));
    }

    #[test]
    fn an_update_writes_what_differs_and_asks_for_the_reason_of_what_has_risen() {
        for (row, new, expected) in [
            ("count = 20, why = \"a title\"", 20.5, "count = 20, why = \"a title\""),
            ("count = 20, why = \"a title\"", 15.0, "count = 15, first = 20, why = \"a title\""),
            ("count = 20, first = 40", 15.0, "count = 15, first = 40"),
            ("count = 20, why = \"a title\"", 25.0, "count = 25, first = 20, why = \"?\""),
        ] {
            let mut changed = table(row);
            let compared = changed.compare(Script::Message, &figures(new));
            changed.update(&compared);
            assert_eq!(changed, table(expected));
            assert!(changed.text().expect("a text").contains(expected), "{expected}");
        }
    }

    #[test]
    fn of_two_measurements_the_nearer_one_counts() {
        for (first, second, nearest) in [(25.0, 20.0, 20.0), (20.0, 25.0, 20.0), (25.0, 24.0, 24.0), (10.0, 15.0, 15.0)]
        {
            let found = table("count = 20").nearest(Script::Message, figures(first), &figures(second));
            assert_eq!(found.counts, figures(nearest).counts, "{first} {second}");
        }
    }

    #[test]
    fn a_table_with_an_unknown_name_is_refused() {
        for text in ["[massage]", "[message]\nsyncs = 1", "[message]\nsinks = { count = 1 }", "[message]\nsyncs = {}"] {
            assert!(Table::parse(text).is_err(), "{text}");
        }
    }
}
