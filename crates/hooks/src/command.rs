//! A hook that is a command.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{Hook, HookAnswer, HookEvent};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::answer;
use crate::process::{self, Program};

/// Events that one hook works on at the same time; then the next ones wait, within their own time.
pub(crate) const MAX_PARALLEL: usize = 8;
/// What a program is told of the daemon's own environment.
const INHERITED: [&str; 3] = ["PATH", "HOME", "LANG"];

/// Starts a program for each event: the event as one line of JSON on its standard input, which is closed then, and the
/// answer on its standard output. It runs in a process group of its own with `PATH`, `HOME`, `LANG` and what the
/// settings give. Whatever of the group is alive at its end is killed.
#[derive(Debug)]
pub struct CommandHook {
    name: String,
    program: Program,
    room: Arc<Semaphore>,
    /// Ends every process that is under way.
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl CommandHook {
    /// A hook of that name. `stop` ends what it has started, and `tasks` holds that until it has ended.
    pub(crate) fn new(
        name: String,
        argv: Vec<String>,
        own: &BTreeMap<String, String>,
        stop: CancellationToken,
        tasks: TaskTracker,
    ) -> Self {
        let mut env: BTreeMap<OsString, OsString> =
            INHERITED.iter().filter_map(|name| Some(((*name).into(), std::env::var_os(name)?))).collect();
        env.extend(own.iter().map(|(name, value)| (name.into(), value.into())));
        Self { name, program: Program { argv, env }, room: Arc::new(Semaphore::new(MAX_PARALLEL)), stop, tasks }
    }
}

#[async_trait]
impl Hook for CommandHook {
    fn name(&self) -> &str {
        &self.name
    }

    /// # Cancel safety
    /// Dropped, the program and its group get TERM, a moment, and KILL; the set's tasks see to it.
    async fn call(&self, event: &HookEvent) -> Result<HookAnswer, String> {
        let mut line = serde_json::to_vec(event).map_err(|error| format!("the event is no JSON: {error}"))?;
        line.push(b'\n');
        // The room is never closed; without a permit there would only be more processes at once.
        let permit = self.room.clone().acquire_owned().await.ok();
        let unwanted = self.stop.child_token();
        let _ends_it = unwanted.clone().drop_guard();
        let (tell, told) = oneshot::channel();
        let program = self.program.clone();
        let work = async move {
            let said = process::run(&program, &line, &unwanted).await;
            drop(permit); // only now: programs that are being ended count as well
            let _ = tell.send(said); // nobody waits for an answer that came too late
        };
        self.tasks.spawn(work.in_current_span());
        let said = told.await.map_err(|_| "its task crashed".to_owned())??;
        answer::read(event, &said)
    }
}
