//! Files that a run sends: to Telegram, to readers over HTTP, and to a terminal.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belay_tests::bot_api::BotApi;
use belay_tests::daemon::{Daemon, Home, PATIENCE, client};
use belay_tests::model_server::{Answer, ModelServer};
use belay_tests::{person, socket::Socket};
use reqwest::Response;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::attachments::sql;

/// A PNG of one pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

const TOKEN: &str = "t0ken-of-the-test";
const OPERATOR_TOKEN: &str = "0perator-t0ken-of-the-test";

fn png() -> Vec<u8> {
    STANDARD.decode(PNG).expect("base64")
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A call that the rehearsal makes.
fn call(arguments: &Value) -> String {
    format!("call send_file {arguments}")
}

fn http_home() -> Home {
    Home::new().set("agent.send_file", true)
}

/// Gets a link, without any token.
async fn get(daemon: &Daemon, link: &str) -> Result<Response> {
    Ok(client().get(format!("{}{link}", daemon.url)).send().await?)
}

fn link_of(run: &Value) -> Result<String> {
    Ok(run["files"][0]["url"].as_str().with_context(|| format!("a link: {run}"))?.to_owned())
}

#[tokio::test]
async fn a_picture_reaches_telegram_as_a_photo_with_its_caption_and_everything_else_as_a_document() -> Result<()> {
    let api = BotApi::start().await;
    let rest = "word ".repeat(300);
    let caption = format!("A **chart**. {rest}");
    let model = ModelServer::start(
        vec![
            Answer::call("send_file", json!({"path": "out/chart.png", "caption": caption})),
            Answer::call("send_file", json!({"path": "report \"1\".pdf"})),
        ],
        Answer::text("Both are sent."),
    )
    .await;
    let home = person::home(&api).openai(&model.base_url).set("agent.send_file", true);
    std::fs::create_dir(home.workspace().join("out"))?;
    std::fs::write(home.workspace().join("out/chart.png"), png())?;
    let pdf = [b"%PDF-1.7\n".as_slice(), &[b'x'; 300_000]].concat();
    std::fs::write(home.workspace().join("report \"1\".pdf"), &pdf)?;
    let daemon = home.start().await?;
    person::say(&daemon, 1, "make a chart").await?;
    let files = api.files(2).await;
    let (method, photo) = &files[0];
    assert_eq!((method.as_str(), &photo["chat_id"], &photo["parse_mode"]), ("sendPhoto", &json!("42"), &json!("HTML")));
    assert_eq!(photo["photo"], json!({"filename": "chart.png", "type": "image/png", "base64": PNG}));
    let shown = photo["caption"].as_str().context("a caption")?;
    assert!(shown.starts_with("A <b>chart</b>. word word") && shown.len() <= 1024 + "<b></b>".len(), "{shown}");
    let (method, document) = &files[1];
    assert_eq!((method.as_str(), &document["caption"]), ("sendDocument", &Value::Null));
    assert_eq!(document["document"]["filename"], "report %221%22.pdf");
    assert_eq!(STANDARD.decode(document["document"]["base64"].as_str().context("bytes")?)?, pdf);
    // The rest of the caption, and the answer.
    let texts = person::texts(&api, 2).await;
    assert_eq!(
        (texts[0].matches("word").count() + shown.matches("word").count(), texts[1].as_str()),
        (300, "Both are sent.")
    );
    daemon.shut_down().await?;
    assert_eq!(api.files(2).await.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_picture_that_telegram_refuses_as_a_photo_is_sent_as_a_document_and_a_429_is_obeyed() -> Result<()> {
    let api = BotApi::start().await;
    let home = person::home(&api).set("agent.send_file", true);
    std::fs::write(home.workspace().join("a.png"), png())?;
    api.refuse(
        json!({"ok": false, "error_code": 429, "description": "Too Many Requests", "parameters": {"retry_after": 1}}),
    );
    api.refuse(json!({"ok": false, "error_code": 400, "description": "Bad Request: PHOTO_INVALID_DIMENSIONS"}));
    let daemon = home.start().await?;
    let begun = std::time::Instant::now();
    person::say(&daemon, 1, &call(&json!({"path": "a.png"}))).await?;
    let files = api.files(1).await;
    assert!(begun.elapsed() >= Duration::from_secs(1), "not before the second is over");
    assert_eq!((files[0].0.as_str(), &files[0].1["document"]["base64"]), ("sendDocument", &json!(PNG)));
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_file_that_was_committed_before_a_crash_is_sent_once_and_one_without_an_answer_is_not_repeated() -> Result<()>
{
    let api = BotApi::start().await;
    let home = person::home(&api).set("agent.send_file", true);
    std::fs::write(home.workspace().join("a.png"), png())?;
    // It waits for its second attempt when the daemon dies.
    api.refuse(
        json!({"ok": false, "error_code": 429, "description": "Too Many Requests", "parameters": {"retry_after": 2}}),
    );
    let daemon = home.start().await?;
    person::say(&daemon, 1, &call(&json!({"path": "a.png"}))).await?;
    api.refused().await;
    deferred(&home).await?;
    daemon.kill().await?;
    // What is sent are the stored bytes.
    std::fs::remove_file(home.workspace().join("a.png"))?;
    let daemon = home.start().await?;
    let files = api.files(1).await;
    assert_eq!(files[0].1["photo"]["base64"], json!(PNG));
    api.messages(1).await;

    // The second file is taken and not answered.
    std::fs::write(home.workspace().join("b.png"), png())?;
    api.be_silent(true);
    person::say(&daemon, 2, &call(&json!({"path": "b.png"}))).await?;
    api.files(2).await;
    daemon.kill().await?;
    api.be_silent(false);
    let daemon = home.start().await?;
    // Its answer follows; the file, whose result nobody knows, does not.
    api.messages(2).await;
    daemon.shut_down().await?;
    assert_eq!(api.files(2).await.len(), 2);
    Ok(())
}

/// Waits until the store knows that a delivery with a file waits for its next attempt.
async fn deferred(home: &Home) -> Result<()> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let waiting = "SELECT COUNT(*) FROM outbox WHERE file IS NOT NULL AND state = 'waiting' AND due_at IS NOT NULL";
    while sql(home, waiting)? != json!([[1]]) {
        anyhow::ensure!(tokio::time::Instant::now() < deadline, "the delivery is not deferred");
        tokio::time::sleep(Duration::from_millis(10)).await; // polling a real process: there is no clock to pause
    }
    Ok(())
}

#[tokio::test]
async fn over_http_a_file_is_part_of_the_run_the_messages_and_the_events_with_a_link_that_needs_no_token() -> Result<()>
{
    let home = http_home().env("BELAY_TOKEN", TOKEN).env("BELAY_OPERATOR_TOKEN", OPERATOR_TOKEN);
    let html = b"<!doctype html><script>alert(1)</script>";
    std::fs::write(home.workspace().join("page.txt"), html)?;
    let daemon = home.start().await?;
    let http = client();
    let api =
        |method: reqwest::Method, path: &str| http.request(method, format!("{}{path}", daemon.url)).bearer_auth(TOKEN);
    let text = call(&json!({"path": "page.txt", "caption": "The page"}));
    let body = json!({"session": "alice", "text": text, "wait_ms": PATIENCE.as_millis() as u64});
    let run: Value = api("POST".parse()?, "/api/v1/messages").json(&body).send().await?.json().await?;
    let file = &run["files"][0];
    assert_eq!(
        (&file["name"], &file["media_type"], &file["bytes"], &file["sha256"], &file["caption"]),
        (&json!("page.txt"), &json!("text/html"), &json!(html.len()), &json!(sha256(html)), &json!("The page")),
        "{run}"
    );
    let link = link_of(&run)?;
    let served = get(&daemon, &link).await?;
    assert_eq!(served.status().as_u16(), 200);
    for (name, value) in [
        ("content-type", "application/octet-stream"),
        ("content-disposition", "attachment; filename=\"page.txt\"; filename*=UTF-8''page.txt"),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "private, no-store"),
        ("content-length", "40"),
    ] {
        assert_eq!(served.headers()[name], value);
    }
    assert_eq!(served.bytes().await?, html.as_slice());

    let id = run["run_id"].as_str().context("an id")?;
    let messages: Value = api("GET".parse()?, "/api/v1/sessions/alice/messages").send().await?.json().await?;
    let lines = messages["messages"].as_array().context("messages")?;
    let with_files: Vec<&Value> = lines.iter().filter(|line| line["files"].is_array()).collect();
    assert_eq!(
        (with_files.len(), &with_files[0]["files"][0]["id"], &with_files[0]["role"]),
        (1, &file["id"], &json!("assistant"))
    );
    let events = api("GET".parse()?, &format!("/api/v1/runs/{id}/events")).send().await?.text().await?;
    let sent: Value = serde_json::from_str(
        events
            .lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .find(|data| data.contains("\"file_sent\""))
            .context("the event")?,
    )?;
    for link in [&sent["file"]["url"], &with_files[0]["files"][0]["url"]] {
        assert_eq!(get(&daemon, link.as_str().context("a link")?).await?.status().as_u16(), 200);
    }

    // The link survives a restart; a changed one opens nothing; with the conversation the file is gone.
    let log = daemon.shut_down().await?;
    assert!(!log.stderr.contains(&link), "a link is not in the log");
    let daemon = home.start().await?;
    assert_eq!(get(&daemon, &link).await?.status().as_u16(), 200);
    let forged = format!("{}{}", &link[..link.len() - 6], "AAAAAA");
    for path in [forged.as_str(), "/api/v1/files/x", "/api/v1/files/..%2f..%2fetc%2fpasswd"] {
        assert_eq!(get(&daemon, path).await?.status().as_u16(), 404, "{path}");
    }
    let session = format!("{}/api/v1/sessions/alice", daemon.url);
    let deleted = client().delete(session).bearer_auth(OPERATOR_TOKEN).send().await?;
    assert_eq!(deleted.status().as_u16(), 200);
    let gone = get(&daemon, &link).await?;
    assert_eq!(gone.status().as_u16(), 410);
    assert_eq!(gone.json::<Value>().await?["error"]["code"], "gone");
    Ok(())
}

#[tokio::test]
async fn an_approval_shows_the_file_and_holds_for_its_bytes_alone() -> Result<()> {
    let home = http_home();
    let place = home.path().join("config/belay");
    std::fs::create_dir_all(&place)?;
    std::fs::write(place.join("belay.toml"), "[[approvals.rules]]\ntool = \"send_file\"\nask = \"always\"\n")?;
    let path = home.workspace().join("plan.txt");
    std::fs::write(&path, "version 1")?;
    let daemon = home.start().await?;
    let run = daemon.send("alice", &call(&json!({"path": "plan.txt", "caption": "The plan"}))).await?;
    let first = question(&daemon, &run).await?;
    let bound = first["bound"].as_array().context("facts")?;
    for fact in [
        json!(["file", "plan.txt"]),
        json!(["size", "9 bytes"]),
        json!(["type", "text/plain"]),
        json!(["sha256", sha256(b"version 1")]),
        json!(["to", "this conversation"]),
        json!(["caption", "The plan"]),
    ] {
        assert!(bound.contains(&fact), "{fact}: {first}");
    }
    // A file that changes after its approval is asked about again, and then not sent.
    for version in ["version 2", "version 3"] {
        let asked = question(&daemon, &run).await?;
        std::fs::write(&path, version)?;
        decide(&daemon, &asked, "approve").await?;
    }
    let ended = daemon.finished(&run).await?;
    assert!(ended["files"].is_null() && ended["status"] == "completed", "{ended}");

    // A yes to the present bytes sends them.
    let run = daemon.send("alice", &call(&json!({"path": "plan.txt"}))).await?;
    decide(&daemon, &question(&daemon, &run).await?, "approve").await?;
    let ended = daemon.finished(&run).await?;
    assert_eq!(get(&daemon, &link_of(&ended)?).await?.text().await?, "version 3");
    // A no does not.
    let run = daemon.send("alice", &call(&json!({"path": "plan.txt"}))).await?;
    decide(&daemon, &question(&daemon, &run).await?, "deny").await?;
    assert!(daemon.finished(&run).await?["files"].is_null());
    Ok(())
}

/// The question that a run waits for.
async fn question(daemon: &Daemon, run: &str) -> Result<Value> {
    let paused = daemon.finished(run).await?;
    let id = paused["waiting_for"]["approval"].as_str().context("a question")?;
    Ok(daemon.request("GET", &format!("/api/v1/approvals/{id}"), None).await?.1)
}

async fn decide(daemon: &Daemon, question: &Value, decision: &str) -> Result<()> {
    let id = question["id"].as_str().context("an id")?;
    let path = format!("/api/v1/approvals/{id}");
    let (status, answer) = daemon.request("POST", &path, Some(json!({"decision": decision}))).await?;
    anyhow::ensure!(status == 200, "{answer}");
    Ok(())
}

#[tokio::test]
async fn files_outside_of_the_workspace_or_of_a_wrong_size_are_not_sent() -> Result<()> {
    let paths = ["../secret.key", "link", "/etc/hostname", "empty", "huge", ".", "missing.pdf"];
    let script = paths.iter().map(|path| Answer::call("send_file", json!({"path": path}))).collect();
    let model = ModelServer::start(script, Answer::text("None was sent.")).await;
    let home = http_home().openai(&model.base_url).set("agent.max_tool_iterations", 20).set("stops.enabled", false);
    let workspace = home.workspace();
    symlink("/etc/hostname", workspace.join("link"))?;
    std::fs::write(workspace.join("empty"), "")?;
    std::fs::File::create(workspace.join("huge"))?.set_len(2_000_000_000)?;
    let daemon = home.start().await?;
    let run = daemon.ask("alice", "send them").await?;
    assert!(run["files"].is_null() && run["reply"] == "None was sent.", "{run}");
    let request = model.requests().pop().context("a request")?.to_string();
    for why in [
        "leads out of the workspace",
        "is absolute",
        "0 bytes",
        "larger than 20971520 bytes",
        "is a directory",
        "There is no",
    ] {
        assert!(request.contains(why), "{why}: {request}");
    }
    assert!(!stored_files(&home).exists(), "nothing is stored");
    Ok(())
}

fn stored_files(home: &Home) -> std::path::PathBuf {
    Path::new(home.path()).join("data/belay/attachments")
}

#[tokio::test]
async fn a_terminal_shows_the_path_and_an_openai_client_a_link() -> Result<()> {
    let home = http_home();
    std::fs::write(home.workspace().join("notes.md"), "# Notes")?;
    let path = home.workspace().join("notes.md");
    let text = call(&json!({"path": "notes.md", "caption": "All of them"}));
    let line = format!("notes.md (7 bytes): {}", path.canonicalize()?.display());
    let ask = ["ask", "--set", "llm.provider=rehearsal", "--set", "agent.send_file=true", &text];
    let asked = home.run(&ask, "").await?;
    assert!(asked.stdout.lines().any(|printed| printed == line), "{asked:?}");
    let typed = home
        .run(&["run", "--set", "llm.provider=rehearsal", "--set", "agent.send_file=true"], &format!("{text}\n/quit\n"))
        .await?;
    assert!(typed.stdout.contains(&line) && typed.stdout.contains("All of them"), "{typed:?}");

    let daemon = home.start().await?;
    let body = json!({"model": "belay", "user": "alice", "messages": [{"role": "user", "content": text}]});
    let (status, answer) = daemon.request("POST", "/v1/chat/completions", Some(body)).await?;
    assert_eq!(status, 200, "{answer}");
    let content = answer["choices"][0]["message"]["content"].as_str().context("content")?;
    let link = answer["belay"]["files"][0]["url"].as_str().context("a link")?;
    assert!(content.ends_with(&format!("\n\nAll of them\n[notes.md]({link})")), "{content}");
    assert_eq!(get(&daemon, link).await?.text().await?, "# Notes");

    let mut socket = Socket::open(&daemon).await?;
    let params = json!({"sessionKey": "bob", "message": text, "idempotencyKey": "1"});
    socket.call("agent", params).await?;
    let ends = |event: &Value| event["data"]["phase"] == "end";
    let events = socket.events("agent", ends).await?;
    let sent = events.iter().find(|event| event["stream"] == "file").context("the event")?;
    let data = &sent["data"];
    assert_eq!(
        (&data["name"], &data["bytes"], &data["caption"]),
        (&json!("notes.md"), &json!(7), &json!("All of them"))
    );
    assert_eq!(get(&daemon, data["url"].as_str().context("a link")?).await?.status().as_u16(), 200);
    Ok(())
}
