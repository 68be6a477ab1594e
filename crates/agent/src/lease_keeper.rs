//! Keeps the leases of a node: claims the works that no other node does, and gives them up at the end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{BootId, HeldLeases, Hints, LeaseBook, LeasedWork, NodeState, Topic, WorkLease, WorkLeases};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Interval of the claims while a work is done by another node, or by none.
const CLAIM_EVERY: Duration = Duration::from_secs(1);
/// Time for which a work that a part has given up is left to other nodes.
const SET_ASIDE: Duration = Duration::from_secs(30);
/// Time limit at the end for giving up all leases. What is not given up ends with the node.
const END_LIMIT: Duration = Duration::from_secs(3);

/// Claims leases for a node, and publishes those that it holds as [`HeldLeases`].
pub struct LeaseKeeper {
    claims: Claims,
    state: watch::Receiver<NodeState>,
    requests: mpsc::Receiver<WorkLease>,
}

/// The claims of a node, and their result.
struct Claims {
    leases: Arc<dyn WorkLeases>,
    boot: BootId,
    works: Vec<LeasedWork>,
    /// Changes when nodes have ended or released work.
    nodes: watch::Receiver<u64>,
    held: watch::Sender<Vec<WorkLease>>,
    /// Works that are not claimed before this time.
    set_aside: HashMap<LeasedWork, Instant>,
    /// Leases that this node must give up in the store.
    unwanted: Vec<WorkLease>,
}

impl LeaseKeeper {
    /// Creates a keeper that has claimed nothing yet, and its leases. `works`: what the node can do. `state`: whether it
    /// may.
    pub fn new(
        leases: Arc<dyn WorkLeases>,
        boot: BootId,
        works: Vec<LeasedWork>,
        state: watch::Receiver<NodeState>,
        hints: &dyn Hints,
    ) -> (Self, HeldLeases) {
        let (leases_of_node, LeaseBook { held, requests }) = HeldLeases::new();
        let (set_aside, unwanted) = (HashMap::new(), Vec::new());
        let nodes = hints.changes(Topic::Nodes);
        let claims = Claims { leases, boot, works, nodes, held, set_aside, unwanted };
        (Self { claims, state, requests }, leases_of_node)
    }

    /// Keeps the leases until `stop` is cancelled, and gives them up then: cancel it after the last delivery. While the
    /// node is not a member, it holds none.
    ///
    /// # Cancel safety
    /// If the future is dropped midway, this node holds no lease any more, and the store ends its leases with the node.
    pub async fn work(mut self, stop: CancellationToken) {
        loop {
            let is_member = *self.state.borrow_and_update() == NodeState::Member;
            if !is_member {
                self.claims.drop_all();
            }
            tokio::select! {
                biased; // the end of the node first
                () = stop.cancelled() => break,
                changed = self.state.changed() => if changed.is_err() {
                    tracing::error!("nothing knows the state of this node any more; it holds no leases");
                    self.claims.drop_all();
                    return stop.cancelled().await;
                },
                Some(lease) = self.requests.recv() => self.claims.set_aside(lease),
                () = self.claims.claim_and_wait(), if is_member => {}
            }
        }
        if timeout(END_LIMIT, self.claims.give_up_all()).await.is_err() {
            tracing::warn!("the leases of this node could not be given up in time; they end with the node");
        }
    }
}

impl Claims {
    /// Gives up unwanted leases, claims what is missing, and waits until there may be more to claim.
    ///
    /// # Cancel safety
    /// If it is dropped in the middle of a claim, the node may have a lease that it does not use; the next claim of the
    /// work returns it.
    async fn claim_and_wait(&mut self) {
        self.nodes.mark_unchanged();
        self.give_up_unwanted().await;
        let now = Instant::now();
        self.set_aside.retain(|_, until| *until > now);
        let mut is_complete = self.unwanted.is_empty();
        for work in &self.works {
            if self.held.borrow().iter().any(|lease| lease.work == *work) {
                continue;
            }
            is_complete = false;
            if self.set_aside.contains_key(work) {
                continue;
            }
            match self.leases.claim(work, self.boot).await {
                Ok(Some(lease)) => {
                    tracing::info!(%work, epoch = lease.epoch, "this node does this work now");
                    self.held.send_modify(|held| held.push(lease));
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%work, %error, "a work could not be claimed; it is tried again"),
            }
        }
        if is_complete {
            return std::future::pending().await;
        }
        tokio::select! {
            Ok(()) = self.nodes.changed() => {}
            () = sleep(CLAIM_EVERY) => {}
        }
    }

    async fn give_up_unwanted(&mut self) {
        while let Some(lease) = self.unwanted.last() {
            if let Err(error) = self.leases.give_up(lease).await {
                tracing::warn!(work = %lease.work, %error, "a lease could not be given up; it is tried again");
                return;
            }
            self.unwanted.pop();
        }
    }

    /// Leaves a work to other nodes for a while.
    fn set_aside(&mut self, lease: WorkLease) {
        if !self.held.borrow().contains(&lease) {
            return;
        }
        tracing::info!(work = %lease.work, "this node leaves this work to others for a while");
        self.held.send_modify(|held| held.retain(|other| *other != lease));
        self.set_aside.insert(lease.work.clone(), Instant::now() + SET_ASIDE);
        self.unwanted.push(lease);
    }

    /// Stops all work. The store still has the leases, because it may be out of reach.
    fn drop_all(&mut self) {
        self.held.send_if_modified(|held| {
            if !held.is_empty() {
                tracing::warn!("this node is cut off from the others; it stops the work that one node does at a time");
            }
            !std::mem::take(held).is_empty()
        });
    }

    async fn give_up_all(&mut self) {
        self.unwanted.extend(self.held.send_replace(Vec::new()));
        self.give_up_unwanted().await;
    }
}
