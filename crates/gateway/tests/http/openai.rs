//! The OpenAI-compatible routes.

use std::time::Duration;

use belay_protocol::inbound::HistoryRole;
use belay_protocol::{Accepted, Ack, Body, Control, RunId, SessionLifetime, StopReason, StopTarget, UnixMillis};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::harness::{Harness, NOW, PATIENCE, parts, start};
use crate::streams::events;

const CHAT: &str = "/v1/chat/completions";

fn user(text: &str) -> Value {
    json!([{"role": "user", "content": text}])
}

/// The pieces of a streamed answer: texts, the finish, `usage`, an error's code, `[DONE]`.
async fn pieces(harness: &Harness, body: Value) -> Vec<String> {
    let response = harness.client.post(harness.url(CHAT)).json(&body).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
    let show = |data: &str| {
        let Ok(chunk) = serde_json::from_str::<Value>(data) else { return data.to_owned() };
        if let Some(code) = chunk["error"]["code"].as_str() {
            return format!("error {code}");
        }
        assert_eq!(chunk["object"], "chat.completion.chunk");
        let choice = &chunk["choices"][0];
        match (&choice["delta"]["role"], &choice["delta"]["content"], &choice["finish_reason"]) {
            (Value::String(role), _, _) => format!("<{role}>"),
            (_, Value::String(text), _) => text.clone(),
            (_, _, Value::String(finish)) => format!("({finish})"),
            _ => format!("usage {}", chunk["usage"]["total_tokens"]),
        }
    };
    events(response, usize::MAX).await.iter().map(|(_, _, data)| show(data)).collect()
}

#[tokio::test]
async fn the_models_are_ours_and_the_configured_one() {
    let (status, list) = Harness::open().await.get("/v1/models").await;
    let ids: Vec<_> = list["data"].as_array().unwrap().iter().map(|model| model["id"].clone()).collect();
    assert_eq!(
        (status, &list["object"], ids),
        (200, &json!("list"), vec![json!("belay"), json!("belay:text"), json!("some-model")])
    );
}

#[tokio::test]
async fn a_model_is_shown_by_its_name() {
    let harness = Harness::open().await;
    for name in ["belay", "some-model"] {
        let (status, model) = harness.get(&format!("/v1/models/{name}")).await;
        assert_eq!((status, &model["id"], &model["object"]), (200, &json!(name), &json!("model")));
    }
    let (status, error) = harness.get("/v1/models/gpt-9").await;
    assert_eq!((status, &error["error"]["code"]), (404, &json!("model_not_found")));
}

#[tokio::test]
async fn an_answer_of_a_schema_is_its_value_alone_whole_and_streamed() {
    let harness = Harness::open().await;
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let format = json!({"type": "json_schema", "json_schema": {"name": "num", "strict": true, "schema": schema}});
    let said = "reach {\"num\":{\"n\":391}}";
    let body = json!({"messages": user(said), "response_format": format, "reasoning_effort": "high"});
    let (status, answer) = harness.post(CHAT, body.clone()).await;
    assert_eq!((status, &answer["choices"][0]["message"]["content"]), (200, &json!("{\"n\":391}")), "{answer}");
    let mut streamed = body;
    streamed["stream"] = json!(true);
    assert_eq!(pieces(&harness, streamed).await, ["<assistant>", "{\"n\":391}", "(stop)", "[DONE]"]);
    for seen in harness.agent.seen.lock().unwrap().iter().filter(|seen| matches!(seen.body, Body::Text(_))) {
        assert_eq!((seen.outputs[0].name.as_str(), &seen.outputs[0].schema), ("num", &schema));
        assert_eq!(seen.options.thinking, Some(belay_protocol::Thinking::High));
    }
}

#[tokio::test]
async fn an_answer_that_lacks_its_form_is_an_error_with_the_text_of_the_model() {
    let harness = Harness::open().await;
    let format = json!({"type": "json_object"});
    let body = json!({"messages": user("miss It is about 391."), "response_format": format});
    let response = harness.client.post(harness.url(CHAT)).json(&body).send().await.unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["x-should-retry"]), (400, &"false".parse().unwrap()));
    let answer: Value = response.json().await.unwrap();
    let error = json!({"message": StopReason::MissingOutputs.user_line(), "type": "invalid_request_error", "param": null,
        "code": "missing_outputs", "failed_generation": "It is about 391."});
    assert_eq!(answer, json!({ "error": error }));
    let mut streamed = body;
    streamed["stream"] = json!(true);
    let response = harness.client.post(harness.url(CHAT)).json(&streamed).send().await.unwrap();
    let events = events(response, usize::MAX).await;
    let last: Value = serde_json::from_str(&events.last().unwrap().2).unwrap();
    assert_eq!(last["error"], error);
}

