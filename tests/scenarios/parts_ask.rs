//! Parts of a run that ask a person, through the real binary: subagents, steps of plans, workers; and lightweight
//! routine runs, which ask like jobs.

use std::time::Duration;

use anyhow::{Context, Result};
use belay_tests::bot_api::BotApi;
use belay_tests::daemon::{Daemon, Home};
use belay_tests::model_server::{Answer, ModelServer};
use belay_tests::person::{home, say, texts};
use serde_json::{Value, json};

/// A call that adds a line to a file of the workspace, so that a repetition is visible.
fn adds_line() -> Answer {
    Answer::call("run_command", json!({"argv": ["sh", "-c", "echo line >> lines.txt"]}))
}

fn spawn(task: &str) -> (String, String) {
    ("spawn_subagent".to_owned(), json!({ "task": task }).to_string())
}

fn done() -> Answer {
    Answer::call("terminate", json!({"status": "success", "summary": "the step is over"}))
}

/// The lines that the calls have added.
fn lines(home: &Home) -> String {
    std::fs::read_to_string(home.workspace().join("lines.txt")).unwrap_or_default()
}

/// The id of the question in a text.
fn id_in(question: &str) -> Result<String> {
    let (_, rest) = question.split_once("/approve ").context("it says how to approve")?;
    Ok(rest.chars().take_while(|c| c.is_ascii_hexdigit() || *c == '-').collect())
}

async fn waiting(daemon: &Daemon) -> Result<Vec<Value>> {
    let (_, list) = daemon.request("GET", "/api/v1/approvals", None).await?;
    Ok(list["approvals"].as_array().cloned().unwrap_or_default())
}

/// Waits until this many questions wait.
async fn until_waiting(daemon: &Daemon, n: usize) -> Result<Vec<Value>> {
    for _ in 0..600 {
        let list = waiting(daemon).await?;
        if list.len() == n {
            return Ok(list);
        }
        tokio::time::sleep(Duration::from_millis(50)).await; // polling a real process: there is no clock to pause
    }
    anyhow::bail!("{n} questions never waited")
}

