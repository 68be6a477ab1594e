//! The prompt on a terminal. Line editing runs on a thread of its own; replies appear above the line that is being
//! typed.

use std::borrow::Cow;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use belay_terminal::{Input, pasted};
use reedline::{
    EditCommand, EditMode, Emacs, ExternalPrinter, FileBackedHistory, Highlighter, KeyCode, KeyModifiers, Prompt,
    PromptEditMode, PromptHistorySearch, PromptHistorySearchStatus, Reedline, ReedlineEvent, ReedlineRawEvent, Signal,
    StyledText, ValidationResult, Validator, default_emacs_keybindings,
};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub(super) use super::board::Board;
use super::board::{MORE, Phase};
use super::complete::Completions;
use super::deliveries::Deliveries;
use super::editor::Editor;
use super::lines::{LINE_MAX_BYTES, Line};
use super::pump::Ending;
use super::size::size;
use super::watching::{Left, watch};
use super::words::{Words, menu, tab};
use super::{Shell, Source, StdinChannel};
use crate::config::StdinConfig;

/// Number of history lines that are kept.
const HISTORY_LINES: usize = 1000;

/// The command that Ctrl-D stands for.
const QUIT: &str = "/quit";

/// The prompt.
const PROMPT: &str = "belay> ";

/// Longest wait for the beginning of a run after a line was sent. Without the wait, the prompt would appear and vanish. 150
/// ms: a message is on disk and its run begins within a few.
const RUN_BEGINS: Duration = Duration::from_millis(150);

/// Capacity of the editor's queue of texts. 1: a text that it has not printed when it returns is known, and is printed
/// otherwise.
const PAINT_QUEUE: usize = 1;

/// Longest wait for the end of the prompt. 3 s: the prompt asks the terminal for the cursor position, and gives up
/// after 2 s without an answer.
const CLOSE_MAX: Duration = Duration::from_secs(3);

/// Poll interval of the editor: the longest delay of a reply and of the end. 50 ms: people do not notice it.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A prompt that has not been shown yet.
pub(super) struct Terminal {
    editor: Reedline,
    /// The program for longer texts.
    program: Editor,
    board: Board,
    end: PromptEnd,
    /// Set while the program for longer texts has the terminal.
    lent: Arc<AtomicBool>,
    /// How long the next run is waited for before the prompt appears.
    patience: Duration,
}

/// Ends the prompt and waits for its end.
#[derive(Clone, Default)]
pub(super) struct PromptEnd {
    /// Whether the prompt has to end.
    stop: Arc<AtomicBool>,
    /// Makes the editor return within [`POLL_INTERVAL`].
    leave: Arc<AtomicBool>,
    /// Cancelled when the prompt's thread has ended, also by a panic.
    ended: CancellationToken,
}

impl PromptEnd {
    /// Asks the prompt to end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.leave.store(true, Ordering::Relaxed);
    }

    /// Ends the prompt and waits until the terminal is restored: about [`POLL_INTERVAL`].
    pub(super) async fn stopped(&self) {
        self.stop();
        if timeout(CLOSE_MAX, self.ended.cancelled()).await.is_err() {
            warn!("the prompt did not end in time; the terminal may need a reset");
        }
    }
}

/// The channel over a prompt; `None`: this build has no line editor.
pub(super) fn channel(
    config: &StdinConfig,
    completions: Option<Arc<dyn Completions>>,
) -> Option<io::Result<StdinChannel>> {
    let terminal = Terminal::new(config, completions);
    let shell = Shell { end: terminal.end(), board: terminal.board() };
    let source = Source::Prompt(Box::new(terminal));
    Some(StdinChannel::new(source, shell.board.clone(), Ending::AtOnce, Some(shell)))
}

impl Terminal {
    fn new(config: &StdinConfig, completions: Option<Arc<dyn Completions>>) -> Self {
        let printer = ExternalPrinter::new(PAINT_QUEUE);
        let end = PromptEnd::default();
        let board = Board::new(printer.sender(), Arc::clone(&end.leave), config.colour);
        let mut editor = Reedline::create()
            .with_ansi_colors(config.colour)
            .with_external_printer(printer)
            // Lets people keep a secret out of the history.
            .with_history_exclusion_prefix(Some(" ".into()))
            .with_poll_interval(POLL_INTERVAL)
            // The lines of a paste are one text, which Enter sends.
            .use_bracketed_paste(true)
            .with_highlighter(Box::new(Buffer(board.clone())))
            .with_validator(Box::new(Lines))
            .with_edit_mode(Box::new(Keys(keys())))
            .with_break_signal(Arc::clone(&end.leave));
        if let Some(completions) = completions {
            editor = editor.with_completer(Box::new(Words(completions))).with_menu(menu());
            // A single word, or what all have in common, is inserted at once.
            editor = editor.with_quick_completions(true).with_partial_completions(true);
        }
        if let Some(history) = config.history_file.as_deref().and_then(open_history) {
            editor = editor.with_history(history);
        }
        let data = config.history_file.as_deref().and_then(Path::parent).filter(|data| data.is_dir());
        let program = Editor::new(config.editor.as_deref(), data.unwrap_or(&std::env::temp_dir()));
        Self { editor, program, board, end, lent: Arc::default(), patience: Duration::ZERO }
    }

