//! What a chat shows of the events of its session. Pure.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use belay_protocol::{ApprovalId, CallId, LiveCall, LiveNews, LiveState, RunId, size_text};
use serde_json::Value as Json;

use super::plan;
use crate::client::{Place, Said, number, text};

/// Something to show, or to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::client) enum Step {
    /// News of a working run.
    Live(RunId, LiveNews),
    /// A complete text: the answer of a run, or a notice.
    Message(Option<RunId>, String),
    /// A run has sent a file: a line about it, and its caption.
    File {
        /// The name, the size and the link.
        line: String,
        /// Empty: there is none.
        caption: String,
    },
    /// A run waits for the answer to this approval request.
    Asked(RunId, ApprovalId),
    /// The run has ended.
    Over(RunId),
}

impl Step {
    /// The run that it belongs to, as far as it is known.
    pub(in crate::client) fn run(&self) -> Option<RunId> {
        match self {
            Self::Live(run, _) | Self::Asked(run, _) | Self::Over(run) => Some(*run),
            Self::Message(run, _) => *run,
            Self::File { .. } => None,
        }
    }
}

/// Reads the events of a session in their order, over any number of connections. Nothing is shown twice.
#[derive(Debug, Default)]
pub(in crate::client) struct Follow {
    /// The number of the last fact.
    place: Place,
    runs: HashMap<RunId, Run>,
    /// The runs that have ended, the newest last.
    ended: VecDeque<RunId>,
}

/// Most characters of the arguments of a call.
const ARGUMENT_CHARS: usize = 200;

/// Number of ended runs that are remembered. 64: several times the number of messages on their way.
const ENDED_MAX: usize = 64;

/// A run that has not ended.
#[derive(Debug, Default)]
struct Run {
    /// Whether it is shown as working.
    is_live: bool,
    /// Whether its answer was shown.
    answered: bool,
    said: Said,
    state: LiveState,
}

impl Follow {
    /// The number after which the next connection continues.
    pub(in crate::client) fn cursor(&self) -> Option<u64> {
        self.place.cursor()
    }

    /// Whether the end of a run has been seen.
    pub(in crate::client) fn has_ended(&self, run: RunId) -> bool {
        self.ended.contains(&run)
    }

    /// The state of a run, as far as its events tell it; `None`: it has ended, or no event of it has come.
    pub(in crate::client) fn state(&self, run: RunId) -> Option<LiveState> {
        self.runs.get(&run).map(|run| run.state.clone())
    }

    /// Takes the next event.
    pub(in crate::client) fn event(&mut self, event: &Json) -> Vec<Step> {
        if !self.place.takes(event) {
            return Vec::new();
        }
        if text(event, "/stream") == "notice" {
            return vec![Step::Message(None, text(event, "/data/text").to_owned())];
        }
        let Ok(id) = text(event, "/runId").parse::<RunId>() else { return Vec::new() };
        let phase = text(event, "/data/phase");
        let run = self.runs.entry(id).or_default();
        let mut steps = Vec::new();
        match (text(event, "/stream"), phase) {
            ("lifecycle", "end" | "error") => {
                steps.extend(run.ended(id, event));
                self.runs.remove(&id);
                self.ended.push_back(id);
                self.ended.drain(..self.ended.len().saturating_sub(ENDED_MAX));
            }
            ("lifecycle", "step") => {
                let usage = number(event, "/data/usage/input") + number(event, "/data/usage/output");
                run.state.tokens = run.state.tokens.saturating_add(usage);
                steps.extend(run.state_changed(id));
            }
            ("lifecycle", "start") => steps.extend(run.begins(id)),
            ("assistant", _) if event.pointer("/data/final").is_some() => steps.extend(run.answer(id, event)),
            ("assistant", _) => steps.extend(run.says(id, event)),
            ("tool", "start") => {
                let (call, tool) =
                    (CallId::from(text(event, "/data/toolCallId")), text(event, "/data/name").to_owned());
                let argument = text(event, "/data/arguments").chars().take(ARGUMENT_CHARS).collect();
                run.state.calls.push(LiveCall { id: call, tool, argument });
                steps.extend(run.state_changed(id));
            }
            ("tool", "result") => {
                let of = CallId::from(text(event, "/data/toolCallId"));
                let ended = run.state.calls.iter().position(|call| call.id == of);
                let is_success = event.pointer("/data/isError").and_then(Json::as_bool) == Some(false);
                if let Some(call) = ended.map(|at| run.state.calls.remove(at)) {
                    run.state.end_call(call, Duration::from_millis(number(event, "/data/tookMs")), is_success);
                }
                steps.extend(run.state_changed(id));
            }
            ("plan", phase) => {
                plan::take(&mut run.state, phase, event);
                steps.extend(run.state_changed(id));
            }
            ("file", _) => steps.extend(sent_file(event)),
            ("approval", "requested") => {
                steps.extend(run.pauses(id));
                steps.extend(text(event, "/data/approvalId").parse().map(|approval| Step::Asked(id, approval)));
            }
            _ => {}
        }
        steps
    }
}

