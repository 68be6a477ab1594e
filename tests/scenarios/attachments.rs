//! Files that come with messages: over HTTP, over the OpenAI endpoint and with `belay ask --image`.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belay_tests::daemon::{Daemon, Home, PATIENCE};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};

/// A PNG of one pixel.
pub(crate) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
/// Two pages with one line of text each.
pub(crate) const PDF: &[u8] = include_bytes!("files/two-pages.pdf");
/// A page of 4 GiB, compressed twice.
const PDF_BOMB: &[u8] = include_bytes!("files/bomb.pdf");

/// Longer than an upload is kept.
const TWO_DAYS: Duration = Duration::from_secs(2 * 24 * 3600);

const NO_VISION: &str = "[1 picture not shown: this model does not accept pictures]";

pub(crate) async fn ask_with(daemon: &Daemon, session: &str, text: &str, attachments: Value) -> Result<(u16, Value)> {
    let wait = PATIENCE.as_millis() as u64;
    daemon.post(json!({"session": session, "text": text, "wait_ms": wait, "attachments": attachments})).await
}

pub(crate) async fn upload(daemon: &Daemon, name: &str, bytes: Vec<u8>) -> Result<(u16, Value)> {
    let request = belay_tests::daemon::client()
        .post(format!("{}/api/v1/files?name={name}", daemon.url))
        .header("content-type", "application/octet-stream");
    let response = request.body(bytes).send().await?;
    let status = response.status().as_u16();
    Ok((status, response.json().await?))
}

/// The content of the newest user message that the model got.
fn newest_content(model: &ModelServer) -> Result<Value> {
    let requests = model.requests();
    let messages = requests.last().context("no request")?["messages"].as_array().context("messages")?.clone();
    let newest = messages.iter().rev().find(|message| message["role"] == "user");
    Ok(newest.context("no user message")?["content"].clone())
}

fn files_of(home: &Home) -> Result<Vec<PathBuf>> {
    let directory = home.path().join("data/belay/attachments");
    Ok(std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?)
}

/// Runs a statement on the database of the daemon. Returns the rows as JSON.
pub(crate) fn sql(home: &Home, statement: &str) -> Result<Value> {
    let script = "import json, sqlite3, sys\nwith sqlite3.connect(sys.argv[1], 30) as db:\n    \
                  print(json.dumps(db.execute(sys.argv[2]).fetchall()))";
    let database = home.path().join("data/belay/belay.db");
    let done = Command::new("python3").args(["-c", script]).arg(database).arg(statement).output()?;
    anyhow::ensure!(done.status.success(), "{done:?}");
    Ok(serde_json::from_slice(&done.stdout)?)
}

