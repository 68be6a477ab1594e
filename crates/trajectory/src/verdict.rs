//! Judges a recording: passes its events to the stop engine and gives one verdict.

use belay_agent_loop::policies::{Action, StopRules, StopState};
use belay_protocol::Finding;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::event::TrajectoryEvent;

/// The verdict of the rules about a whole recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Whether there was a strike without a recovery after it. A new request does not reset this, nor does turning
    /// detection off.
    pub stopped: bool,
    /// The reason of the newest strike, a word of the closed list; `None`: there was none.
    pub reason: Option<&'static str>,
    /// The rule of that strike.
    pub rule: Option<String>,
    /// The index, from 0, of the first event with a strike.
    pub at_event: Option<u64>,
    /// Strikes in the whole recording. Notices do not count.
    pub strikes: u32,
    /// The evidence of the newest strike.
    pub evidence: Map<String, Value>,
}

/// Passes events to the stop engine and stores its verdicts.
#[derive(Clone, Debug)]
pub struct Judge {
    rules: StopRules,
    state: StopState,
    next: u64,
    at_event: Option<u64>,
    strikes: u32,
    newest: Option<Finding>,
    /// The number of the newest strike in its request.
    strike: u32,
    /// Whether the newest strike ends the run at once.
    ends: bool,
    stopped: bool,
}

impl Judge {
    /// Makes a judge that has seen no event.
    pub fn new(rules: StopRules) -> Self {
        Self {
            rules,
            state: StopState::default(),
            next: 0,
            at_event: None,
            strikes: 0,
            newest: None,
            strike: 0,
            ends: false,
            stopped: false,
        }
    }

    /// Passes the next event to the stop engine. Returns the finding of a strike at the event with which it became
    /// true.
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
        self.strike = verdict.strike;
        self.ends = verdict.action == Action::Stop;
        self.newest = Some(verdict.finding.clone());
        Some(verdict.finding)
    }

    /// Whether the newest strike ends the run at once, without a recovery turn.
    pub fn ends(&self) -> bool {
        self.ends
    }

    /// The number of the newest strike in its request, from 1, and the number with which a run ends; 0: there was none.
    pub fn strike(&self) -> (u32, u32) {
        (self.strike, self.rules.max_strikes)
    }

    /// The number of events so far.
    pub fn events(&self) -> u64 {
        self.next
    }

    /// Serialises and restores the state of the engine, like a daemon that is restarted within a run.
    ///
    /// # Errors
    /// The state cannot be serialised or restored, which is a bug of the engine.
    pub fn restart(&mut self) -> Result<(), serde_json::Error> {
        let kept = serde_json::to_string(&self.state)?;
        self.state = serde_json::from_str(&kept)?;
        Ok(())
    }

    /// The verdict about all events so far.
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

    /// Rules with a notice at the second step and a strike at the third.
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
            (vec![Turn, Turn], false, None, 0), // a notice is not a strike
            (vec![Turn, Turn, Turn], true, Some(2), 1),
            (vec![Turn, Turn, Turn, user(), Turn], true, Some(2), 1),
            (vec![Turn, Turn, Turn, Reset], true, Some(2), 1),
            (vec![Turn, Turn, Turn, Reset, Turn, Turn, Turn], true, Some(2), 2),
            (vec![Turn, Turn, Turn, Disable, Turn], true, Some(2), 1),
            (vec![Disable, Turn, Turn, Turn], false, None, 0),
            (vec![Turn, Turn, Turn, Recover], false, Some(2), 1),
            (vec![Recover, Turn, Turn, Turn, Turn, Recover, Turn], true, Some(3), 2), // steps are not reset
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
