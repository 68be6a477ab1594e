//! The floor: the least work of any daemon that calls a model over HTTP and stores accepted messages durably.
//!
//! It consists of two bare axum hops (from the client to a handler, from the handler to the model server) with bodies
//! of the daemon's sizes, and of two writes of 4 KiB, each synchronised to the disk: one for the message, one for its
//! answer.

use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::http::Connection;
use crate::model;

/// The sizes of the daemon's bodies.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    /// Bytes of a request to the model.
    pub(crate) model_request: usize,
    /// Bytes of an answer to the client.
    pub(crate) answer: usize,
}

struct Hop {
    model: SocketAddr,
    request: Vec<u8>,
    answer: Vec<u8>,
    idle: Mutex<Vec<Connection>>,
}

/// The bare middle hop, on a thread of its own. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct BareHop {
    /// The address of its listener.
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl BareHop {
    /// Starts a hop to `model` with bodies of these sizes.
    pub(crate) fn start(model: SocketAddr, sizes: &Sizes) -> Result<Self> {
        let hop = Hop {
            model,
            request: filled(r#"{"model":"bench","stream":true,"content":"tool:0 "#, sizes.model_request),
            answer: filled(r#"{"status":"completed","reply":"The scripted model has answered. "#, sizes.answer),
            idle: Mutex::default(),
        };
        let router = Router::new().route("/api/v1/messages", post(pass_on)).with_state(Arc::new(hop));
        let (address, stop, thread) = model::serve("bare hop", router)?;
        Ok(Self { address, stop, thread: Some(thread) })
    }
}

impl Drop for BareHop {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // The failing requests have already reported a panic.
            let _ = thread.join();
        }
    }
}

/// JSON that begins with `head` and has `length` bytes, or more if `head` is longer.
fn filled(head: &str, length: usize) -> Vec<u8> {
    let mut body = head.as_bytes().to_vec();
    body.resize(length.max(head.len() + 2) - 2, b'x');
    body.extend_from_slice(br#""}"#);
    body
}

async fn pass_on(State(hop): State<Arc<Hop>>, _body: Bytes) -> Response {
    match ask(&hop).await {
        Ok(()) => ([(CONTENT_TYPE, "application/json")], hop.answer.clone()).into_response(),
        Err(why) => (StatusCode::BAD_GATEWAY, why.to_string()).into_response(),
    }
}

async fn ask(hop: &Hop) -> Result<()> {
    let kept = hop.idle.lock().await.pop();
    let mut connection = match kept {
        Some(connection) => connection,
        None => Connection::open(hop.model).await?,
    };
    connection.post("/v1/chat/completions", &hop.request).await?;
    hop.idle.lock().await.push(connection);
    Ok(())
}

/// Measures two appended and synchronised writes of 4 KiB in `directory`, `times` times.
pub(crate) fn two_syncs(directory: &Path, times: usize) -> Result<Vec<Duration>> {
    let mut file = tempfile::tempfile_in(directory)?;
    let page = [0x5a_u8; 4096];
    let mut samples = Vec::with_capacity(times);
    for _ in 0..times {
        let begin = Instant::now();
        for _ in 0..2 {
            file.write_all(&page)?;
            file.sync_data()?;
        }
        samples.push(begin.elapsed());
    }
    Ok(samples)
}

/// The floor for each number of conversations, and the part of the disk.
#[derive(Debug, Default)]
pub(crate) struct Floor {
    /// Median milliseconds of two synchronised writes.
    pub(crate) sync_ms: f64,
    /// Median milliseconds of the two hops, by number of conversations.
    pub(crate) hops_p50_ms: HashMap<usize, f64>,
    /// The 99th percentile of the two hops, in milliseconds.
    pub(crate) hops_p99_ms: HashMap<usize, f64>,
    /// Messages per second through the two hops, without writes.
    pub(crate) hops_rate: HashMap<usize, f64>,
}
