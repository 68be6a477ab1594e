//! Makes envelopes of lines, with ordering and back-pressure.
//!
//! Lines are sent in the order in which they came. A text waits until the one before it has been accepted, and while
//! [`OUTSTANDING_MAX`] runs are unfinished. A line that begins with a slash is sent when it is the next one. At a
//! keyboard the lines behind a waiting one are read too: a command that acts at once, and an answer to a shown question,
//! pass the waiting lines, and beyond [`WAITING_MAX`] a line is refused. If the input is piped,
//! three things wait until everything before them has been answered: `/quit`, the end of input, and an answer to an
//! approval request. A script's `yes` answers the request of the line before it, which may not exist yet. A run that
//! waits for approval counts as answered, because it does not continue by itself. So does one whose subagent waits: it is
//! not paused, but its request has been shown. The lines behind it are not waited for either, because it holds them up.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::principal::Role;
use belay_protocol::{
    Accepted, Ack, AckSender, Body, ChannelId, CommandReply, Envelope, Inbound, Principal, Refusal, ReplyRoute, RunId,
    RunRecord, RunStatus, RunWatch, SessionKey, plain_line,
};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::deliveries::Deliveries;
use super::lines::Line;
use super::paused::{PausedRuns, is_paused_with};
use super::printer::Printer;
use crate::commands::{acts_at_once, answers_a_question, begins_a_turn, ends_the_daemon, is_stop_command};

/// Number of unfinished runs at which texts wait. 15: a session's queue holds 20, and other channels may write to it
/// too.
const OUTSTANDING_MAX: usize = 15;

/// Number of typed lines that wait behind the next one. 16: with the unfinished runs more than a person types ahead; a
/// paste of more lines is one by mistake.
const WAITING_MAX: usize = 16;

/// Number of characters of a refused line that are shown.
const REFUSED_CHARS: usize = 60;

/// Longest wait for the delivery of a run's reply after the end of the run. A stop from another channel may mean that
/// it is never shown.
const DELIVERY_GRACE: Duration = Duration::from_secs(5);

/// Longest wait before a line that was refused as busy is sent again, whatever delay the refusal names.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(10);

/// Pause after something was shown, before a line that has waited for it is sent. A plain "yes" counts only once the daemon
/// knows that the question was shown, which is right after the delivery.
const SETTLED: Duration = Duration::from_millis(50);

/// Longest time between two Ctrl-C that together mean "leave".
const TWICE: Duration = Duration::from_secs(2);

/// Whether `/quit` and the end of input wait for earlier answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// They wait: a script was piped in and wants all its answers.
    AfterAnswers,
    /// They do not wait: a person is at the keyboard.
    AtOnce,
}

/// Makes envelopes of lines.
pub(super) struct Pump {
    pub(super) lines: mpsc::Receiver<Line>,
    pub(super) interrupts: mpsc::Receiver<()>,
    pub(super) printer: Printer,
    pub(super) deliveries: Arc<Deliveries>,
    pub(super) ending: Ending,
    pub(super) intake: CancellationToken,
    /// Changes when something was shown.
    shown: watch::Receiver<()>,
    state: State,
}

#[derive(Default)]
struct State {
    /// The next line, if it has to wait.
    head: Option<Head>,
    /// Typed lines behind the head.
    waiting: VecDeque<String>,
    /// A line that was refused as busy and is sent again, before the head.
    again: Option<String>,
    /// Lines that were sent and are not settled.
    open: FuturesUnordered<Pin<Box<dyn Future<Output = Progress> + Send>>>,
    /// Runs that wait for approval.
    paused: PausedRuns,
    /// Texts that were sent and are not yet accepted.
    unaccepted: usize,
    /// Whether the last input was a Ctrl-C that had nothing to stop.
    warned: bool,
    /// The time of the last Ctrl-C that stopped something.
    interrupted: Option<Instant>,
}

enum Head {
    Line(String),
    End,
}

