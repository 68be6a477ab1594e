//! The request of a call of `send_request`, from its arguments.

use std::collections::BTreeMap;

use belay_protocol::ToolFailure;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::url::{Rules, Target};

/// Most headers of a request, and most bytes of a value. More than APIs ask for.
const MAX_HEADERS: usize = 32;
const MAX_VALUE_BYTES: usize = 4096;

/// Headers that belong to the connection or to the HTTP client, or name another method. With them a request could become
/// two, reach another host than the one that was checked, or do what the operator has not allowed.
const REFUSED: [&str; 15] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
];

/// The arguments of a call.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The method.
    method: String,
    /// The address, such as `https://example.com/api/items`.
    url: String,
    /// Headers by name.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The body. Its content type is JSON or plain text, unless a header says otherwise.
    #[serde(default)]
    body: Option<String>,
}

/// A request that may be sent.
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) target: Target,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<String>,
    /// Whether Belay chose the content type.
    chosen: bool,
}

impl Request {
    /// Checks the arguments.
    ///
    /// # Errors
    /// The mistake in the arguments, for the model.
    pub(super) fn read(arguments: Arguments, methods: &[String], rules: &Rules) -> Result<Self, ToolFailure> {
        let Arguments { method, url, headers, body } = arguments;
        let method = allowed(&method, methods)?;
        let target = rules.target(&url).map_err(ToolFailure::Failed)?;
        if headers.len() > MAX_HEADERS {
            return Err(ToolFailure::failed(format!("At most {MAX_HEADERS} headers.")));
        }
        let mut read = HeaderMap::new();
        for (name, value) in &headers {
            let (name, value) = header(name, value)?;
            if read.insert(name, value).is_some() {
                return Err(ToolFailure::failed("A header stands there twice."));
            }
        }
        let chosen = body.is_some() && !read.contains_key(CONTENT_TYPE);
        if let Some(body) = body.as_deref().filter(|_| chosen) {
            read.insert(CONTENT_TYPE, HeaderValue::from_static(type_of(body)));
        }
        Ok(Self { method, target, headers: read, body, chosen })
    }

    /// The method and the address.
    pub(super) fn line(&self) -> String {
        format!("{} {}", self.method, self.target.url)
    }

    /// The content type that Belay chose for the body.
    pub(super) fn chosen_type(&self) -> Option<String> {
        let value = self.headers.get(CONTENT_TYPE).filter(|_| self.chosen)?;
        value.to_str().ok().map(str::to_owned)
    }
}

fn allowed(method: &str, methods: &[String]) -> Result<Method, ToolFailure> {
    let known = methods.iter().find(|known| *known == method);
    let known = known.and_then(|known| Method::from_bytes(known.as_bytes()).ok());
    known.ok_or_else(|| ToolFailure::failed(format!("The method must be one of: {}.", methods.join(", "))))
}

/// A header whose name and value can be sent. The value is not quoted in errors: it may be a key.
fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), ToolFailure> {
    let wrong = |what: &str| {
        let name: String = belay_text::escaped_line(name).chars().take(100).collect();
        Err(ToolFailure::failed(format!("The header {name}: {what}.")))
    };
    let Ok(read) = HeaderName::from_bytes(name.as_bytes()) else { return wrong("no name of a header") };
    if REFUSED.contains(&read.as_str()) {
        return wrong("it cannot be chosen");
    }
    if value.len() > MAX_VALUE_BYTES {
        return wrong("its value is longer than 4096 bytes");
    }
    match HeaderValue::from_str(value) {
        Ok(value) if value.to_str().is_ok() => Ok((read, value)),
        _ => wrong("its value may hold visible ASCII characters only"),
    }
}

fn type_of(body: &str) -> &'static str {
    match serde_json::from_str::<Value>(body) {
        Ok(_) => "application/json",
        Err(_) => "text/plain; charset=utf-8",
    }
}
