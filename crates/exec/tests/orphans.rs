//! Orphans that come while nothing is kept. A process of its own: the keepers of other tests would reap them too.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use belay_exec::{CgroupUse, Processes, ProcessesConfig};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// Real processes, whose end is waited for: time is not paused.
#[tokio::test]
async fn an_orphan_of_a_program_that_was_started_elsewhere_leaves_no_zombie_while_nothing_is_kept() {
    let config = ProcessesConfig { cgroup: CgroupUse::Off, ..ProcessesConfig::default() };
    let processes = Processes::new(config).unwrap();
    let looked = async {
        tokio::time::sleep(Duration::from_millis(10)).await; // the reaper waits for signals by now
        // As bubblewrap's init may: it ends after its parent, in a session of its own.
        let output = Command::new("sh")
            .args(["-c", "setsid sh -c 'echo $$; exec sleep 0.2 >/dev/null 2>&1' &"])
            .output()
            .unwrap();
        let orphan = format!("/proc/{}", String::from_utf8(output.stdout).unwrap().trim());
        let begin = Instant::now();
        while Path::new(&orphan).exists() {
            assert!(begin.elapsed() < PATIENCE, "{orphan} is still there");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = looked => {}
        never = processes.reap_orphans() => match never {},
    }
}
