//! What the prompt's terminal shows: texts, and the run that works. Other threads write here; the prompt's thread draws.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use belay_protocol::{ApprovalId, ContextUse, LiveNews, LiveState, LiveView, RunId};
use belay_terminal::{Look, RunView, StatusLine, ToolRow, is_folded, question, rendered};

use crate::plan_rows::plan_rows;
use crate::tool_rows::ToolRows;

use super::deliveries::Deliveries;
use super::printer::{Kind, Plain, Shown, Sink, escaped};
use super::size::size;

/// Lines that may wait for the prompt's thread. When there are more, deliveries wait.
const WAITING_MAX: usize = 1000;

/// Longest wait for the answer of an ended run. 5 s: as long as the channel itself waits for a delivery.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// Most folded questions that are kept. 8: a person has few at once. The oldest of
/// more cannot be shown whole any more.
const FOLDED_MAX: usize = 8;

/// The line that shows all of each open question whose beginning was shown.
pub(super) const MORE: &str = "/more";

/// Pause before a full queue is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// The board of one terminal. Cheap to clone.
#[derive(Clone)]
pub(super) struct Board {
    state: Arc<Mutex<State>>,
    colour: bool,
}

struct State {
    phase: Phase,
    /// Prints above the line editor, when it polls. Holds one text.
    above: SyncSender<String>,
    /// The last text that was sent there.
    sent: Option<String>,
    /// Makes the line editor return.
    leave: Arc<AtomicBool>,
    /// Whether nothing is typed.
    is_empty: bool,
    /// Lines that wait for the prompt's thread.
    waiting: Vec<String>,
    live: Option<Live>,
    /// The run on the screen, also while it waits for an answer, and its calls that were shown.
    rows: Option<(RunId, ToolRows)>,
    /// The last questions of which only the beginning was shown.
    folded: VecDeque<(ApprovalId, String)>,
}

/// Who draws on the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The line editor; texts appear above it.
    Editing,
    /// The prompt's thread, which shows the run.
    Watching,
    /// Nobody: the prompt has ended, and texts are written at once.
    Direct,
}

/// The run on the screen.
struct Live {
    run: RunId,
    view: RunView,
    began: Instant,
    ended: Option<Instant>,
}

impl Live {
    /// Takes what the run does now, with the rows of the calls that have ended.
    fn take(&mut self, state: LiveState, rows: &[ToolRow], look: Look) {
        rows.iter().for_each(|row| self.view.tool(&row.line(look)));
        self.view.set_plan(state.plan.as_deref().map(plan_rows));
        let tools = state.calls.into_iter().map(|call| (call.tool, call.argument)).collect();
        let (tokens, cost_micro_usd) = (state.tokens, state.cost_micro_usd);
        let context_percent = state.context.and_then(ContextUse::percent);
        self.view.set_status(StatusLine { tools, tokens, cost_micro_usd, context_percent });
    }
}

/// What the prompt's thread draws next.
pub(super) struct Frame {
    /// Lines that do not change any more.
    pub(super) lines: Vec<String>,
    /// The lines below them.
    pub(super) picture: Vec<String>,
    /// Whether a run is on the screen.
    pub(super) is_live: bool,
}

impl Board {
    /// A board whose texts go above a line editor. `leave` makes the editor return.
    pub(super) fn new(above: SyncSender<String>, leave: Arc<AtomicBool>, colour: bool) -> Self {
        let state = State {
            phase: Phase::Editing,
            above,
            sent: None,
            leave,
            is_empty: true,
            waiting: Vec::new(),
            live: None,
            rows: None,
            folded: VecDeque::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), colour }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The terminal as it is now.
    pub(super) fn look(&self) -> Look {
        Look { width: size().0, colour: self.colour }
    }

    /// Whether the prompt's thread shows a run instead of the line editor: one is on the screen, or lines wait.
    pub(super) fn has_news(&self) -> bool {
        let state = self.state();
        state.live.is_some() || !state.waiting.is_empty()
    }

    /// From now on the prompt's thread draws, or no longer does.
    pub(super) fn enter(&self, phase: Phase) {
        let mut state = self.state();
        state.phase = phase;
        if phase == Phase::Editing {
            state.is_empty = true;
        }
        state.leave.store(false, Ordering::Relaxed);
    }

    /// Records whether anything is typed. While nothing is, the line editor gives way to whatever is to be drawn.
    pub(super) fn typed(&self, is_empty: bool) {
        let mut state = self.state();
        state.is_empty = is_empty;
        state.print_above();
    }

