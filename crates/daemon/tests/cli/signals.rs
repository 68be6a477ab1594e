//! SIGHUP, SIGUSR1 and SIGUSR2, sent to the real binary.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};

use crate::{Home, PATIENCE};

/// Whoever runs the tests may have SIGHUP ignored, as `nohup` does, which would be inherited.
const NOT_IGNORED: &[&str] = &["env", "--default-signal=HUP"];

const QUIET: &str = "[channels.stdin]\nenabled = false\n";

/// A daemon that was started by another program, such as `setsid`, and what it says.
struct Started {
    child: Child,
    lines: Receiver<String>,
}

impl Started {
    /// Starts it with a settings file, and waits until it is ready. It has no terminal: `setsid` takes that away.
    fn by(home: &Home, starter: &[&str], settings: &str) -> Self {
        let file = home.0.path().join("reload.toml");
        std::fs::write(&file, format!("{QUIET}{settings}")).unwrap();
        let run = home.command(&[
            "run",
            "--set",
            "llm.provider=rehearsal",
            "--set",
            "gateway.listen=127.0.0.1:0",
            "--config",
        ]);
        let mut command = Command::new(starter[0]);
        command.args(&starter[1..]).arg(run.get_program()).args(run.get_args()).arg(&file).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.envs(run.get_envs().filter_map(|(key, value)| Some((key, value?))));
        command
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        let started = Self { child, lines };
        started.says("ready on http");
        started
    }

    /// Waits for a line with these words.
    fn says(&self, words: &str) -> String {
        let mut before = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(words) => return line,
                Ok(line) => before.push(line),
                Err(_) => panic!("{words:?} was never said:\n{}", before.join("\n")),
            }
        }
    }

    fn signal(&self, name: &str) {
        send(name, self.child.id());
    }

    /// Waits for the end: its exit code, and what it said meanwhile.
    fn ended(mut self) -> (Option<i32>, Vec<String>) {
        let said = std::iter::from_fn(|| self.lines.recv_timeout(PATIENCE).ok()).collect();
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill(); // a test has failed
    }
}

fn send(name: &str, pid: u32) {
    assert!(Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap().success());
}

#[test]
fn a_hangup_reloads_what_can_change_names_what_needs_a_restart_and_a_bad_file_changes_nothing() {
    let home = Home::new();
    let daemon = Started::by(&home, &[NOT_IGNORED, &["setsid"]].concat(), "");
    let file = home.0.path().join("reload.toml");
    let reload = |settings: &str| {
        std::fs::write(&file, format!("{QUIET}{settings}")).unwrap();
        daemon.signal("HUP");
    };
    reload(
        "[telemetry]\nlog = \"debug\"\n[queue]\ncap = 7\n[[approvals.rules]]\ntool = \"run_command\"\nask = \"always\"\n",
    );
    let said = daemon.says("settings reloaded");
    assert!(said.contains(r#""changed":"approvals.rules, telemetry.log""#), "{said}");
    assert!(said.contains(r#""needs_restart":"queue.cap""#), "{said}");

    let rule = "[[approvals.rules]]\ntool = \"run_command\"\nask = \"often\"\n";
    for (bad, key) in [
        ("[telemetry]\nlog = \"error\"\n[llm]\nprovidr = \"openai\"\n", "llm.providr"),
        (rule, "approvals.rules[0].ask"),
        ("[gateway]\ntoken_file = \"/nowhere/token\"\n", "gateway.token_file"),
        ("[telemetry\n", "is not TOML"),
    ] {
        reload(bad);
        let said = daemon.says("settings not reloaded");
        assert!(said.contains(key) && said.contains("ERROR"), "{said}");
    }
    // Still at the level of the last good file.
    reload("[telemetry]\nlog = \"info\"\n");
    let said = daemon.says("settings reloaded");
    assert!(said.contains(r#""changed":"approvals.rules, telemetry.log","needs_restart":"nothing""#), "{said}");

    for name in ["USR1", "USR2"] {
        daemon.signal(name);
        let said = daemon.says("signal ignored");
        assert!(said.contains(&format!("SIG{name}")), "{said}");
    }
    daemon.signal("TERM");
    assert_eq!(daemon.ended().0, Some(0));
}

#[test]
fn an_ignored_hangup_stays_ignored() {
    let home = Home::new();
    let daemon = Started::by(&home, &["nohup", "setsid"], "");
    daemon.signal("HUP");
    daemon.signal("USR1");
    daemon.says("signal ignored");
    daemon.signal("TERM");
    let (code, said) = daemon.ended();
    assert!(code == Some(0) && !said.concat().contains("reloaded"), "{code:?} {said:?}");
}

#[test]
fn with_a_terminal_a_hangup_drains() {
    let home = Home::new();
    let file = home.0.path().join("terminal.toml");
    std::fs::write(&file, QUIET).unwrap();
    let run =
        home.command(&["run", "--set", "llm.provider=rehearsal", "--set", "gateway.listen=127.0.0.1:0", "--config"]);
    let words: Vec<_> =
        std::iter::once(run.get_program()).chain(run.get_args()).map(|word| word.to_str().unwrap()).collect();
    let line = format!("exec {} {} {} 2>&1", NOT_IGNORED.join(" "), words.join(" "), file.display());
    // `script` gives its child a terminal of its own.
    let mut command = Command::new("script");
    command.args(["-qefc", &line, "/dev/null"]).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.envs(run.get_envs().filter_map(|(key, value)| Some((key, value?))));
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("ready on http")));
    let lock = home.0.path().join(".local/share/belay/belay.db.lock");
    let pid = std::fs::read_to_string(lock).unwrap().trim().parse().unwrap();
    // A terminal that goes is told by the kernel and by the shell: twice. The daemon may have ended before the second time.
    send("HUP", pid);
    let _ = Command::new("kill").args(["-s", "HUP", &pid.to_string()]).status().unwrap();
    let said: Vec<_> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said:?}");
    assert!(said.concat().contains("draining"), "{said:?}");
}
