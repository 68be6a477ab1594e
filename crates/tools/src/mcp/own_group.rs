//! Programs in process groups of their own: for commands that look at servers outside of any run.

use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Generation, RunId};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::mcp::program::{Program, ServerProcesses, StartPrograms, Started};

/// Time between being asked to end and being killed.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// Longest wait for a killed process to be gone. Only one that hangs in the kernel takes longer.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// Starts each program in a process group of its own, ended as a whole.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnGroups;

#[async_trait]
impl StartPrograms for OwnGroups {
    async fn start(&self, program: &Program, _run: RunId, generation: &Generation, _what: &str) -> Result<Started, String> {
        if program.sandbox {
            return Err("it is to run in the sandbox, which is not there; set sandbox = false to run it without".into());
        }
        let [name, arguments @ ..] = &program.argv[..] else { return Err("no program is named".into()) };
        let mut child = Command::new(name)
            .args(arguments)
            .env_clear()
            .envs(program.env.iter().map(|(key, value)| (key, value)))
            .current_dir(&program.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("{name}: {error}"))?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let processes = Group { child, group };
        if !generation.is_current() {
            return Err("the run has been stopped".into()); // dropping `processes` ends it
        }
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err("it has no pipes".into());
        };
        Ok(Started {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            processes: Box::new(processes),
        })
    }
}

struct Group {
    child: Child,
    /// `None` once all of it is ended.
    group: Option<Pid>,
}

impl Group {
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // An error says that nobody is left in it.
            let _ = kill_process_group(group, signal);
        }
    }
}

#[async_trait]
impl ServerProcesses for Group {
    async fn end(&mut self, patience: Duration) -> String {
        let mut ended = timeout(patience, self.child.wait()).await.ok();
        if ended.is_none() {
            self.signal(Signal::TERM);
            ended = timeout(TERM_GRACE, self.child.wait()).await.ok();
        }
        self.signal(Signal::KILL); // what it has started and left
        if ended.is_none() {
            ended = timeout(KILL_LIMIT, self.child.wait()).await.ok();
        }
        self.group = None;
        match ended {
            Some(Ok(status)) => status.to_string(),
            Some(Err(error)) => error.to_string(),
            None => "it cannot be killed".into(),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}
