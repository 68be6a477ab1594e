//! Slots for TCP connections.
//!
//! When all slots are taken, a new connection replaces the one that has been idle for longest. So idle connections,
//! however many, shut nobody out. A connection also counts as idle while the body of an unauthenticated request is
//! still arriving, because slow bodies cost an attacker no credentials. A connection with any other request keeps its
//! slot.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio_util::sync::CancellationToken;

/// All slots.
pub(crate) struct ConnectionSlots(Arc<Shared>);

struct Shared {
    limit: usize,
    /// Locked briefly, never across an await.
    table: Mutex<Table>,
    /// Notified when a slot is free, or its connection has become idle.
    changed: Notify,
}

#[derive(Default)]
struct Table {
    taken: usize,
    /// Connections that were told to close and are still open.
    closing: usize,
    /// Connections that may be closed: those without a request, and those whose request is still arriving. Longest idle
    /// first.
    idle: BTreeMap<u64, CancellationToken>,
    /// The number of the next connection that becomes idle.
    next: u64,
}

impl ConnectionSlots {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Shared { limit, table: Mutex::default(), changed: Notify::new() }))
    }

    /// Takes a slot as soon as there is one: at once, or when the longest idle connection has closed. For one caller at
    /// a time.
    ///
    /// # Cancel safety
    /// A connection that was told to close still closes; its slot is free for the next caller.
    pub(crate) async fn take(&self) -> ConnectionSlot {
        loop {
            if let Some(slot) = self.0.try_take() {
                return ConnectionSlot(Kind::Slot(slot));
            }
            self.0.changed.notified().await; // a change since the last check is remembered
        }
    }
}

impl Shared {
    fn try_take(self: &Arc<Self>) -> Option<Arc<Slot>> {
        let mut table = self.table();
        if table.taken < self.limit {
            table.taken += 1;
            let slot =
                Slot { shared: self.clone(), state: Mutex::default(), close_requested: CancellationToken::new() };
            slot.state().idle = Some(table.add_idle(&slot.close_requested));
            return Some(Arc::new(slot));
        }
        if table.closing == 0
            && let Some((_, oldest)) = table.idle.pop_first()
        {
            table.closing += 1;
            oldest.cancel();
            tracing::debug!("all connections are taken: the oldest idle one is closed");
        }
        None
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn add_idle(&mut self, close_requested: &CancellationToken) -> u64 {
        let number = self.next;
        self.next += 1;
        self.idle.insert(number, close_requested.clone());
        number
    }
}

/// The slot of one connection; dropping it frees the slot.
pub(crate) struct ConnectionSlot(Kind);

enum Kind {
    Slot(Arc<Slot>),
    /// For a listener with trusted callers: kept until the connection ends by itself.
    Permit(#[allow(dead_code, reason = "held")] OwnedSemaphorePermit),
}

struct Slot {
    shared: Arc<Shared>,
    /// Lock order: the table first, then this.
    state: Mutex<SlotState>,
    close_requested: CancellationToken,
}

#[derive(Default)]
struct SlotState {
    /// Requests that have arrived and are not completely answered.
    requests: u32,
    /// The connection's number among the idle ones.
    idle: Option<u64>,
    gone: bool,
}

impl Slot {
    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<OwnedSemaphorePermit> for ConnectionSlot {
    fn from(permit: OwnedSemaphorePermit) -> Self {
        Self(Kind::Permit(permit))
    }
}

impl ConnectionSlot {
    /// Returns when the connection has to close. Cancel safe.
    pub(crate) fn close_requested(&self) -> impl Future<Output = ()> + use<> {
        let token = match &self.0 {
            Kind::Slot(slot) => Some(slot.close_requested.clone()),
            Kind::Permit(_) => None,
        };
        async move {
            match token {
                Some(token) => token.cancelled_owned().await,
                None => std::future::pending().await,
            }
        }
    }

