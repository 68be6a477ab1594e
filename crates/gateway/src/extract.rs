//! Extractors: from a request to typed values, with errors that name the field and the problem.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Query, RawPathParams, Request};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri};
use belay_protocol::{ApprovalId, JobId, Principal, RoutineRunId};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use crate::app::Shared;
use crate::error::{ApiError, ErrorCode};
use crate::foreign::shown;

/// Longest time for a body to arrive. 30 s: 1 MiB at 35 kB/s; a slower sender is broken or an attacker.
const BODY_LIMIT: Duration = Duration::from_secs(30);

/// The principal of the request, set by [`crate::guard::guard`].
pub(crate) struct Caller(pub(crate) Principal);

impl FromRequestParts<Shared> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _app: &Shared) -> Result<Self, ApiError> {
        parts.extensions.get::<Principal>().cloned().map(Caller).ok_or_else(ApiError::internal)
    }
}

/// The principal of a request that only operators may make. It must be the first extractor: a caller without permission
/// learns only that, whatever else is wrong with the request.
pub(crate) struct Operator(pub(crate) Principal);

impl FromRequestParts<Shared> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let Caller(principal) = Caller::from_request_parts(parts, app).await?;
        if principal.is_operator() {
            Ok(Self(principal))
        } else {
            Err(ApiError::forbidden("only an operator may do this"))
        }
    }
}

/// A JSON object as the body, within the limit of the configuration.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Shared> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Shared) -> Result<Self, ApiError> {
        json_content(request.headers())?;
        let bytes = read_body(request, app.config.max_body_bytes).await?;
        parse_object(&bytes).map(JsonBody)
    }
}

/// The same with its bytes.
pub(crate) struct JsonBytes<T>(pub(crate) T, pub(crate) Bytes);

impl<T: DeserializeOwned> FromRequest<Shared> for JsonBytes<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Shared) -> Result<Self, ApiError> {
        json_content(request.headers())?;
        let bytes = read_body(request, app.config.max_body_bytes).await?;
        Ok(Self(parse_object(&bytes)?, bytes))
    }
}

/// No body, or a JSON object as the body.
pub(crate) struct OptionalBody<T>(pub(crate) T);

impl<T: DeserializeOwned + Default> FromRequest<Shared> for OptionalBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Shared) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let headers = parts.headers.clone();
        let bytes = read_body(Request::from_parts(parts, body), app.config.max_body_bytes).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        json_content(&headers)?;
        parse_object(&bytes).map(Self)
    }
}

/// Query parameters; unknown ones are refused if `T` refuses them.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Shared> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _app: &Shared) -> Result<Self, ApiError> {
        let joined = joined_lists(parts.uri.query().unwrap_or_default());
        Query::<T>::try_from_uri(joined.as_ref().unwrap_or(&parts.uri))
            .map(|Query(params)| Self(params))
            .map_err(|error| ApiError::invalid(with_field("", &innermost(&error))))
    }
}

/// Parameters that take several words of a closed list.
const LISTS: [&str; 3] = ["status", "reason", "state"];

/// The query with each repeated list as one comma list, which generated clients send as `status=running&status=paused`;
/// `None`: none is repeated.
fn joined_lists(query: &str) -> Option<Uri> {
    let mut pairs: Vec<(&str, String)> = Vec::new();
    let mut is_repeated = false;
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        // A query may have thousands of pairs: only those of a list are searched for.
        let known = if LISTS.contains(&name) { pairs.iter_mut().find(|(known, _)| *known == name) } else { None };
        match known {
            Some((_, words)) => {
                is_repeated = true;
                words.push(',');
                words.push_str(value);
            }
            None => pairs.push((name, value.to_owned())),
        }
    }
    let pairs = pairs.iter().map(|(name, value)| format!("{name}={value}"));
    is_repeated.then(|| format!("/?{}", pairs.collect::<Vec<_>>().join("&")).parse().ok()).flatten()
}

/// The approval request in the path.
pub(crate) struct ApprovalPath(pub(crate) ApprovalId);

impl FromRequestParts<Shared> for ApprovalPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let text = path_text(parts, app, "id").await?;
        text.parse().map(Self).map_err(|_not_a_uuid| ApiError::not_found("no such question: its id is not a UUID"))
    }
}

