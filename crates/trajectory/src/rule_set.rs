//! The rule sets of an evaluation: the rules of Belay, complete or without a part of the loop analysis.

use belay_agent_loop::policies::StopRules;
pub use belay_agent_loop::policies::tool_loops::Part;

use crate::event::TrajectoryEvent;
use crate::verdict::Judge;

/// A rule set that observes one run.
pub trait RuleSet: Send {
    /// Processes the next event. Returns the rule that would end the run now, or take its tools away.
    fn observe(&mut self, event: &TrajectoryEvent) -> Option<String>;

    /// Simulates a restart of the program within the run. A rule set without stored state does nothing here and keeps
    /// its state.
    fn restart(&mut self) {}
}

/// A rule set in a comparison.
pub struct Candidate {
    /// Its name in tables.
    pub name: &'static str,
    /// The origin and the date of the rules.
    pub source: &'static str,
    /// Makes an instance that has seen no event.
    pub make: Box<dyn Fn() -> Box<dyn RuleSet> + Send + Sync>,
}

/// Belay with these rules, then without each of these parts of its loop analysis.
pub fn belay(rules: &StopRules, left_out: &[Part]) -> Vec<Candidate> {
    let candidate = |name, source, rules: StopRules| Candidate {
        name,
        source,
        make: Box::new(move || Box::new(Belay { judge: Judge::new(rules.clone()) })),
    };
    let whole = [candidate("belay", "this program", rules.clone())];
    let without = left_out.iter().map(|part| candidate(part.lack(), part.about(), rules.without(*part)));
    whole.into_iter().chain(without).collect()
}

/// The stop engine of Belay. The first strike counts, although it only grants a recovery turn.
struct Belay {
    judge: Judge,
}

impl RuleSet for Belay {
    fn observe(&mut self, event: &TrajectoryEvent) -> Option<String> {
        self.judge.observe(event).map(|finding| finding.rule)
    }

    fn restart(&mut self) {
        self.judge.restart().expect("the engine's state can be stored and read back");
    }
}