    /// Returns the handle that marks the beginning of requests.
    pub(crate) fn requests(&self) -> Requests {
        Requests(match &self.0 {
            Kind::Slot(slot) => Some(slot.clone()),
            Kind::Permit(_) => None,
        })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let Kind::Slot(slot) = &self.0 else { return };
        let mut table = slot.shared.table();
        let mut state = slot.state();
        state.gone = true;
        table.taken -= 1;
        if let Some(number) = state.idle.take() {
            table.idle.remove(&number);
        }
        if slot.close_requested.is_cancelled() {
            table.closing -= 1;
        }
        slot.shared.changed.notify_one();
    }
}

/// Marks the requests of a connection.
#[derive(Clone)]
pub(crate) struct Requests(Option<Arc<Slot>>);

impl Requests {
    /// Begins a request. Until it is [secured](Arrival::secure), its connection may be closed; after that, not until
    /// the answer is dropped. A request without a body is `whole` and secured at once. `None`: the connection was told
    /// to close, so the request must not be handled.
    pub(crate) fn begin(&self, whole: bool) -> Option<Request> {
        if let Some(slot) = &self.0 {
            let mut table = slot.shared.table();
            if slot.close_requested.is_cancelled() {
                return None;
            }
            slot.state().move_back(&mut table, &slot.close_requested);
        }
        let arrival = Arrival { slot: self.0.clone(), secured: Arc::default() };
        (!whole || arrival.secure()).then_some(Request(arrival))
    }
}

impl SlotState {
    /// Moves the connection to the end of the idle ones, after activity.
    fn move_back(&mut self, table: &mut Table, close_requested: &CancellationToken) {
        if let Some(number) = self.idle.take() {
            table.idle.remove(&number);
            self.idle = Some(table.add_idle(close_requested));
        }
    }
}

/// A request that is still arriving.
#[derive(Clone)]
pub(crate) struct Arrival {
    slot: Option<Arc<Slot>>,
    /// Set under the lock of the table.
    secured: Arc<AtomicBool>,
}

impl Arrival {
    /// Secures the connection's slot, because the request has arrived completely or its caller is authenticated.
    /// `false`: the connection was told to close before, so the request must not be handled.
    pub(crate) fn secure(&self) -> bool {
        let Some(slot) = &self.slot else { return true };
        let mut table = slot.shared.table();
        if self.secured.load(Ordering::Relaxed) {
            return true;
        }
        if slot.close_requested.is_cancelled() {
            return false;
        }
        self.secured.store(true, Ordering::Relaxed);
        let mut state = slot.state();
        state.requests += 1;
        if let Some(number) = state.idle.take() {
            table.idle.remove(&number);
        }
        true
    }
}

/// A request that is being answered.
pub(crate) struct Request(Arrival);

impl Request {
    /// The handle for securing the request.
    pub(crate) fn arrival(&self) -> Arrival {
        self.0.clone()
    }

    /// Wraps the body of the request. The request is secured when the body has arrived or is read no further.
    pub(crate) fn until_arrived<B>(&self, body: B) -> Body
    where
        B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Send + Unpin + 'static,
    {
        Body::new(Arriving { body, arrival: self.0.clone() })
    }

    /// Wraps the body of the answer. The request ends when the body has been sent.
    pub(crate) fn until_sent(self, body: Body) -> Body {
        Body::new(Sending { body, _request: self })
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let Some(slot) = &self.0.slot else { return };
        let mut table = slot.shared.table();
        let mut state = slot.state();
        if self.0.secured.swap(true, Ordering::Relaxed) {
            state.requests -= 1;
        }
        if state.requests == 0 && !state.gone && !slot.close_requested.is_cancelled() {
            if let Some(number) = state.idle.take() {
                table.idle.remove(&number);
            }
            state.idle = Some(table.add_idle(&slot.close_requested));
            slot.shared.changed.notify_one();
        }
    }
}

struct Arriving<B> {
    body: B,
    arrival: Arrival,
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for Arriving<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let arrived = matches!(polled, Poll::Ready(None)) || (polled.is_ready() && self.body.is_end_stream());
        // Told to close: the connection ends soon, and this reader with it.
        if arrived && !self.arrival.secure() { Poll::Pending } else { polled }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Arriving<B> {
    fn drop(&mut self) {
        self.arrival.secure();
    }
}

struct Sending {
    body: Body,
    _request: Request,
}

impl HttpBody for Sending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn is_close_requested(connection_slot: &ConnectionSlot) -> bool {
        connection_slot.close_requested().now_or_never().is_some()
    }

