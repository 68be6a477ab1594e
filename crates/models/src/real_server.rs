//! Tests the two main formats against a real server (llama.cpp) if `REAL_LLM_URL` is set, for instance to
//! `http://127.0.0.1:8080`. Asserts the structure of answers, never their wording, because small models are
//! unpredictable.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use belay_protocol::{Arguments, FinishReason, Message, ModelErrorKind, ModelProvider, ModelRequest, NoSink};
use serde_json::{Value, json};

use crate::testing::{Asked, RecordingSink, client, config, provider};
use crate::{EnvKeys, ProbeReport};

/// The settings of each format to test. Empty, with a message, if there is no server.
fn settings() -> Vec<Value> {
    let Ok(url) = std::env::var("REAL_LLM_URL") else {
        eprintln!("skipped: REAL_LLM_URL is not set");
        return Vec::new();
    };
    ["openai", "anthropic"].map(|name| json!({"provider": name, "base_url": url, "model": "local"})).to_vec()
}

async fn say(provider: &dyn ModelProvider, text: &str, max_tokens: u32, recorded: &mut RecordingSink) -> FinishReason {
    let asked = Asked::new("Be brief.", false, vec![Message::user(text)]);
    let reply = provider.call(ModelRequest { max_tokens, ..asked.request() }, recorded).await.unwrap();
    assert_eq!(reply.text, recorded.text);
    assert!(reply.usage.is_some_and(|usage| usage.input > 0 && usage.output > 0), "{:?}", reply.usage);
    reply.finish
}

#[tokio::test]
async fn a_real_server_streams_text() {
    for settings in settings() {
        let provider = provider(settings);
        let mut recorded = RecordingSink::default();
        say(&*provider, "Say hello.", 40, &mut recorded).await;
        assert!(!recorded.text.is_empty());
        assert_eq!(
            say(&*provider, "Count to a thousand.", 3, &mut RecordingSink::default()).await,
            FinishReason::Length
        );
    }
}

#[tokio::test]
async fn a_real_server_calls_a_tool_and_reads_its_result() {
    for mut settings in settings().into_iter().take(1) {
        settings["extra_body"] = json!({
            "tool_choice": "required", "parallel_tool_calls": false, "chat_template_kwargs": {"tool_first": true},
        });
        let asked = Asked::new("", true, vec![Message::user("What time is it?")]);
        let reply = provider(settings.clone()).call(asked.request(), &mut NoSink).await.unwrap();
        assert_eq!(reply.finish, FinishReason::ToolCalls, "{reply:?}");
        let call = &reply.tool_calls[0];
        assert!(call.name == "clock" && matches!(call.arguments, Arguments::Object(_)), "{call:?}");

        let result = crate::testing::result(call.id.as_str(), "clock", belay_protocol::ToolStatus::Success, "12:00");
        let history =
            vec![Message::user("What time is it?"), Message::assistant_calls("", reply.tool_calls.clone()), result];
        for settings in self::settings() {
            let asked = Asked::new("", false, history.clone());
            let reply = provider(settings).call(asked.request(), &mut NoSink).await.unwrap();
            assert!(reply.tool_calls.is_empty(), "{reply:?}");
        }
    }
}

#[tokio::test]
async fn a_real_server_tells_that_the_context_is_full() {
    for settings in settings() {
        let asked = Asked::new("", false, vec![Message::user("one two three ".repeat(20_000))]);
        let error = provider(settings).call(asked.request(), &mut NoSink).await.unwrap_err();
        assert_eq!((error.kind, error.attempts), (ModelErrorKind::ContextTooLong, 1), "{error}");
    }
}

#[tokio::test]
async fn a_real_server_survives_a_call_that_is_dropped() {
    for settings in settings() {
        let provider = provider(settings);
        let asked = Asked::new("", false, vec![Message::user("Tell a long story.")]);
        let mut sink = NoSink;
        let call = provider.call(asked.request(), &mut sink);
        let _ = tokio::time::timeout(Duration::from_millis(150), call).await;
        say(&*provider, "Say hello.", 5, &mut RecordingSink::default()).await;
    }
}

#[tokio::test]
async fn a_real_server_is_found_by_the_probe() {
    for settings in settings() {
        let report = crate::probe(&config(settings), &EnvKeys::default(), &client()).await.unwrap();
        assert_eq!(report, ProbeReport::Ready);
    }
}