/// The result of one open line.
enum Progress {
    Accepted {
        text: String,
        watch: Option<RunWatch>,
    },
    Settled {
        text: String,
        quit: bool,
        resumes: Option<RunId>,
    },
    Busy {
        text: String,
        wait: Duration,
    },
    Again {
        text: String,
    },
    Answered,
    /// A run waits for approval, and its approval request has been shown.
    Paused {
        watch: RunWatch,
        record: Arc<RunRecord>,
    },
}

impl Pump {
    pub(super) fn new(
        lines: mpsc::Receiver<Line>,
        interrupts: mpsc::Receiver<()>,
        printer: Printer,
        deliveries: Arc<Deliveries>,
        ending: Ending,
        intake: CancellationToken,
    ) -> Self {
        let shown = deliveries.changes();
        Self { lines, interrupts, printer, deliveries, ending, intake, shown, state: State::default() }
    }

    /// Returns the next message, or `None` when intake has ended or there is no more input.
    pub(super) async fn next(&mut self) -> Option<Envelope> {
        loop {
            // A run whose question was shown is noted as paused before the end is judged.
            while self.state.again.is_none()
                && let Some(Some(progress)) = self.state.open.next().now_or_never()
            {
                self.note(progress).await;
            }
            if let Some(text) = self.state.again.take() {
                return Some(self.send(text));
            }
            let head = self.state.head.take().or_else(|| self.state.waiting.pop_front().map(Head::Line));
            if let Some(head) = head {
                match head {
                    Head::End if self.may_end() => return None,
                    Head::Line(text) if self.may_go(&text) => return Some(self.first_send(text)),
                    waiting => self.state.head = Some(waiting),
                }
            }
            tokio::select! {
                biased; // the end of intake first; then an interrupt, which overtakes waiting lines
                () = self.intake.cancelled() => return None,
                Some(()) = self.interrupts.recv() => {
                    if let Some(envelope) = self.interrupt().await {
                        return Some(envelope);
                    }
                }
                Some(progress) = self.state.open.next() => self.note(progress).await,
                paused_run = self.state.paused.next() => {
                    let deliveries = Arc::clone(&self.deliveries);
                    self.state.open.push(Box::pin(answered(paused_run.watch, Some(paused_run.record), deliveries)));
                }
                Ok(()) = self.shown.changed(), if self.state.head.is_some() => sleep(SETTLED).await,
                line = self.lines.recv(), if self.state.head.is_none() || self.ending == Ending::AtOnce => {
                    if let Some(envelope) = self.take(line).await {
                        return Some(envelope);
                    }
                }
            }
        }
    }

    /// Takes a line that was read. Returns the message if the line passes those that wait.
    async fn take(&mut self, line: Option<Line>) -> Option<Envelope> {
        self.state.warned = false;
        match line {
            None => {
                self.drop_waiting().await;
                self.state.head = Some(Head::End);
            }
            Some(Line::Text(text)) if text.trim().is_empty() => {}
            Some(Line::Text(text)) if self.state.head.is_none() => self.state.head = Some(Head::Line(text)),
            Some(Line::Text(text)) => return self.take_typed(text).await,
            Some(Line::Unusable(why)) => notify(&self.printer, &why).await,
        }
        None
    }

    /// Takes a typed line while another one waits.
    async fn take_typed(&mut self, text: String) -> Option<Envelope> {
        if acts_at_once(&text) || (answers_a_question(&text) && self.deliveries.has_question()) {
            if is_stop_command(&text) || ends_the_daemon(&text) {
                self.drop_waiting().await;
            }
            return Some(self.first_send(text));
        }
        if self.state.waiting.len() < WAITING_MAX {
            self.state.waiting.push_back(text);
            return None;
        }
        let beginning = plain_line(&text, REFUSED_CHARS);
        let words = format!("Not sent, because {WAITING_MAX} lines wait already; /stop ends the work: {beginning}");
        notify(&self.printer, &words).await;
        None
    }

    /// Drops the typed lines that wait, and says so. They belong to the work that a person stops, or nobody sends them any more.
    async fn drop_waiting(&mut self) {
        let head = self.state.head.take_if(|head| matches!(head, Head::Line(_)));
        let dropped = usize::from(head.is_some()) + std::mem::take(&mut self.state.waiting).len();
        if dropped == 0 {
            return;
        }
        let what = if dropped == 1 { "line that waited was" } else { "lines that waited were" };
        notify(&self.printer, &format!("{dropped} {what} not sent.")).await;
    }

