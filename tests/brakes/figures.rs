//! The results, and their table.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use crate::kinds::Kind;

/// Longest 99th percentile of the time from a stop to its acknowledgement. At the acknowledgement, all processes have
/// been signalled, and no new one can start.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(100);

/// The results of the stops of one kind.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) kind: &'static Kind,
    pub(crate) acknowledged: Vec<Duration>,
    pub(crate) empty: Vec<Duration>,
    /// Processes that were found after their tree was reported as empty.
    pub(crate) survivors: usize,
    /// Zombies of this process after all stops of the kind.
    pub(crate) zombies: usize,
    /// Starts that were requested after the acknowledgement and succeeded.
    pub(crate) late_starts: usize,
    /// Stops after which the process of another run was gone.
    pub(crate) neighbours_lost: usize,
}

/// All results.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    /// Whether each tree had a control group of its own.
    pub(crate) groups: bool,
    /// Trees that needed SIGKILL.
    pub(crate) killed: u64,
    pub(crate) took: Duration,
}

impl Row {
    /// A row without results.
    pub(crate) fn new(kind: &'static Kind) -> Self {
        Self {
            kind,
            acknowledged: Vec::new(),
            empty: Vec::new(),
            survivors: 0,
            zombies: 0,
            late_starts: 0,
            neighbours_lost: 0,
        }
    }
}

impl Report {
    /// One line for each kind, and the sums.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "{:28}{:>7}{:>10}{:>10}{:>10}{:>10}{:>11}{:>9}{:>6}{:>12}\n",
            "", "stops", "ack p50", "ack p99", "empty p50", "empty p99", "survivors", "zombies", "late", "neighbours"
        );
        for row in &self.rows {
            let [ack_50, ack_99, empty_50, empty_99] =
                [(&row.acknowledged, 50), (&row.acknowledged, 99), (&row.empty, 50), (&row.empty, 99)]
                    .map(|(times, share)| milliseconds(percentile(times, share)));
            let lost =
                if row.neighbours_lost == 0 { "live".to_owned() } else { format!("{} lost", row.neighbours_lost) };
            let _ = writeln!(
                text,
                "{:28}{:>7}{ack_50:>10}{ack_99:>10}{empty_50:>10}{empty_99:>10}{:>11}{:>9}{:>6}{lost:>12}",
                row.kind.name,
                row.empty.len(),
                row.survivors,
                row.zombies,
                row.late_starts,
            );
        }
        let sum = |of: fn(&Row) -> usize| self.rows.iter().map(of).sum::<usize>();
        let _ = write!(
            text,
            "{} stops in {:.0} s, {} trees killed, {} control groups: {} survivors, {} zombies, {} late starts, {} neighbours lost",
            sum(|row| row.empty.len()),
            self.took.as_secs_f64(),
            self.killed,
            if self.groups { "with" } else { "without" },
            sum(|row| row.survivors),
            sum(|row| row.zombies),
            sum(|row| row.late_starts),
            sum(|row| row.neighbours_lost),
        );
        text
    }

    /// The broken promises. Times count only when `times` is set.
    pub(crate) fn problems(&self, times: bool) -> Vec<String> {
        let mut problems = Vec::new();
        for row in &self.rows {
            for (count, what) in [
                (row.survivors, "survivors"),
                (row.zombies, "zombies"),
                (row.late_starts, "late starts"),
                (row.neighbours_lost, "neighbours lost"),
            ] {
                if count > 0 {
                    problems.push(format!("{}: {count} {what}", row.kind.name));
                }
            }
            for (measured, most, what) in
                [(&row.acknowledged, ACKNOWLEDGED_WITHIN, "acknowledged"), (&row.empty, row.kind.empty_within, "empty")]
            {
                let measured = percentile(measured, 99);
                if times && measured > most {
                    let (is, most) = (milliseconds(measured), milliseconds(most));
                    problems.push(format!("{}: {what} p99 {is}, at most {most}", row.kind.name));
                }
            }
        }
        problems
    }
}

/// The smallest time that `share` percent of these do not exceed. Zero without times.
fn percentile(times: &[Duration], share: usize) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * share).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

/// Prints to stdout. Ignores a closed pipe.
pub(crate) fn print(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
