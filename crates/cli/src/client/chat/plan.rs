//! The plan of a run, as its events tell it.

use std::sync::Arc;

use belay_protocol::{LivePlan, LiveState, PlanStepState};
use serde_json::Value as Json;

use crate::client::text;

/// Takes an event of the stream `plan`. Without the event that made the plan, its steps are unknown, and nothing
/// changes.
pub(super) fn take(state: &mut LiveState, phase: &str, event: &Json) {
    let texts = event.pointer("/data/steps").and_then(Json::as_array).into_iter().flatten();
    let texts = texts.filter_map(Json::as_str).map(str::to_owned).collect();
    if phase == "created" {
        state.plan = Some(Arc::new(LivePlan::new(text(event, "/data/title"), texts)));
        return;
    }
    let Some(plan) = state.plan.as_mut().map(Arc::make_mut) else { return };
    let index = event.pointer("/data/index").and_then(Json::as_u64).and_then(|index| usize::try_from(index).ok());
    match (phase, index) {
        ("step", Some(index)) => plan.mark(index, PlanStepState::of(text(event, "/data/status"))),
        ("step", None) => {}
        (change, index) => plan.change(change, index, texts),
    }
}