    /// The line editor has returned. `true`: a text was not printed; it waits here again, and the editor needs
    /// [another queue](Self::print_by).
    pub(super) fn left(&self, is_empty: bool) -> bool {
        let mut state = self.state();
        state.is_empty = is_empty;
        if state.above.try_send(String::new()).is_ok() {
            return false; // there was room: everything was printed
        }
        let text = state.sent.take().unwrap_or_default();
        state.waiting.splice(0..0, text.lines().map(str::to_owned));
        true
    }

    /// Prints above the line editor by this queue from now on.
    pub(super) fn print_by(&self, above: SyncSender<String>) {
        self.state().above = above;
    }

    /// Takes what is to be drawn. `rows`: the height of the terminal.
    pub(super) fn frame(&self, rows: usize) -> Frame {
        let look = self.look();
        let mut state = self.state();
        let mut lines = std::mem::take(&mut state.waiting);
        if let Some(late) = state.live.take_if(|live| live.ended.is_some_and(|at| at.elapsed() > ANSWER_WAIT)) {
            lines.extend(late.view.give_up());
        }
        let mut picture = Vec::new();
        if let Some(live) = &mut state.live {
            live.view.resize(look);
            lines.extend(live.view.finished());
            // One row stays free for the cursor after a full last line.
            picture = live.view.picture(live.began.elapsed(), rows.saturating_sub(1).max(1));
        }
        Frame { lines, picture, is_live: state.live.is_some() }
    }

    /// Shows a line of the prompt's thread. Never waits: beyond [`WAITING_MAX`] lines it is left out.
    pub(super) fn say(&self, text: &str) {
        let mut state = self.state();
        if state.waiting.len() < WAITING_MAX {
            state.waiting.push(text.to_owned());
            state.print_above();
        }
    }

    /// Shows the whole of each open question of which only the beginning was shown.
    pub(super) fn show_more(&self, deliveries: &Deliveries) {
        let look = self.look();
        let mut state = self.state();
        state.folded.retain(|(approval, _)| deliveries.is_open(*approval));
        let mut lines: Vec<_> = state.folded.iter().flat_map(|(_, text)| question(text, look, None)).collect();
        if lines.is_empty() {
            lines.push("Nothing was left out.".to_owned());
        }
        state.waiting.extend(lines);
        state.print_above();
    }

    /// Ends the prompt: writes what waits, and from now on everything at once.
    pub(super) fn end(&self) -> io::Result<()> {
        let mut state = self.state();
        let mut lines = std::mem::take(&mut state.waiting);
        if let Some(live) = state.live.take() {
            lines.extend(live.view.give_up());
        }
        state.phase = Phase::Direct;
        if lines.is_empty() { Ok(()) } else { Plain(io::stdout()).write(&lines.join("\n")) }
    }
}

impl State {
    /// Makes an empty line editor return, if there is something to draw.
    fn give_way(&self) {
        if self.is_typing() || (self.live.is_none() && self.waiting.is_empty()) {
            return;
        }
        self.leave.store(true, Ordering::Relaxed);
    }

    /// Whether a typed text must stay on the screen. Then the line editor prints, above that text.
    fn is_typing(&self) -> bool {
        self.phase == Phase::Editing && !self.is_empty
    }

    /// Keeps a question of which only the beginning is shown.
    fn fold(&mut self, approval: ApprovalId, text: String) {
        self.folded.retain(|(earlier, _)| *earlier != approval); // a reminder
        if self.folded.len() == FOLDED_MAX {
            self.folded.pop_front();
        }
        self.folded.push_back((approval, text));
    }

    /// The lines of a text. The answer of the run on the screen continues it.
    fn lines_of(&mut self, shown: &Shown, look: Look) -> Vec<String> {
        match shown.kind {
            Kind::Question(approval) => {
                if is_folded(&shown.text) {
                    self.fold(approval, shown.text.clone());
                }
                question(&shown.text, look, Some(MORE))
            }
            Kind::Notice => escaped(&shown.text).lines().map(str::to_owned).collect(),
            Kind::Message => match self.live.take_if(|live| Some(live.run) == shown.run && live.ended.is_some()) {
                Some(live) => {
                    let figures = live.view.figures();
                    live.view.answered(&shown.text).into_iter().chain(figures).collect()
                }
                None => rendered(&shown.text, look),
            },
        }
    }
}

impl Sink for Board {
    fn show(&mut self, shown: &Shown) -> io::Result<()> {
        let look = self.look();
        let mut text: Option<String> = None;
        loop {
            let mut state = self.state();
            let text = match &mut text {
                Some(text) => text,
                none => none.insert(state.lines_of(shown, look).join("\n")),
            };
            match state.phase {
                // Under the lock, so never while the prompt is being removed.
                Phase::Direct => return Plain(io::stdout()).write(text),
                Phase::Editing | Phase::Watching if state.waiting.len() < WAITING_MAX => {
                    state.waiting.extend(text.lines().map(str::to_owned));
                    state.print_above();
                    return Ok(());
                }
                Phase::Editing | Phase::Watching => state.print_above(),
            }
            drop(state);
            thread::sleep(RETRY_PAUSE);
        }
    }
}

