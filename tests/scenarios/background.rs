//! Commands that go on in the background: used within their run, kept beyond it after an approval, and never alive after a
//! stop, a freeze, or the end of the daemon.

use std::time::Duration;

use anyhow::{Context, Result};
use belay_tests::daemon::{Daemon, Home, PATIENCE};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};

/// Neither commands nor what is written to them ask.
const RULES: &str = "[[approvals.rules]]\ntool = \"run_command\"\nask = \"never\"\nallow_untrusted = true\n\
    [[approvals.rules]]\ntool = \"process\"\nask = \"never\"\nallow_untrusted = true\n";

/// A number of seconds unlike that of any other process of this machine.
fn seconds(test: u32) -> String {
    (100_000 + std::process::id() * 16 + test).to_string()
}

/// The process ids of the programs that sleep for so many seconds.
fn sleepers(seconds: &str) -> Vec<String> {
    let wanted = format!("sleep\0{seconds}\0");
    // The program itself, not the walls and shells around it, whose command lines are longer.
    let sleeps = |line: &str| line.ends_with(&wanted) && line.matches('\0').count() == 2;
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_one = |entry: &std::fs::DirEntry| {
        std::fs::read_to_string(entry.path().join("cmdline")).is_ok_and(|line| sleeps(&line))
    };
    processes.filter(is_one).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Waits until a program sleeps for so many seconds: `ready` may come before `setsid` has become `sleep`.
async fn until_there(seconds: &str) -> Result<()> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while sleepers(seconds).is_empty() {
        anyhow::ensure!(tokio::time::Instant::now() < deadline, "it does not sleep");
        tokio::time::sleep(Duration::from_millis(20)).await; // polling a real process: there is no clock to pause
    }
    Ok(())
}

async fn until_gone(seconds: &str) -> Result<()> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !sleepers(seconds).is_empty() {
        anyhow::ensure!(tokio::time::Instant::now() < deadline, "{:?} are alive", sleepers(seconds));
        tokio::time::sleep(Duration::from_millis(20)).await; // polling a real process: there is no clock to pause
    }
    Ok(())
}

/// A call that starts a script in the background.
fn start(script: &str, keep: bool) -> Answer {
    Answer::call("run_command", json!({"argv": ["sh", "-c", script], "background": true, "keep": keep}))
}

fn process(arguments: Value) -> Answer {
    Answer::call("process", arguments)
}

/// Prints a line and then sleeps, in a shell of its own.
fn sleeping(seconds: &str) -> String {
    format!("setsid sleep {seconds} & echo ready; wait")
}

/// The results of tools in the last request to the model, oldest first.
fn results(model: &ModelServer) -> Vec<String> {
    let requests = model.requests();
    let messages = requests.last().and_then(|request| request["messages"].as_array()).cloned().unwrap_or_default();
    let of_tool = |message: &Value| {
        (message["role"] == "tool").then(|| message["content"].as_str().unwrap_or_default().to_owned())
    };
    messages.iter().filter_map(of_tool).collect()
}

/// Which of the requests to the model offer `process`.
fn offers(model: &ModelServer) -> Vec<bool> {
    let is_it = |tool: &Value| tool["function"]["name"] == "process";
    let of = |request: &Value| request["tools"].as_array().is_some_and(|tools| tools.iter().any(is_it));
    model.requests().iter().map(of).collect()
}

/// Lets a run of this session start a process that the conversation keeps, and waits until it has printed its line.
async fn keep(daemon: &Daemon, model: &ModelServer, session: &str, seconds: &str) -> Result<()> {
    keep_script(daemon, model, session, seconds, &sleeping(seconds)).await
}

async fn keep_script(daemon: &Daemon, model: &ModelServer, session: &str, seconds: &str, script: &str) -> Result<()> {
    model.then(start(script, true));
    let run = daemon.send(session, "serve").await?;
    // No rule lets it run without a question.
    let waiting = daemon.until(&run, "paused").await?;
    let id = waiting["waiting_for"]["approval"].as_str().context("a question")?.to_owned();
    let (_, question) = daemon.request("GET", &format!("/api/v1/approvals/{id}"), None).await?;
    assert!(
        question.to_string().contains("goes on in the background also after this turn, 30 min at most"),
        "{question}"
    );
    let answer = json!({"decision": "approve"});
    assert_eq!(daemon.request("POST", &format!("/api/v1/approvals/{id}"), Some(answer)).await?.0, 200);
    let ended = daemon.finished(&run).await?;
    assert_eq!(ended["status"], "completed", "{ended}");
    until_there(seconds).await
}

