//! A lane: one task for each active session. It owns the session, takes its mail in order, runs one turn at a time, and
//! commits the results.
//!
//! A lane does not end on its own when it is idle: the dispatcher retires it by dropping its sender, and the lane
//! empties its mailbox first. During a turn the lane still takes mail: it commits and acknowledges new messages and
//! keeps them for the next turn. Runs that wait for approval are in [`pause`]. On drain, the lane finishes the running
//! turn and leaves the queued runs, which are in the store, to the next start. In a cluster it is released then, so that
//! another node continues them at once.

mod accept;
mod anew;
mod answer;
mod client_calls;
mod compact;
mod conversations;
mod edit;
mod ends;
mod first;
mod goal;
mod next;
mod opening;
mod pause;
mod place;
mod plan;
mod port;
mod receive;
mod remote;
mod repeat;
mod settings;
mod state;
mod wire;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use belay_protocol::{EditOutcome, Lease, Message, Refusal, RunId, RunOptions, StoreError, ThreadEdit, UnixMillis};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use self::compact::{Compacting, Compaction, compacted};
use self::next::{Parking, may_go_on};
use self::place::Taken;
use self::plan::PlanCommands;
use self::port::{note, refuse_mail};
use self::receive::{Receiving, looked_at};
use self::state::LaneState;
use crate::agent_services::AgentServices;
use crate::mail::{LaneCommand, LaneMail, LaneNote, LaneOrder, LanePort};
use crate::queued_run::QueuedRun;
use crate::submission::ThreadCommand;
use crate::turn::TurnEnd;
use belay_run::estimate::Calibration;
use belay_run::prompt::Briefing;

pub(crate) use self::opening::{LaneStart, run_lane};
pub(crate) use self::remote::{OPEN_MAX, is_message, mail_of, unpack, wait_for_answer};
pub(crate) use self::wire::{WireAck, WireMail};

/// Time in which a turn must return after it was told to stop. After it, the turn is aborted, and only its stored
/// messages remain.
const RETURN_LIMIT: Duration = Duration::from_secs(30);
/// Maximum number of messages and commands that the lane holds back while hooks check the message before them. Beyond
/// it, mail stays in the mailbox, also the answers to approval requests.
const HELD: usize = 64;

struct Lane {
    services: Arc<AgentServices>,
    port: LanePort,
    lease: Lease,
    summary: Option<String>,
    /// The messages of the thread; lent to the running turn.
    messages: Vec<Arc<Message>>,
    queue: VecDeque<QueuedRun>,
    state: LaneState,
    /// The message that hooks are checking.
    receiving: Option<Receiving>,
    /// Ratio of the provider's token count to the local estimate, as measured so far.
    calibration: Calibration,
    /// Whether the store had the skills of the conversation when the lane read it.
    has_skills: bool,
    /// Whether the thread has no message yet.
    fresh: bool,
    /// The instructions among the messages that were lent to the running turn.
    instructions: Vec<String>,
    /// Number of history messages that the client sent along with the message of the running turn.
    brought: usize,
    /// Whether loop detection is enabled in this session.
    loop_detection: bool,
    /// The options of the session for its runs.
    options: RunOptions,
    /// The state of parking this lane.
    parking: Parking,
    /// Whether the store has changed the conversation since the lane read it.
    stale: bool,
    /// The wait permit of the next run, while it waits for a permit to run.
    wait_permit: Option<OwnedSemaphorePermit>,
    /// When the text of the next message is read again, after the store failed to return it.
    read_again_at: Option<Instant>,
    /// Whether each collected message gets a turn of its own, because their replies go to different destinations. Reset
    /// when all are answered.
    individually: bool,
    /// When the running turn, which was told to stop, is aborted.
    abort_at: Option<Instant>,
    /// Mail that is held back while hooks check a message.
    held: VecDeque<LaneMail>,
    /// The mail of other nodes that the lane has taken.
    taken: Taken,
    /// The commands that the running turn carries out.
    plan_commands: PlanCommands,
    /// When a person last sent a message here, if that is known.
    spoken_at: Option<UnixMillis>,
    /// Whether the next answer must say that a new conversation was started automatically.
    announce: bool,
    /// Whether the session was deleted. The next mail creates it again.
    deleted: bool,
    /// The run that the drain has cut off, and that continues elsewhere.
    deferred: Option<RunId>,
    /// The running turn; at most one task. Dropping the lane aborts it.
    turn: JoinSet<TurnEnd>,
}

/// The lane must stop, because another owner has its lease.
struct LeaseLost;

