//! What a question shows, and whom its answer serves: through the real binary, with each of its tools.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use belay_tests::daemon::{Daemon, Home, binary, client};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

/// A text with hidden characters, a link that hides its address, and markup.
const HOSTILE: &str = "w1 \u{202e}w2 \u{200b}w3 \u{e0041}w4 \u{ad}w5 [bank](https://w6.example) *w7* `w8`\r\n_w9_";

/// The parts of [`HOSTILE`] that a question must show in this order. Each has the forms of texts, commands, JSON and addresses.
const SHOWN: [&[&str]; 15] = [
    &["w1"],
    &[r"\u{202e}", r"\u202e", "%E2%80%AE"],
    &["w2"],
    &[r"\u{200b}", r"\u200b", "%E2%80%8B"],
    &["w3"],
    &[r"\u{e0041}", r"\U000e0041", "%F3%A0%81%81"],
    &["w4"],
    &[r"\u{ad}", r"\u00ad", "%C2%AD"],
    &["w5"],
    &["[bank](https://w6.example)"],
    &["*w7*"],
    &["`w8`", "%60w8%60"],
    &[r"\u{d}", r"\u000d", r"\r", "%0D"],
    &[r"\n", "\n", "%0A"],
    &["_w9_"],
];

/// The tools that can ask, with arguments that they accept. `§` stands for the hostile text. A tool that validates an
/// argument before it asks has a harmless one there.
fn calls() -> Vec<(&'static str, Value)> {
    vec![
        ("calculate", json!({ "expression": "§" })),
        ("cancel_job", json!({ "id": "§" })),
        ("clock", json!({ "timezone": "§" })),
        ("create_job", json!({ "task": "§", "title": "§" })),
        ("edit_file", json!({ "path": "note.txt", "old": "before", "new": "§" })),
        ("edit_file", json!({ "path": "hostile.txt", "old": "§", "new": "after", "all": true })),
        ("fetch_url", json!({ "url": "https://example.com/?q=§" })),
        ("find_tools", json!({ "query": "§" })),
        ("forget", json!({ "id": 1 })),
        ("job_status", json!({ "id": "§" })),
        ("list_files", json!({ "path": "§" })),
        ("list_jobs", json!({})),
        ("list_routines", json!({})),
        ("mcp_other_send_message", json!({ "session": "§", "text": "§" })),
        ("message_job", json!({ "id": "§", "text": "§" })),
        ("read_file", json!({ "path": "§" })),
        ("read_output", json!({ "name": "§" })),
        ("recall", json!({ "query": "§" })),
        ("remember", json!({ "key": "§", "text": "§" })),
        ("routine", json!({ "action": "create", "name": "tea", "schedule": "in 20m", "prompt": "§" })),
        ("run_command", json!({ "argv": ["echo", "§"], "stdin": "§" })),
        ("run_shell", json!({ "script": "echo '§'" })),
        ("search_files", json!({ "pattern": "§", "path": "§", "glob": "§" })),
        ("send_file", json!({ "path": "note.txt", "caption": "§" })),
        ("send_message", json!({ "place": "http:elsewhere", "text": "§" })),
        ("send_request", json!({ "method": "POST", "url": "https://example.com/", "body": "§" })),
        ("send_request", json!({ "method": "POST", "url": "https://example.com/?q=§" })),
        ("spawn_subagent", json!({ "task": "§" })),
        ("web_search", json!({ "query": "§" })),
        ("write_file", json!({ "path": "new.txt", "content": "§" })),
    ]
}

/// Whether the question shows the hostile text so many times, each time whole.
fn shows(question: &str, times: usize) -> bool {
    let mut rest = question;
    (0..times).all(|_| {
        SHOWN.iter().all(|forms| {
            let found = forms.iter().filter_map(|form| rest.find(form).map(|at| at + form.len())).min();
            found.is_some_and(|end| {
                rest = &rest[end..];
                true
            })
        })
    })
}

async fn question_of(daemon: &Daemon, run: &str) -> Result<String> {
    let record = daemon.until(run, "paused").await?;
    let approval = record["waiting_for"]["approval"].as_str().context("it waits for an answer")?;
    let (_, approval) = daemon.request("GET", &format!("/api/v1/approvals/{approval}"), None).await?;
    Ok(approval["question"].as_str().context("a question")?.to_owned())
}

