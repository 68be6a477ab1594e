//! Callbacks: the channel that posts ends of runs, pauses and notices to the addresses of clients.
//!
//! The outbox keeps and repeats them. The body is signed like the messages that `POST /webhook` accepts: HMAC-SHA256 of the
//! bytes by the secret of the webhook. `delivery_id` stays the same over all attempts, and `sent_at` is that of the
//! attempt.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::callback::{CALLBACK_CHANNEL, CallbackClient, origin_of};
use belay_protocol::{
    Channel, ChannelError, ChannelId, ChannelProfile, Clock, DeliverError, FileLinks, InboundStream, Outbound,
    SentFile, UnixMillis,
};
use bytes::Bytes;
use futures_util::stream;
use secrecy::SecretString;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::routes::webhook::signature_of;

/// The channel of callbacks. It takes no messages.
pub struct CallbackChannel {
    id: ChannelId,
    secret: SecretString,
    client: Arc<dyn CallbackClient>,
    clock: Arc<dyn Clock>,
    links: Arc<dyn FileLinks>,
}

impl CallbackChannel {
    /// A channel that signs with this secret. `links`: makes the links to sent files.
    pub fn new(
        secret: SecretString,
        client: Arc<dyn CallbackClient>,
        clock: Arc<dyn Clock>,
        links: Arc<dyn FileLinks>,
    ) -> Self {
        Self { id: CALLBACK_CHANNEL.into(), secret, client, clock, links }
    }
}

#[async_trait]
impl Channel for CallbackChannel {
    fn id(&self) -> &ChannelId {
        &self.id
    }

    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError> {
        Ok(Box::pin(stream::unfold(intake, |intake| async move {
            intake.cancelled().await;
            None
        })))
    }

    fn profile(&self) -> ChannelProfile<'_> {
        ChannelProfile { keeps_alive: false, carries_people: false, ..ChannelProfile::default() }
    }

    /// A receiver recognises a repetition, so an attempt without an answer is repeated too.
    async fn deliver(&self, message: &Outbound) -> Result<(), DeliverError> {
        let Some(url) = message.callback.as_deref() else {
            return Err(DeliverError::Refused { detail: "a message for people is no callback".into() });
        };
        let body = body(message, self.clock.now(), &*self.links)?;
        let signature = signature_of(&self.secret, &body);
        let retry = |after, detail| DeliverError::Retry { after, detail, pieces_sent: 0 };
        let answer = self.client.post(url, &signature, body).await.map_err(|why| retry(None, why))?;
        match answer.status {
            200..300 => Ok(()),
            410 => Err(DeliverError::Refused { detail: format!("{} answered 410: it is gone", origin_of(url)) }),
            status => Err(retry(answer.retry_after, format!("{} answered {status}", origin_of(url)))),
        }
    }
}

/// The body of this attempt.
fn body(message: &Outbound, sent_at: UnixMillis, links: &dyn FileLinks) -> Result<Bytes, DeliverError> {
    let refused = |error: serde_json::Error| DeliverError::Refused { detail: format!("no callback: {error}") };
    let mut object: Map<String, Value> = serde_json::from_str(&message.text).map_err(refused)?;
    object.insert("delivery_id".into(), message.id.to_string().into());
    object.insert("sent_at".into(), sent_at.0.into());
    if let (Some(run), Some(files)) = (message.run_id, object.get_mut("files")) {
        let mut sent: Vec<SentFile> = serde_json::from_value(files.take()).map_err(refused)?;
        links.add_links(run, &mut sent);
        *files = serde_json::to_value(sent).map_err(refused)?;
    }
    serde_json::to_vec(&object).map(Bytes::from).map_err(refused)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use belay_protocol::{OutboundFile, ReplyRoute, RunId, SentFileId};
    use serde_json::json;

    use super::*;

    struct Fixed;

    impl FileLinks for Fixed {
        fn link(&self, run: RunId, file: SentFileId) -> String {
            format!("/{run}/{file}")
        }
    }

    #[test]
    fn the_files_of_a_run_have_links_that_are_made_with_each_attempt() {
        let (name, digest) = ("a.pdf".to_owned(), "a".repeat(64).parse().unwrap());
        let file = OutboundFile { name, media_type: "application/pdf".into(), bytes: 3, digest, path: String::new() };
        let sent = SentFile::new("call".into(), &file, String::new(), None);
        let route = ReplyRoute { channel: CALLBACK_CHANNEL.into(), conversation: "s".into(), reply_to: None };
        let run = RunId::new();
        for (object, url) in [
            (json!({ "type": "run_ended", "files": [sent.clone()] }), json!(format!("/{run}/{}", sent.id))),
            (json!({ "type": "run_ended" }), Value::Null),
        ] {
            let message = Outbound::new(Some(run), route.clone(), object.to_string());
            let posted: Value = serde_json::from_slice(&body(&message, UnixMillis(5), &Fixed).unwrap()).unwrap();
            assert_eq!((&posted["files"][0]["url"], &posted["sent_at"]), (&url, &json!(5)), "{posted}");
        }
    }
}