impl Lane {
    async fn run(&mut self) -> Result<(), LeaseLost> {
        let draining = self.services.draining.clone();
        loop {
            if std::mem::take(&mut self.stale) && !Box::pin(self.read_anew()).await? {
                self.stale = true;
            }
            Box::pin(self.start_next()).await;
            if self.receiving.is_none()
                && let Some(mail) = self.held.pop_front()
            {
                self.take(mail).await?;
                continue;
            }
            let no_mail = self.port.mail.is_closed() && self.port.mail.is_empty();
            if draining.is_cancelled() {
                Box::pin(self.refuse_receiving(Refusal::ShuttingDown)).await;
                Box::pin(self.refuse_compacting(Refusal::ShuttingDown)).await;
            }
            let busy = self.state.has_conversation() || self.receiving.is_some();
            if !busy && (draining.is_cancelled() || no_mail) {
                return Ok(());
            }
            let (expiry, quiet_at) = (self.state.paused().map(|paused| paused.until), self.quiet_at());
            // Large futures are boxed, so that a waiting lane uses little memory.
            tokio::select! {
                biased; // a stop comes before the turn that it stops, and the end of a turn before new mail
                () = self.port.wake.notified() => Box::pin(self.woken()).await?,
                Some(ended) = self.turn.join_next() => Box::pin(self.end_turn(ended)).await?,
                Some(said) = looked_at(&mut self.receiving) => Box::pin(self.received(said)).await?,
                answered = self.plan_commands.answered() => Box::pin(self.end_plan_command(answered)).await,
                Some(made) = compacted(&mut self.state) => Box::pin(self.end_compaction(made)).await?,
                mail = self.port.mail.recv(), if !no_mail && self.held.len() < HELD => match mail {
                    Some(mail @ LaneMail::Answer(_)) => Box::pin(self.take(mail)).await?,
                    Some(mail) if self.receiving.is_some() => self.held.push_back(mail),
                    Some(mail) => self.take(mail).await?,
                    None => {}
                },
                () = at(expiry), if expiry.is_some() => Box::pin(self.expire()).await?,
                () = at(quiet_at), if quiet_at.is_some() => {} // the next loop starts the turn
                answer = may_go_on(&mut self.parking), if self.parking.is_asked() => self.parking = answer,
                () = at(self.read_again_at), if self.read_again_at.is_some() => self.read_again_at = None,
                () = at(self.abort_at), if self.abort_at.is_some() => self.abort_turn(),
                () = draining.cancelled(), if !draining.is_cancelled() => {}
            }
        }
    }

    async fn take(&mut self, mail: LaneMail) -> Result<(), LeaseLost> {
        // An answer is no reason to create a deleted session again.
        if !matches!(mail, LaneMail::Answer(_))
            && let Err(LeaseLost) = self.revive().await
        {
            return Err(self.keep_back(mail));
        }
        let mail = match self.services.cluster {
            None => mail,
            Some(_) => match Box::pin(self.in_turn(mail)).await? {
                Some(mail) => mail,
                None => return Ok(()),
            },
        };
        match mail {
            LaneMail::Input(input) => Box::pin(self.receive(*input)).await,
            LaneMail::Command(command) => match Box::pin(self.first_command(*command)).await {
                Some(command) => Box::pin(self.command(command)).await,
                None => Ok(()),
            },
            LaneMail::Answer(answer) => Box::pin(self.answer(*answer)).await,
        }
    }

    /// Returns the mail if it is next among the mail of all nodes, and is to be handled now.
    async fn in_turn(&mut self, mail: LaneMail) -> Result<Option<LaneMail>, LeaseLost> {
        match self.after_earlier(mail).await? {
            Some(mail) => self.admit(mail).await,
            None => Ok(None),
        }
    }

    /// Returns the mail if it is to be handled now. A command or an answer of another node is marked as begun: if this
    /// node ends, the next owner must not carry it out once more.
    async fn admit(&mut self, mail: LaneMail) -> Result<Option<LaneMail>, LeaseLost> {
        let (Some(id), Some(cluster)) = (mail.forwarded(), &self.services.cluster) else { return Ok(Some(mail)) };
        let is_new = self.taken.take(id);
        if mail.run().is_some() {
            return Ok(is_new.then_some(mail)); // the dispatcher may bring what the lane has found itself
        }
        match cluster.mail.take(id, &self.lease).await {
            Ok(true) => Ok(Some(mail)),
            Ok(false) => {
                // It is answered or begun already.
                note(&self.port.notes, LaneNote::Commanded { session: self.lease.session.clone(), say: None }).await;
                Ok(None)
            }
            Err(StoreError::LeaseLost(_)) => Err(self.keep_back(mail)),
            Err(error) => {
                refuse_mail(&self.port, mail, Refusal::Store(error.to_string())).await;
                Ok(None)
            }
        }
    }

