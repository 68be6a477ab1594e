//! `list_jobs`, `job_status`, `message_job`, `cancel_job`: the tools with which the run of a conversation manages the jobs
//! that its person has created. They do the same as the chat commands. They never reach the jobs of others, also when the
//! person is an operator: the model may have read untrusted content.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::job::JOB_TASK_MAX_BYTES;
use belay_protocol::{
    Body, Effect, IdPrefix, IdempotencyKey, Inbound, Principal, PrincipalRole, Provenance, Purpose, ToolContext,
    ToolFailure, ToolOutput, ToolReply, ToolSpec,
};
use serde_json::{Map, Value, json};

use super::commands::{JobCommand, JobReply, command, list_own};
use super::tool::JobToolContext;
use belay_run::own_tools::{CANCEL_JOB, JOB_STATUS, LIST_JOBS, MESSAGE_JOB};
use belay_run::rights;
use belay_run::run_tool::{DeclaredTool, RunTool};

/// One of the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobAction {
    /// `list_jobs`
    List,
    /// `job_status`
    Status,
    /// `message_job`
    Message,
    /// `cancel_job`
    Cancel,
}

impl JobAction {
    /// Every tool.
    pub const ALL: [Self; 4] = [Self::List, Self::Status, Self::Message, Self::Cancel];

    /// The tool of this name.
    pub fn of_tool(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.tool() == name)
    }

    fn tool(self) -> &'static str {
        match self {
            Self::List => LIST_JOBS,
            Self::Status => JOB_STATUS,
            Self::Message => MESSAGE_JOB,
            Self::Cancel => CANCEL_JOB,
        }
    }

    /// Declares the tool for models. It works once a [`ManageJobs`] binds it to the run of a conversation.
    pub fn declared(self) -> DeclaredTool {
        let (effect, description) = match self {
            Self::List => (Effect::Read, "Lists the user's background jobs: id, state, progress, title."),
            Self::Status => (Effect::Read, "Shows a background job: its state, its progress and its result."),
            Self::Message => (Effect::Write, "Passes a message to a running job, which reads it with its next step."),
            Self::Cancel => (Effect::Write, "Cancels a background job."),
        };
        let id = json!({ "type": "string", "description": "the id, or its first characters" });
        let (properties, required) = match self {
            Self::List => (json!({}), json!([])),
            Self::Status | Self::Cancel => (json!({ "id": id }), json!(["id"])),
            Self::Message => {
                let text = json!({ "type": "string", "minLength": 1, "maxLength": JOB_TASK_MAX_BYTES });
                (json!({ "id": id, "text": text }), json!(["id", "text"]))
            }
        };
        let schema = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        });
        let spec = ToolSpec {
            deferred: true,
            effect,
            idempotent: true, // the key of a message is derived from the call
            timeout: Duration::from_secs(30),
            max_output_bytes: 16 * 1024,
            ..ToolSpec::new(self.tool(), description, schema)
        };
        DeclaredTool::new(spec, "only the run of a conversation can manage jobs")
    }
}

/// One of the tools, bound to the run of a conversation.
pub struct ManageJobs {
    action: JobAction,
    context: JobToolContext,
}

impl ManageJobs {
    /// Binds the tool to this run.
    pub fn new(action: JobAction, context: JobToolContext) -> Self {
        Self { action, context }
    }

    /// The message of the run's person that would have the same effect. It is marked as untrusted content, because a model
    /// has written it.
    fn message(&self, context: &ToolContext) -> Inbound {
        let request = &self.context.request;
        let principal = match rights::principal(&request.asker) {
            operator if operator.is_operator() => Principal { role: PrincipalRole::User, ..operator },
            principal => principal,
        };
        let key = IdempotencyKey {
            channel: Purpose::Job.channel(),
            account: context.run_id.to_string().into(),
            message_id: context.call_id.as_str().into(),
        };
        Inbound {
            key: Some(key),
            reply_to: request.conversation(),
            relayed: request.asker.relayed,
            provenance: Some(Arc::new(Provenance { untrusted: true, ..Provenance::default() })),
            ..Inbound::new(request.channel.clone(), request.session.clone(), principal, Body::Text(String::new()))
        }
    }
}

#[async_trait]
impl RunTool for ManageJobs {
    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let text = |key: &str| arguments.get(key).and_then(Value::as_str).unwrap_or_default().trim().to_owned();
        let id = || IdPrefix::parse(&text("id")).map_err(|problem| ToolFailure::failed(format!("id: {problem}")));
        let (service, message) = (&self.context.service, self.message(context));
        let wanted = match self.action {
            JobAction::List => None,
            JobAction::Status => Some(JobCommand::Show(id()?)),
            JobAction::Message => Some(JobCommand::Message(id()?, text("text"))),
            JobAction::Cancel => Some(JobCommand::Cancel(id()?)),
        };
        let said = match wanted {
            None => list_own(service, &message).await,
            Some(wanted) => command(service, wanted, &message).await.map(|JobReply { text, .. }| text),
        };
        match said {
            // A model may have written the title and the result, and may have read untrusted content before.
            Ok(text) => Ok(ToolReply { text, untrusted: true, ..ToolReply::default() }),
            Err(refusal) => Err(ToolFailure::failed(refusal.to_string())),
        }
    }
}
