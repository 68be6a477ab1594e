//! One line about a working run.

use std::time::Duration;

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

    fn action(&self) -> String {
        let Some((name, argument)) = self.tools.first() else { return "thinking".to_owned() };
        let one = [name.as_str(), argument.as_str()].map(belay_text::escaped_line).join(" ");
        match self.tools.len() - 1 {
            0 => one.trim_end().to_owned(),
            more => format!("{more} more and {}", one.trim_end()),
        }
    }
}

fn tokens(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} tokens"),
        10_000..1_000_000 => format!("{} k tokens", count / 1000),
        _ => format!("{:.1} M tokens", count as f64 / 1e6),
    }
}

fn dollars(micro_usd: u64) -> String {
    let digits = if micro_usd < 1_000_000 { 4 } else { 2 };
    format!("${:.digits$}", micro_usd as f64 / 1e6)
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
            let status = StatusLine { tools, tokens, cost_micro_usd: cost };
            let line = status.line(Duration::from_secs(12), Look { width, colour: false });
            assert_eq!(line, expected, "{width}");
        }
    }

    #[test]
    fn the_sign_of_life_moves() {
        let line = |ms| StatusLine::default().line(Duration::from_millis(ms), Look { width: 1, colour: true });
        assert_eq!([line(0), line(150), line(1000)], ["\x1b[2m⠋\x1b[0m", "\x1b[2m⠙\x1b[0m", "\x1b[2m⠋\x1b[0m"]);
    }
}