    fn may_end(&self) -> bool {
        self.ending == Ending::AtOnce || self.is_quiet() || self.waits_for_a_part()
    }

    /// Whether a question is shown whose run is not paused: one of a part of a run, which does not continue by itself,
    /// or one that was answered elsewhere and whose run has not replied yet.
    fn waits_for_a_part(&self) -> bool {
        self.deliveries.has_question_of(|run| !self.state.paused.has(run))
    }

    /// Whether everything that was sent has its answer.
    fn is_quiet(&self) -> bool {
        self.state.open.is_empty() && !self.state.paused.any_continues()
    }

    fn may_go(&self, text: &str) -> bool {
        let waits_for_nothing = self.is_quiet() || self.deliveries.has_question();
        if self.ending == Ending::AfterAnswers && answers_a_question(text) && !waits_for_nothing {
            return false;
        }
        match kind(text) {
            Kind::Quit => self.may_end(),
            Kind::Command => true,
            Kind::Text => self.state.unaccepted == 0 && self.state.open.len() < OUTSTANDING_MAX,
        }
    }

    fn first_send(&mut self, text: String) -> Envelope {
        self.state.unaccepted += usize::from(kind(&text) == Kind::Text);
        if answers_a_question(&text) {
            self.deliveries.answered(&text);
        }
        self.send(text)
    }

    fn send(&mut self, text: String) -> Envelope {
        let (ack, answer) = AckSender::channel();
        self.state.open.push(Box::pin(acknowledged(text.clone(), answer)));
        Envelope { inbound: inbound(text), ack }
    }

    async fn note(&mut self, progress: Progress) {
        match progress {
            Progress::Accepted { text, watch } => {
                self.accepted_or_refused(&text);
                if let Some(watch) = watch {
                    self.state.open.push(Box::pin(answered(watch, None, Arc::clone(&self.deliveries))));
                }
            }
            Progress::Settled { text, quit, resumes } => {
                self.accepted_or_refused(&text);
                resumes.into_iter().for_each(|run| self.state.paused.answered(run));
                if quit {
                    // The lines after a /quit in a script are not for this daemon.
                    self.state.head = Some(Head::End);
                }
            }
            Progress::Busy { text, wait } => {
                debug!(wait_ms = wait.as_millis() as u64, "busy, the line is tried again");
                self.state.open.push(Box::pin(async move {
                    sleep(wait).await;
                    Progress::Again { text }
                }));
            }
            Progress::Again { text } => self.state.again = Some(text),
            Progress::Answered => {}
            Progress::Paused { watch, record } => self.state.paused.add(watch, record),
        }
    }

    fn accepted_or_refused(&mut self, text: &str) {
        self.state.unaccepted -= usize::from(kind(text) == Kind::Text);
    }

    /// Handles a Ctrl-C: it stops running work, and a second one soon after it quits. If nothing runs, the first one shows
    /// a hint and the second in a row quits.
    async fn interrupt(&mut self) -> Option<Envelope> {
        if self.state.interrupted.take().is_some_and(|at| at.elapsed() < TWICE) {
            return Some(self.quit().await);
        }
        if !self.is_quiet() {
            self.state.warned = false;
            self.state.interrupted = Some(Instant::now());
            return Some(self.send("/interrupt".into()));
        }
        if std::mem::replace(&mut self.state.warned, true) {
            return Some(self.quit().await);
        }
        let hint = if self.state.paused.is_empty() {
            "Nothing is running. Press Ctrl-C again, or type /quit, to end."
        } else {
            "A question waits for your answer. Press Ctrl-C again, or type /quit, to end all the same."
        };
        notify(&self.printer, hint).await;
        None
    }

    /// Ends the daemon after a second Ctrl-C.
    async fn quit(&mut self) -> Envelope {
        self.drop_waiting().await;
        self.send("/quit".into())
    }
}