/// A file that was sent to this conversation.
fn sent_file(event: &Json) -> Option<Step> {
    if event.pointer("/data/place").is_some_and(Json::is_string) {
        return None;
    }
    let (name, url) = (text(event, "/data/name"), text(event, "/data/url"));
    let line = format!("{name} ({}): {url}", size_text(number(event, "/data/bytes")));
    Some(Step::File { line, caption: text(event, "/data/caption").to_owned() })
}

impl Run {
    fn begins(&mut self, id: RunId) -> Option<Step> {
        (!std::mem::replace(&mut self.is_live, true)).then_some(Step::Live(id, LiveNews::Began))
    }

    fn pauses(&mut self, id: RunId) -> Option<Step> {
        self.said.forget();
        std::mem::take(&mut self.is_live).then_some(Step::Live(id, LiveNews::Ended { answered: false }))
    }

    fn state_changed(&mut self, id: RunId) -> Vec<Step> {
        let state = Step::Live(id, LiveNews::State(self.state.clone()));
        self.begins(id).into_iter().chain([state]).collect()
    }

    fn says(&mut self, id: RunId, event: &Json) -> Vec<Step> {
        let Some((step, text)) = self.said.says(number(event, "/data/step"), text(event, "/data/text")) else {
            return Vec::new();
        };
        let text = Step::Live(id, LiveNews::Text { step, text });
        self.begins(id).into_iter().chain([text]).collect()
    }

    fn answer(&mut self, id: RunId, event: &Json) -> Vec<Step> {
        if std::mem::replace(&mut self.answered, true) {
            return Vec::new();
        }
        let ended = std::mem::take(&mut self.is_live).then_some(Step::Live(id, LiveNews::Ended { answered: true }));
        ended.into_iter().chain([Step::Message(Some(id), text(event, "/data/text").to_owned())]).collect()
    }

