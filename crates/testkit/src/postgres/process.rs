//! The process of the server, and the supervisor that ends it with the test process.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::account::Account;

/// Starts the server and prints its process id. The supervisor waits for the server and ends with it.
///
/// The test process holds the other end of standard input. When that process has ended, also by SIGKILL, the supervisor ends
/// the server and removes the folder. PR_SET_PDEATHSIG would not do: it fires at the end of the thread that started the
/// process, and each test has a thread of its own.
const SUPERVISOR: &str = r#"
folder=$PWD
exec 3<&0
"$@" </dev/null >&2 3<&- &
server=$!
echo "$server"
exec >&2
( while read -r _; do :; done <&3; : >"$folder/abandoned"; kill -QUIT "$server" ) &
watcher=$!
exec 3<&-
wait "$server"
status=$?
if [ -e "$folder/abandoned" ]; then cd / && rm -rf "$folder"; else kill "$watcher"; fi
exit "$status"
"#;

/// Time between two looks at a condition of another process.
const POLL: Duration = Duration::from_millis(5);

/// A running server.
#[derive(Debug)]
pub(super) struct Process {
    supervisor: Child,
    server: Pid,
    /// The pipe that the supervisor watches. Apart from the child, because `Child::wait` closes the child's input first.
    _alive: ChildStdin,
}

impl Process {
    /// Starts `postgres` with these arguments, and waits until it accepts connections. It writes to `log`.
    ///
    /// # Errors
    /// The server has ended instead; the error has what it wrote.
    pub(super) fn start(account: Account, folder: &Path, postgres: &Path, arguments: &[String]) -> Result<Self> {
        let log = folder.join("log");
        let written_before = fs::metadata(&log).map_or(0, |log| log.len());
        let output = File::options().create(true).append(true).open(&log).context("the log cannot be opened")?;
        let mut command = account.command(Path::new("/bin/sh"), folder);
        // A group of its own: Ctrl-C on the terminal ends the test process, and the supervisor then cleans up.
        command.args(["-c", SUPERVISOR, "supervisor"]).arg(postgres).args(arguments).process_group(0);
        let mut supervisor =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(output).spawn().context("/bin/sh")?;
        let alive = supervisor.stdin.take().context("the supervisor has an input")?;
        let mut line = String::new();
        let stdout = supervisor.stdout.take().context("the supervisor has an output")?;
        BufReader::new(stdout).read_line(&mut line).context("the supervisor's output")?;
        let server = line.trim().parse().ok().and_then(Pid::from_raw);
        let server = server.with_context(|| format!("the supervisor printed {line:?} instead of a process id"))?;
        let mut process = Self { supervisor, server, _alive: alive };
        while !process.accepts_connections(folder) {
            if let Some(status) = process.supervisor.try_wait().context("the supervisor")? {
                let log = fs::read(&log).unwrap_or_default();
                let written = log.get(usize::try_from(written_before)?..).unwrap_or_default();
                bail!("PostgreSQL did not start ({status}): {}", String::from_utf8_lossy(written).trim());
            }
            thread::sleep(POLL);
        }
        Ok(process)
    }

    /// Whether the file that the server keeps for `pg_ctl` says so. The file of a killed server has another process id.
    ///
    /// Source: `src/include/utils/pidfile.h` of PostgreSQL: the id is line 1, the status line 8.
    fn accepts_connections(&self, folder: &Path) -> bool {
        let text = fs::read_to_string(folder.join("data/postmaster.pid")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let of_this_server = lines.first().is_some_and(|pid| *pid == self.server.as_raw_nonzero().to_string());
        of_this_server && lines.get(7).is_some_and(|status| matches!(*status, "ready" | "standby"))
    }

    /// Sends the signal and waits for the end of the server.
    pub(super) fn end(mut self, signal: Signal) -> Result<ExitStatus> {
        kill_process(self.server, signal).context("the server cannot be signalled")?;
        self.supervisor.wait().context("the supervisor")
    }

    /// Kills the server with all its processes at once, as the end of the machine's power would.
    pub(super) fn kill(mut self) -> Result<()> {
        // A stopped server starts no process that the list would not have.
        kill_process(self.server, Signal::STOP).context("the server cannot be stopped")?;
        while !matches!(state_and_parent(self.server), None | Some(('T' | 'Z', _))) {
            thread::sleep(POLL);
        }
        let children = children(self.server)?;
        for process in children.iter().copied().chain([self.server]) {
            // A child may have ended by itself.
            if let Err(error) = kill_process(process, Signal::KILL) {
                tolerate_ended(error)?;
            }
        }
        self.supervisor.wait().context("the supervisor")?;
        // Until its last process has ended, the shared memory keeps the data directory from a new server.
        while children.iter().any(|child| !matches!(state_and_parent(*child), None | Some(('Z', _)))) {
            thread::sleep(POLL);
        }
        Ok(())
    }
}

fn tolerate_ended(error: rustix::io::Errno) -> Result<()> {
    if error == rustix::io::Errno::SRCH { Ok(()) } else { Err(error).context("a process of the server") }
}

/// State and parent of a process. `None`: it has ended.
///
/// Source: proc_pid_stat(5). The name, the second field, is in brackets and may contain anything.
fn state_and_parent(process: Pid) -> Option<(char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn children(parent: Pid) -> Result<Vec<Pid>> {
    let processes = fs::read_dir("/proc").context("/proc")?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
    let parent = parent.as_raw_nonzero().get();
    Ok(pids.filter(|pid| state_and_parent(*pid).is_some_and(|(_, its)| its == parent)).collect())
}
