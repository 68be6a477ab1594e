//! A message in the queue of a lane, and the end of its run.

use std::sync::Arc;

use belay_protocol::store::input_digest;
use belay_protocol::{
    ApprovalRequest, Audience, ChannelId, DeclaredOutput, FinishedRun, GoalRequest, Message, MessageBody, Outbound,
    PendingRun, PlanRequest, Provenance, RunEnd, RunOptions, RunRecord, RunStatus, StopReason, ThreadState, UnixMillis,
    Work,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::mail::LaneInput;
use crate::queue::QueueRules;
use crate::submission::{self, Submission};
use belay_delegates::subagent::Goal;
use belay_run::approvals::Answers;
use belay_run::journal::Remainder;
use belay_run::live::{LiveRun, StopCause};
use belay_run::progress::RunProgress;
use belay_run::request::RunRequest;

/// A message that waits for its turn, or whose turn runs.
pub(crate) struct QueuedRun {
    pub(crate) run: Arc<LiveRun>,
    /// The request of its run.
    pub(crate) request: Arc<RunRequest>,
    /// The progress of the run. The state of the loop and the answers of people are lent to the running turn.
    pub(crate) progress: RunProgress,
    /// The history that the client sent along. The first start of the run appends it to the thread. Empty while the
    /// message waits: only the store has it then.
    pub(crate) history: Vec<Arc<Message>>,
    /// The run's own messages; empty while only the store has the text.
    pub(crate) own: Vec<Arc<Message>>,
    /// Whether a new conversation was started automatically with this message. The answer informs the person.
    pub(crate) began_anew: bool,
    pub(crate) queueing: Queueing,
}

/// The data that only the queue uses.
pub(crate) struct Queueing {
    /// The queue rules of the message.
    pub(crate) rules: QueueRules,
    /// When the message arrived in this task of the lane.
    pub(crate) arrived: Instant,
    /// Length of its text, in bytes.
    pub(crate) bytes: usize,
    /// Digests of the instructions that the client sent along, until the run begins.
    pub(crate) instructions: Vec<String>,
    /// Whether the message is only text: no plan, no declared outputs, no history.
    pub(crate) words_alone: bool,
    /// Whether the message is to become a line of a digest, because too many wait.
    pub(crate) shortened: bool,
    /// A permit to run, if one was free at once.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

/// The line before the first answer of a conversation that was started automatically.
const BEGAN_ANEW: &str = "_A new conversation was started; the earlier one is kept._";

/// The end of a run, before it is committed.
pub(crate) struct RunEnding {
    pub(crate) end: RunEnd,
    /// The model's answer; `None` if it gave none.
    pub(crate) reply: Option<String>,
    /// Whether the model chose to send no answer.
    pub(crate) silent: bool,
    /// The reply to the conversation.
    pub(crate) delivery: Delivery,
    /// Messages and events that are not in the store yet.
    pub(crate) unstored: Remainder,
}

/// The reply to a conversation at the end of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) told: ReplyText,
    /// The message on the platform that the reply replaces.
    pub(crate) preview: Option<Arc<str>>,
}

/// The text of the reply at the end of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum ReplyText {
    /// The model's reply, or the line of the stop reason.
    #[default]
    Reply,
    /// No text: everything was sent before.
    Nothing,
    /// This text: the part of the reply that was not sent before, or more than the reply.
    This(String),
}

/// The final text of a run: the model's answer, or the line of the stop reason if there is no answer.
pub(crate) fn says(end: &RunEnd, reply: Option<String>, silent: bool) -> Option<String> {
    reply.or_else(|| (!silent).then(|| end.line()).filter(|line| !line.is_empty()))
}

impl RunEnding {
    /// An end without the result of a turn.
    pub(crate) fn early(end: RunEnd) -> Self {
        Self { end, reply: None, silent: false, delivery: Delivery::default(), unstored: Remainder::default() }
    }

    /// The end of a run that was told to stop while it waited.
    pub(crate) fn stopped(waiting: &QueuedRun) -> Self {
        let reason = waiting.run.control.stopped_by().map_or(StopReason::UserStop, |cause| cause.reason);
        Self::early(RunEnd::of(reason))
    }
}

/// Digests of the instructions in the history that a client sent along.
fn digests_of_instructions(history: &[Message]) -> Vec<String> {
    let instructions = history.iter().filter(|message| matches!(message.body, MessageBody::System { .. }));
    instructions.map(|message| input_digest(message.text())).collect()
}

/// Whether a message is nothing but text for the model, not a request for a plan. Messages of autonomous work and
/// forwarded messages always are. A message with files is not: it gets a turn of its own, so that its pictures stay
/// with its text. Neither is a message with a callback, which reports the end of its own run.
fn is_words(message: &Message, work: Work, options: &RunOptions) -> bool {
    if !message.attachments().is_empty() || options.callback_url.is_some() {
        return false;
    }
    let is_forwarded = message.provenance.as_ref().is_some_and(|provenance| provenance.is_forwarded());
    work.is_autonomous() || is_forwarded || submission::parse(message.text()) == Submission::Input
}

