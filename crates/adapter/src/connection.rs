//! Serves one connection of an adapter: it reads frames, hands messages to the agent, and writes acknowledgements and
//! deliveries. The connection ends all its waits; messages that the agent has taken stay taken.

mod exchange;
mod silence;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use belay_protocol::{ChannelId, Cursors, Envelope};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::info;

use self::exchange::Exchange;
use crate::access::AdapterAccess;
use crate::frames::{FromAdapter, PROTOCOL, Ready, ToAdapter, read};
use crate::link::Link;

/// The maximum length of a frame. 256 KiB: the longest text, with each byte escaped in up to six, does not fit; no real one has that.
pub(crate) const FRAME_MAX: usize = 256 * 1024;

/// The maximum number of open messages: those without an `ack` other than `again`. A connection with more of them ends.
/// Its frames are read all the same until then, since the results of deliveries are among them.
pub(crate) const OPEN_MAX: usize = 256;

/// Maximum wait for the first frame.
const READY_DEADLINE: Duration = Duration::from_secs(10);

/// Maximum wait until an adapter has the close frame and has answered it. An adapter that is gone delays no shutdown.
pub(crate) const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// The code of a connection that ends for a reason of its own. RFC 6455, section 7.4.1.
const NORMAL: u16 = 1000;

/// The code of all connections when the daemon ends. RFC 6455, section 7.4.1: "going away", such as "a server going
/// down".
const GOING_AWAY: u16 = 1001;

/// The reason beside [`GOING_AWAY`].
const GOODBYE: &str = "Belay is shutting down";

/// The name of an adapter's cursor within its channel.
const CURSOR: &str = "adapter";

/// The parts that all connections share.
pub(crate) struct Served {
    pub(crate) access: AdapterAccess,
    pub(crate) link: Arc<Link>,
    pub(crate) cursors: Arc<dyn Cursors>,
    pub(crate) inbox: mpsc::Sender<Envelope>,
    /// Cancelled at shutdown: each connection sends its close frame.
    pub(crate) stop: CancellationToken,
}

impl Served {
    fn channel(&self) -> &ChannelId {
        self.access.channel()
    }
}

/// Serves a connection to its end.
pub(crate) async fn serve(mut socket: WebSocket, served: &Served) {
    let (code, why) = match converse(&mut socket, served).await {
        Some(why) => (NORMAL, why),
        None => (GOING_AWAY, GOODBYE.to_owned()),
    };
    info!(channel = %served.channel(), detail = why, "the connection of an adapter ended");
    let reason = why[..why.floor_char_boundary(120)].into(); // a close frame has room for 123 bytes
    let _ = timeout(CLOSE_LIMIT, close(socket, CloseFrame { code, reason })).await; // an adapter that is gone has none
}

/// Exchanges frames until the connection ends. Returns the reason; `None`: the daemon ends.
async fn converse(socket: &mut WebSocket, served: &Served) -> Option<String> {
    match served.stop.run_until_cancelled(begin(socket, served)).await? {
        Ok(ready) => {
            info!(channel = %served.channel(), ?ready, "an adapter is connected");
            let (generation, frames) = served.link.open(ready);
            let mut exchange = Exchange::new(socket, served, generation);
            let why = served.stop.run_until_cancelled(exchange.run(frames)).await;
            served.link.close(generation);
            why
        }
        Err(why) => Some(why),
    }
}

/// Sends the close frame, and reads until the adapter has answered it. A socket that is closed with unread bytes resets
/// the connection, and the adapter might not get the frame.
async fn close(mut socket: WebSocket, frame: CloseFrame) {
    let _ = socket.send(Message::Close(Some(frame))).await; // the adapter may have closed it before
    while let Some(Ok(_)) = socket.recv().await {}
}

/// Greets, and waits for the first frame.
async fn begin(socket: &mut WebSocket, served: &Served) -> Result<Ready, String> {
    let cursor = served.cursors.cursor(served.channel(), CURSOR).await;
    let cursor = cursor.map_err(|error| format!("the store fails: {error}"))?.map(|cursor| cursor.to_string());
    let hello = ToAdapter::Hello { protocol: PROTOCOL, channel: served.channel().to_string(), cursor };
    socket.send(Message::text(hello.text())).await.map_err(|error| error.to_string())?;
    let first = timeout(READY_DEADLINE, async {
        loop {
            match socket.recv().await {
                Some(Ok(Message::Text(text))) => return read(&text),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                _ => return Err("it ended before its frame ready".to_owned()),
            }
        }
    });
    match first.await {
        Ok(Ok(FromAdapter::Ready(ready))) => Ok(ready),
        Ok(Ok(_)) => Err("the first frame of an adapter is ready".to_owned()),
        Ok(Err(why)) => Err(why),
        Err(_) => Err("no frame ready came in time".to_owned()),
    }
}
