//! Tests the formats of the library over a real socket.

#![allow(clippy::unwrap_used)]

use belay_protocol::ModelErrorKind::*;
use belay_protocol::{Arguments, FinishReason, Message, ModelRequest, NoSink, Sampling, ToolCall, Usage};
use serde_json::{Value, json};

use crate::testing::{Asked, RecordingSink, Script, Server, ask_once, history_with_pictures, provider, sample_history};

fn gemini(parts: Value, finish: Option<&str>) -> String {
    let usage = json!({"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10});
    let mut candidate = json!({"content": {"role": "model", "parts": parts}});
    if let Some(reason) = finish {
        candidate["finishReason"] = reason.into();
    }
    format!("data: {}\r\n\r\n", json!({"candidates": [candidate], "usageMetadata": usage}))
}

#[tokio::test]
async fn gemini_is_understood() {
    let body = gemini(json!([{"text": "I "}]), None)
        + &gemini(
            json!([{"text": "look"}, {"functionCall": {"name": "clock", "args": {"zone": "UTC"}}}]),
            Some("STOP"),
        );
    let server = Server::start(vec![Script::sse(&body).sliced(5)]).await;
    let provider = provider(json!({"provider": "gemini", "base_url": format!("{}/v1beta", server.url())}));
    let mut recorded = RecordingSink::default();
    let asked = Asked::new("be brief", true, sample_history());
    let reply = provider.call(asked.request(), &mut recorded).await.unwrap();
    assert_eq!((reply.text.as_str(), recorded.text.as_str()), ("I look", "I look"));
    assert_eq!(reply.finish, FinishReason::ToolCalls);
    assert_eq!(reply.usage, Some(Usage { input: 7, cached_input: 0, output: 3 }));
    let call = &reply.tool_calls[0];
    let arguments = Arguments::parse("{\"zone\":\"UTC\"}");
    assert_eq!(*call, ToolCall { id: call.id.clone(), name: "clock".into(), arguments });
    let request = &server.requests()[0];
    assert!(request.starts_with("POST /v1beta/models/gemini-2.5-flash:streamGenerateContent"), "{request}");
    assert!(request.contains("be brief") && request.contains("maxOutputTokens"), "{request}");
}

#[tokio::test]
async fn a_notice_stands_in_the_conversation_and_not_among_the_instructions() {
    let server = Server::start(vec![Script::sse(&gemini(json!([{"text": "42"}]), Some("STOP")))]).await;
    let provider = provider(json!({"provider": "gemini", "base_url": format!("{}/v1beta", server.url())}));
    let history = vec![Message::notice("it is 42"), Message::system("in short"), Message::user("what came of it?")];
    provider.call(Asked::new("be brief", false, history).request(), &mut NoSink).await.unwrap();
    let request = &server.requests()[0];
    let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
    let instructions = body["systemInstruction"].to_string();
    assert!(instructions.contains("be brief") && !instructions.contains("it is 42"), "{body}");
    let text = "This is a notice from Belay, not a message of the user. it is 42";
    assert_eq!(
        body["contents"],
        json!([
            {"role": "user", "parts": [{"text": text}]},
            {"role": "user", "parts": [{"text": "what came of it?"}]},
        ])
    );
}

/// A count that could not be read is not taken as zero. The owner of the budget estimates it.
#[tokio::test]
async fn counts_that_cannot_be_read_are_not_taken_for_all() {
    let usage = |input, output| Some(Usage { input, cached_input: 0, output });
    for (told, expected) in [
        (json!({"promptTokenCount": 7, "candidatesTokenCount": 3}), usage(7, 3)),
        (json!({"promptTokenCount": "many", "candidatesTokenCount": 3}), None),
        (json!({"promptTokenCount": 7, "candidatesTokenCount": -3}), None),
        (json!({"promptTokenCount": 7}), None),
        (json!({}), None),
    ] {
        let candidate = json!({"content": {"role": "model", "parts": [{"text": "noon"}]}, "finishReason": "STOP"});
        let body = format!("data: {}\r\n\r\n", json!({"candidates": [candidate], "usageMetadata": told}));
        let server = Server::start(vec![Script::sse(&body)]).await;
        let provider = provider(json!({"provider": "gemini", "base_url": format!("{}/v1beta", server.url())}));
        let reply = ask_once(&*provider, &mut NoSink).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.usage), ("noon", expected), "{told}");
    }
}

