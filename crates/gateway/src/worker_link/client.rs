//! The worker's end of the link.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{
    BatchAnswer, JobToken, LinkError, LinkId, ModelAnswer, ModelAsk, ToolBatch, ToolDone, ToolOrder, WorkerEnd,
    WorkerLink, WorkerTask,
};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

/// How long connecting is retried. 5 s: the host listens before it starts a worker.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Pause between two attempts to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);
/// Longest wait for an answer that needs no work. 60 s: the host holds a request for orders for 20 s.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Longest wait for the model or for a batch. 40 days: a call may wait 30 days for a person, and the job's own timeout is
/// at most a day. They end the wait before.
const WORK_LIMIT: Duration = Duration::from_secs(40 * 86_400);
/// Most bytes of an answer. 64 MiB: results with pictures stay far below.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Sends requests to the host of one job.
#[derive(Debug)]
pub struct LinkClient {
    http: reqwest::Client,
    /// `http://host.invalid/worker/JOB`: the name is never resolved, because every connection goes to the socket.
    base: String,
}

impl LinkClient {
    /// Creates a client for this job. It connects with the first request.
    ///
    /// # Errors
    /// [`LinkError::Broken`]: no client can be made.
    pub fn new(socket: &Path, job: LinkId, token: &JobToken) -> Result<Self, LinkError> {
        let mut authorization = HeaderValue::from_str(&format!("Bearer {}", token.expose())).map_err(broken)?;
        authorization.set_sensitive(true);
        let http = reqwest::Client::builder()
            .tls_certs_only([])
            .no_proxy()
            .unix_socket(socket)
            .default_headers(HeaderMap::from_iter([(AUTHORIZATION, authorization)]))
            .build()
            .map_err(broken)?;
        Ok(Self { http, base: format!("http://host.invalid/worker/{job}") })
    }

    async fn get<T: DeserializeOwned>(&self, what: &str) -> Result<Option<T>, LinkError> {
        self.ask(Method::GET, what, None, ANSWER_LIMIT).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        what: &str,
        body: &impl Serialize,
        limit: Duration,
    ) -> Result<Option<T>, LinkError> {
        let body = serde_json::to_vec(body).map_err(broken)?;
        self.ask(Method::POST, what, Some(body), limit).await
    }

    /// Sends one request. Only connecting is retried: a request that was sent may have been received.
    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        what: &str,
        body: Option<Vec<u8>>,
        limit: Duration,
    ) -> Result<Option<T>, LinkError> {
        let give_up = Instant::now() + CONNECT_LIMIT;
        let response = loop {
            let mut request = self.http.request(method.clone(), format!("{}/{what}", self.base)).timeout(limit);
            if let Some(body) = &body {
                request = request.header("content-type", "application/json").body(body.clone());
            }
            match request.send().await {
                Ok(response) => break response,
                Err(error) if error.is_connect() && Instant::now() < give_up => sleep(CONNECT_PAUSE).await,
                Err(error) => return Err(broken(error)),
            }
        };
        match response.status() {
            StatusCode::NO_CONTENT => Ok(None),
            StatusCode::UNAUTHORIZED => Err(LinkError::Over),
            status if status.is_success() => {
                serde_json::from_slice(&bytes_of(response).await?).map(Some).map_err(broken)
            }
            status => {
                let said = bytes_of(response).await.unwrap_or_default();
                let said: String = String::from_utf8_lossy(&said).chars().take(500).collect();
                Err(LinkError::Broken(format!("{what} was answered with {}: {said}", status.as_u16())))
            }
        }
    }
}

async fn bytes_of(mut response: Response) -> Result<Vec<u8>, LinkError> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(broken)? {
        if bytes.len() + piece.len() > ANSWER_BYTES {
            return Err(LinkError::Broken(format!("an answer is longer than {ANSWER_BYTES} bytes")));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// An error and its causes in one line.
fn broken(error: impl std::error::Error) -> LinkError {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    LinkError::Broken(words)
}

fn there<T>(answer: Option<T>) -> Result<T, LinkError> {
    answer.ok_or_else(|| LinkError::Broken("the answer is empty".to_owned()))
}

#[async_trait]
impl WorkerLink for LinkClient {
    async fn task(&self) -> Result<WorkerTask, LinkError> {
        there(self.get("task").await?)
    }

    async fn model(&self, ask: ModelAsk) -> Result<ModelAnswer, LinkError> {
        there(self.post("model", &ask, WORK_LIMIT).await?)
    }

    async fn batch(&self, batch: ToolBatch) -> Result<BatchAnswer, LinkError> {
        there(self.post("batch", &batch, WORK_LIMIT).await?)
    }

    async fn order(&self, after: u64) -> Result<Option<ToolOrder>, LinkError> {
        self.get(&format!("order?after={after}")).await
    }

    async fn done(&self, done: ToolDone) -> Result<(), LinkError> {
        self.post::<()>("done", &done, ANSWER_LIMIT).await.map(drop)
    }

    async fn finish(&self, end: WorkerEnd) -> Result<(), LinkError> {
        self.post::<()>("finish", &end, ANSWER_LIMIT).await.map(drop)
    }
}
