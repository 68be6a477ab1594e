//! Questions of runs that other runs have started: subagents, steps of plans, and workers.
//!
//! Such a run waits for the answer in its place, while the lane works on its turn. The request is in the store before
//! anyone sees it. The answer is in the store before the run reads it, so no lane is needed to give it. After a restart
//! the run begins again, and the same call finds its request.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use belay_protocol::{
    ApprovalId, ApprovalKind, ApprovalRequest, ApprovalState, ApprovalStore, ChildQuestion, ChildQuestionStore, Clock,
    Decided, Outbound, Outbox, Question, RunId, StoreError, TextKind, ToolCall, UnixMillis,
};
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::asked::WorkQuestions;
use crate::mail::{LaneNote, PendingQuestion};
use belay_run::approvals::{ApprovalsConfig, Wanted, question_text, reminder_text};
use belay_run::child_asker::{ChildAnswer, ChildAsker, ChildCall};
use belay_run::config::AgentConfig;
use belay_run::live::LiveRun;
use belay_run::retry::STORE;

/// Longest time between two looks at a request that waits. Each look is a sign of life of the run, far below the default
/// of `jobs.stuck_threshold_s`, 300 s.
const LOOK: Duration = Duration::from_secs(10);
/// Shortest time between two looks, so that a store that fails is not asked without a pause.
const SHORTEST_LOOK: Duration = Duration::from_millis(100);

/// The beginning of a form that is shown again after an interruption.
const SHOWN_AGAIN: &str = "Belay was interrupted. This question still waits.";

/// Asks people about calls of runs that other runs have started.
pub(crate) struct PersonAsker {
    approvals: Arc<dyn ApprovalStore>,
    questions: Arc<dyn ChildQuestionStore>,
    outbox: Arc<dyn Outbox>,
    config: Arc<ArcSwap<ApprovalsConfig>>,
    work_questions: Arc<WorkQuestions>,
    clock: Arc<dyn Clock>,
    notes: mpsc::Sender<LaneNote>,
    bounds: Bounds,
    /// Held for a few instructions, never across an await.
    waiting: Mutex<Waiting>,
}

/// Limits of the waits at the same time. A waiting run keeps its permits, so half of them stay free for others.
struct Bounds {
    /// Run trees: each holds a turn.
    runs: usize,
    /// Subagents: each holds a slot of each depth above it.
    subagents: usize,
    /// Routine runs that pause: each holds a slot of `routines.max_concurrent`.
    routine_runs: usize,
}

#[derive(Default)]
struct Waiting {
    /// Wakes the run that waits for this answer.
    requests: HashMap<ApprovalId, Arc<Notify>>,
    /// Waits of each run tree.
    runs: HashMap<RunId, usize>,
    subagents: usize,
    routine_runs: HashSet<RunId>,
}

/// The ports of [`PersonAsker`].
pub(crate) struct AskerPorts {
    pub(crate) approvals: Arc<dyn ApprovalStore>,
    pub(crate) questions: Arc<dyn ChildQuestionStore>,
    pub(crate) outbox: Arc<dyn Outbox>,
    pub(crate) config: Arc<ArcSwap<ApprovalsConfig>>,
    pub(crate) work_questions: Arc<WorkQuestions>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) notes: mpsc::Sender<LaneNote>,
}

impl PersonAsker {
    /// `routine_runs`: most routine runs at the same time.
    pub(crate) fn new(ports: AskerPorts, config: &AgentConfig, routine_runs: u32) -> Self {
        let AskerPorts { approvals, questions, outbox, config: approval_config, work_questions, clock, notes } = ports;
        let bounds = Bounds {
            runs: config.max_concurrent_turns / 2,
            subagents: (config.subagents.max_concurrent / 2).max(1),
            routine_runs: routine_runs as usize / 2,
        };
        let waiting = Mutex::default();
        Self { approvals, questions, outbox, config: approval_config, work_questions, clock, notes, bounds, waiting }
    }

    /// Wakes the run that waits for this request, whose answer is stored.
    pub(crate) fn answered(&self, approval: ApprovalId) {
        if let Some(waits) = self.lock().requests.get(&approval) {
            waits.notify_one();
        }
    }

    /// Whether a call of this daemon waits for the answer to this request.
    pub(crate) fn is_awaited(&self, approval: ApprovalId) -> bool {
        self.lock().requests.contains_key(&approval)
    }

    /// A routine run has paused.
    pub(crate) fn paused(&self, run: RunId) {
        self.lock().routine_runs.insert(run);
    }

