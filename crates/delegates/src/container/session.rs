//! The host's end of one job's link: takes what the worker asks for to whoever can answer it, one request at a time.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{
    BatchAnswer, LinkError, ModelAnswer, ModelAsk, ToolBatch, ToolDone, ToolOrder, WorkerEnd, WorkerLink, WorkerTask,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::orders::Orders;

/// Requests that wait for the clerk. 4: a worker has one at a time; whoever sends more waits.
const REQUESTS: usize = 4;

/// What the clerk is asked for, and where the answer goes.
pub(super) enum Request {
    Model(ModelAsk, oneshot::Sender<ModelAnswer>),
    Batch(ToolBatch, oneshot::Sender<BatchAnswer>),
    Finish(WorkerEnd, oneshot::Sender<()>),
}

/// The session of one job with its worker.
pub(super) struct WorkerSession {
    task: WorkerTask,
    deadline: Instant,
    requests: mpsc::Sender<Request>,
    orders: Arc<Orders>,
}

impl WorkerSession {
    /// A session, and the requests that come in through it.
    pub(super) fn new(task: WorkerTask, deadline: Instant, orders: Arc<Orders>) -> (Self, mpsc::Receiver<Request>) {
        let (requests, incoming) = mpsc::channel(REQUESTS);
        (Self { task, deadline, requests, orders }, incoming)
    }

    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Result<T, LinkError> {
        let (answer, waiting) = oneshot::channel();
        self.requests.send(request(answer)).await.map_err(|_| LinkError::Over)?;
        waiting.await.map_err(|_| LinkError::Over)
    }
}

#[async_trait]
impl WorkerLink for WorkerSession {
    async fn task(&self) -> Result<WorkerTask, LinkError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        Ok(WorkerTask { time_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX), ..self.task.clone() })
    }

    async fn model(&self, ask: ModelAsk) -> Result<ModelAnswer, LinkError> {
        self.ask(|answer| Request::Model(ask, answer)).await
    }

    async fn batch(&self, batch: ToolBatch) -> Result<BatchAnswer, LinkError> {
        self.ask(|answer| Request::Batch(batch, answer)).await
    }

    async fn order(&self, after: u64) -> Result<Option<ToolOrder>, LinkError> {
        tokio::select! {
            () = self.requests.closed() => Err(LinkError::Over),
            order = self.orders.next(after) => Ok(order),
        }
    }

    async fn done(&self, done: ToolDone) -> Result<(), LinkError> {
        self.orders.done(done);
        Ok(())
    }

    async fn finish(&self, end: WorkerEnd) -> Result<(), LinkError> {
        self.ask(|answer| Request::Finish(end, answer)).await
    }
}
