//! The channel.
//!
//! Reading order: `wire` (what the server sends) → `api`, `error`, `calls` (what it is asked) → `intake`, `inbound`
//! (what an event says) → `room`, `membership`, `question`, `files` (what becomes of it) → `gaps`, `urgent`,
//! `lines`, `unreached`, `settle`, `sync` (the order, and how far it was read) → `content`, `deliver`, `preview`
//! (how an answer is sent) → `notes`.

mod api;
mod calls;
mod content;
mod deliver;
mod error;
mod files;
mod gaps;
mod inbound;
mod intake;
mod lines;
mod membership;
mod notes;
mod preview;
mod question;
mod room;
mod settle;
mod sync;
mod unreached;
mod urgent;
mod wire;

use std::sync::{Arc, LazyLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use belay_protocol::{
    Channel, ChannelAccess, ChannelDisplay, ChannelError, ChannelHealth, ChannelId, ChannelProfile, Confirmation,
    DeliverError, DeliveryQuality, InboundStream, Outbound, Quality, Repeat, ReplyRoute, Streaming, WorkIndicator,
    provenance,
};
use futures_util::stream;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::api::Api;
use self::files::FILE_MAX_BYTES;
use self::room::Rooms;
pub use self::settle::who_am_i;
use self::settle::{START_DEADLINE, introduce};
use self::sync::Intake;
use crate::NAME;
use crate::config::{MatrixConfig, MatrixSecrets};
pub use crate::parts::MatrixParts;

/// Instruction to the model about the style of answers.
const STYLE: &str =
    "Answers are read in a chat, in Matrix: write short paragraphs; lists, tables and code blocks are shown.";

/// How long a repeated transaction id is the same event. Synapse keeps one for 24 hours.
const REPEATS_FOR: Duration = Duration::from_secs(23 * 3600);

/// The promise of the channel about its deliveries.
pub const QUALITY: Quality = Quality { delivery: DeliveryQuality::ExactlyOnce, confirmed_by: Confirmation::StandIn };

/// An account of a homeserver as a channel.
struct Matrix {
    id: ChannelId,
    rooms: Arc<Rooms>,
}

/// Opens the channel without a request. `http` is a client with a connect timeout, and without an idle timeout below 60
/// s. All other limits are set here, per request.
///
/// # Errors
/// The settings name no homeserver, or no address of one.
pub fn open(
    config: &MatrixConfig,
    secrets: MatrixSecrets,
    http: reqwest::Client,
    parts: MatrixParts,
) -> Result<Arc<dyn Channel>, ChannelError> {
    let base = config.homeserver.as_deref().unwrap_or_default();
    let api = Api::new(http, base, secrets.token).map_err(cannot)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let rooms = Arc::new(Rooms::new(api, parts, since.as_millis() as u64));
    Ok(Arc::new(Matrix { id: NAME.into(), rooms }))
}

#[async_trait]
impl Channel for Matrix {
    fn id(&self) -> &ChannelId {
        &self.id
    }

    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError> {
        if !self.rooms.people.has_anybody() {
            warn!("channels.matrix.allow and operators are empty: Belay answers nobody there");
        }
        let moves = self.rooms.people.load_moves(&*self.rooms.parts.moves).await;
        moves.map_err(|error| cannot(format!("the store does not tell which rooms were replaced: {error}")))?;
        match introduce(&self.rooms, START_DEADLINE).await {
            Err(error) if error.is_auth() => {
                let remedy =
                    "Check the token and channels.matrix.homeserver; a login makes a new token, a logout ends it";
                return Err(cannot(format!("the homeserver refuses the access token ({error}). {remedy}")));
            }
            Err(error) => warn!(detail = %error, "the homeserver is out of reach; going on without, and trying again"),
            Ok(()) => {}
        }
        let intake = Intake::new(Arc::clone(&self.rooms), intake);
        Ok(Box::pin(stream::unfold(intake, |mut intake| async move {
            intake.next().await.map(|envelope| (envelope, intake))
        })))
    }

    async fn deliver(&self, message: &Outbound) -> Result<(), DeliverError> {
        deliver::deliver(&self.rooms, message).await
    }

    fn profile(&self) -> ChannelProfile<'_> {
        static HINTS: LazyLock<String> = LazyLock::new(|| format!("{STYLE}\n\n{}", provenance::HINT));
        ChannelProfile {
            max_file_bytes: FILE_MAX_BYTES,
            hints: Some(HINTS.as_str()),
            repeat: Repeat::Harmless { for_: REPEATS_FOR },
            quality: QUALITY,
            ..ChannelProfile::default()
        }
    }

    fn display(&self) -> ChannelDisplay<'_> {
        ChannelDisplay { streaming: Streaming::Preview(&*self.rooms), indicator: Some(self) }
    }

    fn admission(&self) -> Option<&dyn ChannelAccess> {
        Some(&self.rooms.people)
    }

    fn health(&self) -> ChannelHealth {
        let trouble = self.rooms.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ChannelHealth { trouble, ..ChannelHealth::default() }
    }
}

#[async_trait]
impl WorkIndicator for Matrix {
    async fn working(&self, route: &ReplyRoute, run: CancellationToken) {
        deliver::typing(&self.rooms, &route.conversation, run).await;
    }
}

fn cannot(detail: impl Into<String>) -> ChannelError {
    ChannelError { channel: NAME.into(), detail: detail.into() }
}
