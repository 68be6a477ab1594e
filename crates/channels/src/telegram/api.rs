//! Calls of the Bot API and downloads of its files: one request each; no retry.

use std::time::Duration;

use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use reqwest::{RequestBuilder, Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use url::Url;

use super::multipart::FormBody;

/// Largest answer that is read. 16 MiB: far more than a batch of 100 updates.
const ANSWER_MAX_BYTES: usize = 16 * 1024 * 1024;

/// The delay assumed for a 429 without one.
const DEFAULT_FLOOD_WAIT: Duration = Duration::from_secs(5);

/// One bot at one Bot API server.
pub(super) struct BotApi {
    http: reqwest::Client,
    base: String,
    token: SecretString,
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    /// The server was not reached: nothing has happened.
    #[error("not reached: {0}")]
    NotSent(String),
    /// The request was sent and no usable answer came: the server may have carried it out.
    #[error("no answer: {0}")]
    NoAnswer(String),
    /// Too many requests: nothing has happened. Further requests fail until the delay has passed.
    #[error("too many requests, wait {} s", .0.as_secs())]
    Flood(Duration),
    /// The server failed.
    #[error("server error {code}: {description}")]
    Server {
        /// HTTP status, 5xx.
        code: u16,
        /// The server's description.
        description: String,
    },
    /// The server refused the request.
    #[error("refused with {code}: {description}")]
    Refused {
        /// The Bot API's error code: an HTTP status, mostly 4xx.
        code: u16,
        /// Telegram's description.
        description: String,
        /// The group has become a supergroup with this id.
        migrate_to: Option<i64>,
    },
}

impl ApiError {
    /// Whether the token is wrong, or the server at `api_base` is no Bot API. Telegram answers 401 to a revoked token
    /// and 404 to an unknown one.
    pub(super) fn is_auth(&self) -> bool {
        matches!(self, Self::Refused { code: 401 | 404, .. })
    }

    /// Whether another poller or a webhook receives the updates (getUpdates answers 409).
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: 409, .. })
    }

    /// The error of a request that is not sent because Telegram would refuse it.
    pub(super) fn refused(description: String) -> Self {
        Self::Refused { code: 400, description, migrate_to: None }
    }

    /// Whether the message already has this content.
    pub(super) fn is_not_modified(&self) -> bool {
        matches!(self, Self::Refused { code: 400, description, .. }
            if description.to_ascii_lowercase().contains("message is not modified"))
    }

    /// Whether Telegram takes the file, but not as a photo.
    pub(super) fn is_bad_photo(&self) -> bool {
        matches!(self, Self::Refused { code: 400, description, .. }
            if description.contains("PHOTO_") || description.contains("IMAGE_PROCESS"))
    }

    /// Whether Telegram could not parse the HTML.
    pub(super) fn is_parse_error(&self) -> bool {
        matches!(self, Self::Refused { code: 400, description, .. }
            if description.to_ascii_lowercase().contains("can't parse entities"))
    }
}

/// Response envelope of the Bot API ("Making requests").
#[derive(Deserialize)]
struct Answer<R> {
    ok: bool,
    result: Option<R>,
    description: Option<String>,
    error_code: Option<u16>,
    #[serde(default)]
    parameters: Parameters,
}

/// Bot API: ResponseParameters.
#[derive(Default, Deserialize)]
struct Parameters {
    retry_after: Option<u64>,
    migrate_to_chat_id: Option<i64>,
}

impl BotApi {
    pub(super) fn new(http: reqwest::Client, base: &str, token: SecretString) -> Self {
        Self { http, base: base.trim_end_matches('/').to_owned(), token }
    }

    /// Calls a method and waits for its result until the deadline.
    ///
    /// # Errors
    /// See [`ApiError`]. None of them contains the token.
    ///
    /// # Cancel safety
    /// If dropped midway, the server may have carried out the call.
    pub(super) async fn call<P, R>(&self, method: &str, parameters: &P, deadline: Duration) -> Result<R, ApiError>
    where
        P: Serialize + Sync,
        R: DeserializeOwned,
    {
        finished(self.http.post(self.url(method)).timeout(deadline).json(parameters)).await
    }

