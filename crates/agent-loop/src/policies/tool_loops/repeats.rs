//! Counts the repetitions of each call since the last news.

use std::collections::VecDeque;

use super::ToolLoopConfig;
use super::pack::{Bytes, Packed, Text};
use super::words::Kind;

/// Most calls whose repetitions are counted. Beyond that, the call that was made longest ago is dropped.
const CALLS: usize = 16;

/// Seconds before a repeated call that make it polling. Longer than most models think about a call that they have made
/// before, shorter than most people would wait.
pub(super) const POLLING_GAP_SECS: u32 = 10;

/// The number of repetitions that are allowed for a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PollTolerance {
    /// The call does not poll: the limit for repetitions applies.
    #[default]
    None,
    /// The call may be waiting for something: a file that is read, or a program that is run, after a pause. Half of the
    /// limit for polling applies.
    Some,
    /// The call polls: the limit for polling applies.
    Full,
}

/// The repetitions of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Repeats {
    key: u32,
    /// Digest of its last result; 0 before the first one.
    result: u32,
    /// Number of equal results in a row.
    same: u16,
    /// Number of results.
    all: u16,
    /// Calls without a result yet.
    open: u16,
    tolerance: PollTolerance,
    /// Number of repetitions that came after a pause with nothing else done in between.
    idle: u16,
    /// Whether the result says that the polled work has ended.
    ended: bool,
    /// The number of its newest call, counted from the first of the run.
    call: u32,
}

impl Packed for Repeats {
    const SIZE: usize = 21;

    fn put(&self, out: &mut Text) {
        self.key.put(out);
        self.result.put(out);
        for count in [self.same, self.all, self.open, self.idle] {
            out.extend_from_slice(&count.to_le_bytes());
        }
        out.push(self.tolerance as u8 | u8::from(self.ended) << 7);
        self.call.put(out);
    }

    fn take(bytes: &mut Bytes<'_>) -> Self {
        let (key, result) = (bytes.u32(), bytes.u32());
        let (same, all, open, idle) = (bytes.u16(), bytes.u16(), bytes.u16(), bytes.u16());
        let [bits] = bytes.next();
        let tolerance = match bits & 127 {
            0 => PollTolerance::None,
            1 => PollTolerance::Some,
            _ => PollTolerance::Full,
        };
        let call = bytes.u32();
        Self { key, result, same, all, open, tolerance, idle, ended: bits & 128 != 0, call }
    }
}

/// The facts about a new call that decide whether it polls.
pub(super) struct NewCall {
    pub(super) key: u32,
    pub(super) kind: Kind,
    pub(super) has_path: bool,
    /// The number of the call, counted from the first of the run.
    pub(super) call: u32,
    /// The number of the newest call that let time pass; 0: none.
    pub(super) waited: u32,
    /// The number of the newest call that followed a long pause; 0: none.
    pub(super) paused: u32,
    /// Whether the call itself lets time pass.
    pub(super) waits: bool,
    /// Seconds since the call before; 0 if there is no clock, or if another call was made in between.
    pub(super) idle: u32,
    /// Whether there is a clock.
    pub(super) timed: bool,
}

/// A finding of repetitions.
pub(super) struct Repeated {
    pub(super) count: u16,
    pub(super) threshold: u32,
    /// Whether the call polls.
    pub(super) polls: bool,
}

