//! The parts that a run gives to its child runs. A child shares the account of its parent and stops with it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use belay_agent_loop::LoopContext;
use belay_agent_loop::policies::StopRules;
use belay_protocol::AskedIn;
use belay_protocol::Purpose;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{OwnTime, RunClock, RunCore, RunTree, WorkItem};
use crate::approvals::Answers;
use crate::deadlines::{Deadline, Deadlines, WaitClock};
use crate::journal::JournalSeed;
use crate::live::LiveRun;
use crate::prompt::Briefing;
use crate::request::RunRequest;
use crate::services::RunServices;
use crate::tally::Tally;

/// The parts of a run from which its child runs are made. Clones share the account and the cancellation.
#[derive(Clone)]
pub struct ChildStart {
    services: Arc<RunServices>,
    live: Arc<LiveRun>,
    purpose: Purpose,
    request: Arc<RunRequest>,
    cancel: CancellationToken,
    journal: JournalSeed,
    tally: Tally,
    /// The stop rules of the parent.
    rules: Arc<StopRules>,
    clock: RunClock,
    /// The deadlines of the parent.
    deadlines: Deadlines,
    waits: WaitClock,
    may_ask: Result<(), &'static str>,
    asks_in: Option<Arc<AskedIn>>,
    tree: RunTree,
    work: Option<Arc<dyn WorkItem>>,
    briefing: Arc<Briefing>,
}

impl ChildStart {
    /// The services that each run uses.
    pub fn services(&self) -> &Arc<RunServices> {
        &self.services
    }

    /// The live run that a person can stop.
    pub fn live(&self) -> &LiveRun {
        &self.live
    }

    /// The position of the parent in the tree.
    pub fn tree(&self) -> &RunTree {
        &self.tree
    }

    /// The waits of the parent for people.
    pub fn waits(&self) -> &WaitClock {
        &self.waits
    }

    /// The briefing of the parent.
    pub fn briefing(&self) -> &Briefing {
        &self.briefing
    }

    /// A child run with the stop rules of its parent. It has at most `time`, and never more than the parent has left.
    /// Its usage is charged to the account of the tree. It stops with its parent.
    pub fn grow(&self, time: Duration) -> RunCore {
        let waits = self.waits.child();
        let until = Instant::now().checked_add(time).map(|until| Deadline::at(until, &waits));
        let own = until.map(|until| OwnTime { work: until.clone(), until, time });
        let cancel = self.cancel.child_token();
        RunCore {
            services: self.services.clone(),
            live: self.live.clone(),
            purpose: self.purpose,
            request: self.request.clone(),
            child: true,
            journal: self.journal.grow().stopped_by(cancel.clone()),
            cancel,
            tally: self.tally.clone(),
            rules: self.rules.clone(),
            clock: self.clock,
            above: Some(Arc::new(self.deadlines.clone())),
            noted: Duration::ZERO,
            waits,
            called: Cow::Borrowed("A part of the work"),
            own,
            closing: None,
            tree: self.tree.clone(),
            answers: Answers::new(),
            standing: None,
            work: self.work.clone(),
            may_ask: self.request.parts_may_ask(self.may_ask),
            asks_in: self.asks_in.clone(),
            briefing: self.briefing.clone(),
            joining: None,
            cut_short: None,
            stand_in: None,
            client: None,
        }
    }
}

impl RunCore {
    /// The parts for child runs that this run starts now.
    pub fn seed(&self, context: &LoopContext) -> ChildStart {
        ChildStart {
            services: self.services.clone(),
            live: self.live.clone(),
            purpose: self.purpose,
            request: self.request.clone(),
            cancel: self.cancel.clone(),
            journal: self.journal.seed(),
            tally: self.tally.clone(),
            rules: self.rules.clone(),
            clock: self.clock,
            deadlines: self.deadlines(context, self.allowance(1).purpose),
            waits: self.waits.clone(),
            may_ask: self.may_ask,
            asks_in: self.asks_in.clone(),
            tree: self.tree.clone(),
            work: self.work.clone(),
            briefing: self.briefing.clone(),
        }
    }
}
