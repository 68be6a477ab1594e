//! A hook that runs a command.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use async_trait::async_trait;
use belay_exec::Processes;
use belay_protocol::{Hook, HookAnswer, HookEvent};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::answer;
use crate::process::{Program, RunningProgram};

/// Events that one hook processes at the same time. Further ones wait, within their own time limit.
pub(crate) const MAX_PARALLEL: usize = 8;
/// Environment variables that a program inherits from the daemon.
const INHERITED: [&str; 3] = ["PATH", "HOME", "LANG"];

/// Starts a program for each event. The program gets the event as one line of JSON on its standard input, which is then
/// closed, and writes the answer to its standard output. Its environment is `PATH`, `HOME`, `LANG` and the variables of
/// the settings. All its descendants are ended with it, including those that have left its process group or its
/// session.
#[derive(Debug)]
pub struct CommandHook {
    name: String,
    program: Program,
    slots: Arc<Semaphore>,
    processes: Arc<Processes>,
    /// Ends every process in progress.
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl CommandHook {
    /// Makes a hook with this name. `processes` starts its programs, `stop` ends them, and `tasks` holds them until
    /// they have ended.
    pub(crate) fn new(
        name: String,
        argv: Vec<String>,
        own: &BTreeMap<String, String>,
        processes: Arc<Processes>,
        stop: CancellationToken,
        tasks: TaskTracker,
    ) -> Self {
        let mut env: BTreeMap<OsString, OsString> =
            INHERITED.iter().filter_map(|name| Some(((*name).into(), std::env::var_os(name)?))).collect();
        env.extend(own.iter().map(|(name, value)| (name.into(), value.into())));
        let program = Program { argv, env: env.into_iter().collect() };
        Self { name, program, slots: Arc::new(Semaphore::new(MAX_PARALLEL)), processes, stop, tasks }
    }
}

#[async_trait]
impl Hook for CommandHook {
    fn name(&self) -> &str {
        &self.name
    }

    /// # Cancel safety
    /// If the future is dropped, the program and its descendants get TERM, and KILL after two seconds. A task of the
    /// set does that.
    async fn call(&self, event: &HookEvent) -> Result<HookAnswer, String> {
        let mut line = serde_json::to_vec(event).map_err(|error| format!("the event is no JSON: {error}"))?;
        line.push(b'\n');
        // The semaphore is never closed. Without a permit, there would only be more processes at the same time.
        let permit = self.slots.clone().acquire_owned().await.ok();
        let unwanted = self.stop.child_token();
        let _ends_it = unwanted.clone().drop_guard();
        let (answer_sender, answer_receiver) = oneshot::channel();
        let (program, processes) = (self.program.clone(), self.processes.clone());
        let supervision = async move {
            match RunningProgram::start(&processes, &program, line).await {
                Err(why) => drop(answer_sender.send(Err(why))),
                Ok(program) => {
                    let (answer_result, mut left) = program.answer(&unwanted).await;
                    let _ = answer_sender.send(answer_result); // no one reads an answer that came too late
                    left.end().await;
                }
            }
            drop(permit); // only now: programs that are being ended count as well
        };
        self.tasks.spawn(supervision.in_current_span());
        let text = answer_receiver.await.map_err(|_| "its task crashed".to_owned())??;
        answer::read(event, &text)
    }
}
