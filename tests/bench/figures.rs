//! Figures: medians of repetitions, the marks beside them, and how they are printed.

use std::io::Write as _;
use std::time::Duration;

use serde::Serialize;

/// What a figure should reach.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mark {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

impl Mark {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }

    fn words(self, unit: &str) -> String {
        match self {
            Self::AtMost(limit) => format!("≤ {} {unit}", number(limit)),
            Self::AtLeast(limit) => format!("≥ {} {unit}", number(limit)),
        }
    }
}

/// One measured quantity: the median of its repetitions, and how far they spread.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// Lowest and highest repetition.
    pub(crate) range: (f64, f64),
    /// How many times the floor it is, where there is a floor for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) floor_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mark: Option<Mark>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) met: Option<bool>,
}

/// Everything that was measured, in the order of measurement.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: String,
    pub(crate) quick: bool,
    pub(crate) figures: Vec<Figure>,
    pub(crate) notes: Vec<String>,
}

impl Report {
    /// Adds the median of `samples`.
    pub(crate) fn add(&mut self, name: impl Into<String>, unit: &'static str, samples: &[f64]) -> &mut Figure {
        let (low, high) = samples.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), sample| {
            (low.min(*sample), high.max(*sample))
        });
        let value = median(samples);
        let figure =
            Figure { name: name.into(), value, unit, range: (low, high), floor_ratio: None, mark: None, met: None };
        self.figures.push(figure);
        let last = self.figures.len() - 1;
        &mut self.figures[last]
    }

    /// The table that a person reads.
    pub(crate) fn table(&self) -> String {
        let mut text = format!("{}{}\n\n", self.machine, if self.quick { " (quick: a look, not a measurement)" } else { "" });
        let width = self.figures.iter().map(|figure| figure.name.chars().count()).max().unwrap_or(0);
        for figure in &self.figures {
            let range = format!("{} – {}", number(figure.range.0), number(figure.range.1));
            let floor = figure.floor_ratio.map_or_else(String::new, |ratio| format!("{} × floor", number(ratio)));
            let mark = match (figure.mark, figure.met) {
                (Some(mark), Some(met)) => {
                    format!("{} {}", if met { "ok    " } else { "missed" }, mark.words(figure.mark_unit()))
                }
                _ => String::new(),
            };
            let line = format!(
                "{:width$}  {:>9} {:6}  {range:>20}  {floor:>14}  {mark}",
                figure.name,
                number(figure.value),
                figure.unit
            );
            text.push_str(line.trim_end());
            text.push('\n');
        }
        for note in &self.notes {
            text.push_str(&format!("\n{note}"));
        }
        text
    }

    /// The same for a program.
    pub(crate) fn json(&self) -> String {
        // Only strings and finite numbers: it cannot fail. If it did, an empty object would be plainly wrong.
        serde_json::to_string_pretty(self).unwrap_or_else(|_| "{}".into())
    }
}

impl Figure {
    /// Sets the floor it is compared to, in the figure's own unit.
    pub(crate) fn over_floor(&mut self, floor: f64) -> &mut Self {
        self.floor_ratio = (floor > 0.0).then(|| self.value / floor);
        self
    }

    /// Sets what the value should reach.
    pub(crate) fn mark(&mut self, mark: Mark) -> &mut Self {
        self.met = Some(mark.is_met(self.value));
        self.mark = Some(mark);
        self
    }

    /// Sets what its ratio to the floor should reach.
    pub(crate) fn mark_ratio(&mut self, mark: Mark) {
        self.met = self.floor_ratio.map(|ratio| mark.is_met(ratio));
        self.mark = Some(mark);
        self.unit_of_mark_is_ratio();
    }

    fn unit_of_mark_is_ratio(&mut self) {
        self.name.push_str(RATIO_SUFFIX);
    }

    fn mark_unit(&self) -> &'static str {
        if self.name.ends_with(RATIO_SUFFIX) { "× floor" } else { self.unit }
    }
}

const RATIO_SUFFIX: &str = " (marked by its ratio)";

/// The middle of the samples; of an even number, the mean of the two in the middle. Zero when there are none.
pub(crate) fn median(samples: &[f64]) -> f64 {
    quantile_pair(samples, 0.5)
}

fn quantile_pair(samples: &[f64], _half: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// The value below which `share` of the samples lie (nearest rank), in milliseconds.
pub(crate) fn quantile_ms(samples: &mut [Duration], share: f64) -> f64 {
    samples.sort();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a rank")]
    let rank = ((samples.len() as f64 * share).ceil() as usize).clamp(1, samples.len().max(1));
    samples.get(rank - 1).map_or(0.0, |sample| milliseconds(*sample))
}

/// A duration in milliseconds.
pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Three significant digits or so.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Prints to stdout; a reader that has gone away is not our failure.
pub(crate) fn print(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
