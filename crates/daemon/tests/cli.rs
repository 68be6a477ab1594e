//! The binary as a person or a script meets it: words, exit codes, one whole life of a daemon.
#![allow(clippy::unwrap_used)]

#[path = "cli/approvals.rs"]
mod approvals;
#[path = "cli/check.rs"]
mod check;
#[path = "cli/control_group.rs"]
mod control_group;
#[path = "cli/credentials.rs"]
mod credentials;
#[path = "cli/left_behind.rs"]
mod left_behind;
#[path = "cli/mcp.rs"]
mod mcp;
#[path = "cli/signals.rs"]
mod signals;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Longest wait for what a test expects; it only decides how long a failing test takes.
const PATIENCE: Duration = Duration::from_secs(300);

/// A home directory with nothing in it, and commands that see nothing else.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::Builder::new().prefix("belay-").tempdir().unwrap())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_belay"));
        command.env_clear().env("HOME", self.0.path()).env("XDG_RUNTIME_DIR", self.0.path()).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// A daemon with the stand-in and a free port, ready.
    fn daemon(&self) -> Daemon {
        self.daemon_with(|_| {})
    }

    /// The same, with something changed in its command.
    fn daemon_with(&self, change: impl FnOnce(&mut Command)) -> Daemon {
        let sets = ["run", "--set", "llm.provider=rehearsal", "--set", "gateway.listen=127.0.0.1:0"];
        let mut command = self.command(&sets);
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = lines.by_ref().map(Result::unwrap).find(|line| line.contains("\"ready on http://"));
        assert!(ready.is_some(), "the daemon did not become ready");
        // The rest of the log is read, so that the daemon is never held up by a full pipe.
        let (sender, rest) = std::sync::mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        Daemon { child, rest, log: Vec::new() }
    }
}

struct Daemon {
    child: Child,
    /// The log since it was ready: the lines that are not read yet, and those that are.
    rest: std::sync::mpsc::Receiver<String>,
    log: Vec<String>,
}

impl Daemon {
    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for a line of its log that contains a text.
    fn logged(&mut self, text: &str) {
        while !self.log.last().is_some_and(|line| line.contains(text)) {
            let line = self.rest.recv_timeout(PATIENCE);
            self.log.push(line.unwrap_or_else(|_| panic!("{text} is missing in:\n{}", self.log.join("\n"))));
        }
    }

    /// Waits for the end and returns the exit code and the log.
    fn ended(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                self.child.kill().unwrap();
                panic!("the daemon did not end");
            }
            std::thread::sleep(Duration::from_millis(10)); // a process has no other way to be waited for with a limit
        };
        self.log.extend(self.rest);
        (status.code(), self.log.join("\n"))
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn the_last_stage_of_the_sandbox_runs_nothing_when_it_does_not_understand() {
    let home = Home::new();
    let made = home.0.path().join("made");
    for args in [&["launch"][..], &["launch", "--help"], &["launch", "--", "touch", made.to_str().unwrap()]] {
        let output = home.run(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(126), "{args:?}: {said}");
        assert!(said.starts_with("belay launch: "), "{args:?}: {said}");
        assert!(output.stdout.is_empty() && !made.exists(), "{args:?}");
    }
}

#[test]
fn the_last_stage_becomes_the_command_it_is_given() {
    let home = Home::new();
    let parent = std::process::id().to_string();
    let stage =
        ["launch", "--bare", "--parent", &parent, "--memory-mb", "256", "--processes", "4096", "--open-files", "64"];
    let rest = ["--file-mb", "1", "--cpu-s", "60", "--", "sh", "-c", "ulimit -n; exit 3"];
    let output = home.run(&[&stage[..], &rest].concat());
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stdout).trim()), (Some(3), "64"));
    let output = home.run(&["launch", "--bare", "--", "sh", "-c", "exit 4"]);
    assert_eq!(output.status.code(), Some(4));
}

