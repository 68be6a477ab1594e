//! Standard input and output as a channel: a prompt on a terminal, plain lines otherwise.
//!
//! Who can write to our standard input is an operator. There is one session, `stdin`.
//!
//! How it ends: the stream ends at the end of input or when intake is cancelled. The prompt's thread ends within a
//! moment and leaves the terminal as it was. The thread that reads a pipe may be blocked in a read that nothing can
//! interrupt: it holds no more than the line it has begun, it is not waited for, and the end of the process ends it.

mod deliveries;
mod lines;
mod printer;
mod pump;
mod resting;
mod terminal;

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use async_trait::async_trait;
use belay_protocol::{
    AccessDecision, Authority, Channel, ChannelAccess, ChannelError, ChannelId, ChannelProfile, DeliverError, Envelope,
    InboundStream, Outbound, QueueMode,
};
use futures_util::stream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use self::deliveries::Deliveries;
use self::lines::{Line, LineReader};
use self::printer::{Look, Plain, Printer, Sink, harmless};
use self::pump::{Ending, Pump};
use self::terminal::{PromptEnd, Terminal};
use crate::config::{Enabled, StdinConfig};

/// The channel's id, its one session's key, and its principal's id.
const NAME: &str = "stdin";

/// Lines that have been read and not been taken. When it is full, reading waits, and with it whoever writes the pipe.
const LINES: usize = 16;

/// Who speaks through standard input: whoever can write to it, who is an operator. That does not depend on whether it is open:
/// what was made at a terminal goes on where the daemon runs as a service.
pub struct Operators;

impl ChannelAccess for Operators {
    fn standing_of(&self, principal: &str, _conversation: Option<&str>) -> AccessDecision {
        match principal == NAME {
            true => AccessDecision::May(Authority::Operator),
            false => AccessDecision::NotAllowed("nobody of that name speaks through standard input".to_owned()),
        }
    }

    fn serves(&self, _conversation: &str) -> bool {
        true
    }
}

/// What a person at the prompt is told when the next line is a secret.
const SECRET_HINT: &str = "Begin the line with a space to keep it out of the prompt's history.";

/// Standard input and output as a channel.
pub struct StdinChannel {
    id: ChannelId,
    /// Taken by `start`.
    source: Mutex<Option<Source>>,
    printer: Printer,
    deliveries: Arc<Deliveries>,
    ending: Ending,
    /// `None` where there is no prompt.
    prompt: Option<PromptEnd>,
}

enum Source {
    Lines(Box<dyn Read + Send>),
    Prompt(Box<Terminal>),
}

/// What standard input is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Terminal,
    Stream,
    Nothing,
}

impl StdinChannel {
    /// The channel over the process's standard input and output; `None` when it is switched off, or when it is `auto` and
    /// standard input is `/dev/null` or closed.
    ///
    /// The prompt with line editing appears when standard input, output and error are all terminals; otherwise lines are
    /// read as they come.
    pub fn open(config: &StdinConfig) -> Option<Self> {
        let input = input();
        match (config.enabled, input) {
            (Enabled::No, _) | (Enabled::Auto, Input::Nothing) => return None,
            (Enabled::Auto | Enabled::Yes, _) => {}
        }
        let opened = if input == Input::Terminal && io::stdout().is_terminal() && io::stderr().is_terminal() {
            let terminal = Terminal::new(config);
            let (screen, end) = (terminal.screen(), terminal.end());
            Self::new(Source::Prompt(Box::new(terminal)), screen, Ending::AtOnce, Some(end))
        } else {
            let ending = if input == Input::Terminal { Ending::AtOnce } else { Ending::AfterAnswers };
            let source = Source::Lines(Box::new(io::stdin()));
            if io::stdout().is_terminal() {
                Self::new(source, Harmless(Plain(io::stdout())), ending, None)
            } else {
                Self::new(source, Plain(io::stdout()), ending, None)
            }
        };
        opened.inspect_err(|error| error!(%error, "standard input cannot be served")).ok()
    }

    /// The same channel over any reader and writer, with the rules of piped input.
    ///
    /// # Errors
    /// The system has no thread for the writer.
    pub fn over(reader: impl Read + Send + 'static, writer: impl Write + Send + 'static) -> io::Result<Self> {
        Self::new(Source::Lines(Box::new(reader)), Plain(writer), Ending::AfterAnswers, None)
    }

    fn new(source: Source, sink: impl Sink, ending: Ending, prompt: Option<PromptEnd>) -> io::Result<Self> {
        Ok(Self {
            id: ChannelId::new(NAME),
            source: Mutex::new(Some(source)),
            printer: Printer::start(sink)?,
            deliveries: Arc::new(Deliveries::new()),
            ending,
            prompt,
        })
    }

    /// Whether a person types at a prompt, between whose lines nothing else may be written.
    pub fn has_prompt(&self) -> bool {
        self.prompt.is_some()
    }

    /// Shows a line like an answer: above what is being typed.
    ///
    /// # Errors
    /// Standard output cannot be written.
    ///
    /// # Cancel safety
    /// Dropped midway the line may still be shown.
    pub async fn say(&self, text: &str) -> io::Result<()> {
        self.printer.show(text, Look::Plain).await
    }

