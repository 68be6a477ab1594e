//! What has to work inside.

use std::io::Write;
use std::process::{Command, Stdio};

use belay_tools::sandbox::{Policy, SandboxConfig};

use super::support::{Ground, NOTHING, Running, WRITE, Who, processes_with, until};

#[test]
fn ordinary_commands_do_what_they_do_elsewhere() {
    for who in Who::all() {
        let ground = Ground::of(*who);
        for (script, code, out) in [
            ("echo hello", 0, "hello"),
            ("exit 7", 7, ""),
            ("kill -TERM $$", 143, ""),
            ("kill -KILL $$", 137, ""),
            ("yes | head -n 2", 0, "y\ny"),
            ("pwd", 0, "/workspace"),
            ("echo a > /workspace/file && cat file && mkdir d && mv file d/ && ls d", 0, "a\nfile"),
            ("echo a > /tmp/file && ln /tmp/file /tmp/other && cat /tmp/other", 0, "a"),
            ("echo a > /var/tmp/file && echo b > /dev/shm/file && cat /var/tmp/file /dev/shm/file", 0, "a\nb"),
            ("echo gone > /dev/null && head -c 3 /dev/zero | wc -c", 0, "3"),
            ("sleep 30 & kill $! && wait $! || echo ended", 0, "ended"),
            ("trap 'echo caught; exit 3' TERM; kill -TERM $$; sleep 30", 3, "caught"),
            ("test -r /etc/passwd && test -x /usr/bin/env && ls /usr >/dev/null", 0, ""),
            ("echo $HOME $TMPDIR $TERM", 0, "/.belay/home /tmp dumb"),
            ("ls -A ~ && echo a > ~/file && stat -c %a ~ && ls ~", 0, "700\nfile"),
            ("set | grep -c '^XDG_.*=./.belay/home'", 0, "5"),
            ("mkfifo pipe && (echo through > pipe & cat pipe)", 0, "through"),
            ("ls -A /home /root /run", 0, "/home:\n\n/root:\n\n/run:"),
        ] {
            let ran = ground.shell(WRITE, script);
            assert_eq!((ran.code, ran.out.as_str()), (Some(code), out), "{who:?} {script}: {ran:?}");
        }
        assert_eq!(std::fs::read_to_string(ground.workspace.join("d/file")).unwrap(), "a\n");
    }
}

#[test]
fn temporary_files_are_the_commands_own_and_gone_afterwards() {
    let name = format!("belay-private-{}", std::process::id());
    let ground = Ground::of(Who::Me);
    let ran = ground.shell(NOTHING, &format!("echo a > /tmp/{name} && ls /tmp"));
    assert!(ran.out.lines().any(|line| line == name), "{ran:?}");
    assert!(!std::path::Path::new("/tmp").join(&name).exists());
    assert!(!ground.shell(NOTHING, &format!("ls /tmp/{name}")).good());
}

#[test]
fn an_interpreter_works_even_from_a_place_that_is_shown_on_purpose() {
    let ground = Ground::of(Who::Me);
    let asked = "import sys; print(sys.base_prefix); print(sys.executable)";
    let said = Command::new("python3").args(["-c", asked]).output().expect("these tests need python3");
    let lines = String::from_utf8(said.stdout).unwrap();
    let [prefix, program] = lines.lines().collect::<Vec<_>>()[..] else { panic!("{lines}") };
    let mut config = ground.config();
    config.show.extend([prefix.into(), program.into()]);
    let script = "import json, pathlib, subprocess, tempfile, threading\n\
                  with tempfile.NamedTemporaryFile('w') as file: print(json.dumps(file.write('abc')))\n\
                  pathlib.Path('made').write_text('by python')\n\
                  thread = threading.Thread(target=lambda: print(subprocess.check_output(['echo', 'child'], text=True).strip()))\n\
                  thread.start(); thread.join()";
    let ran = ground.inside(&config, WRITE, &[program, "-c", script]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "3\nchild"), "{ran:?}");
    assert_eq!(std::fs::read_to_string(ground.workspace.join("made")).unwrap(), "by python");
}

