//! A lane: one task for each session that is awake. It owns the session, takes its mail in order, runs one turn at a
//! time, and commits what becomes of it.
//!
//! A lane never decides alone to sleep: the dispatcher retires it by dropping its sender, and it empties the mailbox
//! first. While a turn runs the lane goes on taking mail: what arrives is committed, acknowledged and kept for the next
//! turn. A run that is paused on a question is in [`pause`]. On drain it finishes the running turn and leaves the queued ones to the next start: they are in the store.

mod accept;
mod anew;
mod compact;
mod edit;
mod ends;
mod first;
mod next;
mod opening;
mod pause;
mod port;
mod receive;
mod settings;
mod state;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use belay_protocol::{EditOutcome, Lease, Message, Refusal, RunOptions, StoreError, ThreadEdit, UnixMillis};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use self::compact::{Compacting, compacted};
use self::next::{Parking, may_go_on};
use self::receive::{Receiving, looked_at};
use self::state::LaneState;
use crate::agent_services::AgentServices;
use crate::mail::{LaneCommand, LaneMail, LaneOrder, LanePort};
use crate::queued_run::QueuedRun;
use crate::submission::ThreadCommand;
use crate::turn::TurnEnd;
use belay_run::estimate::Calibration;
use belay_run::prompt::Briefing;

pub(crate) use self::opening::{LaneStart, run_lane};

/// Longest time that a turn may take to return once it was told to stop. Then: it is aborted, and what it had stored is what
/// there is.
const RETURN_LIMIT: Duration = Duration::from_secs(30);
/// Messages and commands that are kept while hooks look at the one before them. Then: they stay in the mailbox, and answers to
/// questions behind them wait.
const HELD: usize = 64;

struct Lane {
    services: Arc<AgentServices>,
    port: LanePort,
    lease: Lease,
    summary: Option<String>,
    /// The conversation; lent to the running turn.
    messages: Vec<Arc<Message>>,
    queue: VecDeque<QueuedRun>,
    state: LaneState,
    /// The message that hooks are looking at.
    receiving: Option<Receiving>,
    /// What is known of the provider's way of counting tokens.
    calibration: Calibration,
    /// Whether nobody has said anything in the thread yet.
    fresh: bool,
    /// Instructions in the messages that the running turn was lent.
    instructions: Vec<String>,
    /// How much of what the running turn was lent its message brought along.
    brought: usize,
    /// Whether loops are looked for in this session.
    loop_detection: bool,
    /// What the session asks of its runs.
    options: RunOptions,
    /// Whether it is about to be parked.
    parking: Parking,
    /// The store has put something into the conversation that the lane has not read.
    stale: bool,
    /// A seat for the next run to wait for a place.
    seat: Option<OwnedSemaphorePermit>,
    /// When the text of the next message is read again, which the store has not given.
    read_again_at: Option<Instant>,
    /// Collected messages want their answers in different places: until all are answered, each gets its own.
    individually: bool,
    /// When the running turn, which was told to stop, is aborted.
    abort_at: Option<Instant>,
    /// Mail that waits for the message that hooks are looking at.
    held: VecDeque<LaneMail>,
    /// When a person last said something here, as far as is known.
    spoken_at: Option<UnixMillis>,
    /// A new conversation has begun by itself, of which the person is told with the next answer.
    announce: bool,
    /// The session was deleted; what comes in next makes it again.
    deleted: bool,
    /// The running turn; at most one task. Dropped with the lane, it is aborted.
    turn: JoinSet<TurnEnd>,
}

