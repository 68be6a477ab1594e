//! `run_shell`: runs a script. Disabled by default. Each call needs an approval, because the text of a script does not
//! show what it does.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Ask, CallPreview, Effect, SessionKey, Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::quote::quoted;
use super::request::{CommandRequest, CommandRequests};
use super::run_command::{MAX_RESULT_BYTES, TimeLimits};
use super::runner::Runner;
use crate::arguments;
use crate::config::ToolsConfig;
use crate::files::blocking;
use belay_exec::Stdin;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The script, for /bin/sh.
    #[schemars(length(min = 1))]
    script: String,
    /// The working directory; `.` without it.
    #[serde(default)]
    directory: Option<String>,
    /// Most seconds; the operator's limit without it.
    #[serde(default)]
    #[schemars(range(min = 1))]
    timeout_s: Option<u32>,
}

/// The tool `run_shell`.
pub(super) struct RunShell {
    spec: ToolSpec,
    requests: Arc<CommandRequests>,
    runner: Arc<Runner>,
    limits: TimeLimits,
}

impl RunShell {
    pub(super) fn new(requests: Arc<CommandRequests>, runner: Arc<Runner>, config: &ToolsConfig) -> Self {
        let rather = match config.commands.enabled() {
            true => "; prefer run_command",
            false => "",
        };
        let description = format!(
            "Runs a shell script in the workspace and returns its output. A person is asked each time{rather}."
        );
        let limits = TimeLimits::of(&config.commands);
        let spec = arguments::spec::<Arguments>("run_shell", &description, Effect::External, limits.gate());
        let spec = ToolSpec {
            idempotent: false,
            approval: Ask::Always,
            untrusted: true,
            takes_variables: true,
            max_output_bytes: MAX_RESULT_BYTES,
            ..spec
        };
        Self { spec, requests, runner, limits }
    }

    async fn request(&self, arguments: &Map<String, Value>) -> Result<(CommandRequest, Duration), ToolFailure> {
        let Arguments { script, directory, timeout_s } = arguments::read(arguments)?;
        let limit = self.limits.requested(timeout_s)?;
        if script.trim().is_empty() {
            return Err(ToolFailure::failed("The script is empty."));
        }
        let argv = vec!["sh".to_owned(), "-c".to_owned(), script];
        let requests = self.requests.clone();
        let request = blocking(move || requests.read(argv, directory.as_deref())).await?;
        Ok((request, limit))
    }
}

#[async_trait]
impl Tool for RunShell {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn preview(&self, arguments: &Map<String, Value>, _session: &SessionKey) -> Result<CallPreview, ToolFailure> {
        let policy = self.runner.policy().await?;
        let (request, _) = self.request(arguments).await?;
        let bound = vec![
            ("script".to_owned(), request.argv[2].clone()),
            ("directory".to_owned(), request.directory.clone()),
            ("environment".to_owned(), self.requests.environment_digest()),
            ("policy".to_owned(), policy),
        ];
        let summary = format!("{} (in {})", quoted(&request.argv), quoted(std::slice::from_ref(&request.directory)));
        Ok(CallPreview {
            summary,
            shows: &["script", "directory"],
            bound,
            ask: Some(Ask::Always),
            ..CallPreview::default()
        })
    }

    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        self.runner.sandbox().await?;
        let (request, limit) = self.request(arguments).await?;
        let what = quoted(&request.argv);
        self.runner
            .run(self.requests.launch(&request, Stdin::Null, &context.variables, None), &what, limit, context)
            .await
    }
}
