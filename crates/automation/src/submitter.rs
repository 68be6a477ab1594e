//! Where the agent's own parts put messages into its merged streams: a job to begin, a routine that has fired, a message that is
//! passed on. From there on they go the way of every message.

use belay_protocol::{Ack, AckSender, ChannelId, Envelope, Inbound};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Messages that wait to be taken. Then: whoever has one waits; the outer loop takes them as it takes every channel's.
const CAPACITY: usize = 64;

/// The end that puts messages in. Clones share it.
#[derive(Clone, Debug)]
pub struct Submitter(mpsc::Sender<Envelope>);

impl Submitter {
    /// The end that puts messages in, and the stream that the outer loop merges with those of its channels.
    pub fn new() -> (Self, BoxStream<'static, (ChannelId, Option<Envelope>)>) {
        let (tx, rx) = mpsc::channel(CAPACITY);
        let named = |envelope: Envelope| (envelope.inbound.channel.clone(), Some(envelope));
        (Self(tx), ReceiverStream::new(rx).map(named).boxed())
    }

    /// Puts a message in and waits for its acknowledgement; `None`: the agent ends, or its lane did, and nobody knows whether
    /// the message was accepted. What has an idempotency key can be sent again.
    ///
    /// # Cancel safety
    /// Dropped midway, the message may have been accepted.
    pub async fn send(&self, inbound: Inbound) -> Option<Ack> {
        let (ack, answer) = AckSender::channel();
        self.0.send(Envelope { inbound, ack }).await.ok()?;
        answer.await.ok()
    }
}
