//! What a terminal shows of one working run.

use std::time::Duration;

use crate::{Answer, Look, PlanRows, StatusLine, rendered};

/// A working run: the text that it writes, and its status line. Finished lines are returned once, in order; the picture
/// has the lines that still change.
#[derive(Debug)]
pub struct RunView {
    look: Look,
    answer: Answer,
    /// The text of the present step.
    text: String,
    step: u32,
    /// Whether pieces of the present step are missing.
    is_lost: bool,
    has_ended: bool,
    status: StatusLine,
    plan: Option<PlanRows>,
    /// Whether no step of the plan is left, and its line was returned.
    is_plan_folded: bool,
    /// Lines of earlier steps that were not returned yet.
    ready: Vec<String>,
    /// Whether any line was returned.
    has_output: bool,
    /// Whether the last line is that of a tool call. A text below it begins with a blank line.
    is_below_tool: bool,
}

impl RunView {
    /// A run that begins.
    pub fn new(look: Look) -> Self {
        Self {
            look,
            answer: Answer::new(look),
            text: String::new(),
            step: 0,
            is_lost: false,
            has_ended: false,
            status: StatusLine::default(),
            plan: None,
            is_plan_folded: false,
            ready: Vec::new(),
            has_output: false,
            is_below_tool: false,
        }
    }

    /// Continues for a terminal of another size.
    pub fn resize(&mut self, look: Look) {
        self.look = look;
        self.answer.resize(look);
    }

    /// Adds a piece of the model's text. Another step begins another text.
    pub fn push(&mut self, step: u32, piece: &str) {
        if step != self.step {
            self.end_text();
            self.step = step;
        }
        if !self.is_lost {
            if std::mem::take(&mut self.is_below_tool) {
                self.ready.push(String::new());
            }
            self.text.push_str(piece);
            self.answer.push(piece);
        }
    }

    /// Pieces are missing: the rest of this step is not shown before the answer is complete.
    pub fn lost(&mut self) {
        self.is_lost = true;
    }

    /// Adds the line of a tool call that has ended, below the text that called it.
    pub fn tool(&mut self, line: &str) {
        self.end_text();
        self.ready.push(line.to_owned());
        self.is_below_tool = true;
    }

    /// Sets what the run does.
    pub fn set_status(&mut self, status: StatusLine) {
        self.status = status;
    }

    /// Sets the plan. One line stays of it as soon as no step is left.
    pub fn set_plan(&mut self, plan: Option<PlanRows>) {
        let folded = plan.as_ref().filter(|plan| plan.has_ended()).map(|plan| plan.folded(self.look));
        if let Some(line) = folded.as_ref().filter(|_| !self.is_plan_folded) {
            self.tool(line);
        }
        self.is_plan_folded = folded.is_some();
        self.plan = plan;
    }

    /// The plan while steps of it are left.
    fn open_plan(&self) -> Option<&PlanRows> {
        self.plan.as_ref().filter(|_| !self.is_plan_folded)
    }

    /// The run has ended: there is no status line any more.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// Returns the lines that have become final since the last call.
    pub fn finished(&mut self) -> Vec<String> {
        let mut lines = std::mem::take(&mut self.ready);
        lines.extend(self.answer.finished());
        self.has_output |= !lines.is_empty();
        lines
    }

    /// The lines that still change: the end of the unfinished block, the plan, and the status line. At most `rows`
    /// lines; the plan takes at most half of them.
    pub fn picture(&self, elapsed: Duration, rows: usize) -> Vec<String> {
        let mut lines = self.answer.unfinished();
        let mut below = Vec::new();
        if !self.has_ended && rows > 0 {
            below.extend(self.open_plan().map(|plan| plan.rows(self.look, rows / 2)).unwrap_or_default());
            below.push(self.status.line(elapsed, self.look));
        }
        let skip = lines.len().saturating_sub(rows.saturating_sub(below.len()));
        lines.drain(..skip);
        lines.extend(below);
        lines
    }

    /// Returns the remaining lines of a run whose answer is this text. What was shown of it before is not repeated.
    pub fn answered(mut self, answer: &str) -> Vec<String> {
        let (shown, answer) = (self.text.trim(), answer.trim());
        let before = answer.strip_suffix(shown).filter(|_| !self.is_lost && !shown.is_empty());
        let Some(before) = before else {
            // What was shown is not the answer.
            let mut lines = self.finished();
            lines.extend(self.has_output.then(String::new));
            lines.extend(rendered(answer, self.look));
            lines.extend(self.open_plan().map(|plan| plan.folded(self.look)));
            return lines;
        };
        let before = rendered(before, self.look);
        let mut lines = self.give_up();
        if !before.is_empty() {
            lines.push(String::new());
            lines.extend(before);
        }
        lines
    }

    /// The line below the answer, with the figures of the run; `None`: none is known.
    pub fn figures(&self) -> Option<String> {
        self.status.figures(self.look)
    }

    /// Returns the remaining lines of a run that has no answer.
    pub fn give_up(mut self) -> Vec<String> {
        let mut lines = self.finished();
        lines.extend(self.answer.finish());
        lines.extend(self.open_plan().map(|plan| plan.folded(self.look)));
        lines
    }

