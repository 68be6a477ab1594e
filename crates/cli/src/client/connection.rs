//! Finds the daemon, sends requests to it, and explains failures.

use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::net::{is_plain_loopback, plain_client};
use belay_program::paths::Paths;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value as Json;
use url::Url;

use super::events::Events;
use crate::args::ClientArgs;

/// Longest time to connect. 3 s: the daemon is on this machine or near.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// Longest time for an answer without a deliberate wait. 35 s: the daemon itself gives up on its agent after 30.
const ANSWER_LIMIT: Duration = Duration::from_secs(35);

/// Most bytes of an answer that are read. 64 MiB: the daemon's own limits are far lower.
const ANSWER_MAX_BYTES: usize = 64 * 1024 * 1024;

/// The beginning of the failure of a connection that was never there.
const NOBODY: &str = "no daemon answers at";

/// Advice when no daemon answers.
const START_ONE: &str = "start one with `belay run`, or say where it is with --url http://host:port";

/// The session of an operator at the command line.
const OPERATOR_SESSION: &str = "cli";

/// The session of a client at the command line, which may not write to that of the operator.
const CLIENT_SESSION: &str = "client";

/// A connection to a running daemon.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    token: Option<SecretString>,
    /// The daemon's address, for messages.
    place: String,
    /// The control socket; `None`: the daemon is reached over HTTP.
    socket: Option<PathBuf>,
    /// The session of messages without another.
    session: &'static str,
}

impl Client {
    /// Finds the daemon: `--url` (or `BELAY_URL`), otherwise the first control socket that answers.
    ///
    /// # Errors
    /// The address is invalid (2), or no daemon answers there (69).
    pub fn find(args: &ClientArgs, env: &Environment) -> Result<Self, Failure> {
        match args.url.as_deref() {
            Some(url) => match url.strip_prefix("unix:") {
                Some(path) => Self::over_socket(Path::new(path.trim_start_matches("//"))),
                None => Self::over_http(url, env),
            },
            None => {
                let sockets = Paths::find(env)?.client_sockets();
                match sockets.iter().find(|socket| UnixStream::connect(socket).is_ok()) {
                    Some(socket) => Self::over_socket(socket),
                    None => Err(nobody_at(&sockets)),
                }
            }
        }
    }

    fn over_socket(path: &Path) -> Result<Self, Failure> {
        // The host name is never resolved: every connection goes to the socket.
        let base = Url::parse("http://belay.invalid").map_err(internal)?;
        let http = plain().unix_socket(path).build().map_err(internal)?;
        Ok(Self {
            http,
            base,
            token: None,
            place: path.display().to_string(),
            socket: Some(path.to_owned()),
            session: OPERATOR_SESSION,
        })
    }

