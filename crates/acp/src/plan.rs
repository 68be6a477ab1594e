//! The plan of a run as its events tell it. Pure.

use agent_client_protocol::v1::schema::{Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus, SessionUpdate};
use belay_cli::client::{number, text};
use serde_json::Value as Json;

/// The steps with their status. The protocol sends the whole plan at each change.
#[derive(Debug, Default)]
pub(crate) struct Steps(Vec<(String, PlanEntryStatus)>);

impl Steps {
    /// Takes an event of the stream `plan`. `None`: it changes nothing that is shown.
    pub(crate) fn event(&mut self, data: &Json) -> Option<SessionUpdate> {
        let index = data.pointer("/index").and_then(Json::as_u64).and_then(|index| usize::try_from(index).ok());
        match text(data, "/phase") {
            "step" => {
                let step = self.0.get_mut(index?)?;
                step.1 = match text(data, "/status") {
                    "in_progress" => PlanEntryStatus::InProgress,
                    // The protocol has no word for a step that is given up: the run's answer says it.
                    "completed" | "blocked" => PlanEntryStatus::Completed,
                    _ => return None,
                };
            }
            phase @ ("created" | "changed" | "added" | "dropped") => {
                let texts = data.pointer("/steps").and_then(Json::as_array)?;
                if let (true, Some(index)) = (phase == "added", index.filter(|index| *index <= self.0.len())) {
                    self.0.insert(index, (String::new(), PlanEntryStatus::Pending));
                }
                self.0.resize(texts.len(), (String::new(), PlanEntryStatus::Pending));
                for (step, text) in self.0.iter_mut().zip(texts) {
                    step.0 = text.as_str().unwrap_or_default().to_owned();
                }
                if let (true, Some(step)) = (phase == "dropped", index.and_then(|index| self.0.get_mut(index))) {
                    step.1 = PlanEntryStatus::Completed;
                }
            }
            _ => return None,
        }
        let entry = |(text, status): &(String, PlanEntryStatus)| {
            PlanEntry::new(text.clone(), PlanEntryPriority::Medium, status.clone())
        };
        Some(SessionUpdate::Plan(Plan::new(self.0.iter().map(entry).collect())))
    }
}

/// The tokens of a model call, of the event that reports its end.
pub(crate) fn tokens(data: &Json) -> u64 {
    number(data, "/usage/input").saturating_add(number(data, "/usage/output"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_whole_plan_is_told_at_each_change() {
        let mut steps = Steps::default();
        let mut told = |data: Json| {
            let update = serde_json::to_value(steps.event(&data)).expect("our own types");
            let entries = update.pointer("/entries").and_then(Json::as_array).cloned().unwrap_or_default();
            let line = |entry: &Json| format!("{} {}", text(entry, "/content"), text(entry, "/status"));
            entries.iter().map(line).collect::<Vec<_>>()
        };
        let created = json!({"phase": "created", "title": "T", "steps": ["a", "b"]});
        assert_eq!(told(created), ["a pending", "b pending"]);
        assert_eq!(told(json!({"phase": "step", "index": 0, "status": "completed"})), ["a completed", "b pending"]);
        let added = json!({"phase": "added", "index": 1, "steps": ["a", "c", "b"]});
        assert_eq!(told(added), ["a completed", "c pending", "b pending"]);
        let dropped = json!({"phase": "dropped", "index": 2, "steps": ["a", "c", "b"]});
        assert_eq!(told(dropped), ["a completed", "c pending", "b completed"]);
        for nothing in
            [json!({"phase": "held", "steps": []}), json!({"phase": "step", "index": 9, "status": "blocked"})]
        {
            assert_eq!(told(nothing), Vec::<String>::new());
        }
    }
}
