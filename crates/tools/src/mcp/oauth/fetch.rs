//! Requests to authorization servers: bounded, and followed to no other origin.

use std::time::Duration;

use futures_util::StreamExt;
use reqwest::header::{ACCEPT, HeaderMap, WWW_AUTHENTICATE};
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
    /// All headers `WWW-Authenticate`.
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
    /// Whether the server names another address instead.
    pub(super) redirects: bool,
}

/// Sends a request to an address.
///
/// # Cancel safety
/// If the future is dropped, the server may have carried the request out.
pub(super) async fn send(url: &Url, request: impl FnOnce(Client) -> RequestBuilder) -> Result<Answer, NoAnswer> {
    let host = url.host_str().unwrap_or_default().to_owned();
    let none = |why: String, may_have_run| NoAnswer { why, may_have_run, redirects: false };
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
            let why = format!("{host} redirects to another address, which is not followed");
            return Err(NoAnswer { why, may_have_run: false, redirects: true });
        }
        let challenge = challenges(response.headers());
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

/// The headers `WWW-Authenticate` as one list: some servers write one for each scheme.
///
/// Source: RFC 9110, section 5.3.
pub(in crate::mcp) fn challenges(headers: &HeaderMap) -> Option<String> {
    let values: Vec<_> = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok()).collect();
    (!values.is_empty()).then(|| values.join(", "))
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

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    #[test]
    fn all_challenges_of_an_answer_are_read() {
        let mut headers = HeaderMap::new();
        assert_eq!(challenges(&headers), None);
        for value in ["Basic realm=\"x\"", "Bearer scope=\"a\""] {
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(value));
        }
        assert_eq!(challenges(&headers).as_deref(), Some("Basic realm=\"x\", Bearer scope=\"a\""));
    }
}
