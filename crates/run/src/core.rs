//! The run core: the parts that every kind of run shares, such as the model call, the tool batch and the clock. Each
//! delegate owns a [`RunCore`] and adds the behaviour of its kind of run.
//!
//! Reading order: [`RunCore`] → `clock` → `call_model` → `account` → `execute` → `in_place` →
//! `child_start`.

mod account;
mod call_model;
mod child_start;
mod client_calls;
mod clock;
mod execute;
mod failure;
mod in_place;
mod run_tree;
mod seen;
mod work_item;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use belay_agent_loop::policies::StopRules;
use belay_agent_loop::{Fired, Guardrail, LoopContext};
use belay_protocol::{AskedIn, EventKind, Lease, Message, Purpose, RunId, StopReason};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::call_model::Allowance;
pub use self::call_model::{Asked, CallPurpose, SideQuestion};
pub use self::child_start::ChildStart;
pub use self::clock::OwnTime;
pub use self::clock::RunClock;
pub use self::execute::Executed;
pub use self::failure::failure;
pub use self::in_place::WaitsForYes;
pub(crate) use self::run_tree::RunTree;
pub use self::work_item::WorkItem;
use crate::approvals::{Answers, Standing};
use crate::client_tools::ClientSide;
use crate::deadlines::{Deadlines, WaitClock};
use crate::joining::Joining;
use crate::journal::RunJournal;
use crate::live::LiveRun;
use crate::metrics;
use crate::prompt::Briefing;
use crate::request::RunRequest;
use crate::services::RunServices;
use crate::store_wait::StoreWait;
use crate::tally::Tally;

/// Maximum number of tokens of a closing turn. Their cost is reserved for that turn. 1024: a page of text.
pub const CLOSING_MAX_TOKENS: u32 = 1024;

/// Maximum length of the text of a closing turn, in bytes. 16 KiB: four times the usual length of
/// [`CLOSING_MAX_TOKENS`] tokens in English. Some servers ignore the token limit of a request.
pub(crate) const CLOSING_MAX_BYTES: usize = 16 * 1024;

/// The parts that every kind of run shares.
pub struct RunCore {
    /// The services that each run uses.
    pub services: Arc<RunServices>,
    /// The live run that a person can stop: this run, or the root of its tree if another run started it.
    pub live: Arc<LiveRun>,
    /// The purpose that model calls are charged to.
    pub purpose: Purpose,
    /// The request of this run, or of the root of its tree if another run started it.
    pub request: Arc<RunRequest>,
    /// Cancels this run and everything that it starts.
    pub cancel: CancellationToken,
    /// Whether another run started this one.
    pub child: bool,
    /// Writes the messages and events of the run to the store.
    pub journal: RunJournal,
    /// The account of the whole run tree.
    pub tally: Tally,
    /// The stop rules of the run.
    pub rules: Arc<StopRules>,
    /// The clock of the run.
    pub clock: RunClock,
    /// The deadlines of the run that started this one. `None`: no run has.
    pub above: Option<Arc<Deadlines>>,
    /// The waits of the run, and of those that it has started, for people.
    pub waits: WaitClock,
    /// The part of these waits that the stop rules know.
    pub noted: Duration,
    /// What a run that another run has started is called in a question to a person; empty for the root of a tree.
    pub called: Cow<'static, str>,
    /// A time limit of this run in addition to its stop rules.
    pub own: Option<OwnTime>,
    /// The deadline of the closing turn; `None` before the closing turn.
    pub closing: Option<Instant>,
    /// The position of the run in its tree.
    pub tree: RunTree,
    /// The answers of people to approval requests of this run.
    pub answers: Answers,
    /// The permission of the check of a goal, while it is executed.
    pub standing: Option<Box<Standing>>,
    /// The work item that the tree belongs to, such as a job.
    pub work: Option<Arc<dyn WorkItem>>,
    /// Whether a person can be asked. The error is the reason why not, as the end of a sentence.
    pub may_ask: Result<(), &'static str>,
    /// The conversation in which autonomous work asks.
    pub asks_in: Option<Arc<AskedIn>>,
    /// The variable parts of the system prompt. A child run has the briefing of its parent.
    pub briefing: Arc<Briefing>,
    /// Messages of the person that may join the run; `None`: no message may.
    pub joining: Option<Arc<Joining>>,
    /// The partial text of a model call that a stop or a deadline dropped; `None` after the next reply of the model.
    pub cut_short: Option<String>,
    /// The model that gave the last reply, if it was a fallback.
    pub stand_in: Option<String>,
    /// The tools of the client; `None`: it has none. A child run has none.
    pub client: Option<Box<ClientSide>>,
}

