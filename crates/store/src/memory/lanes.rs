//! What a lane's owner writes. Everything that can be refused is refused before anything is changed.

use std::sync::Arc;

use belay_protocol::run::RunUsage;
use belay_protocol::store::{KnownInput, input_digest, joined_end};
use belay_protocol::{
    Acceptance, BootId, Checkpoint, EditedMessage, EventKind, FinishedRun, IdempotencyKey, JoinedRun, Lease, Message,
    NewEvent, NewInput, OpenedLane, PendingRun, RunId, RunOptions, RunStatus, SentMessage, SessionKey, SessionLifetime,
    StoreError, ThreadId, ThreadState, Together, UnixMillis,
};

use super::state::{Delivery, Ended, Line, Run, Session, Shown, Stage, State, Thread};

impl State {
    pub(super) fn open_lane(
        &mut self,
        session: &SessionKey,
        lifetime: SessionLifetime,
        owner: BootId,
        at: UnixMillis,
    ) -> OpenedLane {
        if !self.sessions.contains_key(session) {
            let thread = ThreadId::new();
            self.threads.insert(thread, Thread::new(session.clone(), lifetime, at));
            self.sessions.insert(
                session.clone(),
                Session {
                    owner,
                    epoch: 0,
                    thread,
                    loop_detection: true,
                    options: RunOptions::default(),
                    opened_at: at,
                },
            );
        }
        let row = self.sessions.get_mut(session).expect("inserted above");
        row.owner = owner;
        row.epoch += 1;
        row.opened_at = at;
        let (epoch, thread, loop_detection) = (row.epoch, row.thread, row.loop_detection);
        let options = row.options.clone();
        let open = self.runs.iter().filter(|run| run.session == *session && run.end.is_none());
        let unfinished: Vec<PendingRun> = open.map(|run| self.pending(run)).collect();
        let begun = self.threads.get(&thread).is_some_and(|thread| thread.turns > 0);
        let spoken = self.runs.iter().rev().find(|run| run.session == *session && run.input.spoken);
        OpenedLane {
            spoken_at: spoken.map(|run| run.input.at),
            lease: Lease { session: session.clone(), owner, epoch },
            thread: self.snapshot(thread),
            fresh: !begun && unfinished.is_empty(),
            unfinished,
            loop_detection,
            options,
        }
    }

    pub(super) fn set_options(&mut self, lease: &Lease, options: RunOptions) -> Result<(), StoreError> {
        self.lane(lease)?;
        if let Some(session) = self.sessions.get_mut(&lease.session) {
            session.options = options;
        }
        Ok(())
    }

    pub(super) fn set_loop_detection(&mut self, lease: &Lease, on: bool) -> Result<(), StoreError> {
        self.lane(lease)?;
        if let Some(session) = self.sessions.get_mut(&lease.session) {
            session.loop_detection = on;
        }
        Ok(())
    }

    fn pending(&self, run: &Run) -> PendingRun {
        let id = run.input.run_id;
        let thread = run.place.and_then(|(thread, _)| self.threads.get(&thread));
        let of_run = |(_, line): &(u64, &Line)| line.run == Some(id) && !line.summarised;
        let messages = thread.into_iter().flat_map(Thread::positions).filter(of_run);
        PendingRun {
            run_id: id,
            text: run.input.text.clone(),
            provenance: run.input.provenance.clone(),
            asker: run.input.asker.clone(),
            channel: run.input.channel.clone(),
            reply_to: run.input.reply_to.clone(),
            gate: self.newest_gate_of(id).cloned(),
            status: run.status,
            options: run.input.options.clone(),
            attempt: run.attempt,
            accepted_at: run.input.at,
            started_at: run.started_at,
            usage: run.usage,
            cost_micro_usd: run.cost_micro_usd,
            state: run.state.clone(),
            history: run.input.history.clone(),
            messages: messages.map(|(position, line)| (position, line.message.clone())).collect(),
        }
    }

