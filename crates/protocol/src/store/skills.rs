//! The skills that conversations began with: the port [`SkillStore`].

use async_trait::async_trait;

use crate::ids::SessionKey;
use crate::store_error::StoreError;

/// Keeps the skills that conversations began with, so that their prompts stay the same after a restart. Equal skills of
/// several conversations are stored once.
#[async_trait]
pub trait SkillStore: Send + Sync {
    /// Stores the skills of the present conversation of a session, unless it has some. Relaxed: the write joins the next
    /// commit, and is on disk before every later write.
    async fn keep_skills(&self, session: &SessionKey, skills: SkillSnapshot) -> Result<(), StoreError>;

    /// The skills of the present conversation of a session; `None`: none are stored.
    async fn kept_skills(&self, session: &SessionKey) -> Result<Option<String>, StoreError>;
}

/// The skills of a conversation, serialised. It contains no values of variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillSnapshot {
    /// The digest of the text.
    pub digest: String,
    /// The text.
    pub text: String,
}
