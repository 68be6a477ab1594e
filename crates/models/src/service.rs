//! One route of a server with the API of OpenAI, besides the one for chat: transcription, embeddings.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Response};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::{Instant, sleep, timeout_at};
use tracing::debug;
use url::Url;

use crate::base_url::parse_base_url;
use crate::bounds::ERROR_BODY_MAX_BYTES;
use crate::config::LlmConfig;
use crate::error::ModelsError;
use crate::failure;
use crate::http::{BodyEnd, below, http_client, is_loopback, local_client, read_body};

/// Requests of one call. Nothing above repeats a call.
const ATTEMPTS: u32 = 2;

/// The pause before the second request, if the server names none.
const PAUSE: Duration = Duration::from_secs(1);

/// Longest pause that a server may ask for. A longer one ends the call.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A route of a server, with the key and the deadline of its calls.
pub(crate) struct Service {
    http: Client,
    url: Url,
    auth: Option<HeaderValue>,
    secret: Option<SecretString>,
    deadline: Duration,
}

/// Why a request has failed.
struct Failed {
    detail: String,
    /// The pause after which the request may succeed; `None`: it fails again.
    again: Option<Duration>,
}

impl Service {
    /// A route below a base address. Reads root certificates unless the server is on this machine.
    ///
    /// # Errors
    /// The address or the key is unusable, or TLS cannot be set up.
    pub(crate) fn new(
        base_url: &str,
        path: &str,
        secret: Option<&SecretString>,
        deadline: Duration,
    ) -> Result<Self, ModelsError> {
        let url = below(&parse_base_url(base_url)?, path);
        let limits = LlmConfig { idle_timeout_s: deadline.as_secs().max(1), ..LlmConfig::default() };
        let is_local = url.scheme() == "http" && is_loopback(&url);
        let http = if is_local { local_client(&limits)? } else { http_client(&limits)? };
        let auth = secret.map(|secret| {
            let value = HeaderValue::from_str(&format!("Bearer {}", secret.expose_secret().trim()));
            value.map_err(|_| ModelsError::BadKey)
        });
        let mut auth = auth.transpose()?;
        auth.iter_mut().for_each(|value| value.set_sensitive(true));
        Ok(Self { http, url, auth, secret: secret.cloned(), deadline })
    }

    /// Sends a body and returns that of the answer, at most `max_bytes` of it. Sends it once more after a temporary
    /// failure, within the one deadline.
    ///
    /// # Errors
    /// The reason, without the key.
    pub(crate) async fn post(&self, content_type: &str, body: Bytes, max_bytes: usize) -> Result<Vec<u8>, String> {
        let end = Instant::now() + self.deadline;
        let calls = async {
            let mut left = ATTEMPTS;
            loop {
                left -= 1;
                let failed = match self.request(content_type, body.clone(), max_bytes).await {
                    Ok(answer) => return Ok(answer),
                    Err(failed) => failed,
                };
                match failed.again.filter(|pause| left > 0 && *pause <= PAUSE_MAX) {
                    Some(pause) => {
                        debug!(url = %self.url, detail = failed.detail, "a request has failed and is sent again");
                        sleep(pause).await;
                    }
                    None => return Err(failed.detail),
                }
            }
        };
        let silent = |_elapsed| format!("no answer within {} s", self.deadline.as_secs());
        timeout_at(end, calls).await.map_err(silent)?.map_err(|detail| self.without_key(detail))
    }

    async fn request(&self, content_type: &str, body: Bytes, max_bytes: usize) -> Result<Vec<u8>, Failed> {
        let mut request = self.http.post(self.url.clone()).header(CONTENT_TYPE, content_type).body(body);
        if let Some(auth) = &self.auth {
            request = request.header(AUTHORIZATION, auth.clone());
        }
        let broken = |detail: String| Failed { detail, again: Some(PAUSE) };
        let response = request.send().await.map_err(|error| broken(failure::from_client(error).detail))?;
        if !response.status().is_success() {
            return Err(self.refusal(response).await);
        }
        match read_body(response, max_bytes, self.deadline).await {
            (body, BodyEnd::Whole) => Ok(body),
            (_, BodyEnd::TooLong) => {
                Err(Failed { detail: format!("the answer is longer than {max_bytes} bytes"), again: None })
            }
            (_, BodyEnd::Broken(detail)) => Err(broken(format!("the answer broke off: {detail}"))),
        }
    }