/// The plan that a person's message asks for.
pub(crate) fn plan_of(message: &Message, work: Work, options: &RunOptions) -> Option<PlanRequest> {
    match order_of(message, work, options) {
        Some(Submission::Plan(request)) => Some(request),
        _ => None,
    }
}

/// The goal that a person's message asks for.
pub(crate) fn goal_of(message: &Message, work: Work, options: &RunOptions) -> Option<Box<GoalRequest>> {
    match order_of(message, work, options) {
        Some(Submission::Goal(request)) => Some(request),
        _ => None,
    }
}

/// The request in a person's message. A forwarded message is no command, and neither is a request for plain text.
fn order_of(message: &Message, work: Work, options: &RunOptions) -> Option<Submission> {
    let is_order = |provenance: &Provenance| !provenance.is_forwarded() && !provenance.collected;
    let is_orders = work == Work::Chat && !options.text_only && message.provenance.as_deref().is_none_or(is_order);
    is_orders.then(|| submission::parse(message.text()))
}

/// Notes whether the run will carry out a plan or work for a goal, for commands about it. Returns the outputs of the goal.
fn expect_order(run: &LiveRun, message: &Message, work: Work, options: &RunOptions) -> Vec<DeclaredOutput> {
    match order_of(message, work, options) {
        Some(Submission::Plan(_)) => run.plan.expect(),
        Some(Submission::Goal(request)) => {
            run.goal.expect();
            return request.outputs();
        }
        _ => {}
    }
    Vec::new()
}

impl QueuedRun {
    /// A message that is about to be accepted.
    pub(crate) fn accepted(input: &LaneInput, at: UnixMillis, history: Vec<Message>, rules: QueueRules) -> Self {
        let LaneInput { run, inbound, text, .. } = input;
        let message = Message::sent(text, inbound.provenance.clone());
        let outputs: Vec<_> = inbound
            .outputs
            .iter()
            .cloned()
            .chain(expect_order(run, &message, inbound.work, &inbound.options))
            .collect();
        let declared = !outputs.is_empty();
        let words_alone = !declared && history.is_empty() && is_words(&message, inbound.work, &inbound.options);
        let queueing = Queueing {
            rules,
            arrived: Instant::now(),
            bytes: text.len(),
            instructions: digests_of_instructions(&history),
            words_alone,
            shortened: false,
            permit: None,
        };
        Self {
            run: run.clone(),
            request: Arc::new(RunRequest::of(run, inbound, at)),
            progress: RunProgress::accepted(declared.then(|| Box::new(Goal::beginning(outputs)))),
            history: history.into_iter().map(Arc::new).collect(),
            own: vec![Arc::new(message)],
            began_anew: false,
            queueing,
        }
    }

    /// A run that an earlier boot, or an earlier task of the lane, left unfinished.
    pub(crate) fn restored(run: Arc<LiveRun>, mut pending: PendingRun, answers: Answers, rules: QueueRules) -> Self {
        let has_state = pending.state.is_some();
        let progress = RunProgress::restored(&mut pending, answers);
        let own: Vec<_> = pending.messages.into_iter().map(|(_, message)| message).collect();
        let message = Message::sent(pending.text, pending.provenance);
        let words_alone =
            !has_state && pending.history.is_empty() && is_words(&message, pending.work, &pending.options);
        expect_order(&run, &message, pending.work, &pending.options); // its outputs are in the state
        run.files.restore(pending.files);
        let provenance = message.provenance.as_deref();
        let request = RunRequest {
            run: run.id,
            session: run.session.clone(),
            work: pending.work,
            channel: pending.channel,
            asker: pending.asker,
            reply_to: pending.reply_to,
            audience: provenance.map_or(Audience::Person, |provenance| provenance.audience),
            message_id: provenance.and_then(|provenance| provenance.message_id.clone()),
            options: pending.options,
            only_now: false,
            accepted_at: pending.accepted_at,
        };
        let queueing = Queueing {
            rules,
            arrived: Instant::now(),
            bytes: message.text().len(),
            instructions: digests_of_instructions(&pending.history),
            words_alone,
            shortened: false,
            permit: None,
        };
        let (request, history) = (Arc::new(request), Vec::new());
        Self { run, request, progress, history, own, began_anew: false, queueing }
    }

    /// Replaces the text after the store has accepted an edit of the message.
    pub(crate) fn edit(&mut self, message: Message) {
        self.queueing.words_alone =
            self.queueing.words_alone && is_words(&message, self.request.work, &self.request.options);
        self.queueing.bytes = message.text().len();
        if !self.is_unread() {
            self.own = vec![Arc::new(message)];
        }
    }

    /// Whether only the store has the text. It must be read before the turn begins.
    pub(crate) fn is_unread(&self) -> bool {
        self.own.is_empty()
    }

    /// Drops the text, which is in the store, unless the run starts at once. A run that has begun keeps its messages:
    /// the number of permits limits these runs.
    pub(crate) fn leave_text_in_store(&mut self) {
        if self.queueing.permit.is_none() && !self.progress.has_begun() {
            (self.own, self.history) = (Vec::new(), Vec::new());
        }
    }