    /// Sets this flag while another program has the terminal.
    pub(super) fn lend_by(&mut self, lent: Arc<AtomicBool>) {
        self.lent = lent;
    }

    fn board(&self) -> Board {
        self.board.clone()
    }

    fn end(&self) -> PromptEnd {
        self.end.clone()
    }

    /// Shows the prompt until the break, or until the receiver of the lines is dropped. Ctrl-D means `/quit`: the
    /// daemon would continue for its other channels, and a prompt that no longer reads would look alive. The thread
    /// blocks on the keyboard for at most [`POLL_INTERVAL`], so it can always be ended.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(super) fn start(
        self,
        lines: mpsc::Sender<Line>,
        interrupts: mpsc::Sender<()>,
        deliveries: Arc<Deliveries>,
    ) -> io::Result<()> {
        let ended = self.end.ended.clone().drop_guard();
        thread::Builder::new().name("stdin-prompt".into()).spawn(move || {
            let _ended = ended;
            self.edit(&lines, &interrupts, &deliveries);
        })?;
        Ok(())
    }

    fn edit(mut self, lines: &mpsc::Sender<Line>, interrupts: &mpsc::Sender<()>, deliveries: &Deliveries) {
        while let Ok(next) = self.next() {
            match next {
                Next::Line(text) if text.trim() == MORE => self.board.show_more(deliveries),
                Next::Editor => self.open_editor(),
                Next::Line(text) => {
                    if !self.hand_over(lines, typed(text)) {
                        break;
                    }
                }
                Next::Interrupt => {
                    let _ = interrupts.try_send(()); // full: another interrupt is already queued
                }
                Next::Quit => {
                    if !self.hand_over(lines, Line::Text(QUIT.into())) {
                        break;
                    }
                }
                Next::Nothing => {}
                Next::Stop => break,
            }
        }
        if let Err(error) = self.board.end() {
            warn!(%error, "the last replies could not be written");
        }
    }

    /// Edits the typed text in the person's editor. The board draws nothing meanwhile.
    fn open_editor(&mut self) {
        self.board.enter(Phase::Watching);
        let edited = self.program.edit(self.editor.current_buffer_contents(), &self.end.stop, &self.lent);
        self.board.enter(Phase::Editing);
        match edited {
            Ok(text) => self.editor.run_edit_commands(&[EditCommand::Clear, EditCommand::InsertString(text)]),
            Err(why) => self.board.say(&why),
        }
    }

    /// Hands over a line without waiting: this thread reads the keyboard. `false`: the receiver was dropped.
    fn hand_over(&self, lines: &mpsc::Sender<Line>, line: Line) -> bool {
        match lines.try_send(line) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.board.say("Not sent, because too many lines wait. Wait for the answers, or press Ctrl-C.");
                true
            }
            Err(TrySendError::Closed(_)) => false,
        }
    }

    /// Edits the next line, or shows a working run while nothing is typed.
    fn next(&mut self) -> io::Result<Next> {
        let failed = |error: &io::Error| warn!(%error, "the prompt has failed");
        if self.end.stop.load(Ordering::Relaxed) {
            return Ok(Next::Stop);
        }
        if self.editor.current_buffer_contents().is_empty() && (self.patience > Duration::ZERO || self.board.has_news())
        {
            match watch(&self.board, &self.end.stop, std::mem::take(&mut self.patience)).inspect_err(failed)? {
                Left::Idle => {}
                Left::Typed(c) => self.editor.run_edit_commands(&[EditCommand::InsertChar(c)]),
                Left::Pasted(text) => self.editor.run_edit_commands(&[EditCommand::InsertString(text)]),
                Left::Editor => return Ok(Next::Editor),
                Left::Interrupt => return Ok(Next::Interrupt),
                Left::Quit => return Ok(Next::Quit),
                Left::Stopped => return Ok(Next::Stop),
            }
        }
        let signal = self.editor.read_line(&BelayPrompt).inspect_err(failed)?;
        if self.board.left(self.editor.current_buffer_contents().is_empty()) {
            let printer = ExternalPrinter::new(PAINT_QUEUE);
            self.board.print_by(printer.sender());
            let editor = std::mem::replace(&mut self.editor, Reedline::create());
            self.editor = editor.with_external_printer(printer);
        }
        Ok(match signal {
            Signal::Success(text) => {
                // A command is answered at once. Anything else begins a run, or joins one.
                self.patience = if text.trim().is_empty() { Duration::ZERO } else { RUN_BEGINS };
                Next::Line(Input::joined(&text))
            }
            Signal::CtrlC => Next::Interrupt,
            Signal::CtrlD => Next::Quit,
            Signal::HostCommand(_) => {
                if self.editor.current_buffer_contents().is_empty() {
                    remove_prompt("")?;
                }
                Next::Editor
            }
            Signal::ExternalBreak(text) => {
                let stop = self.end.stop.load(Ordering::Relaxed);
                if stop || text.is_empty() {
                    remove_prompt(&text)?;
                }
                if stop { Next::Stop } else { Next::Nothing }
            }
            _ => Next::Nothing,
        })
    }
}