    /// Calls a method with a form that has a file.
    ///
    /// # Errors
    /// As those of [`call`](Self::call). If the bytes of the file cannot be read, the error is [`ApiError::NoAnswer`].
    ///
    /// # Cancel safety
    /// As [`call`](Self::call).
    pub(super) async fn upload<R: DeserializeOwned>(
        &self,
        method: &str,
        form: FormBody,
        deadline: Duration,
    ) -> Result<R, ApiError> {
        let request = self.http.post(self.url(method)).timeout(deadline);
        let request = request.header(CONTENT_TYPE, form.content_type).header(CONTENT_LENGTH, form.length);
        finished(request.body(form.body)).await
    }

    /// Asks for the file at this path, which `getFile` has returned. The caller sets the deadline and reads the body.
    ///
    /// # Errors
    /// See [`ApiError`]. None of them contains the token.
    pub(super) async fn download(&self, path: &str) -> Result<Response, ApiError> {
        let url = file_url(&self.base, self.token.expose_secret(), path)?;
        let response = self.http.get(url).send().await.map_err(unsent)?;
        let status = response.status();
        if status == StatusCode::OK {
            return Ok(response);
        }
        let description = format!("HTTP {status} for the download");
        Err(refusal(status.as_u16(), retry_after(&response), description, Parameters::default()))
    }

    /// The address of a method. It contains the token.
    fn url(&self, method: &str) -> String {
        // Bot API: https://api.telegram.org/bot<token>/METHOD_NAME
        format!("{}/bot{}/{method}", self.base, self.token.expose_secret())
    }
}

/// Sends a request and waits for its result.
async fn finished<R: DeserializeOwned>(request: RequestBuilder) -> Result<R, ApiError> {
    let response = request.send().await.map_err(unsent)?;
    let status = response.status();
    let retry_after = retry_after(&response);
    match read(response).await {
        Ok(body) => judge(status, retry_after, &body),
        Err(detail) if status.is_success() => Err(ApiError::NoAnswer(detail)),
        Err(_) => judge(status, retry_after, b""), // the status alone is enough
    }
}

/// The address of a file. Bot API: `https://api.telegram.org/file/bot<token>/<file_path>`.
///
/// # Errors
/// The path is that of a file on the server's own disk, or it leads out of the files of the bot.
fn file_url(base: &str, token: &str, path: &str) -> Result<Url, ApiError> {
    if path.starts_with('/') {
        // Telegram Bot API server, option `--local`.
        return Err(ApiError::refused("the Bot API server runs in local mode and offers no downloads".to_owned()));
    }
    let parts: Vec<&str> = path.split('/').collect();
    if parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
        return Err(ApiError::refused("the path of the file is not one of the Bot API".to_owned()));
    }
    let mut url = Url::parse(base).map_err(|error| ApiError::NotSent(error.to_string()))?;
    url.path_segments_mut()
        .map_err(|()| ApiError::NotSent("the address of the Bot API has no path".to_owned()))?
        .pop_if_empty()
        .extend(["file", &format!("bot{token}")])
        .extend(parts);
    Ok(url)
}

/// Converts a response to a result or an error.
fn judge<R: DeserializeOwned>(status: StatusCode, header: Option<u64>, body: &[u8]) -> Result<R, ApiError> {
    // A batch of updates with a wrong byte in one of them would come again and again.
    let Ok(answer) = serde_json::from_str::<Answer<R>>(&String::from_utf8_lossy(body)) else {
        if status.is_success() {
            return Err(ApiError::NoAnswer("the answer is not what the Bot API says".into()));
        }
        return Err(refusal(status.as_u16(), header, format!("HTTP {status}"), Parameters::default()));
    };
    match answer.result {
        Some(result) if answer.ok => Ok(result),
        None if answer.ok => Err(ApiError::NoAnswer("the answer has no result".into())),
        _ => {
            let code = answer.error_code.unwrap_or(status.as_u16());
            let description = answer.description.unwrap_or_else(|| format!("HTTP {status}"));
            Err(refusal(code, header, description, answer.parameters))
        }
    }
}

