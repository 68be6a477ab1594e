//! Varied arguments, same result: a search that is reworded and finds nothing, each time.

use std::collections::VecDeque;

use super::ToolLoopConfig;
use super::history::Entry;
use super::result::Told;
use super::words::Kind;

/// Different calls that tell the same.
#[derive(Debug)]
pub(super) struct Varied {
    pub(super) count: u32,
    pub(super) threshold: u32,
}

/// Looks at the calls since something new was learnt, the newest being the one at `at` that told `told`.
pub(super) fn varied(
    history: &VecDeque<Entry>,
    since: usize,
    at: usize,
    told: &Told,
    failed: bool,
    config: &ToolLoopConfig,
) -> Option<Varied> {
    let newest = history.get(at)?;
    if newest.kind.is_harmless() || newest.kind == Kind::Wait {
        return None;
    }
    // What was done, or found in order, was done or found for each of them.
    let done = newest.kind == Kind::Write && !told.long;
    let passed = told.positive && !(newest.kind == Kind::Read && told.long);
    if !failed && (done || passed) {
        return None;
    }
    let group = || {
        let calls = history.iter().enumerate().skip(since);
        calls.filter(|(place, entry)| *place == at || counts(entry, told.digest)).map(|(_, entry)| entry)
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
    if told.sentence && !told.empty && !failed && newest.target != 0 {
        // What is asked about one thing in any words, and answered by the same sentence each time.
        let one = group().filter(|entry| {
            entry.name == newest.name && entry.target == newest.target && entry.numbers == newest.numbers
        });
        if let Some(found) = hit(one.count() as u32, config.same_short_result) {
            return Some(found);
        }
    }
    if told.empty || (!failed && !told.long) {
        // Queries that differ in one word each may go through a list: they get half as many again.
        let threshold = config.same_short_result;
        return hit(reworded.count, if reworded.list { threshold + threshold / 2 } else { threshold });
    }
    if told.missing && !told.long {
        // Looking for one of many files fails many times; guessing where one is should end.
        return hit(reworded.count, config.same_result).or_else(|| hit(all, 2 * config.same_short_result));
    }
    if failed || told.negative {
        return hit(all, config.same_result);
    }
    // Different things may well be equal at length: the same file on ten hosts.
    hit(group().filter(|entry| same_thing(entry, newest)).count() as u32, config.same_result)
}

fn counts(entry: &Entry, result: u32) -> bool {
    entry.result == result && !entry.void && !entry.kind.is_harmless()
}

/// Whether two calls that told the same at length are about one thing, whatever their words. Different addresses on the
/// web do not lead to one page unless they lead nowhere, and neither do different numbers under a name that says nothing.
fn same_thing(one: &Entry, other: &Entry) -> bool {
    let web = one.web && other.web;
    let numbered = one.numbers != 0 && other.numbers != 0;
    one.name == other.name && (one.target == other.target || web || numbered)
}

/// Calls that say the same in other words.
struct Reworded {
    count: u32,
    /// Each differs from the next in one word.
    list: bool,
}

/// Goes back from the newest call. A call is compared with the newest and with the last that was similar, since wording
/// drifts.
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

/// Whether two calls of a tool are about the same, in words of which more than half are shared, or without words. Numbers
/// under a name that says nothing may each be another item.
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