#[test]
fn the_last_stage_inside_the_sandbox_runs_nothing_when_nobody_reads_its_output() {
    let home = Home::new();
    let made = home.0.path().join("made");
    let limits = "--memory-mb 256 --processes 4096 --open-files 64 --file-mb 1 --cpu-s 60";
    let stage = format!("launch --files all --landlock optional {limits} -- touch {}", made.display());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader); // as after the death of the daemon, while bubblewrap prepares the sandbox
    let mut command = home.command(&stage.split(' ').collect::<Vec<_>>());
    let output = command.stdout(writer).spawn().unwrap().wait_with_output().unwrap();
    let said = stderr(&output);
    assert_eq!((output.status.code(), said.contains("is gone"), made.exists()), (Some(126), true, false), "{said}");
}

#[test]
fn three_mistakes_are_reported_at_once_and_refused_with_78() {
    let home = Home::new();
    let file = home.0.path().join("belay.toml");
    std::fs::write(&file, "[llm]\nmax_tokns = 5\n[agent]\nmax_tool_iterations = \"ten\"\n[queue]\ncap = 0\n").unwrap();
    for command in ["run", "check"] {
        let output = home.run(&[command, "--config", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(78), "{command}");
        let said = stderr(&output);
        for expected in ["3 problems", "did you mean llm.max_tokens?", "belay.toml, line 4", "queue.cap: must be"] {
            assert!(said.contains(expected), "{command}: {expected}:\n{said}");
        }
    }
    let json = home.run(&["check", "--json", "--set", "queue.cap=0"]);
    assert_eq!(json.status.code(), Some(78));
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report["problems"][0]["key"], "queue.cap");
}

#[test]
fn a_wrong_command_line_is_2_and_no_daemon_is_69_with_the_next_step() {
    let home = Home::new();
    assert_eq!(home.run(&["dance"]).status.code(), Some(2));
    for args in [&["status"][..], &["runs"], &["stop", "--all"], &["shutdown"], &["send", "hello"]] {
        let output = home.run(args);
        assert_eq!(output.status.code(), Some(69), "{args:?}");
        assert!(stderr(&output).contains("belay run"), "{}", stderr(&output));
    }
    assert_eq!(home.run(&["send", ""]).status.code(), Some(65));
}

#[test]
fn a_message_that_is_not_utf8_is_65() {
    let home = Home::new();
    let mut child = home.command(&["send", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"ab\xff").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(65));
    assert!(stderr(&output).contains("not UTF-8"));
}

#[test]
fn settings_are_shown_with_their_origin_and_without_secrets() {
    let home = Home::new();
    let mut command = home.command(&["config", "show", "--set", "channels.telegram.api_base=http://u:hush@h/v1"]);
    command.env("OPENAI_API_KEY", "hush").env("BELAY__QUEUE__CAP", "7");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let shown = stdout(&output);
    let cap = shown.lines().find(|line| line.starts_with("cap = 7 ")).unwrap_or_default();
    assert!(cap.ends_with("# environment variable BELAY__QUEUE__CAP"), "{shown}");
    assert!(!shown.contains("hush"), "{shown}");
}

