//! Programs of servers as process trees of their runs.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Generation, RunId};
use tokio::time::timeout;

use crate::mcp::program::{Program, ServerProcesses, StartPrograms, Started};
use crate::process::{Exit, Launch, Processes, Running, Stdin};

/// Puts a process behind the walls of the sandbox, with the network or without. The error is a sentence without its dot.
pub type Walls = Arc<dyn Fn(Launch, bool) -> Result<Launch, String> + Send + Sync>;

/// Starts programs as trees of [`Processes`]: ending the run ends them.
#[derive(Clone)]
pub struct ProcessTrees {
    processes: Arc<Processes>,
    walls: Option<Walls>,
}

impl ProcessTrees {
    /// Trees without a sandbox: a program that wants it is refused.
    pub fn new(processes: Arc<Processes>) -> Self {
        Self { processes, walls: None }
    }

    /// The same with a sandbox.
    #[must_use]
    pub fn with_walls(self, walls: Walls) -> Self {
        Self { walls: Some(walls), ..self }
    }

    fn launch(&self, program: &Program) -> Result<Launch, String> {
        let [name, arguments @ ..] = &program.argv[..] else { return Err("no program is named".into()) };
        let launch = Launch {
            program: name.into(),
            args: arguments.iter().map(Into::into).collect(),
            env: program.env.clone(),
            directory: program.directory.clone(),
            stdin: Stdin::Piped,
            isolated: false,
        };
        match (&self.walls, program.sandbox) {
            (_, false) => Ok(launch),
            (Some(walls), true) => walls(launch, program.network),
            (None, true) => Err("it is to run in the sandbox, and there is none".into()),
        }
    }
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
        let started = self.processes.start(self.launch(program)?, run, generation, what).await;
        // What is dropped below is ended.
        let mut running = started.map_err(|error| error.to_string().trim_end_matches('.').to_owned())?;
        let (Some(stdin), Some((stdout, stderr))) = (running.take_stdin(), running.take_output()) else {
            return Err("it has no pipes".into());
        };
        Ok(Started {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            processes: Box::new(running),
        })
    }
}

#[async_trait]
impl ServerProcesses for Running {
    async fn end(&mut self, patience: Duration) -> String {
        let how = timeout(patience, Box::pin(self.wait())).await;
        self.end().await; // what it has started and left, too
        match how {
            Ok(Exit::Code(code)) => format!("exit code {code}"),
            Ok(Exit::Signal(signal)) => format!("killed by signal {signal}"),
            Ok(Exit::Ended) | Err(_) => "it was stopped".into(),
        }
    }
}
