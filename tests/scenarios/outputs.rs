//! Outputs instead of texts, and work that is done by a subagent, as the rehearsal plays them.

use anyhow::{Context, Result};
use belay_tests::daemon::{Home, PATIENCE, client};
use serde_json::{Value, json};
use tokio::time::timeout;

const REHEARSAL: &str = "llm.provider=rehearsal";

#[tokio::test]
async fn ask_prints_one_object_with_the_outputs_and_nothing_else() -> Result<()> {
    let home = Home::new();
    let asked = home
        .run(
            &[
                "ask",
                "--set",
                REHEARSAL,
                "--output",
                "words:string=the answer in words",
                "--output",
                "answer:integer",
                "--output",
                r#"sure:{"enum":["yes","no"]}"#,
                "calculate 17*23",
            ],
            "",
        )
        .await?;
    assert!(asked.status.success(), "{asked:?}");
    assert_eq!(asked.stdout, "{\"words\":\"17*23 = 391\",\"answer\":391,\"sure\":\"yes\"}\n", "{asked:?}");

    let missed = home.run(&["ask", "--set", REHEARSAL, "--output", "a:string", "rehearse miss-output"], "").await?;
    assert_eq!((missed.status.code(), missed.stdout.as_str()), (Some(1), ""), "{missed:?}");
    assert!(missed.stderr.contains("missing_outputs"), "{missed:?}");

    let json =
        home.run(&["ask", "--json", "--set", REHEARSAL, "--output", "a:string", "rehearse miss-output"], "").await?;
    let run: Value = serde_json::from_str(&json.stdout)?;
    assert_eq!((&run["reason"], &run["evidence"]["missing"]), (&json!("missing_outputs"), &json!(["a"])), "{run}");

    for bad in ["a:text", "a", "1:string", r#"a:{"type":"#] {
        let refused = home.run(&["ask", "--set", REHEARSAL, "--output", bad, "hello"], "").await?;
        assert_eq!((refused.status.code(), refused.stdout.as_str()), (Some(2), ""), "{bad}: {refused:?}");
    }
    let refused = home.run(&["ask", "--set", REHEARSAL, "--output", "a:text", "hello"], "").await?;
    assert!(refused.stderr.contains("string, number, integer, boolean, object, array"), "{refused:?}");
    // A schema that reads as JSON and is none is found out by the agent: the message cannot be used.
    let schema = r#"a:{"$ref":"https://example.com/a.json"}"#;
    let refused = home.run(&["ask", "--set", REHEARSAL, "--output", schema, "hello"], "").await?;
    assert_eq!((refused.status.code(), refused.stdout.as_str()), (Some(65), ""), "{refused:?}");
    let command = home.run(&["ask", "--set", REHEARSAL, "--output", "a:string", "/help"], "").await?;
    assert_eq!((command.status.code(), command.stdout.as_str()), (Some(1), ""), "{command:?}");
    Ok(())
}

#[tokio::test]
async fn a_message_over_http_may_ask_for_outputs() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let message =
        |outputs: Value| json!({ "session": "alice", "text": "calculate 6*7", "wait_ms": 10_000, "outputs": outputs });
    let (status, run) = daemon.post(message(json!([{"name": "n", "schema": {"type": "integer"}}]))).await?;
    assert_eq!(
        (status, run["reason"].as_str(), run["reply"].as_str()),
        (200, Some("goal"), Some("{\"n\":42}")),
        "{run}"
    );
    for bad in [
        json!([{"name": "n"}]),
        json!([{"name": "n", "schema": {"type": "int"}}]),
        json!([{"name": "n n", "schema": {}}]),
        json!([{"name": "n", "schema": {}, "kind": 1}]),
    ] {
        let (status, error) = daemon.post(message(bad.clone())).await?;
        assert_eq!((status, error["error"]["code"].as_str()), (422, Some("invalid")), "{bad}: {error}");
    }
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_subagent_does_a_part_of_a_chat_and_its_facts_are_events() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let run = daemon.ask("alice", "rehearse subagent calculate 6*7").await?;
    assert_eq!((run["status"].as_str(), run["reason"].as_str()), (Some("completed"), Some("final_text")), "{run}");
    let reply = run["reply"].as_str().unwrap_or_default();
    assert!(reply.contains(r#""termination":"GOAL""#) && reply.contains("6*7 = 42"), "{reply}");
    assert_eq!((&run["usage"]["model_calls"], &run["usage"]["tool_calls"]), (&json!(4), &json!(3)), "{run}");
    let events = daemon.events(run["run_id"].as_str().unwrap_or_default()).await?;
    let started = events.iter().find(|event| event["type"] == "subagent_started").expect("started");
    assert_eq!((&started["task"], &started["depth"]), (&json!("calculate 6*7"), &json!(1)));
    let ended = events.iter().find(|event| event["type"] == "subagent_ended").expect("ended");
    assert_eq!((&ended["termination"], &ended["turns"]), (&json!("GOAL"), &json!(2)));
    assert_eq!(started["call_id"], ended["call_id"]);

    // A subagent that streams into the void is gone with its run.
    let stalled = daemon.send("bob", "rehearse subagent rehearse stall silent 60").await?;
    let mut stream = client().get(format!("{}/api/v1/runs/{stalled}/events", daemon.url)).send().await?;
    let mut seen = String::new();
    while !seen.contains("subagent_started") {
        let chunk = timeout(PATIENCE, stream.chunk()).await.context("the subagent did not start")??;
        seen.push_str(&String::from_utf8_lossy(&chunk.context("the stream ended")?));
    }
    let (status, report) = daemon.request("POST", &format!("/api/v1/runs/{stalled}/stop"), None).await?;
    // A busy machine may be asked before the end is in the store, and says so.
    let run = report["stopped"][0].as_str().or(report["still_running"][0]["run_id"].as_str());
    assert_eq!((status, run), (200, Some(stalled.as_str())), "{report}");
    daemon.finished(&stalled).await?;
    let events = daemon.events(&stalled).await?;
    let ended = events.iter().find(|event| event["type"] == "subagent_ended").expect("ended with its run");
    assert_eq!((&ended["termination"], &ended["reason"]), (&json!("ABORTED"), &json!("parent_stopped")));
    daemon.shut_down().await?;
    Ok(())
}
