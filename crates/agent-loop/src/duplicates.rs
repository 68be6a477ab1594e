//! Detects a batch of calls that fails completely again and again.

use belay_protocol::ToolCall;
use serde::{Deserialize, Serialize};

/// From this number of complete failures of one batch in a row, the model is warned.
pub(crate) const WARNED_DUPLICATES: u32 = 2;

/// From this number of complete failures of one batch in a row, no tools are offered.
pub(crate) const DISARMING_DUPLICATES: u32 = 4;

/// Counts how often in a row every call of the same batch has failed.
///
/// Two batches are the same if they have the same tools with the same arguments in the same order. The order of keys
/// within the arguments, white space and call ids do not matter.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(default)]
pub struct DuplicateTracker {
    /// Digest of the batch that failed last; `None` if the last batch did not fail completely.
    fingerprint: Option<String>,
    /// Its complete failures in a row.
    count: u32,
}

impl DuplicateTracker {
    /// Complete failures in a row of the batch that failed last; 0 if there is none.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Records the end of a batch. Returns how often it has now failed completely in a row: 0 unless every call failed.
    pub(crate) fn record(&mut self, calls: &[ToolCall], all_failed: bool) -> u32 {
        if !all_failed {
            *self = Self::default();
            return 0;
        }
        let fingerprint = fingerprint(calls);
        if self.fingerprint.as_ref() == Some(&fingerprint) {
            self.count = self.count.saturating_add(1);
        } else {
            *self = Self { fingerprint: Some(fingerprint), count: 1 };
        }
        self.count
    }
}

/// A digest of the names and canonical arguments, in order. The length of each part precedes it, so that two different
/// batches never hash the same bytes.
fn fingerprint(calls: &[ToolCall]) -> String {
    let mut hasher = blake3::Hasher::new();
    for call in calls {
        for part in [call.name.as_str(), &call.arguments.canonical()] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
    }
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use belay_protocol::Arguments;
    use proptest::prelude::*;

    use super::*;

    fn batch(calls: &[(&str, &str)]) -> Vec<ToolCall> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let id = || NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string();
        calls
            .iter()
            .map(|(name, raw)| ToolCall { id: id().into(), name: (*name).into(), arguments: Arguments::parse(raw) })
            .collect()
    }

    #[test]
    fn a_batch_is_the_same_whatever_its_ids_spaces_and_key_order() {
        type Batch = &'static [(&'static str, &'static str)];
        let table: &[(Batch, Batch, bool)] = &[
            (&[("a", r#"{"x":1,"y":[{"p":1,"q":2}]}"#)], &[("a", r#"{ "y":[{"q":2,"p":1}], "x":1 }"#)], true),
            (&[("a", "")], &[("a", "{}")], true),
            (&[("a", r#"{"x":1}"#)], &[("a", r#"{"x":2}"#)], false),
            (&[("a", r#"{"x":[1,2]}"#)], &[("a", r#"{"x":[2,1]}"#)], false),
            (&[("a", "{}")], &[("b", "{}")], false),
            (&[("a", "{}"), ("b", "{}")], &[("b", "{}"), ("a", "{}")], false),
            (&[("a", "{}")], &[("a", "{}"), ("a", "{}")], false),
            (&[("a", "{"), ("b", "{}")], &[("a", "{"), ("b", "{}")], true),
            (&[("ab", "{}")], &[("a", "b{}")], false),
        ];
        for (one, other, same) in table {
            assert_eq!(fingerprint(&batch(one)) == fingerprint(&batch(other)), *same, "{one:?} {other:?}");
        }
    }

    #[test]
    fn only_consecutive_failures_of_the_same_batch_count() {
        // Each row: one letter for each batch, lower case if every call failed, and the count after each batch.
        for (events, counts) in [
            ("aaaa", vec![1, 2, 3, 4]),
            ("aab", vec![1, 2, 1]),
            ("abab", vec![1, 1, 1, 1]),
            ("aaAa", vec![1, 2, 0, 1]),
            ("aaBa", vec![1, 2, 0, 1]),
            ("A", vec![0]),
        ] {
            let mut tracker = DuplicateTracker::default();
            let seen: Vec<u32> = events
                .chars()
                .map(|c| tracker.record(&batch(&[(&c.to_lowercase().to_string(), "{}")]), c.is_lowercase()))
                .collect();
            assert_eq!(seen, counts, "{events}");
        }
    }

    proptest! {
        #[test]
        fn the_count_is_the_length_of_the_newest_run_of_equal_failures(
            events in proptest::collection::vec((0u8..3, any::<bool>()), 0..40)
        ) {
            let mut tracker = DuplicateTracker::default();
            for (at, (which, failed)) in events.iter().enumerate() {
                let count = tracker.record(&batch(&[(["a", "b", "c"][usize::from(*which)], "{}")]), *failed);
                let run = events[..=at].iter().rev().take_while(|event| event.1 && event.0 == *which).count();
                prop_assert_eq!(count as usize, run);
                prop_assert_eq!(tracker.count(), count);
                let stored = serde_json::to_string(&tracker).expect("serialises");
                tracker = serde_json::from_str(&stored).expect("reads back");
            }
        }
    }
}
