#![allow(clippy::unwrap_used)]
use belay_cli::args::ClientArgs;
use belay_program::environment::Environment;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::*;

fn daemon_at(address: std::net::SocketAddr) -> Daemon {
    let args = ClientArgs { url: Some(format!("http://{address}")), json: false };
    Daemon(Client::find(&args, &Environment::default()).unwrap())
}

/// A daemon that gives these answers, one for each connection; `None`: the connection breaks off. Returns the bodies of the
/// requests.
async fn scripted(answers: Vec<Option<Json>>) -> (Daemon, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let daemon = daemon_at(listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let mut bodies = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            bodies.push(body(&mut stream).await);
            if let Some(answer) = answer {
                let answer = answer.to_string();
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    answer.len()
                );
                stream.write_all(format!("{head}{answer}").as_bytes()).await.unwrap();
                stream.shutdown().await.unwrap();
            }
        }
        bodies
    });
    (daemon, server)
}

async fn body(stream: &mut TcpStream) -> String {
    let (mut seen, mut buffer) = (String::new(), [0; 4096]);
    loop {
        let n = stream.read(&mut buffer).await.unwrap();
        assert!(n > 0, "the request broke off");
        seen.push_str(&String::from_utf8_lossy(&buffer[..n]));
        let Some((head, body)) = seen.split_once("\r\n\r\n") else { continue };
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if length.is_none_or(|length| body.len() >= length.trim().parse().unwrap()) {
            return body.to_owned();
        }
    }
}

/// Nobody listens there.
fn nobody() -> Daemon {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    daemon_at(free.local_addr().unwrap())
}

fn cancelled() -> CancellationToken {
    let stop = CancellationToken::new();
    stop.cancel();
    stop
}

#[test]
fn a_message_has_a_run_or_was_a_command() {
    let run = json!({"run_id": "r", "status": "queued", "frozen": "frozen by me"});
    assert_eq!(sent(&run), Sent::Run("r".into(), Some("frozen by me".into())));
    let command = json!({"status": "command", "command": "approve", "reply": "Approved.", "resumes": "r"});
    assert_eq!(sent(&command), Sent::Command("Approved.".into(), Some("r".into())));
}

#[tokio::test]
async fn a_cancelled_message_that_the_daemon_may_have_is_sent_until_its_run_is_known() {
    let (daemon, server) = scripted(vec![None, Some(json!({"run_id": "r"}))]).await;
    let message = json!({"text": "go", "idempotency_key": "k"});
    assert_eq!(daemon.send(&message, &cancelled()).await, Ok(Sent::Run("r".into(), None)));
    assert_eq!(server.await.unwrap(), [message.to_string(), message.to_string()]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_message_that_nobody_has_taken_is_not_sent_again() {
    let begin = Instant::now();
    let error = nobody().send(&json!({}), &cancelled()).await.unwrap_err();
    assert!(!error.may_have_arrived() && begin.elapsed() < AGAIN, "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_sent_again_for_a_minute() {
    let (daemon, stop) = (nobody(), CancellationToken::new());
    let begin = Instant::now();
    daemon.send(&json!({}), &stop).await.unwrap_err();
    assert!(begin.elapsed() >= AWAY_LIMIT);
    let begin = Instant::now();
    daemon.upload("a", b"a", &stop).await.unwrap_err();
    assert!(begin.elapsed() >= AWAY_LIMIT);
    daemon.upload("a", b"a", &cancelled()).await.unwrap_err();
    let begin = Instant::now();
    daemon.question("q").await.unwrap_err();
    assert!(begin.elapsed() >= AWAY_LIMIT);
}

#[tokio::test]
async fn a_lost_upload_or_question_is_repeated() {
    let (daemon, server) = scripted(vec![None, Some(json!({"file": "f"})), None, Some(json!({"id": "q"}))]).await;
    assert_eq!(daemon.upload("a.txt", b"bytes", &CancellationToken::new()).await, Ok("f".into()));
    assert_eq!(daemon.question("q").await, Ok(json!({"id": "q"})));
    assert_eq!(server.await.unwrap(), ["bytes", "bytes", "", ""]);
}

#[tokio::test]
async fn a_stop_that_the_daemon_does_not_answer_ends_at_its_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let daemon = daemon_at(listener.local_addr().unwrap());
    let deadline = Instant::now() + AGAIN;
    daemon.stop("r", deadline).await;
    assert!(Instant::now() >= deadline);
}