    fn over_http(url: &str, env: &Environment) -> Result<Self, Failure> {
        let refuse = |what: String| {
            Failure::new(Exit::WrongUsage, format!("--url {what}"))
                .next("write for example --url http://127.0.0.1:8787, or --url unix:/run/belay/control.sock")
        };
        let base = Url::parse(url).map_err(|error| refuse(format!("is not an address: {error}")))?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            return Err(refuse("must begin with http:// or https:// and name a host".into()));
        }
        let operator = env.text("BELAY_OPERATOR_TOKEN");
        let session = match (&operator, env.text("BELAY_TOKEN")) {
            (None, Some(_)) => CLIENT_SESSION,
            _ => OPERATOR_SESSION,
        };
        let token = operator.or_else(|| env.text("BELAY_TOKEN"));
        let http = if is_plain_loopback(url) { plain() } else { common(reqwest::Client::builder()) };
        Ok(Self {
            http: http.build().map_err(internal)?,
            place: base.origin().ascii_serialization(),
            socket: None,
            session,
            token: token.map(|token| SecretString::from(token.trim())),
            base,
        })
    }

    /// Builds a raw request, for routes outside the API.
    #[cfg_attr(not(feature = "mcp"), expect(dead_code, reason = "a build without `belay mcp serve`"))]
    pub(crate) fn request(&self, method: Method, path: &[&str]) -> Result<reqwest::RequestBuilder, Failure> {
        let request = self.http.request(method, self.url(path, &[])?);
        Ok(match &self.token {
            Some(token) => request.bearer_auth(token.expose_secret()),
            None => request,
        })
    }

    /// The session of a message: the named one, or that of the command line.
    pub(crate) fn session<'a>(&self, named: Option<&'a str>) -> &'a str {
        named.unwrap_or(self.session)
    }

    /// The control socket of the daemon; `None`: it is reached over HTTP.
    pub(crate) fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// The daemon's address, for messages.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Sends a GET request.
    pub async fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Json, Failure> {
        self.ask(Method::GET, self.url(path, query)?, None, ANSWER_LIMIT).await
    }

    /// Sends a GET request whose answer is text, not JSON.
    pub async fn get_text(&self, path: &[&str], query: &[(&str, &str)]) -> Result<String, Failure> {
        let (status, bytes) = self.fetch(Method::GET, self.url(path, query)?, None, ANSWER_LIMIT).await?;
        match serde_json::from_slice::<Json>(&bytes) {
            Ok(answer) if !status.is_success() && answer.pointer("/error/message").is_some() => {
                Err(refused(status, &answer))
            }
            _ if status.is_success() => String::from_utf8(bytes).map_err(|_| self.not_belay("its answer is no text")),
            _ => Err(self.not_belay(&format!("status {}", status.as_u16()))),
        }
    }

    /// Sends a GET request that the daemon may hold for up to `wait`.
    pub(crate) async fn get_slowly(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        wait: Duration,
    ) -> Result<Json, Failure> {
        self.ask(Method::GET, self.url(path, query)?, None, ANSWER_LIMIT + wait).await
    }

    /// Sends a POST request that the daemon may hold for up to `wait`.
    pub async fn post(&self, path: &[&str], body: Option<&Json>, wait: Duration) -> Result<Json, Failure> {
        self.ask(Method::POST, self.url(path, &[])?, body, ANSWER_LIMIT + wait).await
    }

    /// Sends a POST request with a query. It may take up to an hour.
    pub(crate) async fn post_with(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Json, Failure> {
        self.ask(Method::POST, self.url(path, query)?, None, Duration::from_secs(3600)).await
    }

    /// Sends a PUT request.
    pub(crate) async fn put(&self, path: &[&str], body: &Json) -> Result<Json, Failure> {
        self.ask(Method::PUT, self.url(path, &[])?, Some(body), ANSWER_LIMIT).await
    }

    /// Sends a DELETE request.
    pub(crate) async fn delete(&self, path: &[&str]) -> Result<Json, Failure> {
        self.delete_with(path, &[]).await
    }

    /// Sends a DELETE request with a query.
    pub(crate) async fn delete_with(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Json, Failure> {
        self.ask(Method::DELETE, self.url(path, query)?, None, ANSWER_LIMIT).await
    }

    /// Sends a request, and returns the status and the JSON of the answer, also of a refusal. The daemon may hold it for up to
    /// `wait`.
    ///
    /// # Errors
    /// No daemon answers, or what answers is not Belay.
    pub async fn exchange(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<&Json>,
        wait: Duration,
    ) -> Result<(u16, Json), Failure> {
        let (status, answer) = self.answer(method, self.url(path, query)?, body, ANSWER_LIMIT + wait).await?;
        Ok((status.as_u16(), answer))
    }

    /// Stores a file that a message can name, and returns the status and the JSON of the answer, also of a refusal.
    ///
    /// # Errors
    /// As [`Client::exchange`].
    pub async fn upload(&self, name: &str, bytes: Vec<u8>) -> Result<(u16, Json), Failure> {
        let request = self.http.post(self.url(&["api", "v1", "files"], &[("name", name)])?).timeout(ANSWER_LIMIT);
        let request = request.header(CONTENT_TYPE, "application/octet-stream").body(bytes);
        let (status, answer) = self.received(request).await.and_then(|(status, bytes)| self.read(status, &bytes))?;
        Ok((status.as_u16(), answer))
    }

    /// Opens the stream of a run's events: after the fact with this number, or from its first one.
    ///
    /// # Errors
    /// No daemon answers, or it refuses the request.
    pub async fn run_events(&self, run: &str, since: Option<u64>) -> Result<Events, Failure> {
        self.events_since(&["api", "v1", "runs", run, "stream"], since).await
    }

    /// Opens a stream of events.
    pub(crate) async fn events(&self, path: &[&str]) -> Result<Events, Failure> {
        self.open_events(self.url(path, &[])?).await
    }

    /// Opens the stream of all stored events: after the one with this number, or from now on.
    pub(crate) async fn all_events(&self, since: Option<u64>) -> Result<Events, Failure> {
        self.events_since(&["api", "v1", "events"], since).await
    }

    /// Opens the stream of a session's events: after the fact with this number, or from now on.
    pub(crate) async fn session_events(&self, session: &str, since: Option<u64>) -> Result<Events, Failure> {
        self.events_since(&["api", "v1", "sessions", session, "stream"], since).await
    }

    async fn events_since(&self, path: &[&str], since: Option<u64>) -> Result<Events, Failure> {
        let since = since.map(|since| since.to_string());
        let query: Vec<(&str, &str)> = since.iter().map(|since| ("since", since.as_str())).collect();
        self.open_events(self.url(path, &query)?).await
    }

    async fn open_events(&self, url: Url) -> Result<Events, Failure> {
        let mut request = self.http.get(url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose_secret());
        }
        let response = tokio::time::timeout(ANSWER_LIMIT, request.send()).await.map_err(|_elapsed| {
            Failure::new(Exit::OutOfReach, format!("the daemon at {} does not answer in time", self.place))
        })?;
        let response = response.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(Events::new(response));
        }
        let bytes = bounded(response).await.map_err(|what| self.not_belay(&what))?;
        match serde_json::from_slice::<Json>(&bytes) {
            Ok(answer) if answer.pointer("/error/message").is_some() => Err(refused(status, &answer)),
            _ => Err(self.not_belay(&format!("status {}", status.as_u16()))),
        }
    }

    /// The URL of a route. Segments are percent-encoded, because session keys may contain any character.
    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Url, Failure> {
        let mut url = self.base.clone();
        url.path_segments_mut().map_err(|()| internal("the address has no path"))?.pop_if_empty().extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }

    async fn ask(&self, method: Method, url: Url, body: Option<&Json>, limit: Duration) -> Result<Json, Failure> {
        match self.answer(method, url, body, limit).await? {
            (status, answer) if status.is_success() => Ok(answer),
            (status, answer) => Err(refused(status, &answer)),
        }
    }

    /// The answer to a request, or the refusal.
    async fn answer(
        &self,
        method: Method,
        url: Url,
        body: Option<&Json>,
        limit: Duration,
    ) -> Result<(StatusCode, Json), Failure> {
        let (status, bytes) = self.fetch(method, url, body, limit).await?;
        self.read(status, &bytes)
    }

    /// Reads an answer as JSON. A refusal without an error of Belay is of another server.
    fn read(&self, status: StatusCode, bytes: &[u8]) -> Result<(StatusCode, Json), Failure> {
        match serde_json::from_slice::<Json>(bytes) {
            Ok(answer) if status.is_success() || answer.pointer("/error/message").is_some() => Ok((status, answer)),
            _ => Err(self.not_belay(&format!("status {}", status.as_u16()))),
        }
    }

    async fn fetch(
        &self,
        method: Method,
        url: Url,
        body: Option<&Json>,
        limit: Duration,
    ) -> Result<(StatusCode, Vec<u8>), Failure> {
        let mut request = self.http.request(method, url).timeout(limit);
        if let Some(body) = body {
            request = request.json(body);
        }
        self.received(request).await
    }

    /// Sends a request with the token.
    async fn received(&self, mut request: reqwest::RequestBuilder) -> Result<(StatusCode, Vec<u8>), Failure> {
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose_secret());
        }
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let bytes = bounded(response).await.map_err(|what| self.not_belay(&what))?;
        Ok((status, bytes))
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        let place = &self.place;
        if error.is_timeout() && !error.is_connect() {
            return Failure::new(Exit::OutOfReach, format!("the daemon at {place} does not answer in time"))
                .next("its log says more; `belay check` looks at what it needs");
        }
        if error.is_connect() && is_permission_denied(error) {
            return permission_denied(Path::new(place));
        }
        if error.is_connect() {
            return Failure::new(Exit::OutOfReach, format!("{NOBODY} {place}")).next(START_ONE);
        }
        Failure::new(Exit::OutOfReach, format!("the connection to the daemon at {place} broke off"))
            .next("whether it took the request is not known: `belay runs` shows what it has")
    }

    fn not_belay(&self, what: &str) -> Failure {
        Failure::new(Exit::OutOfReach, format!("what answers at {} is not Belay ({what})", self.place)).next(START_ONE)
    }
}

