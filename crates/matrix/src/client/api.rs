//! Requests to a homeserver: one each; no retry.

use std::time::Duration;

use reqwest::{Body, Method, RequestBuilder, Response, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) use super::error::ApiError;
use super::error::{failed, unsent, words};

/// Largest answer that is read. 64 MiB: an answer of `/sync` with full timelines of some 20 rooms, at 64 KiB an event.
/// After a larger one, fewer events are asked for.
const ANSWER_MAX_BYTES: usize = 64 * 1024 * 1024;

/// Deadline of a request that should be answered at once.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// One account at one homeserver.
pub(crate) struct Api {
    http: reqwest::Client,
    base: Url,
    token: SecretString,
}

impl Api {
    /// # Errors
    /// The address is no base of paths.
    pub(crate) fn new(http: reqwest::Client, base: &str, token: SecretString) -> Result<Self, String> {
        let base = Url::parse(base).ok().filter(|url| !url.cannot_be_a_base());
        base.map(|base| Self { http, base, token }).ok_or_else(|| "the homeserver's address is no URL".to_owned())
    }

    /// A request for a path below `/_matrix`. Its parts and the query are escaped.
    pub(crate) fn request(&self, method: Method, path: &[&str], query: &[(&str, &str)]) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("_matrix").extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
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
        finished(self.request(Method::GET, path, query).timeout(deadline)).await
    }

    /// Sends a JSON object.
    ///
    /// # Errors
    /// As those of [`get`](Self::get).
    ///
    /// # Cancel safety
    /// If dropped midway, the server may have carried out the request.
    pub(crate) async fn send(&self, method: Method, path: &[&str], body: &Value) -> Result<Value, ApiError> {
        finished(self.request(method, path, &[]).json(body).timeout(DEADLINE)).await
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
            Ok(Some(_)) => return Err(ApiError::TooLarge(ANSWER_MAX_BYTES)),
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

fn retry_after(response: &Response) -> Option<u64> {
    response.headers().get("retry-after")?.to_str().ok()?.parse().ok()
}
