//! Figures: medians of repetitions, their marks, and the printed table.

use std::io::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::conditions::Conditions;
use crate::history::Comparison;

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
    /// The value as a multiple of the saved one, if the two can be compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) saved_ratio: Option<f64>,
}

/// All figures, in the order of measurement.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) conditions: Conditions,
    pub(crate) quick: bool,
    pub(crate) figures: Vec<Figure>,
    pub(crate) notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) compared_with: Option<Comparison>,
}

impl Report {
    /// Adds the median of `samples`.
    pub(crate) fn add(&mut self, name: impl Into<String>, unit: &'static str, samples: &[f64]) -> &mut Figure {
        let (low, high) = samples
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), sample| (low.min(*sample), high.max(*sample)));
        let value = median(samples);
        self.figures.push(Figure {
            name: name.into(),
            value,
            unit,
            range: (low, high),
            floor_ratio: None,
            mark: None,
            met: None,
            saved_ratio: None,
        });
        let last = self.figures.len() - 1;
        &mut self.figures[last]
    }

    /// The table for people.
    pub(crate) fn table(&self) -> String {
        let quick = if self.quick { " (quick: a look, not a measurement)" } else { "" };
        let mut text = format!("{}{quick}\n", self.conditions.line());
        if let Some(compared) = &self.compared_with {
            let Comparison { name, conditions: Conditions { measured_at, commit, profile, .. }, .. } = compared;
            text.push_str(&format!(
                "× saved: as a multiple of {name}, measured {measured_at}, commit {commit}, profile {profile}\n"
            ));
            text.extend(compared.warnings.iter().map(|warning| format!("{warning}\n")));
        }
        text.push_str("Each figure is the median of its repetitions; beside it the lowest and the highest one.\n\n");
        let only_saved = self.compared_with.as_ref().map_or(&[][..], |compared| &compared.only_saved);
        let names = self.figures.iter().map(|figure| &figure.name).chain(only_saved.iter().map(|figure| &figure.name));
        let width = names.map(|name| name.chars().count()).max().unwrap_or(0);
        for figure in &self.figures {
            let range = format!("{} – {}", number(figure.range.0), number(figure.range.1));
            let floor = figure.floor_ratio.map_or_else(String::new, |ratio| format!("{} × floor", number(ratio)));
            let saved = figure.saved_ratio.map_or_else(String::new, |ratio| format!("{} × saved", number(ratio)));
            let met = match figure.met {
                None => "",
                Some(true) => "ok",
                Some(false) => "missed",
            };
            let line = format!(
                "{:width$}  {:>9} {:6}  {range:>20}  {floor:>14}  {saved:>12}  {met:6} {}",
                figure.name,
                number(figure.value),
                figure.unit,
                figure.mark_words()
            );
            text.push_str(line.trim_end());
            text.push('\n');
        }
        if let Some(compared) = self.compared_with.as_ref().filter(|compared| !compared.only_saved.is_empty()) {
            text.push_str(&format!("\nOnly in {}:\n", compared.name));
            for figure in &compared.only_saved {
                let line = format!("{:width$}  {:>9} {}", figure.name, number(figure.value), figure.unit);
                text.push_str(line.trim_end());
                text.push('\n');
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_median_its_range_and_what_it_is_compared_with() {
        let mut report = Report::default();
        let figure = report.add("a", "ms", &[3.0, 1.0, 2.5]).over_floor(0.5);
        figure.mark(Mark::AtMost(2.0));
        figure.saved_ratio = Some(0.9);
        report.add("b", "", &[1.0]);
        let table = report.table();
        let rows: Vec<Vec<&str>> = table.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
        let a = [
            "a", "2.50", "ms", "1.00", "–", "3.00", "5.00", "×", "floor", "0.90", "×", "saved", "missed", "≤", "2.00",
            "ms",
        ];
        assert_eq!(rows, [&a[..], &["b", "1.00", "1.00", "–", "1.00"]], "{table}");
    }

    #[test]
    fn a_quantile_is_the_nearest_rank() {
        let ms = Duration::from_millis;
        for (samples, share, expected) in [
            (vec![], 0.5, 0.0),
            (vec![ms(7)], 0.99, 7.0),
            (vec![ms(3), ms(1), ms(2)], 0.5, 2.0),
            ((1..=100).map(ms).collect(), 0.99, 99.0),
        ] {
            let mut sorted = samples.clone();
            assert!((quantile_ms(&mut sorted, share) - expected).abs() < 1e-9, "{samples:?} {share}");
        }
    }
}
