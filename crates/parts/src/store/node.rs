//! This daemon as a node of a cluster: its lease, its clock, the work that it does alone, and its end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use belay_agent::{ClusterServices, LeaseKeeper, LeasedDelivery};
use belay_gateway::ClusterView;
use belay_program::VERSION;
use belay_program::clock::SystemClock;
use belay_program::exit::{Exit, Failure};
use belay_protocol::{
    BootId, BudgetSlices, Clock, ClusterStore, ClusterTask, HeldLeases, Hints, LeasedWork, NodeState, StoreError,
    Topic, UnixMillis,
};
use belay_settings::Settings;
use belay_store::lease::{LEASE, NewNode, NodeLease};
use belay_store::{OpenError, PostgresUrl, SqlStore};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::CLOSE_LIMIT;
use super::shared_workspace;
use super::waiting::{Attempt, NotStarted, attempted};
use crate::process_needs::IsMember;

/// The time between two looks for nodes whose lease is over.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// The difference of clocks that is not corrected, in milliseconds. A smaller one may be the time of a round trip.
const OFFSET_MIN_MS: i64 = 500;

/// A registered node.
pub struct Node {
    boot: BootId,
    lease: NodeLease,
    store: SqlStore,
}

impl Node {
    /// Registers this daemon among the nodes. After a crash, it waits for the end of the earlier start's lease.
    ///
    /// # Errors
    /// A living node has the same name after the time of a lease (75), or another schema (78); the database is away; `stop`
    /// is cancelled. The node is not registered then.
    pub(super) async fn register(
        url: PostgresUrl,
        store: SqlStore,
        boot: BootId,
        settings: &Settings,
        stop: &CancellationToken,
    ) -> Result<Self, Attempt> {
        let name = settings.cluster.name();
        let node = NewNode { boot, name: name.clone(), version: VERSION.into(), settings: shared(settings)? };
        let until = Instant::now() + LEASE + SWEEP_EVERY;
        let lease = loop {
            let (url, node) = (url.clone(), node.clone());
            let mut attempt = tokio::task::spawn_blocking(move || NodeLease::register(&url, node));
            let Some(registered) = stop.run_until_cancelled(&mut attempt).await else {
                // One that is confirmed later ends with its lease.
                if let Ok(Ok(Ok(lease))) = timeout(CLOSE_LIMIT, attempt).await {
                    Self { boot, lease, store }.release(CLOSE_LIMIT).await;
                }
                return Err(NotStarted::Stopped.into());
            };
            match registered {
                Ok(Ok(lease)) => break lease,
                // After a crash, the node of this name is the earlier start of this one.
                Ok(Err(OpenError::NodeName { seconds, .. })) if Instant::now() < until => {
                    info!(%name, seconds, "a node of this name is registered; waiting for the end of its lease");
                    if stop.run_until_cancelled(sleep(SWEEP_EVERY)).await.is_none() {
                        return Err(NotStarted::Stopped.into());
                    }
                }
                Ok(Err(error)) => return Err(attempted(&error)),
                Err(broken) => {
                    let words = format!("the node could not register: {broken}");
                    return Err(Failure::new(Exit::Internal, words).into());
                }
            }
        };
        info!(%name, %boot, "registered as a node of the cluster");
        for other in lease.differing_settings() {
            warn!(%other, "this node has other settings than that one, and all nodes must share them");
        }
        Ok(Self { boot, lease, store })
    }

    /// Checks that the other nodes see the same workspace.
    ///
    /// # Errors
    /// They do not (78), or the database fails (69).
    pub async fn check_workspace(&self, workspace: &Path) -> Result<(), Failure> {
        let failed = |error: StoreError| Failure::new(Exit::OutOfReach, error);
        let cluster = self.store.cluster_id().await.map_err(failed)?.unwrap_or_default();
        let nodes = self.store.nodes().await.map_err(failed)?;
        let others = nodes.into_iter().filter(|node| node.boot != self.boot && node.ended.is_none());
        shared_workspace::check(workspace, &cluster, &others.map(|node| node.name).collect::<Vec<_>>()).await
    }

