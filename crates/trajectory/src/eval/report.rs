//! The figures of an evaluation, and the tables that show them.

use std::fmt::Write as _;

use serde::Serialize;

use super::{Case, Label, Outcome};
use crate::rule_set::Candidate;

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Number of pathological recordings, without copies.
    pub pathologies: usize,
    /// Number of healthy recordings, without copies.
    pub healthy: usize,
    /// The result of each rule set, ours first.
    pub sets: Vec<SetReport>,
}

/// The result of one rule set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SetReport {
    /// Its name.
    pub name: &'static str,
    /// The origin of the rules.
    pub source: &'static str,
    /// The figures for the original recordings.
    pub plain: Score,
    /// The figures for the mutated copies; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutated: Option<Score>,
    /// The wrong judgements: on the original recordings, and for the first rule set also on the copies.
    pub failures: Vec<Failure>,
}

/// The figures of a rule set.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Score {
    /// Number of pathological runs.
    pub pathologies: usize,
    /// Number of pathological runs that were stopped at the onset or after it.
    pub caught: usize,
    /// Number of pathological runs that were stopped before the onset.
    pub early: usize,
    /// Number of healthy runs.
    pub healthy: usize,
    /// Number of healthy runs that were stopped.
    pub false_stops: usize,
    /// The median of the wasted calls; `None`: no run has an onset.
    pub wasted_median: Option<u64>,
    /// The 90th percentile of the wasted calls.
    pub wasted_p90: Option<u64>,
}

/// A run that a rule set judged wrongly.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failure {
    /// The recording.
    pub file: String,
    /// The changes to the copy; empty for the recording itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mutations: Vec<&'static str>,
    /// The kind of error.
    pub kind: FailureKind,
    /// The rule that fired.
    pub rule: Option<String>,
    /// The event at which it fired.
    pub at_event: Option<usize>,
    /// The event at which the pathology begins.
    pub onset: Option<usize>,
}

/// The kinds of wrong judgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The run is pathological and was not stopped.
    Miss,
    /// The run was stopped before its onset.
    Early,
    /// The run is healthy and was stopped.
    FalseStop,
}

impl FailureKind {
    /// The word in reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Miss => "miss",
            Self::Early => "early",
            Self::FalseStop => "false stop",
        }
    }
}

impl Report {
    pub(super) fn of(cases: &[Case], candidates: &[Candidate], copies: bool, outcomes: &[Outcome]) -> Self {
        let of_set = |(set, candidate): (usize, &Candidate)| {
            let of_set: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.set == set).collect();
            let (plain, mutated): (Vec<_>, Vec<_>) = of_set.iter().partition(|outcome| outcome.copy == 0);
            let told = of_set.iter().filter(|outcome| outcome.copy == 0 || set == 0);
            SetReport {
                name: candidate.name,
                source: candidate.source,
                plain: score(cases, &plain),
                mutated: copies.then(|| score(cases, &mutated)),
                failures: told.filter_map(|outcome| failure(cases, outcome)).collect(),
            }
        };
        let count = |label| cases.iter().filter(|case| case.label.label == label).count();
        Self {
            pathologies: count(Label::Pathology),
            healthy: count(Label::Healthy),
            sets: candidates.iter().enumerate().map(of_set).collect(),
        }
    }

    /// The table: a header row, then a row for each rule set.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let head = ["RULE SET", "RECALL", "FALSE STOPS", "EARLY", "WASTED", "P90"];
        let mutated = ["MUTATED RECALL", "FALSE STOPS", "EARLY", "WASTED", "P90"];
        let mutated = if self.copies().is_some() { &mutated[..] } else { &[] };
        let mut rows = vec![head.iter().chain(mutated).map(|name| (*name).to_owned()).collect()];
        for set in &self.sets {
            let mutated = set.mutated.as_ref().map(Score::cells).unwrap_or_default();
            rows.push([vec![set.name.to_owned()], set.plain.cells(), mutated].concat());
        }
        rows
    }

    /// The numbers of judged copies of pathological and of healthy recordings.
    pub fn copies(&self) -> Option<(usize, usize)> {
        self.sets.first()?.mutated.as_ref().map(|score| (score.pathologies, score.healthy))
    }

    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let mut page = format!("{} pathological and {} healthy recordings", self.pathologies, self.healthy);
        let mut head = "| rule set | recall | false stops | early | wasted calls: median | p90 |".to_owned();
        if let Some((pathologies, healthy)) = self.copies() {
            let _ = write!(page, "; {pathologies} and {healthy} mutated copies of them"); // a String cannot fail
            head.push_str(" mutated: recall | false stops | early | median | p90 |");
        }
        let columns = head.matches('|').count() - 2;
        let _ = writeln!(page, ".\n\n{head}\n|---|{}", "---:|".repeat(columns));
        for row in self.rows().iter().skip(1) {
            let _ = writeln!(page, "| {} |", row.join(" | "));
        }
        page.push('\n');
        for set in &self.sets {
            let _ = writeln!(page, "- **{}**: {}", set.name, set.source);
        }
        page
    }
}

impl Score {
    fn cells(&self) -> Vec<String> {
        let number = |value: Option<u64>| value.map_or("–".to_owned(), |value| value.to_string());
        vec![
            share(self.caught, self.pathologies),
            share(self.false_stops, self.healthy),
            self.early.to_string(),
            number(self.wasted_median),
            number(self.wasted_p90),
        ]
    }
}

fn share(part: usize, whole: usize) -> String {
    match whole {
        0 => "–".into(),
        _ => format!("{:.1} % ({part}/{whole})", part as f64 * 100.0 / whole as f64),
    }
}

fn score(cases: &[Case], outcomes: &[&Outcome]) -> Score {
    let mut score = Score::default();
    let mut wasted: Vec<u64> = outcomes.iter().filter_map(|outcome| outcome.wasted).collect();
    wasted.sort_unstable();
    // Nearest rank: the smallest value that this percentage of the values does not exceed.
    let rank = |percent: usize| wasted.get((wasted.len() * percent).div_ceil(100).saturating_sub(1)).copied();
    (score.wasted_median, score.wasted_p90) = (rank(50), rank(90));
    for outcome in outcomes {
        let stuck = cases[outcome.case].label.label == Label::Pathology;
        let kind = failure_kind(stuck, outcome);
        *(if stuck { &mut score.pathologies } else { &mut score.healthy }) += 1;
        score.caught += usize::from(stuck && kind.is_none());
        score.early += usize::from(kind == Some(FailureKind::Early));
        score.false_stops += usize::from(kind == Some(FailureKind::FalseStop));
    }
    score
}

fn failure_kind(stuck: bool, outcome: &Outcome) -> Option<FailureKind> {
    match (stuck, &outcome.stop) {
        (true, None) => Some(FailureKind::Miss),
        (true, Some((at, _))) => outcome.onset.is_some_and(|onset| *at < onset).then_some(FailureKind::Early),
        (false, Some(_)) => Some(FailureKind::FalseStop),
        (false, None) => None,
    }
}

fn failure(cases: &[Case], outcome: &Outcome) -> Option<Failure> {
    let case = &cases[outcome.case];
    let kind = failure_kind(case.label.label == Label::Pathology, outcome)?;
    Some(Failure {
        file: case.name.clone(),
        mutations: outcome.changes.clone(),
        kind,
        rule: outcome.stop.as_ref().map(|(_, rule)| rule.clone()),
        at_event: outcome.stop.as_ref().map(|(at, _)| *at),
        onset: outcome.onset,
    })
}
