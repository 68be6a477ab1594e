//! What every kind of run shares: asking the model, running a batch, and the clock. A delegate has one and adds what
//! makes its kind of run different.
//!
//! Reading order: [`RunCore`] → `clock` → `call_model` → `account` → `execute` → `child_start`.

mod account;
mod call_model;
mod child_start;
mod clock;
mod execute;
mod failure;
mod run_tree;
mod seen;
mod work_item;

use std::sync::Arc;

use belay_agent_loop::policies::StopRules;
use belay_agent_loop::{Fired, Guardrail, LoopContext};
use belay_protocol::{EventKind, Lease, Message, RunId, StopReason};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use self::call_model::Allowance;
pub use self::call_model::{Asked, CallPurpose};
pub use self::child_start::ChildStart;
pub(crate) use self::clock::OwnTime;
pub use self::clock::RunClock;
pub use self::execute::Executed;
pub use self::failure::failure;
pub(crate) use self::run_tree::RunTree;
pub use self::work_item::WorkItem;
use crate::approvals::Answers;
use crate::joining::Joining;
use crate::journal::RunJournal;
use crate::live::LiveRun;
use crate::metrics;
use crate::prompt::Briefing;
use crate::request::RunRequest;
use crate::services::RunServices;
use crate::tally::Tally;

/// Most tokens of a closing turn: what is held back for it. 1024: a page of text.
pub const CLOSING_MAX_TOKENS: u32 = 1024;

/// Longest text of a closing turn, in bytes. 16 KiB: four times what its tokens come to in English. Not every server keeps to
/// the tokens that it is asked for.
pub(crate) const CLOSING_MAX_BYTES: usize = 16 * 1024;

/// The shared part of a run.
pub struct RunCore {
    /// What it uses.
    pub services: Arc<RunServices>,
    /// The run that a person can stop: this one, or the one that started it.
    pub live: Arc<LiveRun>,
    /// What was asked of it, or of the run that started it.
    pub request: Arc<RunRequest>,
    /// Says stop to this run and to everything it starts.
    pub cancel: CancellationToken,
    /// Whether another run started this one.
    pub child: bool,
    /// What the run has still to store.
    pub journal: RunJournal,
    /// The account of the whole tree.
    pub tally: Tally,
    /// The stop rules of the run.
    pub rules: Arc<StopRules>,
    /// The time.
    pub clock: RunClock,
    /// What the run that started this one has left.
    pub deadline: Option<Instant>,
    /// A limit of its own besides those of its rules.
    pub own: Option<OwnTime>,
    /// While it has its closing turn: until when.
    pub closing: Option<Instant>,
    /// Where it stands in the tree of runs.
    pub tree: RunTree,
    /// What people have answered about calls of this run.
    pub answers: Answers,
    /// The work that the tree belongs to, such as a job.
    pub work: Option<Arc<dyn WorkItem>>,
    /// Whether a person can be asked; else why nobody can, as the end of a sentence.
    pub may_ask: Result<(), &'static str>,
    /// What it is told of its surroundings; a run that another one started knows what that one was told.
    pub briefing: Arc<Briefing>,
    /// Messages of the person that may become part of it; `None`: none may.
    pub joining: Option<Arc<Joining>>,
    /// What the model had said when the run was stopped or its time was up, unless it has answered since.
    pub cut_short: Option<String>,
    /// Which model has answered last, where there are several and it was not the one that was to.
    pub stand_in: Option<String>,
}

/// What a run that no other one has started begins with.
pub struct RunStart {
    /// The claim to the session that every write is checked by.
    pub lease: Lease,
    /// How many messages of its context are in the store.
    pub stored: usize,
    /// What its earlier attempts have used.
    pub tally: Tally,
    /// How many runs its earlier attempts have started.
    pub spawned: u32,
}

impl RunCore {
    /// The core of a run at the top of its tree, with what every such run has: everybody's rules, no answers of people yet,
    /// and nothing that may join it.
    pub fn root(services: Arc<RunServices>, live: Arc<LiveRun>, request: Arc<RunRequest>, start: RunStart) -> Self {
        let RunStart { lease, stored, tally, spawned } = start;
        let (store, clock) = (services.journal.clone(), services.clock.clone());
        Self {
            cancel: live.control.cancel.clone(),
            child: false,
            journal: RunJournal::new(store, clock, lease, live.id, tally.clone(), stored),
            rules: services.rules(),
            clock: RunClock::starting(services.clock.now()),
            deadline: None,
            own: None,
            closing: None,
            tree: RunTree::root(&services.config.subagents, spawned),
            answers: Answers::new(),
            work: None,
            may_ask: request.may_ask(),
            request,
            briefing: Arc::default(), // before it asks anybody it is told more
            joining: None,
            cut_short: None,
            stand_in: None,
            tally,
            live,
            services,
        }
    }

    /// Why the run was told to stop.
    pub fn stopped(&self) -> Option<StopReason> {
        let reason = self.live.control.stopped_by().map(|cause| cause.reason);
        match self.child {
            true => self.cancel.is_cancelled().then_some(StopReason::ParentStopped),
            false => reason,
        }
    }

    /// Takes the oldest message that may join the run, with its text out of the store. One that cannot be read gets a turn of its
    /// own.
    ///
    /// # Cancel safety
    /// Dropped midway, the message is with the lane again when the turn ends.
    pub async fn take_offer(&self) -> Option<(RunId, Arc<Message>)> {
        let joining = self.joining()?;
        let run = joining.take()?.run.id;
        let read = self.services.inputs.queued_inputs(&[run]).await;
        match read.map(|inputs| inputs.into_iter().next()) {
            Ok(Some(input)) => {
                let message = input.message();
                if message.untrusted {
                    self.tally.note_untrusted();
                }
                return Some((run, Arc::new(message)));
            }
            Ok(None) => tracing::error!(%run, "a message that was to join a turn is not in the store"),
            Err(error) => tracing::warn!(%run, %error, "a message that was to join a turn cannot be read; it waits on"),
        }
        joining.give_back(&[run]);
        None
    }

    /// What the person says may become part of the run now: not in its last turn.
    pub fn joining(&self) -> Option<&Arc<Joining>> {
        self.joining.as_ref().filter(|_| self.closing.is_none())
    }

    /// Reports a nudge in the log and as an event.
    pub fn note_nudge(&mut self, context: &LoopContext) {
        context.state.log_nudge();
        let (brake, force_text) = (Guardrail::ToolIntentNudge.word().into(), context.state.force_text);
        self.journal.note(EventKind::GuardrailTriggered { guardrail: brake, count: context.state.nudges, force_text });
    }

    /// Notes what rules and the brakes other than the nudge did in this iteration.
    pub fn note_guardrails(&mut self, context: &mut LoopContext) {
        let force_text = context.state.force_text;
        if let Some(acted) = context.state.braked.filter(|acted| acted.brake != Guardrail::ToolIntentNudge) {
            self.journal.note(EventKind::GuardrailTriggered {
                guardrail: acted.brake.word().into(),
                count: acted.count,
                force_text,
            });
        }
        for Fired { rule, count, strike } in std::mem::take(&mut context.state.fired) {
            metrics::rule_fired(&rule, if strike > 0 { "recover" } else { "notice" });
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            self.journal.note(EventKind::GuardrailTriggered { guardrail: rule, count, force_text });
        }
    }
}
