//! Several models and keys: whoever can answer does, and everybody can see who.

use anyhow::Result;
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};

/// A home with these lines in its section of the model, which is the first one.
fn home_of(first: &ModelServer, lines: &str) -> Result<Home> {
    let home = Home::new().openai(&first.base_url);
    let directory = home.path().join("config/belay");
    std::fs::create_dir_all(&directory)?;
    let llm = format!("[llm]\nprovider = \"openai\"\nbase_url = \"{}\"\nmodel = \"scripted\"\n", first.base_url);
    std::fs::write(directory.join("belay.toml"), llm + lines)?;
    Ok(home)
}

/// A home whose model is the first, with the second one to stand in.
fn home(first: &ModelServer, second: &ModelServer) -> Result<Home> {
    let address = &second.base_url;
    let fallback = format!("[[llm.fallbacks]]\nprovider = \"openai\"\nbase_url = \"{address}\"\nmodel = \"other\"\n");
    home_of(first, &fallback)
}

fn refusal(status: u16) -> Answer {
    Answer::Status(status, json!({"error": {"message": "not now"}}), vec![])
}

#[tokio::test]
async fn when_the_first_model_cannot_answer_the_second_one_does_and_it_shows() -> Result<()> {
    for (status, why, cools) in [(429, "rate_limited", true), (500, "overloaded", false), (401, "auth", true)] {
        let first = ModelServer::start(vec![], refusal(status)).await;
        let second = ModelServer::start(vec![], Answer::text("at your service")).await;
        let home = home(&first, &second)?;
        let daemon = home.start().await?;
        let run = daemon.ask("alice", "hello").await?;
        assert_eq!(
            (run["status"].as_str(), run["reply"].as_str()),
            (Some("completed"), Some("at your service")),
            "{run}"
        );
        assert_eq!(run["usage"]["model_calls"], 2, "both requests count: {run}");
        assert_eq!(second.requests()[0]["model"], "other");

        let events = daemon.events(run["run_id"].as_str().unwrap_or_default()).await?;
        let fallback = events.iter().find(|event| event["type"] == "model_fallback");
        let said = fallback.map(|event| [&event["from"], &event["to"], &event["reason"]].map(Value::to_string));
        let expected = ["scripted by openai", "other by openai", why].map(|word| format!("\"{word}\""));
        assert_eq!(said, Some(expected), "{events:?}");

        let (_, report) = daemon.request("GET", "/api/v1/status", None).await?;
        assert_eq!(report["candidates"][0]["cooling_until"].is_string(), cools, "{report}");
        assert_eq!(report["candidates"][1], json!({"name": "other by openai", "cooling_until": null, "reason": null}));
        let shown = home.run(&["status"], "").await?;
        let shown = shown.stdout;
        assert_eq!(shown.contains("scripted by openai until"), cools, "{shown}");

        // Whoever cools is not asked again.
        daemon.ask("alice", "and again").await?;
        assert_eq!(first.requests().len(), if cools { 1 } else { 2 }, "{why}");
        daemon.shut_down().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_second_key_answers_when_the_first_one_is_limited() -> Result<()> {
    let model = ModelServer::start(vec![refusal(429)], Answer::text("with the other key")).await;
    let keys = "api_key_env = \"FIRST\"\napi_key_envs = [\"SECOND\", \"NOT_SET\"]\n";
    let home = home_of(&model, keys)?.env("FIRST", "key-one").env("SECOND", "key-two");
    let daemon = home.start().await?;
    let run = daemon.ask("alice", "hello").await?;
    assert_eq!(run["reply"], "with the other key", "{run}");
    let (_, report) = daemon.request("GET", "/api/v1/status", None).await?;
    let names: Vec<_> = report["candidates"].as_array().into_iter().flatten().map(|it| it["name"].as_str()).collect();
    assert_eq!(names, [Some("scripted by openai"), Some("scripted by openai (key 2)")], "{report}");
    daemon.shut_down().await?;

    let checked = home.run(&["check"], "").await?;
    let checked = checked.stdout;
    for words in ["scripted by openai (key 2)", "(key 3) has no key and is left out: the environment variable NOT_SET"]
    {
        assert!(checked.contains(words), "{words} in {checked}");
    }
    Ok(())
}

#[tokio::test]
async fn a_stop_while_another_model_stands_in_ends_the_run() -> Result<()> {
    let first = ModelServer::start(vec![], refusal(429)).await;
    let second = ModelServer::start(vec![Answer::Stall], Answer::text("here")).await;
    let home = home(&first, &second)?;
    let daemon = home.start().await?;
    let run = daemon.send("alice", "talk for ever").await?;
    second.seen(1).await;
    let (status, report) = daemon.request("POST", &format!("/api/v1/runs/{run}/stop?wait_ms=10000"), None).await?;
    assert_eq!((status, &report["stopped"]), (200, &json!([run])), "{report}");
    second.dropped(1).await;
    let stopped = daemon.finished(&run).await?;
    assert_eq!((stopped["status"].as_str(), stopped["reason"].as_str()), (Some("stopped"), Some("user_stop")));
    assert_eq!(daemon.ask("alice", "still there?").await?["reply"], "here", "the stop says nothing about the model");
    assert_eq!((first.requests().len(), second.requests().len()), (1, 2));
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_level_of_thinking_is_sent_and_a_model_that_refuses_it_is_asked_without() -> Result<()> {
    let model = ModelServer::start(vec![refusal(400)], Answer::text("well thought")).await;
    let home = Home::new().openai(&model.base_url).set("agent.thinking", "high");
    let daemon = home.start().await?;
    for expected in [2, 1] {
        let run = daemon.ask("alice", "think about it").await?;
        assert_eq!(
            (run["reply"].as_str(), &run["usage"]["model_calls"]),
            (Some("well thought"), &json!(expected)),
            "{run}"
        );
    }
    let efforts: Vec<_> = model.requests().iter().map(|request| request["reasoning_effort"].clone()).collect();
    assert_eq!(efforts, [json!("high"), Value::Null, Value::Null]);
    daemon.shut_down().await?;
    Ok(())
}
