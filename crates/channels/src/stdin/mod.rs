//! Standard input and output as a channel: a prompt on a terminal, plain lines otherwise.
//!
//! Everyone who can write to standard input is an operator. The channel has one session, `stdin`.
//!
//! The stream ends at the end of input or when intake is cancelled. Then the prompt's thread restores the terminal and
//! ends. The thread that reads a pipe may be blocked in a read that nothing can interrupt. It holds at most the line
//! that it has begun, nobody waits for it, and it ends with the process.

#[cfg(feature = "line-editor")]
mod board;
mod complete;
mod deliveries;
#[cfg(feature = "line-editor")]
mod editor;
mod lines;
mod paused;
mod printer;
mod pump;
mod size;
#[cfg_attr(not(feature = "line-editor"), path = "no_terminal.rs")]
mod terminal;
#[cfg(feature = "line-editor")]
mod watching;
#[cfg(feature = "line-editor")]
mod words;

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use async_trait::async_trait;
use belay_protocol::{
    AccessDecision, Authority, Channel, ChannelAccess, ChannelDisplay, ChannelError, ChannelId, ChannelProfile,
    Confirmation, DeliverError, DeliveryQuality, Envelope, InboundStream, Outbound, Quality, QueueMode, SessionKey,
    Streaming,
};
use belay_terminal::{Look, question, rendered};
use futures_util::stream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

pub use self::complete::Completions;
use self::deliveries::Deliveries;
use self::lines::{Line, LineReader};
use self::printer::{Kind, Plain, Printer, Shown, Sink, escaped};
use self::pump::{Ending, Pump};
use self::size::size;
use self::terminal::{Board, PromptEnd, Terminal};
use crate::config::{Enabled, StdinConfig};
use crate::short_ids::with_short_id;

/// The channel's id, the key of its only session, and the id of its principal.
const NAME: &str = "stdin";

/// Capacity of the queue of lines that were read but not consumed. When it is full, the reader waits, and so does the
/// writer of the pipe.
const LINES: usize = 16;

/// Capacity of the queue of typed lines. 256: the receiver takes them at once, unless it is busy with a slow daemon. When
/// it is full, a line is refused: the prompt must always read the keyboard.
const TYPED_LINES: usize = 256;

/// Grants operator authority to the principal `stdin`. Independent of whether the channel is open: work that a person
/// started at a terminal keeps its rights when the daemon runs as a service.
pub struct Operators;

impl ChannelAccess for Operators {
    fn may_exist(&self, principal: &str) -> bool {
        principal == NAME
    }

    fn standing_of(&self, principal: &str, _conversation: Option<&str>) -> AccessDecision {
        if principal == NAME {
            AccessDecision::May(Authority::Operator)
        } else {
            AccessDecision::NotAllowed("standard input has no principal of that name".to_owned())
        }
    }

    fn serves(&self, _conversation: &str) -> bool {
        true
    }

    fn session_of(&self, _conversation: &str) -> Option<SessionKey> {
        Some(SessionKey::new(NAME))
    }
}

/// Hint for the person at the prompt when the next line is a secret.
const SECRET_HINT: &str = "Begin the line with a space to keep it out of the prompt's history.";

/// Standard input and output as a channel.
pub struct StdinChannel {
    id: ChannelId,
    /// Taken by `start`.
    source: Mutex<Option<Source>>,
    printer: Printer,
    deliveries: Arc<Deliveries>,
    ending: Ending,
    /// `None` if there is no prompt.
    prompt: Option<Shell>,
}

/// The prompt of a terminal, as the channel sees it.
#[derive(Clone)]
struct Shell {
    end: PromptEnd,
    board: Board,
}

