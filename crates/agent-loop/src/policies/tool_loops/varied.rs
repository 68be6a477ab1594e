//! Finds varied calls with the same result: for example a search that is reworded and finds nothing each time.

use std::collections::VecDeque;

use super::ToolLoopConfig;
use super::history::Entry;
use super::result::ResultAnalysis;
use super::words::Kind;

/// A finding of different calls with the same result.
#[derive(Debug)]
pub(super) struct Varied {
    pub(super) count: u32,
    pub(super) threshold: u32,
}

/// Examines the calls since the last news. The newest call is at `at`, and `result` is its result.
pub(super) fn varied(
    history: &VecDeque<Entry>,
    since: usize,
    at: usize,
    result: &ResultAnalysis,
    failed: bool,
    config: &ToolLoopConfig,
) -> Option<Varied> {
    let newest = history.get(at)?;
    if newest.kind.is_harmless() || newest.kind == Kind::Wait {
        return None;
    }
    // A write, or a positive result, is work for each of the calls.
    let done = newest.kind == Kind::Write && !result.long;
    let passed = result.positive && !(newest.kind == Kind::Read && result.long);
    if !failed && (done || passed) {
        return None;
    }
    let group = || {
        let calls = history.iter().enumerate().skip(since);
        calls.filter(|(place, entry)| *place == at || counts(entry, result.digest)).map(|(_, entry)| entry)
    };
    if group().all(|entry| entry.key == newest.key) {
        return None;
    }
    let all = group().count() as u32;
    let hit = |count: u32, threshold: u32| (count >= threshold).then_some(Varied { count, threshold });
    let reworded = reworded(group(), newest);
    if newest.polls {
        return hit(reworded.count, config.polls);
    }
    if result.sentence && !result.empty && !failed && newest.target != 0 {
        // Different questions about one target, with the same sentence as the answer each time.
        let one = group().filter(|entry| {
            entry.name == newest.name && entry.target == newest.target && entry.numbers == newest.numbers
        });
        if let Some(found) = hit(one.count() as u32, config.same_short_result) {
            return Some(found);
        }
    }
    if result.empty || (!failed && !result.long) {
        // Queries that differ by one word each may go through a list. They are allowed half as many again.
        let threshold = config.same_short_result;
        return hit(reworded.count, if reworded.list { threshold + threshold / 2 } else { threshold });
    }
    if result.missing && !result.long {
        // A search for one of many files fails many times. Guessing the location of one file should end earlier.
        return hit(reworded.count, config.same_result).or_else(|| hit(all, 2 * config.same_short_result));
    }
    if failed || result.negative {
        return hit(all, config.same_result);
    }
    // Different targets may have equal long results: the same file on ten hosts.
    hit(group().filter(|entry| same_thing(entry, newest)).count() as u32, config.same_result)
}

fn counts(entry: &Entry, result: u32) -> bool {
    entry.result == result && !entry.void && !entry.kind.is_harmless()
}

/// Whether two calls with the same long result have one target, whatever their words. Different web addresses count as
/// one target, because only a useless page, such as an error page, is the same for all of them. Different numbers under
/// a key without a known meaning count as one target too.
fn same_thing(one: &Entry, other: &Entry) -> bool {
    let web = one.web && other.web;
    let numbered = one.numbers != 0 && other.numbers != 0;
    one.name == other.name && (one.target == other.target || web || numbered)
}

/// Calls with the same meaning in other words.
struct Reworded {
    count: u32,
    /// Whether each differs from the next by one word.
    list: bool,
}

/// Counts similar calls, starting at the newest. A call is compared with the newest and with the last similar one,
/// because the wording drifts.
fn reworded<'a>(group: impl DoubleEndedIterator<Item = &'a Entry>, newest: &'a Entry) -> Reworded {
    let (mut reworded, mut link) = (Reworded { count: 0, list: newest.sketch != 0 }, newest);
    for entry in group.rev() {
        if similar(entry, newest) || similar(entry, link) {
            if reworded.count > 0 && entry.key != link.key {
                reworded.list &= one_word_apart(entry.sketch, link.sketch);
            }
            reworded.count += 1;
            link = entry;
        }
    }
    reworded
}

/// Whether two calls of a tool have the same target, and either share more than half of their words or have none.
/// Different numbers under a key without a known meaning may be different items, so such calls are not similar.
fn similar(one: &Entry, other: &Entry) -> bool {
    let shared = (one.sketch & other.sketch).count_ones();
    let fewer = one.sketch.count_ones().min(other.sketch.count_ones());
    let wordless = one.sketch == 0 && other.sketch == 0;
    let counted = one.numbers != other.numbers;
    one.name == other.name && one.target == other.target && !counted && (wordless || 2 * shared > fewer)
}

fn one_word_apart(one: u64, other: u64) -> bool {
    let (a, b) = (one.count_ones(), other.count_ones());
    one != other && a.min(b) >= 2 && a.abs_diff(b) <= 1 && (one & other).count_ones() + 1 >= a.max(b)
}