    /// The id of this start.
    pub fn boot(&self) -> BootId {
        self.boot
    }

    /// The clock of this machine, corrected by its difference to the clock of the database.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(NodeClock { offset_ms: self.lease.clock_offset() })
    }

    /// What the agent needs beside its store.
    pub fn services(&self) -> ClusterServices {
        ClusterServices {
            hints: Arc::new(self.store.clone()),
            mail: Arc::new(self.store.clone()),
            slices: Arc::new(self.store.clone()),
            orders: Arc::new(self.store.clone()),
            nodes: Arc::new(self.store.clone()),
        }
    }

    /// The leases under which the agent delivers.
    pub fn delivery(&self, held: HeldLeases) -> LeasedDelivery {
        LeasedDelivery { held, committed: self.store.changes(Topic::Outbox) }
    }

    /// What the gateway shows of the cluster.
    pub fn view(&self) -> ClusterView {
        ClusterView {
            boot: self.boot,
            nodes: Arc::new(self.store.clone()),
            leases: Arc::new(self.store.clone()),
            hints: Arc::new(self.store.clone()),
        }
    }

    /// Claims the channels, and the care of the database, of which one node has each at a time.
    pub fn leases(&self, channels: Vec<LeasedWork>) -> (LeaseKeeper, HeldLeases) {
        let works = channels.into_iter().chain([LeasedWork::Task(ClusterTask::Janitor)]).collect();
        LeaseKeeper::new(Arc::new(self.store.clone()), self.boot, works, self.lease.state(), &self.store)
    }

    /// Whether the node may act for its runs, by the clock at the moment of the question.
    pub(super) fn membership(&self) -> IsMember {
        self.lease.membership()
    }

    /// Waits until the node may not begin anything any more.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut state = self.lease.state();
        async move {
            // An error means that the lease has no thread any more, which renews nothing either.
            let _ = state.wait_for(|state| *state != NodeState::Member).await;
        }
    }

    /// Ends nodes whose lease is over, until it is stopped.
    pub fn sweep(&self, stop: CancellationToken) -> impl Future<Output = ()> + Send + use<> {
        let (store, clock) = (self.store.clone(), self.clock());
        async move {
            let mut tick = interval(SWEEP_EVERY);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while stop.run_until_cancelled(tick.tick()).await.is_some() {
                match end_expired(&store, &clock).await {
                    Ok(ended) => {
                        ended.iter().for_each(|boot| warn!(%boot, "the lease of a node is over; its work is free"))
                    }
                    Err(error) => warn!(%error, "the leases of other nodes could not be read; tried again"),
                }
            }
        }
    }

    /// Tells the other nodes that this one accepts no new work, as soon as that is so.
    pub fn announce_drain(&self, mut ready: watch::Receiver<bool>) -> impl Future<Output = ()> + Send + use<> {
        let (store, boot) = (self.store.clone(), self.boot);
        async move {
            // An error means that the agent has ended.
            if ready.wait_for(|ready| *ready).await.is_err() || ready.wait_for(|ready| !ready).await.is_err() {
                return;
            }
            if let Err(error) = store.begin_drain(boot).await {
                warn!(%error, "the drain of this node could not be recorded");
            }
        }
    }

    /// Releases all work of the node: other nodes claim it at once. No process of the node may live any more. What is not
    /// released within `limit` is free when the lease ends.
    pub async fn release(self, limit: Duration) {
        match timeout(limit, self.store.release(self.boot)).await {
            Ok(Ok(())) => info!("the work of this node is released"),
            Ok(Err(error)) => {
                error!(%error, "the work of this node could not be released; it is free when its lease ends")
            }
            Err(_late) => error!("the work of this node could not be released in time; it is free when its lease ends"),
        }
    }
}

