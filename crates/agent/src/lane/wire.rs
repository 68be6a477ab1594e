//! The form in which mail for a lane goes to another node, and its acknowledgement comes back: JSON in the table of mail.
//!
//! A secret never goes this way: the vault of the session has it under a name that the mail tells.

use std::sync::Arc;

use belay_protocol::inbound::HistoryLine;
use belay_protocol::{
    Accepted, Ack, AckSender, ApprovalId, Body, BootId, ChannelId, ClientAnswer, CommandReply, Decision,
    DeclaredOutput, GoalCommand, IdempotencyKey, Inbound, MailId, Principal, Provenance, Refusal, Removed, ReplyRoute,
    RunId, RunOptions, Secret, Sent, SessionKey, SessionLifetime, UnixMillis, Work, WorkSource,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::mail::{LaneAnswer, LaneCommand, LaneInput, LaneMail, LaneOrder, LaneReply, PlanOrder};
use crate::submission::{Repeat, SettingCommand, ThreadCommand};
use belay_run::live::{LiveRun, RunOrigin};

/// Mail for a lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WireMail {
    /// See [`LaneMail::Input`].
    Input(Box<WireInput>),
    /// See [`LaneMail::Command`].
    Command(Box<WireCommand>),
    /// See [`LaneMail::Answer`].
    Answer(Box<WireAnswer>),
    /// A message that may be a secret. The vault has its JSON under the name of the mail's secret.
    Sealed,
}

/// A message for the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WireInput {
    pub(crate) run: RunId,
    channel: ChannelId,
    pub(crate) session: SessionKey,
    work: Work,
    source: Option<WorkSource>,
    lifetime: SessionLifetime,
    principal: Principal,
    key: Option<IdempotencyKey>,
    reply_to: Option<ReplyRoute>,
    body: WireBody,
    history: Vec<HistoryLine>,
    want_deltas: bool,
    only_now: bool,
    outputs: Vec<DeclaredOutput>,
    relayed: bool,
    provenance: Option<Provenance>,
    options: RunOptions,
    text: String,
    sent: Option<Sent>,
    repeat: Option<Repeat>,
    checked: bool,
}

/// The text as it was received.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireBody {
    Text(String),
    Edit(String),
}

/// A command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WireCommand {
    session: SessionKey,
    order: WireOrder,
    work: Work,
    source: Option<WorkSource>,
    channel: ChannelId,
    principal: Arc<str>,
    word: String,
    reply_to: Option<ReplyRoute>,
    pub(crate) sent: Option<Sent>,
    claimed: Option<BootId>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireOrder {
    Thread(ThreadCommand),
    Setting(SettingCommand),
    Plan(PlanOrder),
    Goal(GoalCommand),
}

/// An answer to an approval request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WireAnswer {
    approval: ApprovalId,
    pub(crate) reply: WireReply,
    who: Principal,
    from: SessionKey,
    through: ChannelId,
    word: String,
    reply_to: Option<ReplyRoute>,
    pub(crate) sent: Option<Sent>,
    claimed: Option<BootId>,
}

/// The content of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WireReply {
    Decision(Decision),
    /// A secret, which the vault has under the name of the mail's secret.
    Secret,
    Form(serde_json::Value),
    /// The results of calls that the client carries out.
    Client(Box<ClientAnswer>),
}

impl WireMail {
    /// The form of this mail; `None`: it is a control message, which no lane gets.
    pub(crate) fn of(mail: &LaneMail) -> Option<Self> {
        Some(match mail {
            LaneMail::Input(input) => Self::Input(Box::new(WireInput::of(input)?)),
            LaneMail::Command(command) => Self::Command(Box::new(WireCommand::of(command))),
            LaneMail::Answer(answer) => Self::Answer(Box::new(WireAnswer::of(answer))),
        })
    }

    /// The mail, as the owner of the lane handles it. `secret`: that of an answer, read from the vault. `None`: it is
    /// sealed.
    pub(crate) fn into_mail(self, forwarded: MailId, secret: Option<Secret>, ack: AckSender) -> Option<LaneMail> {
        Some(match self {
            Self::Input(input) => LaneMail::Input(Box::new(input.into_input(forwarded, ack))),
            Self::Command(command) => LaneMail::Command(Box::new(command.into_command(forwarded, ack))),
            Self::Answer(answer) => LaneMail::Answer(Box::new(answer.into_answer(forwarded, secret, ack))),
            Self::Sealed => return None,
        })
    }

