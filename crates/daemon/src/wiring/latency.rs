//! The latencies of the last day: the histograms of the metrics, kept as they were every half hour.

use std::collections::VecDeque;
use std::time::Duration;

use belay_gateway::{Latency, LatencyPeriod};
use belay_protocol::UnixMillis;
use belay_run::metrics::{MODEL_DURATION, MODEL_FIRST, QUEUE_WAIT, STOP_TIME, TOOL_DURATION};
use tokio::time::Instant;

/// The length of a period.
pub(super) const EVERY: Duration = Duration::from_secs(30 * 60);
/// The number of whole periods that are kept: a day.
const KEPT: usize = 48;
/// The histograms, and their names on the wire.
const KINDS: [(&str, &str); 5] = [
    ("first_token", MODEL_FIRST),
    ("model_call", MODEL_DURATION),
    ("tool_call", TOOL_DURATION),
    ("wait", QUEUE_WAIT),
    ("stop", STOP_TIME),
];

/// The buckets of a histogram since the start: an upper bound in seconds, and how many values are not above it.
type Buckets = Vec<(f64, u64)>;

/// The histograms at a moment.
#[derive(Debug)]
struct Snapshot {
    at: Instant,
    buckets: [Buckets; KINDS.len()],
}

/// The histograms at the begin of each period.
#[derive(Debug)]
pub(super) struct Day(VecDeque<Snapshot>);

impl Day {
    /// Begins now, when nothing was measured.
    pub(super) fn new() -> Self {
        Self(VecDeque::from([Snapshot { at: Instant::now(), buckets: Default::default() }]))
    }

    /// Whether the newest period is over.
    pub(super) fn is_due(&self) -> bool {
        self.0.back().is_none_or(|newest| newest.at.elapsed() >= EVERY)
    }

    /// Ends the newest period. `text`: the metrics now, in the text format of Prometheus.
    pub(super) fn keep(&mut self, text: &str) {
        self.0.push_back(Snapshot { at: Instant::now(), buckets: read(text) });
        if self.0.len() > KEPT + 1 {
            self.0.pop_front();
        }
    }

    /// The latencies of all periods, and of the time since the newest one.
    pub(super) fn latencies(&self, text: &str, now: UnixMillis) -> Vec<Latency> {
        let last = Snapshot { at: Instant::now(), buckets: read(text) };
        let ends: Vec<_> = self.0.iter().skip(1).chain([&last]).collect();
        let of = |(index, (kind, _)): (usize, &(&'static str, &str))| Latency {
            kind,
            periods: self.0.iter().zip(&ends).filter_map(|(begin, end)| period(begin, end, index, now)).collect(),
        };
        KINDS.iter().enumerate().map(of).collect()
    }
}

fn period(begin: &Snapshot, end: &Snapshot, index: usize, now: UnixMillis) -> Option<LatencyPeriod> {
    let before = |at: usize| begin.buckets[index].get(at).map_or(0, |(_, count)| *count);
    let buckets: Buckets = end.buckets[index]
        .iter()
        .enumerate()
        .map(|(at, (bound, count))| (*bound, count.saturating_sub(before(at))))
        .collect();
    let count = buckets.last().map_or(0, |(_, count)| *count);
    let age = i64::try_from(begin.at.elapsed().as_millis()).unwrap_or(i64::MAX);
    let of = |share: f64| (quantile(&buckets, share * count as f64) * 1e6).round() / 1e3;
    (count > 0).then(|| LatencyPeriod {
        at: UnixMillis(now.0.saturating_sub(age)),
        count,
        p50_ms: of(0.5),
        p95_ms: of(0.95),
    })
}

/// The value of this rank, between the bounds of its bucket; above the highest bound, that one.
fn quantile(buckets: &Buckets, rank: f64) -> f64 {
    let (mut below, mut before) = (0.0, 0.0);
    for (bound, count) in buckets {
        let count = *count as f64;
        if count >= rank {
            return if bound.is_finite() {
                below + (bound - below) * (rank - before) / (count - before).max(1.0)
            } else {
                below
            };
        }
        (below, before) = (*bound, count);
    }
    below
}

/// Reads the histograms, each over all its labels.
fn read(text: &str) -> [Buckets; KINDS.len()] {
    let mut found: [Buckets; KINDS.len()] = Default::default();
    for line in text.lines() {
        let Some((name, rest)) = line.split_once("_bucket{") else { continue };
        let Some(index) = KINDS.iter().position(|(_, metric)| *metric == name) else { continue };
        let bound = rest.rsplit_once("le=\"").and_then(|(_, rest)| rest.split_once('"'));
        let count = line.rsplit_once(' ').and_then(|(_, count)| count.parse::<u64>().ok());
        let (Some((bound, _)), Some(count)) = (bound, count) else { continue };
        let bound = bound.parse().unwrap_or(f64::INFINITY); // "+Inf"
        let buckets = &mut found[index];
        match buckets.iter_mut().find(|(known, _)| *known == bound) {
            Some((_, sum)) => *sum += count,
            None => buckets.push((bound, count)),
        }
    }
    found
}

#[cfg(test)]
mod tests;
