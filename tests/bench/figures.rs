//! Figures: medians of repetitions, their marks, and the printed table.

use std::io::Write as _;
use std::time::Duration;

use serde::Serialize;

/// The target of a figure.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mark {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// At most this multiple of the floor.
    Floors(f64),
}

/// One measured quantity: the median of its repetitions, and their range.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// The lowest and the highest repetition.
    pub(crate) range: (f64, f64),
    /// The value as a multiple of its floor, if it has a floor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) floor_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mark: Option<Mark>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) met: Option<bool>,
}

/// All figures, in the order of measurement.
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
        let (low, high) = samples
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), sample| (low.min(*sample), high.max(*sample)));
        let value = median(samples);
        let figure =
            Figure { name: name.into(), value, unit, range: (low, high), floor_ratio: None, mark: None, met: None };
        self.figures.push(figure);
        let last = self.figures.len() - 1;
        &mut self.figures[last]
    }

    /// The table for people.
    pub(crate) fn table(&self) -> String {
        let mut text =
            format!("{}{}\n\n", self.machine, if self.quick { " (quick: a look, not a measurement)" } else { "" });
        let width = self.figures.iter().map(|figure| figure.name.chars().count()).max().unwrap_or(0);
        for figure in &self.figures {
            let range = format!("{} – {}", number(figure.range.0), number(figure.range.1));
            let floor = figure.floor_ratio.map_or_else(String::new, |ratio| format!("{} × floor", number(ratio)));
            let met = match figure.met {
                None => "",
                Some(true) => "ok",
                Some(false) => "missed",
            };
            let line = format!(
                "{:width$}  {:>9} {:6}  {range:>20}  {floor:>14}  {met:6} {}",
                figure.name,
                number(figure.value),
                figure.unit,
                figure.mark_words()
            );
            text.push_str(line.trim_end());
            text.push('\n');
        }
        for note in &self.notes {
            text.push_str(&format!("\n{note}"));
        }
        text
    }

    /// The report as JSON for programs.
    pub(crate) fn json(&self) -> String {
        // The report contains only strings and finite numbers, so this cannot fail. An empty object would show a
        // failure.
        serde_json::to_string_pretty(self).unwrap_or_else(|_| "{}".into())
    }
}

impl Figure {
    /// Sets the floor of the figure, in the unit of the figure.
    pub(crate) fn over_floor(&mut self, floor: f64) -> &mut Self {
        self.floor_ratio = (floor > 0.0).then(|| self.value / floor);
        self
    }

    /// Sets the target of the value.
    pub(crate) fn mark(&mut self, mark: Mark) {
        self.met = match mark {
            Mark::AtMost(limit) => Some(self.value <= limit),
            Mark::AtLeast(limit) => Some(self.value >= limit),
            Mark::Floors(limit) => self.floor_ratio.map(|ratio| ratio <= limit),
        };
        self.mark = Some(mark);
    }

    fn mark_words(&self) -> String {
        match self.mark {
            None => String::new(),
            Some(Mark::AtMost(limit)) => format!("≤ {} {}", number(limit), self.unit),
            Some(Mark::AtLeast(limit)) => format!("≥ {} {}", number(limit), self.unit),
            Some(Mark::Floors(limit)) => format!("≤ {} × floor", number(limit)),
        }
    }
}

/// The middle sample, or the mean of the two middle samples of an even number. Zero without samples.
pub(crate) fn median(samples: &[f64]) -> f64 {
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

/// Formats a number with about three significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Prints to stdout. Ignores a closed pipe.
pub(crate) fn print(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