    /// The mail in this JSON.
    pub(crate) fn of_json(body: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(body)
    }

    /// Whose message it is; `None`: it is none, or is sealed.
    pub(crate) fn origin(&self) -> Option<RunOrigin> {
        match self {
            Self::Input(input) => Some(RunOrigin {
                work: input.work,
                source: input.source.clone().map(Arc::new),
                channel: input.channel.clone(),
                principal: input.principal.id.clone(),
            }),
            Self::Command(_) | Self::Answer(_) | Self::Sealed => None,
        }
    }

    /// Whether it, or the secret of an answer, is in the vault.
    pub(crate) fn is_in_vault(&self) -> bool {
        match self {
            Self::Answer(answer) => answer.reply == WireReply::Secret,
            Self::Sealed => true,
            Self::Input(_) | Self::Command(_) => false,
        }
    }
}

impl WireInput {
    fn of(input: &LaneInput) -> Option<Self> {
        let LaneInput { run, inbound, text, sent, repeat, checked, forwarded: _, ack: _ } = input;
        let Inbound {
            channel,
            session,
            work,
            source,
            lifetime,
            principal,
            key,
            reply_to,
            body,
            history,
            want_deltas,
            only_now,
            outputs,
            relayed,
            provenance,
            options,
        } = inbound.clone();
        let body = match body {
            Body::Text(text) => WireBody::Text(text),
            Body::Edit(text) => WireBody::Edit(text),
            Body::Control(_) => return None,
        };
        Some(Self {
            run: run.id,
            channel,
            session,
            work,
            source: source.map(|source| WorkSource::clone(&source)),
            lifetime,
            principal,
            key,
            reply_to,
            body,
            history,
            want_deltas,
            only_now,
            outputs,
            relayed,
            provenance: provenance.map(|provenance| Provenance::clone(&provenance)),
            options,
            text: text.clone(),
            sent: sent.clone(),
            repeat: repeat.clone(),
            checked: *checked,
        })
    }

    fn into_input(self, forwarded: MailId, ack: AckSender) -> LaneInput {
        let inbound = Inbound {
            channel: self.channel,
            session: self.session,
            work: self.work,
            source: self.source.map(Arc::new),
            lifetime: self.lifetime,
            principal: self.principal,
            key: self.key,
            reply_to: self.reply_to,
            body: match self.body {
                WireBody::Text(text) => Body::Text(text),
                WireBody::Edit(text) => Body::Edit(text),
            },
            history: self.history,
            want_deltas: self.want_deltas,
            only_now: self.only_now,
            outputs: self.outputs,
            relayed: self.relayed,
            provenance: self.provenance.map(Arc::new),
            options: self.options,
        };
        let run = LiveRun::new(self.run, inbound.session.clone(), RunOrigin::of(&inbound), inbound.want_deltas);
        let (text, sent, repeat, checked) = (self.text, self.sent, self.repeat, self.checked);
        LaneInput { run, inbound, text, sent, repeat, checked, forwarded: Some(forwarded), ack }
    }
}

impl WireCommand {
    fn of(command: &LaneCommand) -> Self {
        let LaneCommand { session, order, origin, word, reply_to, sent, claimed, forwarded: _, ack: _ } = command;
        let RunOrigin { work, source, channel, principal } = origin.clone();
        Self {
            session: session.clone(),
            order: match order.clone() {
                LaneOrder::Thread(command) => WireOrder::Thread(command),
                LaneOrder::Setting(command) => WireOrder::Setting(command),
                LaneOrder::Plan(order) => WireOrder::Plan(order),
                LaneOrder::Goal(command) => WireOrder::Goal(command),
            },
            work,
            source: source.map(|source| WorkSource::clone(&source)),
            channel,
            principal,
            word: word.clone(),
            reply_to: reply_to.clone(),
            sent: sent.clone(),
            claimed: *claimed,
        }
    }

