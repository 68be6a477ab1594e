//! The messages between the dispatcher and the lanes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use belay_protocol::cluster::StopOrder;
use belay_protocol::store::UnfinishedRun;
use belay_protocol::{
    AckSender, ActedOn, ApprovalId, ApprovalRequest, Asker, BootId, ChannelId, ClientAnswer, Decision, Form, Freeze,
    GoalCommand, IdempotencyKey, Inbound, KnownInput, MailId, PlanCommand, Principal, Refusal, ReplyRoute, RunId,
    Secret, Sent, SessionKey, SessionLifetime, UnixMillis,
};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::submission::{Repeat, SettingCommand, ThreadCommand};
use belay_run::live::{LiveRun, RunOrigin, StopCause};

/// Mail from the dispatcher to a lane.
pub(crate) enum LaneMail {
    /// A message for the model.
    Input(Box<LaneInput>),
    /// A command that changes the thread or the options of the session, in order with the messages.
    Command(Box<LaneCommand>),
    /// An answer to the approval request of the paused run.
    Answer(Box<LaneAnswer>),
}

impl LaneMail {
    /// The run of a message; `None`: it is none.
    pub(crate) fn run(&self) -> Option<RunId> {
        match self {
            Self::Input(input) => Some(input.run.id),
            Self::Command(_) | Self::Answer(_) => None,
        }
    }

    /// The mail in the store, if another node has received it.
    pub(crate) fn forwarded(&self) -> Option<MailId> {
        match self {
            Self::Input(input) => input.forwarded,
            Self::Command(command) => command.forwarded,
            Self::Answer(answer) => answer.forwarded,
        }
    }

    /// The key of a command or an answer.
    pub(crate) fn acted_on_key(&self) -> Option<&IdempotencyKey> {
        match self {
            Self::Input(_) => None,
            Self::Command(command) => command.sent.as_ref().map(|sent| &sent.key),
            Self::Answer(answer) => answer.sent.as_ref().map(|sent| &sent.key),
        }
    }

    /// The secret in an answer.
    pub(crate) fn secret(&self) -> Option<&Secret> {
        match self {
            Self::Answer(answer) => match &answer.reply {
                LaneReply::Secret(secret) => Some(secret),
                LaneReply::Decision(_) | LaneReply::Form(_) | LaneReply::Client(_) => None,
            },
            Self::Input(_) | Self::Command(_) => None,
        }
    }

    /// The lifetime of the session that a message creates.
    pub(crate) fn lifetime(&self) -> Option<SessionLifetime> {
        match self {
            Self::Input(input) => Some(input.inbound.lifetime),
            Self::Command(_) | Self::Answer(_) => None,
        }
    }
}

/// A message for the model. Its text is separate from the rest.
#[derive(Debug)]
pub(crate) struct LaneInput {
    pub(crate) run: Arc<LiveRun>,
    pub(crate) inbound: Inbound,
    pub(crate) text: String,
    /// Recognises a duplicate, if the message has a key. `text` may differ from the text as received.
    pub(crate) sent: Option<Sent>,
    /// Set for a message that replaces the last turn. The lane sets the text then.
    pub(crate) repeat: Option<Repeat>,
    /// Whether hooks have checked it already.
    pub(crate) checked: bool,
    /// The mail in the store, if another node has received it.
    pub(crate) forwarded: Option<MailId>,
    pub(crate) ack: AckSender,
}

/// A command for the lane.
#[derive(Debug)]
pub(crate) struct LaneCommand {
    pub(crate) session: SessionKey,
    pub(crate) order: LaneOrder,
    /// The sender of the command.
    pub(crate) origin: RunOrigin,
    pub(crate) word: String,
    pub(crate) reply_to: Option<ReplyRoute>,
    /// Recognises a duplicate.
    pub(crate) sent: Option<Sent>,
    /// The node that has claimed the key of `sent`.
    pub(crate) claimed: Option<BootId>,
    /// The mail in the store, if another node has received it.
    pub(crate) forwarded: Option<MailId>,
    pub(crate) ack: AckSender,
}

/// The kind of a command.
#[derive(Clone, Debug)]
pub(crate) enum LaneOrder {
    /// A change of the thread.
    Thread(ThreadCommand),
    /// A change of the options of the session.
    Setting(SettingCommand),
    /// A command about the plan of the running turn.
    Plan(PlanOrder),
    /// A command about the goal of the running turn.
    Goal(GoalCommand),
}

