//! Requests to authorization servers: bounded, and followed to no other origin.

use std::time::Duration;

use futures_util::StreamExt;
use reqwest::header::{ACCEPT, WWW_AUTHENTICATE};
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::Value;
use tokio::time::timeout;
use url::Url;

use crate::mcp::http::client_for;

/// Longest time of a request, with its answer.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);

/// Longest answer, in bytes. 256 KiB: the metadata of large servers has some ten.
const MAX_ANSWER: usize = 256 * 1024;

/// An answer.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// The header `WWW-Authenticate`.
    pub(super) challenge: Option<String>,
    body: Vec<u8>,
}

impl Answer {
    /// The body, if it is a JSON object.
    pub(super) fn object(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok().filter(Value::is_object)
    }
}

/// Why there is no answer.
pub(super) struct NoAnswer {
    /// A part of a sentence, without the address.
    pub(super) why: String,
    /// Whether the request may have had an effect.
    pub(super) may_have_run: bool,
}

/// Sends a request to an address.
///
/// # Cancel safety
/// If the future is dropped, the server may have carried the request out.
pub(super) async fn send(url: &Url, request: impl FnOnce(Client) -> RequestBuilder) -> Result<Answer, NoAnswer> {
    let host = url.host_str().unwrap_or_default().to_owned();
    let none = |why: String, may_have_run| NoAnswer { why, may_have_run };
    let client = client_for(url).map_err(|why| none(why, false))?;
    let asked = async {
        // The text of the error is not shown: it has the address, which may have a key.
        let sent = request(client).header(ACCEPT, "application/json").send().await;
        let response = sent.map_err(|error| match error.is_connect() {
            true => none(format!("{host} cannot be reached"), false),
            false => none(format!("the connection to {host} broke off"), true),
        })?;
        let status = response.status();
        if status.is_redirection() {
            return Err(none(format!("{host} redirects to another address, which is not followed"), false));
        }
        let challenge = response.headers().get(WWW_AUTHENTICATE);
        let challenge = challenge.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (mut body, mut parts) = (Vec::new(), response.bytes_stream());
        while let Some(part) = parts.next().await {
            body.extend_from_slice(&part.map_err(|_| none(format!("the answer of {host} broke off"), true))?);
            if body.len() > MAX_ANSWER {
                return Err(none(format!("the answer of {host} has more than {MAX_ANSWER} bytes"), true));
            }
        }
        Ok(Answer { status, challenge, body })
    };
    let late = || none(format!("{host} gave no answer within {} s", REQUEST_LIMIT.as_secs()), true);
    timeout(REQUEST_LIMIT, asked).await.unwrap_or_else(|_| Err(late()))
}

/// The text of a field.
pub(super) fn text<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object[key].as_str().filter(|text| !text.is_empty())
}

/// The texts of a field, which may be a list or one text.
pub(super) fn texts<'a>(object: &'a Value, key: &str) -> Vec<&'a str> {
    match &object[key] {
        Value::Array(list) => list.iter().filter_map(Value::as_str).take(1000).collect(),
        Value::String(one) => vec![one],
        _ => Vec::new(),
    }
}
