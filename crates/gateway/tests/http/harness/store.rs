//! Stand-ins for the store: runs, facts and history in memory, and an archive with one session.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use belay_protocol::run::RunUsage;
use belay_protocol::*;
use serde_json::Map;
use tokio::sync::watch;

use super::NOW;

/// Runs, facts and history in memory.
#[derive(Default)]
pub(crate) struct FakeStore {
    runs: Mutex<Vec<RunRecord>>,
    facts: Mutex<Vec<Event>>,
    pub(super) approvals: Mutex<Vec<ApprovalRequest>>,
    /// The texts of the people, by session.
    pub(super) asked: Mutex<Vec<(SessionKey, String)>>,
    /// Texts before tool calls, by run.
    before: Mutex<Vec<(RunId, Message)>>,
    /// What clients want to read again, by run.
    notes: Mutex<Vec<(RunId, ClientNote)>>,
    /// Sessions that were created for one request.
    pub(super) ephemeral: Mutex<HashSet<SessionKey>>,
    /// Sessions that lists leave out.
    hidden: Mutex<HashSet<SessionKey>>,
    /// How lists shall show sessions, in the order of the requests.
    changes: Mutex<Vec<(SessionKey, SessionChange)>>,
    tip: watch::Sender<Seq>,
    pub(crate) broken: AtomicBool,
    /// Whether it stays broken until the daemon has ended.
    pub(crate) lost: AtomicBool,
    /// Whether a run that is read never comes, and how many wait for one.
    pub(crate) stalled: AtomicBool,
    pub(crate) stuck: AtomicI64,
    /// Whether everybody else comes first when facts are read.
    pub(crate) slow: AtomicBool,
    /// Held while nobody may read facts.
    reading: tokio::sync::RwLock<()>,
    /// Whether the tip stays where it is, as while another node commits.
    pub(crate) lags: AtomicBool,
    /// Whether the questions of a run cannot be read.
    pub(crate) hides_questions: AtomicBool,
    /// How often a run, the facts of a run, and the newest number were read.
    pub(crate) run_reads: AtomicU64,
    pub(crate) run_fact_reads: AtomicU64,
    pub(crate) newest_reads: AtomicU64,
}

impl FakeStore {
    /// Takes the changes of how lists show sessions since the last time.
    pub(crate) fn take_changes(&self) -> Vec<(SessionKey, SessionChange)> {
        std::mem::take(&mut *self.changes.lock().unwrap())
    }

    /// Changes how lists show a session.
    pub(crate) fn change(&self, session: &SessionKey, change: SessionChange) {
        if let Some(hidden) = change.hidden {
            let mut all = self.hidden.lock().unwrap();
            all.retain(|key| key != session);
            all.extend(hidden.then(|| session.clone()));
        }
        self.changes.lock().unwrap().push((session.clone(), change));
    }

    pub(crate) fn put(&self, record: RunRecord) {
        let mut runs = self.runs.lock().unwrap();
        runs.retain(|run| run.run_id != record.run_id);
        runs.push(record);
    }

    /// A text of a run before its reply.
    pub(crate) fn said_before(&self, run: RunId, text: &str) {
        self.wrote(run, Message::assistant(text));
    }

    /// A message of a run before its reply.
    pub(super) fn wrote(&self, run: RunId, message: Message) {
        self.before.lock().unwrap().push((run, message));
    }

    pub(super) fn keep_notes(&self, run: RunId, notes: impl IntoIterator<Item = ClientNote>) {
        self.notes.lock().unwrap().extend(notes.into_iter().map(|note| (run, note)));
    }

    pub(super) fn last_note(&self, run: RunId) -> Option<ClientNote> {
        self.notes.lock().unwrap().iter().rfind(|(of, _)| *of == run).map(|(_, note)| note.clone())
    }

    pub(crate) fn remove(&self, run: RunId) {
        self.runs.lock().unwrap().retain(|record| record.run_id != run);
    }

    pub(crate) fn fact(&self, run: &RunRecord, kind: EventKind) {
        self.commit(run.session.clone(), Some(run.run_id), kind);
    }

    pub(crate) fn notice(&self, session: &str, text: &str) {
        self.commit(session.into(), None, EventKind::Notice { text: text.into() });
    }