#[tokio::test]
async fn a_field_that_the_models_interface_does_not_take_is_refused_by_name_before_there_is_a_run() {
    use belay_protocol::options::{SamplingSupport, SeedSupport};
    let harness = Harness::with(|parts| {
        parts.models.chat.sampling = SamplingSupport { seed: SeedSupport::No, while_thinking: false };
    })
    .await;
    for (more, param) in [
        (json!({"seed": 7}), "seed"),
        (json!({"temperature": 0.5, "reasoning_effort": "low"}), "temperature"),
        (json!({"top_p": 0.5, "reasoning_effort": "high"}), "top_p"),
    ] {
        let mut body = json!({"messages": user("hello")});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, answer) = harness.post(CHAT, body).await;
        let error = &answer["error"];
        assert_eq!((status, &error["param"], &error["code"]), (400, &param.into(), &"unsupported_parameter".into()));
    }
    assert!(harness.agent.seen.lock().unwrap().is_empty(), "nothing was sent to the agent");
    let body = json!({"messages": user("hello"), "temperature": 0.5, "reasoning_effort": "none"});
    assert_eq!(harness.post(CHAT, body).await.0, 200);
}

#[tokio::test]
async fn a_whole_answer_has_the_form_that_clients_expect() {
    let harness = Harness::open().await;
    let body = json!({"model": "some-model", "messages": user("hello"), "temperature": 0.7, "unknown": {}});
    let response = harness.client.post(harness.url(CHAT)).json(&body).send().await.unwrap();
    let run = response.headers()["x-belay-run"].to_str().unwrap().to_owned();
    assert_eq!(response.headers()["x-belay-reason"], "final_text");
    assert!(response.headers()["x-belay-session"].to_str().unwrap().starts_with("openai:"));
    let answer: Value = response.json().await.unwrap();
    let expected = json!({
        "id": format!("chatcmpl-{run}"), "object": "chat.completion", "created": NOW / 1000, "model": "some-model",
        "choices": [{"index": 0, "finish_reason": "stop", "logprobs": null,
            "message": {"role": "assistant", "content": "hello", "refusal": null}}],
        "usage": {"prompt_tokens": 8, "completion_tokens": 3, "total_tokens": 11},
    });
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn a_session_of_a_request_without_a_name_is_ephemeral_and_no_list_has_it_unasked() {
    let harness = Harness::open().await;
    harness.post(CHAT, json!({"messages": user("hello"), "conversation": "ada"})).await;
    harness.post(CHAT, json!({"messages": user("hello")})).await;
    let lifetimes: Vec<_> = harness.agent.seen.lock().unwrap().iter().map(|seen| seen.lifetime).collect();
    assert_eq!(lifetimes, [SessionLifetime::Lasting, SessionLifetime::Ephemeral]);
    let (_, list) = harness.get("/api/v1/sessions").await;
    assert_eq!((&list["sessions"][0]["session"], &list["sessions"][1]), (&json!("ada"), &Value::Null));
    assert_eq!(list["sessions"][0].get("lifetime"), None);
    let (_, all) = harness.get("/api/v1/sessions?all=true").await;
    let sessions = all["sessions"].as_array().unwrap();
    assert!(sessions[1]["session"].as_str().unwrap().starts_with("openai:"), "{all}");
    assert_eq!((sessions.len(), &sessions[1]["lifetime"]), (2, &json!("ephemeral")));
    let key = sessions[1]["session"].as_str().unwrap().replace(':', "%3A");
    assert_eq!(harness.get(&format!("/api/v1/sessions/{key}")).await, (200, sessions[1].clone()), "shown by its key");
    assert_eq!(harness.get("/api/v1/sessions?all=1").await.0, 422);
}

#[tokio::test]
async fn what_is_new_goes_to_the_session_that_header_or_conversation_name() {
    let harness = Harness::open().await;
    let messages = json!([
        {"role": "system", "content": "be brief"}, {"role": "user", "content": "one"},
        {"role": "assistant", "content": "1"}, {"role": "user", "content": "two"},
    ]);
    harness.post(CHAT, json!({"messages": messages})).await;
    harness.post(CHAT, json!({"messages": messages, "conversation": "ada"})).await;
    let header = harness
        .client
        .post(harness.url(CHAT))
        .header("x-belay-session", "eve — é")
        .json(&json!({"messages": messages}));
    assert_eq!(header.send().await.unwrap().status().as_u16(), 200);
    let seen = harness.agent.seen.lock().unwrap().clone();
    assert_eq!(
        seen.iter().map(|m| m.history.len()).collect::<Vec<_>>(),
        [3, 3, 3],
        "sessions without messages take all"
    );
    assert_eq!(seen[0].history[0].role, HistoryRole::System);
    assert!(seen.iter().all(|message| message.body == Body::Text("two".into())));
    assert_eq!((seen[1].session.as_str(), seen[2].session.as_str()), ("ada", "eve — é"));
}

#[tokio::test]
async fn a_command_and_a_stopped_run_answer_with_their_line() {
    let harness = Harness::open().await;
    let (status, answer) = harness.post(CHAT, json!({"messages": user("/ping")})).await;
    assert_eq!((status, &answer["choices"][0]["message"]["content"]), (200, &json!("pong")));
    let body = json!({"messages": user("fail operator_stop")});
    let response = harness.client.post(harness.url(CHAT)).json(&body).send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["x-belay-reason"]),
        (200, &"operator_stop".parse().unwrap())
    );
    let answer: Value = response.json().await.unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], "Stopped by the operator.");
    let failed = json!({"messages": user("fail network")});
    let response = harness.client.post(harness.url(CHAT)).json(&failed).send().await.unwrap();
    assert_eq!(response.headers()["x-should-retry"], "false", "the run had its own attempts");
}

