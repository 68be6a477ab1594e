//! Sends signals to exactly one process, and reaps children that have ended.

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, pidfd_open, pidfd_send_signal, waitid,
    waitpid,
};

use super::exit::Exit;
use super::table::{self, Identity};

/// Sends a signal to a process unless it has ended. Its number may have been given to another process. So the handle is
/// opened first and the start time is compared afterwards, and a wrong process never gets the signal.
pub(super) fn send(to: Identity, signal: Signal) {
    let Ok(handle) = pidfd_open(to.pid, PidfdFlags::empty()) else { return };
    if table::read(to.pid).is_ok_and(|now| now.start == to.start) {
        // The process may have ended in the meantime, or belong to another user (a program that raised its privileges).
        // Nothing can be done here; the verification sees whether it is still alive.
        let _ = pidfd_send_signal(&handle, signal);
    }
}

/// The exit status of a child that has ended. The child stays a zombie, so that its number is not reused.
pub(super) fn peek_exit(child: Pid) -> Option<Exit> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(child), options).ok().flatten().map(|status| exit_of(&status))
}

/// Reaps a child that has ended. Its number may be reused afterwards.
pub(super) fn reap(child: Pid) {
    // A failure needs no handling: the process is not our child, or other code has reaped it.
    let _ = waitpid(Some(child), WaitOptions::NOHANG);
}

fn exit_of(status: &WaitIdStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        // Neither. According to waitid(2), that does not happen for a child that has ended.
        (None, None) => Exit::Ended,
    }
}

/// Waits for a child that has been killed, and reaps it.
pub(super) fn reap_at_once(child: Pid) {
    let _ = waitpid(Some(child), WaitOptions::empty());
}