/// Whether a request has failed because nobody took the connection: then it cannot have arrived.
pub fn nobody_answers(failure: &Failure) -> bool {
    failure.exit == Exit::OutOfReach && failure.what.starts_with(NOBODY)
}

/// A client for this machine, without a proxy of the environment.
fn plain() -> reqwest::ClientBuilder {
    common(plain_client()).no_proxy()
}

fn common(builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
    builder.connect_timeout(CONNECT_LIMIT).redirect(reqwest::redirect::Policy::none())
}

async fn bounded(mut response: reqwest::Response) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| "its answer broke off".to_owned())? {
        if bytes.len() + chunk.len() > ANSWER_MAX_BYTES {
            return Err("its answer has no end".into());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// Converts an error of the daemon to a failure. The exit code tells a script what it can do.
fn refused(status: StatusCode, answer: &Json) -> Failure {
    let message = super::text(answer, "/error/message");
    let failure = |exit| Failure::new(exit, message);
    match status.as_u16() {
        401 => failure(Exit::Failed).next("put its token into BELAY_TOKEN, or BELAY_OPERATOR_TOKEN"),
        403 => failure(Exit::Failed).next("this needs an operator: the control socket, or BELAY_OPERATOR_TOKEN"),
        429 | 503 => failure(Exit::Busy).next(match super::number(answer, "/error/retry_after_ms") {
            0 => "try again".to_owned(),
            ms => format!("try again in {} s", ms.div_ceil(1000)),
        }),
        400 | 413 | 415 | 422 => failure(Exit::UnusableInput),
        500.. => failure(Exit::Internal),
        _ => failure(Exit::Failed),
    }
}

fn nobody_at(sockets: &[PathBuf]) -> Failure {
    let forbidden = |path: &&PathBuf| {
        UnixStream::connect(path).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    };
    if let Some(path) = sockets.iter().find(forbidden) {
        return permission_denied(path);
    }
    let looked: Vec<_> = sockets.iter().map(|path| path.display().to_string()).collect();
    Failure::new(Exit::OutOfReach, format!("no daemon is running here (looked at {})", looked.join(" and ")))
        .next(START_ONE)
}

/// The failure of a socket that this user may not use, although a daemon may be running.
fn permission_denied(socket: &Path) -> Failure {
    let what = format!("permission denied on the control socket {}", socket.display());
    let group = std::fs::metadata(socket).ok().filter(|file| file.mode() & 0o020 != 0).map(|file| file.gid());
    let group = match group {
        Some(gid) => format!("become a member of the group {gid} that it belongs to"),
        None => "set gateway.control_group to a group of yours".to_owned(),
    };
    let next = format!("use sudo, or {group}, or --url http://host:port with a token in BELAY_TOKEN");
    Failure::new(Exit::OutOfReach, what).next(next)
}

fn is_permission_denied(error: &reqwest::Error) -> bool {
    let first: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut causes = std::iter::successors(first, |error| error.source());
    causes.any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    })
}

fn internal(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Internal, error)
}

#[cfg(test)]
mod tests;
