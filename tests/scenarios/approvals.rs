//! A question, its answers, and a stop in the middle of a command: through the real binary, as the guide shows them.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belay_tests::daemon::{Daemon, Home};
use serde_json::{Value, json};

/// The conversation that the guide shows under a mark, without its fence.
fn shown(mark: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ stands in the workspace");
    let text = std::fs::read_to_string(root.join("docs/guide/approvals.md")).expect("the guide is there");
    let (_, rest) = text.split_once(&format!("<!-- {mark} -->\n")).expect("the mark is there");
    let (inside, _) = rest.split_once(&format!("<!-- /{mark} -->")).expect("the mark is closed");
    let lines: Vec<&str> = inside.trim().lines().collect();
    lines[1..lines.len() - 1].join("\n") + "\n"
}

/// A text with everything that differs from run to run replaced by dots.
fn masked(text: &str) -> String {
    let is_id = |word: &str| word.len() == 36 && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let is_mark = |word: &str| word.len() == 12 && word.chars().all(|c| c.is_ascii_hexdigit());
    let is_end = |word: &str| word.len() == 4 && word.chars().all(|c| c.is_ascii_hexdigit());
    let mask = |word: &str, answers: bool| {
        let bare = word.trim_end_matches([',', ')', ']']);
        let is_masked = is_id(bare) || is_mark(bare) || (answers && is_end(bare));
        if is_masked { word.replace(bare, "…") } else { word.to_owned() }
    };
    // The end of an id stands behind the command that answers the question.
    let line = |line: &str| {
        let answers = line.contains("/approve ");
        line.split(' ').map(|word| mask(word, answers)).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// A home whose user has these settings.
fn with_settings(toml: &str) -> Home {
    let home = Home::new();
    let place = home.path().join("config/belay");
    std::fs::create_dir_all(&place).expect("a directory");
    std::fs::write(place.join("belay.toml"), toml).expect("written");
    home
}

async fn paused(daemon: &Daemon, run: &str) -> Result<String> {
    let record = daemon.until(run, "paused").await?;
    Ok(record["waiting_for"]["approval"].as_str().context("it says which question it waits for")?.to_owned())
}

fn call(argv: &[&str]) -> String {
    format!("call run_command {}", json!({ "argv": argv }))
}

#[tokio::test]
async fn the_guide_shows_the_conversation_that_asks() -> Result<()> {
    let input = format!("{}\nyes\n/quit\n", call(&["uname", "-s"]));
    let printed = Home::new().run(&["run", "--set", "llm.provider=rehearsal"], &input).await?;
    let shown = shown("approval");
    let (command, conversation) = shown.split_once('\n').context("a command, then what it prints")?;
    assert!(command.contains(r#"call run_command {"argv":["uname","-s"]}\nyes\n/quit\n"#), "{command}");
    assert_eq!(masked(&printed.stdout).trim(), conversation.trim(), "{}", printed.stderr);
    Ok(())
}

#[tokio::test]
async fn the_guide_shows_the_conversation_that_is_stopped_in_the_middle_of_a_command() -> Result<()> {
    let home = with_settings("[[approvals.rules]]\ntool = \"run_command\"\nask = \"never\"\n");
    let mut daemon = home.start_with(Stdio::piped()).await?;
    // Unlike any other process of this machine.
    let seconds = format!("{}", 86_400 + std::process::id());
    daemon.type_line(&call(&["sleep", &seconds])).await?;
    let patience = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    while !is_running(&seconds) {
        anyhow::ensure!(tokio::time::Instant::now() < patience, "the command does not begin");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    daemon.type_line("/stop").await?;
    let lines = daemon.printed("Interrupted.").await?;
    assert!(!is_running(&seconds), "it was acknowledged, and still runs");
    let shown = shown("stopped");
    // A busy machine may be asked before the end is in the store, or before the process is gone from its list, and says so.
    let printed = lines.join("\n");
    let printed = printed.split(" Still ending:").next().unwrap_or_default();
    assert!(shown.contains("/stop\n") && shown.trim_end().ends_with(printed), "{lines:?}");
    daemon.shut_down().await?;
    Ok(())
}

/// Whether a process of this machine sleeps for so many seconds.
fn is_running(seconds: &str) -> bool {
    let wanted = format!("/sleep\0{seconds}\0");
    // The program itself, not the walls around it, whose command lines end the same way.
    let sleeps = |line: &str| line.ends_with(&wanted) && line.matches('\0').count() == 2;
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .map(|entry| entry.path().join("cmdline"))
        .any(|path| std::fs::read_to_string(path).is_ok_and(|line| sleeps(&line)))
}

#[tokio::test]
async fn a_question_outlives_a_kill_and_is_answered_by_a_program() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let run = daemon.send("alice", &call(&["echo", "here"])).await?;
    let approval = paused(&daemon, &run).await?;
    daemon.kill().await?;

    let daemon = home.start().await?;
    assert_eq!(paused(&daemon, &run).await?, approval, "the same question waits");
    let (status, list) = daemon.request("GET", "/api/v1/approvals", None).await?;
    assert_eq!((status, list["approvals"].as_array().map(Vec::len)), (200, Some(1)), "{list}");
    let path = format!("/api/v1/approvals/{approval}");
    let (status, answer) = daemon.request("POST", &path, Some(json!({ "decision": "approve" }))).await?;
    assert_eq!((status, &answer["run_id"]), (200, &json!(run)), "{answer}");
    let ended = daemon.finished(&run).await?;
    assert_eq!((&ended["status"], &ended["attempt"]), (&json!("completed"), &json!(1)), "{ended}");
    assert!(ended["reply"].as_str().is_some_and(|reply| reply.contains("here")), "{ended}");
    let (status, second) = daemon.request("POST", &path, Some(json!({ "decision": "deny" }))).await?;
    assert_eq!((status, &second["error"]["code"]), (409, &json!("decided")), "{second}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_denial_is_read_by_the_model_and_nothing_is_done() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let text = format!("call write_file {}", json!({ "path": "a.txt", "content": "a" }));
    let run = daemon.send("alice", &text).await?;
    let approval = paused(&daemon, &run).await?;
    let (_, listed) = daemon.request("GET", &format!("/api/v1/approvals/{approval}"), None).await?;
    assert_eq!(field(&listed, "tool"), "write_file", "{listed}");
    assert!(home.workspace().join("a.txt").symlink_metadata().is_err());
    let answered = daemon.ask("alice", "no").await;
    // A bare no is a command: it is answered, and makes no run.
    assert!(answered.is_err() || answered.is_ok_and(|answer| answer["command"] == "/deny"));
    let ended = daemon.finished(&run).await?;
    assert_eq!(ended["status"], "completed", "{ended}");
    assert!(home.workspace().join("a.txt").symlink_metadata().is_err(), "it was written all the same");
    daemon.shut_down().await?;
    Ok(())
}

fn field<'a>(approval: &'a Value, name: &str) -> &'a str {
    approval[name].as_str().or_else(|| approval["approval"][name].as_str()).unwrap_or_default()
}

/// What hooks of the operator say on the road of a real message: one changes what goes out, one refuses a call.
#[tokio::test]
async fn hooks_change_and_refuse_through_the_real_binary() -> Result<()> {
    let home = with_settings(
        r#"
        [[hooks]]
        name = "sunday"
        on = "before_tool_call"
        tools = ["calculate"]
        command = ["/bin/sh", "-c", """cat >/dev/null; echo '{"refuse":"not on a Sunday"}'"""]
        [[hooks]]
        name = "polish"
        on = "message_sending"
        command = ["/bin/sh", "-c", """cat >/dev/null; echo '{"change":{"text":"changed on the way"}}'"""]
        "#,
    );
    let daemon = home.start().await?;
    let ended = daemon.ask("alice", "calculate 17*23").await?;
    assert_eq!(ended["reply"], "changed on the way", "{ended}");
    let events = daemon.events(ended["run_id"].as_str().context("a run")?).await?;
    let outcome = |name: &str| {
        events
            .iter()
            .find(|event| event["type"] == "hook" && event["name"] == name)
            .map(|event| event["outcome"].clone())
    };
    assert_eq!((outcome("sunday"), outcome("polish")), (Some(json!("refused")), Some(json!("changed"))), "{events:#?}");
    daemon.shut_down().await?;
    Ok(())
}

/// The secret is in the file and not in the message. A command has no use for a file, and says so.
#[tokio::test]
async fn a_hook_reads_the_files_of_a_message_and_a_command_takes_none() -> Result<()> {
    let home = with_settings(
        r#"
        [[hooks]]
        name = "secrets"
        on = "message_received"
        command = ["/bin/sh", "-c", """grep -q 'IBAN.*text/plain\\|text/plain.*IBAN' && echo '{"refuse":"no bank accounts"}'; true"""]
        "#,
    );
    let daemon = home.start().await?;
    let send = async |text: &str, content: &str| {
        let data = STANDARD.encode(content);
        let message = json!({"session": "alice", "text": text, "attachments": [{"name": "a.txt", "data": data}]});
        daemon.post(message).await
    };
    let (status, refused) = send("look", "IBAN 4711\n").await?;
    assert_eq!((status, refused.to_string().contains("no bank accounts")), (403, true), "{refused}");
    let (status, accepted) = send("look", "nothing\n").await?;
    assert_eq!(status, 202, "{accepted}");
    let (status, refused) = send("/compact", "nothing\n").await?;
    assert_eq!((status, refused.to_string().contains("a command takes no files")), (422, true), "{refused}");
    daemon.shut_down().await?;
    Ok(())
}

/// The answer to a stop that waits says the truth about what does not heed TERM: it lives for a grace of two seconds.
#[tokio::test]
async fn a_stop_that_waits_returns_when_what_ignores_it_is_gone() -> Result<()> {
    let home = with_settings("[[approvals.rules]]\ntool = \"run_command\"\nask = \"never\"\n");
    let daemon = home.start().await?;
    let deaf = "import signal, pathlib, time\nsignal.signal(15, signal.SIG_IGN)\npathlib.Path('deaf').touch()\ntime.sleep(3600)";
    let run = daemon.send("alice", &call(&["python3", "-c", deaf])).await?;
    let patience = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    while !home.workspace().join("deaf").exists() {
        anyhow::ensure!(tokio::time::Instant::now() < patience, "the command does not begin");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let (status, report) = daemon.request("POST", &format!("/api/v1/runs/{run}/stop?wait_ms=10000"), None).await?;
    assert_eq!((status, &report["stopped"], &report["still_running"]), (200, &json!([run]), &json!([])), "{report}");
    let (_, after) = daemon.request("POST", &format!("/api/v1/runs/{run}/stop"), None).await?;
    assert_eq!(after["still_running"], json!([]), "{after}");
    let ours = home.path().to_string_lossy().into_owned();
    let left = std::fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    assert_eq!(left.filter(|line| line.contains(&ours) && line.contains("python3")).count(), 0, "something still runs");
    daemon.shut_down().await?;
    Ok(())
}