enum Source {
    Lines(Box<dyn Read + Send>),
    #[cfg_attr(not(feature = "line-editor"), expect(dead_code, reason = "a build without a prompt"))]
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
    /// Opens the channel over the process's standard input and output. Returns `None` if the channel is disabled, or if
    /// it is `auto` and standard input is `/dev/null` or closed.
    ///
    /// The prompt with line editing appears if standard input, output and error are terminals, not dumb ones. Otherwise, and
    /// in a build without a line editor, plain lines are read. `completions`: what TAB completes at the prompt.
    pub fn open(config: &StdinConfig, completions: Option<Arc<dyn Completions>>) -> Option<Self> {
        let input = input();
        match (config.enabled, input) {
            (Enabled::No, _) | (Enabled::Auto, Input::Nothing) => return None,
            (Enabled::Auto | Enabled::Yes, _) => {}
        }
        let is_screen = input == Input::Terminal && io::stdout().is_terminal() && io::stderr().is_terminal();
        let at_prompt = if is_screen && !config.dumb { terminal::channel(config, completions) } else { None };
        let opened = at_prompt.unwrap_or_else(|| {
            let ending = if input == Input::Terminal { Ending::AtOnce } else { Ending::AfterAnswers };
            let source = Source::Lines(Box::new(io::stdin()));
            if io::stdout().is_terminal() {
                Self::new(source, Rendered { colour: config.colour }, ending, None)
            } else {
                Self::new(source, Plain(io::stdout()), ending, None)
            }
        });
        opened.inspect_err(|error| error!(%error, "standard input cannot be served")).ok()
    }

    /// Opens the channel over any reader and writer, with the rules of piped input.
    ///
    /// # Errors
    /// The system cannot start a thread for the writer.
    pub fn over(reader: impl Read + Send + 'static, writer: impl Write + Send + 'static) -> io::Result<Self> {
        Self::new(Source::Lines(Box::new(reader)), Plain(writer), Ending::AfterAnswers, None)
    }

    fn new(source: Source, sink: impl Sink, ending: Ending, prompt: Option<Shell>) -> io::Result<Self> {
        Ok(Self {
            id: ChannelId::new(NAME),
            source: Mutex::new(Some(source)),
            printer: Printer::start(sink)?,
            deliveries: Arc::new(Deliveries::new()),
            ending,
            prompt,
        })
    }

    /// Whether a person types at a prompt. Other output would disturb the line that is being edited.
    pub fn has_prompt(&self) -> bool {
        self.prompt.is_some()
    }

    /// Sets this flag while another program has the terminal of the prompt: the person's editor. Its Ctrl-C reaches this
    /// process too, and is not for it. To be called before the channel is started.
    pub fn lend_by(&self, lent: Arc<AtomicBool>) {
        if let Some(Source::Prompt(terminal)) = &mut *self.source.lock().unwrap_or_else(PoisonError::into_inner) {
            terminal.lend_by(lent);
        }
    }

    /// Shows a line in the same way as an answer: above the line that is being typed.
    ///
    /// # Errors
    /// Standard output cannot be written.
    ///
    /// # Cancel safety
    /// If dropped midway, the line may still be shown.
    pub async fn say(&self, text: &str) -> io::Result<()> {
        self.printer.notify(text).await
    }

    /// Ends the prompt and returns when the terminal is restored. The process must not exit earlier. Does nothing if
    /// there is no prompt, or if it was never shown.
    pub async fn close(&self) {
        let is_started = self.source.lock().unwrap_or_else(PoisonError::into_inner).is_none();
        if let Some(prompt) = self.prompt.as_ref().filter(|_| is_started) {
            prompt.end.stopped().await;
        }
    }

    fn cannot(&self, detail: impl Into<String>) -> ChannelError {
        ChannelError { channel: self.id.clone(), detail: detail.into() }
    }
}

/// What standard input promises: lines are written, and nobody confirms that they are read.
pub const QUALITY: Quality =
    Quality { delivery: DeliveryQuality::OnceOrUnknown, confirmed_by: Confirmation::RealServer };

