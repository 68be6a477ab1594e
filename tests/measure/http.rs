//! A minimal HTTP/1.1 client: one kept-alive connection, one request at a time, whole bodies; and streams of events.
//!
//! A general client would use more processor time per message than the daemon should.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest answer. A longer one is a fault of the measurement.
const LIMIT_BYTES: usize = 8 << 20;

/// One connection to one server.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    address: SocketAddr,
    /// Additional header lines.
    headers: String,
    buffer: Vec<u8>,
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The whole body.
    pub body: Vec<u8>,
}

impl Connection {
    /// Connects, and disables Nagle's algorithm.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, address, headers: String::new(), buffer: Vec::with_capacity(16 << 10) })
    }

    /// Adds this bearer token to each request.
    pub fn with_token(self, token: &str) -> Self {
        Self { headers: format!("authorization: Bearer {token}\r\n"), ..self }
    }

    /// Sends a JSON body and reads the whole answer.
    pub async fn post(&mut self, path: &str, body: &[u8]) -> Result<Answer> {
        self.request("POST", path, body, |_| {}).await
    }

    /// As [`Self::post`]; `read` gets what has come of the answer so far, after each read.
    pub async fn post_watched(&mut self, path: &str, body: &[u8], read: impl FnMut(&[u8])) -> Result<Answer> {
        self.request("POST", path, body, read).await
    }

    /// Sends the bytes of a file and reads the whole answer.
    pub async fn upload(&mut self, path: &str, bytes: &[u8]) -> Result<Answer> {
        self.exchange("POST", path, "application/octet-stream", bytes, |_| {}).await
    }

    /// Reads a whole answer.
    pub async fn get(&mut self, path: &str) -> Result<Answer> {
        self.request("GET", path, b"", |_| {}).await
    }

    async fn request(&mut self, method: &str, path: &str, body: &[u8], read: impl FnMut(&[u8])) -> Result<Answer> {
        self.exchange(method, path, "application/json", body, read).await
    }

    async fn exchange(
        &mut self,
        method: &str,
        path: &str,
        kind: &str,
        body: &[u8],
        mut read: impl FnMut(&[u8]),
    ) -> Result<Answer> {
        let head = format!("content-type: {kind}\r\ncontent-length: {}\r\n", body.len());
        self.send(method, path, &head, body).await?;
        let head_end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at + 4;
            }
            self.more(&mut read).await?;
        };
        let head = std::str::from_utf8(&self.buffer[..head_end])?.to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).context("no status line")?;
        let body = match header(&head, "content-length") {
            Some(length) => self.counted(head_end, length.parse()?, &mut read).await?,
            None if head.contains("transfer-encoding: chunked") => self.chunked(head_end, &mut read).await?,
            None => Vec::new(),
        };
        Ok(Answer { status, body })
    }

    /// Asks for server-sent events. The answer is read by [`Events::until`].
    pub async fn events(mut self, path: &str) -> Result<Events> {
        self.send("GET", path, "", b"").await?;
        Ok(Events { connection: self, searched: 0 })
    }

    async fn send(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) -> Result<()> {
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n{}{headers}\r\n", self.address, self.headers).into_bytes();
        request.extend_from_slice(body);
        self.stream.write_all(&request).await?;
        self.buffer.clear();
        Ok(())
    }

    async fn counted(&mut self, start: usize, length: usize, read: &mut impl FnMut(&[u8])) -> Result<Vec<u8>> {
        while self.buffer.len() < start + length {
            self.more(read).await?;
        }
        Ok(self.buffer[start..start + length].to_vec())
    }

    async fn chunked(&mut self, mut at: usize, read: &mut impl FnMut(&[u8])) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line_end = loop {
                if let Some(found) = find(&self.buffer[at..], b"\r\n") {
                    break at + found;
                }
                self.more(read).await?;
            };
            let length = usize::from_str_radix(std::str::from_utf8(&self.buffer[at..line_end])?.trim(), 16)?;
            let start = line_end + 2;
            while self.buffer.len() < start + length + 2 {
                self.more(read).await?;
            }
            if length == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&self.buffer[start..start + length]);
            at = start + length + 2;
        }
    }

    async fn more(&mut self, read: &mut impl FnMut(&[u8])) -> Result<()> {
        if self.buffer.len() > LIMIT_BYTES {
            bail!("an answer of more than {LIMIT_BYTES} bytes");
        }
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            bail!("the server closed the connection in the middle of an answer");
        }
        read(&self.buffer);
        Ok(())
    }
}

/// A stream of server-sent events.
#[derive(Debug)]
pub struct Events {
    connection: Connection,
    /// The bytes that the last search has passed.
    searched: usize,
}

impl Events {
    /// Reads until the stream contains `text` after the last text that was found. Returns the bytes after it that have
    /// arrived so far.
    pub async fn until(&mut self, text: &str) -> Result<&[u8]> {
        let at = loop {
            let buffer = &self.connection.buffer;
            if let Some(at) = find(&buffer[self.searched..], text.as_bytes()) {
                break self.searched + at + text.len();
            }
            // The text may have begun in the last bytes.
            self.searched = self.searched.max((buffer.len() + 1).saturating_sub(text.len()));
            self.connection.more(&mut |_| {}).await.with_context(|| format!("waiting for {text}"))?;
        };
        self.searched = at;
        Ok(&self.connection.buffer[at..])
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// The position of the first `needle`.
pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
