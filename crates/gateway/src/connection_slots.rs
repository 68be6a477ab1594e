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
    going: usize,
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
            if let Some(seat) = self.0.try_take() {
                return ConnectionSlot(Kind::Seat(seat));
            }
            self.0.changed.notified().await; // a change since the last check is remembered
        }
    }
}

impl Shared {
    fn try_take(self: &Arc<Self>) -> Option<Arc<Seat>> {
        let mut table = self.table();
        if table.taken < self.limit {
            table.taken += 1;
            let seat = Seat { shared: self.clone(), state: Mutex::default(), told_to_go: CancellationToken::new() };
            seat.state().idle = Some(table.add_idle(&seat.told_to_go));
            return Some(Arc::new(seat));
        }
        if table.going == 0
            && let Some((_, oldest)) = table.idle.pop_first()
        {
            table.going += 1;
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
    fn add_idle(&mut self, told_to_go: &CancellationToken) -> u64 {
        let number = self.next;
        self.next += 1;
        self.idle.insert(number, told_to_go.clone());
        number
    }
}

/// The slot of one connection; dropping it frees the slot.
pub(crate) struct ConnectionSlot(Kind);

enum Kind {
    Seat(Arc<Seat>),
    /// For a listener with trusted callers: kept until the connection ends by itself.
    Permit(#[allow(dead_code, reason = "held")] OwnedSemaphorePermit),
}

struct Seat {
    shared: Arc<Shared>,
    /// Lock order: the table first, then this.
    state: Mutex<SeatState>,
    told_to_go: CancellationToken,
}

#[derive(Default)]
struct SeatState {
    /// Requests that have arrived and are not completely answered.
    requests: u32,
    /// The connection's number among the idle ones.
    idle: Option<u64>,
    gone: bool,
}

impl Seat {
    fn state(&self) -> MutexGuard<'_, SeatState> {
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
    pub(crate) fn told_to_go(&self) -> impl Future<Output = ()> + use<> {
        let token = match &self.0 {
            Kind::Seat(seat) => Some(seat.told_to_go.clone()),
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
            Kind::Seat(seat) => Some(seat.clone()),
            Kind::Permit(_) => None,
        })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let Kind::Seat(seat) = &self.0 else { return };
        let mut table = seat.shared.table();
        let mut state = seat.state();
        state.gone = true;
        table.taken -= 1;
        if let Some(number) = state.idle.take() {
            table.idle.remove(&number);
        }
        if seat.told_to_go.is_cancelled() {
            table.going -= 1;
        }
        seat.shared.changed.notify_one();
    }
}

/// Marks the requests of a connection.
#[derive(Clone)]
pub(crate) struct Requests(Option<Arc<Seat>>);

impl Requests {
    /// Begins a request. Until it is [secured](Arrival::secure), its connection may be closed; after that, not until
    /// the answer is dropped. A request without a body is `whole` and secured at once. `None`: the connection was told
    /// to close, so the request must not be handled.
    pub(crate) fn begin(&self, whole: bool) -> Option<Request> {
        if let Some(seat) = &self.0 {
            let mut table = seat.shared.table();
            if seat.told_to_go.is_cancelled() {
                return None;
            }
            seat.state().move_back(&mut table, &seat.told_to_go);
        }
        let arrival = Arrival { seat: self.0.clone(), secured: Arc::default() };
        (!whole || arrival.secure()).then_some(Request(arrival))
    }
}

impl SeatState {
    /// Moves the connection to the end of the idle ones, after activity.
    fn move_back(&mut self, table: &mut Table, told_to_go: &CancellationToken) {
        if let Some(number) = self.idle.take() {
            table.idle.remove(&number);
            self.idle = Some(table.add_idle(told_to_go));
        }
    }
}

/// A request that is still arriving.
#[derive(Clone)]
pub(crate) struct Arrival {
    seat: Option<Arc<Seat>>,
    /// Set under the lock of the table.
    secured: Arc<AtomicBool>,
}

impl Arrival {
    /// Secures the connection's slot, because the request has arrived completely or its caller is authenticated.
    /// `false`: the connection was told to close before, so the request must not be handled.
    pub(crate) fn secure(&self) -> bool {
        let Some(seat) = &self.seat else { return true };
        let mut table = seat.shared.table();
        if self.secured.load(Ordering::Relaxed) {
            return true;
        }
        if seat.told_to_go.is_cancelled() {
            return false;
        }
        self.secured.store(true, Ordering::Relaxed);
        let mut state = seat.state();
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
        let Some(seat) = &self.0.seat else { return };
        let mut table = seat.shared.table();
        let mut state = seat.state();
        if self.0.secured.swap(true, Ordering::Relaxed) {
            state.requests -= 1;
        }
        if state.requests == 0 && !state.gone && !seat.told_to_go.is_cancelled() {
            if let Some(number) = state.idle.take() {
                table.idle.remove(&number);
            }
            state.idle = Some(table.add_idle(&seat.told_to_go));
            seat.shared.changed.notify_one();
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

    fn is_told(place: &ConnectionSlot) -> bool {
        place.told_to_go().now_or_never().is_some()
    }

    /// A request that has arrived.
    fn arrived(place: &ConnectionSlot) -> Request {
        place.requests().begin(true).unwrap()
    }

    #[tokio::test]
    async fn the_one_without_a_request_for_longest_goes_and_only_one_at_a_time() {
        let places = ConnectionSlots::new(3);
        let [first, second, third] = [places.take().await, places.take().await, places.take().await];
        // The first has had a request since: the second has been idle for longest.
        drop(arrived(&first));
        assert!(places.take().now_or_never().is_none());
        assert!(places.take().now_or_never().is_none(), "asked again, nobody else is told to go");
        assert_eq!([&first, &second, &third].map(is_told), [false, true, false]);
        assert!(second.requests().begin(true).is_none(), "a request that comes now is not begun");
        drop(second);
        let fourth = places.take().now_or_never().unwrap();
        assert!(places.take().now_or_never().is_none());
        assert_eq!([&first, &third, &fourth].map(is_told), [false, true, false]);
    }

    #[tokio::test]
    async fn a_connection_with_a_request_keeps_its_place_until_its_answer_is_sent() {
        let places = ConnectionSlots::new(1);
        let busy = places.take().await;
        let body = arrived(&busy).until_sent(Body::from("answer"));
        assert!(places.take().now_or_never().is_none());
        assert!(!is_told(&busy));
        drop(body);
        assert!(places.take().now_or_never().is_none());
        assert!(is_told(&busy));
        drop(busy);
        assert!(places.take().now_or_never().is_some());
    }

    #[tokio::test]
    async fn an_answer_that_outlives_its_connection_leaves_nothing_behind() {
        let places = ConnectionSlots::new(1);
        let gone = places.take().await;
        let request = arrived(&gone);
        drop(gone);
        drop(request);
        assert!(places.0.table().idle.is_empty());
        assert!(places.take().now_or_never().is_some());
    }

    #[tokio::test]
    async fn requests_that_are_still_arriving_go_oldest_first_and_those_that_have_arrived_or_are_proven_stay() {
        let places = ConnectionSlots::new(4);
        let [slow, proven, slower, whole] =
            [places.take().await, places.take().await, places.take().await, places.take().await];
        let never = || Body::from_stream(futures_util::stream::pending::<Result<&str, std::io::Error>>());
        let [first, second, third, fourth] =
            [&slow, &proven, &slower, &whole].map(|it| it.requests().begin(false).unwrap());
        let bodies = [first.until_arrived(never()), second.until_arrived(never()), third.until_arrived(never())];
        assert!(second.arrival().secure());
        let read = axum::body::to_bytes(fourth.until_arrived(Body::from("whole")), 10).await.unwrap();
        assert_eq!(read, "whole");

        assert!(places.take().now_or_never().is_none());
        assert_eq!([&slow, &proven, &slower, &whole].map(is_told), [true, false, false, false]);
        assert!(!first.arrival().secure(), "told to go, nothing of it may be done");
        drop((slow, first));
        let fifth = places.take().now_or_never().unwrap();
        let _request = arrived(&fifth);
        assert!(places.take().now_or_never().is_none());
        assert_eq!([&proven, &slower, &whole, &fifth].map(is_told), [false, true, false, false]);
        drop((slower, bodies));
        assert!(places.take().now_or_never().is_some());
        drop((second, third, fourth));
    }
}
