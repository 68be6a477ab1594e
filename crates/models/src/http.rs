//! The HTTP client, and one request with its answer.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use belay_protocol::ModelError;
use bytes::Bytes;
use http_body_util::Full;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Body, Client, ClientBuilder, Method, Request, Response};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::{Instant, timeout, timeout_at};
use url::{Host, Url};

use crate::bounds::{BODY_MAX_BYTES, ERROR_BODY_MAX_BYTES};
use crate::config::LlmConfig;
use crate::error::ModelsError;
use crate::failure::{self, network};

/// Longest time to read the body of an error. 5 s: a genuine error body is short and follows its head at once.
const ERROR_BODY_LIMIT: Duration = Duration::from_secs(5);

/// Makes the client that all calls share. It keeps connections. It limits the time to connect and the silence, but not
/// the total time. It never retries by itself, and follows no redirect to another host, because the redirect would
/// reveal the key.
///
/// Servers on this machine are not called through it, but through a client without proxies that is made when it is
/// needed.
///
/// # Errors
/// [`ModelsError::Client`] if TLS cannot be set up.
pub fn http_client(config: &LlmConfig) -> Result<Client, ModelsError> {
    client_builder(config).build().map_err(ModelsError::Client)
}

fn client_builder(config: &LlmConfig) -> ClientBuilder {
    Client::builder()
        .user_agent(concat!("belay/", env!("CARGO_PKG_VERSION")))
        .tcp_nodelay(true)
        .connect_timeout(config.connect())
        .read_timeout(config.idle())
        .redirect(Policy::custom(stay_on_host))
        .retry(reqwest::retry::never())
        // A compressed stream may hold back data until it has more.
        .gzip(false)
}

/// The client for servers on this machine. It uses no proxy from the environment and reads no certificates.
pub(crate) fn local_client(config: &LlmConfig) -> Result<Client, ModelsError> {
    client_builder(config).no_proxy().tls_certs_only([]).build().map_err(ModelsError::Client)
}

/// The client for this address: `shared`, unless the address is an `http` address on this machine.
pub(crate) fn client_for(url: &Url, config: &LlmConfig, shared: &Client) -> Result<Client, ModelsError> {
    if url.scheme() == "http" && is_loopback(url) { local_client(config) } else { Ok(shared.clone()) }
}

fn stay_on_host(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let same = attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
    if same && attempt.previous().len() <= 3 { attempt.follow() } else { attempt.stop() }
}

/// Appends a path to a base address. A base address that already ends with the path is not changed.
pub(crate) fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    if !base.path().ends_with(path) {
        url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
    }
    url
}

/// Whether the address is on this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => IpAddr::V4(ip).is_loopback(),
        Some(Host::Ipv6(ip)) => IpAddr::V6(ip).is_loopback(),
        None => false,
    }
}

/// The address for the calls of one provider, with the headers and limits of each call.
pub(crate) struct Endpoint {
    http: Client,
    url: Url,
    headers: HeaderMap,
    secret: Option<SecretString>,
    connect: Duration,
    idle: Duration,
    /// Whether the server has answered without a redirect.
    direct: AtomicBool,
    /// Whether it has ever answered with a redirect.
    redirects: AtomicBool,
}

/// The head of a successful answer, by the type of its body.
pub(crate) enum Answer {
    /// A stream of events.
    Stream(Response),
    /// One JSON body: from a server that does not stream, or an error with the status of a success.
    Json(Vec<u8>),
}

impl Endpoint {
    /// Makes an endpoint. `auth` is the header that contains the key.
    ///
    /// # Errors
    /// [`ModelsError::BadKey`].
    pub(crate) fn new(
        http: Client,
        url: Url,
        config: &LlmConfig,
        secret: Option<&SecretString>,
        auth: (&'static str, &str),
    ) -> Result<Self, ModelsError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(secret) = secret {
            let (name, prefix) = auth;
            let mut value = HeaderValue::from_str(&format!("{prefix}{}", secret.expose_secret().trim()))
                .map_err(|_| ModelsError::BadKey)?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let (connect, idle) = (config.connect(), config.idle());
        let (direct, redirects) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { http, url, headers, secret: secret.cloned(), connect, idle, direct, redirects })
    }

