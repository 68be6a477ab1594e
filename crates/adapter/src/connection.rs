//! Serves one connection of an adapter: it reads frames, hands messages to the agent, and writes acknowledgements and
//! deliveries. The connection ends all its waits; messages that the agent has taken stay taken.

mod exchange;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use belay_protocol::{ChannelId, Cursors, Envelope};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::info;

use self::exchange::Exchange;
use crate::access::AdapterAccess;
use crate::frames::{FromAdapter, PROTOCOL, Ready, ToAdapter, read};
use crate::link::Link;

/// The maximum length of a frame. 256 KiB: the longest text, with each byte escaped in up to six, does not fit; no real one has that.
pub(crate) const FRAME_MAX: usize = 256 * 1024;

/// Maximum wait for the first frame.
const READY_DEADLINE: Duration = Duration::from_secs(10);

/// The name of an adapter's cursor within its channel.
const CURSOR: &str = "adapter";

/// What connections need.
pub(crate) struct Served {
    pub(crate) access: AdapterAccess,
    pub(crate) link: Arc<Link>,
    pub(crate) cursors: Arc<dyn Cursors>,
    pub(crate) inbox: mpsc::Sender<Envelope>,
}

impl Served {
    fn channel(&self) -> &ChannelId {
        self.access.channel()
    }
}

/// Serves a connection to its end.
pub(crate) async fn serve(mut socket: WebSocket, served: &Served) {
    let why = match begin(&mut socket, served).await {
        Ok(ready) => {
            info!(channel = %served.channel(), ?ready, "an adapter is connected");
            let (generation, frames) = served.link.open(ready);
            let why = Exchange::new(&mut socket, served, generation).run(frames).await;
            served.link.close(generation);
            why
        }
        Err(why) => why,
    };
    info!(channel = %served.channel(), why, "the connection of an adapter ended");
    let reason = why[..why.floor_char_boundary(120)].into(); // a close frame has room for 123 bytes
    let close = socket.send(Message::Close(Some(CloseFrame { code: 1000, reason })));
    let _ = timeout(Duration::from_secs(2), close).await; // an adapter that is gone is not waited for
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
