//! How often each call was repeated since something new was learnt.

use std::collections::VecDeque;

use super::ToolLoopConfig;
use super::pack::{Bytes, Packed};
use super::words::Kind;

/// Calls whose repetitions are counted; then the one that was made longest ago is forgotten.
const CALLS: usize = 16;

/// Idle seconds before a repeated call that make it polling: longer than most models think about a call that they have
/// made before, shorter than most people would wait.
pub(super) const POLLING_GAP_SECS: u32 = 10;

/// How patiently a call is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PollTolerance {
    /// A repetition is a repetition.
    #[default]
    None,
    /// It may be waiting for something: a file that is read, or a program that is run, after a pause.
    Some,
    /// It asks how far something is.
    Full,
}

/// The repetitions of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Repeats {
    key: u32,
    /// What it told last; 0 before it told anything.
    result: u32,
    /// How often in a row it told that.
    same: u16,
    /// How often it told anything.
    all: u16,
    /// Calls whose results have not come.
    open: u16,
    patience: PollTolerance,
    /// How often time passed before it was called again, while nothing else was done.
    idle: u16,
    /// What it asks about has come to its end.
    ended: bool,
    /// Its newest call, counted from the first of the run.
    call: u32,
}

impl Packed for Repeats {
    const SIZE: usize = 21;

    fn put(&self, out: &mut Vec<u8>) {
        self.key.put(out);
        self.result.put(out);
        for count in [self.same, self.all, self.open, self.idle] {
            out.extend_from_slice(&count.to_le_bytes());
        }
        out.push(self.patience as u8 | u8::from(self.ended) << 7);
        self.call.put(out);
    }

    fn take(bytes: &mut Bytes<'_>) -> Self {
        let (key, result) = (bytes.u32(), bytes.u32());
        let (same, all, open, idle) = (bytes.u16(), bytes.u16(), bytes.u16(), bytes.u16());
        let [bits] = bytes.next();
        let patience = match bits & 127 {
            0 => PollTolerance::None,
            1 => PollTolerance::Some,
            _ => PollTolerance::Full,
        };
        let call = bytes.u32();
        Self { key, result, same, all, open, patience, idle, ended: bits & 128 != 0, call }
    }
}

/// A call that is made, as far as patience is concerned.
pub(super) struct Made {
    pub(super) key: u32,
    pub(super) kind: Kind,
    pub(super) has_path: bool,
    /// Which call it is, counted from the first.
    pub(super) call: u32,
    /// The newest call that let time pass; 0: none.
    pub(super) waited: u32,
    /// The newest call before which time has passed for long; 0: none.
    pub(super) paused: u32,
    /// It lets time pass itself.
    pub(super) waits: bool,
    /// Seconds since the call before; 0 where there is no clock, or something else was done in between.
    pub(super) idle: u32,
    /// There is a clock.
    pub(super) timed: bool,
}

/// A loop of repetitions.
pub(super) struct Repeated {
    pub(super) count: u16,
    pub(super) threshold: u32,
    /// It was polling.
    pub(super) polls: bool,
}

impl Repeats {
    /// Counts a call, and tells how patiently, and whether it has been polling for too long. Of a result that has not
    /// come, nothing else is assumed than that it is the same again.
    pub(super) fn call(
        all: &mut VecDeque<Self>,
        config: &ToolLoopConfig,
        made: &Made,
    ) -> (PollTolerance, Option<Repeated>) {
        let mut repeats = take(all, made.key);
        let waited = repeats.call != 0 && made.waited > repeats.call;
        let paused = repeats.call != 0 && made.paused > repeats.call;
        if made.idle >= POLLING_GAP_SECS {
            repeats.idle = repeats.idle.saturating_add(1);
        }
        // Most of the repetitions came after a while: once is no habit.
        let idle = repeats.idle > 0 && 2 * repeats.idle >= repeats.all;
        let patience = match made.kind {
            Kind::Wait => PollTolerance::Full,
            // A name that promises a poll is believed where time passes, or where nobody tells.
            Kind::Poll if made.waits || waited || idle || !made.timed => PollTolerance::Full,
            Kind::Poll => PollTolerance::Some,
            Kind::Write | Kind::Harmless | Kind::Note => PollTolerance::None,
            Kind::Other | Kind::Read if (idle || paused) && !made.has_path => PollTolerance::Full,
            _ if waited => PollTolerance::Some,
            _ => PollTolerance::None,
        };
        repeats.patience = repeats.patience.max(patience);
        repeats.call = made.call;
        repeats.open = repeats.open.saturating_add(1);
        let (patience, count) = (repeats.patience, repeats.same.saturating_add(repeats.open));
        let threshold = repeats.threshold(config);
        put(all, repeats);
        let found = patience != PollTolerance::None && u32::from(count) >= threshold;
        (patience, found.then_some(Repeated { count, threshold, polls: true }))
    }

    /// Takes what a call told, and tells how patiently it is counted from now on, and whether it was repeated too often.
    pub(super) fn result(
        all: &mut VecDeque<Self>,
        config: &ToolLoopConfig,
        key: u32,
        told: Outcome,
    ) -> (PollTolerance, Option<Repeated>) {
        let mut repeats = take(all, key);
        repeats.open = repeats.open.saturating_sub(1);
        repeats.all = repeats.all.saturating_add(1);
        repeats.same = if repeats.result == told.result { repeats.same.saturating_add(1) } else { 1 };
        repeats.result = told.result;
        repeats.ended = told.ended;
        if told.pending {
            repeats.patience = PollTolerance::Full;
        }
        let polls = repeats.patience != PollTolerance::None;
        let threshold = repeats.threshold(config);
        let often = if polls { 2 * threshold } else { config.alternating };
        let found = if !polls && u32::from(repeats.same) >= threshold {
            Some(Repeated { count: repeats.same, threshold, polls })
        } else if u32::from(repeats.all) >= often {
            Some(Repeated { count: repeats.all, threshold: often, polls })
        } else {
            None
        };
        let patience = repeats.patience;
        put(all, repeats);
        (patience, found)
    }

    /// A call was not run after all.
    pub(super) fn withdraw(all: &mut VecDeque<Self>, key: u32) {
        if let Some(repeats) = all.iter_mut().find(|repeats| repeats.key == key) {
            repeats.open = repeats.open.saturating_sub(1);
        }
    }

    /// Something new was learnt: every count begins anew. What is known about patience stays, and so do open calls.
    pub(super) fn renew(all: &mut VecDeque<Self>) {
        for repeats in all {
            (repeats.same, repeats.all, repeats.result, repeats.idle) = (0, 0, 0, 0);
        }
    }

    fn threshold(&self, config: &ToolLoopConfig) -> u32 {
        match self.patience {
            PollTolerance::None => config.repeats,
            // What has ended does not change any more.
            PollTolerance::Full if !self.ended => config.polls,
            _ => config.polls.div_ceil(2),
        }
    }
}

/// What a call told.
pub(super) struct Outcome {
    pub(super) result: u32,
    /// Something is under way.
    pub(super) pending: bool,
    /// Something has come to its end.
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