fn refusal(code: u16, header: Option<u64>, description: String, parameters: Parameters) -> ApiError {
    match code {
        429 => ApiError::Flood(parameters.retry_after.or(header).map_or(DEFAULT_FLOOD_WAIT, Duration::from_secs)),
        500.. => ApiError::Server { code, description },
        _ => ApiError::Refused { code, description, migrate_to: parameters.migrate_to_chat_id },
    }
}

fn retry_after(response: &Response) -> Option<u64> {
    response.headers().get("retry-after")?.to_str().ok()?.parse().ok()
}

async fn read(mut response: Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(words)? {
        if body.len() + chunk.len() > ANSWER_MAX_BYTES {
            return Err(format!("the answer is longer than {ANSWER_MAX_BYTES} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn unsent(error: reqwest::Error) -> ApiError {
    if error.is_connect() || error.is_builder() {
        return ApiError::NotSent(words(error));
    }
    ApiError::NoAnswer(words(error))
}

/// The message of an error with its causes. The URL is left out, because it contains the token.
pub(super) fn words(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        words.push_str(": ");
        words.push_str(&error.to_string());
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: u16, header: Option<u64>, body: &str, expected: &str) {
        let status = StatusCode::from_u16(status).expect("a status");
        let answer = match judge::<bool>(status, header, body.as_bytes()) {
            Ok(result) => format!("{result}"),
            Err(error) => format!("{error:?}"),
        };
        assert_eq!(answer, expected, "{status} {body}");
    }

    #[test]
    fn the_address_of_a_file_stays_below_the_bot() {
        for (base, path, expected) in [
            ("https://api.example", "photos/file_1.jpg", "https://api.example/file/bot7:x/photos/file_1.jpg"),
            ("http://127.0.0.1:81/a", "a b/ü?#%.ogg", "http://127.0.0.1:81/a/file/bot7:x/a%20b/%C3%BC%3F%23%25.ogg"),
        ] {
            assert_eq!(file_url(base, "7:x", path).expect("an address").as_str(), expected);
        }
        for path in ["/var/lib/a.jpg", "../../getMe", "a/../b", "a//b", "", "./a"] {
            let error = file_url("https://api.example", "7:x", path).expect_err("no address");
            assert!(!error.to_string().contains("7:x"), "{error}");
        }
    }

    #[test]
    fn a_byte_that_is_no_utf_8_costs_no_answer() {
        let text: String = judge(StatusCode::OK, None, b"{\"ok\":true,\"result\":\"a\xffb\"}").expect("an answer");
        assert_eq!(text, "a\u{fffd}b");
    }

    #[test]
    fn answers_are_sorted_by_what_can_be_done_about_them() {
        check(200, None, r#"{"ok":true,"result":true}"#, "true");
        check(200, None, "<html>", r#"NoAnswer("the answer is not what the Bot API says")"#);
        check(200, None, r#"{"ok":true}"#, r#"NoAnswer("the answer has no result")"#);
        check(
            429,
            Some(9),
            r#"{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":17}}"#,
            "Flood(17s)",
        );
        check(429, Some(9), "busy", "Flood(9s)");
        check(429, None, "busy", "Flood(5s)");
        check(502, None, "bad gateway", r#"Server { code: 502, description: "HTTP 502 Bad Gateway" }"#);
        check(
            400,
            None,
            r#"{"ok":false,"error_code":400,"description":"Bad Request: upgraded","parameters":{"migrate_to_chat_id":-1007}}"#,
            r#"Refused { code: 400, description: "Bad Request: upgraded", migrate_to: Some(-1007) }"#,
        );
        check(403, None, "", r#"Refused { code: 403, description: "HTTP 403 Forbidden", migrate_to: None }"#);
    }
}
