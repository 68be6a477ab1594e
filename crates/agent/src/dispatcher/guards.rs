//! The guards that an inbound message passes before its lane, in order. A guard answers the message, and then it goes
//! no further, or lets it pass. A message that passes all guards is for the model.

use std::ops::ControlFlow;

use belay_protocol::inbound::{HistoryLine, HistoryRole};
use belay_protocol::{
    Ack, AckSender, ActedOn, Body, ChannelId, Control, DeclaredOutput, Envelope, HookPoint, Inbound, PrincipalRole,
    RESERVED_KEYS, Refusal, RunOptions, Sent, SessionOwner, beginning_of, is_own_channel,
};

use super::{Dispatcher, Flow};
use crate::claims::keep;
use crate::model_choice;
use crate::own_texts;
use crate::queue::MAX_TEXT_BYTES;
use crate::submission::{self, Change, Command, SettingCommand, Submission};
use belay_delegates::subagent::Declared;

/// The answer to an edit that makes a message a command.
const EDITED_COMMAND: &str = "A command in an edited message is not carried out. Send it as a new message.";

/// A message that passes the guards.
pub(super) struct Arrival {
    pub(super) inbound: Inbound,
    pub(super) ack: AckSender,
    pub(super) text: String,
    /// The key that identifies a redelivery.
    pub(super) sent: Option<Sent>,
    /// The request in the text.
    pub(super) submission: Submission,
}

/// The result of a guard: the message passes, or the guard has answered it.
pub(super) type Guarded = ControlFlow<Flow, Arrival>;

/// The message is answered, and the agent continues.
pub(super) const ANSWERED: Guarded = ControlFlow::Break(Flow::Continue);

/// A guard.
type Guard = fn(&mut Dispatcher, Arrival) -> Guarded;

/// The first guards, in the order in which a message passes them.
const FIRST_GUARDS: &[Guard] = &[
    Dispatcher::refuse_unreadable,
    Dispatcher::first_delivery, // before everything that has an effect
    Dispatcher::begin_own_work, // before the text may be an edit, an answer or a command
    Dispatcher::refuse_revoked,
    Dispatcher::refuse_in_sessions_of_work,
    Dispatcher::refuse_in_sessions_of_others,
    Dispatcher::take_edit,
    Dispatcher::take_answer,
];

/// The guards after the one that takes answers.
pub(super) const GUARDS: &[Guard] = &[
    Dispatcher::refuse_while_frozen,
    Dispatcher::refuse_while_draining, // after answers, which a paused run may still receive
    Dispatcher::refuse_unknown_model,
    Dispatcher::refuse_callback,
    Dispatcher::refuse_files_of_commands,
    Dispatcher::carry_out_command,
    Dispatcher::refuse_outputs,
    Dispatcher::trigger_routines,
];

impl Dispatcher {
    /// Routes one inbound message.
    pub(crate) fn route(&mut self, envelope: Envelope) -> Flow {
        let Some(Envelope { inbound, ack }) = self.hold_back(envelope) else { return Flow::Continue };
        let inbound = inbound.with_author();
        let ack = self.checked_ack(&inbound, ack);
        let text = match &inbound.body {
            Body::Control(control) => {
                // Work is reported in the session that asked for it.
                if matches!(control, Control::Job(_) | Control::Routine(_))
                    && let Some(refusal) = self.is_closed_to(&inbound)
                {
                    self.refuse(&inbound, ack, refusal);
                    return Flow::Continue;
                }
                return self.control(control.clone(), &inbound, ack);
            }
            Body::Text(text) | Body::Edit(text) => text.clone(),
        };
        let submission = if is_order(&inbound) {
            submission::parse_with(&text, &self.services.context.known_skills())
        } else {
            Submission::Input
        };
        let mut message = Arrival { sent: Sent::of(&inbound), inbound, ack, text, submission };
        for guard in FIRST_GUARDS {
            match guard(self, message) {
                ControlFlow::Continue(passed) => message = passed,
                ControlFlow::Break(flow) => return flow,
            }
        }
        self.pass(message, GUARDS)
    }