#[test]
fn input_is_read_and_a_long_output_arrives() {
    let ground = Ground::of(Who::Me);
    let launch =
        ground.launch(&ground.config(), NOTHING, &["sh", "-c", "wc -c; head -c 1000000 /dev/zero | tr '\\0' a"]);
    let mut child = ground.command(&launch).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&[b'x'; 100_000]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout.len(), "100000\n".len() + 1_000_000);
}

#[test]
fn with_full_everything_is_as_it_is_except_for_the_daemons_secrets() {
    for who in Who::all() {
        let ground = Ground::of(*who);
        let config = SandboxConfig { policy: Policy::Full, ..ground.config() };
        let (outside, secret) = (ground.outside.display(), ground.secret.display());
        for (script, good) in [
            (format!("echo a > {outside}/full && cat {outside}/full"), true),
            (format!("cd {} && echo b > there", ground.workspace.display()), true),
            (format!("cat {secret}/key"), false),
            (format!("echo a > {secret}/new"), false),
        ] {
            let ran = ground.inside(&config, WRITE, &["sh", "-c", &script]);
            assert_eq!(ran.good(), good, "{who:?} {script}: {ran:?}");
        }
        assert!(ground.outside.join("full").exists() && ground.workspace.join("there").exists());
        assert!(!ground.secret.join("new").exists());
        let narrow = ground.inside(&config, NOTHING, &["sh", "-c", &format!("echo a > {outside}/narrow")]);
        assert!(!narrow.good() && !ground.outside.join("narrow").exists(), "{narrow:?}");
    }
}

#[test]
fn the_directory_and_the_environment_are_those_that_were_asked_for() {
    let ground = Ground::of(Who::Me);
    std::fs::create_dir_all(ground.workspace.join("a/b")).unwrap();
    let sandbox = ground.sandbox(&ground.config());
    let mut inner =
        super::support::plain(&ground.workspace.join("a/b"), &["sh", "-c", "pwd; echo $GIVEN; env | grep LD_"]);
    inner.env = vec![("GIVEN".into(), "yes".into()), ("LD_LIBRARY_PATH".into(), "/nowhere".into())];
    let output = ground.command(&sandbox.wrap(inner, NOTHING).unwrap()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "/workspace/a/b\nyes\n");
}

#[test]
fn nothing_stays_behind_when_the_command_ends_or_its_monitor_is_killed() {
    for who in Who::all() {
        let ground = Ground::of(*who);
        let mark = |seconds: u32| format!("{}.{}", seconds + u32::from(*who == Who::Nobody), std::process::id());
        let left = mark(3000);
        assert!(ground.shell(NOTHING, &format!("setsid sleep {left} & exit 0")).good());
        until("what a command left behind is still there", || processes_with(&left).is_empty());

        let killed = mark(4000);
        let script = format!("setsid sleep {killed} & (sleep {killed} & wait) & wait");
        let launch = ground.launch(&ground.config(), NOTHING, &["sh", "-c", &script]);
        // Without `timeout` in between: what is killed is the monitor itself.
        let mut command = Command::new(&launch.program);
        command.args(&launch.args).env_clear().envs(launch.env);
        let mut monitor = Running(command.spawn().unwrap());
        until("the command does not begin", || processes_with(&killed).len() == 2);
        monitor.0.kill().unwrap();
        until("something outlives the monitor", || processes_with(&killed).is_empty());
    }
}

#[test]
fn a_program_inside_hears_term_that_is_sent_from_outside() {
    let ground = Ground::of(Who::Me);
    let mark = format!("2000.{}", std::process::id());
    let script = format!("trap 'echo heard; kill $!; exit 5' TERM; sleep {mark} & echo ready; wait");
    let launch = ground.launch(&ground.config(), NOTHING, &["sh", "-c", &script]);
    let child = Command::new(&launch.program).args(&launch.args).stdout(Stdio::piped()).spawn().unwrap();
    until("the command does not begin", || !processes_with(&mark).is_empty());
    let sleeper = processes_with(&mark)[0];
    let parent = std::fs::read_to_string(format!("/proc/{sleeper}/stat")).unwrap();
    let shell = parent.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().to_owned();
    assert!(Command::new("kill").args(["-TERM", &shell]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stdout).trim()), (Some(5), "ready\nheard"));
}
