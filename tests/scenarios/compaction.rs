//! A conversation that outgrows its model, through the real binary.

use anyhow::{Context, Result};
use belay_tests::daemon::{Daemon, Home};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};

/// What the model answers to everything: also an account of these chapters.
const ACCOUNT: &str = "## Decisions\n- none\n## Open tasks\n- none\n## Constraints\n- none\n## User requests\n- every \
                       chapter is read, and so onward\n## Exact identifiers\n- none";

/// How the one message begins that asks for an account, and the one that asks for notes.
const ASKS_FOR_ACCOUNT: &str = "You write the summary";
const ASKS_FOR_NOTES: &str = "A part of a conversation";

fn chapter(n: usize) -> String {
    format!("chapter {n}: {}", "and so onward ".repeat(150))
}

fn texts(request: &Value) -> Vec<&str> {
    request["messages"].as_array().into_iter().flatten().filter_map(|message| message["content"].as_str()).collect()
}

fn is_aside(request: &Value) -> bool {
    texts(request)
        .first()
        .is_some_and(|prompt| prompt.starts_with(ASKS_FOR_ACCOUNT) || prompt.starts_with(ASKS_FOR_NOTES))
}

/// Reads chapters until the conversation has been shortened; returns the events of the run before which that was done.
async fn read_until_shortened(daemon: &Daemon) -> Result<Vec<Value>> {
    for n in 1..=30 {
        let run = daemon.ask("alice", &chapter(n)).await?;
        assert_eq!((run["status"].as_str(), run["reply"].as_str()), (Some("completed"), Some(ACCOUNT)), "{run}");
        let events = daemon.events(run["run_id"].as_str().unwrap_or_default()).await?;
        if events.iter().any(|event| event["type"] == "compacted") {
            return Ok(events);
        }
    }
    anyhow::bail!("thirty chapters fit a context of 4000 tokens")
}

#[tokio::test]
async fn a_conversation_outgrows_its_model_and_goes_on_with_an_account_also_after_a_kill() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text(ACCOUNT)).await;
    let home = Home::new().openai(&model.base_url).set("llm.context_tokens", 4_000);
    let daemon = home.start().await?;
    let events = read_until_shortened(&daemon).await?;
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    let started = kinds.iter().position(|kind| *kind == "compaction_started").context("a beginning")?;
    let compacted = events.iter().find(|event| event["type"] == "compacted").context("an end")?;
    assert!(kinds[started..].contains(&"compacted"), "{kinds:?}");
    assert_eq!(
        (compacted["source"].as_str(), compacted["will_retry"].as_bool()),
        (Some("model"), Some(false)),
        "{compacted}"
    );
    assert!(compacted["after"].as_u64() < compacted["before"].as_u64(), "{compacted}");

    // The recording of the run says so, before the model call that follows.
    let path = format!("/api/v1/runs/{}/trajectory", compacted["run_id"].as_str().unwrap_or_default());
    let (_, recording) = daemon.request("GET", &path, None).await?;
    let recording = recording.as_str().unwrap_or_default();
    let tokens = format!("\"compacted\":{{\"before\":{},\"after\":{}}}", compacted["before"], compacted["after"]);
    let lines: Vec<&str> = recording.lines().collect();
    let at = lines.iter().position(|line| line.contains(&tokens)).context(recording.to_owned())?;
    assert_eq!(lines.get(at + 1), Some(&"{\"turn\":true}"), "{recording}");

    let requests = model.requests();
    let notes: Vec<&Value> = requests.iter().filter(|request| texts(request)[0].starts_with(ASKS_FOR_NOTES)).collect();
    let tools = |request: &Value| request["tools"].as_array().map(Vec::len);
    assert_eq!(notes.iter().map(|request| tools(request)).collect::<Vec<_>>(), [Some(1)], "remember alone is offered");
    let asked = requests.iter().find(|request| texts(request)[0].starts_with(ASKS_FOR_ACCOUNT)).context("asked")?;
    assert!(tools(asked).is_none() && texts(asked)[1].contains("user: chapter 1"), "{asked}");
    let (before, after) = (&requests[..requests.len() - 1], &requests[requests.len() - 1]);
    let before = before.iter().rfind(|request| !is_aside(request)).context("an earlier turn")?;
    assert!(texts(after).len() < texts(before).len() && texts(after)[0].contains("## Decisions"), "{after}");
    daemon.kill().await?;

    // With room enough, so that what is missing has left before, and not now.
    let home = home.set("llm.context_tokens", 100_000);
    let daemon = home.start().await?;
    daemon.ask("alice", "and now?").await?;
    let requests = model.requests();
    let last = texts(requests.last().context("asked")?);
    assert!(last[0].contains("## Decisions") && last[1].starts_with("chapter"), "{last:?}");
    let (_, history) = daemon.request("GET", "/api/v1/sessions/alice/messages", None).await?;
    let first = history["messages"][0]["text"].as_str().unwrap_or_default();
    assert!(first.starts_with("chapter 1:"), "people still read what has left the context: {first}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn compact_tells_what_it_did_and_words_about_a_long_context_do_nothing() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text(ACCOUNT)).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    daemon
        .ask("alice", "context_length_exceeded: the prompt is too long, maximum context length is 8192 tokens")
        .await?;
    assert_eq!(model.requests().len(), 1, "words in a message are words");
    for n in 1..=4 {
        daemon.ask("alice", &chapter(n)).await?;
    }
    let (status, told) = daemon.post(json!({"session": "alice", "text": "/compact keep the names"})).await?;
    let reply = told["reply"].as_str().unwrap_or_default();
    assert!(status == 200 && reply.starts_with("Replaced ") && reply.contains(" tokens before, "), "{told}");
    let requests = model.requests();
    let asked = requests.iter().find(|request| texts(request)[0].starts_with(ASKS_FOR_ACCOUNT)).context("asked")?;
    assert!(texts(asked)[1].ends_with("keep the names"), "{asked}");
    daemon.ask("alice", "and now?").await?;
    let requests = model.requests();
    let last = texts(requests.last().context("asked")?);
    assert!(last[0].contains("## Decisions") && last.last() == Some(&"and now?"), "{last:?}");
    let (_, runs) = daemon.request("GET", "/api/v1/runs", None).await?;
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(6), "the command is no run: {runs}");
    daemon.shut_down().await?;
    Ok(())
}
