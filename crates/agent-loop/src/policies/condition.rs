//! Evaluates conditions over measures. The settings combine them with `any`, `all` and `not`.

use belay_protocol::{Finding, StopReason};

use super::counters::Unit;
use super::measures::Measures;
use super::rule::{Condition, Count, Counter, Touched};
pub(crate) use view::{Baseline, View};

mod read;
mod view;

/// The question that a leaf asks about the measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Leaf<'a> {
    /// Whether the count has reached the threshold.
    AtLeast(Count<'a>, u64),
    /// Whether this has been seen.
    Seen(Observed<'a>),
    /// Never true: a flag that was set to false.
    Never,
}

/// A fact that is seen or not seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Observed<'a> {
    ToolLoop,
    Chanting,
    RepeatedReplies,
    Says(&'a str),
    Calls(&'a str),
}

/// A leaf, or the parts of a combination.
pub(crate) enum Part<'a> {
    Any(&'a [Condition]),
    All(&'a [Condition]),
    Not(&'a Condition),
    Leaf(Leaf<'a>),
}

impl Condition {
    /// The finding of the part that made the condition true: of several, the first. `None`: the condition is not true.
    pub fn holds(&self, measures: &Measures) -> Option<Finding> {
        let view = View { measures, since: None };
        self.is_true(&view).then(|| self.finding(&view))
    }

    /// The condition as its parts, or as a leaf.
    pub(crate) fn part(&self) -> Part<'_> {
        let flag = |wanted: bool, observed| if wanted { Leaf::Seen(observed) } else { Leaf::Never };
        Part::Leaf(match self {
            Self::Any(parts) => return Part::Any(parts),
            Self::All(parts) => return Part::All(parts),
            Self::Not(part) => return Part::Not(part),
            Self::AtLeast(counter, n) => Leaf::AtLeast(Count::Of(*counter), *n),
            Self::ToolCallsOf(of) => Leaf::AtLeast(Count::ToolCallsOf(&of.tool), of.count),
            Self::RepeatedReplies(wanted) => flag(*wanted, Observed::RepeatedReplies),
            Self::ToolLoop(wanted) => flag(*wanted, Observed::ToolLoop),
            Self::Chanting(wanted) => flag(*wanted, Observed::Chanting),
            Self::Says(text) => Leaf::Seen(Observed::Says(text)),
            Self::Calls(tool) => Leaf::Seen(Observed::Calls(tool)),
        })
    }

    /// Whether the condition is true. Allocates nothing.
    pub(crate) fn is_true(&self, view: &View<'_>) -> bool {
        match self.part() {
            Part::Any(parts) => parts.iter().any(|part| part.is_true(view)),
            Part::All(parts) => parts.iter().all(|part| part.is_true(view)),
            Part::Not(part) => !part.is_true(view),
            Part::Leaf(leaf) => leaf.is_true(view),
        }
    }

    /// The finding of a condition that is true: of `any` the first part that is true, of `all` the first that is not a
    /// negation. If several conditions must hold together, the reason is `operator_rule` and not the reason of one of
    /// them.
    pub(crate) fn finding(&self, view: &View<'_>) -> Finding {
        let own = |word: &str| Finding::new(StopReason::OperatorRule, word, 0, 0);
        match self.part() {
            Part::Any(parts) => match parts.iter().find(|part| part.is_true(view)) {
                Some(part) => part.finding(view),
                None => own("any"),
            },
            Part::All(parts) => {
                let telling = parts.iter().find(|part| !matches!(part, Self::Not(_))).or(parts.first());
                let mut finding = telling.map_or_else(|| own("all"), |part| part.finding(view));
                if parts.len() > 1 {
                    finding.reason = StopReason::OperatorRule;
                }
                finding
            }
            Part::Not(_) => own("not"),
            Part::Leaf(leaf) => leaf.finding(view),
        }
    }

    /// Calls `visit` with each leaf.
    pub(crate) fn each_leaf<'a>(&'a self, visit: &mut dyn FnMut(Leaf<'a>)) {
        match self.part() {
            Part::Any(parts) | Part::All(parts) => parts.iter().for_each(|part| part.each_leaf(visit)),
            Part::Not(part) => part.each_leaf(visit),
            Part::Leaf(leaf) => visit(leaf),
        }
    }

    /// The measures that the condition reads.
    pub(crate) fn depends_on(&self) -> Touched {
        let mut touched = Touched::NOTHING;
        self.each_leaf(&mut |leaf| touched = touched.and(leaf.depends_on()));
        touched
    }
}

impl Leaf<'_> {
    fn is_true(self, view: &View<'_>) -> bool {
        match self {
            Self::AtLeast(count, threshold) => view.count(count) >= threshold,
            Self::Seen(observed) => observed.is_present(view.measures),
            Self::Never => false,
        }
    }

    fn finding(self, view: &View<'_>) -> Finding {
        match self {
            Self::AtLeast(count, threshold) => count.finding(view, threshold),
            Self::Seen(observed) => observed.finding(view.measures),
            Self::Never => Finding::new(StopReason::OperatorRule, "never", 0, 0),
        }
    }

    fn depends_on(self) -> Touched {
        match self {
            Self::AtLeast(count, _) => count.counter().row().measure,
            Self::Seen(Observed::ToolLoop) => Touched::TOOL_LOOPS,
            Self::Seen(Observed::Chanting) => Touched::CHANTING,
            Self::Seen(Observed::RepeatedReplies) => Touched::REPLIES,
            Self::Seen(Observed::Says(_)) => Touched::SAID,
            Self::Seen(Observed::Calls(_)) => Touched::CALLED,
            Self::Never => Touched::NOTHING,
        }
    }
}

impl Observed<'_> {
    fn is_present(self, measures: &Measures) -> bool {
        match self {
            Self::ToolLoop => measures.tool_loops.found().is_some(),
            Self::Chanting => measures.chanting.found().is_some(),
            Self::RepeatedReplies => measures.replies.found().is_some(),
            Self::Says(text) => measures.mentions.says(text),
            Self::Calls(tool) => measures.mentions.calls(tool),
        }
    }

    fn finding(self, measures: &Measures) -> Finding {
        let mention = |word: &str, what: &str| Finding::new(StopReason::OperatorRule, word, 1, 1).quoting(what);
        let found = match self {
            Self::ToolLoop => measures.tool_loops.found(),
            Self::Chanting => measures.chanting.found(),
            Self::RepeatedReplies => measures.replies.found(),
            Self::Says(text) => return mention("says", text),
            Self::Calls(tool) => return mention("calls", tool),
        };
        // Every layer that reports a loop has a finding. Only the type makes this fallback necessary.
        found.cloned().unwrap_or_else(|| Finding::new(StopReason::OperatorRule, self.word(), 1, 1))
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::ToolLoop => "tool_loop",
            Self::Chanting => "chanting",
            Self::RepeatedReplies => "repeated_replies",
            Self::Says(_) => "says",
            Self::Calls(_) => "calls",
        }
    }
}

impl Count<'_> {
    /// The counter whose row defines the stop reason and the unit.
    pub(crate) fn counter(self) -> Counter {
        match self {
            Self::Of(counter) => counter,
            Self::ToolCallsOf(_) => Counter::ToolCalls,
        }
    }

    /// The word in the configuration and in the evidence.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Of(counter) => counter.row().word,
            Self::ToolCallsOf(_) => "tool_calls_of",
        }
    }

    fn finding(self, view: &View<'_>, threshold: u64) -> Finding {
        let row = self.counter().row();
        let value = view.count(self);
        let scale = self.counter().scale();
        let found = |value, threshold| Finding::new(row.reason, self.word(), value, threshold);
        match (self, row.unit) {
            // Money is shown in its stored unit, as a whole number.
            (_, Unit::MicroUsd) => found(value, threshold).with("unit", "micro_usd"),
            // Seconds are shown if the threshold is a whole number of seconds.
            (_, Unit::Ms) if !threshold.is_multiple_of(scale) => found(value, threshold).with("unit", "ms"),
            (_, Unit::Ms) => found(value / scale, threshold / scale).with("unit", "s"),
            (Self::ToolCallsOf(tool), _) => found(value, threshold).with("tool", tool),
            (Self::Of(Counter::Errors), _) => found(value, threshold).quoting(view.measures.errors.newest()),
            (Self::Of(counter), _) if row.names_tool => {
                found(value, threshold).with("tool", view.measures.counters.tool(counter))
            }
            _ => found(value, threshold),
        }
    }
}

#[cfg(test)]
mod tests;
