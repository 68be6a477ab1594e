//! What a run hands to the runs that it starts, and what becomes of it: a child that shares the account and the stop.

use std::sync::Arc;
use std::time::Duration;

use belay_agent_loop::LoopContext;
use belay_agent_loop::policies::StopRules;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{OwnTime, RunClock, RunCore, RunTree, WorkItem};
use crate::approvals::Answers;
use crate::journal::JournalSeed;
use crate::live::LiveRun;
use crate::prompt::Briefing;
use crate::request::RunRequest;
use crate::services::RunServices;
use crate::tally::Tally;

/// Why a run that another one started asks nobody.
const NOBODY: &str = "a run started by another run cannot ask anybody; report what is missing in its result";

/// What a run hands to the runs that it starts. Clones share the account and the stop.
#[derive(Clone)]
pub struct ChildStart {
    services: Arc<RunServices>,
    live: Arc<LiveRun>,
    request: Arc<RunRequest>,
    cancel: CancellationToken,
    journal: JournalSeed,
    tally: Tally,
    /// The rules of the run that hands it out.
    rules: Arc<StopRules>,
    clock: RunClock,
    /// When the run that hands it out must have ended.
    deadline: Option<Instant>,
    tree: RunTree,
    work: Option<Arc<dyn WorkItem>>,
    briefing: Arc<Briefing>,
}

impl ChildStart {
    /// The daemon's shared part.
    pub fn services(&self) -> &Arc<RunServices> {
        &self.services
    }

    /// The run that a person can stop.
    pub fn live(&self) -> &LiveRun {
        &self.live
    }

    /// Where the run that hands it out stands in the tree.
    pub fn tree(&self) -> &RunTree {
        &self.tree
    }

    /// What the run that hands it out was told of its surroundings.
    pub fn briefing(&self) -> &Briefing {
        &self.briefing
    }

    /// A child that is judged by the rules of its parent, and has at most `time`, never more than its parent has left. It is
    /// charged to the account of the tree and stops with its parent.
    pub fn grow(&self, time: Duration) -> RunCore {
        RunCore {
            services: self.services.clone(),
            live: self.live.clone(),
            request: self.request.clone(),
            cancel: self.cancel.child_token(),
            child: true,
            journal: self.journal.grow(),
            tally: self.tally.clone(),
            rules: self.rules.clone(),
            clock: self.clock,
            deadline: self.deadline,
            own: Instant::now().checked_add(time).map(|until| OwnTime { until, time }),
            closing: None,
            tree: self.tree.clone(),
            answers: Answers::new(),
            work: self.work.clone(),
            may_ask: Err(NOBODY),
            briefing: self.briefing.clone(),
            joining: None,
            cut_short: None,
            stand_in: None,
        }
    }
}

impl RunCore {
    /// What this run hands to the runs that it starts now.
    pub fn seed(&self, context: &LoopContext) -> ChildStart {
        ChildStart {
            services: self.services.clone(),
            live: self.live.clone(),
            request: self.request.clone(),
            cancel: self.cancel.clone(),
            journal: self.journal.seed(),
            tally: self.tally.clone(),
            rules: self.rules.clone(),
            clock: self.clock,
            deadline: self.deadline(context, self.allowance(1).purpose),
            tree: self.tree.clone(),
            work: self.work.clone(),
            briefing: self.briefing.clone(),
        }
    }
}