#[tokio::test]
async fn a_picture_reaches_a_model_that_sees_in_every_step_and_is_deleted_with_its_conversation() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("A dot.")).await;
    let home = Home::new().openai(&model.base_url).set("llm.vision", true);
    let daemon = home.start().await?;
    let picture = json!([{"name": "../dot.png", "media_type": "text/plain", "data": PNG}]);
    let (status, run) = ask_with(&daemon, "alice", "what is this?", picture).await?;
    assert_eq!((status, &run["reply"]), (200, &json!("A dot.")), "{run}");
    let content = newest_content(&model)?;
    let text = content[0]["text"].as_str().context("a text")?;
    assert!(text.ends_with("\nwhat is this?") && text.contains("\"name\":\"dot.png\""), "{text}");
    assert!(text.contains("\"media_type\":\"image/png\"") && text.contains("PNG picture, 1 x 1 pixels"), "{text}");
    let url = content[1]["image_url"]["url"].as_str().context("a picture")?;
    assert!(url.starts_with("data:image/png;base64,"), "{url}");

    daemon.ask("alice", "and its colour?").await?;
    let request = model.requests().pop().context("a request")?.to_string();
    assert_eq!(request.matches("data:image/png;base64,").count(), 1, "{request}");

    let files = files_of(&home)?;
    assert_eq!(files.len(), 2, "the file and the picture as it is shown: {files:?}");
    for file in &files {
        assert_eq!(std::fs::metadata(file)?.permissions().mode() & 0o777, 0o600, "{file:?}");
    }
    let (status, _) = daemon.request("DELETE", "/api/v1/sessions/alice", None).await?;
    assert_eq!(status, 200);
    // A sweep spares files of the last hour.
    let (status, _) = daemon.request("POST", "/api/v1/prune", Some(json!({}))).await?;
    assert_eq!((status, files_of(&home)?.len()), (200, 2));
    let two_days_ago = SystemTime::now() - TWO_DAYS;
    for file in &files {
        std::fs::File::options().write(true).open(file)?.set_modified(two_days_ago)?;
    }
    let (status, _) = daemon.request("POST", "/api/v1/prune", Some(json!({}))).await?;
    assert_eq!((status, files_of(&home)?.len()), (200, 0), "nothing refers to them any more");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_model_that_does_not_see_gets_a_note_and_texts_are_untrusted_content() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("ok")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let (status, run) = ask_with(&daemon, "a", "look", json!([{"name": "dot.png", "data": PNG}])).await?;
    assert_eq!(status, 200, "{run}");
    assert!(newest_content(&model)?.as_str().context("a text")?.ends_with(NO_VISION));

    let (status, pdf) = upload(&daemon, "invoice.pdf", PDF.to_vec()).await?;
    assert_eq!((status, &pdf["media_type"]), (201, &json!("application/pdf")), "{pdf}");
    assert_eq!(pdf["content"], "text of a PDF, 2 of 2 pages", "{pdf}");
    let html = "<html><title>Page</title><script>evil()</script><p>hello</p>";
    let files = json!([
        {"name": "t.csv", "data": STANDARD.encode("a,b\n1,2\n")},
        {"name": "p.txt", "data": STANDARD.encode(html)},
        {"file": pdf["file"]},
        {"name": "a.zip", "data": STANDARD.encode(b"PK\x03\x04\x14\0\0\0\0\0")},
    ]);
    let (status, run) = ask_with(&daemon, "b", "read these", files).await?;
    assert_eq!(status, 200, "{run}");
    let content = newest_content(&model)?;
    let text = content.as_str().context("a text")?;
    for part in [
        "archives are not unpacked",
        "<untrusted source=\"file t.csv\" id=\"",
        "a,b\n1,2",
        "Page\n\nhello",
        "Invoice 4711",
        "Total 99 EUR",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("evil()"), "{text}");
    // The texts are part of the conversation, also after a restart.
    daemon.shut_down().await?;
    let daemon = home.start().await?;
    daemon.ask("b", "go on").await?;
    let request = model.requests().pop().context("a request")?.to_string();
    assert!(request.contains("Invoice 4711"), "{request}");
    Ok(())
}

/// A PNG whose head promises 65,535 x 65,535 pixels.
fn png_bomb() -> Result<Vec<u8>> {
    let mut bomb = STANDARD.decode(PNG)?;
    bomb[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
    // Source: PNG specification, annex D.
    let sum = !bomb[12..29].iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 })
    });
    bomb[29..33].copy_from_slice(&sum.to_be_bytes());
    Ok(bomb)
}

#[tokio::test]
async fn hostile_files_end_in_a_note_or_a_clear_refusal() -> Result<()> {
    let home = Home::new().set("attachments.max_bytes", 100_000).set("attachments.max_count", 2);
    let daemon = home.start().await?;
    let too_wide = "65535 x 65535 pixels";
    let elf = [b"\x7fELF".as_slice(), &[0; 60]].concat();
    for (name, bytes, media_type, part) in [
        ("bomb.png", png_bomb()?, "image/png", too_wide),
        ("bomb.pdf", PDF_BOMB.to_vec(), "application/pdf", "PDF"),
        ("broken.pdf", b"%PDF-1.7\n nothing".to_vec(), "application/pdf", "it is broken, or no PDF"),
        ("bomb.json", "[".repeat(90_000).into_bytes(), "text/plain", "text, cut: the first 65536 of 90000 bytes"),
        ("photo.png", b"PK\x03\x04\x14\0\0\0\0\0".to_vec(), "application/zip", "archives"),
        ("photo.jpg", STANDARD.decode(PNG)?[..40].to_vec(), "image/png", "broken or cut off"),
        ("\u{202e}gpj.exe", elf, "application/x-executable", "programs"),
    ] {
        let (status, taken) = upload(&daemon, name, bytes).await?;
        assert_eq!((status, &taken["media_type"]), (201, &json!(media_type)), "{name}: {taken}");
        assert!(taken["content"].as_str().unwrap_or_default().contains(part), "{name}: {taken}");
    }
    for (bytes, refused, part) in [(vec![], 422, "0 bytes"), (vec![b'a'; 100_001], 413, "attachments.max_bytes")] {
        let (status, error) = upload(&daemon, "x", bytes).await?;
        assert_eq!(status, refused, "{error}");
        assert!(error["error"]["message"].as_str().unwrap_or_default().contains(part), "{error}");
    }
    let one = json!({"name": "a", "data": "YQ=="});
    for (attachments, part) in [
        (json!([{"name": "a", "data": "*"}]), "attachments[0].data: it is not base64"),
        (json!([{"name": "a", "data": ""}]), "0 bytes"),
        (json!([{"file": "0199e3a0-7b1c-7000-8000-0123456789ab"}]), "no uploaded file"),
        (json!([{"file": "../../etc/passwd"}]), "no uploaded file"),
        (json!([{"name": "a"}]), "either data"),
        (json!([one, one, one]), "at most 2"),
    ] {
        let (status, error) = ask_with(&daemon, "s", "hi", attachments).await?;
        assert_eq!(status, 422, "{error}");
        assert!(error["error"]["message"].as_str().unwrap_or_default().contains(part), "{part}: {error}");
    }
    // Nothing of the refused messages was accepted, and the daemon answers.
    let run = daemon.ask("s", "calculate 17*23").await?;
    assert!(run["reply"].as_str().is_some_and(|reply| reply.ends_with("17*23 = 391")), "{run}");
    let (_, messages) = daemon.request("GET", "/api/v1/sessions/s/messages", None).await?;
    assert!(!messages.to_string().contains("\"hi\""), "{messages}");
    Ok(())
}

