//! Text for a terminal: Markdown, a status line, and diffs, as lines of a given width.
//!
//! **For**: everything that a person reads on a terminal. [`Answer`] renders a streamed answer block by block,
//! [`rendered`] a complete text, [`StatusLine`] one line about a working run, [`PlanRows`] its plan. [`RunView`]
//! combines them for one run, and [`LiveArea`] redraws the lines that still change. [`question()`] shows an approval
//! request, and [`Input`] decides whether typed text is complete.
//!
//! **Does not know**: channels, runs, or where the lines are written. It is pure: it opens no terminal, reads no clock
//! and no environment.
//!
//! The text of a model is untrusted content. Control characters and hidden characters are escaped after the Markdown
//! was parsed, because a character reference such as `&#27;` becomes a control character there. All escape sequences in
//! the lines are made here.
//!
//! Modules in reading order: [`span`](self) and `wrap` (styled text in lines), `markdown` (with `table`, `code` and `language`),
//! `answer`, `status`, `run_view`, `live_area`, `tool_row`, `plan`, `question`, `input`, `paste`.

mod answer;
mod code;
mod input;
mod language;
mod live_area;
mod markdown;
mod paste;
mod plan;
mod question;
mod run_view;
mod span;
mod status;
mod tool_row;
mod wrap;

pub use answer::Answer;
pub use input::Input;
pub use live_area::LiveArea;
pub use paste::pasted;
pub use plan::{PlanMark, PlanRows};
pub use question::{is_folded, question};
pub use run_view::RunView;
pub use span::{cut, width};
pub use status::StatusLine;
pub use tool_row::ToolRow;

/// The properties of the terminal that the lines are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The width in columns. 0 counts as 1.
    pub width: usize,
    /// Whether escape sequences may be used: colours, bold text, links (OSC 8). Without them the text keeps some of its
    /// Markdown marks.
    pub colour: bool,
}

/// Renders a complete Markdown text as lines without line ends. No line is wider than the terminal, unless a single
/// character is.
pub fn rendered(text: &str, look: Look) -> Vec<String> {
    let mut answer = Answer::new(look);
    answer.push(text);
    answer.finish()
}