    fn ended(&mut self, id: RunId, event: &Json) -> Vec<Step> {
        let mut steps: Vec<Step> = self.pauses(id).into_iter().collect();
        let (error, is_aborted) = (text(event, "/data/error"), event.pointer("/data/aborted").is_some());
        if !self.answered && !is_aborted && !error.is_empty() {
            steps.push(Step::Message(Some(id), error.to_owned()));
        }
        steps.push(Step::Over(id));
        steps
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::PlanStepState;
    use serde_json::json;

    use super::*;

    fn live(id: RunId, news: LiveNews) -> Step {
        Step::Live(id, news)
    }

    #[test]
    fn an_answer_is_shown_once_over_two_connections() {
        let (id, mut follow) = (RunId::new(), Follow::default());
        let event = |stream: &str, data: Json, cursor: Option<u64>| match cursor {
            Some(cursor) => json!({ "runId": id, "stream": stream, "data": data, "cursor": cursor }),
            None => json!({ "runId": id, "stream": stream, "data": data }),
        };
        let start = event("lifecycle", json!({"phase": "start"}), Some(1));
        let said =
            |whole: &str, piece: &str| event("assistant", json!({"text": whole, "delta": piece, "step": 1}), None);
        let end = event("assistant", json!({"text": "one two", "delta": "", "final": true}), None);
        let over = event("lifecycle", json!({"phase": "end", "status": "ok"}), Some(2));
        let piece = |text: &str| live(id, LiveNews::Text { step: 1, text: text.into() });
        for (event, expected) in [
            (start.clone(), vec![live(id, LiveNews::Began)]),
            (said("one", "one"), vec![piece("one")]),
            (start, vec![]),
            (said("one", "one"), vec![]),
            (said("one two", " two"), vec![piece(" two")]),
            (
                end.clone(),
                vec![live(id, LiveNews::Ended { answered: true }), Step::Message(Some(id), "one two".into())],
            ),
            (end, vec![]),
            (over.clone(), vec![Step::Over(id)]),
            (over, vec![]),
        ] {
            assert_eq!(follow.event(&event), expected, "{event}");
        }
        assert_eq!(follow.cursor(), Some(2));
    }

    #[test]
    fn a_run_that_begins_again_after_a_restart_writes_a_new_text() {
        let (id, mut follow) = (RunId::new(), Follow::default());
        let said = |text: &str| json!({ "runId": id, "stream": "assistant", "data": {"text": text, "step": 1} });
        let piece = |step, text: &str| live(id, LiveNews::Text { step, text: text.into() });
        assert_eq!(follow.event(&said("I thi")), [live(id, LiveNews::Began), piece(1, "I thi")]);
        assert_eq!(follow.event(&said("You ")), [piece(2, "You ")]);
    }

    #[test]
    fn a_plan_is_part_of_what_a_run_does() {
        let (id, mut follow) = (RunId::new(), Follow::default());
        let mut planned = |data: Json| {
            let mut steps = follow.event(&json!({ "runId": id, "stream": "plan", "data": data }));
            let Some(Step::Live(_, LiveNews::State(state))) = steps.pop() else { panic!("no state") };
            state.plan.map(|plan| plan.steps.iter().map(|step| (step.text.clone(), step.state)).collect::<Vec<_>>())
        };
        let step = |text: &str, state| (text.to_owned(), state);
        let (done, open) = (PlanStepState::Completed, PlanStepState::Pending);
        assert_eq!(planned(json!({"phase": "step", "index": 0, "status": "completed"})), None, "it is unknown");
        let created = json!({"phase": "created", "planId": "p", "title": "tidy", "steps": ["look", "do"]});
        assert_eq!(planned(created), Some(vec![step("look", open), step("do", open)]));
        let ended = json!({"phase": "step", "index": 0, "status": "completed", "executor": "general"});
        assert_eq!(planned(ended), Some(vec![step("look", done), step("do", open)]));
        let added = json!({"phase": "added", "index": 1, "steps": ["look", "ask", "do"], "actor": "me"});
        assert_eq!(planned(added), Some(vec![step("look", done), step("ask", open), step("do", open)]));
    }

    #[test]
    fn questions_failures_and_notices_are_shown() {
        let (id, approval, mut follow) = (RunId::new(), ApprovalId::new(), Follow::default());
        let event = |stream: &str, data: Json| json!({ "runId": id, "stream": stream, "data": data });
        let asked = event("approval", json!({"phase": "requested", "approvalId": approval}));
        assert_eq!(follow.event(&asked), [Step::Asked(id, approval)]);
        let failed = event("lifecycle", json!({"phase": "error", "status": "error", "error": "No answer."}));
        assert_eq!(follow.event(&failed), [Step::Message(Some(id), "No answer.".into()), Step::Over(id)]);
        let stopped = event("lifecycle", json!({"phase": "end", "aborted": true, "error": "Interrupted."}));
        assert_eq!(follow.event(&stopped), [Step::Over(id)]);
        let notice = json!({ "stream": "notice", "data": {"text": "done"}, "cursor": 9 });
        assert_eq!(follow.event(&notice), [Step::Message(None, "done".into())]);
        assert_eq!(follow.event(&json!({"asked": 9, "newest": 3})), []);
        assert_eq!(follow.cursor(), Some(3));
    }
}
