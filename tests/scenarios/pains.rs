//! What users of such servers have suffered from most, one test for each, named after it. Where another suite proves it
//! already, the table says which.
//!
//! | pain | proved by |
//! |---|---|
//! | a session stays busy for ever | here |
//! | recovery throws waiting messages away | here |
//! | a stop is ignored, or waits behind the run | `stopping`, `outer_loop::stop` |
//! | after a stop the run is begun again by a retry | here |
//! | a stop leaves processes or subagents | `brakes`, `outer_loop::subagents` |
//! | the streamed answer and the final one are both said | `outer_loop::streaming` |
//! | a tool has said it, and the final answer says it again | `outer_loop::streaming` |
//! | pieces of an answer come in another order | `outer_loop::streaming` |
//! | a delivery is repeated after a restart | `telegram`, `outer_loop::delivery` |
//! | messages are lost at a restart | `surviving` |
//! | a half-finished turn is never resumed, or twice | `surviving` |
//! | surprises of the queue | `outer_loop::queue` |
//! | compaction goes in circles, or hangs | `outer_loop::compaction` |
//! | words of a person that look like an overflow start a compaction | here |
//! | a conversation is forgotten over night, or reset without a word | `outer_loop::sessions` |
//! | two writers, locks that nobody holds | `surviving` (a second daemon is refused), leases in the store's suite |
//! | a broken history is refused for ever | here, and the validators of both wire formats |
//! | a tool loop burns tokens | `stops`, and the labelled set |
//! | a fallback is not used, or wrongly | `fallback` |
//! | the result of a subagent is lost | `outer_loop::subagents` |
//! | the silent token is shown | here, `outer_loop::streaming`, `telegram` |
//! | groups are answered by everybody, by nobody, or in a wrong session | `channels`: groups and topics |
//! | polling of a platform dies, or burns the processor | `channels`: polling |
//! | hooks are documented and never fired | `outer_loop::hooks` |
//! | one busy conversation holds up all others | here |
//! | a changed configuration keeps the daemon from starting, again and again | `command_line`, `documents` |
//! | questions are lost, expire, or find no match | `approvals`, `outer_loop::approvals` |

use anyhow::{Context, Result};
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::json;

