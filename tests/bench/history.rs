//! Saved results: reading and writing them, and the comparison of a report with one of them.
//!
//! A result is the JSON of a report in a file of its own, `NAME.json`. The newest result is the one with the latest
//! `measured_at`: a checkout sets the times of files anew.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::conditions::Conditions;
use crate::figures::{Figure, Report};

/// The parts of a saved report that a comparison needs.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Saved {
    /// The name of its file, without the extension.
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) conditions: Conditions,
    pub(crate) quick: bool,
    pub(crate) figures: Vec<SavedFigure>,
}

/// A figure of a saved report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedFigure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: String,
    pub(crate) floor_ratio: Option<f64>,
}

/// The result that a report is compared with.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Comparison {
    /// The name of the result.
    pub(crate) name: String,
    pub(crate) conditions: Conditions,
    /// Whether both were measured on processors of the same name. If not, only multiples of the floor are compared.
    pub(crate) same_machine: bool,
    /// Differences that a reader of the ratios must know: one sentence each.
    pub(crate) warnings: Vec<String>,
    /// Figures of the result that the report does not have.
    pub(crate) only_saved: Vec<SavedFigure>,
}

/// The directory of the saved results.
#[derive(Clone, Debug)]
pub(crate) struct History(pub(crate) PathBuf);

impl History {
    /// The file of a new result.
    ///
    /// # Errors
    /// The name cannot be one of a file, or is taken.
    pub(crate) fn new_file(&self, name: &str) -> Result<PathBuf> {
        let path = self.file(name)?;
        ensure!(!path.exists(), "{} exists: choose another name, or delete the file first", path.display());
        Ok(path)
    }

