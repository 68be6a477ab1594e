//! The process of one event: starts it, sends the event, reads the answer, and ends it with all its descendants.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use belay_exec::{Exit, Launch, Processes, Running, StartError, Stdin};
use tokio::io::{AsyncReadExt, sink};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::answer::{MAX_ANSWER_BYTES, too_long};

/// How long the rest of an answer is read after the program has ended. Only a descendant that ignores TERM keeps the
/// pipe open for that long, and the output of the program itself has been read by then.
const READ_AFTER_EXIT: Duration = Duration::from_secs(1);
/// The part of its standard error that is logged, in bytes.
const MAX_STDERR_BYTES: u64 = 4096;

/// A program with its arguments and its complete environment.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(OsString, OsString)>,
}

/// The output of a program.
#[derive(Debug, Default)]
struct Output {
    answer: Vec<u8>,
    stderr_head: Vec<u8>,
}

/// A running program. Dropping it ends the program with all its descendants: TERM, two seconds, KILL.
pub(crate) struct RunningProgram {
    running: Running,
    stdout: ChildStdout,
    stderr: ChildStderr,
    name: String,
}

impl RunningProgram {
    /// Starts a program for a hook and gives it the input.
    ///
    /// # Errors
    /// Why it could not be started, in plain words.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing stays running.
    pub(crate) async fn start(processes: &Arc<Processes>, program: &Program, input: Vec<u8>) -> Result<Self, String> {
        let failed = |why: &str| format!("it could not be started: {why}");
        let [name, arguments @ ..] = &program.argv[..] else { return Err(failed("no program is named")) };
        let launch = Launch {
            program: name.into(),
            args: arguments.iter().map(Into::into).collect(),
            env: program.env.clone(),
            directory: ".".into(), // the start directory of the daemon: the settings may contain relative paths
            stdin: Stdin::Bytes(input),
            isolated: false,
            sealed: None,
        };
        let started = processes.start_without_run(launch, &format!("hook {name}")).await;
        let mut running = started.map_err(|error| failed(&words(&error)))?;
        let (stdout, stderr) = running.take_output().ok_or_else(|| failed("it has no pipes"))?;
        Ok(Self { running, stdout, stderr, name: name.clone() })
    }

    /// Returns the answer of the program, and the processes that must be ended.
    ///
    /// # Errors
    /// In plain words: the answer is too long, the hook was `unwanted`, or the program failed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the program is ended.
    pub(crate) async fn answer(self, unwanted: &CancellationToken) -> (Result<Vec<u8>, String>, Running) {
        let Self { mut running, stdout, stderr, name } = self;
        let mut output = Output::default();
        let result = read_output(&mut running, stdout, stderr, &mut output, unwanted).await;
        running.begin_end(); // ends all remaining processes
        if !output.stderr_head.is_empty() {
            tracing::debug!(program = %name, stderr = %String::from_utf8_lossy(&output.stderr_head), "a hook's program wrote to standard error");
        }
        (result.map(|()| output.answer), running)
    }
}

/// Reads the output of a program until it has ended and all output is read.
async fn read_output(
    running: &mut Running,
    stdout: ChildStdout,
    stderr: ChildStderr,
    output: &mut Output,
    unwanted: &CancellationToken,
) -> Result<(), String> {
    let reading = read_pipes(stdout, stderr, output);
    tokio::pin!(reading);
    let mut finished = false;
    let exit = loop {
        tokio::select! {
            biased; // a program that is no longer needed is ended first
            () = unwanted.cancelled() => return Err("it was stopped".into()),
            all = &mut reading, if !finished => {
                all?;
                finished = true;
            }
            exit = running.wait() => break exit,
        }
    };
    running.begin_end(); // its remaining descendants hold its pipes
    match exit {
        Exit::Code(0) => {}
        Exit::Code(code) => return Err(format!("its program ended with exit status: {code}")),
        Exit::Signal(signal) => return Err(format!("its program ended with signal: {signal}")),
        Exit::Ended => return Err("it was stopped".into()),
    }
    match timeout(READ_AFTER_EXIT, async { if finished { Ok(()) } else { reading.await } }).await {
        Ok(result) => result,
        Err(_) => Ok(()), // the output until now is the answer
    }
}

/// Reads everything until the pipes are closed.
async fn read_pipes(stdout: ChildStdout, mut stderr: ChildStderr, output: &mut Output) -> Result<(), String> {
    let Output { answer, stderr_head } = output;
    let read_answer = async move {
        let most = MAX_ANSWER_BYTES as u64 + 1;
        let read = stdout.take(most).read_to_end(answer).await;
        read.map_err(|error| format!("its answer could not be read: {error}"))?;
        if answer.len() > MAX_ANSWER_BYTES { Err(too_long()) } else { Ok(()) }
    };
    let read_stderr = async move {
        // Only for the log. The rest is read so that the program does not block on a full pipe.
        let _ = (&mut stderr).take(MAX_STDERR_BYTES).read_to_end(stderr_head).await;
        let _ = tokio::io::copy(&mut stderr, &mut sink()).await;
        Ok(())
    };
    tokio::try_join!(read_answer, read_stderr).map(|_| ())
}

/// Why a program was not started, as the end of a sentence.
fn words(error: &StartError) -> String {
    let text = error.to_string();
    text.strip_prefix("Not started: ").unwrap_or(&text).trim_end_matches('.').to_owned()
}
