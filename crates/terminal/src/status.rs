//! One line about a working run.

use std::time::Duration;

use belay_text::figures::{dollars, known, tokens};

use crate::Look;
use crate::span::{Span, cut, painted, width};

/// The pictures of the sign of life, and the time of each.
const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const FRAME_MS: u128 = 100;

/// Fewest columns for the name and the argument of a tool, if they have to be cut.
const ACTION_MIN: usize = 12;

/// What a run does now. The line is made of it and of the time since the run began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusLine {
    /// The running tools, the oldest first: name and argument.
    pub tools: Vec<(String, String)>,
    /// The tokens of the run so far, read and written.
    pub tokens: u64,
    /// The cost of the run so far, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// How full the context of the model is, in percent; `None`: unknown.
    pub context_percent: Option<u64>,
}

impl StatusLine {
    /// The line after this time, at most as wide as the terminal. What does not fit is left out: first the cost, then the
    /// tokens, then the time; the tool's argument is cut before that.
    pub fn line(&self, elapsed: Duration, look: Look) -> String {
        let most = look.width.max(1);
        let action = self.action();
        let sign = FRAMES[usize::try_from(elapsed.as_millis() / FRAME_MS).unwrap_or_default() % FRAMES.len()];
        let mut facts = vec![format!("{} s", elapsed.as_secs())];
        if self.tokens > 0 {
            facts.push(tokens(self.tokens));
        }
        if self.cost_micro_usd > 0 {
            facts.push(dollars(self.cost_micro_usd));
        }
        let needed = width(&action).min(ACTION_MIN);
        let joined = loop {
            let joined: String = facts.iter().map(|fact| format!(" · {fact}")).collect();
            if facts.is_empty() || 2 + needed + width(&joined) <= most {
                break joined;
            }
            facts.pop();
        };
        let action = cut(&action, most.saturating_sub(2 + width(&joined)));
        let text = if action.is_empty() { sign.to_owned() } else { format!("{sign} {action}{joined}") };
        painted(&[Span::dim(text)], look.colour)
    }

    /// The line below the answer of the run: how full the context is, the tokens and the cost. `None`: nothing is
    /// known. It is at most as wide as the terminal: first the cost is left out, then the tokens.
    pub fn figures(&self, look: Look) -> Option<String> {
        let most = look.width.max(1);
        let mut facts = known(self.context_percent, self.tokens, self.cost_micro_usd);
        while facts.len() > 1 && width(&facts.join(" · ")) > most {
            facts.pop();
        }
        let line = facts.join(" · ");
        (!line.is_empty()).then(|| painted(&[Span::dim(cut(&line, most))], look.colour))
    }

    fn action(&self) -> String {
        let Some((name, argument)) = self.tools.first() else { return "thinking".to_owned() };
        let one = [name.as_str(), argument.as_str()].map(belay_text::escaped_line).join(" ");
        match self.tools.len() - 1 {
            0 => one.trim_end().to_owned(),
            more => format!("{more} more and {}", one.trim_end()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_is_done_and_fits_the_terminal() {
        let tool = |argument: &str| vec![("run_command".to_owned(), argument.to_owned())];
        let two = vec![("list_files".to_owned(), String::new()), ("calculate".to_owned(), "1+1".to_owned())];
        for (tools, tokens, cost, width, expected) in [
            (vec![], 0, 0, 80, "⠋ thinking · 12 s"),
            (vec![], 1234, 1200, 80, "⠋ thinking · 12 s · 1234 tokens · $0.0012"),
            (vec![], 1234, 1200, 35, "⠋ thinking · 12 s · 1234 tokens"),
            (vec![], 1234, 1200, 20, "⠋ thinking · 12 s"),
            (vec![], 1234, 1200, 10, "⠋ thinking"),
            (vec![], 0, 0, 5, "⠋ th…"),
            (vec![], 0, 0, 1, "⠋"),
            (tool("cargo test"), 23_456, 0, 80, "⠋ run_command cargo test · 12 s · 23 k tokens"),
            (tool("cargo test --all"), 0, 0, 30, "⠋ run_command cargo te… · 12 s"),
            (tool("a\x1b[2Jb"), 0, 0, 80, "⠋ run_command a\\u{1b}[2Jb · 12 s"),
            (two, 0, 2_500_000, 80, "⠋ 1 more and list_files · 12 s · $2.50"),
        ] {
            let status = StatusLine { tools, tokens, cost_micro_usd: cost, context_percent: None };
            let line = status.line(Duration::from_secs(12), Look { width, colour: false });
            assert_eq!(line, expected, "{width}");
        }
    }

    #[test]
    fn the_figures_fit_the_terminal_and_are_left_out_while_nothing_is_known() {
        for (context_percent, tokens, cost_micro_usd, width, expected) in [
            (Some(12), 1234, 3000, 80, Some("context 12 % · 1234 tokens · $0.0030")),
            (Some(0), 12_345, 0, 80, Some("context below 1 % · 12 k tokens")),
            (Some(12), 1234, 3000, 30, Some("context 12 % · 1234 tokens")),
            (Some(12), 1234, 3000, 20, Some("context 12 %")),
            (Some(12), 1234, 3000, 6, Some("conte…")),
            (None, 1234, 0, 80, Some("1234 tokens")),
            (None, 0, 0, 80, None),
        ] {
            let status = StatusLine { tokens, cost_micro_usd, context_percent, ..StatusLine::default() };
            assert_eq!(status.figures(Look { width, colour: false }).as_deref(), expected, "{width}");
        }
        let status = StatusLine { tokens: 7, ..StatusLine::default() };
        assert_eq!(status.figures(Look { width: 80, colour: true }).as_deref(), Some("\x1b[2m7 tokens\x1b[0m"));
    }

    #[test]
    fn the_sign_of_life_moves() {
        let line = |ms| StatusLine::default().line(Duration::from_millis(ms), Look { width: 1, colour: true });
        assert_eq!([line(0), line(150), line(1000)], ["\x1b[2m⠋\x1b[0m", "\x1b[2m⠙\x1b[0m", "\x1b[2m⠋\x1b[0m"]);
    }
}
