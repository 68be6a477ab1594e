//! Attempts to get out. What does no harm is made outside first, to show that only the walls keep it from succeeding.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Stdio;

use belay_tools::sandbox::{Grant, Offers, Policy, SandboxConfig};

use super::support::{ATTACK, Ground, NETWORK, NOTHING, WRITE, Who};

/// Whether an attempt is made outside, too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outside {
    /// It is, and has to succeed there: it does no harm.
    Succeeds,
    /// It is not: it would do harm to this machine, or succeeds only on some kernels or for some users.
    Untried,
}
use Outside::{Succeeds, Untried};

/// Makes each attempt outside, then inside; all that went wrong is told at once.
fn check(ground: &Ground, config: &SandboxConfig, grant: Grant, rows: &[(&[&str], Outside, &[&str])]) {
    let mut wrong = Vec::new();
    for (attempt, outside, answers) in rows {
        let with = |program: &str| {
            let mut argv = vec![program.to_owned()];
            argv.extend(attempt.iter().map(|word| (*word).to_owned()));
            argv
        };
        if *outside == Succeeds {
            let argv = with(ground.attack.to_str().unwrap());
            let control = ground.outside(&argv.iter().map(String::as_str).collect::<Vec<_>>());
            if !control.good() {
                wrong.push(format!("{attempt:?} does not even succeed outside: {control:?}"));
            }
        }
        let argv = with(ATTACK);
        let ran = ground.inside(config, grant, &argv.iter().map(String::as_str).collect::<Vec<_>>());
        if ran.code != Some(1) || !answers.contains(&ran.out.as_str()) {
            wrong.push(format!("{attempt:?} was answered {ran:?} instead of {answers:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_outside_are_not_written_and_secrets_are_not_read() {
    for who in Who::all() {
        let ground = Ground::of(*who);
        let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
        let (new, old) = (path(&ground.outside.join("new")), path(&ground.outside.join("file")));
        let key = path(&ground.secret.join("key"));
        symlink(&key, ground.workspace.join("to-key")).unwrap();
        symlink(&ground.outside, ground.workspace.join("to-outside")).unwrap();
        symlink("..", ground.workspace.join("up")).unwrap();
        let readonly = &["EROFS", "EACCES"][..];
        let gone = &["ENOENT", "EACCES"][..];
        let rows: &[(&[&str], Outside, &[&str])] = &[
            (&["write", &new], Succeeds, readonly),
            (&["write", &old], Succeeds, readonly),
            (&["write", "to-outside/file"], Succeeds, readonly),
            (&["write", "/etc/belay-sandbox-test"], Untried, readonly),
            (&["write", "/belay-sandbox-test"], Untried, readonly),
            (&["write", "/home/belay-sandbox-test"], Untried, readonly),
            (&["write", "/dev/belay-sandbox-test"], Untried, readonly),
            (&["write", "/proc/sys/kernel/hostname"], Untried, readonly),
            (&["write", "/.belay/launch"], Untried, readonly),
            (&["read", &key], Succeeds, gone),
            (&["read", "to-key"], Succeeds, gone),
            (&["read", "up/secret/key"], Succeeds, gone),
            (&["read", "/etc/shadow"], Untried, gone),
            (&["read", concat!("/root", "/.profile")], Untried, gone),
            (&["read", "/dev/mem"], Untried, gone),
            (&["read", "/dev/kmsg"], Untried, gone),
            (&["read", "/proc/kcore"], Untried, &["ENOENT", "EACCES", "EPERM"]),
        ];
        check(&ground, &ground.config(), WRITE, rows);
        assert!(std::fs::read_to_string(&old).unwrap().starts_with('x'), "the control wrote");
        assert_eq!(std::fs::read_to_string(ground.secret.join("key")).unwrap(), "secret");
    }
}

#[test]
fn a_readonly_workspace_is_not_written() {
    for who in Who::all() {
        let ground = Ground::of(*who);
        let config = SandboxConfig { policy: Policy::Readonly, ..ground.config() };
        let rows: &[(&[&str], Outside, &[&str])] =
            &[(&["write", "new"], Succeeds, &["EROFS"]), (&["write", "attack.c"], Succeeds, &["EROFS"])];
        check(&ground, &config, NOTHING, rows);
        // A grant that is narrower than the policy holds.
        check(&ground, &ground.config(), NOTHING, &rows[..1]);
    }
}

#[test]
fn other_processes_are_out_of_sight_and_out_of_reach() {
    for who in Who::all() {
        let ground = Ground::of(*who);
        let canary = format!("canary-{}-{who:?}", std::process::id());
        let daemon = ground.daemon(&canary);
        let pid = daemon.0.id().to_string();
        let rows: &[(&[&str], Outside, &[&str])] = &[
            (&["environ", &canary], Succeeds, &["ENOENT"]),
            // `timeout` belongs to whoever runs the tests.
            (&["signal", &pid], if *who == Who::Me { Succeeds } else { Untried }, &["ESRCH"]),
            (&["ptrace"], Untried, &["EPERM"]),
            (&["process_vm"], Succeeds, &["EPERM"]),
        ];
        check(&ground, &ground.config(), WRITE, rows);
        let config = SandboxConfig { policy: Policy::Full, ..ground.config() };
        check(&ground, &config, WRITE, rows);
    }
}

#[test]
fn nothing_outside_can_be_connected_to_without_the_network() {
    for who in Who::all() {
        let ground = Ground::of(*who);
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port().to_string();
        let control_socket = ground.secret.join("control.sock");
        let _unix = UnixListener::bind(&control_socket).unwrap();
        std::fs::set_permissions(&control_socket, PermissionsExt::from_mode(0o777)).unwrap();
        let name = format!("belay-sandbox-{}-{who:?}", std::process::id());
        let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let control_socket = control_socket.to_str().unwrap();
        let rows: &[(&[&str], Outside, &[&str])] = &[
            (&["tcp", &port], Succeeds, &["ECONNREFUSED"]),
            (&["unix", control_socket], Succeeds, &["ENOENT", "EACCES"]),
            (&["abstract", &name], Succeeds, &["ECONNREFUSED", "EPERM"]),
            (&["vsock"], Untried, &["EPERM"]),
            (&["packet"], Untried, &["EPERM"]),
        ];
        check(&ground, &ground.config(), WRITE, rows);
    }
}

#[test]
fn with_the_network_only_the_ports_of_the_list_are_within_reach() {
    let landlock = Offers::look(&SandboxConfig::default()).landlock;
    assert!(landlock >= Some(4), "this test needs Landlock with ports (Linux 6.7), found {landlock:?}");
    for who in Who::all() {
        let ground = Ground::of(*who);
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [open, closed] = [0, 1].map(|which: usize| listeners[which].local_addr().unwrap().port());
        let config = SandboxConfig { network: true, ports: vec![open], ..ground.config() };
        let name = format!("belay-network-{}-{who:?}", std::process::id());
        let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let closed = closed.to_string();
        check(&ground, &config, NETWORK, &[(&["tcp", &closed], Succeeds, &["EACCES"])]);
        // Abstract sockets belong to the network namespace, which is shared here.
        if landlock >= Some(6) {
            check(&ground, &config, NETWORK, &[(&["abstract", &name], Succeeds, &["EPERM"])]);
        }
        assert!(ground.inside(&config, NETWORK, &[ATTACK, "tcp", &open.to_string()]).good());
        // What the settings allow is still not what every command is granted.
        let without = ground.inside(&config, WRITE, &[ATTACK, "tcp", &open.to_string()]);
        assert_eq!((without.code, without.out.as_str()), (Some(1), "ECONNREFUSED"));
        let any = SandboxConfig { ports: Vec::new(), ..config };
        assert!(ground.inside(&any, NETWORK, &[ATTACK, "tcp", &closed]).good());
    }
}

#[test]
fn calls_that_open_doors_are_refused() {
    let refused = &["EPERM"][..];
    let unknown = &["ENOSYS"][..];
    let rows: &[(&[&str], Outside, &[&str])] = &[
        (&["unshare"], Succeeds, refused),
        (&["mount"], Succeeds, refused),
        (&["mount-bare"], Untried, refused),
        (&["clone"], Succeeds, refused),
        (&["clone3"], Succeeds, unknown),
        (&["setns"], Untried, refused),
        (&["keyctl"], Untried, refused),
        (&["add-key"], Untried, refused),
        (&["bpf"], Untried, refused),
        (&["perf"], Untried, refused),
        (&["userfaultfd"], Untried, refused),
        (&["io_uring"], Untried, refused),
        (&["handle"], Untried, refused),
        (&["personality"], Succeeds, refused),
        (&["x32"], Untried, unknown),
        (&["unknown"], Untried, unknown),
    ];
    for who in Who::all() {
        let ground = Ground::of(*who);
        check(&ground, &ground.config(), WRITE, rows);
        let full = SandboxConfig { policy: Policy::Full, ..ground.config() };
        check(&ground, &full, WRITE, rows);
    }
}

#[test]
fn a_program_of_roots_gains_nothing() {
    let who = Who::without_rights();
    let ground = Ground::of(who);
    if who == Who::Nobody {
        std::os::unix::fs::chown(&ground.attack, Some(0), Some(0)).unwrap();
        std::fs::set_permissions(&ground.attack, PermissionsExt::from_mode(0o4755)).unwrap();
    }
    // Only root can make such a program, and not on a file system without them.
    check(&ground, &ground.config(), WRITE, &[(&["root"], Untried, &["EPERM"])]);
}

#[test]
fn nothing_is_typed_into_the_terminal_of_the_caller() {
    let ground = Ground::of(Who::Me);
    let terminal = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY).unwrap();
    rustix::pty::grantpt(&terminal).unwrap();
    rustix::pty::unlockpt(&terminal).unwrap();
    let name = rustix::pty::ptsname(&terminal, Vec::new()).unwrap();
    let open = || std::fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    for attempt in ["type", "type-long"] {
        let launch = ground.launch(&ground.config(), WRITE, &[ATTACK, attempt]);
        let ran = ground.command(&launch).stdin(Stdio::from(open())).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), "EPERM", "{attempt}");
    }
}

#[test]
fn open_files_of_the_daemon_are_not_inherited() {
    for who in Who::all() {
        let ground = Ground::of(*who);
        let key = ground.secret.join("key");
        let leak = |program: &str, args: &[&str]| {
            // A shell leaves a descriptor open, as a careless starter of the daemon would.
            let line = format!("exec 7<{}; exec \"$0\" \"$@\"", key.display());
            ground.outside(&[&["sh", "-c", &line, program], args].concat())
        };
        assert!(leak(ground.attack.to_str().unwrap(), &["inherited"]).good(), "the control");
        let launch = ground.launch(&ground.config(), WRITE, &[ATTACK, "inherited"]);
        let args: Vec<_> = launch.args.iter().map(|arg| arg.to_str().unwrap()).collect();
        let ran = leak(launch.program.to_str().unwrap(), &args);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), "EBADF"), "{who:?}: {ran:?}");
    }
}

