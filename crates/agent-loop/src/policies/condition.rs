//! The algebra: conditions over measures, combined by `any`, `all` and `not`, as the configuration writes them.

use belay_protocol::{Finding, StopReason};

use super::counters::Unit;
use super::measures::Measures;
use super::rule::{Condition, Count, Counter, Touched};
pub(crate) use view::{Baseline, View};

mod read;
mod view;

/// What a leaf asks of the measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Leaf<'a> {
    /// Is this counted so often?
    AtLeast(Count<'a>, u64),
    /// Has this been seen?
    Seen(Sight<'a>),
    /// Never true: a flag that was written as false.
    Never,
}

/// Something that is seen or not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sight<'a> {
    ToolLoop,
    Chanting,
    RepeatedReplies,
    Says(&'a str),
    Calls(&'a str),
}

/// A condition, or its parts.
pub(crate) enum Part<'a> {
    Any(&'a [Condition]),
    All(&'a [Condition]),
    Not(&'a Condition),
    Leaf(Leaf<'a>),
}

impl Condition {
    /// What made it true: the first of its parts that is. `None`: it is not true.
    pub fn holds(&self, measures: &Measures) -> Option<Finding> {
        let view = View { measures, since: None };
        self.is_true(&view).then(|| self.finding(&view))
    }

    /// The same condition as its parts, or as the question it asks.
    pub(crate) fn part(&self) -> Part<'_> {
        let flag = |wanted: bool, sight| if wanted { Leaf::Seen(sight) } else { Leaf::Never };
        Part::Leaf(match self {
            Self::Any(parts) => return Part::Any(parts),
            Self::All(parts) => return Part::All(parts),
            Self::Not(part) => return Part::Not(part),
            Self::AtLeast(counter, n) => Leaf::AtLeast(Count::Of(*counter), *n),
            Self::ToolCallsOf(of) => Leaf::AtLeast(Count::ToolCallsOf(&of.tool), of.count),
            Self::RepeatedReplies(wanted) => flag(*wanted, Sight::RepeatedReplies),
            Self::ToolLoop(wanted) => flag(*wanted, Sight::ToolLoop),
            Self::Chanting(wanted) => flag(*wanted, Sight::Chanting),
            Self::Says(text) => Leaf::Seen(Sight::Says(text)),
            Self::Calls(tool) => Leaf::Seen(Sight::Calls(tool)),
        })
    }

    /// Whether it is true. Allocates nothing.
    pub(crate) fn is_true(&self, view: &View<'_>) -> bool {
        match self.part() {
            Part::Any(parts) => parts.iter().any(|part| part.is_true(view)),
            Part::All(parts) => parts.iter().all(|part| part.is_true(view)),
            Part::Not(part) => !part.is_true(view),
            Part::Leaf(leaf) => leaf.is_true(view),
        }
    }

    /// What made it true, which it is: of `any` the first part that is true, of `all` the first that is no negation.
    /// Several conditions together are the operator's own reason, and none of theirs.
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

    /// The measures it asks about.
    pub(crate) fn asks_about(&self) -> Touched {
        let mut asked = Touched::NOTHING;
        self.each_leaf(&mut |leaf| asked = asked.and(leaf.asks_about()));
        asked
    }
}

impl Leaf<'_> {
    fn is_true(self, view: &View<'_>) -> bool {
        match self {
            Self::AtLeast(count, threshold) => view.count(count) >= threshold,
            Self::Seen(sight) => sight.is_there(view.measures),
            Self::Never => false,
        }
    }

    fn finding(self, view: &View<'_>) -> Finding {
        match self {
            Self::AtLeast(count, threshold) => count.finding(view, threshold),
            Self::Seen(sight) => sight.finding(view.measures),
            Self::Never => Finding::new(StopReason::OperatorRule, "never", 0, 0),
        }
    }

    fn asks_about(self) -> Touched {
        match self {
            Self::AtLeast(count, _) => count.counter().row().measure,
            Self::Seen(Sight::ToolLoop) => Touched::TOOL_LOOPS,
            Self::Seen(Sight::Chanting) => Touched::CHANTING,
            Self::Seen(Sight::RepeatedReplies) => Touched::REPLIES,
            Self::Seen(Sight::Says(_)) => Touched::SAID,
            Self::Seen(Sight::Calls(_)) => Touched::CALLED,
            Self::Never => Touched::NOTHING,
        }
    }
}

impl Sight<'_> {
    fn is_there(self, measures: &Measures) -> bool {
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
        // A layer that says it found something has a finding; this is for its type alone.
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
    /// The counter whose row says what it ends.
    pub(crate) fn counter(self) -> Counter {
        match self {
            Self::Of(counter) => counter,
            Self::ToolCallsOf(_) => Counter::ToolCalls,
        }
    }

    /// Its word in the configuration and in evidence.
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
            // An amount of money is shown in its stored unit: a whole number.
            (_, Unit::MicroUsd) => found(value, threshold).with("unit", "micro_usd"),
            // Seconds are told where whole seconds were asked for.
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
