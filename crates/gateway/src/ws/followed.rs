//! The followed runs and sessions of one connection. Each has a task that sends the events of a source.

use std::collections::HashMap;
use std::sync::Arc;

use belay_protocol::{RunId, Seq, SessionKey};
use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinSet};

use super::claims::{Claims, Kind};
use super::follow::Follower;
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
    /// The session of the target.
    session: SessionKey,
    follower: u64,
    task: AbortHandle,
    delivered: watch::Receiver<Seq>,
    /// It began after this fact.
    after: Seq,
    /// For a session: its runs that were begun here. Their events come from this follower.
    begun: Vec<RunId>,
}

/// A run that was begun here and has not ended, when its session is not followed any more.
pub(super) struct Uncovered {
    pub(super) run: RunId,
    /// The facts up to this one were sent or not asked for.
    pub(super) after: Seq,
}

/// A follower that may still have events of a run to send: until it has reached that fact, or has ended.
pub(super) struct LaggingFollower {
    delivered: watch::Receiver<Seq>,
    until: Seq,
}

impl LaggingFollower {
    /// Returns when the follower has caught up, at least to this fact.
    pub(super) async fn caught_up(mut self, at_least: Seq) {
        let until = self.until.max(at_least);
        let _ = self.delivered.wait_for(|delivered| *delivered >= until).await; // closed: it has ended
    }
}

impl Followed {
    pub(super) fn new(app: Shared, outgoing: Arc<Outgoing>) -> Self {
        Self { app, outgoing, claims: Arc::default(), all: HashMap::new() }
    }

    /// The number of followed sessions and runs, including the runs that were begun here in a followed session.
    pub(super) fn len(&mut self) -> usize {
        let claims = &self.claims;
        let each = self.all.values_mut().map(|one| {
            one.begun.retain(|run| claims.handled(one.kind, *run).is_some());
            1 + one.begun.len()
        });
        each.sum()
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
        let (delivered, after, session) = (source.delivered(), source.cursor(), source.session().clone());
        let begun = match &target {
            Target::Run(_) => Vec::new(),
            Target::Session(_) => self.hand_over(kind, &session, id),
        };
        let task = tasks.spawn(async move {
            follower.run(kind, source).await;
            end
        });
        self.all.insert(task.id(), One { kind, target, session, follower: id, task, delivered, after, begun });
    }

    /// Ends the followers of runs of this session, and hands their runs to the follower `to` of the session. Two followers
    /// would send live events of the one between past events of the other, and a reader that continues after the last
    /// number would miss some. Returns the runs.
    fn hand_over(&mut self, kind: Kind, session: &SessionKey, to: u64) -> Vec<RunId> {
        let mut handed = Vec::new();
        self.all.retain(|_, one| {
            let Target::Run(run) = one.target else { return true };
            let is_handed =
                one.kind == kind && one.session == *session && self.claims.hand_over(kind, run, one.follower, to);
            if is_handed {
                one.task.abort();
                handed.push(run);
            }
            !is_handed
        });
        handed
    }

    /// Leaves the run that was begun here to the follower of its session; `false`: the session is not followed. A second
    /// follower would send past facts again that the subscription has left out, and a reader that continues after the
    /// last number would miss facts of the slower one.
    pub(super) fn cover(&mut self, kind: Kind, run: RunId, session: &SessionKey) -> bool {
        let covers = |one: &&mut One| one.kind == kind && matches!(&one.target, Target::Session(of) if of == session);
        let Some(one) = self.all.values_mut().find(covers) else { return false };
        if !one.begun.contains(&run) {
            one.begun.push(run);
        }
        true
    }

    /// Stops following the target, if it is followed. Returns the runs begun here that nobody follows now.
    pub(super) fn leave(&mut self, kind: Kind, target: &Target) -> Vec<Uncovered> {
        let is_left = |one: &One| one.kind == kind && one.target == *target;
        let Some(task) = self.all.iter().find(|(_, one)| is_left(one)).map(|(task, _)| *task) else {
            return Vec::new();
        };
        let Some(one) = self.all.remove(&task) else { return Vec::new() };
        one.task.abort();
        self.claims.release(one.follower);
        let uncovered = |run| {
            let handled = self.claims.handled(kind, run)?;
            Some(Uncovered { run, after: handled.max(one.after) })
        };
        one.begun.into_iter().filter_map(uncovered).collect()
    }

    /// Handles the end of a task and returns its target; `None`: the target was [left](Self::leave) before, or the task
    /// followed nothing.
    pub(super) fn ended(&mut self, task: Id) -> Option<Target> {
        let one = self.all.remove(&task)?;
        self.claims.release(one.follower);
        Some(one.target)
    }

    /// The followers of runs of this session that have not sent all facts up to `until`.
    pub(super) fn behind(&self, kind: Kind, session: &SessionKey, until: Seq) -> Vec<LaggingFollower> {
        let of_runs = self
            .all
            .values()
            .filter(|one| one.kind == kind && one.session == *session && matches!(one.target, Target::Run(_)));
        let delivered = of_runs.map(|one| one.delivered.clone()).filter(|delivered| *delivered.borrow() < until);
        delivered.map(|delivered| LaggingFollower { delivered, until }).collect()
    }

    /// The followers that may still have events of an ended run to send. Beside other nodes these are all that follow it:
    /// the tip may lag behind its end.
    pub(super) fn lagging(&self, run: RunId, session: &SessionKey) -> Vec<LaggingFollower> {
        let newest = *self.app.events.tip().borrow();
        let lagging = self.all.values().filter_map(|one| {
            let until = match &one.target {
                Target::Run(of) if *of == run => Seq(u64::MAX), // it ends by itself
                Target::Session(of) if of == session => newest,
                _ => return None,
            };
            let delivered = one.delivered.clone();
            let is_lagging = *delivered.borrow() < until || self.app.cluster.is_some();
            is_lagging.then_some(LaggingFollower { delivered, until })
        });
        lagging.collect()
    }
}
