//! The requests to Docker or Podman that a worker's container needs, over the Unix socket of the engine.
//!
//! Source: Docker Engine API 1.41, which Podman's service offers as well.

use std::path::Path;
use std::time::Duration;

use reqwest::header::{CONNECTION, UPGRADE};
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;
use tokio::io::AsyncWriteExt;

/// The oldest version with all required features. Current engines still support it.
const VERSION: &str = "v1.41";
/// Longest wait for the answer to a request that does not wait for a container. 60 s: creating a container may unpack
/// the layers of an image.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Most bytes of an answer that are read.
const ANSWER_BYTES: usize = 1024 * 1024;
/// Number of lines of a failed container's standard error that are read.
const STDERR_LINES: usize = 10;
/// Most characters of the engine's error message that are quoted.
const ERROR_CHARS: usize = 300;

/// A client of the container engine.
#[derive(Clone, Debug)]
pub(super) struct Docker(reqwest::Client);

impl Docker {
    /// Creates a client for this socket. The first request opens the connection.
    pub(super) fn new(socket: &Path) -> Result<Self, String> {
        let http = reqwest::Client::builder().tls_certs_only([]).no_proxy().unix_socket(socket);
        http.build().map(Self).map_err(|error| format!("no client for {} can be made: {error}", socket.display()))
    }

    /// Creates a container and returns its id.
    pub(super) async fn create(&self, name: &str, shape: &Value) -> Result<String, String> {
        let answer = self.ask(Method::POST, &format!("containers/create?name={name}"), Some(shape), &[]).await?;
        answer["Id"].as_str().map(str::to_owned).ok_or_else(|| "the new container has no id".to_owned())
    }

    /// Attaches to the standard input of a container that is not started yet.
    pub(super) async fn attach(&self, id: &str) -> Result<reqwest::Upgraded, String> {
        let url = url(&format!("containers/{id}/attach?stream=1&stdin=1"));
        let request = self.0.post(url).header(CONNECTION, "Upgrade").header(UPGRADE, "tcp").timeout(ANSWER_LIMIT);
        let response = request.send().await.map_err(unreachable)?;
        match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => response.upgrade().await.map_err(unreachable),
            _ => Err(error_message(response).await),
        }
    }

    /// Starts a container.
    pub(super) async fn start(&self, id: &str) -> Result<(), String> {
        self.ask(Method::POST, &format!("containers/{id}/start"), None, &[]).await.map(drop)
    }

    /// Waits without limit until a container exits, and returns its exit code.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn wait(&self, id: &str) -> Result<i64, String> {
        let response = self.0.post(url(&format!("containers/{id}/wait"))).send().await.map_err(unreachable)?;
        let answer = read(response, &[]).await?;
        answer["StatusCode"].as_i64().ok_or_else(|| "it ended without an exit code".to_owned())
    }

    /// The last lines of a container's standard error, joined to one line.
    pub(super) async fn stderr_tail(&self, id: &str) -> Result<String, String> {
        let path = format!("containers/{id}/logs?stderr=1&tail={STDERR_LINES}");
        let response = self.0.get(url(&path)).timeout(ANSWER_LIMIT).send().await.map_err(unreachable)?;
        if !response.status().is_success() {
            return Err(error_message(response).await);
        }
        let output = without_frames(&bytes_of(response).await?);
        Ok(String::from_utf8_lossy(&output).split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// Stops a container: SIGTERM, then SIGKILL after `grace_s` seconds. A container that has exited or does not exist
    /// is not an error.
    pub(super) async fn stop(&self, id: &str, grace_s: u64) -> Result<(), String> {
        let path = format!("containers/{id}/stop?t={grace_s}");
        self.ask(Method::POST, &path, None, &[StatusCode::NOT_MODIFIED, StatusCode::NOT_FOUND]).await.map(drop)
    }

    /// Removes a container with its files. A container that does not exist is not an error.
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
pub(super) async fn send_line(mut stdin: reqwest::Upgraded, line: &str) -> Result<(), String> {
    let written = async {
        stdin.write_all(line.as_bytes()).await?;
        stdin.write_all(b"\n").await?;
        stdin.shutdown().await
    };
    written.await.map_err(|error| format!("the container does not take its token: {error}"))
}

fn url(path: &str) -> String {
    // The host name is never resolved: every connection uses the socket.
    format!("http://docker.invalid/{VERSION}/{path}")
}

fn unreachable(error: reqwest::Error) -> String {
    let mut innermost = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        innermost = cause.to_string();
        source = cause.source();
    }
    format!("the container engine does not answer: {innermost}")
}

async fn read(response: Response, fine: &[StatusCode]) -> Result<Value, String> {
    let status = response.status();
    if fine.contains(&status) {
        return Ok(Value::Null);
    }
    if !status.is_success() {
        return Err(error_message(response).await);
    }
    let bytes = bytes_of(response).await?;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes).map_err(|error| format!("the container engine answers no JSON: {error}"))
}

/// The engine's error message, from the body `{"message": "…"}`.
async fn error_message(response: Response) -> String {
    let status = response.status().as_u16();
    let bytes = bytes_of(response).await.unwrap_or_default();
    let message =
        serde_json::from_slice::<Value>(&bytes).ok().and_then(|answer| Some(answer["message"].as_str()?.to_owned()));
    let message: String = message.unwrap_or_default().chars().take(ERROR_CHARS).collect();
    format!("the container engine says {status}: {message}")
}

/// Output of a container without a terminal, without the frame headers that name the stream.
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
            return Err("the container engine answers at too great a length".to_owned());
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}
