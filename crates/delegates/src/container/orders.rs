//! Orders: tool calls that the gate has permitted and that the worker executes.
//!
//! Orders are numbered. Each is kept until the worker requests a later one, so that the worker can request a lost
//! answer again. The lock is held only for operations on the maps.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belay_protocol::{Approved, CallId, DoneOutput, ToolDone, ToolOrder, WorkerCommand};
use serde_json::{Map, Value};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

/// Longest wait for an order before the worker requests again. 20 s: far below any limit for requests.
const PATIENCE: Duration = Duration::from_secs(20);

/// The orders of one job. For each concurrent call of the gate there are at most two: the call and its cancellation.
#[derive(Debug, Default)]
pub(super) struct Orders {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    /// The highest number that the worker has received.
    received: u64,
    waiting: BTreeMap<u64, WorkerCommand>,
    open: HashMap<CallId, (u64, oneshot::Sender<DoneOutput>)>,
}

impl State {
    fn push(&mut self, order: WorkerCommand) -> u64 {
        self.last += 1;
        self.waiting.insert(self.last, order);
        self.last
    }
}

/// A call in the hands of the worker. Dropping it cancels the call.
pub(super) struct Placed {
    orders: Arc<Orders>,
    call: CallId,
    number: u64,
    output: oneshot::Receiver<DoneOutput>,
}

impl Orders {
    /// Hands a call to the worker.
    pub(super) fn place(
        self: &Arc<Self>,
        call: CallId,
        tool: String,
        arguments: Map<String, Value>,
        approved: Option<Approved>,
    ) -> Placed {
        let (answer, output) = oneshot::channel();
        let number = {
            let mut state = self.state();
            let number = state.push(WorkerCommand::Run { call: call.clone(), tool, arguments, approved });
            state.open.insert(call.clone(), (number, answer));
            number
        };
        self.news.notify_waiters();
        Placed { orders: self.clone(), call, number, output }
    }

    /// Waits for the first order after this number. Returns `None` after [`PATIENCE`].
    pub(super) async fn next(&self, after: u64) -> Option<ToolOrder> {
        let wait = async {
            loop {
                let news = self.news.notified();
                tokio::pin!(news);
                // The waiter is registered before the check, so that no order is missed in between.
                news.as_mut().enable();
                if let Some(order) = self.first_behind(after) {
                    return order;
                }
                news.await;
            }
        };
        timeout(PATIENCE, wait).await.ok()
    }

    fn first_behind(&self, after: u64) -> Option<ToolOrder> {
        let mut state = self.state();
        state.received = state.received.max(after.min(state.last));
        let received = state.received;
        state.waiting.retain(|number, _| *number > received);
        let (number, order) = state.waiting.first_key_value()?;
        Some(ToolOrder { number: *number, order: order.clone() })
    }

    /// Delivers the result of a call. A result that nobody waits for is dropped.
    pub(super) fn done(&self, done: ToolDone) {
        let open = self.state().open.remove(&done.call);
        if let Some((_, answer)) = open {
            // The receiver may be gone: the gate cancels the call at the same moment.
            let _ = answer.send(done.output);
        }
    }

    fn give_up(&self, call: &CallId, number: u64) {
        {
            let mut state = self.state();
            match state.open.get(call) {
                Some((open, _)) if *open == number => state.open.remove(call),
                _ => return, // the call has its result
            };
            state.waiting.remove(&number);
            // The worker may have received the order without an acknowledgement.
            state.push(WorkerCommand::Cancel { call: call.clone() });
        }
        self.news.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Placed {
    /// Waits for the worker's result. `None`: there will be none.
    pub(super) async fn output(&mut self) -> Option<DoneOutput> {
        (&mut self.output).await.ok()
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        self.orders.give_up(&self.call, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(orders: &Arc<Orders>, call: &str) -> Placed {
        orders.place(call.into(), "read_file".into(), Map::new(), None)
    }

    fn call_of(order: &WorkerCommand) -> String {
        match order {
            WorkerCommand::Run { call, .. } => format!("run {call}"),
            WorkerCommand::Cancel { call } => format!("cancel {call}"),
        }
    }

    async fn next(orders: &Orders, after: u64) -> Option<(u64, String)> {
        orders.next(after).await.map(|order| (order.number, call_of(&order.order)))
    }

    #[tokio::test(start_paused = true)]
    async fn an_order_is_told_until_the_worker_asks_for_the_next() {
        let orders = Arc::new(Orders::default());
        let (_a, _b) = (place(&orders, "a"), place(&orders, "b"));
        for (after, expected) in [(0, Some((1, "run a"))), (0, Some((1, "run a"))), (1, Some((2, "run b"))), (2, None)]
        {
            assert_eq!(next(&orders, after).await, expected.map(|(number, text)| (number, text.to_owned())));
        }
        assert_eq!(next(&orders, 99).await, None, "a number that was never given out hides nothing that comes");
        let _c = place(&orders, "c");
        assert_eq!(next(&orders, 2).await, Some((3, "run c".to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_is_told_when_something_comes() {
        let orders = Arc::new(Orders::default());
        let waiting = orders.clone();
        let waiter = tokio::spawn(async move { next(&waiting, 0).await });
        tokio::task::yield_now().await;
        let _placed = place(&orders, "a");
        assert_eq!(waiter.await.expect("no panic"), Some((1, "run a".to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_reaches_its_call_and_a_second_one_nobody() {
        let orders = Arc::new(Orders::default());
        let mut placed = place(&orders, "a");
        let done = |text: &str| ToolDone { call: "a".into(), output: DoneOutput::Failed { text: text.into() } };
        orders.done(ToolDone { call: "stranger".into(), output: DoneOutput::Cancelled });
        orders.done(done("first"));
        orders.done(done("second"));
        assert_eq!(placed.output().await, Some(DoneOutput::Failed { text: "first".into() }));
        drop(placed);
        assert_eq!(next(&orders, 1).await, None, "what has its answer is not given up");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_is_told_to_the_worker_and_not_run() {
        let orders = Arc::new(Orders::default());
        drop(place(&orders, "a"));
        assert_eq!(next(&orders, 0).await, Some((2, "cancel a".to_owned())));
        assert_eq!(next(&orders, 2).await, None);
    }
}
