//! Callbacks: ends of runs and notices are posted to the address of a client, signed and repeated, and to no other place.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use belay_tests::daemon::{Daemon, Home};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::time::sleep;

const SECRET: &str = "the secret of both sides";

/// How long a test waits for a callback.
const PATIENCE: Duration = Duration::from_secs(300);

/// A program that receives callbacks on a loopback address.
struct Receiver {
    address: SocketAddr,
    got: Arc<Mutex<Vec<Received>>>,
}

#[derive(Clone)]
struct Shared {
    got: Arc<Mutex<Vec<Received>>>,
    answers: Arc<Mutex<Vec<Answer>>>,
}

/// A request that arrived.
#[derive(Clone, Debug)]
struct Received {
    genuine: bool,
    object: Value,
}

/// The answers to the first requests; the others get 200.
#[derive(Clone, Debug)]
enum Answer {
    Status(u16),
    Redirect(String),
    Never,
}

impl Receiver {
    async fn start(answers: Vec<Answer>) -> Result<Self> {
        let got = Arc::new(Mutex::new(Vec::new()));
        let shared = Shared { got: got.clone(), answers: Arc::new(Mutex::new(answers)) };
        let router = Router::new().route("/ended", post(receive)).with_state(shared);
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, got })
    }

    fn url(&self) -> String {
        format!("http://{}/ended?token=s3cret", self.address)
    }

    fn got(&self) -> Vec<Received> {
        self.got.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until this many requests have arrived.
    async fn until(&self, requests: usize) -> Result<Vec<Received>> {
        let arrived = async {
            while self.got().len() < requests {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, arrived).await;
        waited.with_context(|| format!("{requests} callbacks, but there are {:?}", self.got()))?;
        Ok(self.got())
    }
}

async fn receive(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let signature = headers.get("x-hub-signature-256").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("any length fits");
    mac.update(&body);
    let expected: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let genuine = signature == format!("sha256={expected}");
    let object = serde_json::from_slice(&body).unwrap_or_default();
    shared.got.lock().unwrap_or_else(PoisonError::into_inner).push(Received { genuine, object });
    let answer = {
        let mut answers = shared.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.is_empty() { Answer::Status(200) } else { answers.remove(0) }
    };
    match answer {
        Answer::Status(status) => StatusCode::from_u16(status).expect("a status").into_response(),
        Answer::Redirect(to) => (StatusCode::FOUND, [("location", to)]).into_response(),
        Answer::Never => std::future::pending().await,
    }
}

fn home(receivers: &[&Receiver]) -> Home {
    let open: Vec<String> = receivers.iter().map(|receiver| receiver.address.to_string()).collect();
    Home::new().env("BELAY_WEBHOOK_SECRET", SECRET).set("tools.web.allow_private", json!(open))
}

async fn said(daemon: &Daemon, session: &str, text: &str, callback: &str) -> Result<Value> {
    let body = json!({"session": session, "text": text, "callback_url": callback, "wait_ms": 10_000});
    let (status, run) = daemon.post(body).await?;
    anyhow::ensure!(status == 200, "{status}: {run}");
    Ok(run)
}

#[tokio::test]
async fn the_end_of_a_run_is_posted_signed_and_again_until_it_is_taken() -> Result<()> {
    let receiver = Receiver::start(vec![Answer::Status(500), Answer::Redirect("http://127.0.0.1:1/".into())]).await?;
    let home = home(&[&receiver]);
    let daemon = home.start().await?;
    let run = said(&daemon, "shop", "calculate 6*7", &receiver.url()).await?;
    let got = receiver.until(3).await?;
    assert!(got.iter().all(|request| request.genuine), "{got:?}");
    let object = &got[2].object;
    assert_eq!((&object["type"], &object["session"]), (&json!("run_ended"), &json!("shop")), "{object}");
    for field in ["run_id", "status", "reply", "usage"] {
        assert_eq!(object[field], run[field], "{field}: {object}");
    }
    let ids: Vec<&Value> = got.iter().map(|request| &request.object["delivery_id"]).collect();
    assert!(ids[0].is_string() && ids.iter().all(|id| *id == ids[0]), "one delivery: {ids:?}");
    assert!(got[0].object["sent_at"].as_i64() < got[2].object["sent_at"].as_i64(), "{got:?}");
    let output = daemon.shut_down().await?;
    assert!(!format!("{}{}", output.stdout, output.stderr).contains("s3cret"), "an address may hold a secret");
    Ok(())
}

#[tokio::test]
async fn a_receiver_that_hangs_delays_no_other_session_and_a_kill_loses_nothing() -> Result<()> {
    let (hanging, prompt) = (Receiver::start(vec![Answer::Never; 4]).await?, Receiver::start(vec![]).await?);
    let home = home(&[&hanging, &prompt]);
    let daemon = home.start().await?;
    let run = said(&daemon, "one", "calculate 1+1", &hanging.url()).await?;
    hanging.until(1).await?;
    said(&daemon, "two", "calculate 2+2", &prompt.url()).await?;
    assert_eq!(prompt.until(1).await?[0].object["session"], "two");
    // A session has one delivery at a time, so the first one is noted as taken when the second one arrives.
    said(&daemon, "two", "calculate 3+3", &prompt.url()).await?;
    let taken = prompt.until(2).await?[0].object["delivery_id"].clone();
    daemon.kill().await?;

    let daemon = home.start().await?;
    let got = hanging.until(2).await?;
    assert_eq!(got[1].object["run_id"], run["run_id"], "an attempt that a kill broke off is repeated");
    assert_eq!(got[1].object["delivery_id"], got[0].object["delivery_id"]);
    daemon.shut_down().await?;
    let again = prompt.got().into_iter().filter(|request| request.object["delivery_id"] == taken).count();
    assert_eq!(again, 1, "and nothing that was taken");
    Ok(())
}

#[tokio::test]
async fn a_session_has_an_address_of_its_own_which_also_gets_notices_of_jobs() -> Result<()> {
    let receiver = Receiver::start(vec![]).await?;
    let home = home(&[&receiver]);
    let daemon = home.start().await?;
    let set = home.run(&["send", "--session", "shop", &format!("/callback {}", receiver.url())], "").await?;
    assert!(set.stdout.contains(&format!("Callback: http://{}.", receiver.address)), "{set:?}");
    daemon.ask("shop", "calculate 6*7").await?;
    assert!(receiver.until(1).await?[0].object["reply"].as_str().unwrap_or_default().contains("42"));
    daemon.ask("other", "calculate 6*7").await?;
    home.run(&["send", "--session", "shop", "/job calculate 5*5"], "").await?;
    let got = receiver.until(2).await?;
    let notice = &got[1].object;
    assert_eq!((&notice["type"], &notice["session"]), (&json!("notice"), &json!("shop")), "{notice}");
    assert!(notice["notice"].as_str().unwrap_or_default().contains("25"), "{notice}");
    let reset = home.run(&["send", "--session", "shop", "/callback default"], "").await?;
    assert!(reset.stdout.contains("Callback: none."), "{reset:?}");
    daemon.ask("shop", "calculate 1+1").await?;
    daemon.shut_down().await?;
    assert_eq!(receiver.got().len(), 2, "neither the other session nor a later run: {:?}", receiver.got());
    Ok(())
}

#[tokio::test]
async fn an_address_that_cannot_be_used_is_refused_before_the_message_is_accepted() -> Result<()> {
    let receiver = Receiver::start(vec![]).await?;
    let open = home(&[&receiver]);
    let daemon = open.start().await?;
    for (url, why) in [
        ("http://127.0.0.1:8080/x", "loopback"),
        ("http://[::ffff:10.0.0.1]/", "private"),
        ("http://metadata.internal/", "internal"),
        ("ftp://example.com/", "http and https"),
        ("https://user:pw@example.com/", "user or password"),
        ("nowhere", "no address"),
        (&format!("https://example.com/{}", "a".repeat(2048)), "at most 2048 bytes"),
    ] {
        let body = json!({"session": "s", "text": "hi", "callback_url": url});
        let (status, refused) = daemon.post(body).await?;
        let message = refused["error"]["message"].as_str().unwrap_or_default().to_lowercase();
        assert_eq!(status, 422, "{url}: {refused}");
        assert!(message.contains("callback_url") && message.contains(why), "{url}: {refused}");
    }
    let (_, runs) = daemon.request("GET", "/api/v1/runs", None).await?;
    assert_eq!(runs["runs"], json!([]));
    daemon.shut_down().await?;

    let unsigned = Home::new();
    let daemon = unsigned.start().await?;
    let (status, refused) =
        daemon.post(json!({"session": "s", "text": "hi", "callback_url": "https://example.com/"})).await?;
    assert!(status == 422 && refused.to_string().contains("gateway.webhook_secret_env"), "{status} {refused}");
    daemon.shut_down().await?;
    Ok(())
}
