//! Finding, reading out and deleting: by looking through everything.

use std::cmp::Reverse;
use std::collections::HashSet;

use belay_protocol::archive::KEYS_KEPT_MS;
use belay_protocol::{
    Found, Lease, MessageBody, MessageScope, Removed, Retention, RunId, SearchQuery, SessionKey, SessionLifetime,
    StoreError, ThreadId, ThreadSummary, TranscriptLine, UnixMillis, firing_session, job_session,
};

use super::state::{Line, Run, Shown, Stage, State, Thread};
use crate::excerpt::{hits, snippet};
use crate::limits::{PAGE_MAX, deleted, id_before, search_limit};

impl State {
    pub(super) fn search(&self, query: &SearchQuery) -> Vec<Found> {
        let terms = query.terms();
        let wanted = |thread: &&(ThreadId, &Thread)| query.session.as_ref().is_none_or(|key| thread.1.session == *key);
        let threads: Vec<_> = self.threads.iter().map(|(id, thread)| (*id, thread)).collect();
        let mut found: Vec<(usize, Found)> = Vec::new();
        for (id, thread) in threads.iter().filter(wanted) {
            for (position, line) in thread.positions().filter(|(_, line)| line.shows()) {
                let role = match line.message.body {
                    MessageBody::User { .. } => "user",
                    MessageBody::Assistant { .. } => "assistant",
                    MessageBody::System { .. } | MessageBody::Data { .. } | MessageBody::Tool(_) => continue,
                };
                let Some(hits) = hits(line.message.text(), &terms) else { continue };
                let hit = Found {
                    session: thread.session.clone(),
                    thread: *id,
                    id: position,
                    role: role.into(),
                    snippet: snippet(line.message.text(), &terms),
                    run_id: line.run,
                    at: line.at,
                };
                found.push((hits, hit));
            }
        }
        found.sort_by_key(|(hits, hit)| (Reverse(*hits), Reverse(hit.at), Reverse(hit.id)));
        found.into_iter().take(search_limit(query) as usize).map(|(_, hit)| hit).collect()
    }

    pub(super) fn threads_of(&self, session: &SessionKey) -> Vec<ThreadSummary> {
        let active = self.sessions.get(session).map(|row| row.thread);
        let own = self.threads.iter().filter(|(_, thread)| thread.session == *session);
        let mut threads: Vec<_> = own
            .map(|(id, thread)| ThreadSummary {
                thread: *id,
                state: thread.state,
                active: active == Some(*id),
                last_active_at: thread.last_active_at,
                summary: thread.summary.clone(),
            })
            .collect();
        threads.sort_by_key(|thread| (thread.active, thread.last_active_at, thread.thread));
        threads
    }

    pub(super) fn transcript(&self, thread: ThreadId, after: u64, limit: u32) -> Vec<TranscriptLine> {
        let Some(thread) = self.threads.get(&thread) else { return Vec::new() };
        let shown = thread.positions().filter(|(position, line)| *position > after && line.shows());
        let lines =
            shown.map(|(id, line)| TranscriptLine { id, run_id: line.run, at: line.at, message: line.message.clone() });
        lines.take(limit.min(PAGE_MAX) as usize).collect()
    }

    pub(super) fn delete_session(&mut self, lease: &Lease, at: UnixMillis) -> Result<Removed, StoreError> {
        self.lane(lease)?;
        let session = &lease.session;
        if self.runs.iter().any(|run| run.session == *session && run.end.is_none()) {
            let what = format!("{session} has a message that is still being answered: stop it first");
            return Err(StoreError::TooMuch(what));
        }
        self.push_events(&[deleted(session, at)]);
        let mut removed = Removed { sessions: 1, ..Removed::default() };
        let own = self.runs.iter().filter(|run| run.session == *session);
        let places: Vec<_> = own.filter_map(|run| run.input.reply_to.clone()).collect();
        removed.replies = self.forget_replies(|delivery| {
            let route = &delivery.message.route;
            let here = places.iter().any(|it| it.channel == route.channel && it.conversation == route.conversation);
            delivery.message.run_id.is_none() && here
        });
        let threads: Vec<_> = self.threads_of(session).into_iter().map(|thread| thread.thread).collect();
        for thread in threads {
            self.delete_thread(thread, keys_before(at), &mut removed);
        }
        let loose: Vec<_> =
            self.runs.iter().filter(|run| run.session == *session && !run.input.text.is_empty()).collect();
        let loose: Vec<_> = loose.into_iter().map(|run| run.input.run_id).collect();
        loose.into_iter().for_each(|run| self.delete_run(run, keys_before(at), &mut removed));
        removed.events += self.forget_facts_of(session);
        removed.notes = self.notes.remove(session).map_or(0, |notes| notes.len() as u64);
        removed.secrets = self.secrets.remove(session).map_or(0, |secrets| secrets.len() as u64);
        self.end_session(session);
        Ok(removed)
    }

