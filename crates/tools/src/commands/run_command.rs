//! `run_command`: runs a program with its arguments.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Ask, CallPreview, Effect, SessionKey, Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::background::Stay;
use super::quote::quoted;
use super::request::{CommandRequest, CommandRequests, input_shown};
use super::runner::Runner;
use super::{repository, risk};
use crate::arguments;
use crate::config::CommandsConfig;
use crate::files::blocking;
use belay_exec::Stdin;

/// Most bytes of a command's standard input. 1 MiB; larger inputs have to be files.
const MAX_INPUT_BYTES: usize = 1024 * 1024;

/// Longest result: both ends of the output and the line between them. It is large enough that the gate does not cut the
/// result again.
pub(super) const MAX_RESULT_BYTES: usize = 68 * 1024;

/// Additional time to end a command after its time limit, and to read its last output.
pub(super) const END_MARGIN: Duration = Duration::from_secs(20);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Program and arguments. No shell: no pipes, no `*`, no `$X`.
    #[schemars(length(min = 1, max = 512))]
    argv: Vec<String>,
    #[serde(default)]
    directory: Option<String>,
    #[serde(default)]
    #[schemars(range(min = 1))]
    timeout_s: Option<u32>,
    #[serde(default)]
    stdin: Option<String>,
    /// Goes on after the call; the tool process reads and writes it.
    #[serde(default)]
    background: bool,
    /// With background: also after this run. A person is asked.
    #[serde(default)]
    keep: bool,
}

/// A checked call.
struct Checked {
    request: CommandRequest,
    limit: Duration,
    stdin: Option<String>,
    /// `None`: the call waits for the command.
    stay: Option<Stay>,
}

/// The tool `run_command`.
pub(super) struct RunCommand {
    spec: ToolSpec,
    requests: Arc<CommandRequests>,
    runner: Arc<Runner>,
    limits: TimeLimits,
}

/// Time limits of commands, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeLimits {
    default_s: u32,
    max_s: u32,
}

impl TimeLimits {
    pub(super) fn of(config: &CommandsConfig) -> Self {
        Self { default_s: config.timeout_s(), max_s: config.max_timeout_s }
    }

    /// # Errors
    /// The call asks for zero, or for more than the limit.
    pub(super) fn requested(self, seconds: Option<u32>) -> Result<Duration, ToolFailure> {
        let seconds = seconds.unwrap_or(self.default_s);
        if !(1..=self.max_s).contains(&seconds) {
            return Err(ToolFailure::failed(format!("timeout_s must be from 1 to {}, is {seconds}.", self.max_s)));
        }
        Ok(Duration::from_secs(seconds.into()))
    }

    /// The time limit of a command in the background: the longest, if the call sets none.
    fn in_background(self, seconds: Option<u32>) -> Result<Duration, ToolFailure> {
        self.requested(seconds.or(Some(self.max_s)))
    }

    /// The time limit that the gate enforces.
    pub(super) fn gate(self) -> Duration {
        Duration::from_secs(self.max_s.into()) + END_MARGIN
    }
}

impl RunCommand {
    pub(super) fn new(requests: Arc<CommandRequests>, runner: Arc<Runner>, config: &CommandsConfig) -> Self {
        let description = "Runs a program in the workspace and returns its output.";
        let limits = TimeLimits::of(config);
        let spec = arguments::spec::<Arguments>("run_command", description, Effect::External, limits.gate());
        let mut spec = ToolSpec {
            idempotent: false,
            approval: Ask::UnlessApproved,
            untrusted: true,
            takes_variables: true,
            max_output_bytes: MAX_RESULT_BYTES,
            ..spec
        };
        if !runner.background.is_enabled()
            && let Some(properties) = spec.schema["properties"].as_object_mut()
        {
            properties.retain(|name, _| name != "background" && name != "keep");
        }
        Self { spec, requests, runner, limits }
    }

