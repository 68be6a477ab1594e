//! The measures as a rule sees them: since the beginning of the request, or since the rule fired last.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Condition, Leaf};
use crate::policies::measures::Measures;
use crate::policies::rule::Count;

/// The measures as one rule sees them.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) measures: &'a Measures,
    /// The start of the rule's count; `None`: the beginning of the request.
    pub(crate) since: Option<&'a Baseline>,
}

impl View<'_> {
    /// The count since the start.
    pub(super) fn count(&self, count: Count<'_>) -> u64 {
        let base = self.since.map_or(0, |since| since.count(count));
        self.measures.count(count).saturating_sub(base)
    }
}

/// The counts at the moment when a rule fired last.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(default)]
pub(crate) struct Baseline {
    counts: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tools: BTreeMap<String, u64>,
}

impl Baseline {
    /// The current values of all counts in the condition.
    pub(crate) fn of(condition: &Condition, measures: &Measures) -> Self {
        let mut baseline = Self::default();
        condition.each_leaf(&mut |leaf| {
            if let Leaf::AtLeast(count, _) = leaf {
                let value = measures.count(count);
                match count {
                    Count::ToolCallsOf(tool) => baseline.tools.insert(tool.to_owned(), value),
                    _ => baseline.counts.insert(count.word().to_owned(), value),
                };
            }
        });
        baseline
    }

    /// Lowers the baseline of a streak that was broken, so that the streak counts from 0 again.
    pub(crate) fn lower(&mut self, condition: &Condition, measures: &Measures) {
        condition.each_leaf(&mut |leaf| {
            if let Leaf::AtLeast(count, _) = leaf
                && let Some(base) = self.counts.get_mut(count.word())
            {
                *base = (*base).min(measures.count(count));
            }
        });
    }

    fn count(&self, count: Count<'_>) -> u64 {
        let base = match count {
            Count::ToolCallsOf(tool) => self.tools.get(tool),
            _ => self.counts.get(count.word()),
        };
        base.copied().unwrap_or(0)
    }
}
