//! The other ports. Each method is a job for the writer or a query for the readers.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::cluster::Topic;
use belay_protocol::{
    ApprovalFilter, ApprovalId, ApprovalRequest, ApprovalState, ApprovalStore, Archive, Asker, Authority, CallCharge,
    ChannelId, ChildQuestion, ChildQuestionStore, ClientCallStore, ClientNote, ClientResult, Conversation,
    ConversationReader, ConversationSummary, CostQuery, CostRow, Decided, Durability, EndCount, EndQuery, EndReader,
    Event, EventLog, EventQuery, Forgotten, Found, HistoryEntry, IdPrefix, KnownPrincipal, Lease, MemoryOwner, Message,
    NewEvent, NewNote, NewReservation, Note, NoteArchive, NoteFilter, NoteSelection, NoteStore, Outbound, Outbox,
    OutboxId, OutboxRow, OutboxState, Presence, PrincipalFilter, PromptNotes, Remembered, Removed, ReplyRoute,
    Retention, RunFilter, RunId, RunOptions, RunReader, RunRecord, SaidQuery, SearchQuery, SecondYes, Seq,
    SessionChange, SessionFilter, SessionKey, SessionReader, SessionSummary, SpendLedger, SpendReader, Spent,
    StoreError, StoreHealth, ThreadId, ThreadSummary, TranscriptLine, UnixMillis, WorkLease,
};
use tokio::sync::watch;

use super::connection::{Connection, Engine};
use super::tx::Tx;
use super::{
    SqlStore, approvals, archive, ends, index, ledger, notes, outbox, principals, prune, reads, spending, titles,
};
use crate::notes as ranking;
use crate::vault::SealedSecrets;
use Durability::{Committed, Relaxed};

#[async_trait]
impl RunReader for SqlStore {
    async fn run(&self, id: RunId) -> Result<Option<RunRecord>, StoreError> {
        self.read(move |conn| reads::run(conn, id)).await
    }

    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunRecord>, StoreError> {
        self.read(move |conn| reads::runs(conn, &filter)).await
    }

    async fn run_messages(&self, id: RunId) -> Result<Vec<Arc<Message>>, StoreError> {
        self.read(move |conn| reads::run_messages(conn, id)).await
    }

    async fn client_notes(&self, id: RunId) -> Result<Vec<ClientNote>, StoreError> {
        self.read(move |conn| reads::client_notes(conn, id)).await
    }
}

#[async_trait]
impl EndReader for SqlStore {
    async fn ends(&self, query: EndQuery) -> Result<Vec<EndCount>, StoreError> {
        self.read(move |conn| ends::ends(conn, &query)).await
    }
}

#[async_trait]
impl SessionReader for SqlStore {
    async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionSummary>, StoreError> {
        self.read(move |conn| reads::sessions(conn, &filter)).await
    }

    async fn session(&self, key: &SessionKey) -> Result<Option<SessionSummary>, StoreError> {
        let key = key.clone();
        self.read(move |conn| reads::session(conn, &key)).await
    }

    async fn history(&self, session: &SessionKey, after: u64, limit: u32) -> Result<Vec<HistoryEntry>, StoreError> {
        let session = session.clone();
        self.read(move |conn| reads::history(conn, &session, after, limit)).await
    }

    async fn recent_history(&self, session: &SessionKey, limit: u32) -> Result<Vec<HistoryEntry>, StoreError> {
        let session = session.clone();
        self.read(move |conn| reads::recent_history(conn, &session, limit)).await
    }

    async fn principals(&self, filter: PrincipalFilter) -> Result<Vec<KnownPrincipal>, StoreError> {
        self.read(move |conn| principals::known(conn, &filter)).await
    }
}

#[async_trait]
impl ConversationReader for SqlStore {
    async fn conversation(&self, session: &SessionKey) -> Result<Option<Conversation>, StoreError> {
        let session = session.clone();
        self.read(move |conn| reads::conversation(conn, &session)).await
    }

