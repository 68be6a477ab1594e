//! Requests to a homeserver: one each; no retry.

use std::time::Duration;

use reqwest::{Body, Method, RequestBuilder, Response, StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Largest answer that is read. 64 MiB: far more than an answer of `/sync` with our filter.
const ANSWER_MAX_BYTES: usize = 64 * 1024 * 1024;

/// The delay assumed for a 429 without one.
const DEFAULT_LIMIT_WAIT: Duration = Duration::from_secs(5);

/// Deadline of a request that should be answered at once.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// One account at one homeserver.
pub(crate) struct Api {
    http: reqwest::Client,
    base: Url,
    token: SecretString,
}

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The server was not reached: nothing has happened.
    #[error("not reached: {0}")]
    NotSent(String),
    /// The request was sent and no usable answer came: the server may have carried it out.
    #[error("no answer: {0}")]
    NoAnswer(String),
    /// Too many requests: nothing has happened.
    #[error("too many requests, wait {} ms", .0.as_millis())]
    Limited(Duration),
    /// The server failed.
    #[error("server error {0}")]
    Server(u16),
    /// The server refused the request.
    #[error("refused with {status} {code}: {words}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Matrix: "Standard error response", `errcode`.
        code: String,
        /// The server's words.
        words: String,
    },
}

impl ApiError {
    /// Whether the access token is not valid. Matrix: `M_UNKNOWN_TOKEN`, `M_MISSING_TOKEN`.
    pub(crate) fn is_auth(&self) -> bool {
        matches!(self, Self::Refused { status: 401, .. })
    }

    /// Whether the server refused the request with this status.
    pub(crate) fn is(&self, wanted: u16) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == wanted)
    }
}

/// Matrix: "Standard error response".
#[derive(Default, Deserialize)]
#[serde(default)]
struct Failure {
    errcode: Option<String>,
    error: Option<String>,
    retry_after_ms: Option<f64>,
}

impl Api {
    /// # Errors
    /// The address is no base of paths.
    pub(crate) fn new(http: reqwest::Client, base: &str, token: SecretString) -> Result<Self, String> {
        let base = Url::parse(base).ok().filter(|url| !url.cannot_be_a_base());
        base.map(|base| Self { http, base, token }).ok_or_else(|| "the homeserver's address is no URL".to_owned())
    }

    /// A request for a path below `/_matrix`, whose parts are escaped.
    pub(crate) fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("_matrix").extend(path);
        }
        self.http.request(method, url).bearer_auth(self.token.expose_secret())
    }

    /// Asks for a path.
    ///
    /// # Errors
    /// See [`ApiError`]. None of them contains the token.
    pub(crate) async fn get<R: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        deadline: Duration,
    ) -> Result<R, ApiError> {
        finished(self.request(Method::GET, path).query(query).timeout(deadline)).await
    }

    /// Sends a JSON object.
    ///
    /// # Errors
    /// As those of [`get`](Self::get).
    ///
    /// # Cancel safety
    /// If dropped midway, the server may have carried out the request.
    pub(crate) async fn send(&self, method: Method, path: &[&str], body: &Value) -> Result<Value, ApiError> {
        finished(self.request(method, path).json(body).timeout(DEADLINE)).await
    }

    /// Sends the bytes of a file.
    ///
    /// # Errors
    /// As those of [`get`](Self::get).
    pub(crate) async fn upload(&self, head: RequestBuilder, body: Body) -> Result<Value, ApiError> {
        finished(head.body(body)).await
    }
}

/// Sends a request and waits for its result.
async fn finished<R: DeserializeOwned>(request: RequestBuilder) -> Result<R, ApiError> {
    let mut response = request.send().await.map_err(unsent)?;
    let (status, retry_after) = (response.status(), retry_after(&response));
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(piece)) if body.len() + piece.len() <= ANSWER_MAX_BYTES => body.extend_from_slice(&piece),
            Ok(None) => break,
            Ok(Some(_)) => return Err(ApiError::NoAnswer(format!("more than {ANSWER_MAX_BYTES} bytes"))),
            Err(error) if status.is_success() => return Err(ApiError::NoAnswer(words(error))),
            Err(_) => break, // the status alone is enough
        }
    }
    let body = String::from_utf8_lossy(&body);
    if status.is_success() {
        return serde_json::from_str(&body).map_err(|error| ApiError::NoAnswer(format!("not as documented: {error}")));
    }
    Err(failed(status, retry_after, serde_json::from_str(&body).unwrap_or_default()))
}

fn failed(status: StatusCode, retry_after: Option<u64>, failure: Failure) -> ApiError {
    match status.as_u16() {
        429 => {
            let told = failure.retry_after_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
            ApiError::Limited(told.or(retry_after.map(Duration::from_secs)).unwrap_or(DEFAULT_LIMIT_WAIT))
        }
        status @ 500.. => ApiError::Server(status),
        status => {
            let words = belay_text::escaped_line(&failure.error.unwrap_or_default()).chars().take(300).collect();
            ApiError::Refused { status, code: failure.errcode.unwrap_or_default(), words }
        }
    }
}

fn retry_after(response: &Response) -> Option<u64> {
    response.headers().get("retry-after")?.to_str().ok()?.parse().ok()
}

pub(crate) fn unsent(error: reqwest::Error) -> ApiError {
    let is_unsent = error.is_connect() || error.is_builder();
    let words = words(error);
    if is_unsent { ApiError::NotSent(words) } else { ApiError::NoAnswer(words) }
}

/// The message of an error with its causes, without the address.
fn words(error: reqwest::Error) -> String {
    let error = error.without_url();
    let causes = std::iter::successors(std::error::Error::source(&error), |error| error.source());
    std::iter::once(error.to_string()).chain(causes.map(ToString::to_string)).collect::<Vec<_>>().join(": ")
}
