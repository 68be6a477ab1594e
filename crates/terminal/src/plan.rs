//! The rows of a plan while its run works, and the line that stays of it.

use crate::Look;
use crate::span::{Colour, Span, Style, cut, painted};

/// A plan with the states of its steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanRows {
    /// Its title.
    pub title: String,
    /// Whether the next step waits for a person.
    pub held: bool,
    /// Its steps, in order: state and text.
    pub steps: Vec<(PlanMark, String)>,
}

/// The state of a step, as its row shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanMark {
    /// It has not begun.
    Pending,
    /// It is in progress.
    InProgress,
    /// It has succeeded.
    Completed,
    /// It could not be done.
    Blocked,
    /// A person has left it out.
    Dropped,
}

impl PlanMark {
    fn sign(self) -> &'static str {
        match self {
            Self::Pending => "○",
            Self::InProgress => "▸",
            Self::Completed => "✓",
            Self::Blocked => "✗",
            Self::Dropped => "–",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::InProgress => Style::default(),
            Self::Blocked => Style { colour: Some(Colour::Red), ..Style::default() },
            Self::Pending | Self::Completed | Self::Dropped => Style { dim: true, ..Style::default() },
        }
    }

    fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Blocked | Self::Dropped)
    }
}

impl PlanRows {
    /// Whether no step is left.
    pub fn has_ended(&self) -> bool {
        self.steps.iter().all(|(mark, _)| mark.is_over())
    }

    /// The title and the steps, each at most as wide as the terminal and at most `most` rows. If there is no room for
    /// all steps, those around the first one that has not ended are shown.
    pub fn rows(&self, look: Look, most: usize) -> Vec<String> {
        let room = self.steps.len().min(most.saturating_sub(1));
        let current = self.steps.iter().position(|(mark, _)| !mark.is_over()).unwrap_or(self.steps.len());
        let first = current.saturating_sub(room / 2).min(self.steps.len() - room);
        let steps = self.steps.iter().skip(first).take(room);
        let step = |(mark, text): &(PlanMark, String)| {
            let line = format!("  {} {}", mark.sign(), belay_text::escaped_line(text));
            painted(&[Span::new(cut(&line, look.width.max(1)), mark.style())], look.colour)
        };
        let head = std::iter::once(self.head("", look)).filter(|_| most > 0);
        head.chain(steps.map(step)).collect()
    }

    /// The line that stays of the plan.
    pub fn folded(&self, look: Look) -> String {
        let sign = match self.count(PlanMark::Blocked) {
            _ if !self.has_ended() => "▸ ",
            0 => "✓ ",
            _ => "✗ ",
        };
        self.head(sign, look)
    }

    fn count(&self, of: PlanMark) -> usize {
        self.steps.iter().filter(|(mark, _)| *mark == of).count()
    }

    /// The title with the number of steps. The title is cut before the numbers.
    fn head(&self, sign: &str, look: Look) -> String {
        let most = look.width.max(1);
        let mut facts = format!(" · {} of {} steps", self.count(PlanMark::Completed), self.steps.len());
        if let blocked @ 1.. = self.count(PlanMark::Blocked) {
            facts.push_str(&format!(", {blocked} blocked"));
        }
        if self.held {
            facts.push_str(", the next one waits for you");
        }
        let title = format!("{sign}plan {}", belay_text::escaped_line(&self.title));
        let title = cut(title.trim_end(), most.saturating_sub(crate::width(&facts)).max(most / 3));
        painted(&[Span::dim(cut(&format!("{title}{facts}"), most))], look.colour)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PlanMark::{Blocked, Completed, Dropped, InProgress, Pending};

    const LOOK: Look = Look { width: 80, colour: false };

    fn plan(marks: &[PlanMark]) -> PlanRows {
        let steps = marks.iter().zip(1..).map(|(mark, n)| (*mark, format!("step {n}"))).collect();
        PlanRows { title: "tidy the house".into(), held: false, steps }
    }

    #[test]
    fn each_step_has_a_row_with_its_state() {
        let rows = plan(&[Completed, Dropped, InProgress, Blocked, Pending]).rows(LOOK, 10);
        assert_eq!(
            rows,
            [
                "plan tidy the house · 1 of 5 steps, 1 blocked",
                "  ✓ step 1",
                "  – step 2",
                "  ▸ step 3",
                "  ✗ step 4",
                "  ○ step 5"
            ]
        );
        let coloured = plan(&[InProgress, Blocked, Pending]).rows(Look { colour: true, ..LOOK }, 10);
        assert_eq!(coloured[1..], ["  ▸ step 1", "\x1b[31m  ✗ step 2\x1b[0m", "\x1b[2m  ○ step 3\x1b[0m"]);
    }

    #[test]
    fn a_long_plan_shows_the_steps_around_the_current_one() {
        let mut marks = vec![Completed; 20];
        marks[10] = InProgress;
        marks[11..].fill(Pending);
        let shown = |most| plan(&marks).rows(LOOK, most)[1..].to_vec();
        assert_eq!(shown(4), ["  ✓ step 10", "  ▸ step 11", "  ○ step 12"]);
        assert_eq!(plan(&[Completed; 20]).rows(LOOK, 3)[1..], ["  ✓ step 19", "  ✓ step 20"]);
        assert_eq!(plan(&marks).rows(LOOK, 1).len(), 1);
        assert_eq!(plan(&marks).rows(LOOK, 0), Vec::<String>::new());
        assert_eq!(plan(&[]).rows(LOOK, 9), ["plan tidy the house · 0 of 0 steps"]);
    }

    #[test]
    fn one_line_stays_and_fits() {
        for (marks, held, width, expected) in [
            (vec![Completed, Completed], false, 80, "✓ plan tidy the house · 2 of 2 steps"),
            (vec![Completed, Blocked], false, 80, "✗ plan tidy the house · 1 of 2 steps, 1 blocked"),
            (vec![Completed, Pending], false, 80, "▸ plan tidy the house · 1 of 2 steps"),
            (vec![Pending], true, 80, "▸ plan tidy the house · 0 of 1 steps, the next one waits for you"),
            (vec![Completed, Completed], false, 30, "✓ plan tidy th… · 2 of 2 steps"),
            (vec![Completed, Completed], false, 12, "✓ p… · 2 of…"),
        ] {
            let plan = PlanRows { held, ..plan(&marks) };
            assert_eq!(plan.folded(Look { width, colour: false }), expected);
        }
        let title = PlanRows { title: "a\x1b[2Jb".into(), ..plan(&[Pending]) };
        assert!(!title.folded(LOOK).contains('\x1b'));
    }
}
