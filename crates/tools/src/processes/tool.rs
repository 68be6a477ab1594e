//! `process`: the one tool for background processes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{
    Ask, CallPreview, Effect, RunId, SessionKey, Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec,
};
use serde_json::{Map, Value};

use super::call::{Action, Arguments, text_of};
use super::handle::{Keeper, Process};
use super::limits::{MAX_WAIT_S, USUAL_WAIT_S};
use super::wait::{Wait, compiled};
use super::{BackgroundProcesses, act, look};
use crate::arguments;

/// Time of a call beyond its wait: to end a process, and to read its last output.
const MARGIN: Duration = Duration::from_secs(20);

/// The tool `process`. It is offered only to runs that have a background process.
pub(crate) struct ProcessTool {
    spec: ToolSpec,
    processes: Arc<BackgroundProcesses>,
}

impl ProcessTool {
    pub(crate) fn new(processes: Arc<BackgroundProcesses>) -> Self {
        let description =
            "Lists, reads, waits for, writes to and ends background processes that run_command has started.";
        let limit = Duration::from_secs(MAX_WAIT_S.into()) + MARGIN;
        let spec = arguments::spec::<Arguments>("process", description, Effect::External, limit);
        Self { spec: ToolSpec { idempotent: false, untrusted: true, ..spec }, processes }
    }

    /// The process that a call is about.
    fn named(&self, id: Option<&str>, session: &SessionKey, run: Option<RunId>) -> Result<Arc<Process>, ToolFailure> {
        let Some(id) = id else {
            return Err(ToolFailure::failed("This action needs id, the name of the process, such as p1."));
        };
        self.processes.find(id, session, run).ok_or_else(|| {
            ToolFailure::failed(format!(
                "There is no background process {id:?} here. It may have ended with its run, or when Belay was restarted; \
                 the action list shows those that there are."
            ))
        })
    }

    fn list(&self, context: &ToolContext) -> String {
        let line = |process: Arc<Process>| {
            let kept = match process.keeper {
                Keeper::Run => "ends with this run",
                Keeper::Session => "stays in this conversation",
            };
            format!("{}: {} ({kept}; printed {} bytes)", process.state(), process.brief(), process.output.printed())
        };
        let lines: Vec<String> = self.processes.of(&context.session, context.run_id).into_iter().map(line).collect();
        if lines.is_empty() { "There is no background process here.".to_owned() } else { lines.join("\n") }
    }
}

#[async_trait]
impl Tool for ProcessTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn on_demand(&self, session: &SessionKey, run: RunId) -> Option<bool> {
        Some(self.processes.has_any(session, run))
    }

    /// What is written to a program may be a program, as its standard input is. So it needs the approval that a command
    /// needs. Looking at a process, and ending it, needs none.
    async fn preview(&self, arguments: &Map<String, Value>, session: &SessionKey) -> Result<CallPreview, ToolFailure> {
        let Arguments { action, id, text, end, .. } = arguments::read(arguments)?;
        match action {
            Action::List | Action::Read | Action::Wait => {
                Ok(CallPreview { effect: Some(Effect::Read), ..CallPreview::default() })
            }
            Action::Kill => Ok(CallPreview { effect: Some(Effect::Write), ..CallPreview::default() }),
            Action::Write => {
                let process = self.named(id.as_deref(), session, None)?;
                let text = text_of(text, end)?;
                let input = if end { format!("{text} (then the end of its standard input)") } else { text };
                Ok(CallPreview {
                    summary: format!("write to the background process {}: {}", process.name, process.brief()),
                    shows: &["action", "id", "text", "end"],
                    bound: vec![
                        ("process".to_owned(), format!("{}: {}", process.name, process.what)),
                        ("input".to_owned(), input),
                    ],
                    ask: Some(Ask::UnlessApproved),
                    ..CallPreview::default()
                })
            }
        }
    }

    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let Arguments { action, id, offset, pattern, timeout_s, text, end } = arguments::read(arguments)?;
        if action == Action::List {
            return Ok(self.list(context).into());
        }
        let process = self.named(id.as_deref(), &context.session, Some(context.run_id))?;
        match action {
            Action::List | Action::Read => look::read(process, offset).await,
            Action::Wait => {
                let seconds = timeout_s.unwrap_or(USUAL_WAIT_S);
                if !(1..=MAX_WAIT_S).contains(&seconds) {
                    return Err(ToolFailure::failed(format!("timeout_s must be from 1 to {MAX_WAIT_S}.")));
                }
                let pattern = pattern.as_deref().map(compiled).transpose()?;
                Wait { process, pattern, offset, seconds }.carry_out(&context.cancel).await
            }
            Action::Write => act::write(&process, &text_of(text, end)?, end, &context.cancel).await,
            Action::Kill => act::kill(&process, &context.cancel).await,
        }
    }
}