    /// Lets a message pass these guards, and then sends it to its lane.
    pub(super) fn pass(&mut self, mut message: Arrival, guards: &[Guard]) -> Flow {
        for guard in guards {
            match guard(self, message) {
                ControlFlow::Continue(passed) => message = passed,
                ControlFlow::Break(flow) => return flow,
            }
        }
        if let Submission::Skill(text) = &message.submission {
            message.inbound.history.push(HistoryLine { role: HistoryRole::System, text: text.clone() });
        }
        self.input(message);
        Flow::Continue
    }

    /// The acknowledgement of a message whose sender reads the answer to a command in it: hooks check that answer. On
    /// other channels they check the delivery.
    fn checked_ack(&mut self, inbound: &Inbound, ack: AckSender) -> AckSender {
        if inbound.reply_to.is_some() || !self.services.hooks.is_bound(HookPoint::MessageSending) {
            return ack;
        }
        let (inner, answer) = AckSender::channel();
        let (hooks, session, channel) = (self.services.hooks.clone(), inbound.session.clone(), inbound.channel.clone());
        self.background(async move {
            match answer.await {
                Ok(Ack::Command(reply)) => {
                    ack.send(Ack::Command(own_texts::checked_reply(&hooks, &session, &channel, reply).await));
                }
                Ok(other) => ack.send(other),
                Err(_) => drop(ack), // nothing was accepted
            }
        });
        inner
    }

    /// Refuses a message.
    pub(super) fn refused(&self, message: Arrival, refusal: Refusal) -> Guarded {
        self.refuse(&message.inbound, message.ack, refusal);
        ANSWERED
    }

    fn refuse_unreadable(&mut self, message: Arrival) -> Guarded {
        let text = &message.text;
        if text.trim().is_empty() || text.contains('\0') || text.len() > MAX_TEXT_BYTES {
            let what =
                format!("a message must have text, at most {MAX_TEXT_BYTES} bytes of it, without NUL characters");
            return self.refused(message, Refusal::Invalid(what));
        }
        Guarded::Continue(message)
    }

    /// Accepts autonomous work. It answers no question, and continues during the drain.
    fn begin_own_work(&mut self, message: Arrival) -> Guarded {
        if !message.inbound.work.is_autonomous() {
            return Guarded::Continue(message);
        }
        self.input(message);
        ANSWERED
    }

    /// Refuses a message of a person whose admission was revoked while the message was on its way, as while its file was
    /// fetched.
    fn refuse_revoked(&mut self, message: Arrival) -> Guarded {
        let Inbound { channel, principal, reply_to, .. } = &message.inbound;
        let conversation = reply_to.as_ref().map(|route| &*route.conversation);
        if !self.is_revoked(channel, &principal.id, conversation) {
            return Guarded::Continue(message);
        }
        self.refused(message, Refusal::Forbidden("you have no access here any more".to_owned()))
    }

    /// Refuses messages of others in the session of a job or a routine run. Its lane can be stopped and watched like
    /// any other.
    fn refuse_in_sessions_of_work(&mut self, message: Arrival) -> Guarded {
        let what = match SessionOwner::of(&message.inbound.session) {
            Some(SessionOwner::Job(job)) => {
                format!("a job runs in this session; send it a message with /job {job} TEXT")
            }
            Some(SessionOwner::RoutineRun(_)) => {
                "a routine runs in this session, which accepts no other messages".to_owned()
            }
            None => return Guarded::Continue(message),
        };
        self.refused(message, Refusal::Forbidden(what))
    }

    /// Refuses messages of programs in the sessions of people and of Belay itself. Their words would stand there as those
    /// of a person, and their commands would act there.
    fn refuse_in_sessions_of_others(&mut self, message: Arrival) -> Guarded {
        match self.is_closed_to(&message.inbound) {
            Some(refusal) => self.refused(message, refusal),
            None => Guarded::Continue(message),
        }
    }

