//! The launcher: the daemon's own binary, started as `belay launch`. It restricts itself permanently and then executes
//! the command.
//!
//! **For**: restrictions that only a process can apply to itself and that bubblewrap does not apply: resource limits,
//! Landlock, the system call filter. They apply to all processes that the command starts, and cannot be undone.
//!
//! **Does not know**: which files are visible; bubblewrap has decided that. It reads no settings and no environment.
//!
//! Reading order: [`stage`] (its command line) → [`descriptors`] → [`limits`] → [`files`] (Landlock) → [`calls`]
//! (seccomp) → `modes` (the rules against set-user-ID files).

pub(crate) mod calls;
pub(crate) mod descriptors;
pub(crate) mod files;
pub(crate) mod limits;
mod modes;
pub(crate) mod stage;

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::set_no_new_privs;

use stage::{Confinement, Stage};

/// Exit code if a restriction was refused or the program cannot be executed, as in shells.
const CANNOT: u8 = 126;

/// Exit code if the program does not exist, as in shells.
const NOT_FOUND: u8 = 127;

/// Restricts this process according to its arguments and executes the program after `--`. `args` are the arguments
/// after `launch`. Returns only on failure; then nothing was executed, and standard error has a line that begins with
/// `belay launch:`. Must be called while the process has a single thread.
///
/// The exit code is 127 if the program does not exist, otherwise 126.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (code, why) = match Stage::parse(args) {
        Err(why) => (CANNOT, why),
        Ok(stage) => match restrict(&stage) {
            Err(why) => (CANNOT, why),
            Ok(()) => become_program(&stage),
        },
    };
    eprintln!("belay launch: {why}");
    ExitCode::from(code)
}

/// Applies the restrictions. Those that need the most permissions to apply come first.
fn restrict(stage: &Stage) -> Result<(), String> {
    if let Confinement::Group(directory) = &stage.confinement {
        // Failure is harmless: the process tree is also found by other means, as on systems without control groups, and
        // the daemon tries again.
        let _ = belay_exec::enter_group(directory);
        return Ok(());
    }
    if matches!(stage.confinement, Confinement::Inside { .. }) {
        still_read()?;
    }
    descriptors::close_all_but(stage.sealed)?;
    die_with_parent(&stage.confinement)?;
    set_no_new_privs(true).map_err(|errno| format!("privileges cannot be given up for good: {errno}"))?;
    if let Confinement::Inside { landlock, files, ports } = &stage.confinement {
        files::restrict(*landlock, *files, ports.as_deref())?;
    }
    if let Some(limits) = &stage.limits {
        limits::restrict(limits)?;
    }
    if matches!(stage.confinement, Confinement::Inside { .. }) {
        calls::restrict()?;
    }
    Ok(())
}

/// Refuses to begin if nobody can read the output any more. The daemon alone reads it, so the daemon is gone. Bubblewrap
/// does not notice that: it asks for the parent-death signal, and does not check whether the parent was gone before. A signal
/// that comes earlier does not help: its second process would wait forever for a first one that is dead.
///
/// Source: poll(2): `POLLERR` is set for the write end of a pipe when the read end has been closed. Any other output
/// lets the command begin.
fn still_read() -> Result<(), String> {
    let stdout = io::stdout();
    let mut output = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    let is_read = poll(&mut output, PollTimeout::ZERO).is_err()
        || !output[0].revents().is_some_and(|found| found.contains(PollFlags::POLLERR));
    if is_read { Ok(()) } else { Err("the daemon that started it is gone".to_owned()) }
}

/// Tells the kernel to send SIGKILL to this process when the thread that started it ends.
fn die_with_parent(confinement: &Confinement) -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| format!("it cannot be tied to the process that started it: {errno}"))?;
    match confinement {
        // The parent may have ended before this request. Then no signal would be sent.
        Confinement::Bare { parent: Some(parent) }
            if getppid().map(|pid| pid.as_raw_pid().cast_unsigned()) != Some(*parent) =>
        {
            Err(format!("process {parent}, which started it, is gone"))
        }
        Confinement::Bare { .. } | Confinement::Group(_) | Confinement::Inside { .. } => Ok(()),
    }
}

fn become_program(stage: &Stage) -> (u8, String) {
    // `Stage::parse` requires a program.
    let [program, args @ ..] = &stage.argv[..] else { return (CANNOT, "no program is given".to_owned()) };
    let error = match stage.sealed {
        // The descriptor stays open: the interpreter of a script reads the script by this path.
        Some(number) => Command::new(format!("/proc/self/fd/{number}")).arg0(program).args(args).exec(),
        None => Command::new(program).args(args).exec(),
    };
    let code = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT };
    (code, format!("{} cannot be started: {error}", program.display()))
}
