//! Readers that add links to sent files. Records without files pass unchanged.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{
    ClientNote, Event, EventKind, EventLog, EventQuery, FileLinks, HistoryEntry, KnownPrincipal, Message, NewEvent,
    PrincipalFilter, RunFilter, RunId, RunReader, RunRecord, Seq, SessionFilter, SessionKey, SessionReader,
    SessionSummary, StoreError,
};
use tokio::sync::watch;

use super::SignedLinks;

/// Reads runs.
pub(crate) struct LinkedRuns(pub(crate) Arc<dyn RunReader>, pub(crate) Arc<SignedLinks>);

/// Reads sessions.
pub(crate) struct LinkedSessions(pub(crate) Arc<dyn SessionReader>, pub(crate) Arc<SignedLinks>);

/// Reads events.
pub(crate) struct LinkedEvents(pub(crate) Arc<dyn EventLog>, pub(crate) Arc<SignedLinks>);

#[async_trait]
impl RunReader for LinkedRuns {
    async fn run(&self, id: RunId) -> Result<Option<RunRecord>, StoreError> {
        let mut record = self.0.run(id).await?;
        if let Some(record) = &mut record {
            self.1.add_links(record.run_id, &mut record.files);
        }
        Ok(record)
    }

    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunRecord>, StoreError> {
        let mut records = self.0.runs(filter).await?;
        records.iter_mut().for_each(|record| self.1.add_links(record.run_id, &mut record.files));
        Ok(records)
    }

    async fn run_messages(&self, id: RunId) -> Result<Vec<Arc<Message>>, StoreError> {
        self.0.run_messages(id).await
    }

    async fn client_notes(&self, id: RunId) -> Result<Vec<ClientNote>, StoreError> {
        self.0.client_notes(id).await
    }
}

impl LinkedSessions {
    fn linked(&self, mut lines: Vec<HistoryEntry>) -> Vec<HistoryEntry> {
        for line in &mut lines {
            if let Some(run) = line.run_id {
                self.1.add_links(run, &mut line.files);
            }
        }
        lines
    }
}

#[async_trait]
impl SessionReader for LinkedSessions {
    async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionSummary>, StoreError> {
        self.0.sessions(filter).await
    }

    async fn session(&self, key: &SessionKey) -> Result<Option<SessionSummary>, StoreError> {
        self.0.session(key).await
    }

    async fn history(&self, session: &SessionKey, after: u64, limit: u32) -> Result<Vec<HistoryEntry>, StoreError> {
        Ok(self.linked(self.0.history(session, after, limit).await?))
    }

    async fn recent_history(&self, session: &SessionKey, limit: u32) -> Result<Vec<HistoryEntry>, StoreError> {
        Ok(self.linked(self.0.recent_history(session, limit).await?))
    }

    async fn principals(&self, filter: PrincipalFilter) -> Result<Vec<KnownPrincipal>, StoreError> {
        self.0.principals(filter).await
    }
}

#[async_trait]
impl EventLog for LinkedEvents {
    async fn append(&self, events: Vec<NewEvent>) -> Result<(), StoreError> {
        self.0.append(events).await
    }

    async fn read(&self, query: EventQuery) -> Result<Vec<Event>, StoreError> {
        let mut events = self.0.read(query).await?;
        for event in &mut events {
            if let (EventKind::FileSent { file }, Some(run)) = (&mut event.kind, event.run_id) {
                self.1.add_links(run, std::slice::from_mut(file));
            }
        }
        Ok(events)
    }

    fn tip(&self) -> watch::Receiver<Seq> {
        self.0.tip()
    }

    async fn newest(&self) -> Result<Seq, StoreError> {
        self.0.newest().await
    }
}
