//! Changes to what a thread shows. A turn at work is left alone by all of them.

use std::collections::BTreeSet;

use belay_protocol::{
    EditOutcome, Lease, NewEvent, SessionKey, StoreError, ThreadEdit, ThreadId, ThreadState, TurnCut, UnixMillis,
};

use super::state::{Line, Shown, State, Thread};
use crate::limits::{UNDO_DEPTH, edited};

impl State {
    pub(super) fn edit_thread(
        &mut self,
        lease: &Lease,
        edit: ThreadEdit,
        at: UnixMillis,
    ) -> Result<EditOutcome, StoreError> {
        let active = self.lane(lease)?;
        let at_work = self.turns_at_work(active);
        let thread = self.thread_mut(active);
        let done = match edit {
            ThreadEdit::Undo => undo(thread, &at_work),
            ThreadEdit::Redo => redo(thread),
            ThreadEdit::Clear => clear(thread, &at_work),
            ThreadEdit::New => return Ok(EditOutcome::Done(self.open_thread(&lease.session, active, at))),
        };
        if !done {
            return Ok(EditOutcome::Nothing);
        }
        thread.touch(at_work.is_empty().then_some(ThreadState::Idle), at);
        self.push_events(&[edited(&lease.session, edit, at)]);
        Ok(EditOutcome::Done(self.snapshot(active)))
    }

    /// Completes the active thread and opens another.
    fn open_thread(
        &mut self,
        session: &SessionKey,
        active: ThreadId,
        at: UnixMillis,
    ) -> belay_protocol::ThreadSnapshot {
        let lifetime = self.thread_mut(active).lifetime;
        self.thread_mut(active).state = ThreadState::Completed;
        let fresh = ThreadId::new();
        self.threads.insert(fresh, Thread::new(session.clone(), lifetime, at));
        if let Some(row) = self.sessions.get_mut(session) {
            row.thread = fresh;
        }
        self.push_events(&[edited(session, ThreadEdit::New, at)]);
        self.snapshot(fresh)
    }

    pub(super) fn compact(
        &mut self,
        lease: &Lease,
        keep: u32,
        summary: String,
        events: &[NewEvent],
    ) -> Result<(), StoreError> {
        let active = self.lane(lease)?;
        let shown = self.snapshot(active).messages;
        let upto = shown
            .iter()
            .rev()
            .filter(|(_, message)| !message.is_notice())
            .nth(keep as usize)
            .map_or(0, |(position, _)| *position);
        let thread = self.thread_mut(active);
        thread.summary = Some(summary);
        thread.upto = thread.upto.max(upto);
        self.push_events(events);
        Ok(())
    }

    pub(super) fn compact_turn(&mut self, lease: &Lease, cut: TurnCut) -> Result<(), StoreError> {
        let active = self.lane(lease)?;
        let of_run = |line: &&mut Line| line.run == Some(cut.run) && !line.summarised;
        for (number, line) in (0..).zip(self.thread_mut(active).messages.iter_mut().filter(of_run)) {
            line.summarised = cut.left.contains(&number);
        }
        self.compact(lease, cut.keep, cut.summary, &cut.events)
    }
}

fn turns_shown(thread: &Thread, shown: Shown) -> BTreeSet<u32> {
    thread.messages.iter().filter(|line| line.shown == shown).map(|line| line.turn).collect()
}

fn show(thread: &mut Thread, turn: u32, from: Shown, to: Shown) {
    let of_turn = |line: &&mut Line| line.turn == turn && line.shown == from && !line.message.is_notice();
    for line in thread.messages.iter_mut().filter(of_turn) {
        line.shown = to;
    }
}

fn undo(thread: &mut Thread, at_work: &[u32]) -> bool {
    if turns_shown(thread, Shown::Undone).len() >= UNDO_DEPTH as usize {
        return false;
    }
    let upto = thread.upto;
    let last = thread
        .positions()
        .filter(|(position, line)| *position > upto && !line.message.is_notice())
        .filter(|(_, line)| line.shown == Shown::Visible && !at_work.contains(&line.turn))
        .map(|(_, line)| line.turn)
        .max();
    let Some(turn) = last else { return false };
    show(thread, turn, Shown::Visible, Shown::Undone);
    true
}

fn redo(thread: &mut Thread) -> bool {
    let Some(turn) = turns_shown(thread, Shown::Undone).first().copied() else { return false };
    show(thread, turn, Shown::Undone, Shown::Visible);
    true
}

fn clear(thread: &mut Thread, at_work: &[u32]) -> bool {
    for line in thread.messages.iter_mut().filter(|line| !at_work.contains(&line.turn)) {
        line.shown = Shown::Cleared;
    }
    thread.summary = None;
    true
}
