//! The terminal of one message: shows the answer while it is written, a row for each tool call, and a status line that
//! leaves nothing behind. `belay ask` and `belay send --wait` show their run by it.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use belay_channels::{ToolRows, plan_rows};
use belay_program::environment::Environment;
use belay_protocol::{LiveNews, LiveView, RunId};
use belay_terminal::{LiveArea, Look, RunView, StatusLine, rendered};
use rustix::termios::tcgetwinsize;
use tokio::time::sleep;

/// The time between two pictures. 15 ms: an answer should look as if it were typed.
const FRAME: Duration = Duration::from_millis(15);

/// The terminal of one answer.
pub struct AnswerScreen {
    /// Whether the answer is shown: standard output is a terminal. Otherwise the complete text is printed at the end.
    answers: bool,
    /// Whether there is a status line: standard error is a terminal.
    status: bool,
    colour: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    live: Option<(RunView, Instant)>,
    calls: ToolRows,
    area: LiveArea,
    /// What the area shows.
    picture: Vec<String>,
}

impl AnswerScreen {
    /// The terminal of this process. `as_json`: the answer is printed for a program.
    pub fn find(env: &Environment, as_json: bool) -> Self {
        Self {
            answers: io::stdout().is_terminal() && !as_json,
            // On a dumb terminal no line can be redrawn.
            status: io::stderr().is_terminal() && !env.has_dumb_terminal(),
            colour: env.has_colour(),
            state: Mutex::default(),
        }
    }

    /// Whether a run is shown while it works.
    pub fn is_live(&self) -> bool {
        self.status
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn size(&self) -> (usize, usize) {
        let size = if self.answers { tcgetwinsize(io::stdout()) } else { tcgetwinsize(io::stderr()) };
        match size {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => (80, 24),
        }
    }

    fn look(&self) -> Look {
        Look { width: self.size().0, colour: self.colour }
    }

    /// Draws until it is dropped.
    pub async fn draw(&self) {
        loop {
            sleep(FRAME).await;
            self.frame();
        }
    }

    fn frame(&self) {
        let (columns, rows) = self.size();
        let look = Look { width: columns, colour: self.colour };
        let mut state = self.state();
        let State { live, area, picture, .. } = &mut *state;
        let (mut lines, mut next) = (Vec::new(), Vec::new());
        if let Some((view, began)) = live {
            view.resize(look);
            lines = view.finished();
            next = view.picture(began.elapsed(), rows.saturating_sub(1).max(1));
        }
        if lines.is_empty() && next == *picture {
            return;
        }
        let mut out = area.erase(columns);
        lines.iter().for_each(|line| out.extend([line.as_str(), "\n"]));
        out.push_str(&area.draw(&next));
        *picture = next;
        self.write(&out);
    }

    /// Erases everything that still changes, and shows these lines.
    fn settle(&self, state: &mut State, lines: &[String]) {
        let mut out = state.area.erase(self.size().0);
        state.picture.clear();
        lines.iter().for_each(|line| out.extend([line.as_str(), "\n"]));
        self.write(&out);
    }

    /// Ends the display before something else is shown.
    pub fn clear(&self) {
        let mut state = self.state();
        let rest = state.live.take().map(|(view, _)| view.give_up()).unwrap_or_default();
        self.settle(&mut state, &rest);
    }

    /// Shows the answer. `false`: it is not shown here, and has to be printed.
    pub fn answered(&self, answer: &str) -> bool {
        if !self.answers {
            self.clear();
            return false;
        }
        let mut state = self.state();
        let rest = match state.live.take() {
            Some((view, _)) => view.answered(answer),
            None => rendered(answer, self.look()),
        };
        self.settle(&mut state, &rest);
        true
    }

    fn write(&self, out: &str) {
        let write = |mut to: Box<dyn Write>| to.write_all(out.as_bytes()).and_then(|()| to.flush());
        // If the terminal is closed, nobody can be told.
        let _ = write(if self.answers { Box::new(io::stdout().lock()) } else { Box::new(io::stderr().lock()) });
    }
}

impl LiveView for AnswerScreen {
    fn show(&self, _run: RunId, news: LiveNews) {
        let look = self.look();
        let mut state = self.state();
        let rows = match &news {
            LiveNews::State(now) => state.calls.rows(now),
            _ => Vec::new(),
        };
        match (news, &mut state.live) {
            (LiveNews::Began, live @ None) => *live = Some((RunView::new(look), Instant::now())),
            (LiveNews::Text { step, text }, Some((view, _))) if self.answers => view.push(step, &text),
            (LiveNews::Lost, Some((view, _))) => view.lost(),
            (LiveNews::State(now), Some((view, _))) => {
                if self.answers {
                    rows.iter().for_each(|row| view.tool(&row.line(look)));
                }
                view.set_plan(now.plan.as_deref().filter(|_| self.answers).map(plan_rows));
                view.set_status(StatusLine {
                    tools: now.calls.into_iter().map(|call| (call.tool, call.argument)).collect(),
                    tokens: now.tokens,
                    cost_micro_usd: now.cost_micro_usd,
                    context_percent: None,
                });
            }
            (LiveNews::Ended { answered: true }, Some((view, _))) => view.end(),
            (LiveNews::Ended { answered: false }, Some(_)) => {
                drop(state);
                self.clear();
            }
            _ => {}
        }
    }
}