    async fn refusal(&self, response: Response) -> Failed {
        let (status, delay) = (response.status(), failure::retry_after(response.headers()));
        let is_temporary = status.is_server_error() || matches!(status.as_u16(), 408 | 429);
        let (body, _) = read_body(response, ERROR_BODY_MAX_BYTES, PAUSE_MAX).await;
        let detail = failure::from_status(status.as_u16(), delay, &body).detail;
        Failed { detail, again: is_temporary.then(|| delay.unwrap_or(PAUSE)) }
    }

    /// Removes the key, in case the server has quoted it.
    fn without_key(&self, detail: String) -> String {
        match self.secret.as_ref().map(|secret| secret.expose_secret().trim()).filter(|key| key.len() >= 4) {
            Some(key) => detail.replace(key, "[key]"),
            None => detail,
        }
    }
}

/// The reason why the body of a success cannot be used: its own error, if it has one.
pub(crate) fn unusable(body: &[u8]) -> String {
    let detail = failure::from_error_body(body).detail;
    if detail.is_empty() { "the answer is not one of the API of OpenAI".to_owned() } else { detail }
}

/// The settings that every such route has.
pub struct ServiceSettings<'a> {
    /// The section, such as `transcription`.
    pub section: &'static str,
    /// The address of the server; `None`: the route is not used.
    pub base_url: Option<&'a str>,
    /// The model.
    pub model: &'a str,
    /// The variable with the key.
    pub api_key_env: Option<&'a str>,
    /// The file with the key.
    pub api_key_file: Option<&'a PathBuf>,
}

impl ServiceSettings<'_> {
    /// Every problem, each starting with its key.
    pub fn problems(&self) -> Vec<String> {
        let section = self.section;
        let mut problems = Vec::new();
        if let Some(url) = self.base_url
            && let Err(error) = parse_base_url(url)
        {
            problems.push(error.to_string().replace("llm.", &format!("{section}.")));
        }
        if self.model.trim().is_empty() {
            problems.push(format!("{section}.model: must not be empty"));
        }
        if self.api_key_env.is_some_and(|name| !name.is_empty()) && self.api_key_file.is_some() {
            problems.push(format!("{section}.api_key_file: give either this or {section}.api_key_env, not both"));
        }
        problems
    }
}

/// A server that gives one answer after another and keeps the requests.
#[cfg(test)]
pub(crate) mod double {
    #![allow(clippy::unwrap_used)]

    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;

    pub(crate) struct Double {
        pub(crate) base_url: String,
        requests: Arc<Mutex<Vec<String>>>,
        server: JoinHandle<()>,
    }

    impl Double {
        /// The requests so far, as text.
        pub(crate) fn requests(&self) -> Vec<String> {
            self.requests.lock().unwrap().clone()
        }
    }

    impl Drop for Double {
        fn drop(&mut self) {
            self.server.abort();
        }
    }

    pub(crate) async fn serve(answers: Vec<(u16, &'static str)>) -> Double {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        let server = tokio::spawn(async move {
            for (status, body) in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !is_whole(&request) {
                    assert!(stream.read_buf(&mut request).await.unwrap() > 0, "the request breaks off");
                }
                seen.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
                let length = body.len();
                let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
                stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await.unwrap();
            }
        });
        Double { base_url, requests, server }
    }

    fn is_whole(request: &[u8]) -> bool {
        let text = String::from_utf8_lossy(request);
        let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
        let length = text.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        request.len() >= end + 4 + length.unwrap_or(0)
    }
}