    /// A run goes on or has ended.
    pub(crate) fn goes_on(&self, run: RunId) {
        self.lock().routine_runs.remove(&run);
    }

    /// The request of an earlier attempt at the run about the same call. A denial holds for each such call. Any other
    /// request counts for one call.
    async fn earlier(&self, question: &ChildCall<'_>) -> Result<Option<ApprovalRequest>, StoreError> {
        let ChildCall { request, live, call, wanted, .. } = question;
        let same =
            |asked: &ApprovalRequest| asked.is_in_place() && asked.tool == call.name && asked.digest == wanted.digest;
        let stored = self.approvals.approvals_of(request.run).await?;
        self.withdraw_others(question, &stored).await?;
        let mut same: Vec<ApprovalRequest> = stored.into_iter().filter(same).collect();
        let is_no = |asked: &ApprovalRequest| matches!(asked.state, ApprovalState::Denied | ApprovalState::Expired);
        if let Some(at) = same.iter().position(is_no) {
            return Ok(Some(same.swap_remove(at)));
        }
        // The answer to a form belongs to one call, and that call may ask again after a restart.
        let is_open = |asked: &ApprovalRequest| match asked.state {
            ApprovalState::Waiting | ApprovalState::Approved => true,
            ApprovalState::Used => asked.kind.form().is_some(),
            ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Withdrawn => false,
        };
        // A rule that wants two persons since then is not met by the approval of one.
        let is_enough = |asked: &ApprovalRequest| !wanted.second || asked.second.is_some();
        Ok(same.into_iter().find(|asked| is_open(asked) && is_enough(asked) && live.take_question(asked.id)))
    }

    /// Lets a request expire whose time is over, as after a long downtime: nobody is asked it again.
    async fn expired(&self, asked: ApprovalRequest) -> Result<ApprovalRequest, StoreError> {
        let now = self.clock.now();
        if asked.state != ApprovalState::Waiting || now.0 < asked.expires_at.0 {
            return Ok(asked);
        }
        let asked = match self.approvals.decide(asked.id, ApprovalState::Expired, None, "nobody", now).await? {
            Decided::Now(stored) | Decided::Before(stored) => *stored,
            Decided::Unknown => asked,
        };
        if asked.state != ApprovalState::Waiting {
            // Fails only when the dispatcher ends.
            let _ = self.notes.send(LaneNote::Unasked { approval: asked.id, withdraw: false }).await;
        }
        Ok(asked)
    }

    /// Withdraws the open forms of an earlier attempt at this call if it asks something else now: nobody waits for
    /// them.
    async fn withdraw_others(&self, question: &ChildCall<'_>, stored: &[ApprovalRequest]) -> Result<(), StoreError> {
        let ChildCall { live, call, wanted, .. } = question;
        let is_other = |asked: &&ApprovalRequest| {
            let is_open_form = asked.kind.form().is_some() && asked.state == ApprovalState::Waiting;
            is_open_form && asked.call_id == call.id && asked.digest != wanted.digest && live.take_question(asked.id)
        };
        for other in stored.iter().filter(is_other) {
            self.questions.withdraw(other.id, self.clock.now()).await?;
        }
        Ok(())
    }

