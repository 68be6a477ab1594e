//! The ports, each one operation on the state.

use std::cmp::Reverse;
use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::store::{ACTED_ON_KEPT, KnownInput, QueuedInput, RECENT_INPUTS, UnfinishedRun};
use belay_protocol::{
    Acceptance, ActedOn, Archive, BootId, Checkpoint, Conversation, Decided, EditOutcome, EditedMessage, Event,
    EventLog, EventQuery, FinishedRun, Found, Gate, GateFilter, GateId, GateState, GateStore, HistoryEntry,
    IdempotencyKey, Lease, Message, MessageBody, MessageScope, NewEvent, NewInput, Note, NoteStore, OpenedLane,
    Outbound, Outbox, OutboxId, OutboxRow, OutboxState, PausedRun, Presence, Purpose, Removed, ReplyRoute, Retention,
    RunFilter, RunId, RunOptions, RunReader, RunRecord, RunStatus, SearchQuery, SentMessage, Seq, SessionFilter,
    SessionKey, SessionLifetime, SessionSummary, SpendLedger, Spent, StoreError, ThreadEdit, ThreadId, ThreadSnapshot,
    ThreadStore, ThreadSummary, Together, TranscriptLine, TurnCut, UnixMillis,
};
use tokio::sync::watch;

use super::MemoryStore;
use super::state::{Line, Run, Shown, State};
use crate::excerpt::title;
use crate::limits::{AMOUNT_MAX_MICRO_USD, PAGE_MAX, PRESENCE_RUNS, events_limit, runs_limit};
use crate::notes;
use crate::vault::{self, SealedSecrets};

#[async_trait]
impl ThreadStore for MemoryStore {
    async fn open_lane(
        &self,
        session: &SessionKey,
        lifetime: SessionLifetime,
        owner: BootId,
        at: UnixMillis,
    ) -> Result<OpenedLane, StoreError> {
        Ok(self.with(|state| state.open_lane(session, lifetime, owner, at)))
    }

    async fn accept(&self, lease: &Lease, input: NewInput) -> Result<Acceptance, StoreError> {
        self.with(|state| state.accept(lease, input))
    }

    async fn find(&self, key: &IdempotencyKey) -> Result<Option<KnownInput>, StoreError> {
        Ok(self.lock().find(key))
    }

    async fn start_run(&self, lease: &Lease, run: RunId, at: UnixMillis) -> Result<(), StoreError> {
        self.with(|state| state.start_run(lease, run, at))
    }

    async fn start_together(&self, lease: &Lease, together: Together) -> Result<(), StoreError> {
        self.with(|state| state.start_together(lease, together))
    }

    async fn replace_message(&self, lease: &Lease, edited: EditedMessage) -> Result<(), StoreError> {
        self.with(|state| state.replace_message(lease, edited))
    }

    async fn sent_message(&self, session: &SessionKey, message_id: &str) -> Result<Option<SentMessage>, StoreError> {
        Ok(self.lock().sent_message(session, message_id))
    }

    async fn checkpoint(&self, lease: &Lease, checkpoint: Checkpoint) -> Result<(), StoreError> {
        self.with(|state| state.checkpoint(lease, checkpoint))
    }

    async fn pause_run(&self, lease: &Lease, paused: PausedRun) -> Result<(), StoreError> {
        self.with(|state| state.pause_run(lease, paused))
    }

    async fn finish_runs(&self, lease: &Lease, finished: Vec<FinishedRun>) -> Result<(), StoreError> {
        self.with(|state| state.finish_runs(lease, finished))
    }

    async fn edit_thread(&self, lease: &Lease, edit: ThreadEdit, at: UnixMillis) -> Result<EditOutcome, StoreError> {
        self.with(|state| state.edit_thread(lease, edit, at))
    }

    async fn set_options(&self, lease: &Lease, options: RunOptions) -> Result<(), StoreError> {
        self.with(|state| state.set_options(lease, options))
    }

