//! What a killed daemon has left is ended by the next start.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use crate::Home;

#[test]
fn a_start_kills_what_a_killed_daemon_has_left_before_it_is_ready() {
    let home = Home::new();
    let namespace = std::fs::metadata("/proc/self/ns/pid").unwrap().ino();
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    // The mark of a daemon that is gone: even if another process has got its number, it has not started with the machine.
    let mark = format!("{namespace}.{}.1.left", gone.id());
    let mut left = Command::new("sleep").arg("1000").env(belay_exec::MARK, mark).spawn().unwrap();
    let daemon = home.daemon();
    let killed = left.try_wait().unwrap().and_then(|status| status.signal());
    let _ = left.kill(); // for the case that it lives
    left.wait().unwrap();
    assert_eq!(killed, Some(9));
    daemon.signal("TERM");
    assert_eq!(daemon.ended().0, Some(0));
}
