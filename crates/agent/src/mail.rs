//! The messages between the dispatcher and the lanes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use belay_protocol::{
    AckSender, ActedOn, ApprovalId, ApprovalKind, ApprovalRequest, Asker, ChannelId, Decision, IdempotencyKey, Inbound,
    KnownInput, Principal, Refusal, ReplyRoute, RunId, Secret, Sent, SessionKey, UnixMillis,
};
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

/// A message for the model. Its text is separate from the rest.
pub(crate) struct LaneInput {
    pub(crate) run: Arc<LiveRun>,
    pub(crate) inbound: Inbound,
    pub(crate) text: String,
    /// Recognises a duplicate, if the message has a key. `text` may differ from the text as received.
    pub(crate) sent: Option<Sent>,
    /// Set for a message that replaces the last turn. The lane sets the text then.
    pub(crate) repeat: Option<Repeat>,
    pub(crate) ack: AckSender,
}

/// A command for the lane.
pub(crate) struct LaneCommand {
    pub(crate) session: SessionKey,
    pub(crate) order: LaneOrder,
    /// The sender of the command.
    pub(crate) origin: RunOrigin,
    pub(crate) word: String,
    pub(crate) reply_to: Option<ReplyRoute>,
    /// Recognises a duplicate.
    pub(crate) sent: Option<Sent>,
    pub(crate) ack: AckSender,
}

/// The kind of a command.
#[derive(Clone)]
pub(crate) enum LaneOrder {
    /// A change of the thread.
    Thread(ThreadCommand),
    /// A change of the options of the session.
    Setting(SettingCommand),
}

/// An answer to an approval request.
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
    pub(crate) ack: AckSender,
}

/// The content of an answer.
pub(crate) enum LaneReply {
    Decision(Decision),
    Secret(Secret),
}

impl LaneReply {
    /// The record that recognises a duplicate of an answer. It has no digest for a secret.
    pub(crate) fn acted_on(&self, sent: Sent) -> ActedOn {
        match self {
            Self::Decision(_) => sent.into(),
            Self::Secret(_) => ActedOn { digest: None, ..sent.into() },
        }
    }
}

/// A waiting approval request, as the dispatcher knows it.
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
    /// Whether the answer is yes or no; otherwise it is a secret.
    pub(crate) decidable: bool,
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
            decidable: approval.kind == ApprovalKind::Approval,
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
    /// The admission of this person was revoked.
    Removed { channel: ChannelId, id: String },
    /// A command or an answer was not acted on and may be sent again.
    NotActedOn { key: IdempotencyKey },
    /// A command was answered. `say`: the reply to the conversation.
    Commanded { session: SessionKey, say: Option<(ReplyRoute, String)> },
}

/// The result of a message.
pub(crate) enum Settled {
    /// `held`: where the sender reads that a freeze keeps the run from beginning.
    Accepted {
        at: UnixMillis,
        held: Option<ReplyRoute>,
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