    async fn set_loop_detection(&self, lease: &Lease, on: bool) -> Result<(), StoreError> {
        self.with(|state| state.set_loop_detection(lease, on))
    }

    async fn compact(
        &self,
        lease: &Lease,
        keep: u32,
        summary: String,
        events: Vec<NewEvent>,
    ) -> Result<(), StoreError> {
        self.with(|state| state.compact(lease, keep, summary, &events))
    }

    async fn compact_turn(&self, lease: &Lease, cut: TurnCut) -> Result<(), StoreError> {
        self.with(|state| state.compact_turn(lease, cut))
    }

    async fn note_acted_on(&self, acted_on: &ActedOn, _at: UnixMillis) -> Result<(), StoreError> {
        self.with(|state| {
            if state.acted_on.iter().all(|known| known.key != acted_on.key) {
                state.acted_on.push_back(acted_on.clone());
            }
            let too_many = state.acted_on.len().saturating_sub(ACTED_ON_KEPT);
            state.acted_on.drain(..too_many);
            Ok(())
        })
    }

    async fn acted_on(&self) -> Result<Vec<ActedOn>, StoreError> {
        Ok(self.lock().acted_on.iter().cloned().collect())
    }

    async fn recent_inputs(&self) -> Result<Vec<(IdempotencyKey, KnownInput)>, StoreError> {
        let state = self.lock();
        let newest = &state.runs[state.runs.len().saturating_sub(RECENT_INPUTS)..];
        let known = |run: &Run| Some((run.input.key.clone()?, run.known()));
        Ok(newest.iter().filter_map(known).collect())
    }

    async fn queued_inputs(&self, runs: &[RunId]) -> Result<Vec<QueuedInput>, StoreError> {
        let state = self.lock();
        let input = |run: &Run| QueuedInput {
            run_id: run.input.run_id,
            text: run.input.text.clone(),
            provenance: run.input.provenance.clone(),
            history: run.input.history.clone(),
        };
        Ok(runs.iter().filter_map(|run| state.run(*run)).map(input).collect())
    }

    async fn unfinished_runs(&self) -> Result<Vec<UnfinishedRun>, StoreError> {
        let state = self.lock();
        let mut open: Vec<_> = state.runs.iter().filter(|run| run.end.is_none()).collect();
        open.sort_by_key(|run| run.input.at); // stable: equal dates stay in the order of acceptance
        let unfinished = |run: &Run| UnfinishedRun {
            run_id: run.input.run_id,
            session: run.session.clone(),
            channel: run.input.channel.clone(),
            principal: run.input.asker.principal.clone(),
            bytes: (run.input.text.len() + run.input.history.iter().map(|line| line.text().len()).sum::<usize>())
                as u64,
            begun: matches!(run.status, RunStatus::Running | RunStatus::Paused),
        };
        Ok(open.into_iter().map(unfinished).collect())
    }
}

#[async_trait]
impl GateStore for MemoryStore {
    async fn decide(
        &self,
        id: GateId,
        state: GateState,
        always: bool,
        by: &str,
        at: UnixMillis,
    ) -> Result<Decided, StoreError> {
        self.with(|kept| kept.decide(id, state, always, by, at))
    }

    async fn gate(&self, id: GateId) -> Result<Option<Gate>, StoreError> {
        Ok(self.lock().gate(id).cloned())
    }

    async fn gates(&self, filter: GateFilter) -> Result<Vec<Gate>, StoreError> {
        Ok(self.lock().gates(&filter))
    }

    async fn gates_of(&self, run: RunId) -> Result<Vec<Gate>, StoreError> {
        Ok(self.lock().gates.iter().filter(|gate| gate.run_id == run).cloned().collect())
    }

    async fn granted(&self, session: &SessionKey, tool: &str, covers: &str) -> Result<bool, StoreError> {
        Ok(self.lock().grants.contains(&(session.clone(), tool.into(), covers.into())))
    }

