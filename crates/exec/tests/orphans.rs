//! Orphans without any tie to their tree. One process adopts all of them, so a second reaper in it would take them for
//! its own: these tests have a program of their own, and run one after the other.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use belay_exec::{CgroupUse, Processes, ProcessesConfig};
use tokio::sync::Mutex;

use support::{exists, numbers, processes, sh, start, until, with_pids};

#[expect(dead_code, reason = "shared with the tests of processes, which use the rest")]
#[path = "process/support.rs"]
mod support;

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Real processes, whose end is waited for: time is not paused.
#[tokio::test]
async fn an_orphan_of_a_program_that_was_started_elsewhere_leaves_no_zombie_while_nothing_is_kept() {
    let _alone = ALONE.lock().await;
    let config = ProcessesConfig { cgroup: CgroupUse::Off, ..ProcessesConfig::default() };
    let processes = Processes::new(config).unwrap();
    let looked = async {
        // As bubblewrap's init may: it ends after its parent, in a session of its own.
        let output = Command::new("sh")
            .args(["-c", "setsid sh -c 'echo $$; exec sleep 0.2 >/dev/null 2>&1' &"])
            .output()
            .unwrap();
        let orphan = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        until("the reaping of the orphan", || !exists(orphan)).await;
    };
    tokio::select! {
        biased; // the reaper waits for signals before the orphan begins
        never = processes.reap_orphans() => match never {},
        () = looked => {}
    }
}

#[tokio::test]
async fn what_lost_every_tie_ends_with_the_last_tree_it_could_be_of() {
    let _alone = ALONE.lock().await;
    let processes = processes();
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let mut other = start(&processes, sh("sleep 1000")).await;
    let script = "env -i PIDS=$PIDS setsid -f sh -c 'echo $$ >>$PIDS; exec sleep 1000'; sleep 1000";
    let mut running = start(&processes, with_pids(sh(script), &pids)).await;
    until("the stray", || !numbers(&pids).is_empty()).await;
    let stray = numbers(&pids)[0];
    running.end().await;
    other.end().await;
    until("the end of the stray", || !exists(stray)).await;
}

/// Enters the control group as the daemon's launcher does, and becomes the program.
const LAUNCHER: &str = r#"#!/bin/sh
case $2 in
--group) echo $$ >"$3/cgroup.procs"; shift 4 ;;
--bare) shift 5 ;;
esac
exec "$@"
"#;

#[tokio::test]
async fn orphans_that_ended_before_anybody_looked_are_reaped_with_their_tree() {
    let _alone = ALONE.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let launcher = dir.path().join("launcher");
    std::fs::write(&launcher, LAUNCHER).unwrap();
    std::fs::set_permissions(&launcher, std::fs::Permissions::from_mode(0o700)).unwrap();
    for cgroup in [CgroupUse::Auto, CgroupUse::Off] {
        let config = ProcessesConfig { cgroup, launcher: Some(launcher.clone()), ..ProcessesConfig::default() };
        let processes = Processes::new(config).unwrap();
        for round in 0..10 {
            let pids = dir.path().join(format!("{cgroup:?} {round}"));
            let script = "env -i PIDS=\"$PIDS\" setsid -f sh -c 'echo $$ >>\"$PIDS\"'; sleep 1000";
            let mut running = start(&processes, with_pids(sh(script), &pids)).await;
            until("the orphan", || !numbers(&pids).is_empty()).await;
            running.end().await;
            assert!(!numbers(&pids).into_iter().any(exists), "{cgroup:?}, round {round}");
        }
    }
}
