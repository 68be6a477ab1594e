//! Responses of the Responses API that are read again: by reference, in the background, after a restart, and deleted.

use std::sync::Arc;

use anyhow::{Context, Result};
use belay_tests::daemon::{Home, client};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::client_tools;
use crate::responses::{PATH, create, items, result, show, text, tool, user, weather};

#[tokio::test]
async fn a_reference_to_an_item_is_that_item() -> Result<()> {
    let model = ModelServer::start(vec![Answer::text("It is MARMOT.")], Answer::text("ok")).await;
    let daemon = Home::new().openai(&model.base_url).start().await?;
    let first = create(&daemon, json!({"input": "say it"})).await?;
    let reference = json!({"type": "item_reference", "id": items(&first, "message")[0]["id"]});
    let unknown = json!({"type": "item_reference", "id": "rs_1"});
    create(&daemon, json!({"input": [user("say it"), reference, unknown, user("again")]})).await?;
    let seen = model.requests()[1]["messages"].to_string();
    assert!(seen.contains("It is MARMOT."), "{seen}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_response_in_the_background_outlives_its_client_and_a_restart() -> Result<()> {
    let model = ModelServer::start(vec![Answer::text("Done in the background.")], Answer::text("?")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let begun = create(&daemon, json!({"input": "work", "background": true})).await?;
    assert!(["queued", "in_progress"].contains(&begun["status"].as_str().context("a status")?), "{begun}");
    let (status, streamed) = show(&daemon, &begun, "?stream=true").await?;
    let streamed = streamed.as_str().context("a stream")?;
    assert!(status == 200 && streamed.contains("response.completed"), "{streamed}");
    daemon.kill().await?;
    let daemon = home.start().await?;
    let (_, shown) = show(&daemon, &begun, "").await?;
    assert_eq!((&shown["status"], text(&shown).as_str()), (&json!("completed"), "Done in the background."));
    let (_, resumed) = show(&daemon, &begun, "?stream=true&starting_after=7").await?;
    let resumed = resumed.as_str().context("a stream")?;
    assert!(resumed.contains("\"delta\":\" in the background.\""), "{resumed}"); // behind "Done"
    let id = begun["id"].as_str().context("an id")?;
    let (status, deleted) = daemon.request("DELETE", &format!("{PATH}/{id}"), None).await?;
    assert_eq!((status, &deleted["deleted"]), (200, &json!(true)), "{deleted}");
    assert_eq!(show(&daemon, &begun, "").await?.0, 404);
    // Of a run with a key, the store keeps the key.
    let request = client().post(format!("{}{PATH}", daemon.url)).header("Idempotency-Key", "k-1");
    let keyed: Value = request.json(&json!({"input": "work"})).send().await?.json().await?;
    let id = keyed["id"].as_str().context("an id")?;
    assert_eq!(daemon.request("DELETE", &format!("{PATH}/{id}"), None).await?.0, 200);
    assert_eq!(show(&daemon, &keyed, "").await?.0, 404);
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_cancelled_response_that_has_ended_stops_no_later_one_of_its_run() -> Result<()> {
    let go = Arc::new(Notify::new());
    let answers = vec![Answer::Calls(vec![weather("Oslo")]), Answer::Held(go.clone(), "Rain.".into())];
    let model = ModelServer::start(answers, Answer::text("?")).await;
    let daemon = Home::new().openai(&model.base_url).start().await?;
    let first = create(&daemon, json!({"input": "weather?", "tools": [tool()]})).await?;
    let results = json!([result(&items(&first, "function_call")[0], "rain")]);
    let body = json!({"previous_response_id": first["id"], "input": results, "tools": [tool()], "background": true});
    let second = create(&daemon, body).await?;
    let id = first["id"].as_str().context("an id")?;
    let (status, cancelled) = daemon.request("POST", &format!("{PATH}/{id}/cancel"), None).await?;
    assert_eq!((status, &cancelled["status"]), (200, &json!("completed")), "{cancelled}");
    go.notify_one();
    let (_, streamed) = show(&daemon, &second, "?stream=true").await?;
    assert!(streamed.as_str().context("a stream")?.contains("Rain."), "{streamed}");
    let (_, shown) = show(&daemon, &second, "").await?;
    assert_eq!((&shown["status"], text(&shown).as_str()), (&json!("completed"), "Rain."), "{shown}");
    daemon.shut_down().await?;
    Ok(())
}

/// An answer with a text beside a call.
fn says_and_calls(text: &str) -> Answer {
    let function = json!({"name": "get_weather", "arguments": "{\"city\":\"Oslo\"}"});
    let call = json!({"index": 0, "id": "c1", "type": "function", "function": function});
    let chunk =
        |delta: Value, finish: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    let said = chunk(json!({"role": "assistant", "content": text, "tool_calls": [call]}), Value::Null);
    let end = chunk(json!({}), json!("tool_calls"));
    Answer::Raw("text/event-stream", format!("data: {said}\n\ndata: {end}\n\ndata: [DONE]\n\n").into_bytes())
}

#[tokio::test]
async fn a_text_beside_calls_is_not_shown_where_hooks_check_texts() -> Result<()> {
    let hook = "[[hooks]]\nname = \"no-keys\"\nredact = { patterns = [\"MARMOT\"], replacement = \"[redacted]\" }\n";
    for (settings, is_shown) in [("", true), (hook, false)] {
        let says = || says_and_calls("The key is MARMOT.");
        let answers = vec![says(), says(), Answer::text("Rain, MARMOT.")];
        let model = ModelServer::start(answers, Answer::text("?")).await;
        let daemon = Home::new().openai(&model.base_url).settings(settings).start().await?;
        let asked = client_tools::body(&[user("weather?")], &["get_weather"]);
        let message = client_tools::called(&daemon, asked).await?;
        assert_eq!(message["content"].is_string(), is_shown, "{message}");
        let first = create(&daemon, json!({"input": "weather?", "tools": [tool()]})).await?;
        let call = &items(&first, "function_call")[0];
        let results = json!({"previous_response_id": first["id"], "input": [result(call, "rain")], "tools": [tool()]});
        let second = create(&daemon, results).await?;
        for response in [&first, &show(&daemon, &first, "").await?.1] {
            assert_eq!(text(response), if is_shown { "The key is MARMOT." } else { "" }, "{response}");
        }
        assert_eq!(text(&second), if is_shown { "Rain, MARMOT." } else { "Rain, [redacted]." }, "{second}");
        daemon.shut_down().await?;
    }
    Ok(())
}