/// The job in the path.
pub(crate) struct JobPath(pub(crate) JobId);

impl FromRequestParts<Shared> for JobPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let text = path_text(parts, app, "id").await?;
        text.parse().map(Self).map_err(|_not_a_uuid| ApiError::not_found("no such job: its id is not a UUID"))
    }
}

/// The routine run in the path.
pub(crate) struct RoutineRunPath(pub(crate) RoutineRunId);

impl FromRequestParts<Shared> for RoutineRunPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let text = path_text(parts, app, "id").await?;
        text.parse().map(Self).map_err(|_not_a_uuid| ApiError::not_found("no such routine run: its id is not a UUID"))
    }
}

/// The name in the path: of a routine or of a webhook.
pub(crate) struct NamePath(pub(crate) String);

impl FromRequestParts<Shared> for NamePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        path_text(parts, app, "name").await.map(Self)
    }
}

/// The parameter of that name in the path.
pub(crate) async fn path_text(parts: &mut Parts, app: &Shared, name: &str) -> Result<String, ApiError> {
    let not_utf8 = |_error| ApiError::bad_request(ErrorCode::NotUtf8, "the path is not UTF-8");
    let params = RawPathParams::from_request_parts(parts, app).await.map_err(not_utf8)?;
    let found = params.iter().find(|(param, _)| *param == name).map(|(_, value)| value.to_owned());
    found.ok_or_else(|| {
        tracing::error!(name, "a route has no parameter of that name");
        ApiError::internal()
    })
}

/// The message of the innermost cause, without the wrappers.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// Refuses a body that is not declared as JSON. A form on another site's page cannot declare JSON without a CORS
/// preflight.
pub(crate) fn json_content(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let mut parts = kind.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default().as_bytes();
    let utf8 =
        |value: &str| matches!(value.trim_matches('"').to_ascii_lowercase().as_str(), "utf-8" | "utf8" | "us-ascii");
    let foreign = parts
        .filter_map(|part| part.split_once('='))
        .any(|(name, value)| name.trim().eq_ignore_ascii_case("charset") && !utf8(value.trim()));
    let json = kind.eq_ignore_ascii_case(b"application/json")
        || (kind.len() > 17
            && kind[..12].eq_ignore_ascii_case(b"application/")
            && kind[kind.len() - 5..].eq_ignore_ascii_case(b"+json"));
    if !json {
        return Err(ApiError::unsupported("the body must be JSON: send the header \"Content-Type: application/json\""));
    }
    if foreign {
        return Err(ApiError::unsupported("the body must be UTF-8"));
    }
    match headers.get(CONTENT_ENCODING) {
        Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => {
            Err(ApiError::unsupported("compressed bodies are not supported"))
        }
        _ => Ok(()),
    }
}

/// Reads the whole body, with at most `limit` bytes in memory.
///
/// # Errors
/// 413 when it is longer, before reading if its length is declared; 400 when it is incomplete or too slow.
pub(crate) async fn read_body(request: Request, limit: usize) -> Result<Bytes, ApiError> {
    let declared = request.headers().get(CONTENT_LENGTH).and_then(|n| n.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|n| n > limit as u64) {
        return Err(ApiError::too_large(limit));
    }
    match tokio::time::timeout(BODY_LIMIT, collect(request.into_body(), limit)).await {
        Ok(bytes) => bytes,
        Err(_elapsed) => Err(ApiError::bad_request(ErrorCode::SlowBody, "the body did not arrive within 30 s")),
    }
}

async fn collect(body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let mut pieces = body.into_data_stream();
    let mut next = async || match pieces.next().await {
        Some(Ok(piece)) => Ok(Some(piece)),
        Some(Err(_broken)) => Err(ApiError::bad_request(ErrorCode::BrokenBody, "the body broke off")),
        None => Ok(None),
    };
    let Some(first) = next().await? else { return Ok(Bytes::new()) };
    if first.len() > limit {
        return Err(ApiError::too_large(limit));
    }
    // Most bodies are one chunk, which is returned without a copy.
    let Some(second) = next().await? else { return Ok(first) };
    let mut whole = BytesMut::from(first);
    let mut piece = Some(second);
    while let Some(more) = piece {
        if whole.len() + more.len() > limit {
            return Err(ApiError::too_large(limit));
        }
        whole.extend_from_slice(&more);
        piece = next().await?;
    }
    Ok(whole.freeze())
}