    async fn forget_grants(&self, session: &SessionKey) -> Result<u32, StoreError> {
        Ok(self.with(|state| state.forget_grants(session)))
    }
}

#[async_trait]
impl RunReader for MemoryStore {
    async fn run(&self, id: RunId) -> Result<Option<RunRecord>, StoreError> {
        let state = self.lock();
        Ok(state.run(id).map(|run| state.record(run)))
    }

    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunRecord>, StoreError> {
        let state = self.lock();
        let newest = state.runs.iter().rev();
        let wanted = newest
            .filter(|run| filter.id.as_ref().is_none_or(|id| id.begins(run.input.run_id.as_uuid())))
            .filter(|run| filter.session.as_ref().is_none_or(|session| run.session == *session))
            .filter(|run| filter.status.is_none_or(|status| run.status == status));
        Ok(wanted.take(runs_limit(&filter) as usize).map(|run| state.record(run)).collect())
    }

    async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionSummary>, StoreError> {
        let state = self.lock();
        let mut sessions: Vec<_> = state.sessions.keys().filter_map(|session| summary(&state, session)).collect();
        sessions.retain(|session| filter.ephemeral || session.lifetime.is_lasting());
        sessions.sort_by(|a, b| (Reverse(a.last_active_at), &a.session).cmp(&(Reverse(b.last_active_at), &b.session)));
        sessions.truncate(filter.limit.min(PAGE_MAX) as usize);
        Ok(sessions)
    }

    async fn session(&self, key: &SessionKey) -> Result<Option<SessionSummary>, StoreError> {
        Ok(summary(&self.lock(), key))
    }

    async fn presence(&self, place: Option<&ReplyRoute>, since: UnixMillis) -> Result<Presence, StoreError> {
        let here = |run: &Run| match (place, &run.input.reply_to) {
            (None, _) => true,
            (Some(place), Some(route)) => route.channel == place.channel && route.conversation == place.conversation,
            (Some(_), None) => false,
        };
        let state = self.lock();
        let there = |run: &&Run| run.input.spoken && here(run);
        let is_open = |run: &Run| run.end.is_none() && run.status != RunStatus::Paused;
        Ok(Presence {
            at_work: state.runs.iter().filter(there).any(is_open),
            spoken: state
                .runs
                .iter()
                .rev()
                .take(PRESENCE_RUNS as usize)
                .find(there)
                .is_some_and(|run| run.input.at >= since),
        })
    }

    async fn history(&self, session: &SessionKey, after: u64, limit: u32) -> Result<Vec<HistoryEntry>, StoreError> {
        let state = self.lock();
        let active = state.sessions.get(session).and_then(|session| state.threads.get(&session.thread));
        let Some(thread) = active else { return Ok(Vec::new()) };
        let later = thread.positions().filter(|(position, _)| *position > after);
        let entries = later.filter_map(|(position, line)| entry(position, line));
        Ok(entries.take(limit.min(PAGE_MAX) as usize).collect())
    }

    async fn conversation(&self, session: &SessionKey) -> Result<Option<Conversation>, StoreError> {
        let state = self.lock();
        let Some(row) = state.sessions.get(session) else { return Ok(None) };
        let ThreadSnapshot { summary, messages, .. } = state.snapshot(row.thread);
        let newest = state.runs.iter().rev().find(|run| run.session == *session);
        Ok(Some(Conversation {
            summary,
            messages: messages.into_iter().map(|(_, message)| message).collect(),
            options: row.options.clone(),
            channel: newest.map(|run| run.input.channel.clone()),
        }))
    }