#[tokio::test]
async fn a_person_has_a_limit_of_bytes_per_day_and_a_key_tells_files_apart() -> Result<()> {
    let home = Home::new().set("attachments.max_bytes_per_day", 10);
    let daemon = home.start().await?;
    let send = |data: &'static str| {
        let body =
            json!({"session": "s", "text": "hi", "idempotency_key": "k", "attachments": [{"name": "a", "data": data}]});
        daemon.post(body)
    };
    let (status, first) = send("YWFh").await?;
    let (again_status, again) = send("YWFh").await?;
    assert_eq!((status, again_status, &again["duplicate"]), (202, 202, &json!(true)), "{again}");
    assert_eq!(again["run_id"], first["run_id"]);
    let (status, other) = send("YmJi").await?;
    assert_eq!((status, &other["error"]["code"]), (409, &json!("conflict")), "{other}");
    // 6 of 10 bytes are used. A file that exceeds the rest is not even stored.
    let stored = files_of(&home)?.len();
    let (status, beyond) = upload(&daemon, "b", vec![b'b'; 5]).await?;
    assert_eq!((status, &beyond["error"]["code"]), (429, &json!("upload_quota")), "{beyond}");
    assert_eq!(files_of(&home)?.len(), stored, "{beyond}");
    let (status, last) = upload(&daemon, "b", b"bbbb".to_vec()).await?;
    assert_eq!(status, 201, "{last}");
    // Nothing is left. The message under a known key still gives its run, and a known file is not charged again.
    let (status, again) = send("YWFh").await?;
    assert_eq!((status, &again["duplicate"], &again["run_id"]), (202, &json!(true), &first["run_id"]), "{again}");
    let (status, new) =
        daemon.post(json!({"session": "s", "text": "new", "attachments": [{"name": "a", "data": "YWFh"}]})).await?;
    assert_eq!(status, 202, "{new}");
    let (status, beyond) =
        daemon.post(json!({"session": "s", "text": "x", "attachments": [{"name": "a", "data": "YQ=="}]})).await?;
    assert_eq!((status, &beyond["error"]["code"]), (429, &json!("upload_quota")), "{beyond}");
    Ok(())
}

#[tokio::test]
async fn the_same_upload_again_is_not_charged_and_an_unread_one_is_read() -> Result<()> {
    let home = Home::new().set("attachments.max_bytes_per_day", 1500);
    let daemon = home.start().await?;
    let (status, first) = upload(&daemon, "invoice.pdf", PDF.to_vec()).await?;
    assert_eq!((status, &first["content"]), (201, &json!("text of a PDF, 2 of 2 pages")), "{first}");
    // As a client leaves it that disconnects while the file is read.
    let content = json!({"kind": "named", "detail": "it was not read: its upload was interrupted; send it again"});
    sql(&home, &format!("UPDATE uploads SET attachment = json_set(attachment, '$.content', json('{content}'))"))?;
    let data = STANDARD.encode(PDF);
    let (status, run) = ask_with(&daemon, "s", "total?", json!([{"name": "invoice.pdf", "data": data}])).await?;
    assert_eq!(status, 200, "{run}");
    let rows = sql(&home, "SELECT bytes, json_extract(attachment, '$.content.text') FROM uploads")?;
    assert_eq!((rows.as_array().map(Vec::len), &rows[0][0]), (Some(1), &json!(PDF.len())), "{rows}");
    assert!(rows[0][1].as_str().is_some_and(|text| text.contains("Invoice 4711")), "{rows}");
    Ok(())
}

