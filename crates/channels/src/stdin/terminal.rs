//! The prompt on a terminal. Line editing runs on a thread of its own; replies appear above the line that is being
//! typed.

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use reedline::{
    ExternalPrinter, FileBackedHistory, Prompt, PromptEditMode, PromptHistorySearch, PromptHistorySearchStatus,
    Reedline, Signal,
};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::lines::{LINE_MAX_BYTES, Line};
use super::printer::{Look, Plain, Sink, escaped};
use crate::config::StdinConfig;

/// Number of history lines that are kept.
const HISTORY_LINES: usize = 1000;

/// The command that Ctrl-D stands for.
const QUIT: &str = "/quit";

/// Capacity of the queue of replies to paint. When it is full, deliveries wait.
const PAINT_QUEUE: usize = 16;

/// Longest wait for the end of the prompt. 3 s: the prompt asks the terminal for the cursor position, and gives up
/// after 2 s without an answer.
const CLOSE_MAX: Duration = Duration::from_secs(3);

/// Poll interval of the editor: the longest delay of a reply and of the end. 50 ms: people do not notice it.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Output for replies: above the prompt while there is one, straight to the terminal afterwards.
#[derive(Clone)]
pub(super) struct Screen {
    painter: Arc<Mutex<Painter>>,
    colour: bool,
}

enum Painter {
    Editor(SyncSender<String>),
    Direct,
}

impl Sink for Screen {
    fn show(&mut self, text: &str, look: Look) -> io::Result<()> {
        let mut text = painted(&escaped(text), look, self.colour);
        loop {
            let painter = self.painter.lock().unwrap_or_else(PoisonError::into_inner);
            let sender = match &*painter {
                Painter::Editor(sender) => sender,
                // Under the lock, so never while the prompt is being removed.
                Painter::Direct => return Plain(io::stdout()).show(&text, look),
            };
            match sender.try_send(text) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => text = back,
            }
            drop(painter);
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// A prompt that has not been shown yet.
pub(super) struct Terminal {
    editor: Reedline,
    screen: Screen,
    end: PromptEnd,
}

/// Ends the prompt and waits for its end.
#[derive(Clone, Default)]
pub(super) struct PromptEnd {
    /// Makes the editor end within [`POLL_INTERVAL`].
    stop: Arc<AtomicBool>,
    /// Cancelled when the prompt's thread has ended, also by a panic.
    ended: CancellationToken,
}

impl PromptEnd {
    /// Asks the prompt to end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends the prompt and waits until the terminal is restored: about [`POLL_INTERVAL`].
    pub(super) async fn stopped(&self) {
        self.stop();
        if timeout(CLOSE_MAX, self.ended.cancelled()).await.is_err() {
            warn!("the prompt did not end in time; the terminal may need a reset");
        }
    }
}

impl Terminal {
    pub(super) fn new(config: &StdinConfig) -> Self {
        let printer = ExternalPrinter::new(PAINT_QUEUE);
        let painter = Arc::new(Mutex::new(Painter::Editor(printer.sender())));
        let screen = Screen { painter, colour: config.colour };
        let end = PromptEnd::default();
        let mut editor = Reedline::create()
            .with_ansi_colors(config.colour)
            .with_external_printer(printer)
            // Lets people keep a secret out of the history.
            .with_history_exclusion_prefix(Some(" ".into()))
            .with_poll_interval(POLL_INTERVAL)
            .with_break_signal(Arc::clone(&end.stop));
        if let Some(history) = config.history_file.as_deref().and_then(open_history) {
            editor = editor.with_history(history);
        }
        Self { editor, screen, end }
    }

    pub(super) fn screen(&self) -> Screen {
        self.screen.clone()
    }

    pub(super) fn end(&self) -> PromptEnd {
        self.end.clone()
    }

    /// Shows the prompt until the break, or until the receiver of the lines is dropped. Ctrl-D means `/quit`: the
    /// daemon would continue for its other channels, and a prompt that no longer reads would look alive. The thread
    /// blocks on the keyboard for at most [`POLL_INTERVAL`], so it can always be ended.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(super) fn start(self, lines: mpsc::Sender<Line>, interrupts: mpsc::Sender<()>) -> io::Result<()> {
        let ended = self.end.ended.clone().drop_guard();
        thread::Builder::new().name("stdin-prompt".into()).spawn(move || {
            let _ended = ended;
            self.edit(&lines, &interrupts);
        })?;
        Ok(())
    }

    fn edit(mut self, lines: &mpsc::Sender<Line>, interrupts: &mpsc::Sender<()>) {
        loop {
            match self.editor.read_line(&BelayPrompt("belay> ")) {
                Ok(Signal::Success(text)) => {
                    if lines.blocking_send(typed(text)).is_err() {
                        break; // the receiver was dropped
                    }
                }
                Ok(Signal::CtrlC) => {
                    let _ = interrupts.try_send(()); // full: another interrupt is already queued
                }
                Ok(Signal::CtrlD) => {
                    if lines.blocking_send(Line::Text(QUIT.into())).is_err() {
                        break; // the receiver was dropped
                    }
                }
                Ok(Signal::ExternalBreak(_)) => break,
                Ok(_) => {}
                Err(error) => {
                    warn!(%error, "the prompt has failed");
                    break;
                }
            }
        }
        self.close();
    }

    /// Paints the remaining replies, then sends further replies straight to the terminal.
    fn close(self) {
        let mut painter = self.screen.painter.lock().unwrap_or_else(PoisonError::into_inner);
        let mut editor = self.editor.with_immediately_accept(true); // one pass: paint, return
        if let Err(error) = editor.read_line(&BelayPrompt("")) {
            warn!(%error, "the last replies could not be painted");
        }
        *painter = Painter::Direct;
    }
}

/// Formats the text: an approval request is yellow. Each line is coloured on its own, because lines are painted one by
/// one.
fn painted(text: &str, look: Look, colour: bool) -> String {
    match (look, colour) {
        (Look::Question, true) => text.lines().map(|line| format!("\x1b[33m{line}\x1b[0m\n")).collect(),
        (Look::Question, false) | (Look::Plain, _) => text.to_owned(),
    }
}

fn typed(text: String) -> Line {
    if text.len() <= LINE_MAX_BYTES {
        return Line::Text(text);
    }
    Line::Unusable(format!("Not sent: it is longer than {LINE_MAX_BYTES} bytes."))
}

fn open_history(path: &Path) -> Option<Box<FileBackedHistory>> {
    match FileBackedHistory::with_file(HISTORY_LINES, path.to_owned()) {
        Ok(history) => Some(Box::new(history)),
        Err(error) => {
            warn!(path = %path.display(), %error, "the history file cannot be used; this session keeps none");
            None
        }
    }
}

struct BelayPrompt(&'static str);

impl Prompt for BelayPrompt {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.0)
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _mode: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("  ... ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        let failing = if matches!(search.status, PromptHistorySearchStatus::Failing) { "nothing for " } else { "" };
        Cow::Owned(format!("({failing}{}) ", search.term))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_stands_out_where_there_are_colours() {
        for (look, colour, expected) in [
            (Look::Question, true, "\x1b[33mMay I?\x1b[0m\n\x1b[33myes or no\x1b[0m\n"),
            (Look::Question, false, "May I?\nyes or no"),
            (Look::Plain, true, "May I?\nyes or no"),
        ] {
            assert_eq!(painted("May I?\nyes or no", look, colour), expected, "{look:?} {colour}");
        }
    }
}
