//! The webhook: Telegram calls us.
//!
//! Order: path and method, the secret, only then the body. 200 means that the message is committed or not for us;
//! whatever may be accepted later is answered 503, and Telegram delivers it again. A body that is not JSON is answered
//! 400: nobody but a misconfigured sender who knows the secret makes one. JSON that we do not understand is answered 200,
//! since it would be the same the next time, and Telegram would hold back everything after it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::routing::post;
use belay_protocol::{AckSender, Envelope};
use futures_util::StreamExt;
use secrecy::{ExposeSecret, SecretString};
use serde_json::value::RawValue;
use subtle::ConstantTimeEq;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::router::{Parcel, Settled, Sorted, UpdateRouter};

/// Bot API, setWebhook, `secret_token`.
const SECRET_HEADER: &str = "X-Telegram-Bot-Api-Secret-Token";

/// Longest body. 1 MiB: a message has 4096 characters; the rest is its entities and what it replies to.
const BODY_MAX_BYTES: usize = 1024 * 1024;

/// Longest time a body may take.
const BODY_DEADLINE: Duration = Duration::from_secs(10);

/// Longest wait for the acknowledgement. Telegram gives up after about a minute and delivers again either way.
const ACK_DEADLINE: Duration = Duration::from_secs(10);

/// What the route needs.
pub(super) struct Webhook {
    pub(super) router: Arc<UpdateRouter>,
    pub(super) secret: SecretString,
    pub(super) inbox: mpsc::Sender<Envelope>,
}

/// The route.
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
        Sorted::Message(parcel) => webhook.hand_over(*parcel).await,
        Sorted::Done => StatusCode::OK,
        Sorted::Later => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl Webhook {
    async fn hand_over(&self, parcel: Parcel) -> StatusCode {
        let Parcel { inbound, after } = parcel;
        let (ack, answer) = AckSender::channel();
        let handed = async {
            self.inbox.send(Envelope { inbound, ack }).await.ok()?; // closed: intake has ended
            answer.await.ok()
        };
        let ack = timeout(ACK_DEADLINE, handed).await.ok().flatten();
        match self.router.settle(&after, ack).await {
            Settled::Done => StatusCode::OK,
            Settled::Later { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

async fn read(body: Body) -> Result<Vec<u8>, StatusCode> {
    if body.size_hint().lower() > BODY_MAX_BYTES as u64 {
        return Err(StatusCode::PAYLOAD_TOO_LARGE); // as its Content-Length says
    }
    let mut bytes = Vec::new();
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| StatusCode::BAD_REQUEST)?; // broken off: nobody reads this
        if bytes.len() + chunk.len() > BODY_MAX_BYTES {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