impl Repeats {
    /// Counts a call. Returns its tolerance, and a finding if it has polled for too long. A result that has not arrived
    /// yet is assumed to equal the last one.
    pub(super) fn call(
        all: &mut VecDeque<Self>,
        config: &ToolLoopConfig,
        call: &NewCall,
    ) -> (PollTolerance, Option<Repeated>) {
        let mut repeats = take(all, call.key);
        let waited = repeats.call != 0 && call.waited > repeats.call;
        let paused = repeats.call != 0 && call.paused > repeats.call;
        if call.idle >= POLLING_GAP_SECS {
            repeats.idle = repeats.idle.saturating_add(1);
        }
        // At least half of the repetitions must come after a pause. A few are not enough.
        let idle = repeats.idle > 0 && 2 * repeats.idle >= repeats.all;
        let tolerance = match call.kind {
            Kind::Wait => PollTolerance::Full,
            // A tool with the name of a poll counts as polling if time passes, or if there is no clock.
            Kind::Poll if call.waits || waited || idle || !call.timed => PollTolerance::Full,
            Kind::Poll => PollTolerance::Some,
            Kind::Write | Kind::Harmless | Kind::Note => PollTolerance::None,
            Kind::Other | Kind::Read if (idle || paused) && !call.has_path => PollTolerance::Full,
            _ if waited => PollTolerance::Some,
            _ => PollTolerance::None,
        };
        repeats.tolerance = repeats.tolerance.max(tolerance);
        repeats.call = call.call;
        repeats.open = repeats.open.saturating_add(1);
        let (tolerance, count) = (repeats.tolerance, repeats.same.saturating_add(repeats.open));
        let threshold = repeats.threshold(config);
        put(all, repeats);
        let found = tolerance != PollTolerance::None && u32::from(count) >= threshold;
        (tolerance, found.then_some(Repeated { count, threshold, polls: true }))
    }

    /// Records a result. Returns the tolerance of the call from now on, and a finding if it was repeated too often.
    pub(super) fn result(
        all: &mut VecDeque<Self>,
        config: &ToolLoopConfig,
        key: u32,
        outcome: Outcome,
    ) -> (PollTolerance, Option<Repeated>) {
        let mut repeats = take(all, key);
        repeats.open = repeats.open.saturating_sub(1);
        repeats.all = repeats.all.saturating_add(1);
        repeats.same = if repeats.result == outcome.result { repeats.same.saturating_add(1) } else { 1 };
        repeats.result = outcome.result;
        repeats.ended = outcome.ended;
        if outcome.pending {
            repeats.tolerance = PollTolerance::Full;
        }
        let polls = repeats.tolerance != PollTolerance::None;
        let threshold = repeats.threshold(config);
        let often = if polls { 2 * threshold } else { config.alternating };
        let found = if !polls && u32::from(repeats.same) >= threshold {
            Some(Repeated { count: repeats.same, threshold, polls })
        } else if u32::from(repeats.all) >= often {
            Some(Repeated { count: repeats.all, threshold: often, polls })
        } else {
            None
        };
        let tolerance = repeats.tolerance;
        put(all, repeats);
        (tolerance, found)
    }

    /// Records that a call was not run.
    pub(super) fn withdraw(all: &mut VecDeque<Self>, key: u32) {
        if let Some(repeats) = all.iter_mut().find(|repeats| repeats.key == key) {
            repeats.open = repeats.open.saturating_sub(1);
        }
    }

    /// Resets every count after news. The tolerance and the open calls remain.
    pub(super) fn renew(all: &mut VecDeque<Self>) {
        for repeats in all {
            (repeats.same, repeats.all, repeats.result, repeats.idle) = (0, 0, 0, 0);
        }
    }

    fn threshold(&self, config: &ToolLoopConfig) -> u32 {
        match self.tolerance {
            PollTolerance::None => config.repeats,
            // Work that has ended does not change any more.
            PollTolerance::Full if !self.ended => config.polls,
            _ => config.polls.div_ceil(2),
        }
    }
}

/// The result of a call.
pub(super) struct Outcome {
    pub(super) result: u32,
    /// Whether something is in progress.
    pub(super) pending: bool,
    /// Whether something has ended.
    pub(super) ended: bool,
}

fn take(all: &mut VecDeque<Repeats>, key: u32) -> Repeats {
    let at = all.iter().position(|repeats| repeats.key == key);
    at.and_then(|at| all.remove(at)).unwrap_or(Repeats { key, ..Repeats::default() })
}

fn put(all: &mut VecDeque<Repeats>, repeats: Repeats) {
    if all.len() == CALLS {
        all.pop_front();
    }
    all.push_back(repeats);
}
