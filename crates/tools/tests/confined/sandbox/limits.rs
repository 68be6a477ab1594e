//! Limits: each with a control that stays below it.

use belay_tools::sandbox::{Policy, SandboxConfig};

use super::support::{ATTACK, Ground, WRITE, Who};

/// Small limits, so that going beyond them hurts nobody.
fn small(ground: &Ground) -> SandboxConfig {
    SandboxConfig { memory_mb: 64, processes: 16, open_files: 64, file_mb: 2, tmp_mb: 1, ..ground.config() }
}

#[test]
fn what_goes_beyond_a_limit_fails_and_what_stays_below_does_not() {
    for who in Who::all() {
        let ground = Ground::of(*who);
        let rows: &[(&[&str], &[&str], &[&str])] = &[
            (&["memory", "8"], &["memory", "256"], &["ENOMEM"]),
            (&["file", "/workspace/big", "1"], &["file", "/workspace/big", "4"], &["EFBIG"]),
            (&["file", "/tmp/small", "0"], &["file", "/tmp/big", "2"], &["ENOSPC"]),
            (&["file", "/dev/shm/small", "0"], &["file", "/dev/shm/big", "2"], &["ENOSPC"]),
            (&["open", "32"], &["open", "128"], &["EMFILE"]),
        ];
        let config = small(&ground);
        for (below, beyond, answers) in rows {
            let run = |attempt: &[&str]| ground.inside(&config, WRITE, &[&[ATTACK], attempt].concat());
            let fine = run(below);
            assert!(fine.good(), "{who:?} {below:?}: {fine:?}");
            let refused = run(beyond);
            assert_eq!(refused.code, Some(1), "{who:?} {beyond:?}: {refused:?}");
            assert!(answers.contains(&refused.out.as_str()), "{who:?} {beyond:?}: {refused:?}");
        }
    }
}

/// The kernel does not count the processes of root.
#[test]
fn a_user_without_rights_does_not_start_more_processes_than_the_limit() {
    let ground = Ground::of(Who::without_rights());
    let run = |count: &str| ground.inside(&small(&ground), WRITE, &[ATTACK, "fork", count]);
    assert!(run("4").good());
    let many = run("64");
    assert_eq!((many.code, many.out.as_str()), (Some(1), "EAGAIN"));
    let attack = ground.attack.to_str().unwrap();
    assert!(ground.outside(&[attack, "fork", "64"]).good(), "the control");
}

#[test]
fn a_command_that_only_computes_is_ended() {
    let ground = Ground::of(Who::Me);
    let config = SandboxConfig { cpu_s: 1, ..ground.config() };
    let ran = ground.inside(&config, WRITE, &[ATTACK, "spin", "20"]);
    // 128 + XCPU, as bubblewrap passes signals on.
    assert_eq!(ran.code, Some(152), "{ran:?}");
}

#[test]
fn limits_hold_without_walls_too() {
    for who in Who::all() {
        let ground = Ground::of(*who);
        let config = SandboxConfig { policy: Policy::Off, ..small(&ground) };
        let attack = ground.attack.to_str().unwrap();
        // The parent is checked: started by `timeout` and not by these tests, the stage refuses.
        let ran = ground.inside(&config, WRITE, &[attack, "memory", "256"]);
        assert_eq!(ran.code, Some(126), "{ran:?}");
        assert!(ran.err.starts_with("belay launch: process "), "{ran:?}");
    }
    let ground = Ground::of(Who::Me);
    let config = SandboxConfig { policy: Policy::Off, ..small(&ground) };
    let attack = ground.attack.to_str().unwrap();
    for (megabytes, code) in [("8", 0), ("256", 1)] {
        let launch = ground.launch(&config, WRITE, &[attack, "memory", megabytes]);
        let status = std::process::Command::new(&launch.program).args(&launch.args).output().unwrap().status;
        assert_eq!(status.code(), Some(code), "{megabytes} MiB");
    }
}