    pub(super) fn prune(&mut self, old: &Retention) -> Removed {
        let mut removed = Removed::default();
        if let Some(before) = old.ephemeral_before {
            self.prune_ephemeral(before, old.keys_before, &mut removed);
        }
        if let Some(before) = old.threads_before {
            self.delete_old_threads(before, |_| true, old.keys_before, &mut removed);
            let before = id_before(before);
            removed.replies += self.forget_replies(|delivery| {
                delivery.message.run_id.is_none() && delivery.message.id.to_string() < before
            });
        }
        for run in self.loose_runs(old) {
            self.delete_run(run, old.keys_before, &mut removed);
        }
        if let Some(before) = old.ended_firings_before {
            let of_firings: HashSet<_> = self.routines.sessions_ended_before(before).collect();
            self.delete_old_threads(before, |session| of_firings.contains(session), old.keys_before, &mut removed);
        }
        self.forget_work(old, &mut removed);
        if let Some(before) = old.events_before {
            let first_kept = self.events.iter().position(|event| event.at >= before);
            let gone = first_kept.unwrap_or(self.events.len().saturating_sub(1));
            removed.events += self.events.drain(..gone).len() as u64;
        }
        removed
    }

    /// Deletes the threads that are too old, of these sessions.
    fn delete_old_threads(
        &mut self,
        before: UnixMillis,
        of: impl Fn(&SessionKey) -> bool,
        keys_before: UnixMillis,
        removed: &mut Removed,
    ) {
        for (thread, ended) in self.too_old(before, of) {
            if let Some(session) = ended {
                removed.sessions += 1;
                removed.events += self.forget_facts_of(&session);
                self.end_session(&session);
            }
            self.delete_thread(thread, keys_before, removed);
        }
    }

    /// Deletes ephemeral sessions that were used last before the date.
    fn prune_ephemeral(&mut self, before: UnixMillis, keys_before: UnixMillis, removed: &mut Removed) {
        let ephemeral = self.threads.iter().filter(|(_, thread)| thread.lifetime == SessionLifetime::Ephemeral);
        let used = ephemeral.clone().filter(|(_, thread)| thread.last_active_at >= before);
        let used: HashSet<_> = used.map(|(_, thread)| thread.session.clone()).collect();
        let old =
            ephemeral.filter(|(_, thread)| !used.contains(&thread.session) && !self.in_use(&thread.session, before));
        let old: Vec<_> = old.map(|(id, thread)| (*id, thread.session.clone())).collect();
        for (id, session) in old {
            if self.sessions.get(&session).is_some_and(|row| row.thread == id) {
                removed.sessions += 1;
                removed.notes += self.notes.remove(&session).map_or(0, |notes| notes.len() as u64);
                removed.secrets += self.secrets.remove(&session).map_or(0, |secrets| secrets.len() as u64);
                let own = self.runs.iter().filter(|run| run.session == session && run.place.is_none());
                let loose = own.filter(|run| !run.input.text.is_empty() || run.input.key.is_none());
                let loose: Vec<_> = loose.map(|run| run.input.run_id).collect();
                loose.into_iter().for_each(|run| self.delete_run(run, keys_before, removed));
                removed.events += self.forget_facts_of(&session);
                self.end_session(&session);
            }
            self.delete_thread(id, keys_before, removed);
        }
    }

    /// Whether a session was opened since the date, has a run that has not ended or a message that is not delivered, or waits
    /// for a job.
    fn in_use(&self, session: &SessionKey, since: UnixMillis) -> bool {
        let own = |run: &&Run| run.session == *session;
        let runs: HashSet<_> = self.runs.iter().filter(own).map(|run| Some(run.input.run_id)).collect();
        self.sessions.get(session).is_some_and(|row| row.opened_at >= since)
            || self.runs.iter().filter(own).any(|run| run.end.is_none())
            || self.outbox.iter().any(|it| it.stage != Stage::Over && runs.contains(&it.message.run_id))
            || self.jobs.works_for(session)
    }

    /// What a prune would delete: what it deletes of a copy.
    pub(super) fn prunable(&self, old: &Retention) -> Removed {
        let mut copy = self.clone();
        Removed { run_ids: Vec::new(), ..copy.prune(old) }
    }

    /// Threads used last before the date, by nobody opened since, and without a run that has not ended; with the session
    /// where it is the active one.
    fn too_old(&self, before: UnixMillis, of: impl Fn(&SessionKey) -> bool) -> Vec<(ThreadId, Option<SessionKey>)> {
        let open = |of: &dyn Fn(&Run) -> bool| self.runs.iter().any(|run| run.end.is_none() && of(run));
        let mut old: Vec<_> =
            self.threads.iter().filter(|(_, it)| it.last_active_at < before && of(&it.session)).collect();
        old.sort_by_key(|(id, thread)| (thread.last_active_at, **id));
        let spared =
            |id: ThreadId, session: &SessionKey| match self.sessions.get(session).filter(|row| row.thread == id) {
                Some(row) => row.opened_at >= before || open(&|run| run.session == *session),
                None => open(&|run| run.place.is_some_and(|place| place.0 == id)),
            };
        let gone = old.into_iter().filter(|(id, thread)| !spared(**id, &thread.session));
        gone.map(|(id, thread)| {
            let active = self.sessions.get(&thread.session).is_some_and(|row| row.thread == *id);
            (*id, active.then(|| thread.session.clone()))
        })
        .collect()
    }

