//! A collector for tests.
#![allow(clippy::unwrap_used)]

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// A collector that gives each request this answer. Returns its address and the requests, as text.
pub(crate) async fn collector(answer: &'static [u8]) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (requests, received) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok((mut peer, _)) = listener.accept().await {
            let request = read_request(&mut peer).await;
            peer.write_all(answer).await.unwrap();
            peer.shutdown().await.unwrap();
            if requests.send(request).await.is_err() {
                return;
            }
        }
    });
    (address, received)
}

/// Reads one request with its body.
async fn read_request(peer: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if bytes.len() >= head.len() + 4 + length.unwrap_or(0_usize) {
                return text;
            }
        }
        assert!(peer.read_buf(&mut bytes).await.unwrap() > 0, "the request is cut: {text}");
    }
}

/// An accepting answer.
pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// An address where nothing listens.
pub(crate) fn nobody() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}
