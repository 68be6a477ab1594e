//! `planning`: the tool with which a planner creates the plan of its run. The model changes no plan:
//! the first one ends the planner's run. People change it by commands (`changes.rs`).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec};
use serde_json::{Map, Value, json};

use super::plans::{MAX_CHARS, MAX_STEPS, NewStep, PlanError, Plans};

use belay_run::own_tools::PLANNING;

/// The plans of a run, shared by its tool and its flow. The lock is held during a command, never across an await.
pub(crate) type SharedPlans = Arc<Mutex<Plans>>;

/// The tool for the plans of one run.
pub(crate) struct Planning {
    spec: ToolSpec,
    plans: SharedPlans,
}

impl Planning {
    pub(super) fn over(plans: SharedPlans) -> Self {
        let step = json!({ "anyOf": [
            { "type": "string" },
            {
                "type": "object",
                "properties": {
                    "step": { "type": "string" },
                    "after": { "type": "array", "items": { "type": "integer", "minimum": 0 } },
                },
                "required": ["step"],
                "additionalProperties": false,
            },
        ]});
        let spec = ToolSpec {
            idempotent: false,
            timeout: Duration::from_secs(1),
            // Enough for a plan of the largest size.
            max_output_bytes: 256 * 1024,
            ..ToolSpec::new(
                PLANNING,
                "Creates the plan. Call it once, with command create, a title and the steps in order.",
                json!({
                    "type": "object",
                    "properties": {
                        "command": { "type": "string", "enum": ["create"] },
                        "plan_id": { "type": "string", "description": "a name for the plan; generated if missing" },
                        "title": { "type": "string", "description": "the purpose of the plan" },
                        "steps": {
                            "type": "array",
                            "items": step,
                            "description": format!(
                                "the steps in order, at most {MAX_STEPS} of at most {MAX_CHARS} characters; a step that \
                                 does not need all steps before it is an object, with the numbers of those that it \
                                 needs (the first step is 0) in `after`"
                            ),
                        },
                    },
                    "required": ["command", "title", "steps"],
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

/// Creates a plan and returns the text for the model. The schema refuses any other command.
fn run(plans: &mut Plans, arguments: &Map<String, Value>) -> Result<String, PlanError> {
    let text = |key: &str| arguments.get(key).and_then(Value::as_str);
    let needed = |command, argument| text(argument).ok_or(PlanError::Missing { command, argument });
    let id = text("plan_id");
    let steps = arguments.get("steps").and_then(Value::as_array);
    let steps = steps.map(|steps| steps.iter().enumerate().map(step_of).collect::<Result<Vec<_>, _>>()).transpose()?;
    let title = needed("create", "title")?;
    let steps = steps.ok_or(PlanError::Missing { command: "create", argument: "steps" })?;
    plans.create_ordered(id, title, &steps).map(|plan| format!("The plan is created.\n\n{}", plan.render()))
}

/// A step, as a text or as an object with the steps that it needs.
fn step_of((at, step): (usize, &Value)) -> Result<NewStep, PlanError> {
    let after = step.get("after").and_then(Value::as_array).map(|after| after.iter().filter_map(Value::as_u64));
    let text = step.as_str().or_else(|| step.get("step").and_then(Value::as_str)).ok_or(PlanError::NoText(at))?;
    let number = |needed: u64| {
        usize::try_from(needed).ok().filter(|number| *number < at).ok_or(PlanError::NotBefore { step: at, needed })
    };
    let after = after.map(|after| after.map(number).collect::<Result<Vec<_>, _>>()).transpose()?;
    Ok(NewStep { text: text.to_owned(), after })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(plans: &mut Plans, arguments: Value) -> Result<String, String> {
        run(plans, arguments.as_object().expect("an object")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_plan_is_made_or_the_model_is_told_what_is_missing() {
        let mut plans = Plans::default();
        for (arguments, expected) in [
            (json!({"command": "create", "steps": ["a"]}), Err("create needs title")),
            (json!({"command": "create", "title": "t"}), Err("create needs steps")),
            (json!({"command": "create", "title": "t", "steps": []}), Err("must not be empty")),
            (json!({"command": "create", "title": "t", "steps": ["a", "b"], "plan_id": "p"}), Ok("0. [ ] a\n1. [ ] b")),
            (json!({"command": "create", "title": "t", "steps": ["a"], "plan_id": "p"}), Err("already a plan")),
            (
                json!({"command": "create", "title": "t", "steps": ["a", {"step": "b", "after": [1]}]}),
                Err("step 1 needs step 1"),
            ),
            (json!({"command": "create", "title": "t", "steps": [{"after": []}]}), Err("step 0 is neither a text")),
            (json!({"command": "create", "title": "t", "steps": ["a", {"step": "b", "after": []}]}), Ok("1. [ ] b")),
        ] {
            let said = call(&mut plans, arguments.clone());
            match (&said, expected) {
                (Ok(said), Ok(part)) | (Err(said), Err(part)) => assert!(said.contains(part), "{arguments}: {said}"),
                _ => panic!("{arguments}: {said:?}"),
            }
        }
    }
}