/// Parses a JSON object of this shape.
///
/// # Errors
/// 400 when it is not UTF-8 or not JSON, 422 with the field's path when it is JSON of another shape.
pub(crate) fn parse_object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        ApiError::bad_request(ErrorCode::NotUtf8, format!("the body is not UTF-8 (at byte {})", error.valid_up_to()))
    })?;
    // An array would fill a struct's fields by position; only an object is accepted.
    if text.trim_start().starts_with('{')
        && let Ok(value) = serde_json::from_str(text)
    {
        return Ok(value);
    }
    Err(explain::<T>(text))
}

/// Parses the text again to find the problem and its position.
fn explain<T: DeserializeOwned>(text: &str) -> ApiError {
    if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
        return ApiError::bad_request(ErrorCode::NotJson, format!("the body is not JSON: {error}"));
    }
    if !text.trim_start().starts_with('{') {
        return ApiError::invalid("the body must be a JSON object");
    }
    match serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_str(text)) {
        // For example half a surrogate pair: only decoding the string reveals it.
        Err(error) if !error.inner().is_data() => {
            ApiError::bad_request(ErrorCode::NotJson, format!("the body is not JSON: {}", error.inner()))
        }
        Err(error) => {
            let path = error.path().iter().next().map(|_| error.path().to_string()).unwrap_or_default();
            let more = within_tagged::<T>(text, error.path());
            ApiError::invalid(with_field(&shown(&format!("{path}{more}")), &shown(&error.inner().to_string())))
        }
        Ok(_) => ApiError::invalid("the body is not of the expected shape"),
    }
}

/// The fields that tell the forms of an object apart.
const TAGS: [&str; 2] = ["kind", "mode"];

/// The most fields and bytes for which a field is looked for: each field costs one more reading of the whole body.
const LOOKED_THROUGH: (usize, usize) = (32, 65_536);

/// The rest of a path that ends at a tagged object, which serde reads as a whole. The field that is wrong is the one with
/// which alone, beside the tag, the problem is the same.
fn within_tagged<T: DeserializeOwned>(text: &str, path: &Path) -> String {
    let (most_fields, most_bytes) = LOOKED_THROUGH;
    let Some(Ok(mut body)) = (text.len() <= most_bytes).then(|| serde_json::from_str::<Value>(text)) else {
        return String::new();
    };
    let problem = |body: &Value| T::deserialize(body).err().map(|error| error.to_string());
    // serde names a missing field itself; without a problem the text has a field twice.
    let Some(whole) = problem(&body).filter(|whole| !whole.starts_with("missing field")) else { return String::new() };
    let (mut pointer, mut rest) = (pointer_of(path), String::new());
    while let Some(object) = body.pointer(&pointer).and_then(Value::as_object).cloned() {
        let without_others = |field: &str| {
            let mut body = body.clone();
            let part = object.iter().filter(|(name, _)| *name == field || TAGS.contains(&name.as_str()));
            *body.pointer_mut(&pointer)? = part.map(|(name, value)| (name.clone(), value.clone())).collect();
            (problem(&body).as_ref() == Some(&whole)).then_some(body)
        };
        if object.len() > most_fields || without_others("").is_some() {
            break; // too much, or the tag is wrong
        }
        let Some((field, found)) = object.keys().find_map(|field| Some((field, without_others(field)?))) else { break };
        rest = format!("{rest}.{field}");
        pointer = format!("{pointer}/{field}");
        body = found;
    }
    rest
}

/// A path of serde as a JSON pointer.
fn pointer_of(path: &Path) -> String {
    let part = |part: &Segment| match part {
        Segment::Map { key } => Some(format!("/{key}")),
        Segment::Seq { index } => Some(format!("/{index}")),
        Segment::Enum { .. } | Segment::Unknown => None,
    };
    path.iter().filter_map(part).collect()
}

