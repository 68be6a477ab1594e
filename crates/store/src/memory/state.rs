//! What the store in memory holds.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use belay_protocol::run::RunUsage;
use belay_protocol::{
    ActedOn, BootId, Event, Gate, IdempotencyKey, KnownInput, Lease, Message, MessageScope, NewEvent, NewInput, Note,
    Outbound, Purpose, RunEnd, RunId, RunOptions, RunRecord, RunStatus, Seq, SessionKey, SessionLifetime, StoreError,
    ThreadId, ThreadSnapshot, ThreadState, ToolSwitch, UnixMillis,
};
use serde_json::Value;

use super::jobs::Jobs;
use super::routines::Routines;
use crate::notices::behind_results;

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) sessions: HashMap<SessionKey, Session>,
    pub(super) threads: HashMap<ThreadId, Thread>,
    /// In the order of acceptance.
    pub(super) runs: Vec<Run>,
    pub(super) run_places: HashMap<RunId, usize>,
    pub(super) keys: HashMap<IdempotencyKey, RunId>,
    /// Commands and answers, oldest first.
    pub(super) acted_on: VecDeque<ActedOn>,
    /// In the order of their numbers. The newest one is never removed.
    pub(super) events: Vec<Event>,
    /// In the order of asking.
    pub(super) gates: Vec<Gate>,
    /// Session, tool, and what is covered.
    pub(super) grants: BTreeSet<(SessionKey, String, String)>,
    /// In the order of commit.
    pub(super) outbox: Vec<Delivery>,
    /// Reservation n is at n - 1: its day, what it is for, and its amount.
    pub(super) reservations: Vec<(i64, Purpose, u64)>,
    pub(super) notes: HashMap<SessionKey, BTreeMap<String, Note>>,
    /// Sealed, by name.
    pub(super) secrets: HashMap<SessionKey, HashMap<String, Vec<u8>>>,
    pub(super) jobs: Jobs,
    pub(super) routines: Routines,
    /// By name.
    pub(super) switches: BTreeMap<String, ToolSwitch>,
}

#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) owner: BootId,
    pub(super) epoch: u64,
    pub(super) thread: ThreadId,
    pub(super) loop_detection: bool,
    pub(super) options: RunOptions,
    /// When its lane was last opened.
    pub(super) opened_at: UnixMillis,
}

#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub(super) session: SessionKey,
    pub(super) lifetime: SessionLifetime,
    pub(super) state: ThreadState,
    pub(super) summary: Option<String>,
    /// Messages up to this position are left out of a load.
    pub(super) upto: u64,
    /// Number of the last turn.
    pub(super) turns: u32,
    pub(super) last_active_at: UnixMillis,
    /// The message of position n is at n - 1.
    pub(super) messages: Vec<Line>,
}

/// One message in a thread.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) turn: u32,
    /// None for a history that was brought along.
    pub(super) run: Option<RunId>,
    pub(super) at: UnixMillis,
    pub(super) shown: Shown,
    /// The summary stands for it, although its turn was at work.
    pub(super) summarised: bool,
    pub(super) message: Arc<Message>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Visible,
    Undone,
    Cleared,
}

#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) input: NewInput,
    pub(super) session: SessionKey,
    pub(super) digest: String,
    /// The platform's id of its message.
    pub(super) message_ref: Option<String>,
    /// The digest of the last edit of its message.
    pub(super) edited: Option<String>,
    pub(super) status: RunStatus,
    pub(super) attempt: u32,
    /// Thread and turn, from the first start on.
    pub(super) place: Option<(ThreadId, u32)>,
    pub(super) started_at: Option<UnixMillis>,
    pub(super) usage: RunUsage,
    pub(super) cost_micro_usd: u64,
    pub(super) state: Option<Value>,
    pub(super) end: Option<Ended>,
}

impl Run {
    pub(super) fn known(&self) -> KnownInput {
        KnownInput {
            run_id: self.input.run_id,
            session: self.session.clone(),
            accepted_at: self.input.at,
            digest: self.digest.clone(),
            of_text: false,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) end: RunEnd,
    pub(super) reply: Option<String>,
    pub(super) at: UnixMillis,
}

#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) message: Outbound,
    pub(super) attempts: u32,
    pub(super) stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not before the date, if there is one.
    Waiting(Option<UnixMillis>),
    Sending,
    Over,
}

