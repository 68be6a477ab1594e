//! The state of the stop engine: measures, strikes and the latch. Stored with the run.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use belay_protocol::Finding;
use serde::{Deserialize, Serialize};

use super::condition::{Baseline, Leaf, Observed, Part, View};
use super::measures::Measures;
use super::observation::Observation;
use super::rule::{Condition, Count, Counter, Rule, Since, Then, Touched};
use super::rules::{Compiled, Origin, StopRules};

/// The state of the stop engine for one run. A restored state continues, with the same rules or with changed ones.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(default)]
pub struct StopState {
    /// All measures.
    pub measures: Measures,
    /// Strikes in this request, of any kind. A verdict that ends the run counts as one.
    pub strikes: u32,
    /// Loop detection is off for this run.
    pub detection_off: bool,
    /// The verdict in force. Nothing else is judged until a recovery releases the latch.
    pub latched: Option<Finding>,
    /// The measures of that verdict, and of all other strikes that became true since then. One behaviour that several
    /// rules find is one strike.
    #[serde(skip_serializing_if = "Touched::is_nothing")]
    behind: Touched,
    /// Measures that may have changed since the rules that use them were evaluated.
    #[serde(skip_serializing_if = "Touched::is_nothing")]
    untold: Touched,
    /// Rules that have sent a notice and whose condition has been true since then.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    noticed: BTreeSet<String>,
    /// For rules that count from their own last notice or strike: the counts at that time.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    baselines: BTreeMap<String, Baseline>,
}

/// The decision of the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The action.
    pub action: Action,
    /// The evidence.
    pub finding: Finding,
    /// The number of this strike, from 1; 0 for a notice.
    pub strike: u32,
    /// The rule's own text for the model, if it has one.
    pub say: Option<String>,
}

/// The action of a verdict. Of several at once, the stronger one is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Tell the model and continue.
    Notice,
    /// Tell the model, grant a recovery turn ([`StopState::recover`]) and continue.
    Recover,
    /// End the run.
    Stop,
}

impl StopState {
    /// Processes an observation. Returns a verdict at the moment when a rule becomes true.
    pub fn observe(&mut self, rules: &StopRules, seen: Observation<'_>) -> Option<Verdict> {
        match seen {
            Observation::Reset => {
                *self = Self { detection_off: self.detection_off, ..Self::default() };
                return None;
            }
            Observation::Recover => {
                self.recover();
                return None;
            }
            Observation::Disable => {
                self.detection_off = true;
                self.latched = None;
                return None;
            }
            _ => {}
        }
        let touched = self.measures.observe(&rules.watched, &seen);
        self.untold = self.untold.and(touched).within(rules.watched.read_measures);
        if self.untold.is_nothing() {
            return None;
        }
        self.lower_baselines(rules);
        if self.latched.is_some() {
            self.add_latched_measures(rules);
            return None;
        }
        self.judge(rules)
    }

    /// Releases the latch and resets the layers behind the verdict, so that only new repetition gives a second strike.
    /// Used resources are never reset.
    pub fn recover(&mut self) {
        if self.latched.take().is_some() {
            self.measures.clear(std::mem::take(&mut self.behind));
        }
    }

    /// Records the judgement of another model, as an ordinary strike. `None`: loop detection is off, or a verdict is in
    /// force.
    pub fn judged(&mut self, rules: &StopRules, finding: Finding) -> Option<Verdict> {
        if self.detection_off || self.latched.is_some() {
            return None;
        }
        Some(self.latch(rules, Then::Strike, finding, None))
    }

    /// Evaluates every rule that uses a measure in `untold`.
    fn judge(&mut self, rules: &StopRules) -> Option<Verdict> {
        let untold = std::mem::take(&mut self.untold);
        let mut fired: Option<(&Compiled, Action, Finding)> = None;
        for one in rules.compiled.iter().filter(|one| one.depends_on.meets(untold)) {
            if !self.is_true(one) {
                self.noticed.remove(&one.rule.name);
                continue;
            }
            let is_known = one.rule.then == Then::Notice && self.noticed.contains(&one.rule.name);
            if is_known || (self.detection_off && one.is_detection()) {
                continue;
            }
            if one.rule.then == Then::Strike {
                self.behind = self.behind.and(one.depends_on);
            }
            let action = self.action(rules, one.rule.then);
            let finding = self.finding(one);
            let (report_now, left) = match fired {
                Some(other) if !comes_first(action, &finding, &other) => (other, Some(one)),
                Some(other) => ((one, action, finding), Some(other.0)),
                None => ((one, action, finding), None),
            };
            fired = Some(report_now);
            // A rule that was not reported now is evaluated again with the next event.
            self.untold = self.untold.and(left.map_or(Touched::NOTHING, |left| left.depends_on));
        }
        let (one, action, finding) = fired?;
        Some(self.report(rules, one, action, finding))
    }

