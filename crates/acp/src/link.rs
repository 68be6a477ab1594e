//! Updates and requests to the editor.

use agent_client_protocol::Client;
use agent_client_protocol::v1::schema::{
    ContentBlock, ContentChunk, RequestPermissionRequest, RequestPermissionResponse, SessionNotification, SessionUpdate,
};
use agent_client_protocol::v1::{ConnectionTo, SentRequest};

use crate::pipes::Gate;

/// The way to the editor.
#[derive(Clone)]
pub(crate) struct EditorLink {
    pub(crate) connection: ConnectionTo<Client>,
    pub(crate) gate: Gate,
}

impl EditorLink {
    /// Sends an update of a session. Waits while the editor has many unread ones.
    pub(crate) async fn update(&self, session: &str, update: SessionUpdate) {
        self.gate.pass().await;
        // Fails when the connection has ended: nobody reads.
        let _ = self.connection.send_notification(SessionNotification::new(session.to_owned(), update));
    }

    /// Says something as the agent.
    pub(crate) async fn say(&self, session: &str, words: &str) {
        self.update(session, said(words)).await;
    }

    /// Asks a question. Dropping the request before its answer withdraws it by `$/cancel_request`.
    pub(crate) fn ask(&self, question: RequestPermissionRequest) -> SentRequest<RequestPermissionResponse> {
        self.connection.send_request(question)
    }
}

/// A text of the agent.
pub(crate) fn said(words: &str) -> SessionUpdate {
    SessionUpdate::AgentMessageChunk(ContentChunk::new(ContentBlock::from(words)))
}