    async fn conversations(
        &self,
        session: &SessionKey,
        id: Option<&IdPrefix>,
        limit: u32,
    ) -> Result<Vec<ConversationSummary>, StoreError> {
        let (session, id) = (session.clone(), id.cloned());
        self.read(move |conn| reads::conversations(conn, &session, id.as_ref(), limit)).await
    }

    async fn presence(&self, place: Option<&ReplyRoute>, since: UnixMillis) -> Result<Presence, StoreError> {
        let place = place.cloned();
        self.read(move |conn| reads::presence(conn, place.as_ref(), since)).await
    }
}

#[async_trait]
impl StoreHealth for SqlStore {
    async fn ping(&self) -> Result<(), StoreError> {
        self.write(Committed, ledger::ping).await
    }

    fn is_failing(&self) -> bool {
        self.shared.failing.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn trouble(&self) -> Option<String> {
        self.shared.trouble.as_ref()?.get().cloned()
    }
}

#[async_trait]
impl ChildQuestionStore for SqlStore {
    async fn ask_in_place(&self, lease: &Lease, question: ChildQuestion) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write(Committed, move |tx| approvals::ask_in_place(tx, &lease, &question))
            .await
            .inspect(|_| self.hint(Topic::Questions))
    }

    async fn answer_form(
        &self,
        id: ApprovalId,
        answers: serde_json::Map<String, serde_json::Value>,
        by: &str,
        at: UnixMillis,
    ) -> Result<Decided, StoreError> {
        let by = by.to_owned();
        self.write(Committed, move |tx| approvals::answer_form(tx, id, &answers, (&by, at)))
            .await
            .inspect(|_| self.hint(Topic::Questions))
    }

    async fn withdraw(&self, id: ApprovalId, at: UnixMillis) -> Result<bool, StoreError> {
        self.write(Committed, move |tx| approvals::withdraw_one(tx, id, at))
            .await
            .inspect(|_| self.hint(Topic::Questions))
    }
}

#[async_trait]
impl ApprovalStore for SqlStore {
    async fn decide(
        &self,
        id: ApprovalId,
        state: ApprovalState,
        always: Option<Authority>,
        by: &str,
        at: UnixMillis,
    ) -> Result<Decided, StoreError> {
        let by = by.to_owned();
        self.write(Committed, move |tx| approvals::decide(tx, id, state, always, &by, at))
            .await
            .inspect(|_| self.hint(Topic::Questions))
    }

    async fn first_yes(
        &self,
        id: ApprovalId,
        second: SecondYes,
        expires_at: UnixMillis,
        question: Option<Outbound>,
    ) -> Result<Decided, StoreError> {
        self.write(Committed, move |tx| approvals::first_yes(tx, id, &second, expires_at, question.as_ref()))
            .await
            .inspect(|_| self.hint(Topic::Questions))
    }

    async fn remind(&self, id: ApprovalId, reminder: Outbound, at: UnixMillis) -> Result<bool, StoreError> {
        self.write(Committed, move |tx| approvals::remind(tx, id, &reminder, at)).await
    }

    async fn approval(&self, id: ApprovalId) -> Result<Option<ApprovalRequest>, StoreError> {
        self.read(move |conn| approvals::approval(conn, id)).await
    }

    async fn approvals(&self, filter: ApprovalFilter) -> Result<Vec<ApprovalRequest>, StoreError> {
        self.read(move |conn| approvals::approvals(conn, &filter)).await
    }

    async fn approvals_of(&self, run: RunId) -> Result<Vec<ApprovalRequest>, StoreError> {
        self.read(move |conn| approvals::approvals_of(conn, run)).await
    }