    pub(super) fn accept(&mut self, lease: &Lease, mut input: NewInput) -> Result<Acceptance, StoreError> {
        let active = self.lane(lease)?;
        let digest = input.digest.clone().unwrap_or_else(|| input_digest(&input.text));
        if let Some(known) = input.key.as_ref().and_then(|key| self.find(key)) {
            // Nothing in here is older than this process: no digest is of a text alone.
            return Ok(if known.digest == digest { Acceptance::Known(known) } else { Acceptance::Conflict(known) });
        }
        let (id, at, start) = (input.run_id, input.at, input.start);
        if self.run_places.contains_key(&id) {
            return Err(StoreError::Unavailable(format!("run {id} exists already")));
        }
        if let Some(key) = &input.key {
            self.keys.insert(key.clone(), id);
        }
        self.run_places.insert(id, self.runs.len());
        let (state, events) = (input.state.clone(), std::mem::take(&mut input.events));
        let message_ref = input.provenance.as_ref().and_then(|provenance| provenance.message_id.clone());
        self.runs.push(Run {
            input,
            session: lease.session.clone(),
            digest,
            message_ref,
            edited: None,
            status: RunStatus::Queued,
            attempt: 0,
            place: None,
            started_at: None,
            usage: RunUsage::default(),
            cost_micro_usd: 0,
            state,
            end: None,
        });
        self.push_events(&[event(lease, id, at, EventKind::RunAccepted)]);
        self.push_events(&events);
        self.thread_mut(active).touch(None, at);
        if start {
            self.start_run(lease, id, at)?;
        }
        Ok(Acceptance::New)
    }

    pub(super) fn find(&self, key: &IdempotencyKey) -> Option<KnownInput> {
        self.run(*self.keys.get(key)?).map(Run::known)
    }

    pub(super) fn start_run(&mut self, lease: &Lease, id: RunId, at: UnixMillis) -> Result<(), StoreError> {
        let active = self.lane(lease)?;
        let turn = self.thread_mut(active).turns + 1;
        let run = self.run_of(&lease.session, id).filter(|run| run.end.is_none());
        let run = run.ok_or_else(|| not_found("unfinished run", id))?;
        // Going on after a rest is no new attempt.
        run.attempt += u32::from(run.status != RunStatus::Paused);
        run.status = RunStatus::Running;
        run.started_at.get_or_insert(at);
        let (attempt, first) = (run.attempt, run.place.is_none());
        let (thread, _) = *run.place.get_or_insert((active, turn));
        if first {
            let message = Message::sent(&run.input.text, run.input.provenance.clone());
            let history = std::mem::take(&mut run.input.history);
            self.begin_turn(thread, id, history, message, at);
        }
        self.thread_mut(thread).touch(Some(ThreadState::Processing), at);
        self.push_events(&[event(lease, id, at, EventKind::RunStarted { attempt })]);
        Ok(())
    }

    pub(super) fn start_together(&mut self, lease: &Lease, together: Together) -> Result<(), StoreError> {
        self.lane(lease)?;
        let Together { run: id, text, provenance, joined, at } = together;
        self.check_joined(lease, &joined)?;
        let run = self.run_of(&lease.session, id).filter(|run| run.end.is_none() && run.place.is_none());
        let input = &mut run.ok_or_else(|| not_found("queued run", id))?.input;
        (input.text, input.provenance) = (text, provenance);
        self.start_run(lease, id, at)?;
        self.join(lease, id, joined);
        Ok(())
    }

    pub(super) fn replace_message(&mut self, lease: &Lease, edited: EditedMessage) -> Result<(), StoreError> {
        self.lane(lease)?;
        let EditedMessage { run: id, text, provenance, digest } = edited;
        let run = self.run_of(&lease.session, id).filter(|run| run.end.is_none() && run.place.is_none());
        let run = run.ok_or_else(|| not_found("queued run", id))?;
        (run.input.text, run.input.provenance, run.edited) = (text, provenance, Some(digest));
        Ok(())
    }

    pub(super) fn sent_message(&self, session: &SessionKey, message_id: &str) -> Option<SentMessage> {
        let has_it = |run: &&Run| run.session == *session && run.message_ref.as_deref() == Some(message_id);
        let run = self.runs.iter().rev().find(has_it)?;
        Some(SentMessage { known: run.known(), edited: run.edited.clone() })
    }

    fn check_joined(&mut self, lease: &Lease, joined: &[JoinedRun]) -> Result<(), StoreError> {
        let unknown = joined.iter().find(|joined| self.run_of(&lease.session, joined.run).is_none());
        unknown.map_or(Ok(()), |joined| Err(not_found("run", joined.run)))
    }

    /// Ends runs whose messages have become part of another one.
    fn join(&mut self, lease: &Lease, into: RunId, joined: Vec<JoinedRun>) {
        for JoinedRun { run: id, how, at } in joined {
            let Some(run) = self.run_of(&lease.session, id).filter(|run| run.end.is_none()) else { continue };
            let end = joined_end(into, how);
            let kind =
                EventKind::RunEnded { status: end.reason.status(), reason: end.reason, evidence: end.evidence.clone() };
            run.status = end.reason.status();
            run.state = None;
            run.end = Some(Ended { end, reply: None, at });
            self.push_events(&[event(lease, id, at, kind)]);
        }
    }

