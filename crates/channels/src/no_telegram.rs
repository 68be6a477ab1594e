//! A build without the feature `telegram` has no bot: settings that enable one are refused. No value of [`Telegram`] exists.

#[path = "telegram/parts.rs"]
mod parts;

use std::convert::Infallible;
use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use belay_protocol::principal::Role;
use belay_protocol::{
    AccessDecision, BlobStore, Channel, ChannelAccess, ChannelError, ChannelId, ChannelPeople, DeliverError,
    InboundStream, MoveStore, Outbound, PairedPerson, SessionKey, StoreError,
};
use tokio_util::sync::CancellationToken;

pub use self::parts::{TelegramParts, TelegramSecrets};
use crate::config::TelegramConfig;

/// Why nobody has access.
const ABSENT: &str = "this build of Belay has no Telegram bot (feature telegram)";

/// Who may talk to the bot of other builds: nobody. The sessions that such a build has left stay, and nobody acts through
/// them.
#[derive(Clone)]
pub struct AllowLists;

impl AllowLists {
    /// The empty lists.
    pub fn of(_config: &TelegramConfig) -> Self {
        Self
    }

    /// Reads nothing.
    ///
    /// # Errors
    /// None.
    pub async fn load_moves(&self, _store: &dyn MoveStore) -> Result<(), StoreError> {
        Ok(())
    }

    /// Changes nothing.
    pub fn replace(&self, _config: &TelegramConfig) {}
}

impl ChannelAccess for AllowLists {
    fn may_exist(&self, principal: &str) -> bool {
        principal.parse::<u64>().is_ok_and(|id| id > 0 && id.to_string() == principal)
    }

    fn tells_persons_apart(&self) -> bool {
        true
    }

    fn standing_of(&self, _principal: &str, _conversation: Option<&str>) -> AccessDecision {
        AccessDecision::NotAllowed(ABSENT.to_owned())
    }

    fn serves(&self, _conversation: &str) -> bool {
        false
    }

    fn session_of(&self, _conversation: &str) -> Option<SessionKey> {
        None
    }

    fn is_group(&self, session: &SessionKey) -> bool {
        session.as_str().starts_with("telegram:-") // the ids of groups are negative
    }
}

impl ChannelPeople for AllowLists {
    fn replace_paired(&self, _paired: &[PairedPerson]) {}

    fn listed(&self) -> Vec<(String, Role)> {
        Vec::new()
    }

    fn greeting(&self) -> Option<String> {
        None
    }
}

/// The bot of other builds.
pub struct Telegram {
    never: Infallible,
}

impl Telegram {
    /// No text is a conversation.
    pub fn is_conversation(_text: &str) -> bool {
        false
    }

    /// Creates no bot.
    ///
    /// # Errors
    /// Always.
    pub fn new(
        _config: TelegramConfig,
        _secrets: TelegramSecrets,
        _http: reqwest::Client,
        _parts: TelegramParts,
    ) -> Result<Self, ChannelError> {
        Err(ChannelError { channel: "telegram".into(), detail: ABSENT.to_owned() })
    }

    /// Never called.
    #[must_use]
    pub fn with_files(self, _files: Arc<dyn BlobStore>) -> Self {
        match self.never {}
    }

    /// Never called.
    #[must_use]
    pub fn under_lease(self) -> Self {
        match self.never {}
    }

    /// Never called.
    pub fn polls(&self) -> bool {
        match self.never {}
    }

    /// Never called.
    pub fn router(&self) -> Option<Router> {
        match self.never {}
    }
}

#[async_trait]
impl Channel for Telegram {
    fn id(&self) -> &ChannelId {
        match self.never {}
    }

    async fn start(&self, _intake: CancellationToken) -> Result<InboundStream, ChannelError> {
        match self.never {}
    }

    async fn deliver(&self, _message: &Outbound) -> Result<(), DeliverError> {
        match self.never {}
    }
}