    async fn granted(
        &self,
        session: &SessionKey,
        tool: &str,
        covers: &str,
        work_for: &Asker,
    ) -> Result<bool, StoreError> {
        let (session, tool, covers) = (session.clone(), tool.to_owned(), covers.to_owned());
        let work_for = work_for.clone();
        self.read(move |conn| approvals::granted(conn, &session, &tool, &covers, &work_for)).await
    }

    async fn forget_grants(&self, session: &SessionKey) -> Result<u32, StoreError> {
        let session = session.clone();
        self.write(Committed, move |tx| approvals::forget_grants(tx, &session)).await
    }
}

#[async_trait]
impl ClientCallStore for SqlStore {
    async fn answer_client_calls(
        &self,
        id: ApprovalId,
        results: Vec<ClientResult>,
        options: RunOptions,
        by: &str,
        at: UnixMillis,
    ) -> Result<Decided, StoreError> {
        let by = by.to_owned();
        self.write(Committed, move |tx| approvals::answer_client_calls(tx, id, &results, &options, (&by, at)))
            .await
            .inspect(|_| self.hint(Topic::Questions))
    }
}

impl SqlStore {
    /// Indexes everything for a query that needs it. If the disk is full, the query finds what is indexed already.
    async fn catch_up(&self) {
        // In batches, so that other writes come in between.
        loop {
            match self.write(Committed, index::next_batch_in_turn).await {
                Ok(batch) if batch.more => {}
                Ok(_) => return,
                Err(error) => return tracing::warn!(%error, "the newest messages are not indexed"),
            }
        }
    }
}

#[async_trait]
impl Archive for SqlStore {
    async fn search(&self, query: SearchQuery) -> Result<Vec<Found>, StoreError> {
        self.catch_up().await;
        self.read(move |conn| index::search(conn, &query)).await
    }

    async fn threads(&self, session: &SessionKey) -> Result<Vec<ThreadSummary>, StoreError> {
        let session = session.clone();
        self.read(move |conn| archive::threads(conn, &session)).await
    }

    async fn change_session(&self, session: &SessionKey, change: SessionChange) -> Result<(), StoreError> {
        let session = session.clone();
        self.write(Committed, move |tx| {
            // First the row of the session, as writes for its lane do: no two wait for each other.
            if let Some(hidden) = change.hidden {
                archive::set_hidden(tx, &session, hidden)?;
            }
            if let Some(title) = &change.title {
                titles::set(tx, &session, Some(title.as_str()).filter(|title| !title.is_empty()))?;
            }
            Ok(())
        })
        .await
    }

    async fn transcript(&self, thread: ThreadId, after: u64, limit: u32) -> Result<Vec<TranscriptLine>, StoreError> {
        self.read(move |conn| archive::transcript(conn, thread, after, limit)).await
    }

    async fn delete_session(&self, lease: &Lease, at: UnixMillis) -> Result<Removed, StoreError> {
        self.catch_up().await;
        let lease = lease.clone();
        self.write(Committed, move |tx| prune::delete_session(tx, &lease, at)).await
    }

    async fn prune(&self, old: Retention, most: u32) -> Result<Removed, StoreError> {
        self.catch_up().await;
        self.write(Committed, move |tx| prune::prune(tx, &old, most)).await
    }

    async fn prunable(&self, old: Retention) -> Result<Removed, StoreError> {
        self.catch_up().await;
        self.read(move |conn| prune::prunable(conn, &old)).await
    }

    async fn shrink(&self, pages: u32) -> Result<(), StoreError> {
        // The statement returns a row for each freed page. PostgreSQL uses freed space again by itself.
        let sql = format!("PRAGMA incremental_vacuum({pages})");
        let free = move |tx: &mut Tx<'_>| match tx.engine() {
            Engine::Sqlite => tx.rows(&sql, [], |_| Ok(())).map(|_| ()),
            Engine::Postgres => Ok(()),
        };
        self.write(Committed, free).await
    }
}