    /// A new request, with the message that shows it.
    fn make(&self, question: &mut ChildCall<'_>, now: UnixMillis) -> ChildQuestion {
        let (config, wanted) = (self.config.load(), question.wanted.clone());
        let time = if question.request.work.is_autonomous() { config.autonomous_expires() } else { config.expires() };
        let approval = ApprovalRequest {
            id: ApprovalId::new(),
            run_id: question.request.run,
            session: question.lease.session.clone(),
            call_id: question.call.id.clone(),
            tool: question.call.name.clone(),
            kind: wanted.kind,
            summary: wanted.summary,
            arguments: wanted.arguments,
            detail: wanted.why,
            bound: wanted.bound,
            digest: wanted.digest,
            covers: None, // the question names one call of a run that the person does not see
            added: wanted.added,
            asker: question.request.asker.clone(),
            place: Some(Box::new(question.place.clone())),
            second: wanted.second.then(Box::default),
            asked_at: now,
            expires_at: UnixMillis(now.0.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))),
            reminded_at: None,
            state: ApprovalState::Waiting,
            decided_by: None,
            decided_at: None,
        };
        let outbound = message(&approval, question_text(&approval, now));
        let outbound = match approval.kind {
            // Hooks check the words of a server when they are sent.
            ApprovalKind::Form { .. } => outbound,
            // Hooks have checked the question with its call.
            _ => outbound.map(Outbound::checked),
        };
        ChildQuestion { approval, outbound }
    }

    /// Counts a wait of this run tree. The error is the result of the call.
    fn enter(&self, question: &ChildCall<'_>) -> Result<(), String> {
        let run = question.request.run;
        let mut waiting = self.lock();
        let full = if !waiting.runs.contains_key(&run) && waiting.runs.len() >= self.bounds.runs {
            Some(("runs", self.bounds.runs, "agent.max_concurrent_turns"))
        } else if question.holds_slot && waiting.subagents >= self.bounds.subagents {
            Some(("subagents", self.bounds.subagents, "those that may run at a time"))
        } else {
            None
        };
        if let Some((what, most, setting)) = full {
            return Err(refusal(question.call, &question.wanted, &format!("{most} {what}"), setting));
        }
        *waiting.runs.entry(run).or_default() += 1;
        waiting.subagents += usize::from(question.holds_slot);
        Ok(())
    }

    /// Stores a new request, before anyone sees it. Repeats that until the store accepts it. Returns `false` if the wait
    /// was cancelled before.
    async fn store(&self, question: &ChildCall<'_>, asked: &ChildQuestion) -> Result<bool, StoreError> {
        let mut pauses = STORE.pauses();
        while !question.cancel.is_cancelled() {
            match self.questions.ask_in_place(question.lease, asked.clone()).await {
                Ok(()) => return Ok(true),
                Err(error @ (StoreError::LeaseLost(_) | StoreError::NotFound(_))) => return Err(error),
                Err(error) => {
                    tracing::error!(%error, run = %question.request.run, "a question could not be stored; trying again");
                    pauses.wait(question.cancel).await;
                }
            }
        }
        Ok(false)
    }

    /// Shows a form that an earlier attempt has asked once more: a text fills in only the newest question of a
    /// conversation, and there is no other way to give values there.
    async fn show_again(&self, approval: &ApprovalRequest) {
        let text = || format!("{SHOWN_AGAIN} {}", question_text(approval, self.clock.now()));
        let Some(outbound) = approval.kind.form().and_then(|_| message(approval, text())) else { return };
        if let Err(error) = self.outbox.enqueue(outbound).await {
            tracing::warn!(%error, approval = %approval.id, "a form could not be shown again; the API still takes its answer");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of a call about which nobody is asked, since so many wait.
fn refusal(call: &ToolCall, wanted: &Wanted, waiting: &str, setting: &str) -> String {
    format!(
        "denied: {} needs a person's approval ({}), and {waiting} wait for people already, which is the limit (half of \
         {setting}). It was not executed.",
        call.name, wanted.why
    )
}

/// The message that shows a request in its conversation.
fn message(approval: &ApprovalRequest, text: String) -> Option<Outbound> {
    let route = approval.present_place()?.route.clone()?;
    let question = Question { approval: approval.id, offers_always: false, decidable: approval.kind.is_decidable() };
    Some(Outbound { question: Some(question), ..Outbound::new(Some(approval.run_id), route, text) })
}

#[async_trait]
impl ChildAsker for PersonAsker {
    async fn ask(&self, mut question: ChildCall<'_>) -> Result<ChildAnswer, StoreError> {
        let earlier = match self.earlier(&question).await? {
            Some(asked) => Some(self.expired(asked).await?),
            None => None,
        };
        if let Some(decided) = earlier.as_ref().filter(|asked| asked.state != ApprovalState::Waiting) {
            return Ok(ChildAnswer::Decided(Box::new(decided.clone())));
        }
        if let Err(refused) = self.enter(&question) {
            return Ok(ChildAnswer::Refused(refused));
        }
        let is_new = earlier.is_none();
        let asked = match earlier {
            Some(approval) => ChildQuestion { approval, outbound: None },
            None => self.make(&mut question, self.clock.now()),
        };
        let mut wait = Wait {
            asker: self,
            approval: asked.approval.id,
            live: question.live.clone(),
            holds_slot: question.holds_slot,
            wake: Arc::default(),
            answered: false,
        };
        question.live.take_question(wait.approval);
        self.lock().requests.insert(wait.approval, wait.wake.clone());
        self.work_questions.asks(&asked.approval);
        // The dispatcher knows the request before anyone can answer it.
        let _ = self.notes.send(LaneNote::Paused(Box::new(PendingQuestion::of(&asked.approval)))).await;
        if !is_new {
            self.show_again(&asked.approval).await;
        } else if !self.store(&question, &asked).await? {
            return Ok(ChildAnswer::Cancelled);
        }
        let approval = asked.approval;
        tracing::info!(run = %approval.run_id, approval = %approval.id, tool = approval.tool, "a part of a run waits for approval");
        let decided = wait.until_decided(approval, question.cancel).await;
        wait.answered = decided.is_some();
        Ok(decided.map_or(ChildAnswer::Cancelled, |approval| ChildAnswer::Decided(Box::new(approval))))
    }

    fn admit_pause(&self, run: RunId, call: &ToolCall, wanted: &Wanted) -> Result<(), String> {
        let (mut waiting, most) = (self.lock(), self.bounds.routine_runs);
        if waiting.routine_runs.len() >= most && !waiting.routine_runs.contains(&run) {
            return Err(refusal(call, wanted, &format!("{most} routine runs"), "routines.max_concurrent"));
        }
        waiting.routine_runs.insert(run);
        Ok(())
    }
}

/// A run that waits for an answer. Dropping it ends the wait. If the run tree goes on without an answer, the request is
/// withdrawn. The end of the tree withdraws its requests itself, and a deferred tree keeps them.
struct Wait<'a> {
    asker: &'a PersonAsker,
    approval: ApprovalId,
    live: Arc<LiveRun>,
    holds_slot: bool,
    wake: Arc<Notify>,
    answered: bool,
}

impl Wait<'_> {
    /// Waits for the answer or the expiry of the request. `None`: the wait was cancelled, or the request is gone.
    async fn until_decided(
        &self,
        mut approval: ApprovalRequest,
        cancel: &CancellationToken,
    ) -> Option<ApprovalRequest> {
        loop {
            let now = self.asker.clock.now();
            let due = approval.remind_at().unwrap_or(approval.expires_at);
            let left = Duration::from_millis(u64::try_from(due.0 - now.0).unwrap_or(0));
            tokio::select! {
                biased; // a stop comes before an answer
                () = cancel.cancelled() => return None,
                () = self.wake.notified() => {}
                () = sleep(left.clamp(SHORTEST_LOOK, LOOK)) => {}
            }
            // Also without a wake: the answer may have come before this run knew its request.
            match self.asker.approvals.approval(approval.id).await {
                // The first of two approvals has changed the person and the time.
                Ok(Some(stored)) if stored.state == ApprovalState::Waiting => {
                    approval = stored;
                    self.look(&mut approval).await;
                }
                Ok(Some(stored)) if stored.state == ApprovalState::Withdrawn => return None,
                Ok(stored) => return stored,
                Err(error) => tracing::warn!(%error, approval = %approval.id, "a question could not be read"),
            }
        }
    }

    /// Reminds of the request, or lets it expire, when that is due.
    async fn look(&self, approval: &mut ApprovalRequest) {
        self.live.activity.touch();
        let (asker, now, id) = (self.asker, self.asker.clock.now(), approval.id);
        if now.0 >= approval.expires_at.0 {
            match asker.approvals.decide(id, ApprovalState::Expired, None, "nobody", now).await {
                // Another daemon has stored the first of two approvals, and the second person has more time.
                Ok(Decided::Before(stored)) if stored.state == ApprovalState::Waiting => *approval = *stored,
                Ok(_) => tracing::info!(run = %approval.run_id, approval = %id, "nobody answered in time"),
                Err(error) => tracing::error!(%error, approval = %id, "the end of a question could not be stored"),
            }
        } else if approval.remind_at().is_some_and(|due| now.0 >= due.0)
            && let Some(reminder) = message(approval, reminder_text(approval, now))
        {
            let reminder = reminder.of_kind(TextKind::Reminder);
            match asker.approvals.remind(id, reminder, now).await {
                Ok(_) => approval.reminded_at = Some(now),
                Err(error) => tracing::error!(%error, approval = %id, "a reminder could not be stored"),
            }
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut waiting = self.asker.lock();
        waiting.requests.remove(&self.approval);
        waiting.subagents -= usize::from(self.holds_slot);
        if let Some(waits) = waiting.runs.get_mut(&self.live.id) {
            *waits -= 1;
            if *waits == 0 {
                waiting.runs.remove(&self.live.id);
            }
        }
        drop(waiting);
        let withdraw = !self.answered && !self.live.control.cancel.is_cancelled();
        if self.asker.notes.try_send(LaneNote::Unasked { approval: self.approval, withdraw }).is_err() {
            // An answer is stored and used by no call; the end of the run withdraws the request.
            tracing::warn!(approval = %self.approval, "a question that nobody waits for stays open");
        }
    }
}