    fn report(&mut self, rules: &StopRules, one: &Compiled, action: Action, finding: Finding) -> Verdict {
        let Rule { name, when, then, say, since } = &one.rule;
        if *since == Since::Notice {
            self.baselines.insert(name.clone(), Baseline::of(when, &self.measures));
        }
        if action != Action::Notice {
            self.behind = self.behind.and(one.depends_on);
            return self.latch(rules, *then, finding, say.clone());
        }
        // A rule that counts from this notice on is no longer true, unless it depends on something that is not counted.
        if self.is_true(one) {
            self.noticed.insert(name.clone());
        }
        Verdict { action, finding, strike: 0, say: say.clone() }
    }

    fn latch(&mut self, rules: &StopRules, then: Then, finding: Finding, say: Option<String>) -> Verdict {
        let action = self.action(rules, then);
        self.strikes = self.strikes.saturating_add(1);
        self.latched = Some(finding.clone());
        Verdict { action, finding, strike: self.strikes, say }
    }

    fn action(&self, rules: &StopRules, then: Then) -> Action {
        match then {
            Then::Notice => Action::Notice,
            Then::Strike if self.strikes.saturating_add(1) < rules.max_strikes => Action::Recover,
            Then::Strike | Then::Stop => Action::Stop,
        }
    }

    /// While a verdict is in force, the measures of further strikes are added to its measures.
    fn add_latched_measures(&mut self, rules: &StopRules) {
        let strikes = rules.compiled.iter().filter(|one| one.rule.then == Then::Strike);
        for one in strikes.filter(|one| one.depends_on.meets(self.untold)) {
            if self.is_true(one) {
                self.behind = self.behind.and(one.depends_on);
            }
        }
    }

    fn lower_baselines(&mut self, rules: &StopRules) {
        if self.baselines.is_empty() {
            return;
        }
        for one in rules.compiled.iter().filter(|one| one.depends_on.meets(self.untold)) {
            if let Some(baseline) = self.baselines.get_mut(&one.rule.name) {
                baseline.lower(&one.rule.when, &self.measures);
            }
        }
    }

    fn view(&self, one: &Compiled) -> View<'_> {
        let since = match one.rule.since {
            Since::Request => None,
            Since::Notice => self.baselines.get(&one.rule.name),
        };
        View { measures: &self.measures, since }
    }

    fn is_true(&self, one: &Compiled) -> bool {
        one.rule.when.is_true(&self.view(one))
    }

    /// The finding of a rule. A rule of the operator is reported by its own name, with the measure as a fact.
    fn finding(&self, one: &Compiled) -> Finding {
        let mut finding = one.rule.when.finding(&self.view(one));
        if one.origin == Origin::Operator && finding.rule != one.rule.name {
            let measure = std::mem::replace(&mut finding.rule, one.rule.name.clone());
            return finding.with("measure", measure);
        }
        if one.held_ms > 0 {
            return finding.with("held_for_closing_ms", one.held_ms);
        }
        finding
    }
}

impl StopRules {
    /// Whether a stream must be cut when it chants: some active rule about chanting does more than send a notice.
    pub fn cuts_streams(&self, state: &StopState) -> bool {
        self.compiled.iter().any(|one| {
            let listens = one.rule.then != Then::Notice && !(state.detection_off && one.is_detection());
            let mut chanting = false;
            one.rule.when.each_leaf(&mut |leaf| chanting |= matches!(leaf, Leaf::Seen(Observed::Chanting)));
            listens && chanting
        })
    }

    /// The earliest clock reading, in milliseconds, at which a rule would end the run by time alone. It is for a timer
    /// during a model call. Rules with further conditions are not considered. `None`: there is no such rule, or no
    /// clock reading yet.
    pub fn deadline_ms(&self, state: &StopState) -> Option<u64> {
        let ending = self.compiled.iter().filter(|one| one.rule.then == Then::Stop);
        let asked = ending.filter(|one| !(state.detection_off && one.is_detection()));
        asked.filter_map(|one| deadline(&one.rule.when, state)).min()
    }
}

fn deadline(condition: &Condition, state: &StopState) -> Option<u64> {
    let time = &state.measures.time;
    match condition.part() {
        Part::Any(parts) => parts.iter().filter_map(|part| deadline(part, state)).min(),
        Part::Leaf(Leaf::AtLeast(Count::Of(Counter::WallMs), wall_ms)) => time.reading_at_wall(wall_ms),
        Part::Leaf(Leaf::AtLeast(Count::Of(Counter::ActiveMs), active_ms)) => time.reading_at_active(active_ms),
        Part::All(_) | Part::Not(_) | Part::Leaf(_) => None,
    }
}

/// Whether this verdict is reported instead of the other: first the end of a run, then a strike, then a notice;
/// otherwise by the precedence of the stop reasons, then by the order of the rules.
fn comes_first(action: Action, finding: &Finding, (_, other, seen): &(&Compiled, Action, Finding)) -> bool {
    let order = action.cmp(other).reverse().then(finding.reason.precedence(seen.reason));
    order == Ordering::Less
}

#[cfg(test)]
mod tests;