/// A command about the plan of the running turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlanOrder {
    pub(crate) command: PlanCommand,
    /// Whether an operator gave it.
    pub(crate) by_operator: bool,
}

impl LaneOrder {
    /// Whether it may be carried out twice: it changes nothing, or sets the same value again.
    pub(crate) fn may_be_repeated(&self) -> bool {
        match self {
            Self::Setting(_) => true,
            Self::Plan(order) => order.command == PlanCommand::Show,
            Self::Goal(command) => *command == GoalCommand::Show,
            Self::Thread(command) => matches!(
                command,
                ThreadCommand::List | ThreadCommand::Summarize | ThreadCommand::Compact(_) | ThreadCommand::Loops(_)
            ),
        }
    }
}

/// An answer to an approval request.
#[derive(Debug)]
pub(crate) struct LaneAnswer {
    pub(crate) approval: ApprovalId,
    pub(crate) reply: LaneReply,
    pub(crate) who: Principal,
    /// The session in which the answer was given.
    pub(crate) from: SessionKey,
    /// The channel through which it came.
    pub(crate) through: ChannelId,
    pub(crate) word: String,
    pub(crate) reply_to: Option<ReplyRoute>,
    /// Recognises a duplicate.
    pub(crate) sent: Option<Sent>,
    /// The node that has claimed the key of `sent`.
    pub(crate) claimed: Option<BootId>,
    /// The mail in the store, if another node has received it.
    pub(crate) forwarded: Option<MailId>,
    pub(crate) ack: AckSender,
}

/// The content of an answer.
#[derive(Debug)]
pub(crate) enum LaneReply {
    Decision(Decision),
    Secret(Secret),
    /// The answer to a form: its values as an object, or the text of a person.
    Form(Value),
    /// The results of calls that the client carries out.
    Client(Box<ClientAnswer>),
}

impl LaneReply {
    /// The record that recognises a duplicate of an answer. It has no digest for a secret.
    pub(crate) fn acted_on(&self, sent: Sent) -> ActedOn {
        match self {
            Self::Decision(_) | Self::Form(_) | Self::Client(_) => sent.into(),
            Self::Secret(_) => ActedOn { digest: None, ..sent.into() },
        }
    }
}

/// A waiting approval request, as the dispatcher knows it.
#[derive(Clone)]
pub(crate) struct PendingQuestion {
    pub(crate) approval: ApprovalId,
    pub(crate) run: RunId,
    pub(crate) session: SessionKey,
    /// The session in which it is asked. It differs from `session` for autonomous work.
    pub(crate) asked_in: SessionKey,
    /// Whether autonomous work asks, a run that another run has started, or a second person is asked. Such a question does
    /// not hold up the conversation in which it is asked.
    pub(crate) of_work: bool,
    /// Whether a second person is asked, after the first has approved.
    pub(crate) of_second: bool,
    pub(crate) asker: Asker,
    /// Whether a run that another run has started asks. Its run is not paused, and no lane takes the answer.
    pub(crate) in_place: bool,
    /// Whether the answer is yes or no; otherwise it is a secret, or the values of a form.
    pub(crate) decidable: bool,
    /// The form that a text fills in.
    pub(crate) form: Option<Arc<Form>>,
    /// Whether the client of the run is asked for results. No text of a person answers that.
    pub(crate) of_client: bool,
    pub(crate) summary: String,
}

impl PendingQuestion {
    /// The question of this request.
    pub(crate) fn of(approval: &ApprovalRequest) -> Self {
        Self {
            approval: approval.id,
            run: approval.run_id,
            session: approval.session.clone(),
            asked_in: approval.asked_in().clone(),
            of_work: approval.is_in_place() || approval.first_yes().is_some() || approval.present_place().is_some(),
            of_second: approval.first_yes().is_some(),
            in_place: approval.is_in_place(),
            asker: approval.asked_of().clone(),
            decidable: approval.kind.is_decidable(),
            form: approval.kind.form().filter(|form| !form.fields.is_empty()).map(|form| Arc::new(form.clone())),
            of_client: approval.kind.is_of_client(),
            summary: approval.summary.clone(),
        }
    }
}

