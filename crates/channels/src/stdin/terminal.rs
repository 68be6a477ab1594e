//! The prompt on a terminal: line editing on a thread of its own, replies above the line that is being typed.

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
use super::printer::{Look, Plain, Sink, harmless};
use crate::config::StdinConfig;

/// Lines of history that are kept.
const HISTORY_LINES: usize = 1000;

/// The command that Ctrl-D stands for.
const QUIT: &str = "/quit";

/// Replies that wait to be painted; when it is full, deliveries wait.
const PAINT_QUEUE: usize = 16;

/// Longest wait for the prompt to be put away. 3 s: it asks the terminal where the cursor is, and takes 2 s of silence
/// for an answer.
const PUT_AWAY_MAX: Duration = Duration::from_secs(3);

/// How often the editor looks up from the keyboard: the longest delay of a reply, and of the end. 50 ms: not noticed.
const LOOK_UP: Duration = Duration::from_millis(50);

/// Where replies go: above the prompt while there is one, straight to the terminal afterwards.
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
        let mut text = painted(&harmless(text), look, self.colour);
        loop {
            let painter = self.painter.lock().unwrap_or_else(PoisonError::into_inner);
            let sender = match &*painter {
                Painter::Editor(sender) => sender,
                Painter::Direct => return Plain(io::stdout()).show(&text, look), // under the lock: not while the prompt is put away
            };
            match sender.try_send(text) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => text = back,
            }
            drop(painter);
            thread::sleep(LOOK_UP);
        }
    }
}

/// A prompt that has not been shown yet.
pub(super) struct Terminal {
    editor: Reedline,
    screen: Screen,
    end: PromptEnd,
}

/// The end of the prompt.
#[derive(Clone, Default)]
pub(super) struct PromptEnd {
    /// Makes the editor look up and end within [`LOOK_UP`].
    stop: Arc<AtomicBool>,
    /// Cancelled when the prompt's thread has ended, by a panic too.
    away: CancellationToken,
}

impl PromptEnd {
    /// Has the prompt put away.
    pub(super) fn tell(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Has the prompt put away and waits until the terminal is in its normal state: about [`LOOK_UP`].
    pub(super) async fn reached(&self) {
        self.tell();
        if timeout(PUT_AWAY_MAX, self.away.cancelled()).await.is_err() {
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
            // So that a secret need not be kept.
            .with_history_exclusion_prefix(Some(" ".into()))
            .with_poll_interval(LOOK_UP)
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

    /// Shows the prompt until the break, or the end of whoever takes the lines. Ctrl-D means `/quit`: a prompt that no
    /// longer reads would look alive and be dead, since the daemon goes on for its other channels. The thread never blocks on the
    /// keyboard for longer than [`LOOK_UP`], so it can always be told to end.
    ///
    /// # Errors
    /// The system has no thread for us.
    pub(super) fn start(self, lines: mpsc::Sender<Line>, interrupts: mpsc::Sender<()>) -> io::Result<()> {
        let ended = self.end.away.clone().drop_guard();
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
                        break; // nobody takes lines any more
                    }
                }
                Ok(Signal::CtrlC) => {
                    let _ = interrupts.try_send(()); // full: one is on its way already
                }
                Ok(Signal::CtrlD) => {
                    if lines.blocking_send(Line::Text(QUIT.into())).is_err() {
                        break; // nobody takes lines any more
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
        self.put_away();
    }

    /// Paints what still waits, then lets replies go straight to the terminal.
    fn put_away(self) {
        let mut painter = self.screen.painter.lock().unwrap_or_else(PoisonError::into_inner);
        let mut editor = self.editor.with_immediately_accept(true); // one pass: paint, return
        if let Err(error) = editor.read_line(&BelayPrompt("")) {
            warn!(%error, "the last replies could not be painted");
        }
        *painter = Painter::Direct;
    }
}

/// The text as it looks: a question in yellow, line by line, since lines are painted one by one.
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