    /// Reads the result of this name, or the newest one. `None`: there is none yet.
    ///
    /// # Errors
    /// The named result does not exist, or a file cannot be read as a result.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<Option<Saved>> {
        if let Some(name) = name {
            if !self.file(name)?.exists() {
                bail!("there is no saved result {name} in {}; {}", self.0.display(), self.choice()?);
            }
            return self.read(name).map(Some);
        }
        let all = self.names()?.into_iter().map(|name| self.read(&name)).collect::<Result<Vec<_>>>()?;
        // RFC 3339 in UTC sorts by time.
        Ok(all.into_iter().max_by(|a, b| a.conditions.measured_at.cmp(&b.conditions.measured_at)))
    }

    fn choice(&self) -> Result<String> {
        Ok(match self.names()? {
            names if names.is_empty() => "none is saved yet: make bench SAVE=NAME does it".to_owned(),
            names => format!("choose one of {}", names.join(", ")),
        })
    }

    fn file(&self, name: &str) -> Result<PathBuf> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let valid = !name.is_empty() && !name.starts_with('.') && name.chars().all(allowed);
        ensure!(valid, "{name:?} cannot name a result: use letters, digits, -, _ and ., and no . at the beginning");
        Ok(self.0.join(format!("{name}.json")))
    }

    /// The names of all results, sorted.
    fn names(&self) -> Result<Vec<String>> {
        let entries = match std::fs::read_dir(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.with_context(|| format!("cannot read {}", self.0.display()))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            if let Some(name) = entry?.file_name().to_str().and_then(|name| name.strip_suffix(".json")) {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn read(&self, name: &str) -> Result<Saved> {
        let path = self.0.join(format!("{name}.json"));
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let saved: Saved = serde_json::from_str(&text).with_context(|| {
            format!(
                "{} is no result of the benchmark; restore it (git checkout), delete it, or compare with another one (make bench AGAINST=NAME)",
                path.display()
            )
        })?;
        Ok(Saved { name: name.to_owned(), ..saved })
    }
}

/// Writes the report as a result. The file appears whole or not at all.
pub(crate) fn save(path: &Path, report: &Report) -> Result<()> {
    let directory = path.parent().context("a file without a directory")?;
    let write = || {
        std::fs::create_dir_all(directory)?;
        let mut file = tempfile::Builder::new().permissions(readable()).tempfile_in(directory)?;
        writeln!(file, "{}", report.json())?;
        file.persist_noclobber(path)?;
        anyhow::Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

fn readable() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o644)
}

/// Sets the ratio of each figure to the saved one of the same name and unit. `partial`: the report is of one part, so
/// that figures of the others are not missing.
pub(crate) fn compare(report: &mut Report, saved: Saved, partial: bool) {
    // A system that does not name its processor could be any machine.
    let same_machine =
        !saved.conditions.processor.is_empty() && saved.conditions.processor == report.conditions.processor;
    for figure in &mut report.figures {
        let of_figure = saved.figures.iter().find(|it| it.name == figure.name && it.unit == figure.unit);
        figure.saved_ratio = of_figure.and_then(|it| ratio(figure, it, same_machine));
    }
    let measured = |it: &SavedFigure| report.figures.iter().any(|figure| figure.name == it.name);
    let only_saved = saved.figures.into_iter().filter(|it| !partial && !measured(it)).collect();
    let mut warnings = Vec::new();
    let (then, now) = (&saved.conditions, &report.conditions);
    if !same_machine {
        let processor = if then.processor.is_empty() { "a processor without a name" } else { &then.processor };
        warnings.push(format!(
            "Another machine: {} was measured on {processor}. The ratios are of multiples of the floor, where both have one.",
            saved.name
        ));
    } else if then.processors != now.processors {
        warnings.push(format!("{} was measured with {} processors.", saved.name, then.processors));
    }
    if then.profile != now.profile {
        warnings.push(format!(
            "Other builds: {} is of the profile {}, this one of {}.",
            saved.name, then.profile, now.profile
        ));
    }
    if saved.quick {
        warnings.push(format!("{} is of a quick run: a look, not a measurement.", saved.name));
    }
    let Saved { name, conditions, .. } = saved;
    report.compared_with = Some(Comparison { name, conditions, same_machine, warnings, only_saved });
}

/// The figure divided by the saved one; on another machine, the same of their multiples of the floor. `None`: they
/// cannot be compared.
fn ratio(figure: &Figure, saved: &SavedFigure, same_machine: bool) -> Option<f64> {
    let (now, then) = match same_machine {
        true => (figure.value, saved.value),
        false => (figure.floor_ratio?, saved.floor_ratio?),
    };
    (then > 0.0 && now >= 0.0).then(|| now / then).filter(|ratio| ratio.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(processor: &str, figures: &[(&str, f64, f64)]) -> Report {
        let processor = processor.to_owned();
        let mut report = Report { conditions: Conditions { processor, ..Conditions::default() }, ..Report::default() };
        for (name, value, floor) in figures {
            report.add(*name, "ms", &[*value]).over_floor(*floor);
        }
        report
    }

    fn saved(report: &Report) -> Saved {
        let saved: Saved = serde_json::from_str(&report.json()).expect("a report is a result");
        Saved { name: "old".into(), ..saved }
    }

    #[test]
    fn a_ratio_needs_the_same_machine_or_two_floors() {
        for (now, then, same_machine, expected) in [
            ((3.0, 0.0), (2.0, 0.0), true, Some(1.5)),
            ((3.0, 1.0), (2.0, 0.5), true, Some(1.5)),
            ((3.0, 1.0), (2.0, 0.5), false, Some(0.75)),
            ((3.0, 0.0), (2.0, 0.5), false, None),
            ((3.0, 1.0), (2.0, 0.0), false, None),
            ((3.0, 0.0), (0.0, 0.0), true, None),
            ((0.0, 0.0), (2.0, 0.0), true, Some(0.0)),
            ((-1.0, 0.0), (2.0, 0.0), true, None),
        ] {
            let (now, then) = (report("x", &[("a", now.0, now.1)]), report("x", &[("a", then.0, then.1)]));
            let seen = ratio(&now.figures[0], &saved(&then).figures[0], same_machine);
            assert_eq!(seen, expected, "{now:?} {then:?} {same_machine}");
        }
    }

    #[test]
    fn a_row_that_only_one_has_is_kept_without_a_ratio() {
        let then = report("x", &[("both", 2.0, 0.0), ("gone", 7.0, 0.0)]);
        for (partial, gone) in [(false, vec!["gone"]), (true, vec![])] {
            let mut now = report("x", &[("both", 3.0, 0.0), ("new", 1.0, 0.0)]);
            compare(&mut now, saved(&then), partial);
            let ratios: Vec<_> = now.figures.iter().map(|figure| figure.saved_ratio).collect();
            let compared = now.compared_with.as_ref().expect("a comparison");
            let only: Vec<_> = compared.only_saved.iter().map(|figure| figure.name.as_str()).collect();
            assert_eq!((ratios, only), (vec![Some(1.5), None], gone), "{partial}");
            let table = now.table();
            assert_eq!(table.contains("Only in old:") && table.contains("gone"), !partial, "{table}");
        }
    }

    #[test]
    fn another_unit_is_another_figure() {
        let mut now = report("x", &[("a", 3.0, 0.0)]);
        let mut then = saved(&now);
        then.figures[0].unit = "s".into();
        compare(&mut now, then, false);
        assert_eq!(now.figures[0].saved_ratio, None);
    }

    #[test]
    fn a_comparison_says_what_differs_besides_the_code() {
        for (then, now, quick, expected) in [
            ("x", "x", false, vec![]),
            ("x", "y", false, vec!["Another machine: old was measured on x."]),
            ("", "", false, vec!["Another machine: old was measured on a processor without a name."]),
            ("x", "x", true, vec!["old is of a quick run"]),
        ] {
            let (mut now, mut then) = (report(now, &[]), saved(&report(then, &[])));
            then.quick = quick;
            compare(&mut now, then, false);
            let warnings = now.compared_with.expect("a comparison").warnings;
            assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
            for (warning, begins) in warnings.iter().zip(expected) {
                assert!(warning.starts_with(begins), "{warning}");
            }
        }
        let (mut now, mut then) = (report("x", &[]), saved(&report("x", &[])));
        now.conditions.profile = "release".into();
        then.conditions.profile = "dev".into();
        compare(&mut now, then, false);
        let warnings = now.compared_with.expect("a comparison").warnings;
        assert_eq!(warnings, ["Other builds: old is of the profile dev, this one of release."]);
    }

    #[test]
    fn results_are_found_by_name_or_the_one_measured_last() {
        let directory = tempfile::tempdir().expect("a directory");
        let history = History(directory.path().join("bench"));
        assert!(history.find(None).expect("a missing directory has no results").is_none());
        for (name, measured_at) in [("a", "2026-03-01T00:00:00Z"), ("b", "2026-01-01T00:00:00Z")] {
            let mut report = report("x", &[("it", 1.0, 0.0)]);
            report.conditions.measured_at = measured_at.into();
            save(&history.new_file(name).expect("a new name"), &report).expect("saved");
        }
        for (name, expected) in [(None, "a"), (Some("b"), "b")] {
            let found = history.find(name).expect("readable").expect("a result");
            assert_eq!(found.name, expected);
        }
        let error = |name: Option<&str>| format!("{:#}", history.find(name).expect_err("an error"));
        assert!(error(Some("c")).contains("choose one of a, b"), "{}", error(Some("c")));
        assert!(history.new_file("a").expect_err("taken").to_string().contains("exists"));
        for name in ["", "../a", ".a", "a/b", "a b"] {
            assert!(history.new_file(name).expect_err("no name").to_string().contains("cannot name"), "{name}");
        }
        for damage in ["", "{", "[]", r#"{"figures":[]}"#] {
            std::fs::write(history.0.join("c.json"), damage).expect("written");
            for name in [None, Some("c")] {
                let error = error(name);
                assert!(error.contains("c.json is no result") && error.contains("delete it"), "{error}");
            }
        }
    }
}
