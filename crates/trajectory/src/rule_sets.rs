//! Rule sets that can be compared: ours, and those of other programs, re-stated from what is known of how they behave.
//!
//! A rule set sees a recording event by event and says when it would have ended the run, or taken its tools away. What
//! it would have done after that is not asked: the first such moment is what counts. What a recording cannot show (the
//! judgement of another model, the length limit of an answer) is left out, and each file says what.
//!
//! None of this is anybody's code. Known defects are re-stated on purpose, since they decide how the rules fare.

mod belay;
mod chanting;
mod gemini_2025;
mod gemini_2026;
mod ironclaw;
mod iteration_cap;
mod openhands;
mod openmanus;
mod steps;

use belay_agent_loop::policies::StopRules;

use crate::event::TrajectoryEvent;

pub use belay::Belay;
pub use belay_agent_loop::policies::tool_loops::Part;
pub use gemini_2025::Gemini2025;
pub use gemini_2026::Gemini2026;
pub use ironclaw::IronClaw;
pub use iteration_cap::IterationCap;
pub use openhands::OpenHands;
pub use openmanus::OpenManus;

/// Rules that watch one run.
pub trait RuleSet: Send {
    /// Takes the next event. Returns the rule that would end the run now, or take its tools away.
    fn observe(&mut self, event: &TrajectoryEvent) -> Option<String>;

    /// The program is restarted within the run. Only what stores its state has anything to do; for the others the state
    /// is kept, which is kinder than what would happen to them.
    fn restart(&mut self) {}
}

/// A rule set in a comparison.
pub struct Candidate {
    /// Its name in tables.
    pub name: &'static str,
    /// Whose rules these are, and from when.
    pub source: &'static str,
    /// Makes one that has seen nothing.
    pub make: Box<dyn Fn() -> Box<dyn RuleSet> + Send + Sync>,
}

/// Belay with these rules, then without each of these parts of its loop analysis.
pub fn ablations(rules: &StopRules, left_out: &[Part]) -> Vec<Candidate> {
    let belay = |name, source, rules: StopRules| Candidate {
        name,
        source,
        make: Box::new(move || Box::new(Belay::new(rules.clone()))),
    };
    let whole = [belay("belay", "this program", rules.clone())];
    let without = left_out.iter().map(|part| belay(part.lack(), part.about(), rules.without(*part)));
    whole.into_iter().chain(without).collect()
}

/// All of them: Belay with these rules, then the others.
pub fn candidates(rules: StopRules) -> Vec<Candidate> {
    fn of<R: RuleSet + Default + 'static>(name: &'static str, source: &'static str) -> Candidate {
        Candidate { name, source, make: Box::new(|| Box::new(R::default())) }
    }
    vec![
        Candidate {
            name: "belay",
            source: "this program",
            make: Box::new(move || Box::new(Belay::new(rules.clone()))),
        },
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