/// What the prompt's thread does next.
enum Next {
    Line(String),
    Editor,
    Interrupt,
    Quit,
    Nothing,
    Stop,
}

/// Erases the prompt, on whose line the cursor is. A typed text stays, and the cursor goes below it.
fn remove_prompt(typed: &str) -> io::Result<()> {
    let rows_above = (PROMPT.len() - 1) / size().0;
    let mut out = io::stdout().lock();
    match (typed.is_empty(), rows_above) {
        (false, _) => out.write_all(b"\r\n")?,
        (true, 0) => out.write_all(b"\r\x1b[J")?,
        (true, rows) => write!(out, "\r\x1b[{rows}A\x1b[J")?,
    }
    out.flush()
}

/// The keys of the line editor. A paste is taken without control characters, which the terminal would carry out.
struct Keys(Emacs);

impl EditMode for Keys {
    fn parse_event(&mut self, event: ReedlineRawEvent) -> ReedlineEvent {
        match self.0.parse_event(event) {
            ReedlineEvent::Edit(commands) => ReedlineEvent::Edit(commands.into_iter().map(taken).collect()),
            event => event,
        }
    }

    fn edit_mode(&self) -> PromptEditMode {
        self.0.edit_mode()
    }
}

/// The command of a key; that of a paste with the text that is taken.
fn taken(command: EditCommand) -> EditCommand {
    match command {
        EditCommand::InsertString(text) => EditCommand::InsertString(pasted(&text)),
        command => command,
    }
}

/// The keys of Emacs, Alt-Enter for a new line, and Ctrl-O for the person's editor.
fn keys() -> Emacs {
    let mut keys = default_emacs_keybindings();
    let new_line = ReedlineEvent::Edit(vec![EditCommand::InsertNewline]);
    keys.add_binding(KeyModifiers::ALT, KeyCode::Enter, new_line);
    keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, tab());
    keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('o'), ReedlineEvent::ExecuteHostCommand(String::new()));
    Emacs::new(keys)
}

/// Tells the board whether anything is typed. The editor shows the text as it is.
struct Buffer(Board);

impl Highlighter for Buffer {
    fn highlight(&self, line: &str, _cursor: usize) -> StyledText {
        self.0.typed(line.is_empty());
        let mut text = StyledText::new();
        text.push((Default::default(), line.to_owned()));
        text
    }
}

/// Decides whether Enter sends a text.
struct Lines;

impl Validator for Lines {
    fn validate(&self, line: &str) -> ValidationResult {
        match Input::of(line) {
            Input::Complete => ValidationResult::Complete,
            Input::Continues => ValidationResult::Incomplete,
        }
    }
}

fn typed(text: String) -> Line {
    if text.len() <= LINE_MAX_BYTES {
        return Line::Text(text);
    }
    Line::Unusable(format!("Not sent: it is longer than {LINE_MAX_BYTES} bytes."))
}

/// Makes the file, or makes it unreadable for others.
fn private(path: &Path) -> io::Result<()> {
    let file = File::options().create(true).append(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))
}

fn open_history(path: &Path) -> Option<Box<FileBackedHistory>> {
    let open = || FileBackedHistory::with_file(HISTORY_LINES, path.to_owned()).map_err(io::Error::other);
    match private(path).and_then(|()| open()) {
        Ok(history) => Some(Box::new(history)),
        Err(error) => {
            warn!(path = %path.display(), %error, "the history file cannot be used; this session keeps none");
            None
        }
    }
}

struct BelayPrompt;

impl Prompt for BelayPrompt {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(PROMPT)
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