impl LiveView for Board {
    fn show(&self, run: RunId, news: LiveNews) {
        let look = self.look();
        let mut state = self.state();
        if news == LiveNews::Began && state.live.is_none() && state.phase != Phase::Direct {
            if state.rows.as_ref().is_none_or(|(of, _)| *of != run) {
                state.rows = Some((run, ToolRows::default()));
            }
            state.live = Some(Live { run, view: RunView::new(look), began: Instant::now(), ended: None });
            state.give_way();
            return;
        }
        // A second run at the same time is shown by its answer alone.
        let State { live, rows, waiting, .. } = &mut *state;
        let Some(shown) = live.as_mut().filter(|live| live.run == run && live.ended.is_none()) else { return };
        match news {
            LiveNews::Began => {}
            LiveNews::Text { step, text } => shown.view.push(step, &text),
            LiveNews::Lost => shown.view.lost(),
            LiveNews::State(now) => {
                let rows = rows.as_mut().map(|(_, rows)| rows.rows(&now)).unwrap_or_default();
                shown.take(now, &rows, look);
            }
            LiveNews::Ended { answered: true } => {
                shown.ended = Some(Instant::now());
                shown.view.end();
            }
            LiveNews::Ended { answered: false } => {
                let rest = live.take().map(|live| live.view.give_up()).unwrap_or_default();
                waiting.extend(rest);
            }
        }
        state.print_above();
    }
}

impl State {
    /// While a line is edited, finished lines appear above it as soon as there is room in its queue.
    fn print_above(&mut self) {
        if !self.is_typing() {
            return self.give_way();
        }
        let mut lines = std::mem::take(&mut self.waiting);
        lines.extend(self.live.as_mut().map(|live| live.view.finished()).unwrap_or_default());
        if lines.is_empty() {
            return;
        }
        let text = lines.join("\n");
        match self.above.try_send(text.clone()) {
            Ok(()) => self.sent = Some(text),
            Err(_) => self.waiting = lines, // the editor paints again once it has printed, and then there is room
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn the_figures_of_a_run_stand_below_its_answer_and_below_no_other_text() {
        let (above, _printed) = sync_channel(1);
        let mut board = Board::new(above, Arc::default(), false);
        let run = RunId::new();
        let context = Some(ContextUse { used_tokens: 120, context_tokens: 1000 });
        let state = LiveState { tokens: 1234, cost_micro_usd: 3000, context, ..LiveState::default() };
        let message = |text: &str| Shown { text: text.into(), kind: Kind::Message, run: Some(run) };
        for news in [LiveNews::Began, LiveNews::State(state), LiveNews::Ended { answered: true }] {
            LiveView::show(&board, run, news);
        }
        Sink::show(&mut board, &message("done")).expect("it waits");
        assert_eq!(board.frame(24).lines, ["done", "context 12 % · 1234 tokens · $0.0030"]);
        Sink::show(&mut board, &message("a notice")).expect("it waits");
        assert_eq!(board.frame(24).lines, ["a notice"]);
    }

    #[test]
    fn more_shows_each_open_question_whole() {
        let (above, _printed) = sync_channel(1);
        let mut board = Board::new(above, Arc::default(), false);
        let deliveries = Deliveries::new();
        let content: String = (1..=100).map(|n| format!("line {n}\n")).collect();
        let ask = |board: &mut Board, path: &str| {
            let (run, approval) = (RunId::new(), ApprovalId::new());
            let bound =
                [("path", path), ("content", &*content)].map(|(name, value)| (name.to_owned(), value.to_owned()));
            let text = belay_text::question::about_call("write_file", &format!("create {path}"), &bound, "it asks");
            Sink::show(board, &Shown { text, kind: Kind::Question(approval), run: Some(run) }).expect("it waits");
            deliveries.note((run, Some(approval)));
        };
        let more = |board: &Board| {
            board.frame(24);
            board.show_more(&deliveries);
            board.frame(24).lines.join("\n")
        };
        ask(&mut board, "a.txt");
        ask(&mut board, "b.txt");
        let both = more(&board);
        assert_eq!(["create a.txt", "create b.txt"].map(|call| both.matches(call).count()), [1, 1], "{both}");
        assert_eq!(both.matches("line 100").count(), 2);
        deliveries.answered("yes");
        let second = more(&board);
        assert!(second.contains("create b.txt") && !second.contains("create a.txt"), "{second}");
        deliveries.answered("no");
        assert_eq!(more(&board), "Nothing was left out.");
    }
}
