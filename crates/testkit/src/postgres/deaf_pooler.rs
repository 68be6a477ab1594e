//! A pooler that keeps the session of each client, and passes no notification on.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    thread::JoinHandle,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

/// The type of a message that notifies. PostgreSQL, "Message Formats": `NotificationResponse`.
const NOTIFICATION: u8 = b'A';
/// The size of the head of a message: its type, and its length without the type.
const HEAD: usize = 5;

/// A running pooler on a free port of 127.0.0.1, for addresses with `sslmode=disable`. It has a thread of its own, and ends with
/// the value.
pub struct DeafPooler {
    address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl DeafPooler {
    /// Starts it before the server on this port of 127.0.0.1. Blocks for moments.
    ///
    /// # Errors
    /// There is no free port, or no thread.
    pub fn start(server_port: u16) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let token = stop.clone();
        let thread = std::thread::Builder::new().name("deaf-pooler".into()).spawn(move || {
            runtime.block_on(async {
                // The listener registers with the runtime.
                if let Ok(listener) = TcpListener::from_std(listener) {
                    token.run_until_cancelled(listen(listener, server_port)).await;
                }
            });
        })?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for DeafPooler {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            drop(thread.join()); // a panic of it has been printed
        }
    }
}

async fn listen(listener: TcpListener, server_port: u16) {
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                clients.spawn(serve(client, server_port));
            }
            Some(_) = clients.join_next() => {}
        }
    }
}

/// Serves one client until it or the server ends the connection.
async fn serve(client: TcpStream, server_port: u16) {
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server_port)).await else { return };
    // Without it, each small packet waits for the acknowledgement of the one before. A failure costs time only.
    drop((client.set_nodelay(true), server.set_nodelay(true)));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let answers = async {
        let mut unread = Vec::new();
        while from_server.read_buf(&mut unread).await.is_ok_and(|read| read > 0) {
            if to_client.write_all(&take_messages(&mut unread)).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = copy(&mut from_client, &mut to_server) => {}
        () = answers => {}
    }
}

/// Takes all whole messages of the server from the buffer, and returns those that are no notifications.
fn take_messages(unread: &mut Vec<u8>) -> Vec<u8> {
    let (mut passed, mut at) = (Vec::new(), 0);
    while let Some(head) = unread.get(at..at + HEAD) {
        let length = head[1..].iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        let end = at + 1 + length;
        let Some(message) = unread.get(at..end) else { break };
        if head[0] != NOTIFICATION {
            passed.extend_from_slice(message);
        }
        at = end;
    }
    unread.drain(..at);
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_are_left_out_also_in_pieces() {
        let (ready, notified) = (b"Z\0\0\0\x05I", b"A\0\0\0\x08abcd");
        let stream = [&ready[..], notified, ready, notified, notified, ready].concat();
        for piece in 1..=stream.len() {
            let (mut unread, mut passed) = (Vec::new(), Vec::new());
            for bytes in stream.chunks(piece) {
                unread.extend_from_slice(bytes);
                passed.extend(take_messages(&mut unread));
            }
            assert_eq!((passed, unread), (ready.repeat(3), Vec::new()), "{piece}");
        }
    }
}
