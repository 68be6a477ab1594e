//! Titles of conversations: the port [`TitleStore`].

use std::sync::Arc;

use async_trait::async_trait;

use crate::ids::{SessionKey, ThreadId};
use crate::message::Message;
use crate::store_error::StoreError;

/// Number of failed attempts after which a conversation gets no title of its own. 2: one retry.
pub const TITLE_TRIES: u32 = 2;

/// Keeps the titles that a model has written. Lists show the first words of a conversation that has none.
#[async_trait]
pub trait TitleStore: Send + Sync {
    /// The conversations of a session that can get a title, most recently used first, at most `limit`: those with a
    /// finished turn, without a title, and with less than [`TITLE_TRIES`] failed attempts. Sessions that were created for
    /// one request have none.
    async fn untitled(&self, session: &SessionKey, limit: u32) -> Result<Vec<Untitled>, StoreError>;

    /// Stores the title of a conversation, unless it has one or was changed. `None` counts a failed attempt. Committed.
    async fn keep_title(&self, untitled: &Untitled, title: Option<String>) -> Result<(), StoreError>;
}

/// A conversation without a title.
#[derive(Clone, Debug, PartialEq)]
pub struct Untitled {
    /// The conversation.
    pub thread: ThreadId,
    /// The position of its first visible message. A conversation whose first message is hidden meanwhile gets no title.
    pub first: u64,
    /// Its first visible messages of the person and of the model, oldest first.
    pub messages: Vec<Arc<Message>>,
}
