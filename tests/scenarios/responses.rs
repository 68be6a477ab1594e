//! OpenAI's Responses API: tools of the client, chains, and responses that are read after a restart.

use anyhow::{Context, Result};
use belay_tests::daemon::{Daemon, Home};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};

pub(crate) const PATH: &str = "/v1/responses";

pub(crate) fn tool() -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    json!({"type": "function", "name": "get_weather", "description": "asks", "parameters": parameters, "strict": false})
}

pub(crate) fn weather(city: &str) -> (String, String) {
    ("get_weather".into(), json!({"city": city}).to_string())
}

pub(crate) fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

pub(crate) fn result(call: &Value, text: &str) -> Value {
    json!({"type": "function_call_output", "call_id": call["call_id"], "output": text})
}

pub(crate) async fn create(daemon: &Daemon, body: Value) -> Result<Value> {
    let (status, answer) = daemon.request("POST", PATH, Some(body)).await?;
    anyhow::ensure!((status, &answer["object"]) == (200, &json!("response")), "{status} {answer}");
    Ok(answer)
}

pub(crate) async fn show(daemon: &Daemon, response: &Value, rest: &str) -> Result<(u16, Value)> {
    let id = response["id"].as_str().context("an id")?;
    daemon.request("GET", &format!("{PATH}/{id}{rest}"), None).await
}

pub(crate) fn items(response: &Value, kind: &str) -> Vec<Value> {
    let items = response["output"].as_array().cloned().unwrap_or_default();
    items.into_iter().filter(|item| item["type"] == kind).collect()
}

pub(crate) fn text(response: &Value) -> String {
    items(response, "message").iter().filter_map(|item| item["content"][0]["text"].as_str()).collect()
}

#[tokio::test]
async fn results_resume_the_run_after_a_kill_and_each_part_of_it_is_read_again() -> Result<()> {
    let calls = Answer::Calls(vec![weather("Oslo"), weather("Rome")]);
    let model = ModelServer::start(vec![calls, Answer::text("Rain and sun.")], Answer::text("?")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let asked = user("How is the weather?");
    let first = create(&daemon, json!({"input": [asked], "tools": [tool()]})).await?;
    let calls = items(&first, "function_call");
    assert_eq!((calls.len(), &calls[1]["arguments"]), (2, &json!("{\"city\":\"Rome\"}")), "{first}");
    assert_eq!(items(&first, "message"), Vec::<Value>::new());
    daemon.kill().await?;

    let daemon = home.start().await?;
    assert_eq!(show(&daemon, &first, "").await?.1["output"], first["output"]);
    // As some clients send it: each call with its result behind it.
    let mut replay = vec![asked.clone()];
    for (call, found) in calls.iter().zip(["rain", "sun"]) {
        replay.extend([call.clone(), result(call, found)]);
    }
    let one = json!({"input": replay[..3], "tools": [tool()]});
    let (status, error) = daemon.request("POST", PATH, Some(one)).await?;
    let missing = calls[1]["call_id"].as_str().context("an id")?;
    assert!(status == 400 && error.to_string().contains(missing), "{status} {error}");
    let body = json!({"input": replay, "tools": [tool()]});
    let second = create(&daemon, body.clone()).await?;
    assert_eq!((text(&second).as_str(), &second["status"]), ("Rain and sun.", &json!("completed")));
    assert_ne!(second["id"], first["id"]);
    assert_eq!(second["belay"]["run_id"], first["belay"]["run_id"]);
    // The same again costs nothing, and both parts stay what they are.
    assert_eq!(create(&daemon, body).await?["id"], second["id"]);
    assert_eq!(model.requests().len(), 2);
    assert_eq!(show(&daemon, &first, "").await?.1["output"], first["output"]);
    assert_eq!(show(&daemon, &second, "").await?.1["output"], second["output"]);
    let (_, sent) = show(&daemon, &first, "/input_items").await?;
    assert_eq!(sent["data"][0]["content"][0]["text"], "How is the weather?", "{sent}");
    let (_, sent) = show(&daemon, &second, "/input_items?order=asc&limit=1").await?;
    assert_eq!((&sent["data"][0]["output"], &sent["has_more"]), (&json!("rain"), &json!(true)), "{sent}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn the_next_request_of_a_chain_brings_the_results_or_gives_the_calls_up() -> Result<()> {
    let call = || Answer::Calls(vec![weather("Oslo")]);
    let answers = vec![call(), Answer::text("Rain."), call(), Answer::text("As you like.")];
    let model = ModelServer::start(answers, Answer::text("?")).await;
    let daemon = Home::new().openai(&model.base_url).start().await?;
    let first = create(&daemon, json!({"input": "weather?", "tools": [tool()]})).await?;
    let next = |id: &Value, input: Value| json!({"previous_response_id": id, "input": input, "tools": [tool()]});
    let call = &items(&first, "function_call")[0];
    let second = create(&daemon, next(&first["id"], json!([result(call, "rain")]))).await?;
    assert_eq!(text(&second), "Rain.");
    let third = create(&daemon, next(&second["id"], json!("and now?"))).await?;
    assert_eq!(items(&third, "function_call").len(), 1, "{third}");
    assert_eq!(third["belay"]["session"], first["belay"]["session"]);
    let fourth = create(&daemon, next(&third["id"], json!("never mind"))).await?;
    assert_eq!(text(&fourth), "As you like.");
    let given_up = third["belay"]["run_id"].as_str().context("an id")?;
    let (_, run) = daemon.request("GET", &format!("/api/v1/runs/{given_up}"), None).await?;
    assert_eq!(run["reason"], "client_gone", "{run}");
    // Results that come too late are a history for a new run.
    let late = &items(&third, "function_call")[0];
    let fifth = create(&daemon, json!({"input": [late, result(late, "late")], "tools": [tool()]})).await?;
    assert_ne!(fifth["belay"]["run_id"], third["belay"]["run_id"]);
    daemon.shut_down().await?;
    Ok(())
}