    /// Sets the message and the history that were read from the store.
    pub(crate) fn read(&mut self, message: Message, history: Vec<Message>) {
        self.own = vec![Arc::new(message)];
        self.history = history.into_iter().map(Arc::new).collect();
    }

    /// Whether the message may join another run: its own run never began, and it is only text.
    pub(crate) fn is_plain(&self) -> bool {
        self.queueing.words_alone && !self.progress.has_begun()
    }

    /// Whether the message may be answered together with `other`: both come from the same person through the same
    /// channel, get their replies in the same conversation, and have the same run options.
    pub(crate) fn is_akin(&self, other: &Self) -> bool {
        fn to(request: &RunRequest) -> Option<(&ChannelId, &str)> {
            request.reply_to.as_ref().map(|to| (&to.channel, &*to.conversation))
        }
        let (own, other) = (&*self.request, &*other.request);
        own.channel == other.channel
            && own.asker == other.asker
            && to(own) == to(other)
            && own.options.of_the_run() == other.options.of_the_run()
    }

    /// Continues the run after a pause, with the answers of people.
    pub(crate) fn resume(&mut self, answers: Answers) {
        self.progress.resume();
        self.progress.answers = answers;
        self.run.activity.resume();
    }

    /// The record of the paused run for its watchers.
    pub(crate) fn record_while_paused(&self, approval: &ApprovalRequest, question: String) -> RunRecord {
        RunRecord { reply: Some(question), waiting_for: Some(approval.into()), ..self.record(RunStatus::Paused) }
    }

    /// The record of the run so far, without an end.
    fn record(&self, status: RunStatus) -> RunRecord {
        let RunProgress { attempt, started_at, usage, cost_micro_usd, .. } = self.progress;
        RunRecord {
            run_id: self.run.id,
            session: self.run.session.clone(),
            status,
            reason: None,
            evidence: serde_json::Map::new(),
            reply: None,
            usage,
            cost_micro_usd,
            attempt,
            accepted_at: self.request.accepted_at,
            started_at,
            ended_at: None,
            waiting_for: None,
            files: self.run.files.all(),
        }
    }

    /// The row that ends the run in the store, and the record for its watchers.
    pub(crate) fn finish(&self, ending: RunEnding, at: UnixMillis) -> (FinishedRun, RunRecord) {
        let RunEnding { mut end, reply, silent, delivery, unstored } = ending;
        let Remainder { messages, events, said, unclear: _ } = unstored; // the lane has settled it
        if let Some(cause) = self.run.control.stopped_by().filter(|cause| cause.reason == end.reason) {
            end.evidence.extend(cause.end().evidence);
        }
        let end = end.for_people();
        let status = end.reason.status();
        // Hooks have checked a reply. Without one, the text is a line of Belay's own.
        let is_checked = reply.is_some();
        let reply = says(&end, reply, silent);
        let thread_state = match status {
            _ if self.progress.begun_at.is_none() && !self.progress.in_thread => None,
            RunStatus::Stopped => Some(ThreadState::Interrupted),
            _ => Some(ThreadState::Idle),
        };
        let record = RunRecord {
            reason: Some(end.reason),
            evidence: end.evidence.clone(),
            reply: reply.clone(),
            ended_at: Some(at),
            ..self.record(status)
        };
        let row = FinishedRun {
            run: record.run_id,
            messages,
            end,
            usage: record.usage,
            cost_micro_usd: record.cost_micro_usd,
            model: self.progress.model.clone(),
            at,
            said,
            outbound: self
                .outbound(status, delivery, reply.as_deref())
                .map(|outbound| if is_checked { outbound.checked() } else { outbound }),
            callback: self.callback(&record),
            reply,
            events,
            thread_state,
        };
        (row, record)
    }

    /// The callback of the end or of a pause; `None`: the client gave no address.
    pub(crate) fn callback(&self, record: &RunRecord) -> Option<Outbound> {
        let url = self.request.options.callback_url.as_deref()?;
        Some(Outbound::callback_of_run(url, record))
    }

    /// The message to deliver; `None` if the run has no reply destination, or if the answer to a stop has informed the
    /// person already.
    fn outbound(&self, status: RunStatus, delivery: Delivery, says: Option<&str>) -> Option<Outbound> {
        let told =
            self.run.control.stopped_by().is_some_and(|StopCause { told, .. }| told) && status == RunStatus::Stopped;
        let Delivery { told: words, preview } = delivery;
        let text = match words {
            ReplyText::Reply => says?.to_owned(),
            ReplyText::Nothing => return None,
            ReplyText::This(text) => text,
        };
        let route = self.request.reply_to.clone()?;
        let text = match status {
            RunStatus::Completed if self.began_anew => format!("{BEGAN_ANEW}\n\n{text}"),
            _ => text,
        };
        (!told).then(|| Outbound { preview, ..Outbound::new(Some(self.run.id), route, text) })
    }
}