/// The processes in the background that the daemon shows.
async fn shown(daemon: &Daemon) -> Result<Vec<Value>> {
    let (_, status) = daemon.request("GET", "/api/v1/status", None).await?;
    Ok(status["processes"].as_array().cloned().unwrap_or_default())
}

#[tokio::test]
async fn a_process_is_used_within_its_run_ends_with_it_and_is_offered_to_nobody_else() -> Result<()> {
    let seconds = seconds(0);
    let script = format!("echo ready; read line; echo got $line; exec sleep {seconds}");
    let model = ModelServer::start(
        vec![
            start(&script, false),
            process(json!({"action": "wait", "id": "p1", "pattern": "ready"})),
            process(json!({"action": "write", "id": "p1", "text": "a line\n"})),
            process(json!({"action": "wait", "id": "p1", "pattern": "got .*line"})),
            process(json!({"action": "read", "id": "p1"})),
        ],
        Answer::text("done"),
    )
    .await;
    let home = Home::new().openai(&model.base_url).settings(RULES);
    let daemon = home.start().await?;
    let ended = daemon.ask("anna", "talk to it").await?;
    assert_eq!(ended["reply"], "done", "{ended}");
    let results = results(&model);
    for (at, text) in [
        (0, "[p1 runs in the background."),
        (1, "\nready"),
        (2, "[7 bytes"),
        (3, "\ngot a line"),
        (4, "ready\ngot a line"),
    ] {
        assert!(results[at].contains(text), "{at}: {}", results[at]);
    }
    assert_eq!(offers(&model), [false, true, true, true, true, true]);
    until_gone(&seconds).await?;
    assert_eq!(shown(&daemon).await?, Vec::<Value>::new());
    let run = ended["run_id"].as_str().context("a run")?;
    let events = daemon.events(run).await?;
    let of = |kind: &str| events.iter().find(|event| event["type"] == kind).cloned().unwrap_or_default();
    assert_eq!((&of("process_started")["process"], &of("process_started")["kept"]), (&json!("p1"), &json!(false)));
    assert_eq!((&of("process_ended")["process"], &of("process_ended")["how"]), (&json!("p1"), &json!("run_ended")));
    daemon.ask("anna", "hello").await?;
    daemon.ask("bert", "hello").await?;
    assert_eq!(offers(&model)[6..], [false, false]);
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_kept_process_survives_its_turn_but_no_stop() -> Result<()> {
    let seconds = seconds(1);
    let model = ModelServer::start(vec![], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url).settings(RULES);
    let daemon = home.start().await?;
    keep(&daemon, &model, "anna", &seconds).await?;
    let shown_now = shown(&daemon).await?;
    assert_eq!((shown_now.len(), &shown_now[0]["id"], &shown_now[0]["kept"]), (1, &json!("p1"), &json!(true)));
    // A later turn of the conversation has it; another conversation neither has it nor is told that it exists.
    model.then(process(json!({"action": "wait", "id": "p1", "pattern": "ready"})));
    daemon.ask("anna", "is it up?").await?;
    assert!(results(&model).last().is_some_and(|text| text.contains("p1 runs; found")), "{:?}", results(&model));
    model.then(process(json!({"action": "kill", "id": "p1"})));
    daemon.ask("bert", "end it").await?;
    assert!(
        results(&model).last().is_some_and(|text| text.contains("There is no background process")),
        "{:?}",
        results(&model)
    );
    assert_eq!(offers(&model), [false, true, true, true, false, false]);
    assert_eq!(sleepers(&seconds).len(), 1);
    let metrics = belay_tests::daemon::client().get(format!("{}/metrics", daemon.url)).send().await?.text().await?;
    assert!(metrics.lines().any(|line| line == "belay_background_processes 1"), "{metrics}");
    // The stop of another conversation does not concern it.
    let (_, report) = daemon.request("POST", "/api/v1/sessions/bert/stop?wait_ms=10000", None).await?;
    assert_eq!(report, json!({"stopped": [], "still_running": []}));
    assert_eq!(sleepers(&seconds).len(), 1);
    let (_, report) = daemon.request("POST", "/api/v1/sessions/anna/stop?wait_ms=10000", None).await?;
    assert_eq!((&report["ended_processes"], &report["still_running"]), (&json!(1), &json!([])), "{report}");
    assert_eq!(sleepers(&seconds), Vec::<String>::new());
    let (_, report) = daemon.request("POST", "/api/v1/sessions/anna/stop?wait_ms=10000", None).await?;
    assert_eq!(report, json!({"stopped": [], "still_running": []}));
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_stop_that_waits_says_that_nothing_runs_only_when_a_stubborn_process_has_ended() -> Result<()> {
    let seconds = seconds(9);
    let model = ModelServer::start(vec![], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url).settings(RULES);
    let daemon = home.start().await?;
    // It ends at KILL only.
    let script = format!("trap '' TERM; sleep {seconds} & echo ready; wait");
    keep_script(&daemon, &model, "anna", &seconds, &script).await?;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let (_, report) = daemon.request("POST", "/api/v1/sessions/anna/stop?wait_ms=10000", None).await?;
        if report["still_running"] == json!([]) {
            break;
        }
        anyhow::ensure!(tokio::time::Instant::now() < deadline, "{report}");
    }
    assert_eq!(sleepers(&seconds), Vec::<String>::new());
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_freeze_a_new_conversation_and_the_end_of_the_daemon_end_what_is_kept() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url).settings(RULES);
    let daemon = home.start().await?;
    let [frozen, renewed, drained] = [2, 3, 4].map(seconds);
    keep(&daemon, &model, "anna", &frozen).await?;
    let (status, freeze) = daemon.request("POST", "/api/v1/freeze", Some(json!({}))).await?;
    assert_eq!(status, 200, "{freeze}");
    until_gone(&frozen).await?;
    assert_eq!(daemon.request("POST", "/api/v1/thaw", Some(json!({}))).await?.0, 200);
    keep(&daemon, &model, "anna", &renewed).await?;
    daemon.ask("anna", "/new").await?;
    until_gone(&renewed).await?;
    keep(&daemon, &model, "anna", &drained).await?;
    daemon.shut_down().await?;
    assert_eq!(sleepers(&drained), Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn a_killed_daemon_leaves_no_process_and_the_next_one_says_that_the_handle_is_gone() -> Result<()> {
    let (seconds, of_run) = (seconds(5), seconds(6));
    let model = ModelServer::start(vec![], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url).settings(RULES);
    let daemon = home.start().await?;
    keep(&daemon, &model, "anna", &seconds).await?;
    model.then(start(&sleeping(&of_run), false));
    model.then(process(json!({"action": "wait", "id": "p2", "pattern": "ready"})));
    model.then(Answer::Stall);
    let before = model.requests().len();
    let run = daemon.send("bert", "serve").await?;
    model.seen(u32::try_from(before)? + 3).await;
    until_there(&seconds).await?;
    until_there(&of_run).await?;
    daemon.kill().await?;
    until_gone(&seconds).await?;
    until_gone(&of_run).await?;
    let daemon = home.start().await?;
    daemon.finished(&run).await?;
    model.then(process(json!({"action": "read", "id": "p1"})));
    daemon.ask("anna", "what does it say?").await?;
    let told = results(&model);
    assert!(told.last().is_some_and(|text| text.contains("when Belay was restarted")), "{told:?}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_stop_ends_a_wait_and_the_process_that_it_waits_for() -> Result<()> {
    let seconds = seconds(7);
    let wait = process(json!({"action": "wait", "id": "p1", "pattern": "never", "timeout_s": 300}));
    let model = ModelServer::start(vec![start(&sleeping(&seconds), false), wait], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url).settings(RULES);
    let daemon = home.start().await?;
    let run = daemon.send("anna", "wait for it").await?;
    model.seen(2).await;
    until_there(&seconds).await?;
    let (_, report) = daemon.request("POST", &format!("/api/v1/runs/{run}/stop?wait_ms=10000"), None).await?;
    assert_eq!((&report["stopped"], &report["still_running"]), (&json!([run]), &json!([])), "{report}");
    assert_eq!(sleepers(&seconds), Vec::<String>::new());
    assert_eq!(daemon.finished(&run).await?["status"], "stopped");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn an_endless_poll_is_found_by_the_stop_rules() -> Result<()> {
    let seconds = seconds(8);
    let model = ModelServer::start(
        vec![start(&sleeping(&seconds), false), process(json!({"action": "wait", "id": "p1", "pattern": "ready"}))],
        process(json!({"action": "read", "id": "p1"})),
    )
    .await;
    let home = Home::new().openai(&model.base_url).settings(RULES).set("agent.max_tool_iterations", 200);
    let daemon = home.start().await?;
    let run = daemon.send("anna", "look at it for ever").await?;
    let ended = daemon.finished(&run).await?;
    assert_eq!((&ended["status"], &ended["reason"]), (&json!("stopped"), &json!("tool_loop")), "{ended}");
    until_gone(&seconds).await?;
    daemon.shut_down().await?;
    Ok(())
}
