//! Requests, and what they become.

use belay_protocol::inbound::HistoryRole;
use belay_protocol::{SessionLifetime, Thinking};
use serde_json::{Value, json};

use super::{PATH, last, shown, text};
use crate::harness::Harness;

#[tokio::test]
async fn a_response_is_whole_and_is_read_again() {
    let harness = Harness::open().await;
    let body = json!({"input": "hello", "instructions": "be brief", "metadata": {"a": "b"}, "user": "ada",
        "reasoning": {"effort": "high", "summary": "auto"}, "max_output_tokens": 99, "temperature": 0.5,
        "truncation": "auto", "include": ["reasoning.encrypted_content"], "service_tier": "auto"});
    let answer = harness.response_to(body).await;
    assert_eq!((&answer["status"], text(&answer).as_str()), (&json!("completed"), "hello"), "{answer}");
    assert_eq!((&answer["metadata"], &answer["user"]), (&json!({"a": "b"}), &json!("ada")));
    assert_eq!(answer["usage"]["total_tokens"], 11);
    let message = &answer["output"][0];
    assert_eq!((&message["role"], &message["status"]), (&json!("assistant"), &json!("completed")));
    assert_eq!(message["content"][0]["annotations"], json!([]));
    let sent = last(&harness);
    assert_eq!(shown(&sent), "hello <- System:be brief");
    assert_eq!((sent.options.thinking, sent.lifetime), (Some(Thinking::High), SessionLifetime::Ephemeral));
    let sampling = sent.options.sampling.unwrap();
    assert_eq!((sampling.max_tokens, sampling.temperature_milli), (Some(99), Some(500)));
    let (status, again) = harness.show(&answer).await;
    for same in ["id", "status", "output", "usage", "belay", "created_at", "model", "store", "metadata", "instructions"]
    {
        assert_eq!((status, &again[same]), (200, &answer[same]), "{same}");
    }
}

#[tokio::test]
async fn a_conversation_that_is_sent_again_is_the_history() {
    let harness = Harness::open().await;
    let picture = json!({"type": "input_image", "image_url": "data:image/png;base64,YQ=="});
    let file = json!({"type": "input_file", "filename": "a.csv", "file_data": "data:text/csv;base64,YQ=="});
    let items = json!([
        {"role": "developer", "content": "in French"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "one"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "1", "annotations": []}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "item_reference", "id": "msg_unknown"},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{\"city\":\"Oslo\"}"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "rain"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "two"}, {"type": "video"}]},
    ]);
    harness.response_to(json!({"input": items})).await;
    let found = shown(&last(&harness));
    assert!(found.starts_with("two <- System:in French|User:one|Assistant:1|Calls:"), "{found}");
    assert!(found.contains("rain") && !found.contains("unknown"), "{found}");
    // Files reach the place where they are taken.
    let parts = json!([{"role": "user", "content": [{"type": "input_text", "text": "see"}, picture, file]}]);
    let (status, refused) = harness.post(PATH, json!({"input": parts})).await;
    assert_eq!((status, &refused["error"]["code"]), (403, &json!("forbidden")), "no files are taken here: {refused}");
}

#[tokio::test]
async fn a_response_continues_another_one_and_an_older_one_gets_a_session_of_its_own() {
    let harness = Harness::open().await;
    let first = harness.response("one").await;
    let session = last(&harness).session;
    let next = |text: &str, id: &Value| json!({"input": text, "previous_response_id": id});
    let second = harness.response_to(next("two", &first["id"])).await;
    assert_eq!((last(&harness).session, shown(&last(&harness)).as_str()), (session.clone(), "two <- "));
    assert_eq!(second["previous_response_id"], first["id"]);
    let third = harness.response_to(next("other", &first["id"])).await;
    let forked = last(&harness);
    assert_ne!(forked.session, session);
    assert!(shown(&forked).starts_with("other <- ") && forked.history.iter().any(|line| line.text == "one"));
    let answers = forked.history.iter().filter(|line| line.role == HistoryRole::Assistant);
    assert_eq!(answers.map(|line| line.text.as_str()).collect::<Vec<_>>(), ["one"]);
    harness.response_to(next("more", &third["id"])).await;
    assert_eq!(last(&harness).session, forked.session);
    // A response that is not stored cannot be continued.
    let loose = harness.response_to(json!({"input": "x", "store": false})).await;
    let (status, error) = harness.post(PATH, next("y", &loose["id"])).await;
    assert_eq!((status, &error["error"]["code"]), (404, &json!("previous_response_not_found")));
}

#[tokio::test]
async fn a_conversation_and_the_header_name_the_session() {
    let harness = Harness::open().await;
    for named in [json!("ada"), json!({"id": "ada"})] {
        let answer = harness.response_to(json!({"input": "hi", "conversation": named})).await;
        assert_eq!((last(&harness).session.as_str(), &answer["belay"]["session"]), ("ada", &json!("ada")));
    }
    let request = harness.client.post(harness.url(PATH)).header("X-Belay-Session", "eve");
    let (status, _) = crate::harness::read(request.json(&json!({"input": "hi"}))).await;
    assert_eq!((status, last(&harness).session.as_str()), (200, "eve"));
}

#[tokio::test]
async fn functions_are_tools_of_the_client_and_hosted_tools_are_ignored() {
    let harness = Harness::open().await;
    let tools = json!([{"type": "web_search"}, {"type": "file_search", "vector_store_ids": ["v"]},
        {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": true}]);
    let choice = json!({"type": "function", "name": "weather"});
    let body = json!({"input": "hi", "tools": tools, "tool_choice": choice, "parallel_tool_calls": false});
    let answer = harness.response_to(body).await;
    let offered = last(&harness).options.client_tools.unwrap();
    assert_eq!((offered.tools.len(), offered.tools[0].name.as_str(), offered.tools[0].strict), (1, "weather", true));
    assert!(offered.one_at_a_time && !offered.choice.is_auto());
    assert_eq!((&answer["tools"], &answer["tool_choice"]), (&tools, &choice));
    harness
        .response_to(
            json!({"input": "hi", "tools": [{"type": "mcp", "server_label": "x"}], "tool_choice": {"type": "mcp"}}),
        )
        .await;
    assert!(last(&harness).options.client_tools.is_none());
}

#[tokio::test]
async fn a_form_is_asked_for_and_the_text_is_its_value() {
    let harness = Harness::open().await;
    let format = json!({"type": "json_schema", "name": "num", "strict": true, "schema": {"type": "object"}});
    let body = json!({"input": "reach {\"num\":{\"n\":391}}", "text": {"format": format}});
    let answer = harness.response_to(body).await;
    assert_eq!(text(&answer), "{\"n\":391}");
    assert_eq!((last(&harness).outputs[0].name.as_str(), &answer["text"]["format"]), ("num", &format));
    assert_eq!(text(&harness.show(&answer).await.1), "{\"n\":391}");
}
