//! Judging a recording: the stop engine sees it event by event, and one verdict comes out.

use belay_agent_loop::policies::{Action, StopRules, StopState};
use belay_protocol::Finding;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::event::TrajectoryEvent;

/// What the rules say of a whole recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// There was a strike, and no recovery after it. A new request, or switching detection off, does not take it back.
    pub stopped: bool,
    /// The reason of the newest strike, a word of the closed list; `None`: there was none.
    pub reason: Option<&'static str>,
    /// The rule of that strike.
    pub rule: Option<String>,
    /// The index, from 0, of the first event during which a verdict turned true.
    pub at_event: Option<u64>,
    /// Strikes in the whole recording. Notices are none.
    pub strikes: u32,
    /// What was seen at the newest strike.
    pub evidence: Map<String, Value>,
}

/// Shows events to the stop engine and keeps what it says.
#[derive(Clone, Debug)]
pub struct Judge {
    rules: StopRules,
    state: StopState,
    next: u64,
    at_event: Option<u64>,
    strikes: u32,
    newest: Option<Finding>,
    stopped: bool,
}

impl Judge {
    /// A judge who has seen nothing.
    pub fn new(rules: StopRules) -> Self {
        Self { rules, state: StopState::default(), next: 0, at_event: None, strikes: 0, newest: None, stopped: false }
    }

    /// Shows the next event. Returns what a strike saw, at the event during which it turned true.
    ///
    /// After a strike nothing is judged until [`TrajectoryEvent::Recover`] or [`TrajectoryEvent::Reset`].
    pub fn observe(&mut self, event: &TrajectoryEvent) -> Option<Finding> {
        let index = self.next;
        self.next += 1;
        self.stopped &= !matches!(event, TrajectoryEvent::Recover);
        let verdict = self.state.observe(&self.rules, event.observation())?;
        if verdict.action == Action::Notice {
            return None;
        }
        self.at_event.get_or_insert(index);
        self.strikes += 1;
        self.stopped = true;
        self.newest = Some(verdict.finding.clone());
        Some(verdict.finding)
    }

    /// How many events were shown.
    pub fn events(&self) -> u64 {
        self.next
    }

    /// Writes the engine's state down and reads it back, as a daemon does that is restarted within a run.
    ///
    /// # Errors
    /// The state cannot be written or read: a fault of the engine.
    pub fn restart(&mut self) -> Result<(), serde_json::Error> {
        let kept = serde_json::to_string(&self.state)?;
        self.state = serde_json::from_str(&kept)?;
        Ok(())
    }

    /// The verdict about everything that was shown.
    pub fn verdict(&self) -> Verdict {
        Verdict {
            stopped: self.stopped,
            reason: self.newest.as_ref().map(|finding| finding.reason.word()),
            rule: self.newest.as_ref().map(|finding| finding.rule.clone()),
            at_event: self.at_event,
            strikes: self.strikes,
            evidence: self.newest.as_ref().map(Finding::evidence).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use belay_agent_loop::policies::RulesFile;
    use serde_json::json;

    use super::*;

    /// Strikes at the third step, notices at the second.
    fn rules() -> StopRules {
        let rule = |name: &str, steps: u64, then: &str| json!({"name": name, "when": {"steps": steps}, "then": then});
        let rules = json!([rule("many", 3, "strike"), rule("some", 2, "notice")]);
        let file: RulesFile = serde_json::from_value(json!({"enabled": false, "rules": rules})).unwrap();
        StopRules::compile(&file.stops, &file.run_limits())
    }

    fn judged(events: &[TrajectoryEvent]) -> Verdict {
        let mut judge = Judge::new(rules());
        for event in events {
            judge.observe(event);
            judge.restart().unwrap();
        }
        judge.verdict()
    }

    #[test]
    fn a_verdict_tells_the_first_event_and_whether_it_stands() {
        use TrajectoryEvent::{Disable, Recover, Reset, Turn, User};
        let user = || User("go on".into());
        for (events, stopped, at_event, strikes) in [
            (vec![], false, None, 0),
            (vec![Turn, Turn], false, None, 0), // a notice is no strike
            (vec![Turn, Turn, Turn], true, Some(2), 1),
            (vec![Turn, Turn, Turn, user(), Turn], true, Some(2), 1),
            (vec![Turn, Turn, Turn, Reset], true, Some(2), 1),
            (vec![Turn, Turn, Turn, Reset, Turn, Turn, Turn], true, Some(2), 2),
            (vec![Turn, Turn, Turn, Disable, Turn], true, Some(2), 1),
            (vec![Disable, Turn, Turn, Turn], false, None, 0),
            (vec![Turn, Turn, Turn, Recover], false, Some(2), 1),
            (vec![Recover, Turn, Turn, Turn, Turn, Recover, Turn], true, Some(3), 2), // steps are not forgotten
        ] {
            let verdict = judged(&events);
            let seen = (verdict.stopped, verdict.at_event, verdict.strikes);
            assert_eq!(seen, (stopped, at_event, strikes), "{events:?}");
        }
    }

    #[test]
    fn the_verdict_is_one_line_with_these_names() {
        let verdict = serde_json::to_value(judged(&vec![TrajectoryEvent::Turn; 3])).unwrap();
        let expected = json!({
            "stopped": true, "reason": "operator_rule", "rule": "many", "at_event": 2, "strikes": 1,
            "evidence": {"rule": "many", "count": 3, "threshold": 3, "measure": "steps"},
        });
        assert_eq!(verdict, expected);
        let quiet = serde_json::to_value(judged(&[])).unwrap();
        let expected = json!({
            "stopped": false, "reason": null, "rule": null, "at_event": null, "strikes": 0, "evidence": {},
        });
        assert_eq!(quiet, expected);
    }
}