#[tokio::test]
async fn the_question_of_each_tool_shows_everything_that_runs() -> Result<()> {
    let server = Home::new().set("gateway.mcp", true);
    let other = server.start().await?;
    let relay = json!([binary().display().to_string(), "mcp", "serve"]);
    let home = Home::new()
        .env("BELAY_URL", &other.url)
        .settings(&format!(
            "[tools.mcp.other]\ncommand = {relay}\nenv_from = [\"BELAY_URL\"]\nsandbox = false\n\
             tools = [\"send_message\"]\n[[approvals.rules]]\ntool = \"*\"\nask = \"always\"\n"
        ))
        .set("tools.shell.enabled", true)
        .set("agent.send_file", true)
        .set("agent.send_message", true)
        .set("tools.web.send_methods", json!(["POST"]))
        .set("tools.search.provider", "searxng")
        .set("tools.search.base_url", "http://127.0.0.1:9");
    std::fs::write(home.workspace().join("note.txt"), "before")?;
    std::fs::write(home.workspace().join("hostile.txt"), HOSTILE)?;
    let daemon = home.start().await?;
    let (_, tools) = daemon.request("GET", "/api/v1/tools", None).await?;
    let names = tools["tools"].as_array().context("tools")?.iter().filter_map(|tool| tool["name"].as_str());
    // Servers are no tools, a conversation has not the tools of plans and of stop rules, and process is asked for below.
    let is_offered = |name: &&str| !name.contains(':') && !["planning", "process", "terminate"].contains(name);
    let calls = calls();
    let called: BTreeSet<&str> = calls.iter().map(|(tool, _)| *tool).collect();
    assert_eq!(names.filter(is_offered).collect::<BTreeSet<_>>(), called, "each tool has a row here");
    daemon.ask("http:elsewhere", "hello").await?; // a conversation that messages can go to
    for (number, (tool, arguments)) in calls.iter().enumerate() {
        let times = arguments.to_string().matches('§').count();
        // An address has neither spaces nor line breaks.
        let address = || HOSTILE.replace(' ', "%20").replace("\r\n", "%0D%0A");
        let is_address = arguments["url"].as_str().is_some_and(|url| url.contains('§'));
        let hostile = if is_address { address() } else { HOSTILE.to_owned() };
        let hostile = serde_json::to_string(&hostile)?;
        let written = arguments.to_string().replace('§', hostile.trim_matches('"'));
        is_shown_whole(&daemon, &format!("s{number}"), tool, &written, times).await?;
    }
    // A process that the conversation keeps, so that there is one to write to.
    let kept = r#"call run_command {"argv":["cat"],"background":true,"keep":true}"#;
    let run = daemon.send("kept", kept).await?;
    question_of(&daemon, &run).await?;
    daemon.post(json!({ "session": "kept", "text": "yes" })).await?;
    daemon.finished(&run).await?;
    let written = json!({ "action": "write", "id": "p1", "text": HOSTILE }).to_string();
    is_shown_whole(&daemon, "kept", "process", &written, 1).await?;
    daemon.shut_down().await?;
    Ok(())
}

/// Calls a tool with these arguments. Its question must show the hostile text so many times, without a character that hides.
async fn is_shown_whole(daemon: &Daemon, session: &str, tool: &str, arguments: &str, times: usize) -> Result<()> {
    let ascii: String = arguments.chars().map(|c| if c.is_ascii() { c.to_string() } else { escape(c) }).collect();
    let run = daemon.send(session, &format!("call {tool} {ascii}")).await?;
    let question = question_of(daemon, &run).await.with_context(|| format!("{tool} {ascii}"))?;
    ensure!(shows(&question, times), "{tool}: {question}");
    ensure!(!question.contains(['\u{202e}', '\u{200b}', '\u{e0041}', '\u{ad}', '\r']), "{tool}: {question}");
    Ok(())
}

/// A character as JSON escapes.
fn escape(c: char) -> String {
    c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
}

#[tokio::test]
async fn an_always_of_a_person_does_not_serve_signed_messages_into_the_conversation() -> Result<()> {
    const SECRET: &str = "the secret of both sides";
    let home = Home::new().env("BELAY_WEBHOOK_SECRET", SECRET);
    let daemon = home.start().await?;
    let call = r#"call run_command {"argv":["uname","-s"]}"#;
    let run = daemon.send("alice", call).await?;
    question_of(&daemon, &run).await?;
    daemon.post(json!({ "session": "alice", "text": "always" })).await?;
    assert_eq!(daemon.finished(&run).await?["status"], "completed");
    assert_eq!(daemon.ask("alice", call).await?["status"], "completed", "nobody is asked again");

    let sent_at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let body = json!({ "session": "alice", "text": call, "delivery_id": "one", "sent_at": sent_at }).to_string();
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes())?;
    mac.update(body.as_bytes());
    let signature: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let request = client()
        .post(format!("{}/webhook", daemon.url))
        .header("X-Hub-Signature-256", format!("sha256={signature}"))
        .header("Content-Type", "application/json")
        .body(body);
    let accepted: Value = serde_json::from_str(&request.send().await?.text().await?)?;
    let run = accepted["run_id"].as_str().with_context(|| accepted.to_string())?;
    let question = question_of(&daemon, run).await?;
    assert!(question.contains("uname -s"), "{question}");
    daemon.shut_down().await?;
    Ok(())
}