/// The start values of a run at the root of its tree.
pub struct RunStart {
    /// The lane's lease. The store checks it at every write.
    pub lease: Lease,
    /// Number of messages of the context that are in the store.
    pub stored: usize,
    /// The account, with the usage of earlier attempts.
    pub tally: Tally,
    /// Number of runs that earlier attempts started.
    pub spawned: u32,
}

impl RunCore {
    /// The core of a run at the root of its tree: with the global stop rules, without answers of people, and without
    /// messages that may join.
    pub fn root(services: Arc<RunServices>, live: Arc<LiveRun>, request: Arc<RunRequest>, start: RunStart) -> Self {
        let RunStart { lease, stored, tally, spawned } = start;
        let cancel = live.control.cancel.clone();
        let wait = StoreWait::new(live.clone(), cancel.clone(), services.draining.clone());
        Self {
            cancel,
            child: false,
            journal: RunJournal::new(services.journal_ports(), wait, lease, live.id, tally.clone(), stored),
            rules: services.rules(),
            clock: RunClock::starting(services.clock.now()),
            above: None,
            noted: live.waits.total(),
            waits: WaitClock::root(live.clone()),
            called: Cow::Borrowed(""),
            own: None,
            closing: None,
            tree: RunTree::root(&services.config.subagents, spawned),
            answers: Answers::new(),
            standing: None,
            work: None,
            may_ask: request.may_ask(),
            asks_in: None,
            purpose: request.work.purpose(),
            request,
            briefing: Arc::default(), // the delegate sets it before the first step
            joining: None,
            cut_short: None,
            stand_in: None,
            client: None,
            tally,
            live,
            services,
        }
    }

    /// Why the run was told to stop; `None` while it was not.
    pub fn stopped(&self) -> Option<StopReason> {
        let reason = self.live.control.stopped_by().map(|cause| cause.reason);
        match self.child {
            true => self.cancel.is_cancelled().then_some(StopReason::ParentStopped),
            false => reason,
        }
    }

    /// Takes the oldest message that may join the run and reads its text from the store. If the text cannot be read,
    /// the message goes back to the lane and gets a turn of its own.
    ///
    /// # Cancel safety
    /// If the future is dropped midway, the lane gets the message back when the turn ends.
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
            Err(error) => {
                tracing::warn!(%run, %error, "a message that was to join a turn cannot be read; it stays queued")
            }
        }
        joining.give_back(&[run]);
        None
    }

    /// The messages that may join the run now; `None` during the closing turn.
    pub fn joining(&self) -> Option<&Arc<Joining>> {
        self.joining.as_ref().filter(|_| self.closing.is_none())
    }

    /// Reports a nudge in the log and as an event.
    pub fn note_nudge(&mut self, context: &LoopContext) {
        context.state.log_nudge();
        let (brake, force_text) = (Guardrail::ToolIntentNudge.word().into(), context.state.force_text);
        self.journal.note(EventKind::GuardrailTriggered { guardrail: brake, count: context.state.nudges, force_text });
    }

    /// Records which stop rules and which guardrails other than the nudge acted in this iteration.
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