impl State {
    /// The active thread of the lease's session, if the lease is good.
    pub(super) fn lane(&self, lease: &Lease) -> Result<ThreadId, StoreError> {
        match self.sessions.get(&lease.session) {
            Some(session) if session.owner == lease.owner && session.epoch == lease.epoch => Ok(session.thread),
            _ => Err(StoreError::LeaseLost(lease.session.clone())),
        }
    }

    pub(super) fn run(&self, id: RunId) -> Option<&Run> {
        self.run_places.get(&id).map(|place| &self.runs[*place])
    }

    /// The run, if it is one of the session's.
    pub(super) fn run_of(&mut self, session: &SessionKey, id: RunId) -> Option<&mut Run> {
        let place = *self.run_places.get(&id)?;
        Some(&mut self.runs[place]).filter(|run| run.session == *session)
    }

    pub(super) fn is_open(&self, run: RunId) -> bool {
        self.run(run).is_some_and(|run| run.end.is_none())
    }

    /// Turns of the thread that have not ended.
    pub(super) fn turns_at_work(&self, thread: ThreadId) -> Vec<u32> {
        let open = self.runs.iter().filter(|run| run.end.is_none());
        open.filter_map(|run| run.place).filter(|place| place.0 == thread).map(|place| place.1).collect()
    }

    /// A thread that the caller has from a session or a run.
    pub(super) fn thread_mut(&mut self, id: ThreadId) -> &mut Thread {
        self.threads.get_mut(&id).expect("threads are inserted with what names them, and removed with it")
    }

    pub(super) fn snapshot(&self, id: ThreadId) -> ThreadSnapshot {
        let thread = self.threads.get(&id).expect("threads are inserted with what names them, and removed with it");
        let messages = thread.positions().filter(|(position, line)| {
            *position > thread.upto
                && line.shown == Shown::Visible
                && !line.summarised
                && line.message.scope == MessageScope::Thread
                && !line.run.is_some_and(|run| self.is_open(run))
        });
        ThreadSnapshot {
            id,
            state: thread.state,
            summary: thread.summary.clone(),
            messages: behind_results(messages.map(|(position, line)| (position, line.message.clone())).collect()),
        }
    }

    /// The number of the newest event; 0 while there is none.
    pub(super) fn newest_event(&self) -> Seq {
        self.events.last().map_or(Seq(0), |event| event.seq)
    }

    pub(super) fn push_events(&mut self, events: &[NewEvent]) {
        for NewEvent { at, session, run_id, kind } in events.iter().cloned() {
            let seq = Seq(self.newest_event().0 + 1);
            self.events.push(Event { seq, at, session, run_id, kind });
        }
    }
}

impl Thread {
    pub(super) fn new(session: SessionKey, lifetime: SessionLifetime, at: UnixMillis) -> Self {
        let (state, messages) = (ThreadState::Idle, Vec::new());
        Self { session, lifetime, state, summary: None, upto: 0, turns: 0, last_active_at: at, messages }
    }

    /// Messages with their positions.
    pub(super) fn positions(&self) -> impl Iterator<Item = (u64, &Line)> {
        (1..).zip(&self.messages)
    }

    pub(super) fn push(&mut self, turn: u32, run: Option<RunId>, at: UnixMillis, message: Arc<Message>) {
        self.messages.push(Line { turn, run, at, shown: Shown::Visible, summarised: false, message });
    }

    /// Notes that the thread was used, and its new state if there is one. A completed thread stays completed.
    pub(super) fn touch(&mut self, state: Option<ThreadState>, at: UnixMillis) {
        if self.state != ThreadState::Completed {
            self.state = state.unwrap_or(self.state);
        }
        self.last_active_at = self.last_active_at.max(at);
    }
}

impl Run {
    /// Without its question, which is not kept with it.
    pub(super) fn record(&self) -> RunRecord {
        let end = self.end.as_ref();
        RunRecord {
            run_id: self.input.run_id,
            session: self.session.clone(),
            status: self.status,
            reason: end.map(|ended| ended.end.reason),
            evidence: end.map(|ended| ended.end.evidence.clone()).unwrap_or_default(),
            reply: end.and_then(|ended| ended.reply.clone()),
            usage: self.usage,
            cost_micro_usd: self.cost_micro_usd,
            attempt: self.attempt,
            accepted_at: self.input.at,
            started_at: self.started_at,
            ended_at: end.map(|ended| ended.at),
            waiting_for: None,
        }
    }
}
