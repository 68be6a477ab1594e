//! A hook that calls an HTTP address.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Hook, HookAnswer, HookEvent, Secret};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use tokio::sync::Semaphore;
use url::{Host, Url};

use crate::answer::{self, MAX_ANSWER_BYTES, too_long};
use crate::command::MAX_PARALLEL;

/// Longest time to connect, within the time limit of the hook.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Posts each event as JSON and reads the answer from the body of a 2xx response. Redirects are not followed, because
/// the token is for this address only.
#[derive(Debug)]
pub struct HttpHook {
    name: String,
    url: Url,
    token: Option<Secret>,
    client: Client,
    slots: Arc<Semaphore>,
}

impl HttpHook {
    /// Makes a hook with this name and a client of its own.
    ///
    /// # Errors
    /// The client could not be made, for instance because there are no trusted root certificates.
    pub(crate) fn new(name: String, url: Url, token: Option<Secret>) -> Result<Self, reqwest::Error> {
        let mut builder = Client::builder().redirect(Policy::none()).connect_timeout(CONNECT_LIMIT).tcp_nodelay(true);
        if url.scheme() == "http" {
            builder = builder.tls_certs_only([]); // certificates are not needed, and reading them takes time and memory
        }
        if is_this_machine(&url) {
            builder = builder.no_proxy();
        }
        Ok(Self { name, url, token, client: builder.build()?, slots: Arc::new(Semaphore::new(MAX_PARALLEL)) })
    }
}

#[async_trait]
impl Hook for HttpHook {
    fn name(&self) -> &str {
        &self.name
    }

    /// # Cancel safety
    /// If the future is dropped, the request is dropped. The server may or may not have received it.
    async fn call(&self, event: &HookEvent) -> Result<HookAnswer, String> {
        let _permit = self.slots.acquire().await.ok(); // never closed
        let mut request = self.client.post(self.url.clone()).json(event);
        if let Some(token) = &self.token {
            let mut header = HeaderValue::try_from(format!("Bearer {}", token.expose()))
                .map_err(|_| "its token has characters that no header can hold".to_owned())?;
            header.set_sensitive(true);
            request = request.header(AUTHORIZATION, header);
        }
        // An address may contain a secret, which must not be in the log.
        let response = request.send().await.map_err(|error| format!("no answer: {}", causes(&error.without_url())))?;
        let status = response.status();
        if status.is_redirection() {
            return Err(format!("it answered {status}, and redirects are not followed: configure the final address"));
        }
        if !status.is_success() {
            return Err(format!("it answered {status}"));
        }
        answer::read(event, &body(response).await?)
    }
}

async fn body(mut response: Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > MAX_ANSWER_BYTES => return Err(too_long()),
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            Err(error) => return Err(format!("its answer broke off: {}", causes(&error.without_url()))),
        }
    }
}

/// An error with its causes, on one line.
fn causes(error: &reqwest::Error) -> String {
    let mut line = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        line.push_str(&format!(": {error}"));
        cause = error.source();
    }
    line
}

fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}