    async fn run_messages(&self, id: RunId) -> Result<Vec<Arc<Message>>, StoreError> {
        let state = self.lock();
        let threads = state.threads.values();
        let lines = threads.flat_map(|thread| thread.positions().map(|(_, line)| line));
        let own = lines.filter(|line| line.run == Some(id) && line.shown != Shown::Cleared);
        Ok(own.map(|line| line.message.clone()).collect())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

fn summary(state: &State, session: &SessionKey) -> Option<SessionSummary> {
    let thread = state.threads.get(&state.sessions.get(session)?.thread)?;
    let open = state.runs.iter().filter(|run| run.session == *session && run.end.is_none()).count();
    Some(SessionSummary {
        session: session.clone(),
        state: thread.state,
        open_runs: u32::try_from(open).unwrap_or(u32::MAX),
        last_active_at: thread.last_active_at,
        title: thread
            .positions()
            .filter_map(|(position, line)| entry(position, line))
            .find(|entry| entry.role == "user")
            .map(|entry| title(&entry.text)),
        lifetime: thread.lifetime,
    })
}

fn entry(position: u64, line: &Line) -> Option<HistoryEntry> {
    let role = match line.message.body {
        MessageBody::User { .. } => "user",
        MessageBody::Assistant { .. } => "assistant",
        MessageBody::System { .. } if line.message.is_notice() => "system",
        MessageBody::System { .. } | MessageBody::Data { .. } | MessageBody::Tool(_) => return None,
    };
    let told =
        line.shown == Shown::Visible && line.message.scope == MessageScope::Thread && !line.message.says_nothing();
    told.then(|| HistoryEntry {
        id: position,
        role: role.into(),
        text: line.message.text().to_owned(),
        run_id: line.run,
        at: line.at,
    })
}

#[async_trait]
impl Archive for MemoryStore {
    async fn search(&self, query: SearchQuery) -> Result<Vec<Found>, StoreError> {
        Ok(self.lock().search(&query))
    }

    async fn threads(&self, session: &SessionKey) -> Result<Vec<ThreadSummary>, StoreError> {
        Ok(self.lock().threads_of(session))
    }

    async fn transcript(&self, thread: ThreadId, after: u64, limit: u32) -> Result<Vec<TranscriptLine>, StoreError> {
        Ok(self.lock().transcript(thread, after, limit))
    }

    async fn delete_session(&self, lease: &Lease, at: UnixMillis) -> Result<Removed, StoreError> {
        self.with(|state| state.delete_session(lease, at))
    }

    /// All at once: nobody waits for a disk.
    async fn prune(&self, old: Retention, _most: u32) -> Result<Removed, StoreError> {
        Ok(self.with(|state| state.prune(&old)))
    }

    async fn prunable(&self, old: Retention) -> Result<Removed, StoreError> {
        Ok(self.lock().prunable(&old))
    }

    /// No earlier version has written here.
    async fn index(&self, _most: u32) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn shrink(&self, _pages: u32) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl EventLog for MemoryStore {
    async fn append(&self, events: Vec<NewEvent>) -> Result<(), StoreError> {
        self.with(|state| state.push_events(&events));
        Ok(())
    }

    async fn read(&self, query: EventQuery) -> Result<Vec<Event>, StoreError> {
        let state = self.lock();
        let later = state.events.iter().filter(|event| event.seq > query.after);
        let wanted = later.filter(|event| {
            (query.run.is_none() || event.run_id == query.run)
                && (query.session.is_none() || event.session == query.session)
        });
        Ok(wanted.take(events_limit(&query) as usize).cloned().collect())
    }

    fn tip(&self) -> watch::Receiver<Seq> {
        self.tip.subscribe()
    }
}

#[async_trait]
impl Outbox for MemoryStore {
    async fn enqueue(&self, message: Outbound) -> Result<(), StoreError> {
        self.with(|state| state.enqueue(message))
    }

    async fn due(&self, now: UnixMillis, busy: &[ReplyRoute], limit: u32) -> Result<Vec<OutboxRow>, StoreError> {
        Ok(self.lock().due(now, busy, limit))
    }

    async fn next_due(&self) -> Result<Option<UnixMillis>, StoreError> {
        Ok(self.lock().next_due())
    }

    async fn mark(&self, id: OutboxId, to: OutboxState) -> Result<(), StoreError> {
        self.with(|state| state.mark(id, to))
    }

    async fn settle_interrupted(&self) -> Result<Vec<OutboxRow>, StoreError> {
        Ok(self.with(State::settle_interrupted))
    }

    fn committed(&self) -> watch::Receiver<u64> {
        self.outbox.subscribe()
    }
}

#[async_trait]
impl NoteStore for MemoryStore {
    async fn remember(&self, session: &SessionKey, key: &str, text: &str, at: UnixMillis) -> Result<(), StoreError> {
        notes::check_size(key, text)?;
        let mut state = self.lock();
        let kept = state.notes.entry(session.clone()).or_default();
        if kept.len() >= notes::NOTES_MAX && !kept.contains_key(key) {
            return Err(notes::too_many());
        }
        kept.insert(key.into(), Note { key: key.into(), text: text.into(), at });
        Ok(())
    }

    async fn recall(&self, session: &SessionKey, query: &str, limit: u32) -> Result<Vec<Note>, StoreError> {
        let kept: Vec<Note> =
            self.lock().notes.get(session).map(|kept| kept.values().cloned().collect()).unwrap_or_default();
        Ok(notes::rank(kept, query, limit))
    }
}

#[async_trait]
impl SpendLedger for MemoryStore {
    async fn spent(&self, utc_day: i64) -> Result<Spent, StoreError> {
        let mut spent = Spent::default();
        let state = self.lock();
        let of_day = state.reservations.iter().filter(|(day, ..)| *day == utc_day);
        of_day.for_each(|(_, purpose, amount)| spent.add(*purpose, *amount));
        Ok(spent)
    }

    async fn session_spent(&self, session: &SessionKey) -> Result<u64, StoreError> {
        let state = self.lock();
        let costs = state.runs.iter().filter(|run| run.session == *session).map(|run| run.cost_micro_usd);
        Ok(costs.fold(0, u64::saturating_add))
    }

    async fn reserve(&self, _run: RunId, purpose: Purpose, utc_day: i64, micro_usd: u64) -> Result<u64, StoreError> {
        let mut state = self.lock();
        state.reservations.push((utc_day, purpose, micro_usd.min(AMOUNT_MAX_MICRO_USD)));
        Ok(state.reservations.len() as u64)
    }

    async fn settle(&self, reservation: u64, micro_usd: u64) -> Result<(), StoreError> {
        let mut state = self.lock();
        let place = usize::try_from(reservation).unwrap_or(usize::MAX).wrapping_sub(1);
        let found = state.reservations.get_mut(place);
        let (.., amount) = found.ok_or_else(|| StoreError::NotFound(format!("reservation {reservation}")))?;
        *amount = micro_usd.min(AMOUNT_MAX_MICRO_USD);
        Ok(())
    }
}

#[async_trait]
impl SealedSecrets for MemoryStore {
    async fn put_sealed(
        &self,
        session: &SessionKey,
        name: &str,
        sealed: Vec<u8>,
        _at: UnixMillis,
    ) -> Result<(), StoreError> {
        let mut state = self.lock();
        let kept = state.secrets.entry(session.clone()).or_default();
        if kept.len() >= vault::SECRETS_MAX && !kept.contains_key(name) {
            return Err(vault::too_many());
        }
        kept.insert(name.into(), sealed);
        Ok(())
    }

    async fn sealed(&self, session: &SessionKey, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.lock().secrets.get(session).and_then(|kept| kept.get(name)).cloned())
    }

    async fn remove_sealed(&self, session: &SessionKey, name: &str) -> Result<bool, StoreError> {
        Ok(self.lock().secrets.get_mut(session).is_some_and(|kept| kept.remove(name).is_some()))
    }

    async fn remove_all_sealed(&self, session: &SessionKey) -> Result<u32, StoreError> {
        let removed = self.lock().secrets.remove(session).map_or(0, |kept| kept.len());
        Ok(u32::try_from(removed).unwrap_or(u32::MAX))
    }
}