#[test]
fn check_says_how_each_thing_stands_and_leaves_nothing_behind() {
    let home = Home::new();
    let output = home.run(&["check", "--set", "llm.provider=rehearsal", "--set", "gateway.listen=127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).lines().all(|line| line.starts_with("ok")), "{}", stdout(&output));
    assert_eq!(std::fs::read_dir(home.0.path()).unwrap().count(), 0, "nothing is made");

    let away = ["--set", "llm.provider=openai", "--set", "llm.base_url=http://127.0.0.1:9/v1", "--set", "llm.model=m"];
    let output = home.run(&[&["check", "--set", "gateway.listen=127.0.0.1:0"][..], &away].concat());
    assert_eq!(output.status.code(), Some(69), "{}", stdout(&output));

    let open = home.run(&["check", "--set", "llm.provider=rehearsal", "--set", "gateway.listen=0.0.0.0:0"]);
    assert_eq!(open.status.code(), Some(78), "{}", stdout(&open));
}

#[test]
fn check_sees_a_store_that_is_in_use_and_one_that_a_later_version_wrote() {
    let home = Home::new();
    let checked = |home: &Home, store: &str| {
        let store = format!("store.url={store}");
        let output =
            home.run(&["check", "--set", "llm.provider=rehearsal", "--set", "gateway.listen=off", "--set", &store]);
        (output.status.code(), stdout(&output))
    };
    let url = format!("sqlite://{}/belay.db", home.0.path().join(".local/share/belay").display());
    let daemon = home.daemon();
    let pid = format!("(process {})", daemon.child.id());
    let (code, said) = checked(&home, &url);
    assert!(code == Some(0) && said.contains("by the Belay that is running") && said.contains(&pid), "{said}");
    // Whoever cannot reach that daemon is told who has the file.
    let other = Home::new();
    let (code, said) = checked(&other, &url);
    assert!(code == Some(69) && said.contains("in use by another belay") && said.contains(&pid), "{said}");
    daemon.signal("TERM");
    daemon.ended();

    let (code, said) = checked(&other, &url);
    assert!(code == Some(0) && said.contains("is there, with schema 1"), "{said}");
    let later = other.0.path().join("later.db");
    let mut header = vec![0; 100];
    header[..16].copy_from_slice(b"SQLite format 3\0");
    header[63] = 99; // SQLite, "Database File Format", 1.3: the user version
    std::fs::write(&later, header).unwrap();
    let (code, said) = checked(&other, &format!("sqlite://{}", later.display()));
    assert!(code == Some(78) && said.contains("unreleased belay") && said.contains("move the file"), "{said}");
}

#[test]
fn a_question_is_answered_without_a_daemon() {
    let home = Home::new();
    let output = home.run(&["ask", "--set", "llm.provider=rehearsal", "calculate 17*23"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("391"), "{}", stdout(&output));

    let output = home.run(&["ask", "--json", "--set", "llm.provider=rehearsal", "calculate 17*23"]);
    let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((run["status"].as_str(), run["usage"]["tool_calls"].as_u64()), (Some("completed"), Some(1)), "{run}");
}

#[test]
fn an_interrupted_question_is_130() {
    let home = Home::new();
    let mut child = home.command(&["ask", "--set", "llm.provider=rehearsal", "rehearse stall"]).spawn().unwrap();
    // Signals are taken before the settings are served; a question takes at least as long as making the workspace.
    let workspace = home.0.path().join(".local/share/belay/workspace");
    let deadline = Instant::now() + PATIENCE;
    while !workspace.exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5)); // another process has no other way to say how far it is
    }
    assert!(Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn an_address_that_is_taken_is_69_and_says_what_to_do() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("gateway.listen={}", taken.local_addr().unwrap());
    let output = home.run(&["run", "--set", "llm.provider=rehearsal", "--set", &listen]);
    assert_eq!(output.status.code(), Some(69));
    assert!(stderr(&output).contains("gateway.listen"), "{}", stderr(&output));
}

#[test]
fn a_daemon_is_sent_to_asked_stopped_and_shut_down_over_its_control_socket() {
    let home = Home::new();
    let daemon = home.daemon();

    let reply = home.run(&["send", "--wait", "calculate 17*23"]);
    assert_eq!(reply.status.code(), Some(0), "{}", stderr(&reply));
    assert!(stdout(&reply).contains("391"), "{}", stdout(&reply));

    let status = home.run(&["status"]);
    assert!(stdout(&status).contains("rehearsal: a built-in stand-in"), "{}{}", stdout(&status), stderr(&status));
    let runs = home.run(&["runs", "--json", "--session", "cli"]);
    let runs: serde_json::Value = serde_json::from_slice(&runs.stdout).unwrap();
    let id = runs["runs"][0]["run_id"].as_str().unwrap();
    let shown = home.run(&["runs", "show", id]);
    assert!(stdout(&shown).contains("completed") && stdout(&shown).contains("391"), "{}", stdout(&shown));
    let timed = stdout(&home.run(&["runs", "show", "--timeline", id]));
    assert!(timed.contains("step 1") && timed.contains("calculate") && timed.contains('█'), "{timed}");

    let stalled = home.run(&["send", "--json", "--session", "slow", "rehearse stall"]);
    let stalled: serde_json::Value = serde_json::from_slice(&stalled.stdout).unwrap();
    let stopped = home.run(&["stop", stalled["run_id"].as_str().unwrap()]);
    assert_eq!(stopped.status.code(), Some(0), "{}", stderr(&stopped));
    let verdict = home.run(&["runs", "show", "--json", stalled["run_id"].as_str().unwrap()]);
    let verdict: serde_json::Value = serde_json::from_slice(&verdict.stdout).unwrap();
    assert_eq!(verdict["status"], "stopped", "{verdict}");

    let second = home.run(&["run", "--set", "llm.provider=rehearsal", "--set", "gateway.listen=127.0.0.1:0"]);
    assert_eq!(second.status.code(), Some(75), "{}", stderr(&second));

    assert_eq!(home.run(&["shutdown"]).status.code(), Some(0));
    let (code, log) = daemon.ended();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(home.run(&["status"]).status.code(), Some(69));
}

#[test]
fn the_end_of_input_ends_a_daemon_without_other_channels() {
    let home = Home::new();
    let mut command = home.command(&["run", "--set", "llm.provider=rehearsal", "--set", "gateway.listen=off"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"calculate 17*23\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("391"), "{}", stdout(&output));
}

/// A terminal that answers line editors, which ask where the cursor is, and keeps what is shown.
struct Screen {
    keys: std::fs::File,
    side: std::os::fd::OwnedFd,
    shown: Arc<Mutex<String>>,
}

impl Screen {
    fn new() -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let side = std::fs::OpenOptions::new().read(true).write(true).open(name).unwrap().into();
        let keys = std::fs::File::from(terminal);
        let (mut terminal, shown) = (keys.try_clone().unwrap(), Arc::new(Mutex::new(String::new())));
        let seen = shown.clone();
        // Ends with an error when the last program has let go of its side.
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n) = terminal.read(&mut buffer) {
                let new = String::from_utf8_lossy(&buffer[..n]).into_owned();
                // ECMA-48, "Device Status Report": 6 asks for the cursor's position.
                for _ in new.matches("\u{1b}[6n") {
                    terminal.write_all(b"\x1b[1;1R").unwrap();
                }
                seen.lock().unwrap().push_str(&new);
            }
        });
        Self { keys, side, shown }
    }

    fn side(&self) -> Stdio {
        self.side.try_clone().unwrap().into()
    }

    fn modes(&self) -> String {
        let modes = rustix::termios::tcgetattr(&self.side).unwrap();
        format!("{:?} {:?} {:?}", modes.input_modes, modes.output_modes, modes.local_modes)
    }

    /// Waits until that is shown.
    fn until(&self, expected: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.shown.lock().unwrap().contains(expected) {
            assert!(Instant::now() < deadline, "{expected} is missing in:\n{}", self.shown.lock().unwrap());
            std::thread::sleep(Duration::from_millis(10)); // another process has no other way to say how far it is
        }
    }
}