/// A directory where Landlock lets nothing be written: not below a temporary one, wherever this repository lies.
fn outside_of_temporary_directories() -> tempfile::TempDir {
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
    let usual = [env!("CARGO_TARGET_TMPDIR"), "/var/lib", "/var/cache", "/srv", "/opt"].map(std::path::PathBuf::from);
    let temporary = ["/tmp", "/var/tmp", "/dev"];
    let places = usual.into_iter().chain(home).filter_map(|place| std::fs::canonicalize(place).ok());
    let mut outside = places.filter(|place| !temporary.iter().any(|temporary| place.starts_with(temporary)));
    outside
        .find_map(|place| tempfile::tempdir_in(place).ok())
        .expect("a directory that may be written, outside of /tmp")
}

/// Should bubblewrap have built something wrong, the last stage is still a wall.
#[test]
fn the_last_stage_alone_keeps_files_and_processes_safe() {
    let ground = Ground::of(Who::Me);
    let outside = outside_of_temporary_directories();
    let file = outside.path().join("file");
    let daemon = ground.daemon(&format!("alone-{}", std::process::id()));
    let (file, pid) = (file.to_str().unwrap(), daemon.0.id().to_string());
    let limits =
        ["--memory-mb", "256", "--processes", "4096", "--open-files", "64", "--file-mb", "1", "--cpu-s", "60", "--"];
    let stage = [ground.launcher().to_str().unwrap(), "launch", "--files", "workspace", "--landlock", "required"];
    let attack = ground.attack.to_str().unwrap();
    let mut rows = vec![(["write", file], "EACCES"), (["mount", ""], "EPERM"), (["keyctl", ""], "EPERM")];
    if Offers::look(&SandboxConfig::default()).landlock >= Some(6) {
        rows.push((["signal", &pid], "EPERM"));
    }
    for (attempt, answer) in rows {
        let ran = ground.outside(&[&stage[..], &limits, &[attack], &attempt].concat());
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), answer), "{attempt:?}: {ran:?}");
    }
    for attempt in [["write", file], ["signal", &pid]] {
        assert!(ground.outside(&[&[attack][..], &attempt].concat()).good(), "{attempt:?}: the control");
    }
}