/// A note from a lane to the dispatcher.
pub(crate) enum LaneNote {
    /// A message was committed, recognised as a duplicate, or refused.
    Settled { run: RunId, key: Option<IdempotencyKey>, outcome: Settled },
    /// A run has ended and its end is committed.
    Ended { run: RunId },
    /// A run of an earlier boot has been restored.
    Recovered { run: Arc<LiveRun> },
    /// The lane is open: all its unfinished runs are known.
    Opened { session: SessionKey },
    /// The session asks to be parked: `runs` of its runs wait, none of them has begun, and no wait permit is free. The
    /// lane starts no turn until `go_on` is answered. It ends when `go_on` and its mailbox are dropped.
    WantsParking { session: SessionKey, runs: usize, go_on: oneshot::Sender<()> },
    /// A run that an earlier task of the lane left is not in the store: it was never accepted.
    Lost { run: RunId },
    /// Another node owns the lane. These runs, which the dispatcher knows, are its own.
    Foreign { session: SessionKey, runs: Vec<RunId> },
    /// The lane has lost its lease, and its turn has ended. `mail`: the mail that it had not accepted, in order, before
    /// that in its mailbox.
    LeaseLost { session: SessionKey, mail: Vec<LaneMail>, mailbox: mpsc::Receiver<LaneMail> },
    /// Runs of sessions that no living node owns.
    Unfinished(Vec<UnfinishedRun>),
    /// Mail is in the store since `at`, for the node that owns its lane.
    Sent { id: MailId, at: UnixMillis, session: SessionKey, mail: Box<LaneMail> },
    /// A message that was sent to the owner of its lane is acknowledged.
    Elsewhere { run: Arc<LiveRun>, key: Option<IdempotencyKey>, outcome: Settled },
    /// Mail from other nodes, for lanes that this node owns or that no living node owns, in order.
    Routed(Vec<RoutedMail>),
    /// Open mail that a lane needs now. `handled`: the mail that does not go to the lane.
    Brought { mail: Vec<RoutedMail>, handled: oneshot::Sender<Vec<MailId>> },
    /// Work beside the lanes: the answer to mail of another node, or the end of what a run has left behind.
    Background(BoxFuture<'static, ()>),
    /// An answer to the question of a run that is paused in this session.
    Answer { session: SessionKey, answer: Box<LaneAnswer> },
    /// A run is paused on an approval request, or waits for it in its place.
    Paused(Box<PendingQuestion>),
    /// The run of this approval request continues.
    Resumed { approval: ApprovalId },
    /// No run waits in its place for this request any more. `withdraw`: it has no answer, and its run tree goes on.
    Unasked { approval: ApprovalId, withdraw: bool },
    /// Stops this run, because a newer message replaces it.
    Stop { run: Arc<LiveRun>, cause: StopCause },
    /// A freeze has ended.
    Thawed,
    /// Other nodes have begun these freezes.
    Frozen(Vec<Freeze>),
    /// A stop that another node was asked for.
    Ordered(Box<StopOrder>),
    /// The admission of this person was revoked.
    Removed { channel: ChannelId, id: String },
    /// A command or an answer was not acted on and may be sent again.
    NotActedOn { key: IdempotencyKey },
    /// A command was answered. `say`: the reply to the conversation.
    Commanded { session: SessionKey, say: Option<(ReplyRoute, String)> },
}

/// Mail from another node that is ready for its lane.
pub(crate) struct RoutedMail {
    pub(crate) id: MailId,
    pub(crate) session: SessionKey,
    /// The run of a message.
    pub(crate) run: Option<RunId>,
    /// See [`NodeMail::body`](belay_protocol::cluster::NodeMail::body).
    pub(crate) body: Value,
    /// The secret of an answer.
    pub(crate) secret: Option<Secret>,
    /// Whether the vault has a part of it, until it is answered.
    pub(crate) in_vault: bool,
}

/// The result of a message.
pub(crate) enum Settled {
    /// `frozen`: where the sender reads that a freeze keeps the run from beginning, and the line.
    Accepted {
        at: UnixMillis,
        frozen: Option<(ReplyRoute, String)>,
    },
    Known(KnownInput),
    Refused {
        refusal: Refusal,
        reply_to: Option<ReplyRoute>,
    },
}

/// The lane's side of its channels with the dispatcher.
pub(crate) struct LanePort {
    pub(crate) session: SessionKey,
    pub(crate) mail: mpsc::Receiver<LaneMail>,
    pub(crate) wake: Arc<Notify>,
    /// Set before `wake`, after the store has changed the conversation.
    pub(crate) stale: Arc<AtomicBool>,
    pub(crate) notes: mpsc::Sender<LaneNote>,
}
