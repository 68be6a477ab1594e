//! The sandbox, with the real bubblewrap and the real last stage.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use belay_tools::process::{Launch, Stdin};
use belay_tools::sandbox::{Grant, Sandbox, SandboxConfig};

#[test]
fn smoke() {
    let dir = tempfile::tempdir().unwrap();
    let config = SandboxConfig::default();
    let sandbox = Sandbox::probe(&config, dir.path(), Path::new(env!("CARGO_BIN_EXE_belay-launch"))).unwrap();
    let inner = Launch {
        program: "sh".into(),
        args: vec!["-c".into(), std::env::var_os("SMOKE").unwrap_or("id; ls -la / /workspace /run /home; cat /proc/mounts; cat /proc/self/status; ls -l /proc/self/fd; env; echo hi > /workspace/x; echo hi >/tmp/y; ls /; ps aux; ulimit -a".into())],
        env: vec![],
        directory: dir.path().into(),
        stdin: Stdin::Null,
        isolated: false,
    };
    let launch = sandbox.wrap(inner, Grant { network: false, write: true }).unwrap();
    println!("{:?}", launch.args);
    let out = Command::new(&launch.program).args(&launch.args).env_clear().envs(launch.env).output().unwrap();
    println!("{}\n{}\n{}", out.status, String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
}
