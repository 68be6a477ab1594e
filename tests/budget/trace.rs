//! The keeper of the daemon's process: one thread that starts it, counts its system calls, and waits for its end.
//!
//! Linux lets only the thread that traces a process resume it, and any wait elsewhere would take its stops away. So
//! this thread alone starts, traces and waits. Programs that the daemon starts are not traced.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::process::{ChildStderr, Command};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::libc::c_long;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::calls::{Call, Calls, File};
use crate::counted::THREAD;

/// A started process.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) pid: Pid,
    pub(crate) log: ChildStderr,
    /// Its system calls so far. `None`: they are not counted.
    pub(crate) calls: Option<Arc<Mutex<Calls>>>,
    /// Disconnected once the process has ended.
    pub(crate) ended: mpsc::Receiver<()>,
}

/// Starts a process whose first act is to wait, and counts its system calls if `traced` and the system permits it.
pub(crate) fn keep(mut command: Command, traced: bool) -> Result<Kept> {
    let (started, is_started) = mpsc::sync_channel(1);
    let (end, ended) = mpsc::sync_channel::<()>(1);
    std::thread::Builder::new().name("tracer".into()).spawn(move || {
        let _end = end;
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return drop(started.send(Err(error))),
        };
        let pid = Pid::from_raw(child.id().cast_signed());
        let tracer = if traced { Tracer::attach(pid).ok() } else { None };
        let calls = tracer.as_ref().map(|tracer| Arc::clone(&tracer.calls));
        // If nobody receives, nobody wants the process, and the caller has ended.
        drop(started.send(Ok((pid, child.stderr.take(), calls))));
        match tracer {
            Some(tracer) => tracer.run(),
            None => drop(child.wait()),
        }
    })?;
    let (pid, log, calls) = is_started.recv().context("the tracer has ended")?.context("cannot start the daemon")?;
    Ok(Kept { pid, log: log.context("no stderr")?, calls, ended })
}

struct Tracer {
    process: Pid,
    calls: Arc<Mutex<Calls>>,
    threads: HashMap<Pid, Thread>,
}

/// A thread of the traced process.
#[derive(Default)]
struct Thread {
    /// The call that it is in. Stops alternate: one before a call, one after it.
    call: Option<(Call, File)>,
    /// Whether it belongs to the measurement.
    left_out: bool,
}

/// A call as the registers show it.
struct Registers {
    number: c_long,
    first: u64,
    second: u64,
    result: u64,
}

impl Registers {
    #[cfg(target_arch = "x86_64")]
    fn of(thread: Pid) -> nix::Result<Self> {
        let registers = ptrace::getregs(thread)?;
        Ok(Self {
            number: registers.orig_rax.cast_signed(),
            first: registers.rdi,
            second: registers.rsi,
            result: registers.rax,
        })
    }

    #[cfg(target_arch = "aarch64")]
    fn of(thread: Pid) -> nix::Result<Self> {
        let registers = ptrace::getregs(thread)?.regs;
        Ok(Self { number: registers[8].cast_signed(), first: registers[0], second: registers[1], result: registers[0] })
    }
}

impl Tracer {
    /// Attaches to a process with one thread, which runs until it is resumed by [`Self::run`].
    fn attach(process: Pid) -> nix::Result<Self> {
        // The daemon must not outlive this program.
        let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_EXITKILL;
        ptrace::seize(process, options)?;
        ptrace::interrupt(process)?;
        waitpid(process, Some(WaitPidFlag::__WALL))?;
        ptrace::syscall(process, None)?;
        Ok(Self { process, calls: Arc::default(), threads: HashMap::new() })
    }

    /// Counts until the process has ended.
    fn run(mut self) {
        // Children of other threads of this program are none of ours.
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        loop {
            let (thread, signal) = match waitpid(None, Some(flags)) {
                Ok(WaitStatus::PtraceSyscall(thread)) => {
                    self.stopped(thread);
                    (thread, None)
                }
                Ok(WaitStatus::PtraceEvent(thread, ..)) => (thread, None),
                Ok(WaitStatus::Stopped(thread, signal)) => (thread, Some(signal)),
                Ok(WaitStatus::Exited(thread, _) | WaitStatus::Signaled(thread, ..)) => {
                    self.threads.remove(&thread);
                    continue;
                }
                Ok(_) | Err(Errno::EINTR) => continue,
                // ECHILD: all have ended.
                Err(_) => return,
            };
            // A thread that was killed in the meantime cannot be resumed; its end comes next.
            let _ = ptrace::syscall(thread, signal);
        }
    }

    /// A thread has stopped before or after a call.
    fn stopped(&mut self, id: Pid) {
        let thread = self.threads.entry(id).or_default();
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        match thread.call.take() {
            None => {
                let Ok(registers) = Registers::of(id) else { return };
                let call = Call::of(registers.number, registers.second);
                let file = match call {
                    // An open call has its directory there.
                    Call::Write | Call::Sync | Call::Open => file(self.process, registers.first),
                    _ => File::None,
                };
                thread.call = Some((call, file));
                if !thread.left_out {
                    calls.begun(registers.number, call, file);
                }
            }
            Some((Call::Write, file)) if file != File::None => {
                let written = Registers::of(id).map_or(0, |registers| registers.result.cast_signed());
                calls.wrote(file, u64::try_from(written).unwrap_or(0));
            }
            Some((Call::Open, directory)) if !thread.left_out => {
                let descriptor = Registers::of(id).map_or(u64::MAX, |registers| registers.result);
                calls.opened(directory, file(self.process, descriptor));
            }
            Some((Call::Name, _)) => thread.left_out = comm(self.process, id) == THREAD,
            Some(_) => {}
        }
    }
}

/// What a descriptor of the process leads to.
fn file(process: Pid, descriptor: u64) -> File {
    let Ok(descriptor) = RawFd::try_from(descriptor) else { return File::None };
    let link = std::fs::read_link(format!("/proc/{process}/fd/{descriptor}"));
    link.map_or(File::None, |link| File::of(&link.to_string_lossy()))
}

/// The name of a thread.
fn comm(process: Pid, thread: Pid) -> String {
    let name = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}
