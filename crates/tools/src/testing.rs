//! Test doubles and functions that the tests of this crate share.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use belay_protocol::{
    Clock, Generation, Message, Note, NoteStore, RunFilter, RunId, RunReader, RunRecord, RunStatus, RunUsage,
    SessionKey, StoreError, Tool, ToolContext, ToolFailure, UnixMillis,
};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

/// A clock with a fixed time.
pub(crate) struct FixedClock(pub(crate) i64);

impl Clock for FixedClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0)
    }
}

/// Notes in memory; `broken` makes every operation fail.
#[derive(Default)]
pub(crate) struct MemoryNotes {
    pub(crate) notes: Mutex<Vec<(SessionKey, Note)>>,
    pub(crate) broken: bool,
}

#[async_trait]
impl NoteStore for MemoryNotes {
    async fn remember(&self, session: &SessionKey, key: &str, text: &str, at: UnixMillis) -> Result<(), StoreError> {
        if self.broken {
            return Err(StoreError::Unavailable("disk full at /secret/path".into()));
        }
        let mut notes = self.notes.lock().unwrap();
        notes.retain(|(owner, note)| owner != session || note.key != key);
        notes.push((session.clone(), Note { key: key.into(), text: text.into(), at }));
        Ok(())
    }

    async fn recall(&self, session: &SessionKey, query: &str, limit: u32) -> Result<Vec<Note>, StoreError> {
        if self.broken {
            return Err(StoreError::Unavailable("disk full at /secret/path".into()));
        }
        let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
        let hit = |note: &Note| {
            let text = format!("{} {}", note.key, note.text).to_lowercase();
            words.is_empty() || words.iter().any(|word| text.contains(word))
        };
        let notes = self.notes.lock().unwrap();
        let found = notes.iter().rev().filter(|(owner, note)| owner == session && hit(note));
        Ok(found.map(|(_, note)| note.clone()).take(limit as usize).collect())
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
    }
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