    fn into_command(self, forwarded: MailId, ack: AckSender) -> LaneCommand {
        let source = self.source.map(Arc::new);
        let origin = RunOrigin { work: self.work, source, channel: self.channel, principal: self.principal };
        LaneCommand {
            session: self.session,
            order: match self.order {
                WireOrder::Thread(command) => LaneOrder::Thread(command),
                WireOrder::Setting(command) => LaneOrder::Setting(command),
                WireOrder::Plan(order) => LaneOrder::Plan(order),
                WireOrder::Goal(command) => LaneOrder::Goal(command),
            },
            origin,
            word: self.word,
            reply_to: self.reply_to,
            sent: self.sent,
            claimed: self.claimed,
            forwarded: Some(forwarded),
            ack,
        }
    }
}

impl WireAnswer {
    fn of(answer: &LaneAnswer) -> Self {
        let LaneAnswer { approval, reply, who, from, through, word, reply_to, sent, claimed, forwarded: _, ack: _ } =
            answer;
        Self {
            approval: *approval,
            reply: match reply {
                LaneReply::Decision(decision) => WireReply::Decision(*decision),
                LaneReply::Secret(_) => WireReply::Secret,
                LaneReply::Form(answer) => WireReply::Form(answer.clone()),
                LaneReply::Client(answer) => WireReply::Client(answer.clone()),
            },
            who: who.clone(),
            from: from.clone(),
            through: through.clone(),
            word: word.clone(),
            reply_to: reply_to.clone(),
            sent: sent.clone(),
            claimed: *claimed,
        }
    }

    /// Without its secret it denies: nobody may be told that a secret was stored that is not there.
    fn into_answer(self, forwarded: MailId, secret: Option<Secret>, ack: AckSender) -> LaneAnswer {
        let reply = match (self.reply, secret) {
            (WireReply::Decision(decision), _) => LaneReply::Decision(decision),
            (WireReply::Form(answer), _) => LaneReply::Form(answer),
            (WireReply::Client(answer), _) => LaneReply::Client(answer),
            (WireReply::Secret, Some(secret)) => LaneReply::Secret(secret),
            (WireReply::Secret, None) => LaneReply::Decision(Decision::Deny),
        };
        LaneAnswer {
            approval: self.approval,
            reply,
            who: self.who,
            from: self.from,
            through: self.through,
            word: self.word,
            reply_to: self.reply_to,
            sent: self.sent,
            claimed: self.claimed,
            forwarded: Some(forwarded),
            ack,
        }
    }
}

/// An acknowledgement that a lane gives. A watch does not leave its node: the sender follows the run in the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WireAck {
    /// See [`Ack::Accepted`].
    Accepted {
        run: RunId,
        session: SessionKey,
        /// Milliseconds since 1970: the usual form of a date is for readers, and is not read back.
        at: i64,
        duplicate: bool,
        frozen: Option<String>,
    },
    /// See [`Ack::Command`].
    Command(CommandReply),
    /// See [`Ack::Removed`].
    Removed(Removed),
    /// See [`Ack::Refused`].
    Refused(Refusal),
}

impl WireAck {
    /// The form of an acknowledgement; `None`: no lane gives it.
    pub(crate) fn of(ack: Ack) -> Option<Self> {
        Some(match ack {
            Ack::Accepted(Accepted { run_id: run, session, accepted_at, duplicate, frozen, watch: _ }) => {
                Self::Accepted { run, session, at: accepted_at.0, duplicate, frozen }
            }
            Ack::Command(reply) => Self::Command(reply),
            Ack::Removed(removed) => Self::Removed(removed),
            Ack::Refused(refusal) => Self::Refused(refusal),
            _ => return None,
        })
    }

    /// The acceptance of a message that a lane has not accepted before.
    pub(crate) fn accepted(run: RunId, session: SessionKey, at: UnixMillis, frozen: Option<&str>) -> Self {
        Self::Accepted { run, session, at: at.0, duplicate: false, frozen: frozen.map(str::to_owned) }
    }

    /// The acknowledgement for the sender.
    pub(crate) fn into_ack(self) -> Ack {
        match self {
            Self::Accepted { run: run_id, session, at, duplicate, frozen } => {
                let accepted_at = UnixMillis(at);
                Ack::Accepted(Accepted { run_id, session, accepted_at, duplicate, frozen, watch: None })
            }
            Self::Command(reply) => Ack::Command(reply),
            Self::Removed(removed) => Ack::Removed(removed),
            Self::Refused(refusal) => Ack::Refused(refusal),
        }
    }
}

#[cfg(test)]
mod tests;