    /// Handles stopped runs and messages that joined the running turn.
    async fn woken(&mut self) -> Result<(), LeaseLost> {
        self.stale |= self.port.stale.swap(false, Ordering::Acquire);
        self.end_joined().await;
        self.end_stopped_in_queue().await?;
        let stopped = self.state.current().is_some_and(|current| current.run.control.cancel.is_cancelled())
            || self.state.compacting().is_some_and(Compacting::is_stopped);
        if stopped && self.abort_at.is_none() {
            self.abort_at = Some(Instant::now() + RETURN_LIMIT);
        }
        Ok(())
    }

    /// Reads the conversation again after the store has changed it. Returns `false` if the read must wait, because a
    /// turn or a compaction has the conversation, or because the session was deleted.
    async fn read_anew(&mut self) -> Result<bool, LeaseLost> {
        if self.state.has_conversation() || self.deleted {
            return Ok(false);
        }
        self.reload().await.map(|_| true)
    }

    /// Aborts a turn or a compaction that does not return. Its end is handled like a crash.
    fn abort_turn(&mut self) {
        self.abort_at = None;
        tracing::error!(session = %self.lease.session, "a stopped task did not return and is aborted");
        self.turn.abort_all();
        if let Some(compacting) = self.state.compacting_mut() {
            compacting.abort();
        }
    }

    /// Keeps mail that a lost lease has left undone, before all other mail. Nothing of it is in the store.
    fn keep_back(&mut self, mail: LaneMail) -> LeaseLost {
        self.held.push_front(mail);
        LeaseLost
    }

    /// Carries out a command: thread changes between turns, everything else at once.
    async fn command(&mut self, command: LaneCommand) -> Result<(), LeaseLost> {
        match &command.order {
            LaneOrder::Thread(ThreadCommand::Delete) => return self.delete(command).await,
            LaneOrder::Thread(ThreadCommand::Compact(wish)) if self.may_change() => {
                let work = Compaction::Shorten(wish.clone());
                Box::pin(self.begin_compaction(command, work)).await;
                return Ok(());
            }
            LaneOrder::Thread(ThreadCommand::Summarize) if self.may_change() => {
                Box::pin(self.begin_compaction(command, Compaction::Show)).await;
                return Ok(());
            }
            LaneOrder::Goal(order) => {
                let order = *order;
                self.goal_command(command, order).await;
                return Ok(());
            }
            LaneOrder::Plan(order) => {
                let order = order.clone();
                self.plan_command(command, order).await;
                return Ok(());
            }
            _ => {}
        }
        match self.carry_out(&command).await {
            Ok(said) => self.say(command, said).await,
            Err(LeaseLost) => return Err(self.keep_back(LaneMail::Command(Box::new(command)))),
        }
        Ok(())
    }

    /// Whether the thread may be changed: no message is being answered or waits, and nothing compacts it.
    fn may_change(&self) -> bool {
        self.state.compacting().is_none() && !self.state.is_answering() && self.queue.is_empty()
    }

    /// Carries out a command that takes no model call.
    async fn carry_out(&mut self, command: &LaneCommand) -> Result<CommandResult, LeaseLost> {
        let busy = self.state.is_answering() || !self.queue.is_empty();
        let word = command.word.as_str();
        match command.order.clone() {
            LaneOrder::Setting(setting) => self.set(setting, &command.origin.channel).await,
            // Handled before.
            LaneOrder::Plan(_) | LaneOrder::Goal(_) => Ok(Err(Undone::Refused(format!("{word} is not possible now.")))),
            LaneOrder::Thread(ThreadCommand::Loops(on)) => self.set_loop_detection(on).await,
            LaneOrder::Thread(ThreadCommand::List) => Ok(self.list_conversations().await),
            LaneOrder::Thread(ThreadCommand::Hide) => self.hide().await,
            LaneOrder::Thread(_) if self.state.compacting().is_some() => {
                let why =
                    format!("This conversation is being compacted. Send /stop first, or repeat {word} in a moment.");
                Ok(Err(Undone::Refused(why)))
            }
            LaneOrder::Thread(_) if busy => {
                Ok(Err(Undone::Refused(format!("A message is still being answered. Send /stop first, then {word}."))))
            }
            LaneOrder::Thread(ThreadCommand::Undo) => self.edit(ThreadEdit::Undo, word).await,
            LaneOrder::Thread(ThreadCommand::Redo) => self.edit(ThreadEdit::Redo, word).await,
            LaneOrder::Thread(ThreadCommand::Clear) => self.edit(ThreadEdit::Clear, word).await,
            LaneOrder::Thread(ThreadCommand::New) => self.edit(ThreadEdit::New, word).await,
            LaneOrder::Thread(ThreadCommand::Resume(id)) => self.resume_conversation(&id, word).await,
            LaneOrder::Thread(ThreadCommand::Fork) => self.edit(ThreadEdit::Fork, word).await,
            // Handled before, unless the conversation is busy.
            LaneOrder::Thread(ThreadCommand::Delete | ThreadCommand::Compact(_) | ThreadCommand::Summarize) => {
                Ok(Err(Undone::Refused(format!("{word} is not possible now. Repeat it in a moment."))))
            }
        }
    }