#[tokio::test]
async fn a_session_is_not_busy_for_ever_when_the_model_falls_silent() -> Result<()> {
    let model = ModelServer::start(vec![Answer::Silence], Answer::text("here again")).await;
    let home = Home::new().openai(&model.base_url).set("llm.idle_timeout_s", 1).set("llm.max_attempts", 1);
    let daemon = home.start().await?;
    let silent = daemon.ask("alice", "are you there").await?;
    assert_eq!((silent["status"].as_str(), silent["reason"].as_str()), (Some("failed"), Some("network")), "{silent}");
    assert!(silent["reply"].as_str().is_some_and(|line| !line.is_empty()), "the person is told: {silent}");
    assert_eq!(daemon.ask("alice", "and now").await?["reply"], "here again");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_turn_that_fails_throws_nothing_away_that_waits_behind_it() -> Result<()> {
    let refused = Answer::Status(401, json!({"error": {"message": "no such key"}}), Vec::new());
    let model = ModelServer::start(vec![Answer::Silence, refused], Answer::text("answered")).await;
    let home = Home::new().openai(&model.base_url);
    let home = home.set("llm.idle_timeout_s", 1).set("llm.max_attempts", 1);
    let daemon = home.start().await?;
    let mut runs = Vec::new();
    for text in ["one", "two", "three", "four"] {
        runs.push(daemon.send("alice", text).await?);
    }
    let mut ends = Vec::new();
    for run in &runs {
        let run = daemon.finished(run).await?;
        ends.push(run["reason"].as_str().context("a reason")?.to_owned());
    }
    assert_eq!(ends, ["network", "provider_auth", "final_text", "final_text"]);
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_stopped_run_is_not_begun_again_by_a_retry() -> Result<()> {
    let later = vec![("retry-after", "1".to_owned())];
    let busy = Answer::Status(503, json!({"error": {"message": "busy"}}), later);
    let model = ModelServer::start(vec![busy], Answer::text("hello")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let run = daemon.send("alice", "one").await?;
    model.seen(1).await;
    let (_, report) = daemon.request("POST", &format!("/api/v1/runs/{run}/stop"), None).await?;
    assert_eq!(report["stopped"], json!([run]), "{report}");
    // Longer than the pause that the server asked for: a retry that was not cancelled would come now.
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    assert_eq!(model.requests().len(), 1);
    assert_eq!(daemon.run(&run).await?["status"], "stopped");
    assert_eq!(daemon.ask("alice", "two").await?["reply"], "hello");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn words_that_look_like_an_overflow_shorten_nothing() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("That error means that a prompt was too long.")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    daemon.ask("alice", "hello").await?;
    let text =
        "What does this mean: context_length_exceeded, maximum context length is 4096 tokens, prompt is too long";
    let run = daemon.ask("alice", text).await?;
    assert_eq!(run["reason"], "final_text", "{run}");
    let events = daemon.events(run["run_id"].as_str().context("an id")?).await?;
    assert!(events.iter().all(|event| event["type"] != "compacted"), "{events:?}");
    assert_eq!(model.requests().len(), 2);
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_history_that_a_crash_left_open_is_not_refused_for_ever() -> Result<()> {
    let call = Answer::call("run_command", json!({"argv": ["sleep", "1000"]}));
    let model = ModelServer::start(vec![call], Answer::text("I do not know how it ended.")).await;
    let home = Home::new().openai(&model.base_url).set("tools.sandbox.policy", "off");
    let settings = home.path().join("config/belay");
    std::fs::create_dir_all(&settings)?;
    std::fs::write(settings.join("belay.toml"), "[[approvals.rules]]\ntool = \"run_command\"\nask = \"never\"\n")?;
    let daemon = home.start().await?;
    let run = daemon.send("alice", "wait a while").await?;
    model.seen(1).await;
    daemon.until(&run, "running").await?;
    daemon.kill().await?;
    let daemon = home.start().await?;
    assert_eq!(daemon.finished(&run).await?["reply"], "I do not know how it ended.");
    assert_eq!(daemon.ask("alice", "go on").await?["reason"], "final_text");
    for request in model.requests() {
        let messages = request["messages"].as_array().context("messages")?.clone();
        let ids = |role: &str, of: fn(&serde_json::Value) -> Vec<String>| -> Vec<String> {
            messages.iter().filter(|message| message["role"] == role).flat_map(of).collect()
        };
        let calls = ids("assistant", |message| {
            let calls = message["tool_calls"].as_array().into_iter().flatten();
            calls.filter_map(|call| call["id"].as_str().map(str::to_owned)).collect()
        });
        let results = ids("tool", |message| message["tool_call_id"].as_str().map(str::to_owned).into_iter().collect());
        assert_eq!(calls, results, "each call has its one result: {request}");
    }
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn the_silent_token_is_shown_nowhere() -> Result<()> {
    let model = ModelServer::start(vec![Answer::text("NO_REPLY")], Answer::text("Yes?")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let silent = daemon.ask("alice", "never mind").await?;
    assert_eq!((&silent["reply"], &silent["evidence"]["silent"]), (&json!(null), &json!(true)), "{silent}");
    assert_eq!(daemon.ask("alice", "hello").await?["reply"], "Yes?");
    let (_, history) = daemon.request("GET", "/api/v1/sessions/alice/messages", None).await?;
    let texts: Vec<_> = history["messages"].as_array().into_iter().flatten().map(|line| &line["text"]).collect();
    assert_eq!(texts, ["never mind", "hello", "Yes?"]);
    let (_, export) = daemon.request("GET", "/api/v1/sessions/alice/export", None).await?;
    assert!(!export.to_string().contains("NO_REPLY"), "{export}");
    let again = model.requests()[1].to_string();
    assert!(again.contains("NO_REPLY"), "the model knows that it was silent: {again}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn one_busy_conversation_holds_up_no_other() -> Result<()> {
    let model = ModelServer::start(vec![Answer::Stall], Answer::text("at once")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let busy = daemon.send("alice", "talk for ever").await?;
    model.seen(1).await;
    for number in 0..20 {
        assert_eq!(daemon.ask(&format!("guest-{number}"), "hello").await?["reply"], "at once");
    }
    assert_eq!(daemon.run(&busy).await?["status"], "running");
    daemon.shut_down().await?;
    Ok(())
}
