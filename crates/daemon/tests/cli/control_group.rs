//! The control socket of a group: members are operators, and others are told that they may not ask. Run by root, which alone
//! can be somebody else.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::{Home, stderr};

/// A group that no user of a machine is in.
const GROUP: &str = "4711";

/// Runs a command of the binary as a user of no account, in this group.
fn as_nobody(binary: &Path, group: &str, socket: &Path, args: &[&str]) -> Output {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65533", "--regid", "65533", "--groups", group, "--"]).arg(binary).args(args).env_clear();
    command.env("HOME", "/nonexistent").env("RUNTIME_DIRECTORY", socket.parent().unwrap());
    command.output().unwrap()
}

/// The binary where everybody may start it.
fn reachable(home: &Home) -> PathBuf {
    let binary = home.0.path().join("belay");
    let built = Path::new(env!("CARGO_BIN_EXE_belay"));
    std::fs::hard_link(built, &binary).or_else(|_| std::fs::copy(built, &binary).map(drop)).unwrap();
    binary
}

#[test]
fn members_of_the_group_are_operators_and_others_are_told_permission_denied() {
    if !rustix::process::geteuid().is_root() {
        return; // nobody else can be played
    }
    let home = Home::new();
    let open = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    open(home.0.path());
    let binary = reachable(&home);
    let runtime = home.0.path().join("run");
    std::fs::create_dir(&runtime).unwrap();
    open(&runtime);
    let socket = runtime.join("control.sock");
    let group = format!("gateway.control_group={GROUP}");
    let daemon = home.daemon_with(|command| {
        command.env("RUNTIME_DIRECTORY", &runtime).args(["--set", &group]);
    });
    let file = std::fs::metadata(&socket).unwrap();
    assert_eq!((file.mode() & 0o777, file.gid()), (0o660, 4711));

    let url = format!("unix:{}", socket.display());
    for args in [vec!["status"], vec!["runs"], vec!["status", "--url", &url], vec!["runs", "--url", &url]] {
        let denied = as_nobody(&binary, "65533", &socket, &args);
        let said = stderr(&denied);
        assert_eq!(denied.status.code(), Some(69), "{args:?}: {said}");
        let expected = format!("permission denied on the control socket {}", socket.display());
        assert!(said.contains(&expected) && said.contains("member of the group 4711"), "{args:?}: {said}");
        let member = as_nobody(&binary, GROUP, &socket, &args);
        assert_eq!(member.status.code(), Some(0), "{args:?}: {}", stderr(&member));
    }
    let ended = as_nobody(&binary, GROUP, &socket, &["shutdown"]);
    assert_eq!(ended.status.code(), Some(0), "a member is an operator: {}", stderr(&ended));
    assert_eq!(daemon.ended().0, Some(0));
}

#[test]
fn a_group_whose_members_cannot_reach_the_socket_is_refused() {
    let home = Home::new();
    let group = rustix::process::getegid().as_raw().to_string();
    let set = format!("gateway.control_group={group}");
    let sets = ["--set", "llm.provider=rehearsal", "--set", "gateway.listen=off", "--set", &set];
    let output = home.run(&[&["run"][..], &sets].concat());
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.contains("gateway.control_group") && said.contains("cannot reach"), "{said}");
}
