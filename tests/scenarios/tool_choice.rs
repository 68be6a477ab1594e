//! The tool-choice suite without a model: the requests of `tests/toolchoice` have the tools of a conversation with the
//! default settings, and a request that Belay sends offers the right one, or `find_tools` finds it by their words.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use serde::Deserialize;
use serde_json::{Value, json};

/// The least number of requests for each tool, and in all.
const LEAST_OF_TOOL: usize = 2;
const LEAST: usize = 60;
/// One of so many requests needs no tool.
const WITHOUT_TOOL: usize = 5;
/// The right tool is among so many of an answer of `find_tools`.
const BEST: usize = 3;

/// A request in a person's words, and the tool that is right for it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    text: String,
    tool: Option<String>,
}

fn cases() -> Result<Vec<Case>> {
    let read = |line: &str| serde_json::from_str(line).with_context(|| line.to_owned());
    include_str!("../toolchoice/requests.jsonl").lines().map(read).collect()
}

/// The names of the offered tools, and of those that `find_tools` names.
fn tools_of(request: &Value) -> (BTreeSet<String>, BTreeSet<String>) {
    let tools = request["tools"].as_array().into_iter().flatten().map(|tool| &tool["function"]);
    let (finders, offered): (Vec<_>, Vec<_>) = tools.partition(|tool| tool["name"] == "find_tools");
    let named = finders.iter().filter_map(|tool| tool["description"].as_str()?.trim_end_matches('.').split_once(": "));
    let word = |name: &str| name.split(' ').next().unwrap_or_default().to_owned();
    let deferred = named.flat_map(|(_, names)| names.split(", ").map(word)).collect();
    (offered.iter().filter_map(|tool| Some(tool["name"].as_str()?.to_owned())).collect(), deferred)
}

#[tokio::test]
async fn each_tool_of_a_conversation_has_requests_and_is_offered_or_found_by_their_words() -> Result<()> {
    let cases = cases()?;
    let model = ModelServer::start(vec![], Answer::text("hi")).await;
    let daemon = Home::new().openai(&model.base_url).start().await?;
    daemon.ask("first", "hello").await?;
    let (offered, deferred) = tools_of(&model.requests()[0]);
    assert!(offered.is_disjoint(&deferred) && deferred.contains("routine"), "{deferred:?}");

    let mut left: BTreeMap<&str, usize> =
        offered.iter().chain(&deferred).map(|name| (name.as_str(), LEAST_OF_TOOL)).collect();
    for Case { text, tool } in &cases {
        if let Some(tool) = tool {
            let left = left.get_mut(tool.as_str()).with_context(|| format!("there is no {tool}: {text}"))?;
            *left = left.saturating_sub(1);
        }
    }
    left.retain(|_, left| *left > 0);
    assert!(left.is_empty(), "these need more requests: {left:?}");
    let without = cases.iter().filter(|case| case.tool.is_none()).count();
    assert!(cases.len() >= LEAST && without * WITHOUT_TOOL >= cases.len(), "{without} of {}", cases.len());

    for (at, Case { text, tool }) in cases.iter().enumerate() {
        let Some(tool) = tool.as_ref().filter(|tool| deferred.contains(*tool)) else { continue };
        model.then(Answer::call("find_tools", json!({"query": text})));
        daemon.ask(&format!("words-{at}"), text).await?;
        let requests = model.requests();
        let found = requests.last().and_then(|last| last["messages"].as_array()?.last()?["content"].as_str());
        let found: Vec<_> = found.unwrap_or_default().lines().filter(|line| line.starts_with("- ")).collect();
        let is_found = found.iter().take(BEST).any(|line| line.starts_with(&format!("- {tool}: ")));
        assert!(is_found, "{text}: {found:?}");
    }
    Ok(())
}