    /// Adds a header to each request.
    pub(crate) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(name, HeaderValue::from_static(value));
        self
    }

    /// The longest silence.
    pub(crate) fn idle(&self) -> Duration {
        self.idle
    }

    /// The server's address.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// Sends a body and reads the head of the answer.
    ///
    /// # Errors
    /// The error that the status means. An error of kind `Network` if there is no answer, or no answer of our protocol.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(crate) async fn post(&self, body: Vec<u8>) -> Result<Answer, ModelError> {
        let mut request = Request::new(Method::POST, self.url.clone());
        *request.headers_mut() = self.headers.clone();
        *request.body_mut() = Some(self.request_body(body));
        let response = timeout(self.connect + self.idle, self.http.execute(request))
            .await
            .map_err(|_| {
                let (place, limit_s) = (failure::place(&self.url), (self.connect + self.idle).as_secs());
                network(format!("no answer from {place} within {limit_s} s"))
            })?
            .map_err(failure::from_client)?;
        let direct = *response.url() == self.url && !response.status().is_redirection();
        if direct { &self.direct } else { &self.redirects }.store(true, Relaxed);
        if !response.status().is_success() {
            return Err(self.refusal(response).await);
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            // Some servers omit the type, or label everything as text.
            "text/event-stream" | "text/plain" | "" => Ok(Answer::Stream(response)),
            _ if kind.contains("json") => Ok(Answer::Json(self.whole_body(response).await?)),
            _ => {
                let body = read_body(response, ERROR_BODY_MAX_BYTES, ERROR_BODY_LIMIT).await.0;
                let body = String::from_utf8_lossy(&body);
                Err(self.redact(network(format!("a success of type {kind} is not our protocol: {body}"))))
            }
        }
    }

    /// The body of a request. A body that a redirect could ask for again is kept until the answer begins, which a slow
    /// model may delay for minutes. So once the server has answered without a redirect, a body is freed when it was
    /// sent. Then a server that begins to redirect is reported once, and each later redirect is followed.
    fn request_body(&self, body: Vec<u8>) -> Body {
        let kept = self.redirects.load(Relaxed) || !self.direct.load(Relaxed);
        if !kept { Body::wrap(Full::new(Bytes::from(body))) } else { body.into() }
    }

    async fn refusal(&self, response: Response) -> ModelError {
        let status = response.status();
        if status.is_redirection() {
            let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
            return failure::from_status(
                status.as_u16(),
                None,
                format!("the server redirects to {to}; change llm.base_url").as_bytes(),
            );
        }
        let delay = failure::retry_after(response.headers());
        let (body, _) = read_body(response, ERROR_BODY_MAX_BYTES, ERROR_BODY_LIMIT).await;
        self.redact(failure::from_status(status.as_u16(), delay, &body))
    }

    async fn whole_body(&self, response: Response) -> Result<Vec<u8>, ModelError> {
        match read_body(response, BODY_MAX_BYTES, self.idle).await {
            (body, BodyEnd::Whole) => Ok(body),
            (_, BodyEnd::TooLong) => Err(network(format!("the answer is longer than {BODY_MAX_BYTES} bytes"))),
            (_, BodyEnd::Broken(detail)) => Err(network(format!("the answer broke off: {detail}"))),
        }
    }

    /// Removes the key from an error, in case the server has quoted it.
    pub(crate) fn redact(&self, mut error: ModelError) -> ModelError {
        if let Some(secret) = &self.secret {
            let key = secret.expose_secret().trim();
            if key.len() >= 4 {
                error.detail = error.detail.replace(key, "[key]");
                if let Some(refusal) = &mut error.refusal {
                    refusal.message = refusal.message.replace(key, "[key]");
                    refusal.code = refusal.code.replace(key, "[key]");
                }
            }
        }
        error
    }
}

