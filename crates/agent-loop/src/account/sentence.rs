//! The sentence of the evidence.

use super::equal::{Differs, Equal};
use super::evidence::Evidence;
use super::kind::LoopKind;

/// How a line of a result is shown. `None`: it is left out.
pub(super) type ShowLine<'f> = &'f dyn Fn(&str) -> Option<String>;

impl Evidence {
    /// The evidence as one sentence for people, at most 400 bytes.
    pub fn sentence(&self) -> String {
        let sentence = self.sentence_with(&|line| Some(format!("“{line}”")));
        if sentence.len() > MAX_BYTES { self.sentence_with(&|_| None) } else { sentence }
    }

    /// The sentence, with lines of results shown like this.
    pub(super) fn sentence_with(&self, show: ShowLine<'_>) -> String {
        let count = self.count;
        let quote = || self.quote.as_deref().map(|quote| format!(": “{quote}”")).unwrap_or_default();
        match self.kind {
            LoopKind::Chanting => format!("The answer repeated one text {count} times{}.", quote()),
            LoopKind::RepeatedLines => {
                let lines = self.lines.map_or_else(|| "lines".to_owned(), |lines| many(lines, "line"));
                format!("The answer repeated the same {lines} {count} times{}.", quote())
            }
            LoopKind::RepeatedAnswers => {
                format!("The newest answer repeats {}{}.", many(count, "earlier one"), quote())
            }
            LoopKind::EmptyReplies => format!("The last {} had neither text nor a tool call.", many(count, "reply")),
            LoopKind::Compactions => {
                format!("Shortening the conversation {count} times in a row saved less than a tenth.")
            }
            LoopKind::Judged => format!("Another model found that the run repeats itself ({count} % sure)."),
            LoopKind::OwnRule => format!("The rule “{}” applies, at {count}.", self.rule),
            LoopKind::UnknownTools => {
                let tool = self.tool.as_deref().unwrap_or_default();
                format!("The last {} named tools that do not exist, the newest “{tool}”.", many(count, "call"))
            }
            LoopKind::InvalidArguments if self.calls < 2 => {
                format!("The last {} had invalid arguments, the newest of {}.", many(count, "call"), self.call())
            }
            LoopKind::Denied => format!("The call of {} was denied {count} times.", self.call()),
            _ if self.calls < 2 => format!("The same was repeated {count} times without a new result{}.", quote()),
            _ => self.of_calls(show),
        }
    }

    /// The sentence about calls.
    fn of_calls(&self, show: ShowLine<'_>) -> String {
        let last = format!("The last {}{}", self.what(), self.steps());
        let tool = self.tool.as_deref().unwrap_or_default();
        let last_of_tool = format!("The last {} calls of {tool}{}", self.calls, self.steps());
        let newest = || self.newest.as_deref().and_then(show).map(|line| format!(": {line}")).unwrap_or_default();
        match self.kind {
            LoopKind::VariedArguments => format!("{last_of_tool}, with different arguments, {}.", self.got(show)),
            LoopKind::Guessing => format!("{last_of_tool} were different guesses and got one refusal{}.", newest()),
            LoopKind::GrowingArguments => {
                let target = self.target.as_ref().map(|target| format!(", now “{}”", target.text)).unwrap_or_default();
                format!("{last_of_tool}, each with a longer argument{target}, {}.", self.got(show))
            }
            LoopKind::EditRun => {
                let edits = many(self.edits as u64, "edit");
                format!("{last}, with {edits} in between, {}.", self.got(show))
            }
            LoopKind::Cycle => self.of_cycle(),
            LoopKind::Debugger => {
                format!("The last {} calls around the debugger{} {}.", self.calls, self.steps(), self.got(show))
            }
            LoopKind::DeadEnvironment => {
                format!(
                    "The last {} calls{} failed because the environment does not answer{}.",
                    self.calls,
                    self.steps(),
                    newest()
                )
            }
            LoopKind::Errors => {
                let alike = if self.equal.is_some() { "with the same error" } else { "; the newest error" };
                format!("Every call of the last {} failed {alike}{}.", many(self.count, "step"), newest())
                    .replace(" ;", ";")
            }
            LoopKind::InvalidArguments => {
                format!(
                    "The last {} calls{} had invalid arguments, the newest of {tool}{}.",
                    self.calls,
                    self.steps(),
                    newest()
                )
            }
            LoopKind::OscillatingWrites => {
                let target = self.target.as_ref().map_or(tool.to_owned(), |target| format!("“{}”", target.text));
                format!("{target} was changed back to an earlier state {} times{}.", self.count, self.steps())
            }
            LoopKind::NoNews => {
                format!(
                    "The last {} calls{} brought nothing new, the newest of {}.",
                    self.calls,
                    self.steps(),
                    self.call()
                )
            }
            _ => format!("{last} {}.", self.got(show)),
        }
    }

    fn of_cycle(&self) -> String {
        let period = self.cycle.len();
        let shown = self.cycle.iter().take(SHOWN_OF_CYCLE).cloned().collect::<Vec<_>>().join(", ");
        let more = if period > SHOWN_OF_CYCLE { ", …" } else { "" };
        let rounds = self.calls / period.max(1);
        format!(
            "The same {period} calls were made {rounds} times in turn{} with the same results: {shown}{more}.",
            self.steps()
        )
    }

    /// "6 runs of solve.py", "5 calls of read_file (“build.log”)".
    fn what(&self) -> String {
        match &self.target {
            Some(target) if self.runs && target.script => format!("{} runs of {}", self.calls, target.text),
            Some(target) if self.runs => format!("{} runs of “{}”", self.calls, target.text),
            _ => format!("{} calls of {}", self.calls, self.call()),
        }
    }

    /// "read_file (“build.log”)".
    fn call(&self) -> String {
        let tool = self.tool.as_deref().unwrap_or("a tool");
        match &self.target {
            Some(target) => format!("{tool} (“{}”)", target.text),
            None => tool.to_owned(),
        }
    }

    fn steps(&self) -> String {
        match self.steps {
            Some((first, last)) if first < last => format!(" (steps {first} to {last})"),
            Some((first, _)) => format!(" (step {first})"),
            None => String::new(),
        }
    }

    /// The part of the results that stayed equal.
    fn got(&self, show: ShowLine<'_>) -> String {
        let verb = if self.runs { "printed" } else { "returned" };
        let Some(Equal { lines, differs, first }) = &self.equal else { return "brought nothing new".to_owned() };
        let except = match differs {
            Differs::Nothing => "",
            Differs::Numbers => " except for numbers",
            Differs::Ids => " except for numbers and ids",
            Differs::Arguments => " except for the words of the arguments",
        };
        let shown = show(first).filter(|_| !first.is_empty());
        match (lines, shown) {
            (0, _) => format!("{verb} nothing"),
            (1, Some(shown)) => format!("{verb} the same line{except}: {shown}"),
            (1, None) => format!("{verb} the same line{except}"),
            (lines, Some(shown)) => format!("{verb} the same {lines} lines{except}, beginning with {shown}"),
            (lines, None) => format!("{verb} the same {lines} lines{except}"),
        }
    }
}

/// Longest sentence for people, in bytes.
const MAX_BYTES: usize = 400;

/// Calls of a cycle that are named.
const SHOWN_OF_CYCLE: usize = 3;

fn many(count: u64, one: &str) -> String {
    match (count, one.strip_suffix('y')) {
        (1, _) => format!("1 {one}"),
        (count, Some(stem)) => format!("{count} {stem}ies"),
        (count, None) => format!("{count} {one}s"),
    }
}
