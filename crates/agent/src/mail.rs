//! What dispatcher and lanes say to each other.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use belay_protocol::{
    AckSender, ActedOn, ApprovalId, Asker, Decision, IdempotencyKey, Inbound, KnownInput, Principal, Refusal,
    ReplyRoute, RunId, Secret, Sent, SessionKey, UnixMillis,
};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::submission::{SettingCommand, ThreadCommand};
use belay_run::live::{LiveRun, RunOrigin, StopCause};

/// What the dispatcher puts into a lane's mailbox.
pub(crate) enum LaneMail {
    /// A message for the model.
    Input(Box<LaneInput>),
    /// A command that changes the thread or what the session asks for, in order with the messages.
    Command(Box<LaneCommand>),
    /// An answer to the question that a run of the lane is paused on.
    Answer(Box<LaneAnswer>),
}

/// A message for the model, with its text apart from the rest.
pub(crate) struct LaneInput {
    pub(crate) run: Arc<LiveRun>,
    pub(crate) inbound: Inbound,
    pub(crate) text: String,
    /// What tells a second delivery from another message, where there is a key: `text` may be made of what was sent.
    pub(crate) sent: Option<Sent>,
    pub(crate) ack: AckSender,
}

/// A command for the lane.
pub(crate) struct LaneCommand {
    pub(crate) session: SessionKey,
    pub(crate) order: LaneOrder,
    /// Who gives it.
    pub(crate) origin: RunOrigin,
    pub(crate) word: String,
    pub(crate) reply_to: Option<ReplyRoute>,
    /// What makes a second delivery recognisable.
    pub(crate) sent: Option<Sent>,
    pub(crate) ack: AckSender,
}

/// What a command is about.
#[derive(Clone)]
pub(crate) enum LaneOrder {
    /// The thread.
    Thread(ThreadCommand),
    /// What the session asks of all its runs.
    Setting(SettingCommand),
}

/// An answer to a question.
pub(crate) struct LaneAnswer {
    pub(crate) approval: ApprovalId,
    pub(crate) reply: LaneReply,
    pub(crate) who: Principal,
    /// The session that it was given in.
    pub(crate) from: SessionKey,
    pub(crate) word: String,
    pub(crate) reply_to: Option<ReplyRoute>,
    /// What makes a second delivery recognisable.
    pub(crate) sent: Option<Sent>,
    pub(crate) ack: AckSender,
}

/// What was answered.
pub(crate) enum LaneReply {
    Decision(Decision),
    Secret(Secret),
}

impl LaneReply {
    /// What is kept of an answer to recognise its second delivery: of a secret, no digest.
    pub(crate) fn acted_on(&self, sent: Sent) -> ActedOn {
        match self {
            Self::Decision(_) => sent.into(),
            Self::Secret(_) => ActedOn { digest: None, ..sent.into() },
        }
    }
}

/// A question that waits, as the dispatcher knows it.
pub(crate) struct PendingQuestion {
    pub(crate) approval: ApprovalId,
    pub(crate) run: RunId,
    pub(crate) session: SessionKey,
    pub(crate) asker: Asker,
    /// A yes or no; else a secret.
    pub(crate) decidable: bool,
    pub(crate) summary: String,
}

/// What a lane tells the dispatcher.
pub(crate) enum LaneNote {
    /// A message has been committed, recognised, or refused.
    Settled { run: RunId, key: Option<IdempotencyKey>, outcome: Settled },
    /// A run has ended and its end is committed.
    Ended { run: RunId },
    /// A run of an earlier boot has been restored.
    Recovered { run: Arc<LiveRun> },
    /// The lane is open: everything that was unfinished in it is known.
    Opened { session: SessionKey },
    /// So many runs of the session wait, none of them has begun, and there is no seat: the lane does nothing until `go_on` is
    /// answered, and ends when that and its mailbox are dropped.
    WantsParking { session: SessionKey, runs: usize, go_on: oneshot::Sender<()> },
    /// A run that an earlier task of the lane left behind is unknown to the store: it was never accepted.
    Lost { run: RunId },
    /// A run is paused on a question, which is stored.
    Paused(Box<PendingQuestion>),
    /// The run continues.
    Resumed { approval: ApprovalId },
    /// This run is to stop: a newer message takes its place.
    Stop { run: Arc<LiveRun>, cause: StopCause },
    /// A command or an answer was not acted on, for now: it may be given again.
    NotActedOn { key: IdempotencyKey },
    /// A command has been answered; the reply is for the conversation.
    Commanded { session: SessionKey, say: Option<(ReplyRoute, String)> },
}

/// What became of a message.
pub(crate) enum Settled {
    Accepted { at: UnixMillis },
    Known(KnownInput),
    Refused { refusal: Refusal, reply_to: Option<ReplyRoute> },
}

/// A lane's two ends with the dispatcher.
pub(crate) struct LanePort {
    pub(crate) session: SessionKey,
    pub(crate) mail: mpsc::Receiver<LaneMail>,
    pub(crate) wake: Arc<Notify>,
    /// Set before `wake`, where the store has put something into the conversation.
    pub(crate) stale: Arc<AtomicBool>,
    pub(crate) notes: mpsc::Sender<LaneNote>,
}
