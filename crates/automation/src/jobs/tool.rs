//! `create_job`: the tool with which the run of a conversation creates a job.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::job::{JOB_TASK_MAX_BYTES, JOB_TITLE_MAX_CHARS};
use belay_protocol::{Effect, JobOrder, Refusal, ToolContext, ToolFailure, ToolOutput, ToolSpec};
use serde_json::{Map, Value, json};

use super::commands::id_of;
use super::requests::{JobRequester, create};
use super::service::JobService;
use super::text;
use belay_run::own_tools::CREATE_JOB;
use belay_run::request::RunRequest;
use belay_run::run_tool::{DeclaredTool, RunTool};

/// Declares the tool for models. It works once a [`JobToolContext`] binds it to the run of a conversation.
pub fn create_job_tool() -> DeclaredTool {
    let spec = ToolSpec {
        deferred: true,
        effect: Effect::Write,
        idempotent: true, // the job's id is derived from the call's
        timeout: Duration::from_secs(30),
        max_output_bytes: 1000,
        ..ToolSpec::new(
            CREATE_JOB,
            "Starts a background job for long work beside the conversation. Its result comes here by itself; do not wait \
             for it.",
            json!({
                "type": "object",
                "properties": {
                    "task": {
                        "type": "string", "minLength": 1, "maxLength": JOB_TASK_MAX_BYTES,
                        "description": "complete; the job knows nothing else",
                    },
                    "title": {
                        "type": "string", "maxLength": JOB_TITLE_MAX_CHARS, "description": "for lists",
                    },
                    "plan": { "type": "boolean", "description": "plan many steps first" },
                },
                "required": ["task"],
                "additionalProperties": false,
            }),
        )
    };
    DeclaredTool::new(spec, "only the run of a conversation can create jobs; do the work yourself")
}

/// The client in whose name a run creates jobs.
#[derive(Clone)]
pub struct JobToolContext {
    /// Executes the requests.
    pub service: Arc<JobService>,
    /// The request of the run, with its principal and session.
    pub request: Arc<RunRequest>,
}

#[async_trait]
impl RunTool for JobToolContext {
    /// Creates the job. A repetition of the same call finds that job.
    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let given = |key: &str| arguments.get(key).and_then(Value::as_str).map(str::to_owned);
        let order = JobOrder {
            job_id: Some(id_of(&[&context.run_id.to_string(), context.call_id.as_str()])),
            title: given("title"),
            task: given("task").unwrap_or_default(),
            plan: arguments.get("plan").and_then(Value::as_bool).unwrap_or_default(),
            ..JobOrder::default()
        };
        match create(&self.service, order, JobRequester::of_run(&self.request)).await {
            Ok(job) => Ok(text::made_by_model(&job).into()),
            Err(Refusal::Busy { what, .. }) => Err(ToolFailure::failed(format!("refused: {what}"))),
            Err(refusal) => Err(ToolFailure::failed(refusal.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::{Ask, Tool};

    use super::*;
    use crate::jobs::JobAction;
    use crate::routines::{list_routines_tool, routine_tool};

    const COMMANDS: &str = include_str!("../../../../docs/reference/commands.md");

    #[test]
    fn the_page_of_tools_says_which_of_these_ask() {
        let mut tools: Vec<DeclaredTool> = vec![create_job_tool(), routine_tool(), list_routines_tool()];
        let actions = [JobAction::List, JobAction::Status, JobAction::Message, JobAction::Cancel];
        tools.extend(actions.map(JobAction::declared));
        for tool in tools {
            let ToolSpec { name, approval, description, .. } = tool.spec();
            let row = COMMANDS.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).expect("a row");
            // A routine asks about some actions only, by its preview.
            let says = row.ends_with("asks |") || row.contains("; asks");
            assert_eq!(says, *approval != Ask::Never || name == "routine", "{row}");
            assert!(!description.contains("nobody can answer"), "a job asks its creator: {description}");
        }
    }
}
