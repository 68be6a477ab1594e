//! The host's end of the link of one job: forwards the worker's requests to the job host, one at a time.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{
    BatchAnswer, LinkError, ModelAnswer, ModelAsk, ToolBatch, ToolDone, ToolOrder, WorkerEnd, WorkerLink, WorkerTask,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::orders::Orders;
use belay_run::deadlines::Deadline;

/// Requests that wait for the job host. 4: a worker makes one at a time. When it is full, the sender waits.
const REQUESTS: usize = 4;

/// A request to the job host, with the sender for its answer.
pub(super) enum Request {
    Model(ModelAsk, oneshot::Sender<ModelAnswer>),
    Batch(ToolBatch, oneshot::Sender<BatchAnswer>),
    Finish(WorkerEnd, oneshot::Sender<()>),
}

/// The session of one job with its worker.
pub(super) struct WorkerSession {
    task: WorkerTask,
    deadline: Deadline,
    requests: mpsc::Sender<Request>,
    orders: Arc<Orders>,
}

impl WorkerSession {
    /// Makes a session, and the receiver of its requests.
    pub(super) fn new(task: WorkerTask, deadline: Deadline, orders: Arc<Orders>) -> (Self, mpsc::Receiver<Request>) {
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
        let left = self.deadline.instant().saturating_duration_since(Instant::now());
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
