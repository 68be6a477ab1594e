//! A node of a cluster: it sends only for the channels whose leases it holds, and keeps those leases.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use belay_agent::{LeaseKeeper, LeasedDelivery};
use belay_protocol::store::{Hints, WorkLeases};
use belay_protocol::{
    BootId, Channel, ChannelError, ChannelId, ClusterTask, DeliverError, EventKind, EventLog, EventQuery, HeldLeases,
    InboundStream, LeaseBook, LeasedWork, NodeState, Outbound, Outbox, ReplyRoute, StoreError, Topic, WorkLease,
};
use belay_store::SqlStore;
use belay_testkit::faulty::{Fault, Faulty, StoreOp};
use belay_testkit::scripted_model::ScriptedModel;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::support::{Running, Setup, ports};

/// A channel whose first delivery never ends.
struct Stuck {
    id: ChannelId,
    /// The begun deliveries, and the number of those that were dropped.
    seen: watch::Sender<(Vec<String>, usize)>,
}

/// Counts a dropped delivery.
struct Dropped<'a>(&'a Stuck);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.seen.send_modify(|(_, dropped)| *dropped += 1);
    }
}

impl Stuck {
    fn new() -> Arc<Self> {
        Arc::new(Self { id: "stuck".into(), seen: watch::Sender::default() })
    }

    /// Waits until so many deliveries have begun and ended early.
    async fn until(&self, begun: usize, dropped: usize) {
        let mut seen = self.seen.subscribe();
        seen.wait_for(|(texts, count)| (texts.len(), *count) == (begun, dropped)).await.expect("it lives");
    }
}

#[async_trait]
impl Channel for Stuck {
    fn id(&self) -> &ChannelId {
        &self.id
    }

    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError> {
        use futures_util::{StreamExt, stream};
        Ok(stream::pending().take_until(intake.cancelled_owned()).boxed())
    }

