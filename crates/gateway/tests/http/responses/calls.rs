//! Responses that end with calls, and the results of the next request.

use serde_json::{Value, json};

use super::{PATH, path_of, seen, text};
use crate::harness::Harness;

fn asking() -> Value {
    let tool = json!({"type": "function", "name": "weather", "parameters": {"type": "object"}});
    json!({"input": "use weather {\"city\":\"Oslo\"}; weather {}", "tools": [tool]})
}

fn calls(response: &Value) -> Vec<String> {
    let items = response["output"].as_array().unwrap().iter().filter(|item| item["type"] == "function_call");
    items.map(|item| item["call_id"].as_str().unwrap().to_owned()).collect()
}

fn result(call: &str) -> Value {
    json!({"type": "function_call_output", "call_id": call, "output": "rain"})
}

#[tokio::test]
async fn results_of_unknown_calls_are_refused_where_others_wait() {
    let harness = Harness::open().await;
    let first = harness.response_to(asking()).await;
    let ids = calls(&first);
    assert_eq!(ids.len(), 2, "{first}");
    let session = &first["belay"]["session"];
    for named in [json!({"previous_response_id": first["id"]}), json!({"conversation": session})] {
        let own = json!({"type": "function_call", "call_id": "theirs", "name": "a", "arguments": "{}"});
        for (input, refused) in [
            (json!([result("call_unknown")]), true),
            (json!([result(&ids[0]), result(&ids[1]), result("call_unknown")]), true),
            (json!([result("call_unknown"), {"role": "user", "content": "and?"}]), true),
            // A call that the input shows is a part of a history.
            (json!([own, result("theirs")]), false),
        ] {
            if !refused && named["conversation"].is_null() {
                continue; // it would be another run in this session
            }
            let mut body = named.clone();
            body["input"] = input;
            let before = seen(&harness).len();
            let (status, answer) = harness.post(PATH, body.clone()).await;
            let message = answer["error"]["message"].as_str().unwrap_or_default();
            if refused {
                assert_eq!((status, &answer["error"]["param"]), (400, &json!("input")), "{body}: {answer}");
                assert!(message.contains("call_unknown") && ids.iter().all(|id| message.contains(id)), "{message}");
                assert_eq!(seen(&harness).len(), before, "nothing was begun");
            } else {
                assert_eq!(status, 200, "{answer}");
            }
        }
    }
}

#[tokio::test]
async fn results_resume_the_run_once_and_each_response_keeps_its_own_fields() {
    let harness = Harness::open().await;
    let mut body = asking();
    body["metadata"] = json!({"part": "1"});
    let first = harness.response_to(body).await;
    let results: Vec<Value> = calls(&first).iter().map(|id| result(id)).collect();
    let next = json!({"input": results, "previous_response_id": first["id"], "instructions": "be brief",
        "metadata": {"part": "2"}});
    let second = harness.response_to(next.clone()).await;
    assert_eq!((text(&second).as_str(), seen(&harness).len()), ("rain and rain", 1), "{second}");
    assert_eq!(second["belay"]["run_id"], first["belay"]["run_id"]);
    for (response, part, instructions) in [(&first, "1", Value::Null), (&second, "2", json!("be brief"))] {
        let (status, shown) = harness.show(response).await;
        assert_eq!((status, &shown["metadata"], &shown["instructions"]), (200, &json!({"part": part}), &instructions));
    }
    // The same results again, as after a broken connection.
    let again = harness.response_to(next).await;
    assert_eq!((&again["id"], seen(&harness).len()), (&second["id"], 1));
    // A result after the end is of nothing that waits: it is a history, and this run does not go on.
    let late = json!({"input": [result("call_unknown")], "previous_response_id": second["id"]});
    harness.response_to(late).await;
    assert_eq!(seen(&harness).len(), 2);
}

#[tokio::test]
async fn a_response_that_is_not_stored_keeps_nothing() {
    let harness = Harness::open().await;
    harness.response_to(json!({"input": "hi", "store": false, "metadata": {"a": "b"}})).await;
    assert!(super::last(&harness).options.notes.is_empty());
    let plain = harness.response("hi").await;
    assert!(super::last(&harness).options.notes.is_empty());
    assert_eq!(harness.get(&path_of(&plain, "")).await.1["metadata"], json!({}));
}