    /// Ends the text of a step.
    fn end_text(&mut self) {
        let mut rest = self.answer.finished();
        rest.extend(self.answer.finish());
        let has_text = !self.text.trim().is_empty();
        self.ready.extend(rest);
        if has_text {
            self.ready.push(String::new());
        }
        self.text.clear();
        self.is_lost = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PlanMark;

    const LOOK: Look = Look { width: 30, colour: false };

    fn view(pieces: &[(u32, &str)]) -> RunView {
        let mut view = RunView::new(LOOK);
        pieces.iter().for_each(|(step, piece)| view.push(*step, piece));
        view
    }

    #[test]
    fn an_answer_is_shown_once_however_it_came() {
        for (pieces, answer, expected) in [
            (vec![], "hello", vec!["hello"]),
            (vec![(1, "hel"), (1, "lo\n\nyou")], "hello\n\nyou", vec!["hello", "", "you"]),
            (vec![(1, "hello")], "", vec![]),
            (vec![(1, "hello")], "Stopped.", vec!["Stopped."]),
            (vec![(1, "one\n\ntwo\n")], "three", vec!["one", "", "three"]),
            (vec![(1, "I look."), (2, "Found")], "Found", vec!["I look.", "", "Found"]),
            (vec![(1, "42")], "✓ calculate\n\n42", vec!["42", "", "✓ calculate"]),
        ] {
            let mut view = view(&pieces);
            let mut lines = view.finished();
            view.end();
            lines.extend(view.answered(answer));
            assert_eq!(lines, expected, "{pieces:?} {answer:?}");
        }
    }

    #[test]
    fn rows_of_tools_stand_between_the_texts_of_their_steps() {
        let mut view = view(&[(1, "I look.")]);
        view.tool("✓ look");
        view.tool("✓ see");
        view.push(2, "Found");
        view.end();
        assert_eq!(view.answered("Found"), ["I look.", "", "✓ look", "✓ see", "", "Found"]);
        let mut view = RunView::new(LOOK);
        view.tool("✓ look");
        assert_eq!(view.finished(), ["✓ look"]);
        assert_eq!(view.answered("not streamed"), ["", "not streamed"]);
    }

    #[test]
    fn a_plan_stands_above_the_status_line_until_its_steps_have_ended_and_leaves_one_line() {
        let plan = |marks: [PlanMark; 2]| {
            let steps = marks.iter().zip(["look", "do"]).map(|(mark, text)| (*mark, text.to_owned()));
            Some(PlanRows { title: "tidy".into(), held: false, steps: steps.collect() })
        };
        let mut view = view(&[(1, "I begin.")]);
        view.set_plan(plan([PlanMark::InProgress, PlanMark::Pending]));
        let picture = |view: &RunView, rows| view.picture(Duration::from_secs(3), rows);
        assert_eq!(
            picture(&view, 24),
            ["I begin.", "plan tidy · 0 of 2 steps", "  ▸ look", "  ○ do", "⠋ thinking · 3 s"]
        );
        assert_eq!(picture(&view, 4), ["I begin.", "plan tidy · 0 of 2 steps", "  ▸ look", "⠋ thinking · 3 s"]);
        view.set_plan(plan([PlanMark::Completed, PlanMark::Completed]));
        view.set_plan(plan([PlanMark::Completed, PlanMark::Completed]));
        assert_eq!(picture(&view, 24), ["⠋ thinking · 3 s"]);
        view.push(2, "Tidied");
        view.end();
        assert_eq!(view.answered("Tidied"), ["I begin.", "", "✓ plan tidy · 2 of 2 steps", "", "Tidied"]);
        let mut view = RunView::new(LOOK);
        view.set_plan(plan([PlanMark::Completed, PlanMark::Pending]));
        assert_eq!(view.give_up(), ["▸ plan tidy · 1 of 2 steps"]);
    }

    #[test]
    fn a_text_with_missing_pieces_is_shown_as_a_whole_at_the_end() {
        let mut view = view(&[(1, "one\n\ntw")]);
        assert_eq!(view.finished(), Vec::<String>::new());
        view.lost();
        view.push(1, " more");
        assert_eq!(view.answered("one\n\ntwo and more"), ["one", "", "two and more"]);
    }

    #[test]
    fn the_picture_has_the_end_of_the_text_and_the_status_line() {
        let mut view = view(&[(1, "- a\n- b\n- c")]);
        let picture = |view: &RunView, rows| view.picture(Duration::from_secs(3), rows);
        assert_eq!(picture(&view, 24), ["• a", "• b", "• c", "⠋ thinking · 3 s"]);
        assert_eq!(picture(&view, 3), ["• b", "• c", "⠋ thinking · 3 s"]);
        assert_eq!(picture(&view, 1), ["⠋ thinking · 3 s"]);
        assert_eq!(picture(&view, 0), Vec::<String>::new());
        view.end();
        assert_eq!(picture(&view, 2), ["• b", "• c"]);
        assert_eq!(view.give_up(), ["• a", "• b", "• c"]);
    }
}
