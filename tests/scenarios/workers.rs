//! Workers: the real process behind the real walls, and every way in which its work can end.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use belay_tests::daemon::{Daemon, Home};
use belay_tests::model_server::{Answer, ModelServer};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// Longest wait for anything. Generous: it only decides how long a failing test takes.
const LONG: Duration = Duration::from_secs(90);

/// How often processes and runs are looked at again.
const LOOK: Duration = Duration::from_millis(50);

fn home(model: &ModelServer) -> Home {
    Home::new().openai(&model.base_url).set("workers.enabled", true)
}

/// Lets workers run commands and write files without anybody being asked.
fn effects_are_allowed(home: &Home) -> Result<()> {
    let directory = home.path().join("config/belay");
    std::fs::create_dir_all(&directory)?;
    let rule = |tool: &str| format!("[[approvals.rules]]\ntool = \"{tool}\"\nask = \"never\"\n");
    Ok(std::fs::write(directory.join("belay.toml"), rule("run_command") + &rule("write_file"))?)
}

fn hand_over(more: Value) -> Answer {
    let mut arguments = json!({"task": "make the note"});
    for (key, value) in more.as_object().into_iter().flatten() {
        arguments[key] = value.clone();
    }
    Answer::call("run_in_worker", arguments)
}

/// Waits for the end of a run, however long the machine takes.
async fn end_of(daemon: &Daemon, run: &str) -> Result<Value> {
    let deadline = Instant::now() + LONG;
    loop {
        let seen = daemon.run(run).await?;
        if !["pending", "running", "queued", "accepted"].contains(&seen["status"].as_str().unwrap_or_default()) {
            return Ok(seen);
        }
        if Instant::now() > deadline {
            bail!("the run did not end: {seen}");
        }
        sleep(LOOK).await; // polling a real process: there is no clock to pause
    }
}

/// What a model was told as the result of the last call, in its request number `n`.
fn told(model: &ModelServer, n: usize) -> String {
    let messages = model.requests()[n]["messages"].as_array().cloned().unwrap_or_default();
    let result = messages.iter().rev().find(|message| message["role"] == "tool");
    result.and_then(|message| message["content"].as_str()).unwrap_or_default().to_owned()
}

/// How the one worker of a run ended: termination, reason, turns.
async fn ending(daemon: &Daemon, run: &str) -> Result<(String, String, u64)> {
    let events = daemon.events(run).await?;
    let ended = events.iter().find(|event| event["type"] == "subagent_ended").context("a worker has ended")?;
    let data = if ended["data"].is_object() { &ended["data"] } else { ended };
    let text = |key: &str| data[key].as_str().unwrap_or_default().to_owned();
    Ok((text("termination"), text("reason"), data["turns"].as_u64().unwrap_or(u64::MAX)))
}

/// Command lines of living processes that this process has started, directly or not, by their numbers.
fn below(ancestor: u32) -> HashMap<u32, Vec<String>> {
    let mut parents = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        let mut fields = after.split_whitespace();
        let (state, parent) = (fields.next().unwrap_or("Z"), fields.next().and_then(|parent| parent.parse().ok()));
        if let (false, Some(parent)) = (["Z", "X"].contains(&state), parent) {
            parents.insert(pid, parent);
        }
    }
    let descends =
        |pid: u32| std::iter::successors(Some(pid), |pid| parents.get(pid).copied()).skip(1).any(|pid| pid == ancestor);
    let line = |pid: u32| {
        let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).split('\0').map(str::to_owned).collect()
    };
    parents.keys().copied().filter(|pid| descends(*pid)).map(|pid| (pid, line(pid))).collect()
}

/// Waits until a process below the daemon looks like this, and gives its number.
async fn process(daemon: &Daemon, looks: impl Fn(&[String]) -> bool) -> Result<u32> {
    let deadline = Instant::now() + LONG;
    loop {
        let found = below(daemon.pid());
        if let Some((pid, _)) = found.iter().find(|(_, line)| looks(line)) {
            return Ok(*pid);
        }
        if Instant::now() > deadline {
            bail!("no such process: {found:?}");
        }
        sleep(LOOK).await;
    }
}

/// The worker itself, not the monitor of its walls.
fn is_worker(line: &[String]) -> bool {
    matches!(line, [program, word, ..] if program == "/.belay/launch" && word == "worker")
}