    fn commit(&self, session: SessionKey, run_id: Option<RunId>, kind: EventKind) {
        let mut facts = self.facts.lock().unwrap();
        let seq = Seq(facts.len() as u64 + 1);
        facts.push(Event { seq, at: UnixMillis(NOW), session: Some(session), run_id, kind });
        drop(facts);
        if !self.lags.load(Ordering::Relaxed) {
            self.tip.send_replace(seq);
        }
    }

    /// Reads of facts wait until the guard is dropped.
    pub(crate) async fn hold_reads(&self) -> tokio::sync::RwLockWriteGuard<'_, ()> {
        self.reading.write().await
    }

    /// The tip follows the facts again.
    pub(crate) fn catch_up(&self) {
        self.lags.store(false, Ordering::Relaxed);
        let newest = Seq(self.facts.lock().unwrap().len() as u64);
        self.tip.send_replace(newest);
    }

    /// The progress of a run that its events show.
    pub(crate) fn progress(&self, run: RunId, runs_in: RunsIn) -> JobProgress {
        let mut progress = JobProgress::running_in(runs_in);
        for fact in self.facts.lock().unwrap().iter().filter(|fact| fact.run_id == Some(run)) {
            progress.take(fact.at, fact.kind.clone());
        }
        progress
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.broken.load(Ordering::Relaxed) { Err(StoreError::Unavailable("disk full".into())) } else { Ok(()) }
    }
}

/// The rows behind the one with the id of a cursor.
pub(crate) fn older<T, I: PartialEq>(
    rows: impl Iterator<Item = T>,
    before: Option<I>,
    id: impl Fn(&T) -> I,
) -> Result<Vec<T>, StoreError> {
    let Some(before) = before else { return Ok(rows.collect()) };
    let mut rows = rows.skip_while(|row| id(row) != before);
    rows.next().ok_or_else(|| StoreError::InvalidCursor("there is no such row any more".into()))?;
    Ok(rows.collect())
}

#[async_trait]
impl RunReader for FakeStore {
    async fn run(&self, id: RunId) -> Result<Option<RunRecord>, StoreError> {
        self.check()?;
        self.run_reads.fetch_add(1, Ordering::Relaxed);
        if self.stalled.load(Ordering::Relaxed) {
            self.stuck.fetch_add(1, Ordering::Relaxed);
            return std::future::pending().await;
        }
        Ok(self.runs.lock().unwrap().iter().find(|run| run.run_id == id).cloned())
    }
    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunRecord>, StoreError> {
        self.check()?;
        let runs = self.runs.lock().unwrap();
        let fits = |run: &&RunRecord| {
            filter.session.as_ref().is_none_or(|key| *key == run.session)
                && (filter.statuses.is_empty() || filter.statuses.contains(&run.status))
                && (filter.reasons.is_empty() || run.reason.is_some_and(|reason| filter.reasons.contains(&reason)))
                && filter.since.is_none_or(|since| run.accepted_at >= since)
                && filter.until.is_none_or(|until| run.accepted_at < until)
        };
        let rows = older(runs.iter().rev(), filter.before, |run| run.run_id)?;
        Ok(rows.into_iter().filter(fits).take(filter.limit as usize).cloned().collect())
    }
    async fn run_messages(&self, id: RunId) -> Result<Vec<Arc<Message>>, StoreError> {
        let before = self.before.lock().unwrap().clone();
        let before = before.into_iter().filter(|(run, _)| *run == id).map(|(_, message)| message);
        let reply = self.run(id).await?.and_then(|run| run.reply).map(Message::assistant);
        Ok(before.chain(reply).map(Arc::new).collect())
    }
    async fn client_notes(&self, id: RunId) -> Result<Vec<ClientNote>, StoreError> {
        let notes = self.notes.lock().unwrap();
        Ok(notes.iter().filter(|(run, _)| *run == id).map(|(_, note)| note.clone()).collect())
    }
}