#[test]
fn a_terminal_is_left_as_it_was_found_and_logs_do_not_paint_over_its_prompt() {
    let home = Home::new();
    let mut screen = Screen::new();
    let before = screen.modes();
    let mut command = home.command(&["run", "--set", "llm.provider=rehearsal", "--set", "gateway.listen=127.0.0.1:0"]);
    command.env("TERM", "xterm").stdin(screen.side()).stdout(screen.side()).stderr(screen.side());
    let mut child = command.spawn().unwrap();
    screen.until("belay.log");
    screen.until("belay> ");
    assert_ne!(screen.modes(), before, "the prompt edits lines");
    screen.keys.write_all(b"/quit\r").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(screen.modes(), before);
    screen.until("Shutting down.");
    let log = std::fs::read_to_string(home.0.path().join(".local/share/belay/belay.log")).unwrap();
    assert!(log.contains("drained"), "{log}");
    assert!(!screen.shown.lock().unwrap().contains("drained"));
}

#[test]
fn ctrl_d_at_the_prompt_shuts_the_daemon_down() {
    let home = Home::new();
    let mut screen = Screen::new();
    let mut command = home.command(&["run", "--set", "llm.provider=rehearsal", "--set", "gateway.listen=127.0.0.1:0"]);
    command.env("TERM", "xterm").stdin(screen.side()).stdout(screen.side()).stderr(screen.side());
    let mut child = command.spawn().unwrap();
    screen.until("belay> ");
    screen.keys.write_all(b"\x04").unwrap();
    screen.until("Shutting down.");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_first_signal_drains_and_the_second_ends_at_once() {
    let home = Home::new();
    let daemon = home.daemon();
    daemon.signal("TERM");
    let (code, log) = daemon.ended();
    assert_eq!(code, Some(0), "{log}");

    let mut daemon = home.daemon();
    assert!(home.run(&["send", "rehearse stall"]).status.success());
    daemon.signal("INT");
    daemon.logged("signal received"); // two signals at the same moment are one to the kernel
    daemon.signal("INT");
    let (code, log) = daemon.ended();
    assert_eq!(code, Some(130), "{log}");
}

#[test]
fn the_service_manager_is_told_when_it_is_ready_alive_and_stopping() {
    let home = Home::new();
    let path = home.0.path().join("notify.sock");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut buffer = [0; 512];
        let n = socket.recv(&mut buffer).expect("the service manager was told nothing");
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    };
    let mut command = home.command(&["run", "--set", "llm.provider=rehearsal", "--set", "gateway.listen=127.0.0.1:0"]);
    let mut child = command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000").spawn().unwrap();

    // The first feeding may come just before: the dispatcher answers before anybody is told that it is ready.
    let other = || std::iter::repeat_with(told).find(|told| !told.contains("WATCHDOG=1")).unwrap();
    let ready = other();
    assert!(ready.contains("READY=1") && ready.contains("STATUS=ready on http://"), "{ready}");
    for _ in 0..3 {
        assert_eq!(told().trim(), "WATCHDOG=1");
    }
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let stopping = other();
    assert!(stopping.contains("STOPPING=1"), "{stopping}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_service_manager_is_told_what_a_start_waits_for_and_does_not_end_it_meanwhile() {
    let home = Home::new();
    let path = home.0.path().join("notify.sock");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut buffer = [0; 1024];
        let n = socket.recv(&mut buffer).expect("the service manager was told nothing");
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    };
    // No server listens on port 1.
    let url = "postgres://belay:secret@127.0.0.1:1/belay?sslmode=disable";
    let mut command = home.command(&["run", "--set", "llm.provider=rehearsal", "--set", "gateway.listen=127.0.0.1:0"]);
    let mut child = command.env("NOTIFY_SOCKET", &path).env("BELAY__STORE__URL", url).spawn().unwrap();
    let mut both = [told(), told()];
    both.sort(); // one task tells the time, another one the reason
    let [time, status] = both;
    assert_eq!(time.trim(), "EXTEND_TIMEOUT_USEC=30000000");
    assert!(status.starts_with("STATUS=the start waits for the database: ") && !status.contains("secret"), "{status}");
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn every_line_of_a_daemon_without_a_terminal_is_json_and_the_start_names_the_workspace() {
    let home = Home::new();
    let work = home.0.path().join("project");
    std::fs::create_dir(&work).unwrap();
    let mut command = home.command(&["run", "--set", "gateway.listen=127.0.0.1:0", "--workspace", "project"]);
    let mut child = command.current_dir(home.0.path()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut seen = Vec::new();
    while seen.last().is_none_or(|line: &String| !line.contains("ready on http://")) {
        seen.push(lines.next().expect("it becomes ready"));
    }
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    seen.extend(lines);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let parsed: Vec<serde_json::Value> =
        seen.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect();
    let ready = parsed.iter().find_map(|line| line["message"].as_str().filter(|text| text.starts_with("ready on")));
    let workspace = work.canonicalize().unwrap();
    assert!(ready.is_some_and(|text| text.contains(&workspace.display().to_string())), "{seen:?}");
}

#[test]
fn a_workspace_that_is_none_is_refused() {
    let home = Home::new();
    for command in [&["run"][..], &["ask", "hello"], &["check"]] {
        let output = home.run(&[command, &["--workspace", "/nowhere/at/all"]].concat());
        assert_eq!(output.status.code(), Some(78), "{command:?}: {}", stderr(&output));
        assert!((stderr(&output) + &stdout(&output)).contains("/nowhere/at/all"), "{command:?}: {}", stderr(&output));
    }
}

#[test]
fn lists_show_short_ids_and_commands_take_the_beginning_of_one() {
    let home = Home::new();
    let daemon = home.daemon();
    let sent = home.run(&["send", "--wait", "--json", "calculate 1+1"]);
    let run: serde_json::Value = serde_json::from_str(&stdout(&sent)).unwrap();
    let id = run["run_id"].as_str().unwrap();
    let listed = stdout(&home.run(&["runs"]));
    assert!(listed.contains(&format!("{} ", &id[..8])) && !listed.contains(id), "{listed}");
    assert!(stdout(&home.run(&["runs", "--full"])).contains(id));
    let shown = home.run(&["runs", "show", &id[..13]]);
    assert!(shown.status.success() && stdout(&shown).contains(id), "{}", stderr(&shown));
    for (typed, code, words) in
        [("ffffff", 1, "begins with"), ("abc", 2, "at least 6"), ("not-an-id", 2, "not the beginning")]
    {
        let output = home.run(&["runs", "show", typed]);
        assert_eq!(output.status.code(), Some(code), "{typed}: {}", stderr(&output));
        assert!(stderr(&output).contains(words), "{typed}: {}", stderr(&output));
    }
    daemon.signal("TERM");
    assert_eq!(daemon.ended().0, Some(0));
}

#[test]
fn belay_alone_says_where_to_start() {
    let output = Home::new().run(&[]);
    assert_eq!(output.status.code(), Some(0));
    for command in ["belay ask", "belay run", "belay check"] {
        assert!(stdout(&output).contains(command), "{}", stdout(&output));
    }
    assert_eq!(stderr(&output), "");
}

#[test]
fn completions_are_printed_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = Home::new().run(&["completions", shell]);
        assert!(output.status.success() && stdout(&output).contains("belay"), "{shell}");
    }
}

