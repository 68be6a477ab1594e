//! The requests and offers of the stream of messages: each is repeated until it succeeds.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use belay_protocol::{Ack, AckSender, Envelope};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::api::{Api, ApiError, DEADLINE};
use super::gaps::News;
use super::intake::Me;
use super::lines::Item;
use super::room::Rooms;
use super::unreached::Unreached;
use crate::NAME;
use crate::config::{MatrixConfig, MatrixSecrets};

/// The pause after a message that could not be stored.
pub(crate) const LATER: Duration = Duration::from_secs(1);

/// Longest wait for the server at the start. After it, the daemon starts without and keeps trying.
pub(crate) const START_DEADLINE: Duration = Duration::from_secs(3);

/// Longest wait for an acknowledgement before the message is offered again.
const ACK_DEADLINE: Duration = Duration::from_secs(30);

/// Longest pause between attempts.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Endless back-off with jitter, from 1 s to 60 s.
pub(crate) struct Pauses(ExponentialBackoff);

impl Pauses {
    pub(crate) fn new() -> Self {
        let pauses = ExponentialBuilder::new().with_min_delay(Duration::from_secs(1)).with_max_delay(PAUSE_MAX);
        Self(pauses.with_jitter().without_max_times().build())
    }

    pub(crate) fn after(&mut self, error: &ApiError) -> Duration {
        match error {
            ApiError::Limited(wait) => *wait,
            _ => self.0.next().unwrap_or(PAUSE_MAX),
        }
    }
}

/// The place at which the next request begins.
#[derive(Clone)]
pub(crate) enum Since {
    /// At the token that is kept; without one, now.
    Kept,
    /// Now.
    Now,
    At(String),
}

/// Asks for news.
pub(crate) async fn ask(rooms: &Rooms, since: Since) -> Result<News, ApiError> {
    introduce(rooms, DEADLINE).await?;
    let since = match since {
        Since::Now => None,
        Since::At(token) => Some(token.into()),
        Since::Kept => {
            let name = rooms.me.get().map(|me| me.user.as_str()).unwrap_or_default();
            let kept = rooms.parts.cursors.cursor(&NAME.into(), name).await;
            kept.map_err(|error| ApiError::NotSent(format!("the store has failed: {error}")))?
        }
    };
    rooms.news(since.as_deref()).await
}

/// Asks a homeserver whose account the token is of.
///
/// # Errors
/// The reason, without the token; `true`: the server refuses the token.
pub async fn who_am_i(
    config: &MatrixConfig,
    secrets: MatrixSecrets,
    http: reqwest::Client,
) -> Result<String, (bool, String)> {
    let api = Api::new(http, config.homeserver.as_deref().unwrap_or_default(), secrets.token);
    let api = api.map_err(|detail| (true, detail))?;
    api.whoami(START_DEADLINE).await.map_err(|error| (error.is_auth(), error.to_string()))
}

/// Asks for the account's own id and name, once.
pub(crate) async fn introduce(rooms: &Rooms, deadline: Duration) -> Result<(), ApiError> {
    if rooms.me.get().is_some() {
        return Ok(());
    }
    let user = rooms.api.whoami(deadline).await?;
    let name = rooms.api.display_name(&user).await?;
    info!(user, "the homeserver knows the account");
    let _ = rooms.me.set(Me { user, name }); // the first answer counts
    Ok(())
}

/// Reads an event and offers its message until the agent has it, or has refused it for good.
pub(crate) async fn settle(rooms: Arc<Rooms>, item: Item, offers: mpsc::Sender<Envelope>) -> Item {
    let (mut pauses, mut unreached) = (Pauses::new(), Unreached::default());
    let inbound = loop {
        match rooms.read(&item.room, &item.event, &item.hurry).await {
            Ok(inbound) => break inbound,
            Err(error) => {
                if Unreached::concerns(&item.event.kind) && unreached.is_given_up(&rooms.api, &error).await {
                    warn!(room = item.room, detail = %error, "a room could not be joined for an hour; invite Belay again");
                    return item;
                }
                let pause = pauses.after(&error);
                warn!(room = item.room, detail = %error, pause_ms = pause.as_millis() as u64, "an event is read again later");
                sleep(pause).await;
            }
        }
    };
    let Some(mut inbound) = inbound else { return item };
    // With a key, the later offer of a `/stop` would count as a redelivery.
    inbound.key = inbound.key.filter(|_| item.is_in_order());
    loop {
        let (ack, answer) = AckSender::channel();
        if offers.send(Envelope { inbound: inbound.clone(), ack }).await.is_err() {
            return item; // intake has ended, and nothing reads this
        }
        let pause = match timeout(ACK_DEADLINE, answer).await {
            Ok(Ok(Ack::Refused(refusal))) => refusal.again(),
            Ok(Ok(_)) => None,
            Err(_) | Ok(Err(_)) => Some(LATER), // no acknowledgement has come
        };
        let Some(pause) = pause else { return item };
        if !item.is_in_order() {
            return item; // the same `/stop` is in its line
        }
        sleep(pause).await;
    }
}