    /// A request that has arrived.
    fn arrived(connection_slot: &ConnectionSlot) -> Request {
        connection_slot.requests().begin(true).unwrap()
    }

    #[tokio::test]
    async fn the_one_without_a_request_for_longest_goes_and_only_one_at_a_time() {
        let slots = ConnectionSlots::new(3);
        let [first, second, third] = [slots.take().await, slots.take().await, slots.take().await];
        // The first has had a request since: the second has been idle for longest.
        drop(arrived(&first));
        assert!(slots.take().now_or_never().is_none());
        assert!(slots.take().now_or_never().is_none(), "asked again, nobody else is told to go");
        assert_eq!([&first, &second, &third].map(is_close_requested), [false, true, false]);
        assert!(second.requests().begin(true).is_none(), "a request that comes now is not begun");
        drop(second);
        let fourth = slots.take().now_or_never().unwrap();
        assert!(slots.take().now_or_never().is_none());
        assert_eq!([&first, &third, &fourth].map(is_close_requested), [false, true, false]);
    }

    #[tokio::test]
    async fn a_connection_with_a_request_keeps_its_slot_until_its_answer_is_sent() {
        let slots = ConnectionSlots::new(1);
        let busy = slots.take().await;
        let body = arrived(&busy).until_sent(Body::from("answer"));
        assert!(slots.take().now_or_never().is_none());
        assert!(!is_close_requested(&busy));
        drop(body);
        assert!(slots.take().now_or_never().is_none());
        assert!(is_close_requested(&busy));
        drop(busy);
        assert!(slots.take().now_or_never().is_some());
    }

    #[tokio::test]
    async fn an_answer_that_outlives_its_connection_leaves_nothing_behind() {
        let slots = ConnectionSlots::new(1);
        let gone = slots.take().await;
        let request = arrived(&gone);
        drop(gone);
        drop(request);
        assert!(slots.0.table().idle.is_empty());
        assert!(slots.take().now_or_never().is_some());
    }

    #[tokio::test]
    async fn requests_that_are_still_arriving_go_oldest_first_and_those_that_have_arrived_or_are_proven_stay() {
        let slots = ConnectionSlots::new(4);
        let [slow, proven, slower, whole] =
            [slots.take().await, slots.take().await, slots.take().await, slots.take().await];
        let never = || Body::from_stream(futures_util::stream::pending::<Result<&str, std::io::Error>>());
        let [first, second, third, fourth] =
            [&slow, &proven, &slower, &whole].map(|it| it.requests().begin(false).unwrap());
        let bodies = [first.until_arrived(never()), second.until_arrived(never()), third.until_arrived(never())];
        assert!(second.arrival().secure());
        let read = axum::body::to_bytes(fourth.until_arrived(Body::from("whole")), 10).await.unwrap();
        assert_eq!(read, "whole");

        assert!(slots.take().now_or_never().is_none());
        assert_eq!([&slow, &proven, &slower, &whole].map(is_close_requested), [true, false, false, false]);
        assert!(!first.arrival().secure(), "told to go, nothing of it may be done");
        drop((slow, first));
        let fifth = slots.take().now_or_never().unwrap();
        let _request = arrived(&fifth);
        assert!(slots.take().now_or_never().is_none());
        assert_eq!([&proven, &slower, &whole, &fifth].map(is_close_requested), [false, true, false, false]);
        drop((slower, bodies));
        assert!(slots.take().now_or_never().is_some());
        drop((second, third, fourth));
    }
}