    /// The refusal of a message whose session belongs to another channel than its own. Operators may write everywhere.
    fn is_closed_to(&self, inbound: &Inbound) -> Option<Refusal> {
        let Inbound { channel, session, principal, work, .. } = inbound;
        if principal.is_operator() || work.is_autonomous() || is_own_channel(channel) {
            return None;
        }
        let owner = beginning_of(session);
        // Also the channels that are off: their people find the session when they are on again.
        let is_reserved =
            RESERVED_KEYS.contains(&&*owner) || self.services.jobs.access.has_channel(&ChannelId::new(&owner));
        (is_reserved && owner != channel.as_str()).then(|| {
            Refusal::Forbidden(format!(
                "the session {session} belongs to {owner}, and only operators write to it from elsewhere; choose a key of your own, \
                 such as client or client:1, that does not begin with {}",
                RESERVED_KEYS.join(", ")
            ))
        })
    }

    /// Accepts the edit of an earlier message. The lane knows whether that message still waits. An edit is never a
    /// command or an answer to a question.
    fn take_edit(&mut self, message: Arrival) -> Guarded {
        if !matches!(message.inbound.body, Body::Edit(_)) {
            return Guarded::Continue(message);
        }
        if self.services.draining.is_cancelled() {
            return self.refused(message, Refusal::ShuttingDown);
        }
        if message.submission != Submission::Input {
            return self.refused(message, Refusal::Invalid(EDITED_COMMAND.to_owned()));
        }
        self.input(message);
        ANSWERED
    }

    /// Refuses work for a lane during the drain.
    fn refuse_while_draining(&mut self, message: Arrival) -> Guarded {
        let for_lane = message.submission.is_input()
            || matches!(
                message.submission,
                Submission::Command(Command::Thread(_) | Command::Setting(_) | Command::Plan(_) | Command::Goal(_))
            );
        if for_lane && self.services.draining.is_cancelled() {
            self.refused(message, Refusal::ShuttingDown)
        } else {
            Guarded::Continue(message)
        }
    }

    /// Refuses a message or a `/model` command that names an unknown model. Otherwise another model would answer
    /// without notice.
    fn refuse_unknown_model(&mut self, message: Arrival) -> Guarded {
        let Some(options) = options_of(&message) else { return Guarded::Continue(message) };
        let model = options.model.as_deref();
        match model.map_or(Ok(()), |model| model_choice::check(model, &*self.services.run.model)) {
            Ok(()) => Guarded::Continue(message),
            // A message names the model in a field; a person who writes a command does not.
            Err(what) if message.submission.is_input() => {
                self.refused(message, Refusal::Invalid(format!("model: {what}")))
            }
            Err(what) => self.refused(message, Refusal::Invalid(what)),
        }
    }

    /// Refuses an address for callbacks that cannot be used, or that a person on a platform gives: it would post what
    /// others write in a group.
    fn refuse_callback(&mut self, message: Arrival) -> Guarded {
        let Some(url) = options_of(&message).and_then(|options| options.callback_url.as_deref()) else {
            return Guarded::Continue(message);
        };
        if message.inbound.principal.role == PrincipalRole::User {
            let what = "callback_url: only a program with an API token may give one".to_owned();
            return self.refused(message, Refusal::Forbidden(what));
        }
        let checked = match &self.services.callbacks {
            Some(callbacks) => callbacks.check(url),
            None => Err("callbacks are signed with the secret of the webhook, and none is set; see \
                         gateway.webhook_secret_env"
                .to_owned()),
        };
        match checked {
            Ok(()) => Guarded::Continue(message),
            Err(why) => self.refused(message, Refusal::Invalid(format!("callback_url: {why}"))),
        }
    }

    /// Refuses a command with files, which nothing would read.
    fn refuse_files_of_commands(&mut self, message: Arrival) -> Guarded {
        let has_files =
            message.inbound.provenance.as_ref().is_some_and(|provenance| !provenance.attachments.is_empty());
        if has_files && !message.submission.is_input() {
            let what = "attachments: a command takes no files; send them with a message that is no command".to_owned();
            return self.refused(message, Refusal::Invalid(what));
        }
        Guarded::Continue(message)
    }