    async fn deliver(&self, message: &Outbound) -> Result<(), DeliverError> {
        self.seen.send_modify(|(texts, _)| texts.push(message.text.clone()));
        if self.seen.borrow().0.len() == 1 {
            let _dropped = Dropped(self);
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// An agent on a node, its store, and the end that decides its leases.
async fn node(channels: Vec<Arc<dyn Channel>>) -> (Running, Faulty<SqlStore>, Arc<SqlStore>, LeaseBook) {
    let sql = Arc::new(SqlStore::in_memory().expect("a store in memory opens"));
    let faulty = Faulty::new(sql.clone());
    let setup = Setup { store: ports(Arc::new(faulty.clone())), ..Setup::new(ScriptedModel::new([])) };
    let (held, book) = HeldLeases::new();
    let committed = watch::channel(0).1;
    let leases = Some(LeasedDelivery { held, committed });
    let agent = setup
        .start_with(|parts| {
            parts.channels.extend(channels);
            parts.leases = leases;
        })
        .await;
    (agent, faulty, sql, book)
}

fn channel(name: &str) -> LeasedWork {
    LeasedWork::Channel(name.into())
}

/// Claims a channel for a new node. No node has a row, so each earlier owner has ended.
async fn claim(sql: &SqlStore, name: &str) -> WorkLease {
    sql.claim(&channel(name), BootId::new()).await.expect("it works").expect("its owner has ended")
}

async fn enqueue(sql: &SqlStore, channel: &str, text: &str) {
    let route = ReplyRoute { channel: channel.into(), conversation: "c".into(), reply_to: None };
    sql.enqueue(Outbound::new(None, route, text.to_owned())).await.expect("it works");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_ends_its_deliveries_and_the_next_holder_settles_them() {
    for is_same_epoch in [false, true] {
        let stuck = Stuck::new();
        let (agent, _faulty, sql, book) = node(vec![stuck.clone()]).await;
        let first = claim(&sql, "stuck").await;
        book.held.send_replace(vec![first.clone()]);
        enqueue(&sql, "stuck", "one").await;
        enqueue(&sql, "stuck", "two").await;
        stuck.until(1, 0).await;
        book.held.send_replace(Vec::new());
        stuck.until(1, 1).await;
        sleep(Duration::from_secs(100)).await;
        assert_eq!(stuck.seen.borrow().0, ["one"], "nothing is sent without the lease");

        let second = if is_same_epoch { first } else { claim(&sql, "stuck").await };
        book.held.send_replace(vec![second]);
        stuck.until(2, 1).await;
        agent.shut_down().await;
        assert_eq!(stuck.seen.borrow().0, ["one", "two"]);
        let events = sql.read(EventQuery::default()).await.expect("readable");
        let outcomes = events.into_iter().filter_map(|event| match event.kind {
            EventKind::Delivered { outcome } => Some(outcome),
            _ => None,
        });
        assert_eq!(outcomes.collect::<Vec<_>>(), ["ambiguous", "sent"], "the same epoch: {is_same_epoch}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delivery_ends_with_its_lease_also_while_the_store_does_not_answer() {
    let stuck = Stuck::new();
    let (agent, faulty, sql, book) = node(vec![stuck.clone()]).await;
    book.held.send_replace(vec![claim(&sql, "stuck").await]);
    enqueue(&sql, "stuck", "one").await;
    stuck.until(1, 0).await;
    faulty.plan().every(StoreOp::Due, Fault::Stall);
    faulty.plan().every(StoreOp::NextDue, Fault::Stall);
    enqueue(&sql, "stuck", "two").await; // the task reads the outbox, and waits
    sleep(Duration::from_secs(100)).await;
    book.held.send_replace(Vec::new());
    stuck.until(1, 1).await;
    agent.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_sends_for_the_channels_that_it_holds() {
    let (mut agent, _faulty, sql, book) = node(Vec::new()).await;
    enqueue(&sql, "two", "of two").await;
    let one = claim(&sql, "one").await;
    book.held.send_replace(vec![one.clone()]);
    enqueue(&sql, "one", "of one").await;
    assert_eq!(agent.one.next().await, "of one");
    book.held.send_replace(vec![one, claim(&sql, "two").await]);
    enqueue(&sql, "two", "of two again").await;
    assert_eq!(agent.two.next().await, "of two");
    assert_eq!(agent.two.next().await, "of two again");

    // The node believes that it has the lease, and another one has claimed it.
    claim(&sql, "one").await;
    enqueue(&sql, "one", "not by this node").await;
    let LeaseBook { held, mut requests } = book;
    assert_eq!(requests.recv().await.map(|lease| lease.work), Some(channel("one")), "the keeper is told");
    drop(held);
    let (one, _two) = agent.shut_down().await;
    drop(one);
    assert_eq!(sql.due(belay_protocol::UnixMillis(i64::MAX), &[], None, 9, 9).await.expect("readable").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_stored_is_shown_only_under_the_lease() {
    let (mut agent, faulty, sql, book) = node(Vec::new()).await;
    let lease = claim(&sql, "one").await;
    faulty.plan().every(StoreOp::Enqueue, Fault::Fail);
    agent.one.text("alice", "/version").await;
    sleep(Duration::from_secs(100)).await;
    book.held.send_replace(vec![lease]);
    agent.one.text("bob", "/version").await;
    let shown = agent.one.next_message().await;
    assert_eq!(&*shown.route.conversation, "bob", "{shown:?}");
    faulty.plan().clear();
    agent.shut_down().await;
}

/// The owners and the epochs of works, in memory.
#[derive(Default)]
struct Book {
    works: Mutex<HashMap<LeasedWork, (Option<BootId>, u64)>>,
    /// Whether the store answers.
    is_away: watch::Sender<bool>,
    hints: watch::Sender<u64>,
}

impl Book {
    fn works(&self) -> MutexGuard<'_, HashMap<LeasedWork, (Option<BootId>, u64)>> {
        self.works.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owner(&self, work: &LeasedWork) -> Option<BootId> {
        self.works().get(work).and_then(|(owner, _)| *owner)
    }

    async fn answer(&self) {
        let _ = self.is_away.subscribe().wait_for(|is_away| !is_away).await;
    }
}

#[async_trait]
impl WorkLeases for Book {
    async fn claim(&self, work: &LeasedWork, boot: BootId) -> Result<Option<WorkLease>, StoreError> {
        self.answer().await;
        let mut works = self.works();
        let (owner, epoch) = works.entry(work.clone()).or_default();
        if owner.is_some_and(|owner| owner != boot) {
            return Ok(None);
        }
        if owner.is_none() {
            (*owner, *epoch) = (Some(boot), *epoch + 1);
        }
        Ok(Some(WorkLease { work: work.clone(), owner: boot, epoch: *epoch }))
    }

    async fn give_up(&self, lease: &WorkLease) -> Result<(), StoreError> {
        self.answer().await;
        if let Some((owner, _)) = self.works().get_mut(&lease.work).filter(|(owner, _)| *owner == Some(lease.owner)) {
            *owner = None;
        }
        Ok(())
    }

    async fn leases(&self) -> Result<Vec<WorkLease>, StoreError> {
        Ok(Vec::new())
    }
}

impl Hints for Book {
    fn changes(&self, _topic: Topic) -> watch::Receiver<u64> {
        self.hints.subscribe()
    }
}

/// A keeper at work.
struct Keeper {
    leases: HeldLeases,
    state: watch::Sender<NodeState>,
    boot: BootId,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Keeper {
    fn start(book: &Arc<Book>, works: &[LeasedWork]) -> Self {
        let (boot, stop) = (BootId::new(), CancellationToken::new());
        let state = watch::Sender::new(NodeState::Member);
        let (keeper, leases) = LeaseKeeper::new(book.clone(), boot, works.to_vec(), state.subscribe(), &**book);
        let task = tokio::spawn(keeper.work(stop.clone()));
        Self { leases, state, boot, stop, task }
    }
}

#[tokio::test(start_paused = true)]
async fn a_keeper_holds_its_leases_while_the_node_is_a_member_and_gives_them_up_at_the_end() {
    let book = Arc::new(Book::default());
    let works = [channel("one"), LeasedWork::Task(ClusterTask::Janitor)];
    let mut keeper = Keeper::start(&book, &works);
    for work in &works {
        assert_eq!(keeper.leases.obtained(work).await.epoch, 1);
    }
    let lease = keeper.leases.obtained(&works[0]).await;
    keeper.state.send_replace(NodeState::Silent);
    keeper.leases.lost(&lease).await;
    assert_eq!((keeper.leases.now(), book.owner(&works[0])), (Vec::new(), Some(keeper.boot)));
    keeper.state.send_replace(NodeState::Member);
    keeper.leases.obtained(&works[0]).await;
    keeper.stop.cancel();
    keeper.task.await.expect("no panic");
    assert_eq!((keeper.leases.now(), works.map(|work| book.owner(&work))), (Vec::new(), [None, None]));
}

#[tokio::test(start_paused = true)]
async fn a_keeper_drops_its_leases_at_once_while_the_store_does_not_answer() {
    let book = Arc::new(Book::default());
    let foreign = channel("foreign");
    let other = BootId::new();
    book.claim(&foreign, other).await.expect("it works");
    for state in [NodeState::Silent, NodeState::Lost] {
        let mut keeper = Keeper::start(&book, &[channel("one"), foreign.clone()]);
        let lease = keeper.leases.obtained(&channel("one")).await;
        book.is_away.send_replace(true);
        sleep(Duration::from_secs(60)).await; // its claim of the foreign work waits
        let begun = Instant::now();
        keeper.state.send_replace(state);
        keeper.leases.lost(&lease).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        keeper.stop.cancel();
        keeper.task.await.expect("no panic");
        book.is_away.send_replace(false);
        book.give_up(&lease).await.expect("it works");
    }
}

#[tokio::test(start_paused = true)]
async fn a_keeper_claims_at_once_when_a_node_has_ended_and_otherwise_each_second() {
    let book = Arc::new(Book::default());
    let work = channel("one");
    for (is_hinted, longest) in [(true, Duration::ZERO), (false, Duration::from_secs(1))] {
        let lease = book.claim(&work, BootId::new()).await.expect("it works").expect("nobody has it");
        let mut keeper = Keeper::start(&book, std::slice::from_ref(&work));
        sleep(Duration::from_millis(10_500)).await;
        assert_eq!(keeper.leases.now(), []);
        book.give_up(&lease).await.expect("it works");
        if is_hinted {
            book.hints.send_modify(|n| *n += 1);
        }
        let begun = Instant::now();
        let own = keeper.leases.obtained(&work).await;
        assert!(begun.elapsed() <= longest && own.epoch == lease.epoch + 1, "{:?}", begun.elapsed());
        keeper.stop.cancel();
        keeper.task.await.expect("no panic");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_a_part_gives_up_is_left_to_others_for_a_while() {
    let book = Arc::new(Book::default());
    let work = channel("one");
    let mut keeper = Keeper::start(&book, std::slice::from_ref(&work));
    let lease = keeper.leases.obtained(&work).await;
    keeper.leases.give_up(&lease);
    keeper.leases.lost(&lease).await;
    let begun = Instant::now();
    let again = keeper.leases.obtained(&work).await;
    assert!((30..=31).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!(again.epoch, 2, "others could have it");
    keeper.stop.cancel();
    keeper.task.await.expect("no panic");
}
