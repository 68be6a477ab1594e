//! Test doubles and functions that the tests of this crate share.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use belay_protocol::{
    BlobDigest, BlobStore, BlobWriter, Clock, Forgotten, Found, Generation, MemoryOwner, Message, NewNote, Note,
    NoteStore, Remembered, RunFilter, RunId, RunReader, RunRecord, RunStatus, RunUsage, SaidQuery, SessionKey,
    StoreError, Tool, ToolContext, ToolFailure, UnixMillis,
};
use bytes::Bytes;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::processes::{BackgroundParts, BackgroundProcesses, Limits};

/// A clock with a fixed time.
pub(crate) struct FixedClock(pub(crate) i64);

impl Clock for FixedClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0)
    }
}

/// Blobs in memory.
#[derive(Clone, Default)]
pub(crate) struct MemoryBlobs(Arc<Mutex<HashMap<BlobDigest, Bytes>>>);

impl MemoryBlobs {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }
}

/// A blob that is being written.
struct MemoryWriter(Vec<u8>, MemoryBlobs);

#[async_trait]
impl BlobWriter for MemoryWriter {
    async fn write(&mut self, piece: &Bytes) -> Result<(), StoreError> {
        self.0.extend_from_slice(piece);
        Ok(())
    }

    async fn finish(self: Box<Self>) -> Result<BlobDigest, StoreError> {
        let digest = self.1.digest(&self.0)?;
        self.1.0.lock().unwrap().insert(digest.clone(), self.0.into());
        Ok(digest)
    }
}

#[async_trait]
impl BlobStore for MemoryBlobs {
    fn digest(&self, bytes: &[u8]) -> Result<BlobDigest, StoreError> {
        let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(hex.parse().unwrap())
    }

    async fn begin(&self) -> Result<Box<dyn BlobWriter>, StoreError> {
        Ok(Box::new(MemoryWriter(Vec::new(), self.clone())))
    }

    async fn read(&self, digest: &BlobDigest) -> Result<Option<Bytes>, StoreError> {
        Ok(self.0.lock().unwrap().get(digest).cloned())
    }

    async fn older_than(&self, _before: UnixMillis) -> Result<Vec<BlobDigest>, StoreError> {
        Ok(Vec::new())
    }

    async fn remove(&self, _digests: &[BlobDigest], _before: UnixMillis) -> Result<u64, StoreError> {
        Ok(0)
    }
}

/// Notes in memory; `broken` makes every operation fail.
#[derive(Default)]
pub(crate) struct MemoryNotes {
    pub(crate) notes: Mutex<Vec<Note>>,
    pub(crate) broken: bool,
}

impl MemoryNotes {
    fn check(&self) -> Result<(), StoreError> {
        match self.broken {
            true => Err(StoreError::Unavailable("disk full at /secret/path".into())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl NoteStore for MemoryNotes {
    async fn remember(&self, new: NewNote) -> Result<Remembered, StoreError> {
        self.check()?;
        let mut notes = self.notes.lock().unwrap();
        let known = notes.iter().position(|note| note.owner == new.owner && note.key == new.key && note.key.is_some());
        let id = match known.map(|at| notes.remove(at)) {
            Some(known) if new.untrusted && !known.untrusted => {
                let id = known.id;
                notes.push(known);
                return Ok(Remembered::Protected(id));
            }
            Some(known) => known.id,
            None => notes.iter().map(|note| note.id).max().unwrap_or(0) + 1,
        };
        let NewNote { owner, key, text, at, session, untrusted } = new;
        notes.push(Note { id, owner, key, text, at, session, untrusted });
        Ok(Remembered::Stored(id))
    }

    async fn recall(&self, owner: &MemoryOwner, query: &str, limit: u32) -> Result<Vec<Note>, StoreError> {
        self.check()?;
        let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
        let hit = |note: &Note| {
            let text = format!("{:?} {}", note.key, note.text).to_lowercase();
            words.is_empty() || words.iter().any(|word| text.contains(word))
        };
        let notes = self.notes.lock().unwrap();
        let found = notes.iter().rev().filter(|note| note.owner == *owner && hit(note));
        Ok(found.take(limit as usize).cloned().collect())
    }

    async fn said(&self, _query: SaidQuery) -> Result<Vec<Found>, StoreError> {
        self.check().map(|()| Vec::new())
    }

    async fn forget_note(&self, owner: &MemoryOwner, id: u64, untrusted: bool) -> Result<Forgotten, StoreError> {
        self.check()?;
        let mut notes = self.notes.lock().unwrap();
        let Some(at) = notes.iter().position(|note| note.id == id && note.owner == *owner) else {
            return Ok(Forgotten::Missing);
        };
        if untrusted && !notes[at].untrusted {
            return Ok(Forgotten::Protected);
        }
        notes.remove(at);
        Ok(Forgotten::Deleted)
    }
}

/// A run store in which every run belongs to this session.
pub(crate) struct RunsOf(pub(crate) SessionKey);

#[async_trait]
impl RunReader for RunsOf {
    async fn run(&self, id: RunId) -> Result<Option<RunRecord>, StoreError> {
        Ok(Some(RunRecord {
            run_id: id,
            session: self.0.clone(),
            status: RunStatus::Running,
            reason: None,
            evidence: Map::new(),
            reply: None,
            usage: RunUsage::default(),
            cost_micro_usd: 0,
            attempt: 1,
            accepted_at: UnixMillis(0),
            started_at: None,
            ended_at: None,
            waiting_for: None,
            files: Vec::new(),
        }))
    }

    async fn runs(&self, _filter: RunFilter) -> Result<Vec<RunRecord>, StoreError> {
        Ok(Vec::new())
    }

    async fn run_messages(&self, _id: RunId) -> Result<Vec<Arc<Message>>, StoreError> {
        Ok(Vec::new())
    }
}

/// A tool context of this session with its own token.
pub(crate) fn context(session: &str) -> ToolContext {
    ToolContext {
        session: session.into(),
        run_id: RunId::new(),
        call_id: "c1".into(),
        cancel: CancellationToken::new(),
        generation: Generation::default(),
        credential: None,
        progress: belay_protocol::Progress::default(),
        variables: std::sync::Arc::default(),
        approved: None,
        memory: belay_protocol::MemoryOwner::Group { session: "s".into() },
        untrusted: false,
        person: belay_protocol::PersonPort::default(),
        handle: belay_protocol::HandlePort::default(),
    }
}

/// Background processes whose output is stored in this directory.
pub(crate) fn background(directory: &std::path::Path) -> Arc<BackgroundProcesses> {
    background_of(directory, 8)
}

/// The same with at most so many in a session.
pub(crate) fn background_of(directory: &std::path::Path, of_session: usize) -> Arc<BackgroundProcesses> {
    let parts = BackgroundParts { directory: directory.to_owned(), events: None, count_end: |_| {} };
    Arc::new(BackgroundProcesses::new(parts, Limits::of(of_session)))
}

/// Calls a tool in session `s` with these JSON arguments and returns the text of its result.
pub(crate) async fn call(tool: &dyn Tool, arguments: Value) -> Result<String, ToolFailure> {
    tool.call(arguments.as_object().unwrap(), &context("s")).await.map(|reply| reply.text)
}

/// The text of a failure.
pub(crate) fn failure(output: Result<String, ToolFailure>) -> String {
    match output {
        Err(ToolFailure::Failed(text)) => text,
        other => panic!("expected a failure, got {other:?}"),
    }
}

/// Installs the TLS provider, as the daemon does at its start.
pub(crate) fn install_tls() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default(); // another test may be first
}
