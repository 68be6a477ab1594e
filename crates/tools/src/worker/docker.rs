//! The few requests to Docker or Podman that a worker's container needs, over its Unix socket.
//!
//! Source: Docker Engine API 1.41, which Podman's service offers as well.

use std::path::Path;
use std::time::Duration;

use reqwest::header::{CONNECTION, UPGRADE};
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;
use tokio::io::AsyncWriteExt;

/// The oldest version that has all of what we ask for, and that current servers still speak.
const VERSION: &str = "v1.41";
/// Longest wait for an answer that takes no work. 60 s: making a container may unpack an image's layers.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Most bytes of an answer that are read.
const ANSWER_BYTES: usize = 1024 * 1024;
/// Lines of a container's standard error that are read when it has failed.
const WORDS_LINES: usize = 10;
/// Most characters of a refusal that are repeated.
const SAID_CHARS: usize = 300;

/// A connection to the server of containers.
#[derive(Clone, Debug)]
pub(super) struct Docker(reqwest::Client);

impl Docker {
    /// A client of the server behind this socket. Connects with the first request.
    pub(super) fn new(socket: &Path) -> Result<Self, String> {
        let http = reqwest::Client::builder().tls_certs_only([]).no_proxy().unix_socket(socket);
        http.build().map(Self).map_err(|error| format!("no client for {} can be made: {error}", socket.display()))
    }

    /// Makes a container; its id.
    pub(super) async fn create(&self, name: &str, shape: &Value) -> Result<String, String> {
        let answer = self.ask(Method::POST, &format!("containers/create?name={name}"), Some(shape), &[]).await?;
        answer["Id"].as_str().map(str::to_owned).ok_or_else(|| "the new container has no id".to_owned())
    }

    /// Takes the standard input of a container that is not started yet.
    pub(super) async fn attach(&self, id: &str) -> Result<reqwest::Upgraded, String> {
        let url = url(&format!("containers/{id}/attach?stream=1&stdin=1"));
        let request = self.0.post(url).header(CONNECTION, "Upgrade").header(UPGRADE, "tcp").timeout(ANSWER_LIMIT);
        let response = request.send().await.map_err(unreachable)?;
        match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => response.upgrade().await.map_err(unreachable),
            _ => Err(said(response).await),
        }
    }

    /// Starts it.
    pub(super) async fn start(&self, id: &str) -> Result<(), String> {
        self.ask(Method::POST, &format!("containers/{id}/start"), None, &[]).await.map(drop)
    }

    /// Waits for its end, however long that takes; the exit code.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn wait(&self, id: &str) -> Result<i64, String> {
        let response = self.0.post(url(&format!("containers/{id}/wait"))).send().await.map_err(unreachable)?;
        let answer = read(response, &[]).await?;
        answer["StatusCode"].as_i64().ok_or_else(|| "it ended, and nobody says how".to_owned())
    }

    /// The last lines of its standard error, in one line.
    pub(super) async fn last_words(&self, id: &str) -> Result<String, String> {
        let path = format!("containers/{id}/logs?stderr=1&tail={WORDS_LINES}");
        let response = self.0.get(url(&path)).timeout(ANSWER_LIMIT).send().await.map_err(unreachable)?;
        if !response.status().is_success() {
            return Err(said(response).await);
        }
        let words = without_frames(&bytes_of(response).await?);
        Ok(String::from_utf8_lossy(&words).split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// Ends it: TERM, so many seconds, KILL. One that has ended, or is gone, is fine.
    pub(super) async fn stop(&self, id: &str, grace_s: u64) -> Result<(), String> {
        let path = format!("containers/{id}/stop?t={grace_s}");
        self.ask(Method::POST, &path, None, &[StatusCode::NOT_MODIFIED, StatusCode::NOT_FOUND]).await.map(drop)
    }

    /// Removes it with what it has written. One that is gone is fine.
    pub(super) async fn remove(&self, id: &str) -> Result<(), String> {
        let path = format!("containers/{id}?force=1&v=1");
        self.ask(Method::DELETE, &path, None, &[StatusCode::NOT_FOUND]).await.map(drop)
    }

    /// The ids of all containers with this label, running or not.
    pub(super) async fn labelled(&self, label: &str) -> Result<Vec<String>, String> {
        let filters = serde_json::json!({ "label": [label] }).to_string();
        let filters: String = url::form_urlencoded::byte_serialize(filters.as_bytes()).collect();
        let answer = self.ask(Method::GET, &format!("containers/json?all=1&filters={filters}"), None, &[]).await?;
        let containers = answer.as_array().ok_or("the list of containers is none")?;
        Ok(containers.iter().filter_map(|container| container["Id"].as_str().map(str::to_owned)).collect())
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        fine: &[StatusCode],
    ) -> Result<Value, String> {
        let mut request = self.0.request(method, url(path)).timeout(ANSWER_LIMIT);
        if let Some(body) = body {
            request = request.json(body);
        }
        read(request.send().await.map_err(unreachable)?, fine).await
    }
}

/// Writes one line to a container's standard input and closes it.
pub(super) async fn hand_over(mut stdin: reqwest::Upgraded, line: &str) -> Result<(), String> {
    let written = async {
        stdin.write_all(line.as_bytes()).await?;
        stdin.write_all(b"\n").await?;
        stdin.shutdown().await
    };
    written.await.map_err(|error| format!("the container does not take its token: {error}"))
}

fn url(path: &str) -> String {
    // The host is never looked up: every connection goes to the socket.
    format!("http://docker.invalid/{VERSION}/{path}")
}

fn unreachable(error: reqwest::Error) -> String {
    let mut words = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        words = cause.to_string();
        source = cause.source();
    }
    format!("the server of containers does not answer: {words}")
}

async fn read(response: Response, fine: &[StatusCode]) -> Result<Value, String> {
    let status = response.status();
    if fine.contains(&status) {
        return Ok(Value::Null);
    }
    if !status.is_success() {
        return Err(said(response).await);
    }
    let bytes = bytes_of(response).await?;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes).map_err(|error| format!("the server of containers answers no JSON: {error}"))
}

/// A refusal in the server's own words, which are `{"message": "…"}`.
async fn said(response: Response) -> String {
    let status = response.status().as_u16();
    let bytes = bytes_of(response).await.unwrap_or_default();
    let message =
        serde_json::from_slice::<Value>(&bytes).ok().and_then(|answer| Some(answer["message"].as_str()?.to_owned()));
    let words: String = message.unwrap_or_default().chars().take(SAID_CHARS).collect();
    format!("the server of containers says {status}: {words}")
}

/// What a container without a terminal has written, without the frames that say to which output.
///
/// Source: Docker Engine API, "Attach to a container", stream format: the kind, three zeros, the length as a big-endian
/// number of four bytes, the bytes.
fn without_frames(mut framed: &[u8]) -> Vec<u8> {
    let mut written = Vec::new();
    while let Some(([_, _, _, _, length @ ..], rest)) = framed.split_first_chunk::<8>() {
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        let (piece, behind) = rest.split_at(length.min(rest.len()));
        written.extend_from_slice(piece);
        framed = behind;
    }
    written
}

async fn bytes_of(mut response: Response) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(unreachable)? {
        if bytes.len() + piece.len() > ANSWER_BYTES {
            return Err("the server of containers answers at too great a length".to_owned());
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}