#[async_trait]
impl SessionReader for FakeStore {
    async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionSummary>, StoreError> {
        self.check()?;
        let mut seen: Vec<SessionSummary> = Vec::new();
        for run in self.runs.lock().unwrap().iter() {
            let lifetime = match self.ephemeral.lock().unwrap().contains(&run.session) {
                true => SessionLifetime::Ephemeral,
                false => SessionLifetime::Lasting,
            };
            if !filter.ephemeral && !lifetime.is_lasting() {
                continue;
            }
            if !seen.iter().any(|summary| summary.session == run.session) {
                seen.push(SessionSummary {
                    session: run.session.clone(),
                    state: ThreadState::Idle,
                    open_runs: 0,
                    last_active_at: UnixMillis(NOW),
                    title: None,
                    lifetime,
                    hidden: self.hidden.lock().unwrap().contains(&run.session),
                });
            }
        }
        seen.retain(|summary| filter.since.is_none_or(|since| summary.last_active_at >= since));
        seen.retain(|summary| summary.hidden == filter.hidden);
        let mut seen =
            older(seen.into_iter(), filter.after.map(|after| after.session), |summary| summary.session.clone())?;
        seen.truncate(filter.limit as usize);
        Ok(seen)
    }
    async fn history(&self, session: &SessionKey, after: u64, limit: u32) -> Result<Vec<HistoryEntry>, StoreError> {
        self.check()?;
        let runs = self.runs.lock().unwrap();
        let entry = |(at, run): (usize, &RunRecord)| HistoryEntry {
            id: at as u64 + 1,
            role: "assistant".into(),
            text: run.reply.clone().unwrap_or_default(),
            run_id: Some(run.run_id),
            at: run.accepted_at,
            files: Vec::new(),
        };
        let own = runs.iter().filter(|run| run.session == *session).enumerate().map(entry);
        Ok(own.filter(|entry| entry.id > after).take(limit as usize).collect())
    }
    async fn session(&self, key: &SessionKey) -> Result<Option<SessionSummary>, StoreError> {
        for hidden in [false, true] {
            let listed = self.sessions(SessionFilter { hidden, ..SessionFilter::all(u32::MAX) }).await?;
            if let Some(found) = listed.into_iter().find(|summary| summary.session == *key) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
    async fn recent_history(&self, session: &SessionKey, limit: u32) -> Result<Vec<HistoryEntry>, StoreError> {
        let asked = self.asked.lock().unwrap().clone();
        let asked = asked.into_iter().filter(|(key, _)| key == session).map(|(_, text)| HistoryEntry {
            id: 0,
            role: "user".into(),
            text,
            run_id: None,
            at: UnixMillis(NOW),
            files: Vec::new(),
        });
        let mut history: Vec<HistoryEntry> = asked.collect();
        let line = |(run, message): (RunId, Message)| HistoryEntry {
            id: 0,
            role: "assistant".into(),
            text: message.text().to_owned(),
            run_id: Some(run),
            at: UnixMillis(NOW),
            files: Vec::new(),
        };
        let said = self.before.lock().unwrap().clone().into_iter();
        let said = said.filter(|(_, message)| matches!(message.body, MessageBody::Assistant { .. }));
        history.extend(said.map(line));
        history.extend(self.history(session, 0, u32::MAX).await?);
        Ok(history.split_off(history.len().saturating_sub(limit as usize)))
    }
    async fn principals(&self, filter: PrincipalFilter) -> Result<Vec<KnownPrincipal>, StoreError> {
        let known = (0..7).map(|n| KnownPrincipal {
            channel: "telegram".into(),
            id: format!("{n}"),
            name: None,
            first_seen_at: UnixMillis(NOW),
            last_seen_at: UnixMillis(NOW - n),
        });
        let known = known.filter(|known| filter.since.is_none_or(|since| known.last_seen_at >= since));
        let known = older(known, filter.after.map(|after| after.id), |known| known.id.clone())?;
        Ok(known.into_iter().take(filter.limit as usize).collect())
    }
}

#[async_trait]
impl StoreHealth for FakeStore {
    async fn ping(&self) -> Result<(), StoreError> {
        self.check()
    }
    fn trouble(&self) -> Option<String> {
        self.lost.load(Ordering::Relaxed).then(|| "the file was deleted".to_owned())
    }
}

#[async_trait]
impl EventLog for FakeStore {
    async fn append(&self, _events: Vec<NewEvent>) -> Result<(), StoreError> {
        self.check()
    }
    async fn read(&self, query: EventQuery) -> Result<Vec<Event>, StoreError> {
        self.check()?;
        self.run_fact_reads.fetch_add(query.run.is_some().into(), Ordering::Relaxed);
        if self.slow.load(Ordering::Relaxed) {
            for _ in 0..64 {
                tokio::task::yield_now().await;
            }
        }
        let _may_read = self.reading.read().await;
        let facts = self.facts.lock().unwrap();
        let fits = |fact: &&Event| {
            fact.seq > query.after
                && query.run.is_none_or(|run| fact.run_id == Some(run))
                && query.session.as_ref().is_none_or(|session| fact.session.as_ref() == Some(session))
        };
        Ok(facts.iter().filter(fits).take(query.limit as usize).cloned().collect())
    }
    fn tip(&self) -> watch::Receiver<Seq> {
        self.tip.subscribe()
    }
    async fn newest(&self) -> Result<Seq, StoreError> {
        self.check()?;
        self.newest_reads.fetch_add(1, Ordering::Relaxed);
        Ok(Seq(self.facts.lock().unwrap().len() as u64))
    }
}

#[async_trait]
impl ApprovalStore for FakeStore {
    async fn remind(&self, _id: ApprovalId, _reminder: Outbound, _at: UnixMillis) -> Result<bool, StoreError> {
        panic!("the routes remind nobody")
    }

    async fn first_yes(
        &self,
        _id: ApprovalId,
        _second: SecondYes,
        _expires_at: UnixMillis,
        _question: Option<Outbound>,
    ) -> Result<Decided, StoreError> {
        panic!("the lane stores first approvals")
    }

    async fn decide(
        &self,
        id: ApprovalId,
        state: ApprovalState,
        _always: Option<Authority>,
        by: &str,
        at: UnixMillis,
    ) -> Result<Decided, StoreError> {
        let mut approvals = self.approvals.lock().unwrap();
        let Some(approval) = approvals.iter_mut().find(|approval| approval.id == id) else {
            return Ok(Decided::Unknown);
        };
        if approval.state != ApprovalState::Waiting {
            return Ok(Decided::Before(Box::new(approval.clone())));
        }
        (approval.state, approval.decided_by, approval.decided_at) = (state, Some(by.into()), Some(at));
        Ok(Decided::Now(Box::new(approval.clone())))
    }
    async fn approval(&self, id: ApprovalId) -> Result<Option<ApprovalRequest>, StoreError> {
        self.check()?;
        Ok(self.approvals.lock().unwrap().iter().find(|approval| approval.id == id).cloned())
    }
    async fn approvals(&self, filter: ApprovalFilter) -> Result<Vec<ApprovalRequest>, StoreError> {
        self.check()?;
        let approvals = self.approvals.lock().unwrap();
        let fits = |approval: &&ApprovalRequest| {
            filter.session.as_ref().is_none_or(|key| *key == approval.session)
                && (!filter.waiting || approval.state == ApprovalState::Waiting)
                && filter.since.is_none_or(|since| approval.asked_at >= since)
        };
        let rows = older(approvals.iter().rev(), filter.before, |approval| approval.id)?;
        Ok(rows.into_iter().filter(fits).take(filter.limit as usize).cloned().collect())
    }
    async fn approvals_of(&self, run: RunId) -> Result<Vec<ApprovalRequest>, StoreError> {
        if self.hides_questions.load(Ordering::Relaxed) {
            return Err(StoreError::Unavailable("disk full".into()));
        }
        Ok(self.approvals.lock().unwrap().iter().filter(|approval| approval.run_id == run).cloned().collect())
    }
    async fn granted(&self, _: &SessionKey, _tool: &str, _covers: &str, _work_for: &Asker) -> Result<bool, StoreError> {
        Ok(false)
    }
    async fn forget_grants(&self, _session: &SessionKey) -> Result<u32, StoreError> {
        Ok(0)
    }
}

pub(crate) fn blank() -> RunRecord {
    RunRecord {
        run_id: RunId::new(),
        session: "s".into(),
        status: RunStatus::Running,
        reason: None,
        evidence: Map::new(),
        reply: None,
        usage: RunUsage::default(),
        cost_micro_usd: 0,
        attempt: 1,
        accepted_at: UnixMillis(NOW),
        started_at: Some(UnixMillis(NOW)),
        ended_at: None,
        waiting_for: None,
        files: Vec::new(),
    }
}

/// An archive with one session, `kept`, of 201 messages. It finds one message with `tea`, and seven with `cake`, of which
/// every second one is in the session of a job that does not exist.
#[derive(Default)]
pub(crate) struct FakeArchive {
    /// Records the changes of how lists show sessions; `None`: there must be none.
    pub(super) store: Option<Arc<FakeStore>>,
}

/// The only thread there is.
fn kept_thread() -> ThreadId {
    "01890000-0000-7000-8000-000000000002".parse().unwrap()
}

#[async_trait]
impl Archive for FakeArchive {
    async fn search(&self, query: SearchQuery) -> Result<Vec<Found>, StoreError> {
        let hit = |session: SessionKey, id| Found {
            session,
            thread: kept_thread(),
            id,
            role: "user".into(),
            snippet: "a cup of tea".into(),
            run_id: None,
            at: UnixMillis(NOW),
        };
        let cake = |id: u64| hit(["kept", "job:01890000-0000-7000-8000-000000000009"][(id % 2) as usize].into(), id);
        let kept = query.session.clone().unwrap_or_else(|| "kept".into());
        let hits = match query.terms().join(" ").as_str() {
            "tea" => vec![hit(kept, u64::from(query.limit))],
            "cake" => (0..7).map(cake).collect(),
            _ => vec![],
        };
        Ok(hits.into_iter().skip(query.skip as usize).take(query.limit as usize).collect())
    }
    async fn threads(&self, session: &SessionKey) -> Result<Vec<ThreadSummary>, StoreError> {
        let thread = ThreadSummary {
            thread: kept_thread(),
            state: ThreadState::Idle,
            active: true,
            last_active_at: UnixMillis(NOW),
            summary: None,
        };
        Ok(if session.as_str() == "kept" { vec![thread] } else { vec![] })
    }
    async fn change_session(&self, session: &SessionKey, change: SessionChange) -> Result<(), StoreError> {
        self.store.as_ref().expect("a store").change(session, change);
        Ok(())
    }
    async fn transcript(&self, _thread: ThreadId, after: u64, limit: u32) -> Result<Vec<TranscriptLine>, StoreError> {
        let line = |id: u64| TranscriptLine {
            id,
            run_id: None,
            at: UnixMillis(NOW),
            message: Arc::new(Message::user(format!("line {id}"))),
        };
        Ok((after + 1..=201).take(limit as usize).map(line).collect())
    }
    async fn delete_session(&self, _lease: &Lease, _at: UnixMillis) -> Result<Removed, StoreError> {
        panic!("a session is deleted by its lane")
    }
    async fn prune(&self, _old: Retention, _most: u32) -> Result<Removed, StoreError> {
        panic!("the janitor does that")
    }
    async fn prunable(&self, _old: Retention) -> Result<Removed, StoreError> {
        panic!("the janitor does that")
    }
    async fn shrink(&self, _pages: u32) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Two notes: number 1 is of the holder of the token, number 2 of a person on Telegram.
pub(super) struct FakeNotes(Mutex<Vec<Note>>);

impl Default for FakeNotes {
    fn default() -> Self {
        let note = |id, owner: &str| Note {
            id,
            owner: MemoryOwner::person(owner).unwrap(),
            key: None,
            text: format!("a note of {owner}"),
            at: UnixMillis(NOW),
            session: "s".into(),
            untrusted: false,
        };
        Self(Mutex::new(vec![note(1, "http:token"), note(2, "telegram:42")]))
    }
}

#[async_trait]
impl NoteArchive for FakeNotes {
    async fn notes(&self, filter: NoteFilter) -> Result<Vec<Note>, StoreError> {
        let wanted = |note: &&Note| {
            filter.owner.as_ref().is_none_or(|owner| note.owner == *owner)
                && filter.id.is_none_or(|id| note.id == id)
                && note.text.contains(&filter.words)
                && note.id > filter.after
        };
        let most = if filter.limit == 0 { usize::MAX } else { filter.limit as usize };
        Ok(self.0.lock().unwrap().iter().filter(wanted).take(most).cloned().collect())
    }
    async fn edit_note(&self, id: u64, text: &str, _at: UnixMillis) -> Result<bool, StoreError> {
        if text.len() > 100 {
            return Err(StoreError::TooMuch("a note has at most 100 bytes".into()));
        }
        let mut notes = self.0.lock().unwrap();
        let note = notes.iter_mut().find(|note| note.id == id).map(|note| note.text = text.into());
        Ok(note.is_some())
    }
    async fn delete_notes(&self, which: NoteSelection) -> Result<u64, StoreError> {
        let mut notes = self.0.lock().unwrap();
        let before = notes.len();
        notes.retain(|note| match &which {
            NoteSelection::One(id) => note.id != *id,
            NoteSelection::AllOf(owner) => note.owner != *owner,
        });
        Ok((before - notes.len()) as u64)
    }
}

#[async_trait]
impl SecretVault for FakeArchive {
    async fn keep(&self, _: &SessionKey, _: &str, _: &Secret, _: UnixMillis) -> Result<(), StoreError> {
        panic!("secrets are given in conversations")
    }
    async fn find(&self, _: &SessionKey, _: &str) -> Result<Option<Secret>, StoreError> {
        panic!("secrets are shown to nobody")
    }
    async fn forget(&self, _: &SessionKey, name: &str) -> Result<bool, StoreError> {
        Ok(name == "mail")
    }
    async fn forget_all(&self, _: &SessionKey) -> Result<u32, StoreError> {
        Ok(3)
    }
}

/// Answers with the query: the payer as the key of the row, the days as its figures.
#[async_trait]
impl SpendReader for FakeArchive {
    async fn costs(&self, query: CostQuery) -> Result<Vec<CostRow>, StoreError> {
        let only = query.only.map_or("everybody".to_owned(), |(channel, id)| format!("{channel}:{id}"));
        let day = |day| u64::try_from(day).unwrap();
        let (calls, cost_micro_usd) = (day(query.first_day), day(query.last_day));
        Ok(vec![CostRow { key: only, calls, cost_micro_usd, input_tokens: query.limit.into(), ..CostRow::default() }])
    }
}

/// Answers with one end at the start of the time.
#[async_trait]
impl EndReader for FakeArchive {
    async fn ends(&self, query: EndQuery) -> Result<Vec<EndCount>, StoreError> {
        let channel = query.by_channel.then(|| "http".to_owned());
        let model = query.by_model.then(|| "large".to_owned());
        Ok(vec![EndCount { at: query.since, reason: StopReason::UserStop, channel, model, count: 3 }])
    }
}

#[async_trait]
impl Janitor for FakeArchive {
    async fn tidy(&self, dry_run: bool) -> Result<Removed, StoreError> {
        Ok(Removed { runs: if dry_run { 9 } else { 4 }, ..Removed::default() })
    }
}

/// Has every file but the one whose digest is zeros.
pub(crate) struct FakeBlobs;

/// The bytes of every file.
pub(crate) const FILE: &str = "the bytes of the file";

#[async_trait]
impl BlobStore for FakeBlobs {
    fn digest(&self, _bytes: &[u8]) -> Result<BlobDigest, StoreError> {
        Err(StoreError::Unavailable("it only reads".into()))
    }
    async fn begin(&self) -> Result<Box<dyn BlobWriter>, StoreError> {
        Err(StoreError::Unavailable("it only reads".into()))
    }
    async fn read(&self, digest: &BlobDigest) -> Result<Option<bytes::Bytes>, StoreError> {
        Ok((digest.as_str() != "0".repeat(64)).then(|| FILE.into()))
    }
    async fn older_than(&self, _before: UnixMillis) -> Result<Vec<BlobDigest>, StoreError> {
        Ok(Vec::new())
    }
    async fn remove(&self, _digests: &[BlobDigest], _before: UnixMillis) -> Result<u64, StoreError> {
        Ok(0)
    }
}
