//! The followed runs and sessions of one connection. Each has a task that sends the events of a source.

use std::collections::HashMap;
use std::sync::Arc;

use belay_protocol::{RunId, Seq, SessionKey};
use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinSet};

use super::follow::{Claims, Follower, Kind};
use super::outgoing::Outgoing;
use crate::app::Shared;
use crate::streams::{Source, Target};

/// All followed runs and sessions.
pub(super) struct Followed {
    app: Shared,
    outgoing: Arc<Outgoing>,
    claims: Arc<Claims>,
    all: HashMap<Id, One>,
}

/// One followed run or session.
struct One {
    kind: Kind,
    target: Target,
    follower: u64,
    task: AbortHandle,
    delivered: watch::Receiver<Seq>,
}

/// A follower that may still have events of a run to send: until it has reached that fact, or has ended.
pub(super) struct LaggingFollower {
    delivered: watch::Receiver<Seq>,
    until: Seq,
}

impl LaggingFollower {
    /// Returns when the follower has caught up.
    pub(super) async fn caught_up(mut self) {
        let _ = self.delivered.wait_for(|delivered| *delivered >= self.until).await; // closed: it has ended
    }
}

impl Followed {
    pub(super) fn new(app: Shared, outgoing: Arc<Outgoing>) -> Self {
        Self { app, outgoing, claims: Arc::default(), all: HashMap::new() }
    }

    /// The number of followed runs and sessions.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether the target is followed already.
    pub(super) fn has(&self, kind: Kind, target: &Target) -> bool {
        self.all.values().any(|one| one.kind == kind && one.target == *target)
    }

    /// Starts a task in this set that follows a source. The task returns `end` when the source has ended.
    pub(super) fn begin<E: Send + 'static>(
        &mut self,
        kind: Kind,
        target: Target,
        source: Source,
        tasks: &mut JoinSet<E>,
        end: E,
    ) {
        let id = self.claims.next_follower();
        let follower =
            Follower { id, app: self.app.clone(), claims: self.claims.clone(), outgoing: self.outgoing.clone() };
        let delivered = source.delivered();
        let task = tasks.spawn(async move {
            follower.run(kind, source).await;
            end
        });
        self.all.insert(task.id(), One { kind, target, follower: id, task, delivered });
    }

    /// Stops following the target, if it is followed.
    pub(super) fn leave(&mut self, kind: Kind, target: &Target) {
        let claims = &self.claims;
        self.all.retain(|_, one| {
            let goes = one.kind == kind && one.target == *target;
            if goes {
                one.task.abort();
                claims.release(one.follower);
            }
            !goes
        });
    }

    /// Handles the end of a task and returns its target; `None`: the target was [left](Self::leave) before, or the task
    /// followed nothing.
    pub(super) fn ended(&mut self, task: Id) -> Option<Target> {
        let one = self.all.remove(&task)?;
        self.claims.release(one.follower);
        Some(one.target)
    }

    /// The followers that may still have events of an ended run to send.
    pub(super) fn lagging(&self, run: RunId, session: &SessionKey) -> Vec<LaggingFollower> {
        let newest = *self.app.events.tip().borrow();
        let lagging = self.all.values().filter_map(|one| {
            let until = match &one.target {
                Target::Run(of) if *of == run => Seq(u64::MAX), // it ends by itself
                Target::Session(of) if of == session => newest,
                _ => return None,
            };
            let delivered = one.delivered.clone();
            let is_lagging = *delivered.borrow() < until;
            is_lagging.then_some(LaggingFollower { delivered, until })
        });
        lagging.collect()
    }
}
