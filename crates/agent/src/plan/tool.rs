//! `planning`: the tool by which a model makes and changes the plans of its run.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec};
use serde_json::{Map, Value, json};

use super::plans::{MAX_CHARS, MAX_STEPS, PlanError, Plans, StepStatus};

/// The tool's name.
pub(crate) const PLANNING: &str = "planning";

/// The plans of a run, shared between its tool and its flow. Held for a command, never across an await.
pub(crate) type SharedPlans = Arc<Mutex<Plans>>;

/// The tool over the plans of one run.
pub(crate) struct Planning {
    spec: ToolSpec,
    plans: SharedPlans,
}

impl Planning {
    pub(crate) fn over(plans: SharedPlans) -> Self {
        let statuses = StepStatus::ALL.map(StepStatus::word);
        let text = json!({ "type": "string" });
        let spec = ToolSpec {
            idempotent: false,
            timeout: Duration::from_secs(1),
            // A plan of the largest size with all its notes.
            max_output_bytes: 256 * 1024,
            ..ToolSpec::new(
                PLANNING,
                "Makes and changes plans. create: a new plan from title and steps, which becomes the active one. \
                          update: another title or other steps. list: all plans. get: one plan. set_active: choose a plan. \
                          mark_step: status or note of a step. delete: remove a plan. Without plan_id a command is about \
                          the active plan.",
                json!({
                    "type": "object",
                    "properties": {
                        "command": {
                            "type": "string",
                            "enum": ["create", "update", "list", "get", "set_active", "mark_step", "delete"],
                        },
                        "plan_id": { "type": "string", "description": "the plan; needed for set_active and delete" },
                        "title": { "type": "string", "description": "create, update: what the plan is for" },
                        "steps": {
                            "type": "array",
                            "items": text,
                            "description": format!(
                                "create, update: the steps in order, at most {MAX_STEPS} of at most {MAX_CHARS} characters"
                            ),
                        },
                        "step_index": { "type": "integer", "minimum": 0, "description": "mark_step: the step, counted from 0" },
                        "step_status": { "type": "string", "enum": statuses, "description": "mark_step" },
                        "step_notes": { "type": "string", "description": "mark_step: what is to know about the step" },
                    },
                    "required": ["command"],
                    "additionalProperties": false,
                }),
            )
        };
        Self { spec, plans }
    }
}

#[async_trait]
impl Tool for Planning {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &Map<String, Value>, _context: &ToolContext) -> ToolOutput {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        run(&mut plans, arguments).map(Into::into).map_err(|error| ToolFailure::failed(error.to_string()))
    }
}

/// Carries a command out and says what came of it.
fn run(plans: &mut Plans, arguments: &Map<String, Value>) -> Result<String, PlanError> {
    let text = |key: &str| arguments.get(key).and_then(Value::as_str);
    let needed = |command, argument| text(argument).ok_or(PlanError::Missing { command, argument });
    let id = text("plan_id");
    let steps: Option<Vec<String>> = arguments
        .get("steps")
        .and_then(Value::as_array)
        .map(|steps| steps.iter().filter_map(Value::as_str).map(str::to_owned).collect());
    match text("command").unwrap_or_default() {
        "create" => {
            let title = needed("create", "title")?;
            let steps = steps.ok_or(PlanError::Missing { command: "create", argument: "steps" })?;
            plans.create(id, title, &steps).map(|plan| format!("The plan is made.\n\n{}", plan.render()))
        }
        "update" => {
            let plan = plans.update(id, text("title"), steps.as_deref())?;
            Ok(format!("The plan is changed.\n\n{}", plan.render()))
        }
        "list" => Ok(plans.list()),
        "get" => plans.get(id).map(super::plans::Plan::render),
        "set_active" => {
            let plan = plans.set_active(needed("set_active", "plan_id")?)?;
            Ok(format!("{} is the active plan now.\n\n{}", plan.id, plan.render()))
        }
        "mark_step" => {
            let index = arguments.get("step_index").and_then(Value::as_u64);
            let index = index.ok_or(PlanError::Missing { command: "mark_step", argument: "step_index" })?;
            let status = text("step_status").map(StepStatus::from_word).transpose()?;
            let plan = plans.mark_step(id, index, status, text("step_notes"))?;
            Ok(format!("Step {index} is marked.\n\n{}", plan.render()))
        }
        "delete" => {
            let id = needed("delete", "plan_id")?;
            plans.delete(id).map(|()| format!("The plan {id} is deleted."))
        }
        // The gate lets no other word through.
        _ => Err(PlanError::Missing { command: "planning", argument: "a command" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(plans: &mut Plans, arguments: Value) -> Result<String, String> {
        run(plans, arguments.as_object().expect("an object")).map_err(|error| error.to_string())
    }

    #[test]
    fn every_command_of_the_schema_does_its_work_or_says_what_it_needs() {
        let mut plans = Plans::default();
        for (arguments, expected) in [
            (json!({"command": "list"}), Ok("There are no plans.")),
            (json!({"command": "get"}), Err("no plan is active")),
            (json!({"command": "create", "steps": ["a"]}), Err("create needs title")),
            (json!({"command": "create", "title": "t"}), Err("create needs steps")),
            (json!({"command": "create", "title": "t", "steps": ["a", "b"], "plan_id": "p"}), Ok("0. [ ] a\n1. [ ] b")),
            (json!({"command": "mark_step", "step_status": "completed"}), Err("mark_step needs step_index")),
            (json!({"command": "mark_step", "step_index": 0, "step_status": "done"}), Err("done is no status")),
            (json!({"command": "mark_step", "step_index": 2, "step_status": "blocked"}), Err("numbered 0 to 1")),
            (json!({"command": "mark_step", "step_index": 0, "step_status": "completed"}), Ok("0. [✓] a")),
            (json!({"command": "update", "steps": ["a", "c"]}), Ok("0. [✓] a\n1. [ ] c")),
            (json!({"command": "get", "plan_id": "p"}), Ok("(50.0%)")),
            (json!({"command": "set_active"}), Err("set_active needs plan_id")),
            (json!({"command": "set_active", "plan_id": "p"}), Ok("p is the active plan now.")),
            (json!({"command": "delete"}), Err("delete needs plan_id")),
            (json!({"command": "delete", "plan_id": "p"}), Ok("is deleted")),
        ] {
            let said = call(&mut plans, arguments.clone());
            match (&said, expected) {
                (Ok(said), Ok(part)) | (Err(said), Err(part)) => assert!(said.contains(part), "{arguments}: {said}"),
                _ => panic!("{arguments}: {said:?}"),
            }
        }
    }
}
