//! One message in, one answer out: on stdin and HTTP, with memory, tools, commands and limits.

use std::process::Stdio;

use anyhow::Result;
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};

#[tokio::test]
async fn the_readmes_first_example_calculates_shows_the_status_and_ends_with_zero() -> Result<()> {
    let home = Home::new();
    let output = home
        .run(
            &["run", "--set", "llm.provider=rehearsal", "--set", "gateway.listen=127.0.0.1:0"],
            "calculate 17*23\n/status\n/quit\n",
        )
        .await?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stdout.contains("391"), "{output:?}");
    assert!(output.stdout.contains("rehearsal") && output.stdout.contains("0 running"), "{output:?}");
    Ok(())
}

#[tokio::test]
async fn a_long_piped_file_is_answered_completely_and_in_order() -> Result<()> {
    let home = Home::new();
    let input: String = (1..=60).map(|n| format!("calculate {n}*1000\n")).collect();
    let output = home.run(&["run", "--set", "llm.provider=rehearsal", "--set", "gateway.listen=off"], &input).await?;
    assert_eq!(output.status.code(), Some(0), "the end of input ends a daemon without other channels: {output:?}");
    let places: Vec<_> = (1..=60).map(|n| output.stdout.find(&format!("{}", n * 1000))).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{}", output.stdout);
    Ok(())
}