/// The command that a worker runs, not what leads to it.
fn is_sleep(line: &[String]) -> bool {
    matches!(line, [program, time, ..] if program.ends_with("sleep") && time == "600")
}

/// Waits until nothing below this process is left.
async fn nothing_left(daemon: u32) -> Result<()> {
    let deadline = Instant::now() + LONG;
    loop {
        let left = below(daemon);
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("something is left: {left:?}");
        }
        sleep(LOOK).await;
    }
}

fn send(signal: Signal, pid: u32) -> Result<()> {
    Ok(kill_process(Pid::from_raw(i32::try_from(pid)?).context("a pid is not zero")?, signal)?)
}

#[tokio::test]
async fn a_worker_writes_in_the_workspace_runs_a_command_asks_a_tool_of_the_host_and_its_text_is_the_result()
-> Result<()> {
    let batch = vec![
        ("write_file".to_owned(), json!({"path": "note.txt", "content": "from the worker\n"}).to_string()),
        ("calculate".to_owned(), json!({"expression": "6*7"}).to_string()),
    ];
    // What a command can see of the world: the note, no network but a loopback, and not the token that the worker was given.
    let spy = "cat note.txt; cat /proc/net/dev; for p in /proc/[0-9]*; do \
               if tr '\\0' ' ' <$p/cmdline | grep -q '^/.belay/launch worker'; then echo spying; cat $p/fd/0; fi; done 2>&1; true";
    let look = json!({"argv": ["sh", "-c", spy]});
    let script = vec![
        hand_over(json!({"context": "it is called note.txt"})),
        Answer::Calls(batch),
        Answer::call("run_command", look),
        Answer::text("The note is written, and 6*7 is 42."),
        Answer::text("All done."),
    ];
    let model = ModelServer::start(script, Answer::text("too much")).await;
    let home = home(&model);
    effects_are_allowed(&home)?;
    let daemon = home.start().await?;
    let run = daemon.send("alice", "make a note").await?;
    let end = end_of(&daemon, &run).await?;
    assert_eq!((end["status"].as_str(), end["reply"].as_str()), (Some("completed"), Some("All done.")), "{end}");
    assert_eq!(std::fs::read_to_string(home.workspace().join("note.txt"))?, "from the worker\n");

    let requests = model.requests();
    assert_eq!(requests.len(), 5, "{requests:#?}");
    let first = requests[1]["messages"].as_array().cloned().unwrap_or_default();
    assert_eq!(
        first.last().and_then(|m| m["content"].as_str()),
        Some("make the note\n\nContext:\nit is called note.txt")
    );
    let offered: Vec<_> = requests[1]["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect();
    let expected = [
        "calculate",
        "clock",
        "edit_file",
        "list_files",
        "read_file",
        "recall",
        "run_command",
        "search_files",
        "write_file",
    ];
    assert_eq!(offered, expected, "its own tools and those of the host that the settings lend");
    assert_eq!(told(&model, 2), "42");
    let seen = told(&model, 3);
    assert!(seen.contains("[exit code 0]\nfrom the worker\n"), "{seen}");
    assert!(seen.contains("lo:") && !seen.contains("eth0"), "it has no network but its own loopback: {seen}");
    assert!(seen.contains("spying") && seen.contains("Permission denied"), "commands cannot read the token: {seen}");
    let result = told(&model, 4);
    assert!(result.contains(r#""termination":"GOAL""#) && result.contains("6*7 is 42"), "{result}");
    assert_eq!(ending(&daemon, &run).await?, ("GOAL".into(), "final_text".into(), 3));
    let journal: Vec<_> = daemon
        .events(&run)
        .await?
        .iter()
        .filter(|event| event["type"] == "tool_finished")
        .map(|event| event["name"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(journal.len(), 4, "each call of the worker is in the journal of the run: {journal:?}");
    nothing_left(daemon.pid()).await?;
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_model_that_refuses_the_workers_request_fails_the_job_and_the_run_goes_on() -> Result<()> {
    let refusal = Answer::Status(400, json!({"error": {"message": "no"}}), Vec::new());
    let script = vec![hand_over(json!({})), refusal, Answer::text("I could not have it done.")];
    let model = ModelServer::start(script, Answer::text("too much")).await;
    let home = home(&model);
    let daemon = home.start().await?;
    let run = daemon.send("alice", "make a note").await?;
    let end = end_of(&daemon, &run).await?;
    assert_eq!(end["status"], "completed", "{end}");
    let result = told(&model, 2);
    assert!(result.contains(r#""termination":"ERROR""#) && result.contains("refused the request"), "{result}");
    assert_eq!(ending(&daemon, &run).await?, ("ERROR".into(), "bad_request".into(), 1));
    nothing_left(daemon.pid()).await?;
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn the_days_money_ends_a_worker_in_the_middle_of_its_work() -> Result<()> {
    let read = |path: &str| ("read_file".to_owned(), json!({"path": path}).to_string());
    let script = vec![hand_over(json!({})), Answer::Calls(vec![read("a"), read("b"), read("c")])];
    let model = ModelServer::start(script, Answer::text("too much")).await;
    // A dollar for a million tokens: what the worker reads makes its second request dearer than what is left.
    let home = home(&model).set("llm.max_tokens", 100).set("limits.usd_per_day", 0.03);
    let home = home.set("llm.price_usd.input", 1).set("llm.price_usd.output", 1);
    for name in ["a", "b", "c"] {
        std::fs::write(home.workspace().join(name), "many words and more \n".repeat(2900))?;
    }
    let daemon = home.start().await?;
    let run = daemon.send("alice", "read all").await?;
    let end = end_of(&daemon, &run).await?;
    assert_eq!((end["status"].as_str(), end["reason"].as_str()), (Some("failed"), Some("cost_refused")), "{end}");
    assert_eq!(model.requests().len(), 2, "the dear request was not made");
    assert_eq!(ending(&daemon, &run).await?, ("ERROR".into(), "cost_refused".into(), 2));
    nothing_left(daemon.pid()).await?;
    daemon.shut_down().await?;
    Ok(())
}

/// Waits until a question waits, and returns it.
async fn question(daemon: &Daemon) -> Result<Value> {
    let deadline = Instant::now() + LONG;
    loop {
        let (_, list) = daemon.request("GET", "/api/v1/approvals", None).await?;
        if let Some(question) = list["approvals"].get(0) {
            return Ok(question.clone());
        }
        if Instant::now() > deadline {
            bail!("nobody was asked");
        }
        sleep(LOOK).await; // polling a real process: there is no clock to pause
    }
}

#[tokio::test]
async fn a_call_that_a_person_has_to_allow_waits_for_the_answer_outside_of_the_worker() -> Result<()> {
    for (decision, made, reads) in [("deny", false, "the user refused"), ("approve", true, "exit code 0")] {
        let command = Answer::call("run_command", json!({"argv": ["touch", "made"]}));
        let script = vec![hand_over(json!({})), command, Answer::text("That is it."), Answer::text("Over.")];
        let model = ModelServer::start(script, Answer::text("too much")).await;
        let home = home(&model);
        let daemon = home.start().await?;
        let run = daemon.send("alice", "make a note").await?;
        let question = question(&daemon).await?;
        assert_eq!(question["work"], "A worker", "{question}");
        assert!(!home.workspace().join("made").exists());
        let path = format!("/api/v1/approvals/{}", question["id"].as_str().unwrap_or_default());
        daemon.request("POST", &path, Some(json!({ "decision": decision }))).await?;
        let end = end_of(&daemon, &run).await?;
        assert_eq!(end["reply"], "Over.", "{end}");
        let read = told(&model, 2);
        assert!(read.contains(reads), "{read}");
        assert_eq!(home.workspace().join("made").exists(), made);
        assert_eq!(ending(&daemon, &run).await?, ("GOAL".into(), "final_text".into(), 2));
        daemon.shut_down().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_stop_while_a_worker_waits_for_a_person_leaves_nothing() -> Result<()> {
    let command = Answer::call("run_command", json!({"argv": ["touch", "made"]}));
    let model = ModelServer::start(vec![hand_over(json!({})), command], Answer::text("too much")).await;
    let home = home(&model);
    let daemon = home.start().await?;
    let run = daemon.send("alice", "make a note").await?;
    question(&daemon).await?;
    daemon.request("POST", &format!("/api/v1/runs/{run}/stop?wait_ms=10000"), None).await?;
    assert_eq!(end_of(&daemon, &run).await?["status"], "stopped");
    nothing_left(daemon.pid()).await?;
    let (_, list) = daemon.request("GET", "/api/v1/approvals", None).await?;
    assert_eq!(list["approvals"], json!([]), "the question is withdrawn");
    assert!(!home.workspace().join("made").exists());
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_worker_that_is_killed_has_failed_and_the_run_goes_on() -> Result<()> {
    let script = vec![hand_over(json!({})), Answer::Silence, Answer::text("It died.")];
    let model = ModelServer::start(script, Answer::text("too much")).await;
    let home = home(&model);
    let daemon = home.start().await?;
    let run = daemon.send("alice", "make a note").await?;
    model.seen(2).await;
    send(Signal::KILL, process(&daemon, is_worker).await?)?;
    let end = end_of(&daemon, &run).await?;
    assert_eq!(end["reply"], "It died.", "{end}");
    let result = told(&model, 2);
    assert!(result.contains(r#""termination":"ERROR""#) && result.contains("process ended before"), "{result}");
    model.dropped(1).await;
    nothing_left(daemon.pid()).await?;
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_worker_that_stands_still_is_ended_when_its_time_is_up_with_everything_it_started() -> Result<()> {
    let script = vec![
        hand_over(json!({"max_time_s": 30})),
        Answer::call("run_command", json!({"argv": ["sleep", "600"], "timeout_s": 600})),
        Answer::text("It took too long."),
    ];
    let model = ModelServer::start(script, Answer::text("too much")).await;
    let home = home(&model);
    effects_are_allowed(&home)?;
    let daemon = home.start().await?;
    let run = daemon.send("alice", "make a note").await?;
    process(&daemon, is_sleep).await?;
    send(Signal::STOP, process(&daemon, is_worker).await?)?;
    let end = end_of(&daemon, &run).await?;
    assert_eq!(end["reply"], "It took too long.", "{end}");
    assert!(told(&model, 2).contains(r#""termination":"TIMEOUT""#), "{}", told(&model, 2));
    assert_eq!(ending(&daemon, &run).await?, ("TIMEOUT".into(), "active_time".into(), 1));
    nothing_left(daemon.pid()).await?;
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_stop_ends_the_worker_in_the_middle_of_a_command() -> Result<()> {
    let sleep = Answer::call("run_command", json!({"argv": ["sleep", "600"], "timeout_s": 600}));
    let model = ModelServer::start(vec![hand_over(json!({})), sleep], Answer::text("too much")).await;
    let home = home(&model);
    effects_are_allowed(&home)?;
    let daemon = home.start().await?;
    let run = daemon.send("alice", "make a note").await?;
    process(&daemon, is_sleep).await?;
    let (status, report) = daemon.request("POST", &format!("/api/v1/runs/{run}/stop"), None).await?;
    assert_eq!(status, 200, "{report}");
    let end = end_of(&daemon, &run).await?;
    assert_eq!((end["status"].as_str(), end["reason"].as_str()), (Some("stopped"), Some("user_stop")), "{end}");
    assert_eq!(model.requests().len(), 2);
    nothing_left(daemon.pid()).await?;
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_worker_dies_with_its_daemon_and_the_next_start_says_that_the_outcome_is_unknown() -> Result<()> {
    let script = vec![
        hand_over(json!({})),
        Answer::call("run_command", json!({"argv": ["sleep", "600"], "timeout_s": 600})),
        Answer::text("I do not know how far it came."),
    ];
    let model = ModelServer::start(script, Answer::text("too much")).await;
    let home = home(&model);
    effects_are_allowed(&home)?;
    let daemon = home.start().await?;
    let run = daemon.send("alice", "make a note").await?;
    let command = process(&daemon, is_sleep).await?;
    let worker = process(&daemon, is_worker).await?;
    daemon.kill().await?;
    let deadline = Instant::now() + LONG;
    for pid in [command, worker] {
        let line = || std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        while !line().is_empty() {
            assert!(Instant::now() < deadline, "{pid} outlived the daemon");
            sleep(LOOK).await;
        }
    }
    let daemon = home.start().await?;
    let end = end_of(&daemon, &run).await?;
    assert_eq!(end["reply"], "I do not know how far it came.", "{end}");
    assert!(told(&model, 2).contains("outcome unknown"), "{}", told(&model, 2));
    daemon.shut_down().await?;
    Ok(())
}
