//! The sessions of people and of Belay itself, into which no program writes, by any way in.

use anyhow::{Context, Result};
use belay_tests::daemon::{Daemon, Home, client};
use belay_tests::socket::Socket;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

const CLIENT: &str = "client-token";
const OPERATOR: &str = "operator-token";
const SECRET: &str = "a secret that signs messages";
const REFUSED: &str = "only operators write to it from elsewhere";

/// The answer to a request: its status and its text.
async fn post(daemon: &Daemon, path: &str, token: &str, body: Value) -> Result<(u16, String)> {
    let request = client().post(format!("{}{path}", daemon.url)).bearer_auth(token).json(&body);
    let response = request.header("accept", "application/json, text/event-stream").send().await?;
    Ok((response.status().as_u16(), response.text().await?))
}

/// Sends a signed message.
async fn signed(daemon: &Daemon, session: &str, text: &str) -> Result<(u16, String)> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let body = json!({"session": session, "text": text, "delivery_id": format!("{session} {text}"), "sent_at": now})
        .to_string();
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes())?;
    mac.update(body.as_bytes());
    let signature: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let request = client().post(format!("{}/webhook", daemon.url)).header("content-type", "application/json");
    let response = request.header("x-hub-signature-256", format!("sha256={signature}")).body(body).send().await?;
    Ok((response.status().as_u16(), response.text().await?))
}

/// The result of a tool of `/mcp`.
async fn mcp(daemon: &Daemon, token: &str, tool: &str, arguments: Value) -> Result<String> {
    let about = json!({"name": "test", "version": "1"});
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about});
    let send = |session: Option<String>, body: Value| {
        let request = client().post(format!("{}/mcp", daemon.url)).bearer_auth(token).json(&body);
        let request = request.header("accept", "application/json, text/event-stream");
        match session {
            Some(session) => request.header("mcp-session-id", session).send(),
            None => request.send(),
        }
    };
    let call =
        |id: u32, method: &str, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let opened = send(None, call(1, "initialize", hello)).await?;
    let session = opened.headers().get("mcp-session-id").context("a session")?.to_str()?.to_owned();
    send(Some(session.clone()), json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await?;
    let params = json!({"name": tool, "arguments": arguments});
    Ok(send(Some(session), call(2, "tools/call", params)).await?.text().await?)
}

