//! The ports of lanes, runs and the dispatcher. Each method is a job for the writer or a query for the readers.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::cluster::Topic;
use belay_protocol::store::{Claimed, KeyClaim, LastTurn, QueuedInput, UnfinishedRun, input_digest};
use belay_protocol::{
    Acceptance, ActedOn, BootId, Checkpoint, CollectedStart, DispatcherStore, Durability, EditOutcome, EditedMessage,
    FinishedRun, IdempotencyKey, InputReader, JournalStore, KnownInput, LaneClaim, LaneStore, Lease, NewEvent,
    NewInput, Opening, PausedRun, Provenance, RunId, RunOptions, RunStore, SentMessage, SessionKey, SessionLifetime,
    StoreError, ThreadEdit, ThreadId, TurnCompaction, UnixMillis,
};

use super::{SqlStore, acceptance, acted_on, approvals, edits, lanes, reads, runs};
use Durability::{Committed, Relaxed};

#[async_trait]
impl LaneStore for SqlStore {
    /// Relaxed: the writes of the new owner come later in the same order, so that a crash loses both or none.
    async fn open_lane(
        &self,
        session: &SessionKey,
        lifetime: SessionLifetime,
        claim: LaneClaim,
        at: UnixMillis,
    ) -> Result<Opening, StoreError> {
        let (session, fresh) = (session.clone(), ThreadId::new());
        self.write(Relaxed, move |tx| lanes::open_lane(tx, &session, lifetime, claim, fresh, at)).await
    }

    async fn accept(&self, lease: &Lease, input: NewInput) -> Result<Acceptance, StoreError> {
        let lease = lease.clone();
        let sent = || input.digest.clone().unwrap_or_else(|| input_digest(&input.text));
        let numbered = input.provenance.as_ref().is_some_and(|provenance| provenance.message_id.is_some());
        let digest = (input.key.is_some() || numbered).then(sent);
        let is_mail = input.place.as_ref().is_some_and(|place| place.own.is_some());
        let accepted = self.write(Committed, move |tx| acceptance::accept(tx, &lease, &input, digest.as_deref())).await;
        accepted.inspect(|_| {
            if is_mail {
                self.hint(Topic::Mail); // the answer to it
            }
        })
    }

    async fn replace_message(
        &self,
        lease: &Lease,
        edited: EditedMessage,
    ) -> Result<Option<Arc<Provenance>>, StoreError> {
        let lease = lease.clone();
        self.write(Committed, move |tx| acceptance::replace_message(tx, &lease, &edited)).await
    }

    async fn sent_message(&self, session: &SessionKey, message_id: &str) -> Result<Option<SentMessage>, StoreError> {
        let (session, message_id) = (session.clone(), message_id.to_owned());
        self.read(move |conn| acceptance::sent_message(conn, &session, &message_id)).await
    }

    async fn edit_thread(&self, lease: &Lease, edit: ThreadEdit, at: UnixMillis) -> Result<EditOutcome, StoreError> {
        let (lease, fresh) = (lease.clone(), ThreadId::new());
        self.write(Committed, move |tx| edits::edit_thread(tx, &lease, edit, fresh, at)).await
    }

    async fn set_options(&self, lease: &Lease, options: RunOptions) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write(Committed, move |tx| lanes::set_options(tx, &lease, &options)).await
    }

    async fn set_loop_detection(&self, lease: &Lease, on: bool) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write(Committed, move |tx| lanes::set_loop_detection(tx, &lease, on)).await
    }

    async fn release_lane(&self, lease: &Lease) -> Result<(), StoreError> {
        let lease = lease.clone();
        let released = self.write(Committed, move |tx| lanes::release_lane(tx, &lease)).await;
        released.inspect(|()| self.hint(Topic::Nodes))
    }
}

#[async_trait]
impl RunStore for SqlStore {
    async fn start_run(&self, lease: &Lease, run: RunId, at: UnixMillis) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write(Relaxed, move |tx| runs::start_run(tx, &lease, run, at)).await
    }

    async fn start_together(&self, lease: &Lease, together: CollectedStart) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write(Committed, move |tx| runs::start_together(tx, &lease, &together)).await
    }

    async fn suspend_run(&self, lease: &Lease, run: RunId) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write(Committed, move |tx| runs::suspend_run(tx, &lease, run)).await
    }

    async fn pause_run(&self, lease: &Lease, paused: PausedRun) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write(Committed, move |tx| approvals::pause_run(tx, &lease, &paused))
            .await
            .inspect(|_| self.hint(Topic::Questions))
    }

    async fn finish_runs(&self, lease: &Lease, finished: Vec<FinishedRun>) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write(Committed, move |tx| runs::finish_runs(tx, &lease, &finished)).await
    }
}

#[async_trait]
impl JournalStore for SqlStore {
    async fn checkpoint(&self, lease: &Lease, checkpoint: Checkpoint) -> Result<(), StoreError> {
        let lease = lease.clone();
        // The approved call starts after this commit. A crash must not restore the approval.
        let binding = !checkpoint.used.is_empty() || !checkpoint.joined.is_empty();
        let durability = if binding { Committed } else { checkpoint.durability };
        self.write(durability, move |tx| runs::checkpoint(tx, &lease, &checkpoint)).await
    }

    async fn compact(
        &self,
        lease: &Lease,
        keep: u32,
        summary: String,
        events: Vec<NewEvent>,
    ) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write(Committed, move |tx| edits::compact(tx, &lease, keep, &summary, &events)).await
    }

    async fn compact_turn(&self, lease: &Lease, cut: TurnCompaction) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write(Committed, move |tx| edits::compact_turn(tx, &lease, &cut)).await
    }
}

#[async_trait]
impl InputReader for SqlStore {
    async fn find(&self, key: &IdempotencyKey) -> Result<Option<KnownInput>, StoreError> {
        let key = key.clone();
        self.read(move |conn| acceptance::find(conn, &key)).await
    }

    async fn queued_inputs(&self, runs: &[RunId]) -> Result<Vec<QueuedInput>, StoreError> {
        let runs = runs.to_vec();
        self.read(move |conn| acceptance::queued_inputs(conn, &runs)).await
    }

    async fn last_turn(&self, session: &SessionKey) -> Result<Option<LastTurn>, StoreError> {
        let session = session.clone();
        self.read(move |conn| edits::last_turn(conn, &session)).await
    }
}

#[async_trait]
impl DispatcherStore for SqlStore {
    async fn claim_key(&self, claim: KeyClaim) -> Result<Claimed, StoreError> {
        self.write(Committed, move |tx| acted_on::claim(tx, &claim)).await
    }

    async fn release_key(&self, key: &IdempotencyKey, owner: BootId) -> Result<(), StoreError> {
        let key = key.clone();
        self.write(Committed, move |tx| acted_on::release(tx, &key, owner)).await
    }

    async fn note_acted_on(&self, acted_on: &ActedOn, at: UnixMillis) -> Result<(), StoreError> {
        let acted_on = acted_on.clone();
        self.write(Committed, move |tx| acted_on::note(tx, &acted_on, at)).await
    }

    async fn acted_on(&self) -> Result<Vec<ActedOn>, StoreError> {
        self.read(acted_on::all).await
    }

    async fn recent_inputs(&self) -> Result<Vec<(IdempotencyKey, KnownInput)>, StoreError> {
        self.read(acceptance::recent_inputs).await
    }

    async fn unfinished_runs(&self) -> Result<Vec<UnfinishedRun>, StoreError> {
        self.read(reads::unfinished_runs).await
    }
}