    /// Appends the first messages of a turn. What could be redone until now no longer can.
    fn begin_turn(&mut self, thread: ThreadId, run: RunId, history: Vec<Message>, message: Message, at: UnixMillis) {
        let thread = self.thread_mut(thread);
        for line in thread.messages.iter_mut().filter(|line| line.shown == Shown::Undone) {
            line.shown = Shown::Cleared;
        }
        thread.turns += 1;
        let turn = thread.turns;
        for message in history {
            thread.push(turn, None, at, Arc::new(message));
        }
        thread.push(turn, Some(run), at, Arc::new(message));
    }

    fn running(&mut self, lease: &Lease, id: RunId) -> Result<&mut Run, StoreError> {
        let run = self.run_of(&lease.session, id).filter(|run| run.status == RunStatus::Running);
        run.ok_or_else(|| not_found("running run", id))
    }

    pub(super) fn checkpoint(&mut self, lease: &Lease, checkpoint: Checkpoint) -> Result<(), StoreError> {
        self.lane(lease)?;
        let id = checkpoint.run;
        self.running(lease, id)?;
        self.check_approved(id, &checkpoint.used)?;
        self.check_joined(lease, &checkpoint.joined)?;
        checkpoint.outbound.iter().try_for_each(|message| self.check_outbound(message))?;
        self.use_up(&checkpoint.used);
        let run = self.running(lease, id)?;
        run.usage = checkpoint.usage;
        run.cost_micro_usd = checkpoint.cost_micro_usd;
        run.state = checkpoint.state.or(run.state.take());
        let started_at = run.started_at.unwrap_or_default();
        let at = checkpoint.events.iter().map(|event| event.at).max().unwrap_or(started_at);
        if let Some((thread, turn)) = run.place {
            let thread = self.thread_mut(thread);
            checkpoint.messages.into_iter().for_each(|message| thread.push(turn, Some(id), at, message));
        }
        self.push_events(&checkpoint.events);
        self.join(lease, id, checkpoint.joined);
        checkpoint.outbound.into_iter().try_for_each(|message| self.enqueue(message))
    }

    pub(super) fn finish_runs(&mut self, lease: &Lease, finished: Vec<FinishedRun>) -> Result<(), StoreError> {
        let active = self.lane(lease)?;
        for run in &finished {
            self.run_of(&lease.session, run.run).ok_or_else(|| not_found("run", run.run))?;
            if self.is_open(run.run) {
                run.said.iter().chain(&run.outbound).try_for_each(|message| self.check_outbound(message))?;
            }
        }
        for run in finished {
            self.finish_run(lease, active, run);
        }
        Ok(())
    }

    fn finish_run(&mut self, lease: &Lease, active: ThreadId, finished: FinishedRun) {
        let id = finished.run;
        let Some(run) = self.run_of(&lease.session, id).filter(|run| run.end.is_none()) else { return };
        let FinishedRun { end, at, .. } = finished;
        let kind =
            EventKind::RunEnded { status: end.reason.status(), reason: end.reason, evidence: end.evidence.clone() };
        run.status = end.reason.status();
        run.usage = finished.usage;
        run.cost_micro_usd = finished.cost_micro_usd;
        run.state = None;
        run.end = Some(Ended { end, reply: finished.reply, at });
        let place = run.place;
        if let Some((thread, turn)) = place {
            let thread = self.thread_mut(thread);
            finished.messages.into_iter().for_each(|message| thread.push(turn, Some(id), at, message));
        }
        self.thread_mut(place.map_or(active, |place| place.0)).touch(finished.thread_state, at);
        for message in finished.said.into_iter().chain(finished.outbound) {
            self.outbox.push(Delivery { message, attempts: 0, stage: Stage::Waiting(None) });
        }
        let withdrawn = self.withdraw(&lease.session, id, at);
        self.push_events(&finished.events);
        self.push_events(&withdrawn);
        self.push_events(&[event(lease, id, at, kind)]);
    }
}

fn event(lease: &Lease, run: RunId, at: UnixMillis, kind: EventKind) -> NewEvent {
    NewEvent { at, session: Some(lease.session.clone()), run_id: Some(run), kind }
}

fn not_found(what: &str, run: RunId) -> StoreError {
    StoreError::NotFound(format!("{what} {run}"))
}
