//! Sends requests that change something.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use belay_protocol::{Ask, Tool, ToolFailure};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::support::{Names, Server};
use crate::testing::{context, install_tls};
use crate::web::SendRequest;
use crate::web::config::WebConfig;

type Seen = Arc<Mutex<Vec<String>>>;

/// Answers with what the path names, and keeps each request as one line.
async fn answer(State(seen): State<Seen>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let header = |name| headers.get(name).map_or("-", |value| value.to_str().unwrap());
    let (key, kind) = (header("x-key"), header("content-type"));
    seen.lock().unwrap().push(format!("{method} {} {key} {kind} {}", uri.path(), String::from_utf8_lossy(&body)));
    match uri.path() {
        "/items" => (StatusCode::CREATED, [("location", "/items/7")], "made").into_response(),
        "/gone" => (StatusCode::GONE, "no longer").into_response(),
        "/moved" => (StatusCode::TEMPORARY_REDIRECT, [("location", "/items")]).into_response(),
        "/bytes" => ([("content-type", "application/octet-stream")], vec![0u8; 9]).into_response(),
        _ => StatusCode::NO_CONTENT.into_response(),
    }
}

async fn server() -> (Server, Seen) {
    let seen = Seen::default();
    (Server::start(Router::new().fallback(any(answer)).with_state(seen.clone())).await, seen)
}

fn tool(allowed: &str) -> SendRequest {
    install_tls();
    let config = WebConfig {
        allow_private: vec![allowed.to_owned()],
        send_methods: ["POST", "DELETE"].map(str::to_owned).to_vec(),
        ..WebConfig::default()
    };
    SendRequest::new(&config, Names::of(&[]), &[]).unwrap().unwrap()
}

async fn send(tool: &SendRequest, arguments: Value) -> Result<String, ToolFailure> {
    let reply = tool.call(arguments.as_object().unwrap(), &context("s")).await?;
    assert!(reply.untrusted, "every answer is of the outside");
    Ok(reply.text)
}

fn failure(seen: Result<String, ToolFailure>) -> String {
    match seen {
        Err(ToolFailure::Failed(text)) => text,
        other => panic!("expected a failure, got {other:?}"),
    }
}

#[tokio::test]
async fn a_request_arrives_once_as_it_was_shown() {
    let (server, seen) = server().await;
    let at = server.address;
    let tool = tool(&at.to_string());
    let made = json!({"method": "POST", "url": format!("http://{at}/items"), "headers": {"X-Key": "k"}, "body": "{}"});
    let answer = send(&tool, made).await.unwrap();
    let head = format!("POST http://{at}/items\nStatus: 201 Created\nLocation: /items/7\n");
    assert_eq!(answer, format!("{head}Type: text/plain\n\nmade"));
    let removed = json!({"method": "DELETE", "url": format!("http://{at}/items/7")});
    assert!(send(&tool, removed).await.unwrap().ends_with("Status: 204 No Content\nNo body."));
    let said = json!({"method": "POST", "url": format!("http://{at}/bytes"), "body": "it's"});
    assert!(send(&tool, said).await.unwrap().ends_with("The body is no text (9 bytes), and is not shown."));
    let moved =
        json!({"method": "POST", "url": format!("http://{at}/moved"), "headers": {"Content-Type": "a/b"}, "body": "x"});
    assert!(send(&tool, moved).await.unwrap().contains("Status: 307 Temporary Redirect\nLocation: /items\n"));
    let gone = json!({"method": "DELETE", "url": format!("http://{at}/gone")});
    let text = failure(send(&tool, gone).await);
    assert!(text.contains("Status: 410 Gone") && text.contains("no longer"), "{text}");
    assert_eq!(
        *seen.lock().unwrap(),
        [
            "POST /items k application/json {}",
            "DELETE /items/7 - - ",
            "POST /bytes - text/plain; charset=utf-8 it's",
            "POST /moved - a/b x",
            "DELETE /gone - - ",
        ]
    );
}

#[tokio::test]
async fn a_person_is_asked_each_time_about_all_of_it() {
    let tool = tool("127.0.0.1:1");
    assert_eq!((tool.spec().approval, tool.spec().idempotent), (Ask::Always, false));
    assert_eq!(tool.spec().schema["properties"]["method"]["enum"], json!(["POST", "DELETE"]));
    let call = json!({"method": "POST", "url": "http://127.0.0.1:1/a", "headers": {"x": "y"}, "body": "[1]"});
    let preview = tool.preview(call.as_object().unwrap(), &"s".into()).await.unwrap();
    assert_eq!(preview.summary, "POST http://127.0.0.1:1/a");
    let bound = [("request", "POST http://127.0.0.1:1/a"), ("content type", "application/json")];
    assert_eq!(preview.bound, bound.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!((preview.shows, preview.covers), (&["method", "url"][..], None));
}

#[tokio::test]
async fn what_may_not_be_sent_is_refused_before_anybody_is_asked() {
    let tool = tool("127.0.0.1:1");
    let url = "http://127.0.0.1:1/";
    for (call, expected) in [
        (json!({"method": "GET", "url": url}), "must be one of: POST, DELETE"),
        (json!({"method": "post", "url": url}), "must be one of"),
        (json!({"method": "POST", "url": "http://127.0.0.1:2/"}), "Port 2 is not fetched from"),
        (json!({"method": "POST", "url": "file:///etc/hostname"}), "http"),
        (json!({"method": "POST", "url": url, "headers": {"Host": "b"}}), "The header Host: it cannot be chosen"),
        (json!({"method": "POST", "url": url, "headers": {"Transfer-Encoding": "b"}}), "cannot be chosen"),
        (json!({"method": "POST", "url": url, "headers": {"X-HTTP-Method-Override": "DELETE"}}), "cannot be chosen"),
        (json!({"method": "POST", "url": url, "headers": {"a b": "c"}}), "The header a b: no name of a header"),
        (json!({"method": "POST", "url": url, "headers": {"A": "1", "a": "2"}}), "twice"),
        (json!({"method": "POST", "url": url, "headers": {"a": "secret\r\nb: c"}}), "visible ASCII"),
        (json!({"method": "POST", "url": url, "headers": {"a": "x".repeat(5000)}}), "longer than 4096 bytes"),
    ] {
        match tool.preview(call.as_object().unwrap(), &"s".into()).await {
            Err(ToolFailure::Failed(text)) => assert!(text.contains(expected) && !text.contains("secret"), "{text}"),
            other => panic!("{call}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_failure_says_whether_the_server_may_have_acted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let hang_up = async {
        let (mut connection, _) = listener.accept().await.unwrap();
        let _ = connection.read(&mut [0; 4096]).await.unwrap();
    };
    let tool = tool(&at.to_string());
    let call = || json!({"method": "POST", "url": format!("http://{at}/"), "body": "x"});
    let (sent, ()) = tokio::join!(send(&tool, call()), hang_up);
    let text = failure(sent);
    assert!(text.ends_with("The server may have carried the request out: look before you send it again."), "{text}");
    drop(listener);
    let text = failure(send(&tool, call()).await);
    assert!(text.contains("cannot be connected to") && !text.contains("may have"), "{text}");
}