async fn notify(printer: &Printer, text: &str) {
    if let Err(error) = printer.notify(text).await {
        warn!(%error, "a notice could not be shown on standard output");
    }
}

/// The kind of a line, as far as this channel needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Quit,
    Command,
    Text,
}

fn kind(text: &str) -> Kind {
    match text.trim_start().starts_with('/') {
        true if ends_the_daemon(text) => Kind::Quit,
        true if begins_a_turn(text) => Kind::Text,
        true => Kind::Command,
        false => Kind::Text,
    }
}

fn inbound(text: String) -> Inbound {
    let channel = ChannelId::new(super::NAME);
    Inbound {
        reply_to: Some(ReplyRoute { channel: channel.clone(), conversation: super::NAME.into(), reply_to: None }),
        ..Inbound::new(
            channel,
            SessionKey::new(super::NAME),
            Principal { id: super::NAME.into(), role: Role::Operator },
            Body::Text(text),
        )
    }
}

/// Waits for the acknowledgement of a line.
async fn acknowledged(text: String, answer: oneshot::Receiver<Ack>) -> Progress {
    match answer.await {
        Ok(Ack::Accepted(Accepted { watch, .. })) => Progress::Accepted { text, watch },
        Ok(Ack::Refused(Refusal::Busy { retry_after, .. } | Refusal::Overloaded { retry_after, .. })) => {
            Progress::Busy { text, wait: retry_after.clamp(Duration::from_millis(10), BUSY_WAIT_MAX) }
        }
        Ok(Ack::Refused(_)) => Progress::Settled { text, quit: false, resumes: None }, // the agent tells the person
        Ok(ack) => {
            let quit = kind(&text) == Kind::Quit;
            let resumes = match ack {
                Ack::Command(CommandReply { resumes, .. }) => resumes,
                _ => None,
            };
            Progress::Settled { text, quit, resumes }
        }
        Err(_) => {
            warn!("a line from standard input was dropped without an answer");
            Progress::Settled { text, quit: false, resumes: None }
        }
    }
}

/// Waits until a run has ended or waits for another approval request than `before`, and until its reply or request has
/// been shown.
async fn answered(mut watch: RunWatch, before: Option<Arc<RunRecord>>, deliveries: Arc<Deliveries>) -> Progress {
    let is_news = |now: &Option<Arc<RunRecord>>| {
        now.is_some() && before.as_ref().is_none_or(|before| !is_paused_with(now.as_ref(), before))
    };
    let record = watch.finished.wait_for(is_news).await.ok().and_then(|record| record.clone());
    let Some(record) = record else {
        return Progress::Answered; // the daemon has dropped the run: there will be no further record of it here
    };
    let question = record.waiting_for.as_ref().filter(|_| record.status == RunStatus::Paused).map(|it| it.approval);
    let is_shown = question.is_some() || record.reply.as_deref().is_some_and(|reply| !reply.is_empty());
    if is_shown && timeout(DELIVERY_GRACE, deliveries.wait_for((watch.run_id, question))).await.is_err() {
        debug!(run = %watch.run_id, "the reply or question of a run was not delivered here");
    }
    match record.status {
        RunStatus::Paused => Progress::Paused { watch, record },
        _ => Progress::Answered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_that_end_the_daemon_are_held_back_and_plans_wait_as_messages_do() {
        for (text, expected) in [
            ("/quit", Kind::Quit),
            ("  /EXIT now", Kind::Quit),
            ("/shutdown@belay_bot", Kind::Quit),
            ("/quitter", Kind::Command),
            ("/status", Kind::Command),
            ("/plan", Kind::Command),
            ("/planet earth", Kind::Command),
            ("/Plan@belay_bot tidy up", Kind::Text),
            ("/goal", Kind::Command),
            ("/goal tidy up", Kind::Command),
            ("/goal tidy up until `test -f done`", Kind::Text),
            ("quit", Kind::Text),
            ("what does /quit do?", Kind::Text),
        ] {
            assert_eq!(kind(text), expected, "{text:?}");
        }
    }
}
