//! The leases that this node holds now: what its parts see of them, and the end that keeps them.

use tokio::sync::{mpsc, watch};

use crate::cluster::{LeasedWork, WorkLease};

/// Capacity for requests to give up a lease: more than a node has channels. A request beyond it is dropped; its part asks
/// again.
const REQUESTS: usize = 64;

/// The leases that this node holds now, for the parts that do the work. Clones share them.
///
/// The node holds no lease any more when the keeper of the leases has ended.
#[derive(Clone, Debug)]
pub struct HeldLeases {
    held: watch::Receiver<Vec<WorkLease>>,
    requests: mpsc::Sender<WorkLease>,
}

/// The end of [`HeldLeases`] that the keeper of the leases has.
#[derive(Debug)]
pub struct LeaseBook {
    /// The leases. A lease that is claimed again has another epoch, or was absent in between.
    pub held: watch::Sender<Vec<WorkLease>>,
    /// Leases that parts want to give up for a while.
    pub requests: mpsc::Receiver<WorkLease>,
}

impl HeldLeases {
    /// No leases, and the end that changes them.
    pub fn new() -> (Self, LeaseBook) {
        let (book, held) = watch::channel(Vec::new());
        let (requests, wanted) = mpsc::channel(REQUESTS);
        (Self { held, requests }, LeaseBook { held: book, requests: wanted })
    }

    /// The leases.
    pub fn now(&self) -> Vec<WorkLease> {
        if self.held.has_changed().is_err() { Vec::new() } else { self.held.borrow().clone() }
    }

    /// The lease of a work.
    pub fn of(&self, work: &LeasedWork) -> Option<WorkLease> {
        self.now().into_iter().find(|lease| lease.work == *work)
    }

    /// Waits until the leases change, since the last call of this function or of [`HeldLeases::mark_seen`]. It never
    /// returns after the keeper's end was seen.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn changed(&mut self) {
        if self.held.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The leases, as of which [`HeldLeases::changed`] waits.
    pub fn mark_seen(&mut self) -> Vec<WorkLease> {
        self.held.mark_unchanged();
        self.now()
    }

    /// Waits for the lease of a work.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn obtained(&mut self, work: &LeasedWork) -> WorkLease {
        loop {
            let held = self.mark_seen();
            if let Some(lease) = held.into_iter().find(|lease| lease.work == *work) {
                return lease;
            }
            self.changed().await;
        }
    }

    /// Waits until a lease is not held any more, also by the end of the keeper.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn lost(&mut self, lease: &WorkLease) {
        // An error: the keeper has ended.
        let _ended = self.held.wait_for(|held| !held.contains(lease)).await;
    }

    /// Asks the keeper to give up a lease for a while, so that another node may try. The lease is held until it is absent.
    pub fn give_up(&self, lease: &WorkLease) {
        // Full or closed: the caller asks again, or the keeper has given up all leases.
        let _dropped = self.requests.try_send(lease.clone());
    }
}