/// Ends nodes whose lease is over, and returns the unspent money of all ended nodes to the budgets of the day: the node that
/// has ended another one may have died before it returned the money.
async fn end_expired(store: &SqlStore, clock: &Arc<dyn Clock>) -> Result<Vec<BootId>, StoreError> {
    let ended = store.end_expired().await?;
    store.reconcile(clock.now().utc_day()).await?;
    Ok(ended)
}

/// The digest of the settings that all nodes must share.
fn shared(settings: &Settings) -> Result<String, Failure> {
    let shared = (
        (&settings.limits, &settings.approvals, &settings.sessions, &settings.queue),
        (&settings.routines, &settings.heartbeat, &settings.jobs),
        // The sections that follow these two do not contain them when they are serialised.
        (&settings.agent.timezone, &settings.llm.small_model),
    );
    let bytes = serde_json::to_vec(&shared)
        .map_err(|error| Failure::new(Exit::Internal, format!("the settings cannot be compared: {error}")))?;
    Ok(blake3::hash(&bytes).to_hex()[..16].to_owned())
}

/// The clock of this machine, corrected.
struct NodeClock {
    /// By how much the clock of the database is ahead, in milliseconds.
    offset_ms: watch::Receiver<i64>,
}

impl Clock for NodeClock {
    fn now(&self) -> UnixMillis {
        let offset = *self.offset_ms.borrow();
        let UnixMillis(now) = SystemClock.now();
        UnixMillis(if offset.abs() < OFFSET_MIN_MS { now } else { now.saturating_add(offset) })
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::Draw;

    use super::*;

    #[test]
    fn a_clock_is_corrected_by_the_difference_to_the_clock_of_the_database() {
        for (offset, corrected) in [(0, 0), (499, 0), (-499, 0), (3_600_000, 3_600_000), (-500, -500)] {
            let (_sender, offset_ms) = watch::channel(offset);
            let before = SystemClock.now().0;
            let now = NodeClock { offset_ms }.now().0;
            assert!((before + corrected..=SystemClock.now().0 + corrected).contains(&now), "{offset}");
        }
    }

    #[tokio::test]
    async fn the_money_of_a_dead_node_is_returned_also_if_the_node_that_ended_it_died_before() {
        let store = SqlStore::in_memory().expect("a store in memory");
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let (dead, alive) = (BootId::new(), BootId::new());
        let utc_day = clock.now().utc_day();
        let draw = |boot, need| Draw { utc_day, budget: None, boot, limit: 100, least: need, need, want: need };
        store.put_node(dead, "dead", 0).await.expect("registered");
        store.put_node(alive, "alive", 60_000).await.expect("registered");
        assert_eq!(store.draw(draw(dead, 90)).await.expect("drawn").granted, 90);
        assert_eq!(store.draw(draw(alive, 10)).await.expect("drawn").granted, 10);
        // A third node ends it, and dies before it returns the money.
        assert_eq!(store.end_expired().await.expect("ended"), [dead]);
        assert_eq!(end_expired(&store, &clock).await.expect("looked for"), []);
        assert_eq!(store.draw(draw(alive, 90)).await.expect("drawn").granted, 90);
        assert_eq!(end_expired(&store, &clock).await.expect("looked for"), []);
        assert_eq!(store.draw(draw(alive, 1)).await.expect("refused").granted, 0, "it was returned once");
    }

    #[test]
    fn the_digest_covers_the_limits_and_the_common_settings_and_not_the_name() {
        let mut settings = Settings::default();
        let digest = |settings: &Settings| shared(settings).unwrap_or_default();
        let before = digest(&settings);
        settings.cluster.name = Some("b".into());
        assert_eq!(digest(&settings), before);
        let changes: [fn(&mut Settings); 3] = [
            |settings| settings.limits.usd_per_day = Some(5.0),
            |settings| settings.agent.timezone = Some("Europe/Berlin".into()),
            |settings| settings.llm.small_model = Some("small".into()),
        ];
        let digests = changes.map(|change| {
            let mut changed = settings.clone();
            change(&mut changed);
            digest(&changed)
        });
        assert!(digests.iter().all(|digest| *digest != before), "{digests:?} and {before}");
    }
}