    /// Parses and checks the arguments of a call.
    async fn request(&self, arguments: &Map<String, Value>, session: &SessionKey) -> Result<Checked, ToolFailure> {
        let Arguments { argv, directory, timeout_s, stdin, background, keep } = arguments::read(arguments)?;
        let stay = match (background, keep) {
            (false, false) => None,
            (false, true) => return Err(ToolFailure::failed("keep needs background.")),
            (true, keep) => {
                let keeper = self.runner.background.keeper(keep, session)?;
                Some(Stay { keeper, limit: self.limits.in_background(timeout_s)? })
            }
        };
        let limit = self.limits.requested(timeout_s)?;
        if stdin.as_ref().is_some_and(|text| text.len() > MAX_INPUT_BYTES) {
            return Err(ToolFailure::failed(format!(
                "stdin has more than {MAX_INPUT_BYTES} bytes. Write it to a file first."
            )));
        }
        let requests = self.requests.clone();
        let request = blocking(move || requests.read(argv, directory.as_deref())).await?;
        Ok(Checked { request, limit, stdin, stay })
    }
}

#[async_trait]
impl Tool for RunCommand {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn preview(&self, arguments: &Map<String, Value>, session: &SessionKey) -> Result<CallPreview, ToolFailure> {
        let policy = self.runner.policy().await?;
        let Checked { request, stdin, stay, .. } = self.request(arguments, session).await?;
        let requests = self.requests.clone();
        blocking(move || {
            let stdin = match (&stdin, stay) {
                (None, Some(_)) => "open: what is written with process, each time asked about".to_owned(),
                (stdin, _) => input_shown(stdin.as_deref()),
            };
            let preview = preview(&requests, &request, policy, stdin);
            Ok(match stay {
                Some(stay) => stay.added_to(preview),
                None => preview,
            })
        })
        .await
    }

    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        self.runner.sandbox().await?;
        let Checked { request, limit, stdin, stay } = self.request(arguments, &context.session).await?;
        let what = quoted(&request.argv);
        let (requests, approved) = (self.requests.clone(), context.approved.clone());
        let (request, sealed) = blocking(move || {
            let sealed = requests.sealed(&request, approved.as_ref())?;
            Ok((request, sealed))
        })
        .await?;
        let launch = |stdin| self.requests.launch(&request, stdin, &context.variables, sealed);
        match stay {
            Some(stay) => self.runner.start(launch(Stdin::Piped), &what, stay, stdin, context).await,
            None => {
                let stdin = stdin.map_or(Stdin::Null, |text| Stdin::Bytes(text.into_bytes()));
                self.runner.run(launch(stdin), &what, limit, context).await
            }
        }
    }
}

/// The preview of a call for a person, and everything that the approval is bound to.
fn preview(requests: &CommandRequests, request: &CommandRequest, policy: String, stdin: String) -> CallPreview {
    let paths = &requests.paths;
    let names_program = |word: &str| paths.names_program(word, &request.directory);
    let in_workspace = |word: &str| paths.names_entry(word, &request.directory);
    let mut risk = risk::assess(&request.program, &request.argv, names_program, in_workspace);
    let line = quoted(&request.argv);
    let mut bound = vec![
        ("argv".to_owned(), line.clone()),
        ("program".to_owned(), request.program.path().display().to_string()),
        ("directory".to_owned(), request.directory.clone()),
        ("environment".to_owned(), requests.environment_digest()),
        ("policy".to_owned(), policy),
        ("stdin".to_owned(), stdin),
    ];
    let unbound = match requests.files(request) {
        Ok(files) => {
            bound.extend(files.into_iter().map(|(path, digest)| (format!("file {path}"), digest)));
            None
        }
        Err(why) => Some(why),
    };
    if request.program.names().contains(&"git")
        && let Some(repository) = repository::around(&paths.workspace, &request.directory)
    {
        let (path, digest) = repository.bound;
        bound.push((format!("settings {path}"), digest));
        risk.add(repository.caution);
    }
    let ask = risk.ask();
    let (covers, caution) = (risk.covers, risk.caution);
    bound.extend(caution.map(|why| ("caution".to_owned(), why)));
    let place = match request.directory.as_str() {
        "." => String::new(),
        directory => format!(" (in {})", quoted(&[directory.to_owned()])),
    };
    CallPreview {
        summary: format!("{line}{place}"),
        shows: &["argv", "directory", "stdin", "background", "keep"],
        bound,
        ask,
        covers,
        unbound,
        ..CallPreview::default()
    }
}