#[test]
fn every_command_but_hidden_ones_has_a_manual_page() {
    let home = Home::new();
    let printed = home.run(&["man"]);
    assert!(printed.status.success() && stdout(&printed).contains(".TH belay 1"), "{}", stdout(&printed));

    let dir = home.0.path().join("share/man1");
    let written = home.run(&["man", "--dir", dir.to_str().unwrap()]);
    assert!(written.status.success(), "{}", stderr(&written));
    let page = |name: &str| std::fs::read_to_string(dir.join(name));
    assert_eq!(page("belay.1").unwrap().trim_end(), stdout(&printed).trim_end());
    let refers = |name: &str| stdout(&printed).contains(&format!("belay\\-{name}(1)"));
    assert!(refers("run") && refers("approvals") && !refers("worker"), "{}", stdout(&printed));
    let nested = page("belay-approvals-approve.1").unwrap();
    assert!(nested.contains("belay approvals approve") && nested.contains("\\-\\-url"), "{nested}");
    assert!(page("belay-worker.1").is_err());

    let file = dir.join("belay.1");
    let refused = home.run(&["man", "--dir", file.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(70));
    assert!(stderr(&refused).contains("--dir"), "{}", stderr(&refused));
}

#[test]
fn a_result_that_cannot_be_written_is_70_and_a_reader_that_has_gone_away_is_not() {
    let home = Home::new();
    let recording = home.0.path().join("short.jsonl");
    std::fs::write(&recording, "{\"turn\":true}\n").unwrap();
    let recording = recording.to_str().unwrap();
    for args in [
        &["stops", "check", "--json", recording][..],
        &["config", "show"],
        &["config", "show", "--json"],
        &["completions", "bash"],
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = home.command(args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(70), "{args:?}");
        assert!(stderr(&output).contains("cannot be written to standard output"), "{}", stderr(&output));

        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = home.command(args).stdout(writer).output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{args:?}");
    }
    // A failure keeps its own code.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let refused = home.command(&["check", "--json", "--set", "queue.cap=0"]).stdout(full).output().unwrap();
    assert_eq!(refused.status.code(), Some(78));
}

#[test]
fn an_import_never_overwrites_what_it_reads_and_replaces_files_whole() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let path = |name: &str| home.0.path().join(name).to_str().unwrap().to_owned();
    let transcript = r#"[{"role":"user","content":"hi"},{"role":"assistant","content":"hello"}]"#;
    std::fs::write(path("same.json"), transcript).unwrap();
    std::fs::hard_link(path("same.json"), path("hard.json")).unwrap();
    std::os::unix::fs::symlink(path("same.json"), path("soft.json")).unwrap();
    for out in ["same.json", "hard.json", "soft.json"] {
        let output = home.run(&["stops", "import", &path("same.json"), "-o", &path(out)]);
        assert_eq!(output.status.code(), Some(2), "{out}: {}", stderr(&output));
        assert!(stderr(&output).contains("would be overwritten"), "{}", stderr(&output));
        assert_eq!(std::fs::read_to_string(path("same.json")).unwrap(), transcript);
    }
    // Into a directory, a recording may have the name of the input.
    std::fs::create_dir(path("dir")).unwrap();
    std::fs::copy(path("same.json"), path("dir/a-0000.jsonl")).unwrap();
    std::os::unix::fs::symlink(path("dir/a-0000.jsonl"), path("a.json")).unwrap();
    let output = home.run(&["stops", "import", &path("a.json"), "-o", &path("dir")]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(path("dir/a-0000.jsonl")).unwrap(), transcript);

    std::fs::write(path("old.jsonl"), "old").unwrap();
    std::fs::set_permissions(path("old.jsonl"), std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink(path("old.jsonl"), path("link.jsonl")).unwrap();
    for out in ["new.jsonl", "link.jsonl", "/dev/stdout"] {
        let target = if out.starts_with('/') { out.to_owned() } else { path(out) };
        let output = home.run(&["stops", "import", &path("same.json"), "-o", &target]);
        assert_eq!(output.status.code(), Some(0), "{out}: {}", stderr(&output));
        let text = if out.starts_with('/') { stdout(&output) } else { std::fs::read_to_string(&target).unwrap() };
        assert!(text.contains("hello"), "{out}: {text}");
    }
    assert!(std::fs::symlink_metadata(path("link.jsonl")).unwrap().is_symlink());
    assert_eq!(std::fs::metadata(path("old.jsonl")).unwrap().permissions().mode() & 0o777, 0o600);
    let left = std::fs::read_dir(home.0.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.to_string_lossy().contains(".belay-")));
}