#[async_trait]
impl Channel for StdinChannel {
    fn id(&self) -> &ChannelId {
        &self.id
    }

    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError> {
        let source = self.source.lock().unwrap_or_else(PoisonError::into_inner).take();
        let source = source.ok_or_else(|| self.cannot("it was started before"))?;
        let capacity = if matches!(source, Source::Prompt(_)) { TYPED_LINES } else { LINES };
        let (lines, taken) = mpsc::channel(capacity);
        let (interrupts, interrupted) = mpsc::channel(1);
        let started = match source {
            Source::Lines(reader) => read_lines(reader, lines),
            Source::Prompt(terminal) => terminal.start(lines, interrupts, Arc::clone(&self.deliveries)),
        };
        started.map_err(|error| self.cannot(format!("no thread to read it: {error}")))?;
        let pump =
            Pump::new(taken, interrupted, self.printer.clone(), Arc::clone(&self.deliveries), self.ending, intake);
        let open = Open { pump, prompt: self.prompt.clone() };
        Ok(Box::pin(stream::unfold(open, |mut open| async move { open.next().await.map(|envelope| (envelope, open)) })))
    }

    fn profile(&self) -> ChannelProfile<'_> {
        // A script wants an answer to each of its lines. A person at the keyboard adds to the running turn.
        let queue_mode = match self.ending {
            Ending::AfterAnswers => QueueMode::Followup,
            Ending::AtOnce => QueueMode::Steer,
        };
        let hints = match self.prompt {
            Some(_) => "Answers are read in a terminal, which shows Markdown. Keep tables narrow.",
            None => {
                "Answers are read in a terminal: write plain text with as little markup as possible, and lines that are not long."
            }
        };
        // A file stays where it is: its path is shown.
        ChannelProfile {
            queue_mode,
            max_file_bytes: u64::MAX,
            hints: Some(hints),
            quality: QUALITY,
            ..ChannelProfile::default()
        }
    }

    fn display(&self) -> ChannelDisplay<'_> {
        let streaming = self.prompt.as_ref().map_or(Streaming::Off, |prompt| Streaming::Live(&prompt.board));
        ChannelDisplay { streaming, ..ChannelDisplay::default() }
    }

    fn admission(&self) -> Option<&dyn ChannelAccess> {
        Some(&Operators)
    }

    async fn deliver(&self, message: &Outbound) -> Result<(), DeliverError> {
        let question = message.question.as_ref();
        let kind = question.map_or(Kind::Message, |question| Kind::Question(question.approval));
        let shown = Shown { text: with_short_id(message).into_owned(), kind, run: message.run_id };
        let shown = if message.text.is_empty() { Ok(()) } else { self.printer.show(shown).await };
        let shown = match &message.file {
            Some(file) if shown.is_ok() => self.printer.notify(&file.line()).await,
            _ => shown,
        };
        if question.is_some_and(|question| !question.decidable) && self.has_prompt() {
            let _ = self.printer.notify(SECRET_HINT).await; // may fail: the question itself says what is needed
        }
        if let Some(run) = message.run_id {
            // Also after a failure: nobody needs to wait for this delivery any longer.
            self.deliveries.note((run, question.map(|question| question.approval)));
        }
        shown.map_err(|error| DeliverError::Refused { detail: format!("standard output: {error}") })
    }
}

impl Drop for StdinChannel {
    fn drop(&mut self) {
        if let Some(prompt) = &self.prompt {
            prompt.end.stop();
        }
    }
}

/// The intake of a started channel.
struct Open {
    pump: Pump,
    prompt: Option<Shell>,
}

impl Open {
    async fn next(&mut self) -> Option<Envelope> {
        let next = self.pump.next().await;
        if next.is_none()
            && let Some(prompt) = &self.prompt
        {
            self.pump.lines.close(); // a line that is typed from now on is not taken
            prompt.end.stopped().await;
        }
        next
    }
}

/// Reads lines on a thread of its own until the end of input, an error, or until the receiver is dropped.
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

/// Detects what standard input is. `/dev/null` and other devices that are no terminal count as nothing. The runtime
/// library has replaced a closed standard input by `/dev/null`.
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

/// A terminal without a prompt.
struct Rendered {
    colour: bool,
}

impl Sink for Rendered {
    fn show(&mut self, shown: &Shown) -> io::Result<()> {
        let look = Look { width: size().0, colour: self.colour };
        let text = match shown.kind {
            Kind::Message => rendered(&shown.text, look).join("\n"),
            Kind::Question(_) => question(&shown.text, look, None).join("\n"),
            Kind::Notice => escaped(&shown.text),
        };
        Plain(io::stdout()).write(&text)
    }
}

#[cfg(test)]
mod tests;
