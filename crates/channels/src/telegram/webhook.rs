//! The webhook, which Telegram calls.
//!
//! It checks path and method first, then the secret, and only then reads the body. 200 means that the message is
//! committed or not for the bot. A message that may be accepted later is answered 503, and Telegram delivers it again.
//! A body that is not JSON is answered 400: only a misconfigured sender that knows the secret sends one. Unknown JSON
//! is answered 200: it would be unknown the next time too, and Telegram would hold back all later updates.
//!
//! Nothing here keeps the order of a chat. Telegram does: it calls with the next message or edit of a chat only after the
//! one before was answered with success or has expired (github.com/tdlib/telegram-bot-api, WebhookActor.cpp: `send_update`,
//! `on_update_error`). A press of a button has an order of its own, and waits for no message.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::routing::post;
use belay_protocol::AckSender;
use futures_util::StreamExt;
use secrecy::{ExposeSecret, SecretString};
use serde_json::value::RawValue;
use subtle::ConstantTimeEq;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::arrivals::Arrival;
use super::router::{AgentMessage, Settled, Sorted, UpdateRouter};
use super::wire::update_id;

/// Bot API, setWebhook, `secret_token`.
const SECRET_HEADER: &str = "X-Telegram-Bot-Api-Secret-Token";

/// Longest body. 1 MiB: a message has 4096 characters; the rest is its entities and the message that it replies to.
const BODY_MAX_BYTES: usize = 1024 * 1024;

/// Longest time to receive a body.
const BODY_DEADLINE: Duration = Duration::from_secs(10);

/// Longest wait for the acknowledgement. Telegram gives up after about a minute and delivers again in both cases.
const ACK_DEADLINE: Duration = Duration::from_secs(10);

/// The same for a message whose file is fetched first. If the file takes longer, it is fetched all the same, and the
/// store recognises the second delivery.
const FILE_ACK_DEADLINE: Duration = Duration::from_secs(50);

/// The state of the route.
pub(super) struct Webhook {
    pub(super) router: Arc<UpdateRouter>,
    pub(super) secret: SecretString,
    pub(super) inbox: mpsc::Sender<Arrival>,
}

/// Makes the route.
pub(super) fn router(path: &str, webhook: Arc<Webhook>) -> Router {
    Router::new().route(path, post(receive)).with_state(webhook)
}

async fn receive(State(webhook): State<Arc<Webhook>>, request: Request) -> StatusCode {
    let (head, body) = request.into_parts();
    let given = head.headers.get(SECRET_HEADER).map_or(&b""[..], |value| value.as_bytes());
    if !bool::from(given.ct_eq(webhook.secret.expose_secret().as_bytes())) {
        debug!("a webhook call without the right secret");
        return StatusCode::UNAUTHORIZED;
    }
    let body = match timeout(BODY_DEADLINE, read(body)).await {
        Ok(Ok(body)) => body,
        Ok(Err(status)) => return status,
        Err(_) => return StatusCode::REQUEST_TIMEOUT,
    };
    let Ok(update) = serde_json::from_slice::<Box<RawValue>>(&body) else {
        warn!(bytes = body.len(), "a webhook call whose body is not JSON");
        return StatusCode::BAD_REQUEST;
    };
    match webhook.router.sort(&update).await {
        Sorted::Message(message) => {
            webhook.hand_over(update_id(&update).unwrap_or_default(), *message).await // it was parsed
        }
        Sorted::Done => StatusCode::OK,
        Sorted::Later => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl Webhook {
    async fn hand_over(&self, update_id: i64, message: AgentMessage) -> StatusCode {
        let has_file = !message.files.is_empty() || message.album.is_some();
        let deadline = if has_file { FILE_ACK_DEADLINE } else { ACK_DEADLINE };
        let after = Arc::clone(&message.after);
        let (ack, answer) = AckSender::channel();
        let handed = async {
            let arrival = Arrival { update_id, more_updates: Vec::new(), message, acks: vec![ack] };
            self.inbox.send(arrival).await.ok()?; // closed: intake has ended
            answer.await.ok()
        };
        let ack = timeout(deadline, handed).await.ok().flatten();
        match self.router.settle(&after, ack).await {
            Settled::Done => StatusCode::OK,
            Settled::Later { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

async fn read(body: Body) -> Result<Vec<u8>, StatusCode> {
    if body.size_hint().lower() > BODY_MAX_BYTES as u64 {
        return Err(StatusCode::PAYLOAD_TOO_LARGE); // by its Content-Length
    }
    let mut bytes = Vec::new();
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| StatusCode::BAD_REQUEST)?; // the connection broke: nobody reads this status
        if bytes.len() + chunk.len() > BODY_MAX_BYTES {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