/// The lane must let go: another owner has it.
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
            // What is large is boxed, so that a lane that waits is small.
            tokio::select! {
                biased; // a stop before the turn it stops, an end before what waits for it
                () = self.port.wake.notified() => Box::pin(self.woken()).await?,
                Some(ended) = self.turn.join_next() => Box::pin(self.end_turn(ended)).await?,
                Some(said) = looked_at(&mut self.receiving) => Box::pin(self.received(said)).await?,
                Some(made) = compacted(&mut self.state) => Box::pin(self.end_compaction(made)).await?,
                mail = self.port.mail.recv(), if !no_mail && self.held.len() < HELD => match mail {
                    Some(LaneMail::Answer(answer)) => Box::pin(self.answer(*answer)).await?,
                    Some(mail) if self.receiving.is_some() => self.held.push_back(mail),
                    Some(mail) => self.take(mail).await?,
                    None => {}
                },
                () = at(expiry), if expiry.is_some() => Box::pin(self.expire()).await?,
                () = at(quiet_at), if quiet_at.is_some() => {} // the next turn begins
                answer = may_go_on(&mut self.parking), if self.parking.is_asked() => self.parking = answer,
                () = at(self.read_again_at), if self.read_again_at.is_some() => self.read_again_at = None,
                () = at(self.abort_at), if self.abort_at.is_some() => self.abort_turn(),
                () = draining.cancelled(), if !draining.is_cancelled() => {}
            }
        }
    }

    async fn take(&mut self, mail: LaneMail) -> Result<(), LeaseLost> {
        self.revive().await?;
        match mail {
            LaneMail::Input(input) => Box::pin(self.receive(*input)).await,
            LaneMail::Command(command) => match Box::pin(self.first_command(*command)).await {
                Some(command) => Box::pin(self.command(command)).await,
                None => Ok(()),
            },
            LaneMail::Answer(answer) => Box::pin(self.answer(*answer)).await,
        }
    }

    /// Runs were told to stop, or messages have become part of the running turn.
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

    /// Reads the conversation anew, into which the store has put something; `false`: a turn has it, so later.
    async fn read_anew(&mut self) -> Result<bool, LeaseLost> {
        if self.state.has_conversation() || self.deleted {
            return Ok(false);
        }
        self.reload().await.map(|_| true)
    }

    /// Gives up a turn, or a shortening, that does not return: its end comes as that of one that crashed.
    fn abort_turn(&mut self) {
        self.abort_at = None;
        tracing::error!(session = %self.lease.session, "a stopped task did not return and is aborted");
        self.turn.abort_all();
        if let Some(compacting) = self.state.compacting_mut() {
            compacting.abort();
        }
    }

    /// Carries out a command: changes of the thread between turns, everything else at once.
    async fn command(&mut self, command: LaneCommand) -> Result<(), LeaseLost> {
        if matches!(command.order, LaneOrder::Thread(ThreadCommand::Delete)) {
            return self.delete(command).await;
        }
        let busy = self.state.is_answering() || !self.queue.is_empty();
        let word = command.word.clone();
        let said = match command.order.clone() {
            LaneOrder::Setting(setting) => self.set(setting, &command.origin.channel).await?,
            LaneOrder::Thread(ThreadCommand::Loops(on)) => self.set_loop_detection(on).await?,
            LaneOrder::Thread(_) if self.state.compacting().is_some() => {
                let why =
                    format!("This conversation is being compacted. Send /stop first, or repeat {word} in a moment.");
                Err(Undone::Refused(why))
            }
            LaneOrder::Thread(_) if busy => {
                Err(Undone::Refused(format!("A message is still being answered. Send /stop first, then {word}.")))
            }
            LaneOrder::Thread(ThreadCommand::Compact(wish)) => {
                Box::pin(self.begin_compaction(command, wish)).await;
                return Ok(());
            }
            LaneOrder::Thread(ThreadCommand::Undo) => self.edit(ThreadEdit::Undo, &word).await?,
            LaneOrder::Thread(ThreadCommand::Redo) => self.edit(ThreadEdit::Redo, &word).await?,
            LaneOrder::Thread(ThreadCommand::Clear) => self.edit(ThreadEdit::Clear, &word).await?,
            LaneOrder::Thread(ThreadCommand::New) => self.edit(ThreadEdit::New, &word).await?,
            LaneOrder::Thread(ThreadCommand::Delete) => {
                Err(Undone::Refused("Only an operator can delete a conversation.".into()))
            }
        };
        self.say(command, said).await;
        Ok(())
    }

    async fn edit(&mut self, edit: ThreadEdit, word: &str) -> Result<CommandResult, LeaseLost> {
        let (done, nothing) = match edit {
            ThreadEdit::Undo => ("The last turn was undone. /redo restores it.", "There is nothing to undo."),
            ThreadEdit::Redo => ("The turn was restored.", "There is nothing to redo."),
            ThreadEdit::Clear => ("This conversation was deleted.", "There is nothing to delete."),
            ThreadEdit::New => ("Started a new conversation.", "Started a new conversation."),
        };
        let at = self.services.clock.now();
        match self.services.store.lanes.edit_thread(&self.lease, edit, at).await {
            Ok(EditOutcome::Done(thread)) => {
                self.show(thread);
                if matches!(edit, ThreadEdit::New) && !std::mem::replace(&mut self.fresh, true) {
                    self.services.hooks.session_end(&self.lease.session, word);
                }
                if matches!(edit, ThreadEdit::New | ThreadEdit::Clear) {
                    Briefing::begin_anew(&self.services.briefings, &self.lease.session).await;
                }
                if matches!(edit, ThreadEdit::New | ThreadEdit::Clear)
                    && let Err(error) = self.services.store.approvals.forget_grants(&self.lease.session).await
                {
                    return Ok(Ok(format!("{done} But permanent approvals could not be removed: {error}")));
                }
                Ok(Ok(done.into()))
            }
            Ok(EditOutcome::Nothing) => Ok(Ok(nothing.into())),
            Err(error) => unchanged(&error),
        }
    }

    /// Acts on the running turn too, once the store has it.
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

/// The answer to a command: what it has done, or why nothing.
type CommandResult = Result<String, Undone>;

/// Why a command has done nothing.
enum Undone {
    /// It was refused, and is when it comes again under its key.
    Refused(String),
    /// The store did not take it, for now: it may be given again under the same key.
    Unstored(String),
}

/// The answer to an edit that the store did not take.
fn unchanged(error: &StoreError) -> Result<CommandResult, LeaseLost> {
    match error {
        StoreError::LeaseLost(_) => Err(LeaseLost),
        error => Ok(Err(Undone::Unstored(format!("This could not be stored, and nothing has changed: {error}")))),
    }
}

/// Waits until then; at once where there is no date.
async fn at(date: Option<Instant>) {
    sleep_until(date.unwrap_or_else(Instant::now)).await;
}
