//! The rule sets of other programs, restated from their published behaviour.
//!
//! A rule set observes a recording event by event and reports when it would have ended the run, or taken its tools
//! away. Only the first report counts. Each file names the parts that a recording cannot show and that are therefore
//! left out, such as the judgement of another model or the length limit of an answer.
//!
//! This is not code of those programs. Known defects are restated on purpose, because they affect the figures.

mod chanting;
mod gemini_2025;
mod gemini_2026;
mod ironclaw;
mod iteration_cap;
mod openhands;
mod openmanus;
mod steps;

use belay_trajectory::RuleSet;
use belay_trajectory::rule_set::Candidate;

use gemini_2025::Gemini2025;
use gemini_2026::Gemini2026;
use ironclaw::IronClaw;
use iteration_cap::IterationCap;
use openhands::OpenHands;
use openmanus::OpenManus;

/// All rule sets of other programs.
pub(crate) fn other_programs() -> [Candidate; 6] {
    fn of<R: RuleSet + Default + 'static>(name: &'static str, source: &'static str) -> Candidate {
        Candidate { name, source, make: Box::new(|| Box::new(R::default())) }
    }
    [
        of::<IterationCap>("iteration cap 50", "a limit of model calls and nothing else"),
        of::<IronClaw>("ironclaw", "IronClaw v1: duplicate failures, 50 iterations"),
        of::<OpenManus>("openmanus", "OpenManus, January 2026: equal texts, 30 steps"),
        of::<Gemini2025>("gemini-cli 2025", "Gemini CLI, September 2025, without the model that judges"),
        of::<Gemini2026>("gemini-cli 2026", "Gemini CLI, August 2026, without the models that judge"),
        of::<OpenHands>("openhands", "OpenHands software-agent-sdk: the stuck detector"),
    ]
}

#[cfg(test)]
mod testing;