#[async_trait]
impl EventLog for SqlStore {
    async fn append(&self, events: Vec<NewEvent>) -> Result<(), StoreError> {
        if events.is_empty() {
            return Ok(());
        }
        self.write(Relaxed, move |tx| ledger::append_events(tx, &events)).await
    }

    async fn read(&self, query: EventQuery) -> Result<Vec<Event>, StoreError> {
        SqlStore::read(self, move |conn| reads::events(conn, &query)).await
    }

    fn tip(&self) -> watch::Receiver<Seq> {
        self.shared.signals.tip.subscribe()
    }

    async fn newest(&self) -> Result<Seq, StoreError> {
        SqlStore::read(self, |conn| reads::last_event(conn).map(Seq)).await
    }
}

#[async_trait]
impl Outbox for SqlStore {
    async fn enqueue(&self, message: Outbound) -> Result<(), StoreError> {
        self.write(Committed, move |tx| outbox::insert(tx, &message)).await
    }

    async fn due(
        &self,
        now: UnixMillis,
        busy: &[ReplyRoute],
        leases: Option<&[WorkLease]>,
        limit: u32,
        callbacks: u32,
    ) -> Result<Vec<OutboxRow>, StoreError> {
        let (busy, leases) = (busy.to_vec(), leases.map(<[_]>::to_vec));
        let due = move |conn: &Connection| outbox::due(conn, now, &busy, leases.as_deref(), (limit, callbacks));
        SqlStore::read(self, due).await
    }

    async fn next_due(&self, leases: Option<&[WorkLease]>) -> Result<Option<UnixMillis>, StoreError> {
        let leases = leases.map(<[_]>::to_vec);
        SqlStore::read(self, move |conn| outbox::next_due(conn, leases.as_deref())).await
    }

    /// Committed for every state: a caller that reads due rows next must see it.
    async fn mark(
        &self,
        id: OutboxId,
        state: OutboxState,
        at: UnixMillis,
        lease: Option<&WorkLease>,
    ) -> Result<(), StoreError> {
        let lease = lease.cloned();
        self.write(Committed, move |tx| outbox::mark(tx, id, &state, at, lease.as_ref())).await
    }

    async fn put_checked(&self, message: &Outbound) -> Result<(), StoreError> {
        let message = message.clone();
        self.write(Committed, move |tx| outbox::put_checked(tx, &message)).await
    }

    async fn settle_interrupted(
        &self,
        at: UnixMillis,
        leases: Option<&[WorkLease]>,
        settling: &[ChannelId],
    ) -> Result<Vec<OutboxRow>, StoreError> {
        let (leases, settling) = (leases.map(<[_]>::to_vec), settling.to_vec());
        self.write(Committed, move |tx| outbox::settle_interrupted(tx, at, leases.as_deref(), &settling)).await
    }

    async fn shown_last(&self, route: &ReplyRoute, run: RunId) -> Result<Option<ApprovalId>, StoreError> {
        let route = route.clone();
        SqlStore::read(self, move |conn| outbox::newest_question(conn, &route, run)).await
    }

    fn committed(&self) -> watch::Receiver<u64> {
        self.shared.signals.outbox.subscribe()
    }
}

#[async_trait]
impl NoteStore for SqlStore {
    async fn remember(&self, note: NewNote) -> Result<Remembered, StoreError> {
        let owner = note.owner.clone();
        let remembered = self.write(Committed, move |tx| notes::remember(tx, &note)).await?;
        self.owners().insert(owner);
        Ok(remembered)
    }

    async fn recall(&self, owner: &MemoryOwner, query: &str, limit: u32) -> Result<Vec<Note>, StoreError> {
        let (owner, query) = (owner.clone(), query.to_owned());
        let read = move |conn: &Connection| Ok(ranking::rank(notes::of_owner(conn, &owner)?, &query, limit));
        SqlStore::read(self, read).await
    }

