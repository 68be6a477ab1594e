//! The HTTP client of the exporters: the same reqwest and TLS as everywhere in the daemon.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use belay_program::net::{is_plain_loopback, plain_client};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use reqwest::header::{CONTENT_TYPE, HeaderMap, USER_AGENT};

/// Longest answer of a collector that is read. 64 KiB: an answer is empty or one message.
const ANSWER_MAX_BYTES: usize = 64 * 1024;

/// The status of the last answer; none after a failed connection.
#[derive(Debug, Default)]
pub(crate) struct LastStatus {
    code: AtomicU16,
    rejected: AtomicU64,
}

impl LastStatus {
    /// Records the status of an answer.
    pub(super) fn set(&self, status: u16) {
        self.code.store(status, Ordering::Relaxed);
    }

    /// Records the body of an accepted request.
    pub(super) fn set_answer(&self, body: &[u8]) {
        self.rejected.store(rejected_parts(body).unwrap_or(0), Ordering::Relaxed);
    }

    /// The number of spans, data points or log records of an accepted request that the collector has rejected.
    pub(crate) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Forgets the last answer.
    pub(super) fn forget(&self) {
        self.code.store(0, Ordering::Relaxed);
        self.rejected.store(0, Ordering::Relaxed);
    }

    /// Whether the collector has refused the request itself, so that a repetition is refused too.
    pub(super) fn is_refusal(&self) -> bool {
        let status = self.code.load(Ordering::Relaxed);
        (300..500).contains(&status) && ![408, 429].contains(&status)
    }
}

/// Sends requests to one collector.
pub(super) struct Client {
    http: reqwest::Client,
    headers: HeaderMap,
    last_status: Arc<LastStatus>,
}

impl Client {
    /// A client for this address, whose requests have these headers and take at most `limit`.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub(super) fn new(
        endpoint: &str,
        headers: HeaderMap,
        limit: Duration,
        last_status: Arc<LastStatus>,
    ) -> Result<Self, String> {
        let builder = if is_plain_loopback(endpoint) { plain_client().no_proxy() } else { reqwest::Client::builder() };
        // A redirect could lead the headers elsewhere.
        let http = builder.timeout(limit).redirect(reqwest::redirect::Policy::none()).build();
        Ok(Self { http: http.map_err(|error| error.to_string())?, headers, last_status })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // The exporter adds headers from variables of the environment that are no settings of Belay.
        let made = std::mem::replace(request.headers_mut(), self.headers.clone());
        for name in [CONTENT_TYPE, USER_AGENT] {
            if let (Some(value), false) = (made.get(&name), self.headers.contains_key(&name)) {
                request.headers_mut().insert(name, value.clone());
            }
        }
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
        if status.is_success() {
            self.last_status.set_answer(&body);
        }
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

/// `rejected_spans` of an `ExportTraceServiceResponse`: field 1 of the message in field 1. `None`: it is not there.
/// `rejected_data_points` and `rejected_log_records` of the other two answers have the same numbers.
fn rejected_parts(body: &[u8]) -> Option<u64> {
    let partial = fields(body).find_map(|(number, field)| match field {
        Field::Bytes(bytes) if number == 1 => Some(bytes),
        _ => None,
    })?;
    fields(partial).find_map(|(number, field)| match field {
        Field::Number(value) if number == 1 => Some(value),
        _ => None,
    })
}

/// A value of protobuf.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message with their numbers, up to the first that is malformed or of another type.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = (u64, Field<'_>)> {
    std::iter::from_fn(move || {
        let key = varint(&mut rest)?;
        let value = varint(&mut rest)?;
        let field = match key & 7 {
            0 => Field::Number(value),
            2 => {
                let (bytes, after) = rest.split_at_checked(usize::try_from(value).ok()?)?;
                rest = after;
                Field::Bytes(bytes)
            }
            _ => return None,
        };
        Some((key >> 3, field))
    })
}

/// Takes a number of protobuf: 7 bits of each byte, the lowest first.
fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
