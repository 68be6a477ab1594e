//! The last stage before a command: the daemon's own binary, started as `belay launch`, which restricts itself for good
//! and then becomes the command.
//!
//! **For**: what only the process itself can put up, and bubblewrap does not: limits, Landlock, the filter of system
//! calls. Everything holds for all that the command starts, and nothing can be taken back.
//!
//! **Does not know**: which files there are: bubblewrap has decided that. It reads no settings and no environment.
//!
//! Reading order: [`stage`] (its command line) → [`descriptors`] → [`limits`] → [`files`] (Landlock) → [`calls`] (seccomp).

pub(crate) mod calls;
pub(crate) mod descriptors;
pub(crate) mod files;
pub(crate) mod limits;
pub(crate) mod stage;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::set_no_new_privs;

use stage::{Stage, Walls};

/// A restriction was refused, or the program may not be executed, as shells say it.
const CANNOT: u8 = 126;

/// There is no such program, as shells say it.
const NOT_FOUND: u8 = 127;

/// Restricts this process as its arguments say and becomes the program behind `--`. `args` are those behind the word
/// `launch`. Returns only when something failed, having said so on standard error in a line that begins with
/// `belay launch:`; then nothing has been run. To be called while the process has a single thread.
///
/// The code is 127 where there is no such program, else 126.
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

/// In this order: what needs the most freedom comes first.
fn restrict(stage: &Stage) -> Result<(), String> {
    if let Walls::Group(directory) = &stage.walls {
        // Without it the tree is still found by its other ties, as where there are no groups; the daemon tries again.
        let _ = belay_exec::enter_group(directory);
        return Ok(());
    }
    descriptors::close_all_but(stage.sealed)?;
    die_with_parent(&stage.walls)?;
    set_no_new_privs(true).map_err(|errno| format!("privileges cannot be given up for good: {errno}"))?;
    if let Walls::Inside { landlock, files, ports } = &stage.walls {
        files::restrict(*landlock, *files, ports.as_deref())?;
    }
    if let Some(limits) = &stage.limits {
        limits::restrict(limits)?;
    }
    if matches!(stage.walls, Walls::Inside { .. }) {
        calls::restrict()?;
    }
    Ok(())
}

/// The kernel sends KILL when the thread that started this process ends.
fn die_with_parent(walls: &Walls) -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| format!("it cannot be tied to the process that started it: {errno}"))?;
    match walls {
        // It may have ended before the kernel was asked, and then nothing would be sent.
        Walls::Bare { parent: Some(parent) }
            if getppid().map(|pid| pid.as_raw_pid().cast_unsigned()) != Some(*parent) =>
        {
            Err(format!("process {parent}, which started it, is gone"))
        }
        Walls::Bare { .. } | Walls::Group(_) | Walls::Inside { .. } => Ok(()),
    }
}

fn become_program(stage: &Stage) -> (u8, String) {
    // `Stage::parse` gives no stage without a program.
    let [program, args @ ..] = &stage.argv[..] else { return (CANNOT, "no program is given".to_owned()) };
    let error = match stage.sealed {
        // The descriptor stays open: the interpreter of a script reads it by this path.
        Some(number) => Command::new(format!("/proc/self/fd/{number}")).arg0(program).args(args).exec(),
        None => Command::new(program).args(args).exec(),
    };
    let code = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT };
    (code, format!("{} cannot be started: {error}", program.display()))
}