    async fn said(&self, query: SaidQuery) -> Result<Vec<Found>, StoreError> {
        self.catch_up().await;
        SqlStore::read(self, move |conn| notes::said(conn, &query)).await
    }

    async fn forget_note(&self, owner: &MemoryOwner, id: u64, untrusted: bool) -> Result<Forgotten, StoreError> {
        let owner = owner.clone();
        self.write(Committed, move |tx| notes::forget(tx, &owner, id, untrusted)).await
    }
}

#[async_trait]
impl NoteArchive for SqlStore {
    async fn notes(&self, filter: NoteFilter) -> Result<Vec<Note>, StoreError> {
        let read = if filter.words.trim().is_empty() { notes::list } else { notes::search };
        SqlStore::read(self, move |conn| read(conn, &filter)).await
    }

    async fn edit_note(&self, id: u64, text: &str, at: UnixMillis) -> Result<bool, StoreError> {
        let text = text.to_owned();
        self.write(Committed, move |tx| notes::edit(tx, id, &text, at)).await
    }

    async fn delete_notes(&self, which: NoteSelection) -> Result<u64, StoreError> {
        self.write(Committed, move |tx| notes::delete(tx, &which)).await
    }
}

#[async_trait]
impl PromptNotes for SqlStore {
    fn may_have_notes(&self, owner: &MemoryOwner) -> bool {
        self.owners().contains(owner)
    }

    async fn prompt_notes(&self, owner: &MemoryOwner, max_chars: u32) -> Result<Vec<Note>, StoreError> {
        let owner = owner.clone();
        SqlStore::read(self, move |conn| notes::for_prompt(conn, &owner, max_chars)).await
    }
}

#[async_trait]
impl SpendLedger for SqlStore {
    /// Executed by the writer: a settlement counts as soon as it has returned.
    async fn spent(&self, utc_day: i64) -> Result<Spent, StoreError> {
        self.write(Relaxed, move |tx| spending::spent(tx, utc_day)).await
    }

    async fn session_spent(&self, session: &SessionKey) -> Result<u64, StoreError> {
        let session = session.clone();
        self.write(Relaxed, move |tx| spending::session_spent(tx, &session)).await
    }

    async fn reserve(&self, reservation: NewReservation) -> Result<u64, StoreError> {
        self.write(Committed, move |tx| spending::reserve(tx, &reservation)).await
    }

    async fn settle(&self, reservation: u64, charge: CallCharge) -> Result<(), StoreError> {
        self.write(Relaxed, move |tx| spending::settle(tx, reservation, &charge)).await
    }
}

#[async_trait]
impl SpendReader for SqlStore {
    async fn costs(&self, query: CostQuery) -> Result<Vec<CostRow>, StoreError> {
        SqlStore::read(self, move |conn| spending::costs(conn, &query)).await
    }
}

#[async_trait]
impl SealedSecrets for SqlStore {
    async fn put_sealed(
        &self,
        session: &SessionKey,
        name: &str,
        sealed: Vec<u8>,
        at: UnixMillis,
    ) -> Result<(), StoreError> {
        let (session, name) = (session.clone(), name.to_owned());
        self.write(Committed, move |tx| ledger::put_sealed(tx, &session, &name, &sealed, at)).await
    }

    async fn sealed(&self, session: &SessionKey, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let (session, name) = (session.clone(), name.to_owned());
        SqlStore::read(self, move |conn| reads::sealed(conn, &session, &name)).await
    }

    async fn remove_sealed(&self, session: &SessionKey, name: &str) -> Result<bool, StoreError> {
        let (session, name) = (session.clone(), name.to_owned());
        self.write(Committed, move |tx| ledger::remove_sealed(tx, &session, &name)).await
    }

    async fn remove_all_sealed(&self, session: &SessionKey) -> Result<u32, StoreError> {
        let session = session.clone();
        self.write(Committed, move |tx| ledger::remove_all_sealed(tx, &session)).await
    }
}
