//! The process of one event: started in a group of its own, fed, heard, and ended together with its group.
//!
//! What leaves the group on purpose (`setsid`) is out of reach of these signals; it can hold nobody up, since nobody
//! waits for a pipe that outlives the program itself.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal as Kill, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncReadExt, AsyncWriteExt, sink};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::answer::{MAX_ANSWER_BYTES, too_long};

/// How long a program has between TERM and KILL. 500 ms: enough to remove a lock file, and short enough for a stop.
const GRACE: Duration = Duration::from_millis(500);
/// How long the rest of an answer is read after the program has ended. Only a process that has left the group keeps the
/// pipe open for that long, and what the program itself has written is read by then.
const REST: Duration = Duration::from_secs(1);
/// How much of its standard error reaches the log, in bytes.
const MAX_COMPLAINT_BYTES: u64 = 4096;

/// A program with its arguments and its whole environment.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) argv: Vec<String>,
    pub(crate) env: BTreeMap<OsString, OsString>,
}

/// What it has said.
#[derive(Debug, Default)]
struct Said {
    answer: Vec<u8>,
    complaint: Vec<u8>,
}

/// How the conversation with it ended.
enum Parting {
    /// It has ended by itself.
    Ended,
    /// Nobody waits for it any more.
    Unwanted,
    /// It cannot be talked to.
    Trouble(String),
}

/// Starts a program, hands it the input, and returns what it answers. When this returns, the program and its group have
/// ended.
///
/// # Errors
/// Plain words: it could not be started, said too much, was `unwanted`, or ended with a failure.
///
/// # Cancel safety
/// Dropped midway, the group is killed at once, and the runtime collects the program.
pub(crate) async fn run(program: &Program, input: &[u8], unwanted: &CancellationToken) -> Result<Vec<u8>, String> {
    let (mut leader, pipes) = Leader::start(program).map_err(|error| format!("it could not be started: {error}"))?;
    let mut said = Said::default();
    let parting = converse(&mut leader, pipes, input, &mut said, unwanted).await;
    let status = match &parting {
        Parting::Ended => leader.collect().await,
        Parting::Unwanted | Parting::Trouble(_) => leader.end().await,
    };
    if !said.complaint.is_empty() {
        tracing::debug!(program = %program.argv[0], stderr = %String::from_utf8_lossy(&said.complaint), "a hook's program complained");
    }
    match (parting, status) {
        (Parting::Unwanted, _) => Err("it was told to stop".into()),
        (Parting::Trouble(why), _) => Err(why),
        (Parting::Ended, Ok(status)) if status.success() => Ok(said.answer),
        (Parting::Ended, Ok(status)) => Err(format!("its program ended with {status}")),
        (Parting::Ended, Err(error)) => Err(format!("how its program ended is unknown: {error}")),
    }
}

async fn converse(
    leader: &mut Leader,
    pipes: Pipes,
    input: &[u8],
    said: &mut Said,
    unwanted: &CancellationToken,
) -> Parting {
    let talk = talk(pipes, input, said);
    tokio::pin!(talk);
    let mut talked = false;
    loop {
        tokio::select! {
            biased; // whoever is no longer waited for is ended, whatever else has happened
            () = unwanted.cancelled() => return Parting::Unwanted,
            heard = &mut talk, if !talked => match heard {
                Ok(()) => talked = true,
                Err(why) => return Parting::Trouble(why),
            },
            () = leader.ended() => break,
        }
    }
    leader.signal(Kill::KILL); // whatever it has left behind
    match timeout(REST, async { if talked { Ok(()) } else { talk.await } }).await {
        Ok(Err(why)) => Parting::Trouble(why),
        Ok(Ok(())) | Err(_) => Parting::Ended, // what has been heard until now is the answer
    }
}

/// Hands over the input and hears everything until the pipes are closed.
async fn talk(pipes: Pipes, input: &[u8], said: &mut Said) -> Result<(), String> {
    let Pipes { mut stdin, stdout, mut stderr } = pipes;
    let Said { answer, complaint } = said;
    let feed = async move {
        // A program that does not read what it is told may still have an answer.
        let _ = stdin.write_all(input).await;
        Ok(())
    };
    let hear = async move {
        let most = MAX_ANSWER_BYTES as u64 + 1;
        stdout
            .take(most)
            .read_to_end(answer)
            .await
            .map_err(|error| format!("its answer could not be read: {error}"))?;
        if answer.len() > MAX_ANSWER_BYTES { Err(too_long()) } else { Ok(()) }
    };
    let grumble = async move {
        // Only for the log; the rest is read so that the program does not wait for somebody to do so.
        let _ = (&mut stderr).take(MAX_COMPLAINT_BYTES).read_to_end(complaint).await;
        let _ = tokio::io::copy(&mut stderr, &mut sink()).await;
        Ok(())
    };
    tokio::try_join!(feed, hear, grumble).map(|_| ())
}

struct Pipes {
    stdin: ChildStdin,
    stdout: ChildStdout,
    stderr: ChildStderr,
}

/// The program itself: the first of its group, whose number is that of the group.
struct Leader {
    child: Child,
    pid: Pid,
    /// Says that some child of this process has ended.
    children: Signal,
    collected: bool,
}

impl Leader {
    fn start(program: &Program) -> io::Result<(Self, Pipes)> {
        let children = signal(SignalKind::child())?; // before the start, so that no end is missed
        let (name, arguments) = program.argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut child = Command::new(name)
            .args(arguments)
            .env_clear()
            .envs(&program.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        match (pid, pipes) {
            (Some(pid), (Some(stdin), Some(stdout), Some(stderr))) => {
                Ok((Self { child, pid, children, collected: false }, Pipes { stdin, stdout, stderr }))
            }
            _ => Err(io::Error::other("it has no number or no pipes")), // dropped, it is killed
        }
    }

    /// Waits for its end without collecting it: until then its number, and with it that of the group, is nobody else's.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    async fn ended(&mut self) {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // An error means that it is no child of ours any more: it has ended.
        while let Ok(None) = waitid(WaitId::Pid(self.pid), look) {
            self.children.recv().await;
        }
    }

    /// Sends a signal to the group. One without members takes none, which is as well.
    fn signal(&self, kill: Kill) {
        if !self.collected {
            let _ = kill_process_group(self.pid, kill);
        }
    }

    /// Ends the group: TERM, a moment, KILL.
    async fn end(&mut self) -> io::Result<ExitStatus> {
        self.signal(Kill::TERM);
        let _ = timeout(GRACE, self.ended()).await; // either way the rest of the group is killed
        self.signal(Kill::KILL);
        self.collect().await
    }

    /// Takes the status of a program that has ended, or is about to.
    async fn collect(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.collected = true;
        status
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.signal(Kill::KILL);
    }
}
