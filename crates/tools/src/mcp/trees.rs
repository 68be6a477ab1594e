//! Starts the programs of servers as process trees of their runs.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Generation, RunId};
use tokio::time::timeout;

use crate::mcp::hidden::Hidden;
use crate::mcp::program::{Program, ServerProcesses, StartPrograms, Started};
use crate::sandbox::{Grant, LazySandbox, Missing};
use belay_exec::{Exit, Launch, Processes, Running, Stdin};

/// Starts programs as process trees of [`Processes`], which end with their run.
#[derive(Clone)]
pub struct ProcessTrees {
    processes: Arc<Processes>,
    sandbox: LazySandbox,
}

impl ProcessTrees {
    /// Uses these processes and this sandbox. If a requirement of the sandbox is missing, a program that needs the
    /// sandbox is refused with that reason.
    pub fn new(processes: Arc<Processes>, sandbox: LazySandbox) -> Self {
        Self { processes, sandbox }
    }

    /// The process to start, and the paths of its command line that the sandbox hides.
    async fn launch(&self, program: &Program) -> Result<(Launch, Hidden), String> {
        let [name, arguments @ ..] = &program.argv[..] else { return Err("no program is named".into()) };
        let launch = Launch {
            program: name.into(),
            args: arguments.iter().map(Into::into).collect(),
            env: program.env.clone(),
            directory: program.directory.clone(),
            stdin: Stdin::Piped,
            isolated: false,
            sealed: None,
        };
        if !program.sandbox {
            return Ok((launch, Hidden::default()));
        }
        let inside = |missing: Missing| format!("it is to run in the sandbox, and {missing}");
        let sandbox = self.sandbox.get().await.map_err(|missing| inside(missing.clone()))?;
        let grant = Grant { network: program.network, write: sandbox.most().write };
        let hidden = Hidden::find(program, |path| sandbox.hidden_path(path, grant));
        Ok((sandbox.wrap(launch, grant).map_err(inside)?, hidden))
    }
}

/// An error text if the program does not exist. The sandbox shows a program at its original path or not at all.
fn missing(program: &Program) -> Option<String> {
    let name = program.argv.first()?;
    if name.contains('/') {
        let path = program.directory.join(name);
        return (!path.exists()).then(|| format!("{} does not exist", path.display()));
    }
    let path = program.env.iter().find(|(key, _)| key == "PATH").map(|(_, path)| path)?;
    let found = std::env::split_paths(path).any(|directory| directory.join(name).is_file());
    (!found).then(|| format!("there is no program {name} in PATH ({})", path.display()))
}

#[async_trait]
impl StartPrograms for ProcessTrees {
    async fn start(
        &self,
        program: &Program,
        run: RunId,
        generation: &Generation,
        what: &str,
    ) -> Result<Started, String> {
        let (launch, hidden) = self.launch(program).await?;
        if let Some(missing) = missing(program).or(hidden.program) {
            return Err(missing);
        }
        let started = self.processes.start(launch, run, generation, what).await;
        // Returning early drops `running`, which ends the program.
        let mut running = started.map_err(|error| error.to_string().trim_end_matches('.').to_owned())?;
        let (Some(stdin), Some((stdout, stderr))) = (running.take_stdin(), running.take_output()) else {
            return Err("it has no pipes".into());
        };
        Ok(Started {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            processes: Box::new(Tree { running, hidden: hidden.other }),
        })
    }
}

/// The processes of a program.
struct Tree {
    running: Running,
    /// What the sandbox hides from it, for an end that it may have caused.
    hidden: Option<String>,
}

#[async_trait]
impl ServerProcesses for Tree {
    async fn end(&mut self, grace: Duration) -> String {
        let how = timeout(grace, Box::pin(self.running.wait())).await;
        self.running.end().await; // end the processes that it has started and left, too
        match (how, &self.hidden) {
            (Ok(Exit::Code(code)), Some(hidden)) if code != 0 => format!("exit code {code}. {hidden}"),
            (how, _) => ended(how.ok()),
        }
    }
}

/// How a program has ended; `None`: it had to be ended.
fn ended(how: Option<Exit>) -> String {
    match how {
        Some(Exit::Code(code)) => format!("exit code {code}"),
        Some(Exit::Signal(signal)) => format!("killed by signal {signal}"),
        Some(Exit::Ended) | None => "it was stopped".into(),
    }
}