#[tokio::test]
async fn a_subagent_asks_where_the_person_is_and_acts_after_a_plain_yes() -> Result<()> {
    let script = vec![Answer::Calls(vec![spawn("add a line")]), adds_line(), Answer::text("added")];
    let model = ModelServer::start(script, Answer::text("all of it")).await;
    let api = BotApi::start().await;
    let home = home(&api).openai(&model.base_url);
    let daemon = home.start().await?;
    say(&daemon, 1, "add a line").await?;
    let told = texts(&api, 1).await;
    assert!(told[0].contains("A subagent asks:") && told[0].contains("echo line"), "{told:?}");
    assert!(!told[0].contains("always"), "{told:?}");
    assert!(api.sent()[0]["reply_markup"].to_string().contains("inline_keyboard"), "{:?}", api.sent()[0]);
    assert_eq!(lines(&home), "", "nothing happens before the answer");
    home.settled().await?;
    say(&daemon, 2, "yes").await?;
    let told = texts(&api, 3).await;
    assert!(told[1..].iter().any(|told| told.contains("Approved.")), "{told:?}");
    assert!(told[1..].iter().any(|told| told.contains("all of it")), "{told:?}");
    assert_eq!(lines(&home), "line\n");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_step_of_a_plan_asks_survives_kills_and_acts_once() -> Result<()> {
    let plan = json!({"command": "create", "title": "It", "steps": ["add a line"]});
    let script = vec![Answer::call("planning", plan), adds_line(), adds_line(), adds_line(), done()];
    let model = ModelServer::start(script, Answer::text("all of it")).await;
    let api = BotApi::start().await;
    let home = home(&api).openai(&model.base_url).set("jobs.plan", true).set("jobs.max_crashes", 1);
    let mut daemon = home.start().await?;
    say(&daemon, 1, "/job add a line").await?;
    let told = texts(&api, 2).await;
    assert!(told[1].contains("Step 1 of the plan of Job “add a line”"), "{told:?}");
    let id = id_in(&told[1])?;
    for killed in 1..=2 {
        home.settled().await?;
        daemon.kill().await?; // more kills than jobs.max_crashes allows for a job that works
        daemon = home.start().await?;
        model.seen(2 + killed).await;
        let waits = until_waiting(&daemon, 1).await?;
        assert!(
            waits[0]["id"].as_str().is_some_and(|whole| whole.ends_with(&id)),
            "the same question waits: {waits:?}"
        );
    }
    assert_eq!(lines(&home), "");
    say(&daemon, 2, &format!("/approve {id}")).await?;
    let told = texts(&api, 4).await;
    assert!(told[2..].iter().any(|told| told.contains("is done") && told.contains("all of it")), "{told:?}");
    assert_eq!(lines(&home), "line\n");
    daemon.shut_down().await?;
    assert_eq!(api.sent().len(), 4, "nobody was asked twice");
    Ok(())
}

#[tokio::test]
async fn a_lightweight_routine_asks_its_owner_over_a_kill_and_its_grants_can_be_revoked() -> Result<()> {
    let granted = || Answer::call("write_file", json!({"path": "notes/a.txt", "content": "x"}));
    let script = vec![granted(), adds_line(), Answer::text("looked"), granted()];
    let model = ModelServer::start(script, Answer::text("looked again")).await;
    let api = BotApi::start().await;
    let home = home(&api).openai(&model.base_url);
    std::fs::create_dir_all(home.workspace().join("notes"))?;
    let mut daemon = home.start().await?;
    say(&daemon, 1, "/routine create --yes --allow \"write_file: path=notes/*\" watch @yearly | look").await?;
    let told = texts(&api, 1).await;
    assert!(told[0].contains("Without a question it may call") && told[0].contains("path=notes/*"), "{told:?}");
    say(&daemon, 2, "/routine fire watch").await?;
    let told = texts(&api, 3).await;
    let question = told[1..].iter().find(|told| told.contains("asks:")).context("the owner is asked")?;
    assert!(question.contains("Routine “watch” asks:") && question.contains("echo line"), "{told:?}");
    assert!(home.workspace().join("notes/a.txt").exists(), "the granted call asked nobody");
    let id = id_in(question)?;
    home.settled().await?;
    daemon.kill().await?;
    daemon = home.start().await?;
    let waits = until_waiting(&daemon, 1).await?;
    assert!(waits[0]["id"].as_str().is_some_and(|whole| whole.ends_with(&id)), "the same question waits: {waits:?}");
    say(&daemon, 3, &format!("/approve {id}")).await?;
    let told = texts(&api, 5).await;
    assert!(told[3..].iter().any(|told| told.contains("Routine watch: looked")), "{told:?}");
    assert_eq!(lines(&home), "line\n");
    say(&daemon, 4, "/routine revoke watch 1").await?;
    assert!(texts(&api, 6).await[5].contains("(revoked)"));
    say(&daemon, 5, "/routine fire watch").await?;
    let told = texts(&api, 8).await;
    let question = told[6..].iter().find(|told| told.contains("asks:")).context("the revoked grant asks")?;
    say(&daemon, 6, &format!("/deny {}", id_in(question)?)).await?;
    texts(&api, 10).await;
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_line_of_a_script_answers_the_question_of_a_subagent_and_the_end_of_input_waits_for_nobody() -> Result<()> {
    let order = |n: u32| {
        let task = json!({"task": format!("call write_file {}", json!({"path": format!("{n}.txt"), "content": "x"}))});
        format!("call spawn_subagent {task}\n")
    };
    let home = Home::new().set("gateway.listen", "off"); // the end of input ends the daemon
    let args = home.run_args();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let said = home.run(&args, &format!("{}yes\n{}", order(1), order(2))).await?.stdout;
    assert!(said.contains("A subagent asks:") && said.contains("Approved."), "{said}");
    assert!(home.workspace().join("1.txt").exists() && !home.workspace().join("2.txt").exists(), "{said}");
    Ok(())
}

/// The stop of a run while a part of it waits for a person, and another part runs a command.
#[tokio::test]
async fn a_stop_while_a_subagent_waits_leaves_no_process_and_withdraws_the_question() -> Result<()> {
    let sleeps = Answer::call("run_command", json!({"argv": ["sleep", "86399"]}));
    let script = vec![Answer::Calls(vec![spawn("one"), spawn("two")]), adds_line(), sleeps];
    let model = ModelServer::start(script, Answer::Silence).await;
    let home = Home::new().openai(&model.base_url);
    let settings = home.path().join("config/belay");
    std::fs::create_dir_all(&settings)?;
    let rule = "[[approvals.rules]]\ntool = \"run_command\"\narguments = { argv = \"sleep*\" }\nask = \"never\"\n";
    std::fs::write(settings.join("belay.toml"), rule)?;
    let daemon = home.start().await?;
    let run = daemon.send("alice", "work").await?;
    let question = until_waiting(&daemon, 1).await?.remove(0);
    assert_eq!(
        (question["session"].as_str(), question["work"].as_str()),
        (Some("alice"), Some("A subagent")),
        "{question}"
    );
    for _ in 0..600 {
        if sleeping(daemon.pid())? > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await; // polling a real process: there is no clock to pause
    }
    assert!(sleeping(daemon.pid())? > 0, "the other one runs its command");
    let (status, report) = daemon.request("POST", &format!("/api/v1/runs/{run}/stop?wait_ms=10000"), None).await?;
    assert_eq!(status, 200, "{report}");
    assert_eq!(daemon.finished(&run).await?["status"], "stopped");
    assert_eq!(sleeping(daemon.pid())?, 0);
    assert!(waiting(&daemon).await?.is_empty());
    let path = format!("/api/v1/approvals/{}", question["id"].as_str().unwrap_or_default());
    let (status, late) = daemon.request("POST", &path, Some(json!({"decision": "approve"}))).await?;
    assert_eq!(status, 409, "{late}");
    assert_eq!(lines(&home), "");
    daemon.shut_down().await?;
    Ok(())
}

/// Processes with the argument of the command, among all of this machine that the daemon has started.
fn sleeping(daemon: u32) -> Result<usize> {
    let mut found = 0;
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        let is_sleep = line.split(|byte| *byte == 0).any(|word| word == b"86399");
        found += usize::from(is_sleep && is_below(&path, daemon));
    }
    Ok(found)
}

/// Whether a process descends from the daemon.
fn is_below(path: &std::path::Path, daemon: u32) -> bool {
    let mut pid = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse::<u32>().ok());
    while let Some(here) = pid.filter(|pid| *pid > 1) {
        if here == daemon {
            return true;
        }
        let stat = std::fs::read_to_string(format!("/proc/{here}/stat")).unwrap_or_default();
        pid = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
    }
    false
}
