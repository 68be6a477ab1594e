//! Binding: addresses, the control socket, and who may use it.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use belay_gateway::{Gateway, GatewayError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::harness::{Harness, parts};

pub(crate) async fn ask(path: &std::path::Path, request: &str) -> String {
    let mut stream = UnixStream::connect(path).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

const SHUTDOWN: &str =
    "POST /api/v1/shutdown HTTP/1.1\r\nhost: belay\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn our_own_user_is_the_operator_on_the_control_socket_whatever_tokens_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap()); // left behind by a dead daemon
    let harness = Harness::with(|parts| {
        parts.secrets.token = Some("client".to_owned().into());
        parts.config.listen = "off".into();
        parts.control_socket = Some(path.clone());
    })
    .await;
    assert_eq!(harness.addr, None);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(ask(&path, SHUTDOWN).await.starts_with("HTTP/1.1 200"));
    assert_eq!(&*harness.agent.seen.lock().unwrap()[0].principal.id, "control-socket");
    harness.stop.cancel();
    harness.served.await.unwrap().unwrap();
    assert!(!path.exists(), "the file goes with the socket");
}

#[tokio::test]
async fn idle_connections_without_a_request_shut_nobody_out_and_those_with_one_stay() {
    use tokio::net::TcpStream;
    let harness = Harness::with(|parts| parts.config.max_connections = 4).await;
    let run = harness.hold("s").await;
    let url = harness.url(&format!("/api/v1/runs/{run}/events"));
    let mut stream = crate::harness::fresh_client().get(url).send().await.unwrap();
    assert!(stream.chunk().await.unwrap().is_some());
    let addr = harness.addr.unwrap();
    let mut idle = Vec::new();
    for begin in ["", "GET /livez HTT", ""] {
        let mut connection = TcpStream::connect(addr).await.unwrap();
        connection.write_all(begin.as_bytes()).await.unwrap();
        idle.push(connection);
    }
    // More probes than there are places; each closes at most one idle connection, and its own is the newest.
    for probe in 0..2 {
        assert_eq!(
            crate::harness::fresh_client().get(harness.url("/livez")).send().await.unwrap().status(),
            200,
            "{probe}"
        );
    }
    // The youngest is still there: nobody waited until the idle ones were given up for their silence.
    let mut youngest = idle.pop().unwrap();
    youngest.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    youngest.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for probe in 0..9 {
        assert_eq!(
            crate::harness::fresh_client().get(harness.url("/readyz")).send().await.unwrap().status(),
            200,
            "{probe}"
        );
    }
    // The connection of the stream has had its request before all of them, and is served still.
    harness.agent.finish(run, belay_protocol::StopReason::FinalText, "done");
    let mut rest = String::new();
    while let Some(chunk) = stream.chunk().await.unwrap() {
        rest.push_str(&String::from_utf8_lossy(&chunk));
    }
    assert!(rest.contains("run_ended"), "{rest}");
}

#[tokio::test]
async fn slow_bodies_of_strangers_shut_nobody_out_and_one_of_a_proven_caller_stays() {
    use tokio::net::TcpStream;
    let harness = Harness::with(|parts| {
        parts.config.max_connections = 4;
        parts.secrets.token = Some("tee".to_owned().into());
        parts.secrets.webhook_secret = Some("sign".to_owned().into());
    })
    .await;
    let addr = harness.addr.unwrap();
    let rest = "\"session\":\"s\",\"text\":\"hello\"}";
    let slow = async |head: String| {
        let mut connection = TcpStream::connect(addr).await.unwrap();
        let head = format!(
            "POST {head}\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{{",
            rest.len() + 1
        );
        connection.write_all(head.as_bytes()).await.unwrap();
        connection
    };
    let mut proven = slow("/api/v1/messages HTTP/1.1\r\nauthorization: Bearer tee".into()).await;
    let stranger = format!("/webhook HTTP/1.1\r\nx-hub-signature-256: sha256={}", "0".repeat(64));
    let mut strangers = Vec::new();
    for _ in 0..8 {
        strangers.push(slow(stranger.clone()).await);
    }
    for probe in 0..4 {
        let answer = crate::harness::fresh_client().get(harness.url("/livez")).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{probe}");
    }
    // It had to go for the others; before, it was answered `slow_body` after 30 s.
    let mut answer = String::new();
    let _closed_or_reset = strangers[0].read_to_string(&mut answer).await;
    assert_eq!(answer, "");
    proven.write_all(rest.as_bytes()).await.unwrap();
    proven.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
}

async fn bind_error(change: impl FnOnce(&mut belay_gateway::GatewayParts)) -> GatewayError {
    let harness = Harness::open().await;
    let (_ready, seen) = tokio::sync::watch::channel(true);
    let mut parts = parts(&harness.store, &harness.clock, seen);
    change(&mut parts);
    match Gateway::bind(parts).await {
        Ok(_) => panic!("it was bound"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn what_cannot_be_bound_says_why() {
    for open in ["0.0.0.0:0", "[::]:0"] {
        let error = bind_error(|parts| parts.config.listen = open.into()).await;
        assert!(matches!(error, GatewayError::Insecure(_)), "{open}: {error}");
    }
    let empty = bind_error(|parts| {
        parts.config.listen = "0.0.0.0:0".into();
        parts.secrets.token = Some(String::new().into());
    });
    assert!(matches!(empty.await, GatewayError::Insecure(_)), "an empty token is none");
    let harness = Harness::open().await;
    let taken = bind_error(|parts| parts.config.listen = harness.addr.unwrap().to_string()).await;
    assert!(taken.to_string().contains("is another Belay running?"), "{taken}");
    let wrong = bind_error(|parts| parts.config.max_connections = 0).await;
    assert!(matches!(wrong, GatewayError::Config(_)), "{wrong}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.txt");
    std::fs::write(&file, "precious").unwrap();
    let error = bind_error(|parts| parts.control_socket = Some(file.clone())).await;
    assert!(matches!(error, GatewayError::Socket { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious", "what is not a socket stays");
    let alive = folder.path().join("alive.sock");
    let _other = std::os::unix::net::UnixListener::bind(&alive).unwrap();
    let error = bind_error(|parts| parts.control_socket = Some(alive)).await;
    assert!(matches!(error, GatewayError::SocketInUse(_)), "{error}");
}

#[tokio::test]
async fn a_token_opens_a_public_address() {
    let harness = Harness::with(|parts| {
        parts.config.listen = "0.0.0.0:0".into();
        parts.secrets.operator_token = Some("operator".to_owned().into());
    })
    .await;
    let port = harness.addr.unwrap().port();
    let request = harness.client.get(format!("http://127.0.0.1:{port}/api/v1/runs"));
    assert_eq!(request.try_clone().unwrap().send().await.unwrap().status().as_u16(), 401);
    assert_eq!(request.bearer_auth("operator").send().await.unwrap().status().as_u16(), 200);
    assert_eq!(Arc::strong_count(&harness.agent), 2, "nothing was asked of the agent");
}
