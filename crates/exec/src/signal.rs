//! Signals to one process, and nobody else; and the last look at children that have ended.

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, pidfd_open, pidfd_send_signal, waitid,
    waitpid,
};

use super::exit::Exit;
use super::table::{self, Identity};

/// Sends a signal to a process, unless it has ended. The number may have gone to another one since it was seen: the
/// handle is taken first and the start compared after, so that a stranger is never reached.
pub(super) fn send(to: Identity, signal: Signal) {
    let Ok(handle) = pidfd_open(to.pid, PidfdFlags::empty()) else { return };
    if table::read(to.pid).is_ok_and(|now| now.start == to.start) {
        // It may have ended meanwhile, or be of another user (a program that raised its rights): nothing to do here. Who
        // verifies sees whether it is still alive.
        let _ = pidfd_send_signal(&handle, signal);
    }
}

/// How a child has ended, if it has. It stays a zombie, so that its number stays taken.
pub(super) fn look(child: Pid) -> Option<Exit> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(child), options).ok().flatten().map(|status| exit_of(&status))
}

/// Takes the last look at a child that has ended: its number is free afterwards.
pub(super) fn reap(child: Pid) {
    // Nothing to be done about a failure: then it is no child of ours, or somebody has been quicker.
    let _ = waitpid(Some(child), WaitOptions::NOHANG);
}

fn exit_of(status: &WaitIdStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        // Neither, which waitid(2) rules out for a child that has ended.
        (None, None) => Exit::Ended,
    }
}

/// Waits for a child that has been killed, and takes the last look.
pub(super) fn reap_at_once(child: Pid) {
    let _ = waitpid(Some(child), WaitOptions::empty());
}
