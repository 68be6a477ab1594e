//! Posts to addresses that a client has chosen, when something has happened: the port [`CallbackClient`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::ids::{ChannelId, RunId, SessionKey};
use crate::outbound::Outbound;
use crate::route::ReplyRoute;
use crate::run::RunRecord;

/// The channel of callbacks.
pub const CALLBACK_CHANNEL: &str = "callback";

/// The maximum length of an address, in bytes.
pub const CALLBACK_URL_MAX_BYTES: usize = 2048;

/// The maximum length of a reply in a callback, in bytes. A longer one is left out; the run has it.
const REPLY_MAX_BYTES: usize = 1 << 20;

/// Posts to addresses that a client has chosen. It connects to no address that the rules for fetched pages refuse, and
/// follows no redirect.
#[async_trait]
pub trait CallbackClient: Send + Sync {
    /// Checks an address, as far as this is possible without resolving its name.
    ///
    /// # Errors
    /// Why it is refused, for the client.
    fn check(&self, url: &str) -> Result<(), String>;

    /// Posts a JSON object with this value of `X-Hub-Signature-256`. It reads no body of the answer.
    ///
    /// # Errors
    /// Why there is no answer: the address is refused, or nobody answered in time.
    ///
    /// # Cancel safety
    /// If the future is dropped, the receiver may or may not have the object.
    async fn post(&self, url: &str, signature: &str, body: Bytes) -> Result<CallbackAnswer, String>;
}

/// The scheme and host of an address, for people and logs: the rest may be a secret.
pub fn origin_of(url: &str) -> &str {
    let host_at = url.find("://").map_or(0, |at| at + 3);
    let end = url[host_at..].find(['/', '?', '#', '\\']).map_or(url.len(), |at| host_at + at);
    &url[..end]
}

/// The answer of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallbackAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The delay that it asks for.
    pub retry_after: Option<Duration>,
}

impl Outbound {
    /// The end of a run, or its pause for a question, for the address that its client gave.
    pub fn callback_of_run(url: &str, record: &RunRecord) -> Self {
        let mut object = match serde_json::to_value(record) {
            Ok(Value::Object(object)) => object,
            _ => Map::new(),
        };
        if record.reply.as_ref().is_some_and(|reply| reply.len() > REPLY_MAX_BYTES) {
            object.insert("reply".into(), Value::Null);
            object.insert("reply_left_out".into(), Value::Bool(true));
        }
        let kind = if record.ended_at.is_some() { "run_ended" } else { "run_paused" };
        Self::callback(url, kind, &record.session, Some(record.run_id), object)
    }

    /// A notice in a session, for the address that the session has.
    pub fn callback_of_notice(url: &str, session: &SessionKey, notice: &str) -> Self {
        let object = Map::from_iter([
            ("session".to_owned(), Value::from(session.as_str())),
            ("notice".to_owned(), Value::from(notice)),
        ]);
        Self::callback(url, "notice", session, None, object)
    }

    fn callback(
        url: &str,
        kind: &str,
        session: &SessionKey,
        run: Option<RunId>,
        mut object: Map<String, Value>,
    ) -> Self {
        object.insert("type".into(), kind.into());
        let route = ReplyRoute {
            channel: ChannelId::from(CALLBACK_CHANNEL),
            conversation: Arc::from(session.as_str()),
            reply_to: None,
        };
        Self { callback: Some(url.into()), ..Self::new(run, route, Value::Object(object).to_string()).checked() }
    }
}
