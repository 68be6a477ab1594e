//! A plan that waits for a person before its next step. The person is asked as about a call, and answers the question or
//! sends `/plan approve`. A change of the plan withdraws the question and asks again about the changed plan.

use belay_agent_loop::LoopError;
use belay_protocol::store::input_digest;
use belay_protocol::{
    ApprovalKind, ApprovalRequest, ApprovalState, Arguments, CallId, RunEnd, StopReason, StoreError, ToolCall,
};
use belay_run::approvals::Wanted;
use belay_run::child_asker::ChildAnswer;
use belay_run::core::{RunCore, WaitsForYes};
use serde_json::{Map, Value, json};

use super::plans::Plan;
use super::state::{PlanState, cut};
use super::texts;

/// What the question calls the plan, in place of a tool.
const NAME: &str = "plan";
/// Longest list of steps in a question, in characters. 3000: a message of most platforms.
const MAX_SHOWN_CHARS: usize = 3000;
const WHY: &str = "the plan was to wait for an approval before this; `/plan change N TEXT`, `/plan add N TEXT` and \
`/plan drop N` change it";

/// The question that waits, if there is one.
#[derive(Default)]
pub(super) struct Review(Option<WaitsForYes>);

/// The answer of a person.
pub(super) enum Reviewed {
    /// The plan goes on. Who has approved it.
    GoOn(String),
    /// The run ends.
    End(RunEnd),
}

impl Review {
    /// Whether a question waits.
    pub(super) fn is_asked(&self) -> bool {
        self.0.is_some()
    }

    /// Asks about the plan, unless that question waits already. Returns the end of the run, if nobody can be asked.
    pub(super) fn ask(&mut self, core: &RunCore, plan: &Plan, state: &PlanState) -> Option<RunEnd> {
        if self.is_asked() {
            return None;
        }
        let summary = format!("{}\n\n{}", plan.title, texts::numbered(plan, state));
        // Each wait has a question of its own: an answer of an earlier one does not count for a later one.
        let digest = input_digest(&format!("{} {summary}", state.holds));
        let steps: Vec<&str> = plan.steps.iter().map(|step| step.text.as_str()).collect();
        let wanted = Wanted {
            arguments: json!({"title": plan.title, "steps": steps}),
            why: WHY.to_owned(),
            digest,
            ..Wanted::of(ApprovalKind::Approval, cut(&summary, MAX_SHOWN_CHARS))
        };
        let id = CallId::from(format!("{NAME}-{}", state.holds).as_str());
        let call = ToolCall { id, name: NAME.to_owned(), arguments: Arguments::Object(Map::new()) };
        match core.ask_to_go_on("The plan", call, wanted, core.cancel.child_token()) {
            Ok(waits) => self.0 = Some(waits),
            Err(why) => return Some(unavailable(why)),
        }
        None
    }

    /// Withdraws the question.
    pub(super) fn withdraw(&mut self) {
        self.0 = None;
    }

    /// Waits for the answer. Only while a question waits.
    ///
    /// # Errors
    /// The store does not answer.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn answered(&mut self) -> Result<Reviewed, LoopError> {
        let Some(waits) = &mut self.0 else { return std::future::pending().await };
        let answer: Result<ChildAnswer, StoreError> = waits.await;
        self.0 = None;
        Ok(match answer? {
            ChildAnswer::Decided(approval) => reviewed(*approval),
            ChildAnswer::Refused(why) => Reviewed::End(unavailable(&why)),
            ChildAnswer::Cancelled => Reviewed::End(unavailable("the question was withdrawn")),
        })
    }
}

fn reviewed(approval: ApprovalRequest) -> Reviewed {
    match approval.state {
        ApprovalState::Approved | ApprovalState::Used => Reviewed::GoOn(approval.decided_by.unwrap_or_default()),
        ApprovalState::Expired => Reviewed::End(unavailable("nobody has approved it in time")),
        _ => Reviewed::End(RunEnd::of(StopReason::UserStop).with("plan", "denied")),
    }
}

fn unavailable(why: &str) -> RunEnd {
    RunEnd::of(StopReason::ApprovalUnavailable).with("plan", Value::from(why))
}