#[tokio::test]
async fn a_seed_below_zero_is_refused_by_name_and_nothing_is_sent() {
    let server = Server::start(Vec::new()).await;
    let provider = provider(json!({"provider": "gemini", "base_url": format!("{}/v1beta", server.url())}));
    let (asked, sampling) = (Asked::new("", false, Vec::new()), Sampling { seed: Some(-1), ..Sampling::default() });
    let request = ModelRequest { sampling: Some(&sampling), ..asked.request() };
    let error = provider.call(request, &mut NoSink).await.unwrap_err();
    assert_eq!((error.kind, error.detail.split(':').next()), (BadRequest, Some("seed")), "{error}");
    assert_eq!(server.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn no_picture_goes_through_the_library_and_the_model_is_told() {
    let body = "{\"message\":{\"role\":\"assistant\",\"content\":\"no\"},\"done\":true,\"done_reason\":\"stop\"}\n";
    let server = Server::start(vec![Script::http(200, "application/x-ndjson", body)]).await;
    let settings = json!({"provider": "ollama-native", "base_url": server.url(), "model": "llava", "vision": true});
    let provider = provider(settings);
    assert!(!provider.info().vision);
    let asked = Asked::new("", false, history_with_pictures());
    provider.call(asked.request(), &mut NoSink).await.unwrap();
    let request = &server.requests()[0];
    assert!(request.contains("[2 pictures not shown: this model does not accept pictures]"), "{request}");
    assert!(!request.contains("UE5H"), "{request}");
}

#[tokio::test]
async fn ollamas_own_format_is_understood() {
    let body = "{\"message\":{\"role\":\"assistant\",\"content\":\"no\"},\"done\":false}\n\
        {\"message\":{\"role\":\"assistant\",\"content\":\"on\"},\"done\":true,\"done_reason\":\"length\",\"eval_count\":2}\n";
    let server = Server::start(vec![Script::http(200, "application/x-ndjson", body)]).await;
    let provider = provider(json!({"provider": "ollama-native", "base_url": server.url(), "model": "m"}));
    let reply = ask_once(&*provider, &mut NoSink).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.finish), ("noon", FinishReason::Length));
    assert!(server.requests()[0].starts_with("POST /api/chat "), "{:?}", server.requests());
}

#[tokio::test]
async fn a_broken_stream_and_a_refusal_are_typed() {
    let half = "{\"message\":{\"content\":\"no\"},\"done\":false}\n";
    let no_reason = "{\"message\":{\"content\":\"no\"},\"done\":true}\n";
    let ndjson = "application/x-ndjson";
    for (what, script, kind) in [
        ("half", Script::http(200, ndjson, half), Network),
        ("closed", Script::http(200, ndjson, half).then_close(), Network),
        ("no reason", Script::http(200, ndjson, no_reason), Network),
        ("junk", Script::http(200, "text/html", "<html>\n"), Network),
        ("limited", Script::http(429, "text/plain\r\nretry-after: 3", "slow"), {
            RateLimited { retry_after: Some(std::time::Duration::from_secs(3)) }
        }),
        ("refused", Script::json(401, "{\"error\":\"the key sesame is wrong\"}"), Auth),
        ("unknown model", Script::json(404, "{\"error\":\"model 'm' not found\"}"), BadRequest),
    ] {
        let server = Server::start(vec![script]).await;
        let provider = provider(json!({"provider": "ollama-native", "base_url": server.url(), "model": "m"}));
        let error = ask_once(&*provider, &mut NoSink).await.expect_err(what);
        assert_eq!(error.kind, kind, "{what}: {error}");
        assert!(!error.detail.contains("sesame"), "{what}: {error}");
    }
    let away = provider(json!({"provider": "ollama-native", "base_url": "http://127.0.0.1:9", "model": "m"}));
    assert_eq!(ask_once(&*away, &mut NoSink).await.unwrap_err().kind, Network);
}
