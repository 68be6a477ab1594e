//! Hooks that are commands.

use std::fs;
use std::path::Path;

use super::*;

/// A set with one shell command, which finds a directory of its own in `$DIR`.
fn shell(script: &str, directory: &Path) -> HookSet {
    let settings = json!({"hooks": [{
        "name": "sh",
        "on": "before_tool_call",
        "command": ["sh", "-c", script],
        "env": {"DIR": directory},
    }]});
    set(&toml::to_string(&settings).expect("it is TOML"))
}

/// Whether a process has ended. One that nobody has collected yet has ended as well, unless it was ours to collect.
fn has_ended(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| rest.trim().is_empty() || rest.trim().starts_with(['Z', 'X']))
}

fn read(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap_or_default().trim().to_owned()
}

#[tokio::test]
async fn what_a_command_does_becomes_its_answer_or_its_failure() {
    let failure = |part: &str| Err(part.to_owned());
    for (script, expected) in [
        ("", Ok(HookAnswer::Continue)),
        ("cat >/dev/null", Ok(HookAnswer::Continue)),
        (r#"echo '{"continue":true}'"#, Ok(HookAnswer::Continue)),
        (r#"echo '{"change":{"arguments":{"times":1}}}'"#, Ok(changed(json!({"arguments": {"times": 1}})))),
        (r#"echo '{"refuse":"it is night"}'"#, Ok(HookAnswer::Refuse("it is night".into()))),
        // It hears what it is told, and may answer after it has closed its pipes.
        (r#"grep -q '"times":3' && echo '{"refuse":"three"}'; exec >&- 2>&-; sleep 0.1"#, {
            Ok(HookAnswer::Refuse("three".into()))
        }),
        // What it complains about is none of the answer, however much it is.
        (r#"head -c 3000000 /dev/zero >&2; echo '{"continue":true}'"#, Ok(HookAnswer::Continue)),
        ("exit 3", failure("its program ended with exit status: 3")),
        (r#"echo '{"continue":true}'; exit 1"#, failure("its program ended with exit status: 1")),
        ("kill -SEGV $$", failure("its program ended with signal: 11")),
        ("head -c 65537 /dev/zero", failure("its answer is longer than 65536 bytes")),
        ("exec yes", failure("its answer is longer than 65536 bytes")),
        ("echo done", failure("its answer is not one JSON object")),
        (r#"echo '{"block":true}'"#, failure("its answer has an unknown shape")),
        (r#"printf '\377\376'"#, failure("its answer is not one JSON object")),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let answer = ask(&hook(&shell(script, directory.path()))).await;
        match (answer, expected) {
            (Err(found), Err(part)) => assert!(found.starts_with(&part), "{script}: {found}"),
            (found, expected) => assert_eq!(found, expected, "{script}"),
        }
    }
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_a_failure() {
    let set = set("[[hooks]]\nname = 'a'\non = 'before_tool_call'\ncommand = ['/nowhere/at/all']");
    let failure = ask(&hook(&set)).await.expect_err("there is no such program");
    assert!(failure.starts_with("it could not be started: "), "{failure}");
}

#[tokio::test]
async fn a_program_is_told_one_line_and_has_the_environment_it_was_given() {
    let directory = tempfile::tempdir().expect("a directory");
    let set = shell(r#"cat >"$DIR/told"; cat /proc/$$/environ >"$DIR/environment""#, directory.path());
    assert_eq!(ask(&hook(&set)).await, Ok(HookAnswer::Continue));
    let told = fs::read_to_string(directory.path().join("told")).expect("it was told");
    let expected = r#"{"hook":"before_tool_call","at":"1970-01-01T00:00:00.000Z","data":{"arguments":{"times":3},"tool":"ring_bell"}}"#;
    // One line; the order of keys is the library's.
    assert_eq!(told.matches('\n').count(), 1, "{told}");
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    assert_eq!(json(&told), json(expected));
    let environment = read(directory.path(), "environment");
    let mut names: Vec<&str> = environment.split('\0').filter_map(|entry| Some(entry.split_once('=')?.0)).collect();
    names.sort_unstable();
    names.retain(|name| !["PATH", "HOME", "LANG"].contains(name)); // as far as the test has them itself
    assert_eq!(names, [belay_exec::MARK, "DIR"]);
}

#[tokio::test]
async fn a_long_event_does_not_hold_up_a_program_that_does_not_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let hook = hook(&shell(r#"echo '{"refuse":"no"}'"#, directory.path()));
    let event = event(json!({"text": "x".repeat(3_000_000)}));
    let answer = timeout(LIMIT, hook.call(&event)).await.expect("in time");
    assert_eq!(answer, Ok(HookAnswer::Refuse("no".into())));
}

#[tokio::test]
async fn whoever_is_no_longer_waited_for_is_ended_with_everything_it_has_started() {
    for script in [
        r#"sleep 600 & echo $! >"$DIR/child"; echo $$ >"$DIR/leader"; wait"#,
        // It does not listen.
        r#"trap '' TERM; sleep 600 & echo $! >"$DIR/child"; echo $$ >"$DIR/leader"; while :; do sleep 600; done"#,
        // It talks for ever.
        r#"sleep 600 & echo $! >"$DIR/child"; echo $$ >"$DIR/leader"; while :; do echo >&2; done"#,
        // What it has started has left its parent, its group and its session, and does not listen either.
        r#"setsid -f sh -c "trap '' TERM; echo \$\$ >\"\$DIR/child\"; while :; do sleep 600; done" >/dev/null 2>&1
            while [ ! -s "$DIR/child" ]; do sleep 0.02; done; echo $$ >"$DIR/leader"; exec sleep 600"#,
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let set = shell(script, directory.path());
        let hook = hook(&set);
        let event = event(json!({}));
        let call = hook.call(&event);
        tokio::select! {
            answer = call => panic!("it answered: {answer:?}"),
            () = eventually("it has begun", || !read(directory.path(), "leader").is_empty()) => {} // the call is dropped
        }
        let (leader, child) = (read(directory.path(), "leader"), read(directory.path(), "child"));
        eventually("the leader has been collected", || !Path::new(&format!("/proc/{leader}")).exists()).await;
        eventually("the child has ended", || has_ended(&child)).await;
        assert!(set.close(LIMIT).await);
    }
}

#[tokio::test]
async fn what_holds_the_pipe_after_the_end_does_not_hold_up_the_answer_and_is_ended() {
    let directory = tempfile::tempdir().expect("a directory");
    let set = shell(r#"sleep 600 & echo $! >"$DIR/child"; echo '{"refuse":"no"}'"#, directory.path());
    assert_eq!(ask(&hook(&set)).await, Ok(HookAnswer::Refuse("no".into())));
    let child = read(directory.path(), "child");
    eventually("the child has ended", || has_ended(&child)).await;
}

#[tokio::test]
async fn what_leaves_parent_group_and_session_does_not_hold_up_the_answer_and_is_ended() {
    for trap in ["", "trap '' TERM;"] {
        let directory = tempfile::tempdir().expect("a directory");
        // It holds the pipe; the shell waits until it has a session of its own, and it has lost its parent by then.
        let script = r#"setsid -f sh -c 'TRAP echo $$ >"$DIR/child"; while :; do sleep 600; done'
            while [ ! -s "$DIR/child" ]; do sleep 0.02; done; echo '{"refuse":"no"}'"#;
        let set = shell(&script.replace("TRAP", &trap.replace('\'', "\"")), directory.path());
        assert_eq!(ask(&hook(&set)).await, Ok(HookAnswer::Refuse("no".into())));
        let child = read(directory.path(), "child");
        eventually("it has ended all the same", || has_ended(&child)).await;
        assert!(set.close(LIMIT).await);
    }
}

#[tokio::test]
async fn a_shutdown_of_all_processes_ends_the_programs_of_hooks() {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = json!({"hooks": [{
        "name": "sh",
        "on": "gateway_start",
        "command": ["sh", "-c", r#"setsid -f sh -c 'echo $$ >"$DIR/child"; exec sleep 600'; exec sleep 600"#],
        "env": {"DIR": directory.path()},
    }]});
    let processes = processes();
    let set = set_of(&toml::to_string(&settings).expect("it is TOML"), processes.clone());
    let hook = hook(&set);
    let call = tokio::spawn(async move { ask(&hook).await });
    eventually("it has begun", || !read(directory.path(), "child").is_empty()).await;
    processes.shutdown().await;
    assert_eq!(call.await.expect("no panic"), Err("it was stopped".into()));
    assert!(has_ended(&read(directory.path(), "child")));
}

#[tokio::test]
async fn closing_ends_what_is_under_way() {
    let directory = tempfile::tempdir().expect("a directory");
    let set = shell(r#"echo $$ >"$DIR/leader"; exec sleep 600"#, directory.path());
    let hook = hook(&set);
    let call = tokio::spawn(async move { ask(&hook).await });
    eventually("it has begun", || !read(directory.path(), "leader").is_empty()).await;
    assert!(set.close(LIMIT).await);
    assert_eq!(call.await.expect("no panic"), Err("it was stopped".into()));
    assert!(!Path::new("/proc").join(read(directory.path(), "leader")).exists());
}

#[tokio::test]
async fn one_hook_has_eight_programs_at_a_time_and_all_are_asked() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = r#"mkdir "$DIR/now-$$"; ls -d "$DIR"/now-* | wc -l >>"$DIR/counts"; sleep 0.1; rmdir "$DIR/now-$$""#;
    let set = shell(script, directory.path());
    let hook = hook(&set);
    let calls = (0..20).map(|_| {
        let hook = hook.clone();
        tokio::spawn(async move { ask(&hook).await })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.expect("no panic"), Ok(HookAnswer::Continue));
    }
    let counts = read(directory.path(), "counts");
    let counts: Vec<u32> = counts.lines().map(|line| line.trim().parse().expect("a number")).collect();
    assert_eq!(counts.len(), 20);
    assert!(counts.iter().all(|count| *count <= 8), "{counts:?}");
}