    fn loose_runs(&self, old: &Retention) -> Vec<RunId> {
        let loose = self.runs.iter().filter(|run| run.place.is_none()).filter(|run| {
            let Some(end) = &run.end else { return false };
            let words = !run.input.text.is_empty();
            let by_age = old.threads_before.is_some_and(|before| end.at < before);
            by_age && (words || run.input.key.is_none()) || !words && run.input.at < old.keys_before
        });
        loose.map(|run| run.input.run_id).collect()
    }

    /// Deletes jobs and firings that ended before their dates. Their sessions go by their own age, and before them.
    fn forget_work(&mut self, old: &Retention, removed: &mut Removed) {
        let jobs = old.threads_before.map(|before| self.jobs.over_before(before, old.keys_before));
        for job in jobs.into_iter().flatten() {
            let session = job_session(job);
            if !self.sessions.contains_key(&session) {
                self.jobs.forget(job);
                removed.jobs += 1;
                removed.events += self.forget_facts_of(&session);
            }
        }
        let firings = old.firings_before().map(|before| self.routines.ended_before(before, old.keys_before));
        for firing in firings.into_iter().flatten() {
            let session = firing_session(firing);
            if !self.sessions.contains_key(&session) {
                self.routines.forget(firing);
                removed.firings += 1;
                removed.events += self.forget_facts_of(&session);
            }
        }
    }

    fn end_session(&mut self, session: &SessionKey) {
        self.grants.retain(|(owner, ..)| owner != session);
        self.sessions.remove(session);
    }

    fn delete_thread(&mut self, id: ThreadId, keys_before: UnixMillis, removed: &mut Removed) {
        let Some(thread) = self.threads.remove(&id) else { return };
        removed.threads += 1;
        removed.messages += thread.messages.len() as u64;
        let own = self.runs.iter().filter(|run| run.place.is_some_and(|place| place.0 == id));
        let runs: Vec<_> = own.map(|run| run.input.run_id).collect();
        runs.into_iter().for_each(|run| self.delete_run(run, keys_before, removed));
    }

    /// Deletes a run with all that names it. Its key stays until it may go.
    fn delete_run(&mut self, id: RunId, keys_before: UnixMillis, removed: &mut Removed) {
        removed.runs += 1;
        removed.run_ids.push(id);
        removed.events += self.forget_events(|run, _| run == Some(id));
        self.gates.retain(|gate| gate.run_id != id);
        removed.replies += self.forget_replies(|delivery| delivery.message.run_id == Some(id));
        let Some(place) = self.run_places.get(&id).copied() else { return };
        let run = &mut self.runs[place];
        if run.input.key.is_some() && run.input.at >= keys_before {
            run.strip();
            return;
        }
        let run = self.runs.remove(place);
        run.input.key.iter().for_each(|key| {
            self.keys.remove(key);
        });
        self.run_places = self.runs.iter().enumerate().map(|(place, run)| (run.input.run_id, place)).collect();
    }

    /// Facts of a session that are no run's.
    fn forget_facts_of(&mut self, session: &SessionKey) -> u64 {
        self.forget_events(|run, of| run.is_none() && of == Some(session))
    }

    /// The newest fact stays, so that numbers never go back.
    fn forget_events(&mut self, is: impl Fn(Option<RunId>, Option<&SessionKey>) -> bool) -> u64 {
        let (before, newest) = (self.events.len(), self.events.last().map(|event| event.seq));
        self.events.retain(|event| Some(event.seq) == newest || !is(event.run_id, event.session.as_ref()));
        (before - self.events.len()) as u64
    }

    fn forget_replies(&mut self, is: impl Fn(&super::state::Delivery) -> bool) -> u64 {
        let before = self.outbox.len();
        self.outbox.retain(|delivery| delivery.stage != Stage::Over || !is(delivery));
        (before - self.outbox.len()) as u64
    }
}

fn keys_before(at: UnixMillis) -> UnixMillis {
    UnixMillis(at.0.saturating_sub(KEYS_KEPT_MS))
}

impl Line {
    /// Whether it is part of the conversation as people see it.
    fn shows(&self) -> bool {
        self.shown == Shown::Visible && self.message.scope == MessageScope::Thread
    }
}

impl Run {
    /// Leaves what recognises a second delivery.
    fn strip(&mut self) {
        self.place = None;
        self.input.text.clear();
        self.input.reply_to = None;
        self.input.options = belay_protocol::RunOptions::default();
        if let Some(end) = &mut self.end {
            end.reply = None;
            end.end.evidence.clear();
        }
    }
}
