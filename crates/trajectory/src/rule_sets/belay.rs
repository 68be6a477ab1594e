//! Belay itself.

use belay_agent_loop::policies::StopRules;

use super::RuleSet;
use crate::event::TrajectoryEvent;
use crate::verdict::Judge;

/// The stop engine of this program. The first strike counts, although it only grants a recovery turn.
#[derive(Debug)]
pub struct Belay {
    judge: Judge,
}

impl Belay {
    /// With these rules.
    pub fn new(rules: StopRules) -> Self {
        Self { judge: Judge::new(rules) }
    }
}

impl RuleSet for Belay {
    fn observe(&mut self, event: &TrajectoryEvent) -> Option<String> {
        self.judge.observe(event).map(|finding| finding.rule)
    }

    fn restart(&mut self) {
        self.judge.restart().expect("the engine's state is made to be stored");
    }
}
