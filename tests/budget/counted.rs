//! The daemon of the budget: the real one, with an allocator that counts.
//!
//! `belay-budget daemon SOCKET run …` connects to the socket, waits there for a first byte, and then is `belay run …`.
//! Each further byte is answered with the number of allocations and of allocated bytes. The answer itself allocates
//! nothing.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use anyhow::{Context, Result};
use rustix::process::{Signal, getpid, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// The name of the thread that answers. It is left out of what is counted.
pub(crate) const THREAD: &str = "budget";

/// Processors that the daemon may use: the number of its threads must not depend on the machine.
const PROCESSORS: usize = 2;

/// Allocations so far, reallocations included, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allocations {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

impl Allocations {
    /// Asks a daemon at the other end of the socket.
    pub(crate) fn of(mut daemon: &UnixStream) -> Result<Self> {
        daemon.write_all(b"?")?;
        let mut answer = [0; 16];
        daemon.read_exact(&mut answer).context("the daemon has ended")?;
        let [count, bytes] = [0, 8].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&answer[at..at + 8]);
            u64::from_le_bytes(word)
        });
        Ok(Self { count, bytes })
    }

    fn now() -> [u8; 16] {
        let stats = ALLOCATOR.stats();
        let mut answer = [0; 16];
        answer[..8].copy_from_slice(&((stats.allocations + stats.reallocations) as u64).to_le_bytes());
        answer[8..].copy_from_slice(&(stats.bytes_allocated as u64).to_le_bytes());
        answer
    }
}

/// Is the daemon. `args` are those behind `daemon`.
pub(crate) fn run(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    match wait_for_start(args.next()) {
        Ok(()) => belay_daemon::main(std::iter::once("belay".into()).chain(args)),
        Err(error) => {
            eprintln!("the daemon of the budget cannot start: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn wait_for_start(socket: Option<OsString>) -> Result<()> {
    let mut measurer = UnixStream::connect(socket.context("no socket")?)?;
    let allowed = sched_getaffinity(None)?;
    let mut few = CpuSet::new();
    (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).take(PROCESSORS).for_each(|cpu| few.set(cpu));
    sched_setaffinity(None, &few)?;
    let mut byte = [0];
    measurer.read_exact(&mut byte)?;
    // The daemon must not outlive the measurer.
    std::thread::Builder::new().name(THREAD.into()).spawn(move || {
        while measurer.read_exact(&mut byte).is_ok() && measurer.write_all(&Allocations::now()).is_ok() {}
        let _ = kill_process(getpid(), Signal::TERM); // nothing remains to be done if that fails
    })?;
    Ok(())
}
