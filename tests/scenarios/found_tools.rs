//! Tools that a request offers only once the model has asked for them, through the real binary.

use anyhow::Result;
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};

/// The tools of a request, by name.
fn names(request: &Value) -> Vec<&str> {
    let tools = request["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["function"]["name"].as_str()).collect()
}

/// The text of the last message of a request.
fn last(request: &Value) -> &str {
    let messages = request["messages"].as_array();
    messages.and_then(|messages| messages.last()?["content"].as_str()).unwrap_or_default()
}

#[tokio::test]
async fn a_tool_that_the_model_has_asked_for_stays_also_after_a_restart() -> Result<()> {
    let asks = Answer::call("find_tools", json!({"names": ["list_jobs", "list_jbs"]}));
    let replies = vec![Answer::text("hi"), asks, Answer::call("list_jobs", json!({})), Answer::text("there is none")];
    let model = ModelServer::start(replies, Answer::text("still none")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    daemon.ask("alice", "hello").await?;
    daemon.ask("alice", "which jobs do I have?").await?;
    daemon.shut_down().await?;
    let daemon = home.start().await?;
    daemon.ask("alice", "and now?").await?;
    daemon.ask("bob", "hello").await?;

    let requests = model.requests();
    let (begin, found) = (names(&requests[0]), names(&requests[2]));
    assert!(
        begin.contains(&"find_tools") && begin.contains(&"read_file") && !begin.contains(&"list_jobs"),
        "{begin:?}"
    );
    assert_eq!(names(&requests[1]), begin);
    assert!(last(&requests[2]).contains("- list_jobs: Lists"), "{}", last(&requests[2]));
    assert!(last(&requests[2]).contains("Did you mean list_jobs?"), "{}", last(&requests[2]));
    let brought: Vec<&str> = found.iter().filter(|name| !begin.contains(*name)).copied().collect();
    assert_eq!(brought, ["list_jobs"]);
    assert!(last(&requests[3]).contains("no jobs"), "{}", last(&requests[3]));
    assert_eq!(requests[4]["tools"], requests[2]["tools"], "the same after a restart");
    assert_eq!(requests[5]["tools"], requests[0]["tools"], "another conversation has not asked");
    Ok(())
}

#[tokio::test]
async fn a_tool_that_was_not_offered_runs_when_it_is_called() -> Result<()> {
    let replies = vec![Answer::call("list_routines", json!({})), Answer::text("there is none")];
    let model = ModelServer::start(replies, Answer::text("?")).await;
    let daemon = Home::new().openai(&model.base_url).start().await?;
    let run = daemon.ask("alice", "which routines do I have?").await?;
    assert_eq!((&run["status"], &run["reply"]), (&json!("completed"), &json!("there is none")), "{run}");
    let requests = model.requests();
    assert!(!names(&requests[0]).contains(&"list_routines"), "{:?}", names(&requests[0]));
    assert!(names(&requests[1]).contains(&"list_routines"), "{:?}", names(&requests[1]));
    assert!(last(&requests[1]).contains("no routines"), "{}", last(&requests[1]));
    Ok(())
}

#[tokio::test]
async fn what_all_conversations_send_is_short() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("hi")).await;
    let daemon = Home::new().openai(&model.base_url).start().await?;
    daemon.ask("alice", "hello").await?;
    let request = &model.requests()[0];
    for tool in request["tools"].as_array().into_iter().flatten() {
        let (name, described) =
            (&tool["function"]["name"], tool["function"]["description"].as_str().unwrap_or_default());
        // The names of the other tools are no words about this one.
        let words = described.split_whitespace().count();
        assert!(words <= 25 || name == "find_tools", "{name} has {words} words: {described}");
    }
    Ok(())
}
