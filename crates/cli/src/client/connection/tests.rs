#![allow(clippy::unwrap_used)]
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;

use super::*;

/// Answers one request with these bytes, and returns the request.
async fn serve_once<S: AsyncReadExt + AsyncWriteExt + Unpin>(mut stream: S, answer: String) -> String {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&seen).contains("\r\n\r\n") {
        let n = stream.read(&mut buffer).await.unwrap();
        assert!(n > 0, "the request broke off");
        seen.extend_from_slice(&buffer[..n]);
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    String::from_utf8_lossy(&seen).into_owned()
}

fn http(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn args(url: String) -> ClientArgs {
    ClientArgs { url: Some(url), json: false }
}

/// A daemon on loopback that answers once.
async fn over_tcp(answer: String, env: Environment) -> (Client, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { serve_once(listener.accept().await.unwrap().0, answer).await });
    (Client::find(&args(url), &env).unwrap(), server)
}

#[tokio::test]
async fn a_request_goes_over_the_control_socket_with_its_segments_encoded() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("control.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let server =
        tokio::spawn(async move { serve_once(listener.accept().await.unwrap().0, http("200 OK", r#"{"a":1}"#)).await });
    let client = Client::find(&args(format!("unix:{}", socket.display())), &Environment::default()).unwrap();
    let answer = client.get(&["api", "v1", "sessions", "a/b c?"], &[("limit", "5")]).await.unwrap();
    assert_eq!(answer, json!({"a": 1}));
    let asked = server.await.unwrap();
    assert!(asked.starts_with("GET /api/v1/sessions/a%2Fb%20c%3F?limit=5 HTTP/1.1"), "{asked}");
    assert!(!asked.to_lowercase().contains("authorization"), "the socket needs no token: {asked}");
}

#[tokio::test]
async fn over_http_the_operator_token_goes_before_the_other() {
    let env = Environment::from([("BELAY_TOKEN", "plain"), ("BELAY_OPERATOR_TOKEN", "root\n")]);
    let (client, server) = over_tcp(http("200 OK", "{}"), env).await;
    client.post(&["api", "v1", "stop"], Some(&json!({"x": 1})), Duration::ZERO).await.unwrap();
    let asked = server.await.unwrap();
    assert!(asked.starts_with("POST /api/v1/stop HTTP/1.1"), "{asked}");
    assert!(asked.to_lowercase().contains("authorization: bearer root\r\n"), "{asked}");
}

#[tokio::test]
async fn a_refusal_becomes_an_exit_code_that_says_what_to_do() {
    for (status, exit, next) in [
        ("401 Unauthorized", Exit::Failed, Some("put its token into BELAY_TOKEN, or BELAY_OPERATOR_TOKEN")),
        ("404 Not Found", Exit::Failed, None),
        ("422 Unprocessable Content", Exit::UnusableInput, None),
        ("429 Too Many Requests", Exit::Busy, Some("try again in 2 s")),
        ("503 Service Unavailable", Exit::Busy, Some("try again in 2 s")),
        ("500 Internal Server Error", Exit::Internal, None),
    ] {
        let body = r#"{"error":{"code":"c","message":"in plain words","retryable":true,"retry_after_ms":1500}}"#;
        let (client, server) = over_tcp(http(status, body), Environment::default()).await;
        let failure = client.get(&["x"], &[]).await.unwrap_err();
        assert_eq!(failure, Failure { exit, what: "in plain words".into(), next: next.map(str::to_owned) }, "{status}");
        server.await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_is_not_belay_is_out_of_reach() {
    for answer in [http("200 OK", "<html>"), http("404 Not Found", "nothing"), "SSH-2.0-OpenSSH\r\n".to_owned()] {
        let (client, server) = over_tcp(answer.clone(), Environment::default()).await;
        let failure = client.get(&["x"], &[]).await.unwrap_err();
        assert_eq!(failure.exit, Exit::OutOfReach, "{answer}");
        assert!(failure.next.is_some());
        server.await.unwrap();
    }
}

#[tokio::test]
async fn no_daemon_means_69_and_the_next_step() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().to_str().unwrap();
    let nobody = Client::find(&ClientArgs::default(), &Environment::from([("HOME", home)])).unwrap_err();
    assert_eq!(nobody.exit, Exit::OutOfReach);
    assert!(nobody.what.contains(home) && nobody.to_string().contains("belay run"), "{nobody}");

    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let client = Client::find(&args(format!("http://{closed}")), &Environment::default()).unwrap();
    let failure = client.get(&["x"], &[]).await.unwrap_err();
    assert_eq!((failure.exit, failure.next.as_deref()), (Exit::OutOfReach, Some(START_ONE)));
}

#[test]
fn an_address_that_cannot_be_one_is_refused() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    for url in ["", "127.0.0.1:8787", "ftp://h/", "http://", "localhost"] {
        let failure = Client::find(&args(url.into()), &Environment::default()).unwrap_err();
        assert_eq!(failure.exit, Exit::WrongUsage, "{url}");
    }
}
