//! `run_command`: runs a program with its arguments.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Ask, CallPreview, Effect, SessionKey, Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::order::{Order, Orders, input_shown};
use super::quote::quoted;
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
pub(super) const ENDING: Duration = Duration::from_secs(20);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The program and its arguments, one element each, such as `["grep", "-rn", "a word", "src"]`. No shell reads them:
    /// no pipes, no redirections, no `*`, no `$VARIABLES`.
    #[schemars(length(min = 1, max = 512))]
    argv: Vec<String>,
    /// The directory to work in, relative to the workspace. Without it: the root of the workspace.
    #[serde(default)]
    directory: Option<String>,
    /// Seconds until it is ended. Without it: the operator's usual, 120 unless set otherwise.
    #[serde(default)]
    #[schemars(range(min = 1))]
    timeout_s: Option<u32>,
    /// What it reads on its standard input. Without it: nothing.
    #[serde(default)]
    stdin: Option<String>,
}

/// The tool `run_command`.
pub(super) struct RunCommand {
    spec: ToolSpec,
    orders: Arc<Orders>,
    runner: Arc<Runner>,
    time: Time,
}

/// Time limits of commands, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    usual: u32,
    most: u32,
}

impl Time {
    pub(super) fn of(config: &CommandsConfig) -> Self {
        Self { usual: config.timeout_s, most: config.max_timeout_s }
    }

    /// # Errors
    /// The call asks for zero, or for more than the limit.
    pub(super) fn asked(self, seconds: Option<u32>) -> Result<Duration, ToolFailure> {
        let seconds = seconds.unwrap_or(self.usual);
        if !(1..=self.most).contains(&seconds) {
            return Err(ToolFailure::failed(format!("timeout_s must be from 1 to {}, is {seconds}.", self.most)));
        }
        Ok(Duration::from_secs(seconds.into()))
    }

    /// The time limit that the gate enforces.
    pub(super) fn gate(self) -> Duration {
        Duration::from_secs(self.most.into()) + ENDING
    }
}

impl RunCommand {
    pub(super) fn new(orders: Arc<Orders>, runner: Arc<Runner>, config: &CommandsConfig) -> Self {
        let description = "Runs a program in the workspace and returns its output. When it ends, every process that it \
            started is ended too. An exit code other than 0 is a failure.";
        let time = Time::of(config);
        let spec = arguments::spec::<Arguments>("run_command", description, Effect::External, time.gate());
        let spec = ToolSpec {
            idempotent: false,
            approval: Ask::UnlessApproved,
            outside: true,
            takes_variables: true,
            max_output_bytes: MAX_RESULT_BYTES,
            ..spec
        };
        Self { spec, orders, runner, time }
    }

    /// Parses and checks the arguments of a call.
    async fn order(&self, arguments: &Map<String, Value>) -> Result<(Order, Duration, Option<String>), ToolFailure> {
        let Arguments { argv, directory, timeout_s, stdin } = arguments::read(arguments)?;
        let limit = self.time.asked(timeout_s)?;
        if stdin.as_ref().is_some_and(|text| text.len() > MAX_INPUT_BYTES) {
            return Err(ToolFailure::failed(format!(
                "stdin has more than {MAX_INPUT_BYTES} bytes. Write it to a file first."
            )));
        }
        let orders = self.orders.clone();
        let order = blocking(move || orders.read(argv, directory.as_deref())).await?;
        Ok((order, limit, stdin))
    }
}

#[async_trait]
impl Tool for RunCommand {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn weigh(&self, arguments: &Map<String, Value>, _session: &SessionKey) -> Result<CallPreview, ToolFailure> {
        let policy = self.runner.policy().await?;
        let (order, _, stdin) = self.order(arguments).await?;
        let orders = self.orders.clone();
        blocking(move || Ok(weigh(&orders, &order, policy, stdin.as_deref()))).await
    }

    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        self.runner.sandbox().await?;
        let (order, limit, stdin) = self.order(arguments).await?;
        let stdin = stdin.map_or(Stdin::Null, |text| Stdin::Bytes(text.into_bytes()));
        let what = quoted(&order.argv);
        let (orders, approved) = (self.orders.clone(), context.approved.clone());
        let (order, sealed) = blocking(move || {
            let sealed = orders.sealed(&order, approved.as_ref())?;
            Ok((order, sealed))
        })
        .await?;
        self.runner.run(self.orders.launch(&order, stdin, &context.variables, sealed), &what, limit, context).await
    }
}

/// The preview of a call for a person, and everything that the approval is bound to.
fn weigh(orders: &Orders, order: &Order, policy: String, stdin: Option<&str>) -> CallPreview {
    let places = &orders.places;
    let names_program = |word: &str| places.names_program(word, &order.directory);
    let in_workspace = |word: &str| places.names_entry(word, &order.directory);
    let mut risk = risk::judge(&order.program, &order.argv, names_program, in_workspace);
    let line = quoted(&order.argv);
    let mut bound = vec![
        ("argv".to_owned(), line.clone()),
        ("program".to_owned(), order.program.path().display().to_string()),
        ("directory".to_owned(), order.directory.clone()),
        ("environment".to_owned(), orders.environment_digest()),
        ("policy".to_owned(), policy),
        ("stdin".to_owned(), input_shown(stdin)),
    ];
    let unbound = match orders.files(order) {
        Ok(files) => {
            bound.extend(files.into_iter().map(|(path, digest)| (format!("file {path}"), digest)));
            None
        }
        Err(why) => Some(why),
    };
    if order.program.names().contains(&"git")
        && let Some(repository) = repository::around(&places.workspace, &order.directory)
    {
        let (path, digest) = repository.bound;
        bound.push((format!("settings {path}"), digest));
        risk.add(repository.caution);
    }
    let ask = risk.ask();
    let (covers, caution) = (risk.covers, risk.caution);
    bound.extend(caution.map(|why| ("caution".to_owned(), why)));
    let place = match order.directory.as_str() {
        "." => String::new(),
        directory => format!(" (in {})", quoted(&[directory.to_owned()])),
    };
    CallPreview { summary: format!("{line}{place}"), bound, ask, covers, unbound }
}