/// How the reading of a body ended.
pub(crate) enum BodyEnd {
    Whole,
    TooLong,
    Broken(String),
}

/// Reads a body up to `max_bytes`, for at most `limit`. Returns the bytes that have arrived, whatever the end.
pub(crate) async fn read_body(mut response: Response, max_bytes: usize, limit: Duration) -> (Vec<u8>, BodyEnd) {
    let deadline = Instant::now() + limit;
    let mut body = Vec::new();
    let end = loop {
        match timeout_at(deadline, response.chunk()).await {
            Ok(Ok(Some(chunk))) => {
                let room = max_bytes - body.len();
                body.extend_from_slice(&chunk[..chunk.len().min(room)]);
                if chunk.len() > room {
                    break BodyEnd::TooLong;
                }
            }
            Ok(Ok(None)) => break BodyEnd::Whole,
            Ok(Err(error)) => break BodyEnd::Broken(failure::from_client(error).detail),
            Err(_) => break BodyEnd::Broken(format!("not whole within {} s", limit.as_secs())),
        }
    };
    (body, end)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::base_url::parse_base_url;
    use crate::testing::{client, config};

    #[test]
    fn base_addresses_are_read_as_people_mean_them() {
        for (given, call) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1/chat/completions"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1/chat/completions"),
            ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1/chat/completions"),
            (" https://h/a/v1/ ", "https://h/a/v1/chat/completions"),
            ("https://h/v1/chat/completions", "https://h/v1/chat/completions"),
        ] {
            assert_eq!(below(&parse_base_url(given).unwrap(), "/chat/completions").as_str(), call, "{given}");
        }
        for bad in ["", "localhost:8080", "ftp://h", "http://user:pw@h/v1", "http://h/v1?key=x", "http://"] {
            assert!(parse_base_url(bad).is_err(), "{bad}");
        }
        let told = parse_base_url("http://user:sesame@h/v1").unwrap_err().to_string();
        assert!(!told.contains("sesame"), "{told}");
    }

    #[test]
    fn this_machine_is_known_by_its_names() {
        for (url, ours) in [
            ("http://localhost:1", true),
            ("http://127.9.9.9", true),
            ("http://[::1]:80", true),
            ("http://10.0.0.1", false),
            ("https://localhost.example.com", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), ours, "{url}");
        }
    }

    /// Answers one request for each of these texts, each on a connection of its own. Returns the requests.
    async fn serve(listener: tokio::net::TcpListener, answers: Vec<&'static str>) -> Vec<String> {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"{\"a\":1}") {
                stream.read_buf(&mut request).await.unwrap();
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            requests.push(String::from_utf8(request).unwrap());
        }
        requests
    }

    #[tokio::test]
    async fn a_body_is_kept_for_a_redirect_until_the_server_has_answered_without_one() {
        const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        const MOVED: &str =
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: /moved\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/v1", listener.local_addr().unwrap())).unwrap();
        let endpoint = Endpoint::new(client(), url, &config(json!({})), None, ("authorization", "Bearer ")).unwrap();
        let server = tokio::spawn(serve(listener, vec![FINE, MOVED, MOVED, FINE, FINE, MOVED, FINE]));
        let post = async || endpoint.post(b"{\"a\":1}".to_vec()).await.map(|_| ());
        post().await.unwrap();
        let refused = post().await.unwrap_err();
        assert!(refused.detail.contains("redirects"), "{refused:?}");
        post().await.unwrap(); // followed
        post().await.unwrap();
        post().await.unwrap(); // followed, although the answer before came without a redirect
        let requests = server.await.unwrap();
        assert!(requests.iter().all(|request| request.to_lowercase().contains("content-length: 7")), "{requests:?}");
    }
}