#[tokio::test]
async fn a_conversation_over_http_remembers_and_sessions_are_apart() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("ok")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    daemon.ask("alice", "my name is Alice").await?;
    daemon.ask("bob", "I am Bob").await?;
    let run = daemon.ask("alice", "who am I?").await?;
    assert_eq!((run["status"].as_str(), run["reply"].as_str()), (Some("completed"), Some("ok")), "{run}");
    assert_eq!(run["usage"], json!({"input": 100, "output": 10, "model_calls": 1, "tool_calls": 0}));
    let seen = &model.requests()[2]["messages"];
    let texts: Vec<&str> =
        seen.as_array().into_iter().flatten().filter_map(|m| m["content"].as_str()).skip(1).collect();
    assert_eq!(texts, ["my name is Alice", "ok", "who am I?"]);
    let (status, history) = daemon.request("GET", "/api/v1/sessions/alice/messages", None).await?;
    assert_eq!((status, history["messages"].as_array().map(Vec::len)), (200, Some(4)), "{history}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn tools_work_through_the_real_loop() -> Result<()> {
    let home = Home::new();
    std::fs::write(home.workspace().join("note.txt"), "buy milk\n")?;
    let daemon = home.start().await?;
    for (text, expected) in [
        ("calculate 17*23", "391"),
        ("read note.txt", "buy milk"),
        ("list files", "note.txt"),
        ("what time is it in Asia/Tokyo", "Tokyo"),
        ("read ../../../etc/passwd", "leads out of the workspace"),
        ("remember colour: blue", "colour"),
        ("recall colour", "blue"),
    ] {
        let run = daemon.ask("alice", text).await?;
        let reply = run["reply"].as_str().unwrap_or_default().to_lowercase();
        assert!(reply.contains(&expected.to_lowercase()), "{text}: {run}");
        assert!(run["usage"]["tool_calls"].as_u64() >= Some(1), "{text}: {run}");
        assert!(!reply.contains("root:"), "{run}");
    }
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn commands_are_answered_at_once_and_cost_no_run() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    for (text, expected) in [
        ("/status", "0 running"),
        ("/help", "/stop"),
        ("/PING@mybot", "pong"),
        ("/version", "Belay"),
        ("/tools", "calculate"),
        ("/model", "stand-in"),
        ("/undo", "nothing to undo"),
        ("/statsu", "/status"),
        ("/jobs", "There are no jobs"),
    ] {
        let (status, reply) = daemon.post(json!({"session": "alice", "text": text})).await?;
        assert_eq!(status, 200, "{text}: {reply}");
        assert!(reply["reply"].as_str().unwrap_or_default().contains(expected), "{text}: {reply}");
    }
    let (_, runs) = daemon.request("GET", "/api/v1/runs", None).await?;
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(0), "{runs}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn undo_and_new_change_what_the_model_sees() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("ok")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    daemon.ask("alice", "first").await?;
    daemon.ask("alice", "second").await?;
    daemon.post(json!({"session": "alice", "text": "/undo"})).await?;
    daemon.ask("alice", "third").await?;
    daemon.post(json!({"session": "alice", "text": "/new"})).await?;
    daemon.ask("alice", "fourth").await?;
    let users = |request: &Value| -> Vec<String> {
        let messages = request["messages"].as_array().cloned().unwrap_or_default();
        let users = messages.iter().filter(|message| message["role"] == "user");
        users.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let requests = model.requests();
    assert_eq!(users(&requests[2]), ["first", "third"]);
    assert_eq!(users(&requests[3]), ["fourth"]);
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn follow_ups_are_answered_in_order_and_the_cap_says_busy() -> Result<()> {
    let model = ModelServer::start(vec![Answer::Stall], Answer::text("ok")).await;
    let home = Home::new().openai(&model.base_url).set("queue.cap", 3);
    let daemon = home.start().await?;
    let first = daemon.send("alice", "first").await?;
    model.seen(1).await;
    let mut waiting = Vec::new();
    for n in 1..=3 {
        waiting.push(daemon.send("alice", &format!("waiting {n}")).await?);
    }
    let (status, busy) = daemon.post(json!({"session": "alice", "text": "too many"})).await?;
    assert_eq!((status, busy["error"]["retryable"].as_bool()), (429, Some(true)), "{busy}");
    daemon.request("POST", &format!("/api/v1/runs/{first}/stop"), None).await?;
    for run in &waiting {
        assert_eq!(daemon.finished(run).await?["status"], "completed");
    }
    let last: Vec<_> =
        model.requests().iter().map(|r| r["messages"].as_array().and_then(|m| m.last()).cloned()).collect();
    let texts: Vec<_> = last.iter().flatten().map(|m| m["content"].as_str().unwrap_or_default().to_owned()).collect();
    assert_eq!(texts, ["first", "waiting 1", "waiting 2", "waiting 3"]);
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn the_same_idempotency_key_fifty_times_at_once_gives_one_run() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let body = json!({"session": "alice", "text": "calculate 6*7", "idempotency_key": "k", "wait_ms": 10_000});
    let posts = futures_util::future::join_all((0..50).map(|_| daemon.post(body.clone()))).await;
    let mut ids = std::collections::HashSet::new();
    for post in posts {
        let (status, run) = post?;
        assert_eq!(status, 200, "{run}");
        assert!(run["reply"].as_str().unwrap_or_default().contains("42"), "{run}");
        ids.insert(run["run_id"].as_str().unwrap_or_default().to_owned());
    }
    assert_eq!(ids.len(), 1);
    let mut other = body.clone();
    other["text"] = json!("another text");
    assert_eq!(daemon.post(other).await?.0, 409);
    let (_, runs) = daemon.request("GET", "/api/v1/runs", None).await?;
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(1), "{runs}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn the_openai_endpoint_streams_what_it_answers() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("Hello from the model.")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let body = |stream: bool| {
        json!({"model": "belay", "stream": stream, "messages": [
            {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]})
    };
    let (status, whole) = daemon.request("POST", "/v1/chat/completions", Some(body(false))).await?;
    assert_eq!((status, whole["choices"][0]["message"]["content"].as_str()), (200, Some("Hello from the model.")));
    let (status, stream) = daemon.request("POST", "/v1/chat/completions", Some(body(true))).await?;
    let stream = stream.as_str().unwrap_or_default().to_owned();
    let pieces: String = stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter_map(|data| serde_json::from_str::<Value>(data).ok())
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
        .collect();
    assert_eq!((status, pieces.as_str()), (200, "Hello from the model."), "{stream}");
    assert!(stream.trim_end().ends_with("data: [DONE]"), "{stream}");
    let messages = &model.requests()[0]["messages"];
    assert!(messages.to_string().contains("Be kind."), "{messages}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn an_openai_client_learns_that_an_answer_was_cut_off() -> Result<()> {
    let cut = || Answer::Cut("The beginning of".into());
    let model = ModelServer::start(vec![cut(), cut(), Answer::Cut(String::new())], Answer::text("whole")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let body = |stream: bool| json!({"model": "belay", "stream": stream, "messages": [{"role": "user", "content": "Tell me"}]});
    let (_, whole) = daemon.request("POST", "/v1/chat/completions", Some(body(false))).await?;
    assert_eq!(whole["choices"][0]["finish_reason"], "length", "{whole}");
    let (_, stream) = daemon.request("POST", "/v1/chat/completions", Some(body(true))).await?;
    assert!(stream.as_str().unwrap_or_default().contains("\"finish_reason\":\"length\""), "{stream}");
    let (status, nothing) = daemon.request("POST", "/v1/chat/completions", Some(body(false))).await?;
    assert_eq!((status, nothing["choices"][0]["finish_reason"].as_str()), (200, Some("length")), "{nothing}");
    let (_, last) = daemon.request("POST", "/v1/chat/completions", Some(body(false))).await?;
    assert_eq!(last["choices"][0]["finish_reason"], "stop", "{last}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_context_that_is_too_long_is_shortened_and_tried_once_more() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("ok")).await;
    let home = Home::new().openai(&model.base_url).set("compaction.memory_flush", false);
    let daemon = home.start().await?;
    for n in 0..6 {
        daemon.ask("alice", &format!("question {n} {}", "x".repeat(400))).await?;
    }
    model.then(Answer::too_long());
    let run = daemon.ask("alice", "and now?").await?;
    assert_eq!((run["status"].as_str(), run["reply"].as_str()), (Some("completed"), Some("ok")), "{run}");
    // Between the two an account is asked for, which nobody in the conversation sees.
    let asked = model.requests().split_off(6);
    let asked: Vec<String> = asked.iter().map(|request| request["messages"].to_string()).collect();
    let asked: Vec<&String> = asked.iter().filter(|messages| !messages.contains("You write the summary")).collect();
    let [long, short] = asked[..] else { panic!("two of the conversation: {asked:#?}") };
    assert!(short.len() < long.len() && short.contains("question 0") && short.contains("and now?"), "{short}");
    // Whatever is asked, also for an account.
    for _ in 0..12 {
        model.then(Answer::too_long());
    }
    let run = daemon.ask("alice", "again").await?;
    assert_eq!((run["status"].as_str(), run["reason"].as_str()), (Some("failed"), Some("context_too_long")), "{run}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn stdin_and_http_talk_to_the_same_daemon() -> Result<()> {
    let home = Home::new();
    let mut daemon = home.start_with(Stdio::piped()).await?;
    daemon.type_line("calculate 1+1").await?;
    daemon.printed("2").await?;
    let run = daemon.ask("web", "calculate 2+2").await?;
    assert!(run["reply"].as_str().unwrap_or_default().contains('4'), "{run}");
    daemon.close_stdin();
    // The end of stdin does not end a daemon whose other channels are open.
    let run = daemon.ask("web", "calculate 3+3").await?;
    assert!(run["reply"].as_str().unwrap_or_default().contains('6'), "{run}");
    let output = daemon.shut_down().await?;
    assert_eq!(output.status.code(), Some(0));
    Ok(())
}