    async fn edit(&mut self, edit: ThreadEdit, word: &str) -> Result<CommandResult, LeaseLost> {
        let (done, nothing) = match edit {
            ThreadEdit::Undo => ("The last turn was undone. /redo restores it.", "There is nothing to undo."),
            ThreadEdit::Redo => ("The turn was restored.", "There is nothing to redo."),
            ThreadEdit::Clear => ("This conversation was deleted.", "There is nothing to delete."),
            ThreadEdit::New => ("Started a new conversation.", "Started a new conversation."),
            ThreadEdit::Resume(_) => {
                ("The earlier conversation continues. /sessions lists the others.", conversations::NOT_FOUND)
            }
            ThreadEdit::Fork => (
                "This conversation continues in a copy. The original stays as it is; /sessions lists it.",
                "There is nothing to copy.",
            ),
        };
        // "Always" answers, kept processes and the briefing belong to one conversation.
        let is_other = !matches!(edit, ThreadEdit::Undo | ThreadEdit::Redo);
        let at = self.services.clock.now();
        if edit == ThreadEdit::Clear {
            self.without_background_processes().await;
        }
        match self.services.store.lanes.edit_thread(&self.lease, edit, at).await {
            Ok(EditOutcome::Done(thread)) => {
                self.show(thread);
                if matches!(edit, ThreadEdit::New | ThreadEdit::Resume(_))
                    && !std::mem::replace(&mut self.fresh, edit == ThreadEdit::New)
                {
                    self.services.hooks.session_end(&self.lease.session, word);
                }
                if matches!(edit, ThreadEdit::Resume(_) | ThreadEdit::Fork) {
                    // Its age must not make the next message begin a new conversation.
                    self.spoken_at = Some(at);
                }
                if is_other {
                    self.end_background_processes();
                    Briefing::begin_anew(&self.services.briefings, &self.lease.session).await;
                }
                if is_other && let Err(error) = self.services.store.approvals.forget_grants(&self.lease.session).await {
                    return Ok(Ok(format!("{done} But permanent approvals could not be removed: {error}")));
                }
                Ok(Ok(done.into()))
            }
            Ok(EditOutcome::Nothing) => {
                if edit == ThreadEdit::New {
                    self.end_background_processes();
                }
                Ok(Ok(nothing.into()))
            }
            Err(error) => unchanged(&error),
        }
    }

    /// Changes loop detection in the store, and then for the running turn too.
    async fn set_loop_detection(&mut self, on: bool) -> Result<CommandResult, LeaseLost> {
        if let Err(error) = self.services.store.lanes.set_loop_detection(&self.lease, on).await {
            return unchanged(&error);
        }
        self.loop_detection = on;
        if let Some(current) = self.state.current() {
            current.run.control.detect_loops(on);
        }
        Ok(Ok(match on {
            true => "Loop detection is on in this conversation.".into(),
            false => "Loop detection is off in this conversation; its limits stay. /loops on turns it on again.".into(),
        }))
    }
}

/// The answer to a command: the result, or the reason why nothing was done.
type CommandResult = Result<String, Undone>;

/// The reason why a command did nothing.
enum Undone {
    /// The command was refused. It is refused again if it is repeated under its key.
    Refused(String),
    /// The store failed. The command may be repeated under the same key.
    Unstored(String),
}

/// The answer to a change that the store did not accept.
fn unchanged(error: &StoreError) -> Result<CommandResult, LeaseLost> {
    match error {
        StoreError::LeaseLost(_) => Err(LeaseLost),
        error => Ok(Err(Undone::Unstored(format!("This could not be stored, and nothing has changed: {error}")))),
    }
}

/// Waits until this instant; `None`: returns at once.
async fn at(date: Option<Instant>) {
    sleep_until(date.unwrap_or_else(Instant::now)).await;
}
