//! The process of one event: started by the keeper of all processes, fed, heard, and ended with all that it has started.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use belay_exec::{Exit, Launch, Processes, Running, StartError, Stdin};
use tokio::io::{AsyncReadExt, sink};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::answer::{MAX_ANSWER_BYTES, too_long};

/// How long the rest of an answer is read after the program has ended. Only a process that it has left behind and that
/// ignores TERM keeps the pipe open for that long, and what the program itself has written is read by then.
const REST: Duration = Duration::from_secs(1);
/// How much of its standard error reaches the log, in bytes.
const MAX_COMPLAINT_BYTES: u64 = 4096;

/// A program with its arguments and its whole environment.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(OsString, OsString)>,
}

/// What it has said.
#[derive(Debug, Default)]
struct Said {
    answer: Vec<u8>,
    complaint: Vec<u8>,
}

/// A program at work. Dropped, it is ended with all that it has started: TERM, two seconds, KILL.
pub(crate) struct Work {
    running: Running,
    stdout: ChildStdout,
    stderr: ChildStderr,
    name: String,
}

impl Work {
    /// Starts a program for a hook and hands it the input.
    ///
    /// # Errors
    /// Plain words: why it could not be started.
    ///
    /// # Cancel safety
    /// Dropped, nothing stays running.
    pub(crate) async fn start(processes: &Arc<Processes>, program: &Program, input: Vec<u8>) -> Result<Self, String> {
        let failed = |why: &str| format!("it could not be started: {why}");
        let [name, arguments @ ..] = &program.argv[..] else { return Err(failed("no program is named")) };
        let launch = Launch {
            program: name.into(),
            args: arguments.iter().map(Into::into).collect(),
            env: program.env.clone(),
            directory: ".".into(), // where the daemon was started: relative paths in the settings mean that
            stdin: Stdin::Bytes(input),
            isolated: false,
            sealed: None,
        };
        let started = processes.start_hook(launch, &format!("hook {name}")).await;
        let mut running = started.map_err(|error| failed(&words(&error)))?;
        let (stdout, stderr) = running.take_output().ok_or_else(|| failed("it has no pipes"))?;
        Ok(Self { running, stdout, stderr, name: name.clone() })
    }

    /// What the program answers, and what is left to be ended.
    ///
    /// # Errors
    /// Plain words: it said too much, was `unwanted`, or ended with a failure.
    ///
    /// # Cancel safety
    /// Dropped, the program is ended.
    pub(crate) async fn answer(self, unwanted: &CancellationToken) -> (Result<Vec<u8>, String>, Running) {
        let Self { mut running, stdout, stderr, name } = self;
        let mut said = Said::default();
        let heard = hear(&mut running, stdout, stderr, &mut said, unwanted).await;
        running.begin_end(); // whatever else it has left behind
        if !said.complaint.is_empty() {
            tracing::debug!(program = %name, stderr = %String::from_utf8_lossy(&said.complaint), "a hook's program complained");
        }
        (heard.map(|()| said.answer), running)
    }
}

/// Hears a program until it has ended and has said everything.
async fn hear(
    running: &mut Running,
    stdout: ChildStdout,
    stderr: ChildStderr,
    said: &mut Said,
    unwanted: &CancellationToken,
) -> Result<(), String> {
    let listen = listen(stdout, stderr, said);
    tokio::pin!(listen);
    let mut heard = false;
    let exit = loop {
        tokio::select! {
            biased; // whoever is no longer waited for is ended, whatever else has happened
            () = unwanted.cancelled() => return Err("it was stopped".into()),
            all = &mut listen, if !heard => {
                all?;
                heard = true;
            }
            exit = running.wait() => break exit,
        }
    };
    running.begin_end(); // what it has left behind holds its pipes
    match exit {
        Exit::Code(0) => {}
        Exit::Code(code) => return Err(format!("its program ended with exit status: {code}")),
        Exit::Signal(signal) => return Err(format!("its program ended with signal: {signal}")),
        Exit::Ended => return Err("it was stopped".into()),
    }
    match timeout(REST, async { if heard { Ok(()) } else { listen.await } }).await {
        Ok(heard) => heard,
        Err(_) => Ok(()), // what has been heard until now is the answer
    }
}

/// Hears everything until the pipes are closed.
async fn listen(stdout: ChildStdout, mut stderr: ChildStderr, said: &mut Said) -> Result<(), String> {
    let Said { answer, complaint } = said;
    let hear = async move {
        let most = MAX_ANSWER_BYTES as u64 + 1;
        let heard = stdout.take(most).read_to_end(answer).await;
        heard.map_err(|error| format!("its answer could not be read: {error}"))?;
        if answer.len() > MAX_ANSWER_BYTES { Err(too_long()) } else { Ok(()) }
    };
    let grumble = async move {
        // Only for the log; the rest is read so that the program does not wait for somebody to do so.
        let _ = (&mut stderr).take(MAX_COMPLAINT_BYTES).read_to_end(complaint).await;
        let _ = tokio::io::copy(&mut stderr, &mut sink()).await;
        Ok(())
    };
    tokio::try_join!(hear, grumble).map(|_| ())
}

/// Why a program was not started, for the end of a sentence.
fn words(error: &StartError) -> String {
    let text = error.to_string();
    text.strip_prefix("Not started: ").unwrap_or(&text).trim_end_matches('.').to_owned()
}