#[tokio::test]
async fn a_streamed_answer_comes_in_pieces_whole_and_closed() {
    let harness = Harness::open().await;
    let stream = |text: &str| json!({"messages": user(text), "stream": true});
    assert_eq!(
        pieces(&harness, stream("pieces Hello you")).await,
        ["<assistant>", "Hello ", "you", "(stop)", "[DONE]"]
    );
    let steps = ["<assistant>", "I look.", "\n\nFound.", "(stop)", "[DONE]"];
    assert_eq!(pieces(&harness, stream("pieces I look./Found.")).await.concat(), steps.concat());
    assert_eq!(pieces(&harness, stream("no pieces")).await, ["<assistant>", "no pieces", "(stop)", "[DONE]"]);
    assert_eq!(pieces(&harness, stream("/ping")).await, ["<assistant>", "pong", "(stop)", "[DONE]"]);
    assert_eq!(pieces(&harness, stream("fail network")).await, ["<assistant>", "error network"]);
    let flood = pieces(&harness, stream("flood")).await;
    assert_eq!(flood[flood.len() - 3..], ["\n\nthe whole flood", "(stop)", "[DONE]"], "lost pieces are made good");
    let usage = json!({"messages": user("hi"), "stream": true, "stream_options": {"include_usage": true}});
    assert_eq!(pieces(&harness, usage).await, ["<assistant>", "hi", "(stop)", "usage 11", "[DONE]"]);
}

#[tokio::test]
async fn a_stream_that_is_dropped_stops_its_run_and_a_whole_answer_does_not() {
    let harness = Harness::open().await;
    let body = json!({"messages": user("hold"), "stream": true});
    let response = harness.client.post(harness.url(CHAT)).json(&body).send().await.unwrap();
    let run = response.headers()["x-belay-run"].to_str().unwrap().to_owned();
    drop(response);
    let (_, ended) = harness.get(&format!("/api/v1/runs/{run}/wait?timeout_ms=5000")).await;
    assert_eq!((&ended["status"], &ended["reason"]), (&json!("stopped"), &json!("client_gone")));
    let whole = harness.client.post(harness.url(CHAT)).json(&json!({"messages": user("hold"), "conversation": "ada"}));
    let gone = whole.timeout(Duration::from_millis(100)).send().await;
    assert!(gone.is_err());
    tokio::time::sleep(Duration::from_millis(100)).await; // nothing tells that something will not happen
    let stops = |harness: &Harness| {
        let seen = harness.agent.seen.lock().unwrap();
        let gone = |body: &Body| matches!(body, Body::Control(Control::Stop(StopTarget::RunOfGoneClient(_))));
        seen.iter().filter(|message| gone(&message.body)).count()
    };
    assert_eq!(stops(&harness), 1);
}

/// Sleeps for real: nothing tells that the gateway has noticed a closed connection.
#[tokio::test]
async fn a_client_that_goes_away_before_its_message_is_accepted_stops_its_run_too() {
    let harness = Harness::open().await;
    let (_ready, seen) = tokio::sync::watch::channel(true);
    let (gateway, channel) = belay_gateway::Gateway::bind(parts(&harness.store, &harness.clock, seen)).await.unwrap();
    let url = format!("http://{}{CHAT}", gateway.addr().unwrap());
    let stop = CancellationToken::new();
    let mut stream = start(&channel, CancellationToken::new()).await;
    let served = tokio::spawn(gateway.serve(stop.clone()));
    let mut next = async || tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap();

    let body = json!({"messages": user("hold"), "stream": true});
    let asking = tokio::spawn(harness.client.post(url).json(&body).send());
    let message = next().await;
    asking.abort();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let run_id = RunId::new();
    let accepted_at = UnixMillis(NOW);
    let session = message.inbound.session;
    message.ack.send(Ack::Accepted(Accepted {
        run_id,
        session,
        accepted_at,
        duplicate: false,
        frozen: None,
        watch: None,
    }));
    let told = next().await.inbound.body;
    assert_eq!(told, Body::Control(Control::Stop(StopTarget::RunOfGoneClient(run_id))));
    stop.cancel();
    tokio::time::timeout(PATIENCE, served).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_stream_that_was_read_to_its_end_stops_nothing() {
    let harness = Harness::open().await;
    assert_eq!(pieces(&harness, json!({"messages": user("hi"), "stream": true})).await.len(), 4);
    let run = harness.hold("s").await;
    harness.agent.finish(run, StopReason::FinalText, "done");
    assert!(harness.agent.seen.lock().unwrap().iter().all(|message| !matches!(message.body, Body::Control(_))));
}