    /// Carries out a command, and refuses an unknown word that looks like one.
    fn carry_out_command(&mut self, message: Arrival) -> Guarded {
        if message.submission.is_input() {
            return Guarded::Continue(message);
        }
        let message = self.first_command(message)?;
        let (word, nearest) = match &message.submission {
            Submission::Command(command) if self.services.cluster.is_some() && !stores_its_key(command) => {
                let message = self.claim_first(message)?;
                return ControlFlow::Break(self.carry_out(message));
            }
            Submission::Command(_) => return ControlFlow::Break(self.carry_out(message)),
            Submission::Unknown { word, nearest } => (word.clone(), *nearest),
            Submission::Input
            | Submission::Plan(_)
            | Submission::Goal(_)
            | Submission::Skill(_)
            | Submission::Repeat(_) => {
                return Guarded::Continue(message);
            }
        };
        let reply = format!("There is no command {word}. Did you mean {nearest}? /help all lists them all.");
        self.answer(&message.inbound, message.ack, &word, Err(reply));
        ANSWERED
    }

    /// Carries out a command whose key is claimed, as far as it must be.
    pub(super) fn carry_out(&mut self, message: Arrival) -> Flow {
        let Arrival { inbound, ack, text, sent, submission } = message;
        let Submission::Command(command) = submission else { return Flow::Continue };
        self.services.hooks.command(&inbound, &submission::word_of(&text), &text);
        let acted_on = sent.clone().filter(|_| !stores_its_key(&command)).map(ActedOn::from);
        let flow = self.command(command, &text, sent, inbound, ack);
        self.keep_key(acted_on);
        flow
    }

    /// Refuses declared outputs that a run cannot produce.
    fn refuse_outputs(&mut self, message: Arrival) -> Guarded {
        if matches!(message.submission, Submission::Plan(_)) && !message.inbound.outputs.is_empty() {
            let what = "outputs: a plan ends with a summary and cannot submit outputs; send the request without /plan"
                .to_owned();
            return self.refused(message, Refusal::Invalid(what));
        }
        match Declared::compile(outputs_of(&message.inbound, &message.submission)) {
            Ok(_) => Guarded::Continue(message),
            Err(problems) => self.refused(message, Refusal::Invalid(format!("outputs: {problems}"))),
        }
    }

    /// Stores the key of a command that acted at once, in a background task. If that fails, a redelivery after a restart is
    /// carried out again.
    fn keep_key(&mut self, acted_on: Option<ActedOn>) {
        let Some(acted_on) = acted_on else { return };
        let Some(refused) = self.keys.refused(&acted_on.key) else { return };
        let acted_on = ActedOn { refused, ..acted_on };
        let services = self.services.clone();
        self.background(async move { keep(&services, acted_on).await });
    }
}

/// Whether the lane, background task or answer that carries out the command claims and stores its key.
fn stores_its_key(command: &Command) -> bool {
    matches!(
        command,
        Command::Decide(..)
            | Command::Thread(_)
            | Command::Setting(_)
            | Command::Plan(_)
            | Command::Goal(_)
            | Command::Job(_)
            | Command::Routine(_)
            | Command::Tools(_)
            | Command::Memory(_)
            | Command::People(_)
    )
}

/// The outputs that the run of a message must submit: its own, and those of its goal.
fn outputs_of(inbound: &Inbound, submission: &Submission) -> Vec<DeclaredOutput> {
    let of_goal = match submission {
        Submission::Goal(request) => request.outputs(),
        _ => Vec::new(),
    };
    inbound.outputs.iter().cloned().chain(of_goal).collect()
}

/// The options that a message sets for its run or its session.
fn options_of(message: &Arrival) -> Option<&RunOptions> {
    match &message.submission {
        Submission::Command(Command::Setting(SettingCommand { change: Change::To(options), .. })) => Some(options),
        submission if submission.is_input() => Some(&message.inbound.options),
        _ => None,
    }
}

/// Whether the text of a message may be a command. The text of autonomous work, a relayed text and a request for plain
/// text may not.
fn is_order(inbound: &Inbound) -> bool {
    !inbound.work.is_autonomous() && !inbound.is_relayed() && !inbound.options.text_only
}
