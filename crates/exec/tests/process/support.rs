//! What these tests share: scripts, marks to find their processes by, and patience.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use belay_exec::{CgroupUse, Launch, Processes, ProcessesConfig, Running, Stdin};
use belay_protocol::{Generation, RunId};
use tokio::io::AsyncReadExt;

/// Longest wait for anything. Each ends as soon as what it waits for has happened.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Keeps processes without control groups: every tie but that one.
pub(crate) fn processes() -> Processes {
    Processes::new(ProcessesConfig { cgroup: CgroupUse::Off, ..ProcessesConfig::default() }).unwrap()
}

/// This program with these arguments, in an environment of nothing but a path.
pub(crate) fn launch(program: &str, args: &[&str]) -> Launch {
    Launch {
        program: program.into(),
        args: args.iter().map(OsString::from).collect(),
        env: vec![("PATH".into(), std::env::var_os("PATH").unwrap())],
        directory: "/".into(),
        stdin: Stdin::Null,
        isolated: false,
        sealed: None,
    }
}

/// A shell script.
pub(crate) fn sh(script: &str) -> Launch {
    launch("sh", &["-c", script])
}

/// Tells a script the file for the numbers of its processes.
pub(crate) fn with_pids(mut launch: Launch, file: &Path) -> Launch {
    launch.env.push(("PIDS".into(), file.into()));
    launch
}

/// Starts a program for a run of its own.
pub(crate) async fn start(processes: &Processes, launch: Launch) -> Running {
    processes.start(launch, RunId::new(), &Generation::default(), "a test").await.unwrap()
}

/// What a program writes to standard output and standard error, to the end.
pub(crate) async fn output(running: &mut Running) -> (String, String) {
    let (mut stdout, mut stderr) = running.take_output().unwrap();
    let (mut out, mut err) = (String::new(), String::new());
    let both = async { tokio::try_join!(stdout.read_to_string(&mut out), stderr.read_to_string(&mut err)).unwrap() };
    tokio::time::timeout(PATIENCE, both).await.unwrap();
    (out, err)
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "{what} did not happen within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The numbers in a file, one a line; none while there is no file.
pub(crate) fn numbers(file: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(|line| line.trim().parse().unwrap()).collect()
}

/// Whether a process of that number is there, also as a zombie.
pub(crate) fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}
