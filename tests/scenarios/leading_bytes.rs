//! The fixed bytes of requests: the system prompt and the tools. They are few, and those of a request begin with those
//! of the request before, so that a provider or a local server finds them in its cache.
//!
//! The templates of local servers write the prompt before the tools, so the tests compare them in this order. Anthropic
//! caches the tools before the prompt: there, a tool that a conversation brings in costs the cache of the prompt once.

use anyhow::Result;
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};

/// Most bytes of a first request of one word with the default settings.
const REQUEST_MAX: usize = 5 * 1024;
/// The share of the fixed bytes that must be leading and equal, in percent.
const LEADING_SHARE: usize = 95;

/// The system prompt without its date, which may change in the middle of a test, and the tools, each as it is sent.
fn fixed(request: &Value) -> String {
    let prompt = request["messages"][0]["content"].as_str().unwrap_or_default();
    let prompt: String = prompt.split_inclusive('\n').filter(|line| !line.starts_with("Today is ")).collect();
    let tools = request["tools"].as_array().into_iter().flatten();
    tools.fold(prompt, |text, tool| text + &tool.to_string())
}

/// The share of the fixed bytes of `before` with which those of `after` begin, in percent.
fn leading_share(before: &Value, after: &Value) -> usize {
    let (before, after) = (fixed(before), fixed(after));
    let equal = before.bytes().zip(after.bytes()).take_while(|(a, b)| a == b).count();
    equal * 100 / before.len()
}

fn names(request: &Value) -> Vec<&str> {
    let tools = request["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["function"]["name"].as_str()).collect()
}

/// The tools of a request behind those of another one.
fn added<'a>(request: &'a Value, first: &Value) -> Vec<&'a str> {
    names(request).split_off(names(first).len())
}

#[tokio::test]
async fn a_first_request_has_few_fixed_bytes() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("hi")).await;
    let daemon = Home::new().openai(&model.base_url).start().await?;
    daemon.ask("alice", "hello").await?;
    let bytes = model.requests()[0].to_string().len();
    assert!(bytes <= REQUEST_MAX, "{bytes} bytes");
    Ok(())
}

#[tokio::test]
async fn tools_that_a_conversation_brings_in_stand_behind_those_before_also_after_a_restart() -> Result<()> {
    let replies = vec![
        Answer::text("hi"),
        Answer::text("still here"),
        Answer::call("find_tools", json!({"names": ["list_routines"]})),
        Answer::call("list_routines", json!({})),
        Answer::text("none"),
        Answer::call("calculate", json!({"expression": "6*7"})),
    ];
    let model = ModelServer::start(replies, Answer::text("42")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    for text in ["hello", "are you there?", "which routines do I have?", "what is 6*7?"] {
        daemon.ask("alice", text).await?;
    }
    daemon.shut_down().await?;
    let daemon = home.start().await?;
    daemon.ask("alice", "and now?").await?;

    let requests = model.requests();
    assert_eq!(requests.len(), 8);
    assert_eq!(added(&requests[4], &requests[0]), ["list_routines"]);
    assert_eq!(added(&requests[7], &requests[0]), ["list_routines", "calculate"], "not by name");
    let shares: Vec<usize> = requests.windows(2).map(|pair| leading_share(&pair[0], &pair[1])).collect();
    assert!(shares.iter().all(|share| *share >= LEADING_SHARE), "{shares:?}");
    Ok(())
}

#[tokio::test]
async fn the_tools_of_a_server_that_comes_later_stand_behind_those_before() -> Result<()> {
    let server = Home::new().set("gateway.mcp", true).start().await?;
    let model = ModelServer::start(vec![], Answer::text("hi")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    daemon.ask("alice", "hello").await?;
    daemon.shut_down().await?;
    let home = home.set("tools.mcp.belay.url", format!("{}/mcp", server.url));
    let daemon = home.start().await?;
    daemon.ask("alice", "and now?").await?;

    let requests = model.requests();
    let later = added(&requests[1], &requests[0]);
    assert!(later.len() == 5 && later.iter().all(|name| name.starts_with("mcp_belay_")), "{later:?}");
    assert!(leading_share(&requests[0], &requests[1]) >= LEADING_SHARE, "{later:?}");
    Ok(())
}
