//! A place with a workspace, things that must not be reached, and people who try.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use belay_exec::{self as process, Launch};
use belay_tools::sandbox::{Grant, Sandbox, SandboxConfig};
use tempfile::TempDir;

/// Longest wait for what a test expects; it only decides how long a failing test takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Seconds until whatever a test runs is ended from outside.
const RUN_LIMIT_S: &str = "60";

/// Reads nothing and writes nothing outside.
pub(crate) const NOTHING: Grant = Grant { network: false, write: false };
/// Writes to the workspace.
pub(crate) const WRITE: Grant = Grant { network: false, write: true };
/// Writes to the workspace and has the network.
pub(crate) const NETWORK: Grant = Grant { network: true, write: true };

/// Who tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// Whoever runs the tests.
    Me,
    /// A user without any rights.
    Nobody,
}

/// The one id that is nobody's on every Linux.
const ASKS_NOBODY: u32 = 65534;

impl Who {
    /// Everybody who can try: only root can be somebody else.
    pub(crate) fn all() -> &'static [Self] {
        if rustix::process::geteuid().is_root() { &[Self::Me, Self::Nobody] } else { &[Self::Me] }
    }

    /// Somebody who is not root.
    pub(crate) fn without_rights() -> Self {
        if rustix::process::geteuid().is_root() { Self::Nobody } else { Self::Me }
    }

    /// A command of theirs that ends in the end, whatever it does.
    pub(crate) fn command(self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=1", RUN_LIMIT_S]);
        if self == Self::Nobody {
            command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        }
        command.arg(program).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").stdin(Stdio::null());
        command
    }
}

/// A directory of a test: `workspace`, `outside` (anybody's business, may be read) and `secret` (hidden from commands).
pub(crate) struct Ground {
    base: TempDir,
    who: Who,
    pub(crate) workspace: PathBuf,
    pub(crate) outside: PathBuf,
    pub(crate) secret: PathBuf,
    /// The program of `attack.c`, outside.
    pub(crate) attack: PathBuf,
    launcher: PathBuf,
    /// Sandboxes that have been tried already.
    tried: RefCell<Vec<(SandboxConfig, Sandbox)>>,
}

/// Where `attack` lies inside.
pub(crate) const ATTACK: &str = "/workspace/attack";

impl Ground {
    pub(crate) fn of(who: Who) -> Self {
        let base = tempfile::Builder::new().prefix("belay-sandbox-").tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        for directory in ["workspace", "outside", "secret"] {
            std::fs::create_dir(at(directory)).unwrap();
        }
        std::fs::write(at("outside/file"), "public").unwrap();
        std::fs::write(at("secret/key"), "secret").unwrap();
        // A copy, since the directory of the build may be out of reach for others.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_belay-launch")).arg(at("launcher")).status();
        assert!(copied.unwrap().success());
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/confined/sandbox/attack.c");
        let compiled = Command::new("cc").arg("-o").arg(at("workspace/attack")).arg(source).status();
        assert!(compiled.expect("these tests need a C compiler, cc").success());
        for (path, mode) in [("", 0o755), ("launcher", 0o755), ("secret", 0o700), ("secret/key", 0o600)] {
            std::fs::set_permissions(at(path), PermissionsExt::from_mode(mode)).unwrap();
        }
        if who == Who::Nobody {
            for path in ["workspace", "workspace/attack", "outside", "outside/file", "secret", "secret/key"] {
                chown(at(path), Some(ASKS_NOBODY), Some(ASKS_NOBODY)).unwrap();
            }
        }
        let [workspace, outside, secret, attack, launcher] =
            ["workspace", "outside", "secret", "workspace/attack", "launcher"].map(at);
        Self { base, who, workspace, outside, secret, attack, launcher, tried: RefCell::default() }
    }

    /// Settings under which `outside` can be seen and `secret` cannot.
    pub(crate) fn config(&self) -> SandboxConfig {
        SandboxConfig {
            show: vec![self.base.path().to_owned()],
            hide: vec![self.secret.clone()],
            ..SandboxConfig::default()
        }
    }

    pub(crate) fn sandbox(&self, config: &SandboxConfig) -> Sandbox {
        if let Some((_, sandbox)) = self.tried.borrow().iter().find(|(tried, _)| tried == config) {
            return sandbox.clone();
        }
        match Sandbox::probe(config, &self.workspace, &self.launcher) {
            Ok(sandbox) => {
                self.tried.borrow_mut().push((config.clone(), sandbox.clone()));
                sandbox
            }
            Err(missing) => panic!("these tests need a sandbox that works (apt install bubblewrap): {missing}"),
        }
    }

    pub(crate) fn launcher(&self) -> &Path {
        &self.launcher
    }

    /// What would run this inside.
    pub(crate) fn launch(&self, config: &SandboxConfig, grant: Grant, argv: &[&str]) -> Launch {
        self.sandbox(config).wrap(plain(&self.workspace, argv), grant).unwrap()
    }

    /// A command that does what `launch` says.
    pub(crate) fn command(&self, launch: &Launch) -> Command {
        let mut command = self.who.command(&launch.program);
        command.args(&launch.args).env_clear().envs(launch.env.iter().cloned()).current_dir(&launch.directory);
        // `timeout` and `setpriv` are looked for in it, too.
        command
    }

    /// Runs this inside.
    pub(crate) fn inside(&self, config: &SandboxConfig, grant: Grant, argv: &[&str]) -> Ran {
        self.command(&self.launch(config, grant, argv)).output().unwrap().into()
    }

    /// Runs a shell script inside, with the usual settings.
    pub(crate) fn shell(&self, grant: Grant, script: &str) -> Ran {
        self.inside(&self.config(), grant, &["sh", "-c", script])
    }

    /// Runs this outside, as the same user: what shows that an attempt would succeed without the walls.
    pub(crate) fn outside(&self, argv: &[&str]) -> Ran {
        self.who.command(argv[0]).args(&argv[1..]).current_dir(&self.workspace).output().unwrap().into()
    }

    /// A process of the same user outside, as the daemon is one, with this in its environment.
    pub(crate) fn daemon(&self, canary: &str) -> Running {
        let mut command = self.who.command("sh");
        command.args(["-c", "echo ready; exec sleep 1000"]).env("CANARY", canary).stdout(Stdio::piped());
        let mut running = Running(command.spawn().unwrap());
        let mut ready = [0; 6];
        running.0.stdout.take().unwrap().read_exact(&mut ready).unwrap();
        assert_eq!(&ready, b"ready\n");
        running
    }
}

/// A process as it is, without walls.
pub(crate) fn plain(directory: &Path, argv: &[&str]) -> Launch {
    Launch {
        program: argv[0].into(),
        args: argv[1..].iter().map(Into::into).collect(),
        env: Vec::new(),
        directory: directory.to_owned(),
        stdin: process::Stdin::Null,
        isolated: false,
        sealed: None,
    }
}

/// How something ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn good(&self) -> bool {
        self.code == Some(0)
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// A process that ends with the test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended; the test is over either way. `timeout` passes TERM on, and a monitor ends all below it.
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Waits until something holds; panics with these words when it does not.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The processes of this machine that have this among their arguments, as they are outside.
pub(crate) fn processes_with(argument: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes())
    })
    .collect()
}

/// Writes an executable script.
///
/// A program of its own writes it, as another copies the last stage: were a file open for writing in this process, another
/// test could start something at that moment, which would keep it open, and a file that is open cannot be executed.
pub(crate) fn script(path: &Path, text: &str) {
    let write = "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"";
    assert!(Command::new("sh").arg("-c").arg(write).arg(path).arg(text).status().unwrap().success());
}