    /// Puts the prompt away and returns when the terminal is as it was: the process must not end before. Nothing to do
    /// where there is no prompt, or where it was never shown.
    pub async fn close(&self) {
        let is_started = self.source.lock().unwrap_or_else(PoisonError::into_inner).is_none();
        if let Some(prompt) = self.prompt.as_ref().filter(|_| is_started) {
            prompt.reached().await;
        }
    }

    fn cannot(&self, detail: impl Into<String>) -> ChannelError {
        ChannelError { channel: self.id.clone(), detail: detail.into() }
    }
}

#[async_trait]
impl Channel for StdinChannel {
    fn id(&self) -> &ChannelId {
        &self.id
    }

    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError> {
        let source = self.source.lock().unwrap_or_else(PoisonError::into_inner).take();
        let source = source.ok_or_else(|| self.cannot("it was started before"))?;
        let (lines, taken) = mpsc::channel(LINES);
        let (interrupts, interrupted) = mpsc::channel(1);
        let started = match source {
            Source::Lines(reader) => read_lines(reader, lines),
            Source::Prompt(terminal) => terminal.start(lines, interrupts),
        };
        started.map_err(|error| self.cannot(format!("no thread to read it: {error}")))?;
        let pump =
            Pump::new(taken, interrupted, self.printer.clone(), Arc::clone(&self.deliveries), self.ending, intake);
        let open = Open { pump, prompt: self.prompt.clone() };
        Ok(Box::pin(stream::unfold(open, |mut open| async move { open.next().await.map(|envelope| (envelope, open)) })))
    }

    fn profile(&self) -> ChannelProfile<'_> {
        // A script wants an answer to each of its lines; a person at the keyboard adds to the running task.
        let queue_mode = match self.ending {
            Ending::AfterAnswers => QueueMode::Followup,
            Ending::AtOnce => QueueMode::Steer,
        };
        let hints = "Answers are read in a terminal: write plain text with as little markup as possible, and lines that are not long.";
        ChannelProfile { queue_mode, hints: Some(hints), ..ChannelProfile::default() }
    }

    fn admission(&self) -> Option<&dyn ChannelAccess> {
        Some(&Operators)
    }

    async fn deliver(&self, message: &Outbound) -> Result<(), DeliverError> {
        let question = message.question.as_ref();
        let look = if question.is_some() { Look::Question } else { Look::Plain };
        let shown = if message.text.is_empty() { Ok(()) } else { self.printer.show(&message.text, look).await };
        if question.is_some_and(|question| !question.decidable) && self.has_prompt() {
            let _ = self.printer.show(SECRET_HINT, look).await; // the question itself says what is needed
        }
        if let Some(run) = message.run_id {
            // Also when it failed: nobody need wait for it any longer.
            self.deliveries.note((run, question.map(|question| question.gate)));
        }
        shown.map_err(|error| DeliverError::Refused { detail: format!("standard output: {error}") })
    }
}

impl Drop for StdinChannel {
    fn drop(&mut self) {
        if let Some(prompt) = &self.prompt {
            prompt.tell();
        }
    }
}

/// A started channel's intake.
struct Open {
    pump: Pump,
    prompt: Option<PromptEnd>,
}

impl Open {
    async fn next(&mut self) -> Option<Envelope> {
        let next = self.pump.next().await;
        if next.is_none()
            && let Some(prompt) = &self.prompt
        {
            self.pump.lines.close(); // lets go a prompt that waits to hand over a line
            prompt.reached().await;
        }
        next
    }
}

/// Reads lines on a thread of its own until the end of input, an error, or the end of whoever takes them.
fn read_lines(reader: Box<dyn Read + Send>, lines: mpsc::Sender<Line>) -> io::Result<()> {
    thread::Builder::new().name("stdin-lines".into()).spawn(move || {
        let mut reader = LineReader::new(reader);
        loop {
            match reader.next() {
                Ok(Some(line)) => {
                    if lines.blocking_send(line).is_err() {
                        break;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    warn!(%error, "standard input cannot be read any further; taken as its end");
                    break;
                }
            }
        }
    })?;
    Ok(())
}

/// What standard input is. `/dev/null` and other devices that are no terminal are nothing; a closed standard input has
/// been replaced by `/dev/null` by the runtime library.
fn input() -> Input {
    if io::stdin().is_terminal() {
        return Input::Terminal;
    }
    let kind =
        io::stdin().as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata()).map(|it| it.file_type());
    match kind {
        Ok(kind) if kind.is_fifo() || kind.is_file() || kind.is_socket() => Input::Stream,
        _ => Input::Nothing,
    }
}

/// A sink whose texts cannot steer the terminal they end up on.
struct Harmless<S>(S);

impl<S: Sink> Sink for Harmless<S> {
    fn show(&mut self, text: &str, look: Look) -> io::Result<()> {
        self.0.show(&harmless(text), look)
    }
}

#[cfg(test)]
mod tests;
