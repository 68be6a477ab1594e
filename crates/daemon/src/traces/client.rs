//! The HTTP client of the exporter: the same reqwest and TLS as everywhere in the daemon.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};

use crate::net::{is_plain_loopback, plain_client};

/// Longest answer of a collector that is read. 64 KiB: an answer is empty or one message.
const ANSWER_MAX_BYTES: usize = 64 * 1024;

/// The status of the last answer; none after a failed connection.
#[derive(Debug, Default)]
pub(super) struct LastStatus(AtomicU16);

impl LastStatus {
    /// Records the status of an answer.
    pub(super) fn set(&self, status: u16) {
        self.0.store(status, Ordering::Relaxed);
    }

    /// Forgets the last answer.
    pub(super) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Whether the collector has refused the request itself, so that a repetition is refused too.
    pub(super) fn is_refusal(&self) -> bool {
        let status = self.0.load(Ordering::Relaxed);
        (400..500).contains(&status) && ![408, 429].contains(&status)
    }
}

/// Sends requests to one collector.
pub(super) struct Client {
    http: reqwest::Client,
    last_status: Arc<LastStatus>,
}

impl Client {
    /// A client for this address, whose requests take at most `limit`.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub(super) fn new(endpoint: &str, limit: Duration, last_status: Arc<LastStatus>) -> Result<Self, String> {
        let builder = if is_plain_loopback(endpoint) { plain_client().no_proxy() } else { reqwest::Client::builder() };
        // A redirect could lead the headers elsewhere.
        let http = builder.timeout(limit).redirect(reqwest::redirect::Policy::none()).build();
        Ok(Self { http: http.map_err(|error| error.to_string())?, last_status })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let mut answer = self.http.execute(request.try_into()?).await?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await? {
            if body.len() + piece.len() > ANSWER_MAX_BYTES {
                return Err("the answer of the collector is too long".into());
            }
            body.extend_from_slice(&piece);
        }
        self.last_status.set(status.as_u16());
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}