#[tokio::test]
async fn no_program_writes_into_a_session_of_people_by_any_way_in() -> Result<()> {
    let home = Home::new()
        .set("gateway.mcp", true)
        .env("BELAY_WEBHOOK_SECRET", SECRET)
        .env("BELAY_TOKEN", CLIENT)
        .env("BELAY_OPERATOR_TOKEN", OPERATOR);
    let daemon = home.start().await?;
    let mut socket = Socket::open_with(&daemon, CLIENT).await?;
    // All channels but http are off.
    let of_people = ["telegram:9", "telegram:-100:7", "Telegram:9", "matrix:!a:s", "Matrix:!a", "mail:ann@x.example:0"];
    let of_belay = ["stdin", "cli", "heartbeat", "system", "job:x"];
    for session in of_people.into_iter().chain(of_belay) {
        let message = |text: &str| json!({"session": session, "text": text});
        let rpc =
            |text: &str| json!({"sessionKey": session, "message": text, "idempotencyKey": format!("{session} {text}")});
        let chat = |field: &str, name: Value| json!({"model": "belay", field: name, "messages": [{"role": "user", "content": "hello"}]});
        let job = json!({"session": session, "task": "calculate 1+1", "title": "sum"});
        for (path, body) in [
            ("/api/v1/messages", message("hello")),
            ("/api/v1/messages", message("/sessions")),
            ("/api/v1/messages", message("/callback https://a.example")),
            ("/api/v1/agent", rpc("hello")),
            ("/v1/chat/completions", chat("conversation", json!(session))),
            ("/v1/chat/completions", chat("metadata", json!({"session": session}))),
            ("/v1/responses", json!({"model": "belay", "input": "hello", "conversation": session})),
            ("/v1/responses", json!({"model": "belay", "input": "hello", "metadata": {"session": session}})),
            ("/api/v1/jobs", job),
        ] {
            let (status, text) = post(&daemon, path, CLIENT, body).await?;
            assert!(status == 403 && text.contains(REFUSED), "{path} {session}: {status} {text}");
        }
        let messages = json!({"model": "belay", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]});
        for (path, body) in [
            ("/v1/chat/completions", chat("user", json!("ann"))),
            ("/v1/completions", json!({"model": "belay", "prompt": "hello"})),
            ("/v1/responses", json!({"model": "belay", "input": "hello"})),
            ("/v1/messages", messages),
        ] {
            let named = client().post(format!("{}{path}", daemon.url)).bearer_auth(CLIENT);
            let named = named.header("x-belay-session", session).json(&body).send().await?;
            let (status, text) = (named.status().as_u16(), named.text().await?);
            assert!(status == 403 && text.contains(REFUSED), "the header, {path} {session}: {status} {text}");
        }
        for text in ["hello", "/new"] {
            let (status, answer) = signed(&daemon, session, text).await?;
            assert!(status == 403 && answer.contains(REFUSED), "{session}: {status} {answer}");
        }
        for (method, params) in [
            ("agent", rpc("over a socket")),
            ("chat.send", rpc("over a socket too")),
            ("sessions.patch", json!({"sessionKey": session, "verbose": true})),
            ("sessions.reset", json!({"sessionKey": session})),
        ] {
            let refused = socket.call(method, params).await.expect_err(method).to_string();
            assert!(refused.contains("forbidden") && refused.contains(REFUSED), "{method} {session}: {refused}");
        }
        let answer = mcp(&daemon, CLIENT, "send_message", json!({"session": session, "text": "hello"})).await?;
        assert!(answer.contains(REFUSED), "{session}: {answer}");
    }
    let listed =
        client().get(format!("{}/api/v1/sessions", daemon.url)).bearer_auth(CLIENT).send().await?.text().await?;
    assert!(listed.contains("\"sessions\":[]"), "nothing was written: {listed}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_client_at_the_command_line_has_a_session_of_its_own_and_operators_write_everywhere() -> Result<()> {
    let home = Home::new().env("BELAY_TOKEN", CLIENT).env("BELAY_OPERATOR_TOKEN", OPERATOR);
    let daemon = home.start().await?;
    let elsewhere = Home::new().env("BELAY_TOKEN", CLIENT);
    for (home, args, session) in [
        (&elsewhere, vec!["send", "--url", &*daemon.url, "calculate 1+1"], "client"),
        (&elsewhere, vec!["agent", "--url", &*daemon.url, "calculate 1+2"], "client"),
        (&home, vec!["send", "calculate 1+3"], "cli"),
        (&home, vec!["agent", "--url", &*daemon.url, "calculate 1+4"], "cli"),
    ] {
        let output = home.run(&args, "").await?;
        assert!(output.status.success(), "{args:?}: {output:?}");
        let text = args.last().copied().unwrap_or_default();
        let messages = client().get(format!("{}/api/v1/sessions/{session}/messages", daemon.url)).bearer_auth(OPERATOR);
        assert!(messages.send().await?.text().await?.contains(text), "{args:?}");
    }
    let refused = elsewhere.run(&["send", "--url", &daemon.url, "--session", "cli", "hello"], "").await?;
    assert!(!refused.status.success() && refused.stderr.contains(REFUSED), "{refused:?}");
    let body = json!({"session": "telegram:9", "text": "calculate 2+2", "wait_ms": 20_000});
    let (status, answer) = post(&daemon, "/api/v1/messages", OPERATOR, body).await?;
    assert!(status == 200 && answer.contains('4'), "{status} {answer}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_signer_writes_to_a_conversation_of_clients_and_lists_nothing_of_it() -> Result<()> {
    let home = Home::new().env("BELAY_WEBHOOK_SECRET", SECRET).env("BELAY_TOKEN", CLIENT);
    let daemon = home.start().await?;
    let body = json!({"session": "garden", "text": "the tulips are private", "wait_ms": 20_000});
    assert_eq!(post(&daemon, "/api/v1/messages", CLIENT, body).await?.0, 200);
    let lists = json!({"session": "garden", "text": "/sessions"});
    assert!(post(&daemon, "/api/v1/messages", CLIENT, lists).await?.1.contains("tulips"), "its own");
    for text in ["/sessions", "/summarize"] {
        let (status, answer) = signed(&daemon, "garden", text).await?;
        assert!(status == 200 && answer.contains("gets no list") && !answer.contains("tulips"), "{status} {answer}");
    }
    assert_eq!(signed(&daemon, "garden", "water them").await?.0, 202);
    daemon.shut_down().await?;
    Ok(())
}