#[tokio::test]
async fn an_openai_request_has_pictures_and_files_as_parts() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("A dot.")).await;
    let home = Home::new().openai(&model.base_url).set("llm.vision", true);
    let daemon = home.start().await?;
    let csv = format!("data:text/csv;base64,{}", STANDARD.encode("a,b\n1,2\n"));
    let parts = json!([
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PNG}")}},
        {"type": "file", "file": {"filename": "t.csv", "file_data": csv}},
        {"type": "input_audio", "input_audio": {"data": STANDARD.encode("ID3\x03\0\0\0\0"), "format": "mp3"}},
    ]);
    let body = json!({"model": "belay", "messages": [{"role": "user", "content": parts}]});
    let (status, answer) = daemon.request("POST", "/v1/chat/completions", Some(body)).await?;
    assert_eq!((status, &answer["choices"][0]["message"]["content"]), (200, &json!("A dot.")), "{answer}");
    let content = newest_content(&model)?;
    let text = content[0]["text"].as_str().context("a text")?;
    assert!(text.contains("source=\"file t.csv\"") && text.contains("no transcription is configured"), "{text}");
    assert!(content[1]["image_url"]["url"].as_str().is_some_and(|url| url.starts_with("data:image/png")), "{content}");

    let remote = json!([{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]);
    let body = json!({"model": "belay", "messages": [{"role": "user", "content": remote}]});
    let (status, refused) = daemon.request("POST", "/v1/chat/completions", Some(body)).await?;
    assert_eq!(status, 400, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap_or_default().contains("/api/v1/files"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn the_eleventh_picture_of_a_history_that_is_sent_again_is_no_error() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("A dot.")).await;
    let home = Home::new().openai(&model.base_url).set("attachments.max_count", 2);
    let daemon = home.start().await?;
    let file = |name: &str| json!({"type": "file", "file": {"filename": name, "file_data": STANDARD.encode(name)}});
    let chat = |last: Value| {
        let messages = json!([
            {"role": "user", "content": [file("one.txt"), file("two.txt")]},
            {"role": "assistant", "content": "read"},
            {"role": "user", "content": last},
        ]);
        daemon.request("POST", "/v1/chat/completions", Some(json!({"model": "belay", "messages": messages})))
    };
    let (status, answer) = chat(json!([{"type": "text", "text": "and this?"}, file("three.txt")])).await?;
    assert_eq!(status, 200, "{answer}");
    let request = model.requests().pop().context("a request")?["messages"].to_string();
    assert!(request.contains("1 older file(s) of this conversation are not shown"), "{request}");
    assert!(request.contains("file three.txt") && !request.contains("file one.txt"), "{request}");
    let (status, refused) = chat(json!([file("3"), file("4"), file("5")])).await?;
    assert_eq!(status, 400, "{refused}");
    Ok(())
}

#[tokio::test]
async fn ask_attaches_files() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("A dot.")).await;
    let home = Home::new();
    let picture = home.path().join("dot.png");
    std::fs::write(&picture, STANDARD.decode(PNG)?)?;
    let pdf = home.path().join("invoice.pdf");
    std::fs::write(&pdf, PDF)?;
    let (provider, base_url) = ("llm.provider=openai", format!("llm.base_url={}", model.base_url));
    let settings = ["--set", provider, "--set", &base_url, "--set", "llm.model=gpt-4o"];
    let ask = |files: &[&str]| {
        let files = files.iter().flat_map(|file| ["--image", *file]);
        ["ask"].into_iter().chain(settings).chain(files).chain(["what is this?"]).map(str::to_owned).collect::<Vec<_>>()
    };
    let (picture, pdf) = (picture.to_string_lossy().into_owned(), pdf.to_string_lossy().into_owned());
    let args = ask(&[&picture, &pdf]);
    let asked = home.run(&args.iter().map(String::as_str).collect::<Vec<_>>(), "").await?;
    assert_eq!((asked.status.code(), asked.stdout.as_str()), (Some(0), "A dot.\n"), "{asked:?}");
    let content = newest_content(&model)?;
    assert!(content[0]["text"].as_str().is_some_and(|text| text.contains("Invoice 4711")), "{content}");
    assert!(content[1]["image_url"]["url"].as_str().is_some_and(|url| url.starts_with("data:image/png")), "{content}");

    let args = ask(&["/no/such/file.png"]);
    let refused = home.run(&args.iter().map(String::as_str).collect::<Vec<_>>(), "").await?;
    assert_eq!(refused.status.code(), Some(65), "{refused:?}");
    assert!(refused.stderr.contains("/no/such/file.png"), "{refused:?}");
    Ok(())
}