#[test]
fn a_file_of_rules_is_refused_with_every_problem_at_once() {
    let home = Home::new();
    let file = home.0.path().join("rules.toml");
    for (text, expected) in [
        (
            "[limits]\nusd_per_run = nan\n[[rules]]\nname = \"x\"\nwhen = { run_usd = inf }\n",
            &["limits.usd_per_run: must be a finite number", "rules[0].when.run_usd: must be a finite number"][..],
        ),
        (
            "error_stop = 1\n[[rules]]\nname = \"x\"\nwhn = { steps = 1 }\n[[rules]]\nname = \"y\"\nwhen = { step = 1 }\n",
            &[
                "error_stop: unknown key; did you mean errors_stop?",
                "stops.rules[0].whn: `x`: unknown key; did you mean when?",
                "stops.rules[1].when: `y`: unknown condition `step`",
            ],
        ),
        ("[limits]\nmodel_cals = 9\n", &["model_cals"]),
        ("rules = 3\n", &["rules"]),
    ] {
        std::fs::write(&file, text).unwrap();
        let output = home.run(&["stops", "check", "--rules", file.to_str().unwrap(), "/dev/null"]);
        assert_eq!(output.status.code(), Some(78), "{}", stdout(&output));
        for line in expected {
            assert!(stderr(&output).contains(line), "{line}\n{}", stderr(&output));
        }
    }
}

/// The stand-in recognises the loop's notices by their first words, which are written down in another crate.
#[test]
fn the_stand_in_knows_what_took_its_tools_away() {
    let home = Home::new();
    let asked = |set: &str| {
        let output = home.run(&["ask", "--set", "llm.provider=rehearsal", "--set", set, "rehearse failures"]);
        // What a run that was stopped has said stands on stderr.
        stdout(&output) + &stderr(&output)
    };
    let said = asked("agent.max_tool_iterations=3");
    assert!(said.contains("The step limit acted"), "{said}");
    let said = asked("agent.max_tool_iterations=20");
    assert!(said.contains("I was told: \"This run ends now (consecutive errors).\""), "{said}");
}