/// A problem of serde with the path of its field. serde names a field that is missing, or is there twice, in the
/// problem alone.
fn with_field(path: &str, problem: &str) -> String {
    let named = ["missing field `", "duplicate field `"].iter().find_map(|begin| problem.strip_prefix(begin));
    let own = named.and_then(|rest| rest.split('`').next()).filter(|name| !path.ends_with(name));
    let parts: Vec<&str> = [path].into_iter().chain(own).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { problem.to_owned() } else { format!("{}: {problem}", parts.join(".")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its parsing matters")]
    struct Shape {
        name: String,
        count: Option<u32>,
    }

    #[test]
    fn an_error_says_whether_it_is_the_bytes_the_json_or_the_shape() {
        let deep = "[".repeat(100_000);
        let rows: &[(&[u8], u16, &str)] = &[
            (b"", 400, "not JSON"),
            (b"{", 400, "not JSON"),
            (b"hello", 400, "not JSON"),
            (b"{\"name\":\"a\"} x", 400, "not JSON"),
            (b"{\"name\":1, nonsense", 400, "not JSON"),
            (deep.as_bytes(), 400, "not JSON"),
            (b"{\"name\":\"\xff\"}", 400, "byte 9"),
            (b"[\"a\",1]", 422, "object"),
            (b"null", 422, "object"),
            (b"{}", 422, "name"),
            (b"{\"name\":null}", 422, "name: invalid type: null"),
            (b"{\"name\":\"a\",\"count\":-1}", 422, "count: invalid value"),
            (b"{\"name\":\"a\",\"count\":1.5}", 422, "count"),
            (b"{\"name\":\"a\",\"colour\":1}", 422, "colour: unknown field `colour`"),
            (b"{\"name\":\"a\",\"name\":\"b\"}", 422, "duplicate field"),
        ];
        for (bytes, status, part) in rows {
            let error = parse_object::<Shape>(bytes).err();
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
            assert!(
                error.as_ref().is_some_and(|e| e.status.as_u16() == *status && e.message.contains(part)),
                "{text}: {error:?}"
            );
        }
        assert!(parse_object::<Shape>(b" \n{\"name\":\"a\",\"count\":null}\n").is_ok());
    }

    #[test]
    fn a_list_that_is_repeated_is_one_list() {
        for (query, expected) in [
            ("", None),
            ("status=running&limit=5", None),
            ("limit=5&limit=6&session=a&session=b", None),
            ("status=running&limit=5&status=paused&reason=goal", Some("status=running,paused&limit=5&reason=goal")),
            ("state=pending,stuck&state=failed&state", Some("state=pending,stuck,failed,")),
            ("status=%41&status=b%2Cc", Some("status=%41,b%2Cc")),
        ] {
            let joined = joined_lists(query);
            assert_eq!(joined.as_ref().and_then(Uri::query), expected, "{query}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_given_up_and_one_in_pieces_is_bounded() {
        use futures_util::stream;
        type Piece = Result<&'static str, std::io::Error>;
        let code = async |body: Body| read_body(Request::new(body), 10).await.map_err(|error| error.code.word());
        assert_eq!(code(Body::from_stream(stream::pending::<Piece>())).await, Err("slow_body"));
        let pieces =
            |texts: &'static [&'static str]| Body::from_stream(stream::iter(texts.iter().map(|t| Piece::Ok(t))));
        assert_eq!(code(pieces(&["12345", "67890"])).await, Ok(Bytes::from("1234567890")));
        assert_eq!(code(pieces(&["12345", "67890", "1"])).await, Err("too_large"));
        assert_eq!(code(pieces(&["12345678901"])).await, Err("too_large"));
        assert_eq!(code(pieces(&[])).await, Ok(Bytes::new()));
        let broken = stream::iter([Piece::Ok("1"), Err(std::io::Error::other("gone"))]);
        assert_eq!(code(Body::from_stream(broken)).await, Err("broken_body"));
    }

    #[test]
    fn only_json_content_is_json() {
        for (kind, json) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/json; charset=\"utf-8\"", true),
            ("application/json; charset=latin1", false),
            ("application/vnd.api+json", true),
            ("text/plain", false),
            ("application/x-www-form-urlencoded", false),
            ("application/jsonx", false),
            ("+json", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, axum::http::HeaderValue::from_static(kind));
            assert_eq!(json_content(&headers).is_ok(), json, "{kind:?}");
        }
    }
}
