//! The console: its files, and the sign-in of browsers.

use std::sync::Arc;

use belay_gateway::GatewayParts;
use futures_util::StreamExt as _;
use reqwest::header::{COOKIE, HeaderMap, ORIGIN, SET_COOKIE};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{FakeSignIns, Harness, NOW, read};
use crate::socket::ask;

const DAY_MS: i64 = 24 * 3600 * 1000;

/// A gateway with both tokens.
async fn locked() -> Harness {
    Harness::with(tokens).await
}

pub(crate) fn tokens(parts: &mut GatewayParts) {
    parts.secrets.token = Some("tee".to_owned().into());
    parts.secrets.operator_token = Some("oh".to_owned().into());
}

/// A request of a page of the console.
pub(crate) fn page(harness: &Harness, method: Method, path: &str) -> RequestBuilder {
    let origin = harness.url("").trim_end_matches('/').to_owned();
    harness.client.request(method, harness.url(path)).header(ORIGIN, origin).header("x-belay-csrf", "1")
}

/// Signs in. Returns the cookie as the browser sends it back.
pub(crate) async fn sign_in(harness: &Harness, proof: Value) -> Result<String, (u16, Value)> {
    let answer = page(harness, Method::POST, "/console/sign-in").json(&proof).send().await.unwrap();
    let (status, headers): (u16, HeaderMap) = (answer.status().as_u16(), answer.headers().clone());
    let body: Value = answer.json().await.unwrap();
    let set: Vec<_> = headers.get_all(SET_COOKIE).iter().map(|cookie| cookie.to_str().unwrap()).collect();
    match set.iter().rev().find(|cookie| !cookie.contains("Max-Age=0;")) {
        Some(cookie) => Ok(cookie.split(';').next().unwrap().to_owned()),
        None => Err((status, body)),
    }
}

async fn role(harness: &Harness, cookie: &str) -> (u16, Value) {
    read(page(harness, Method::GET, "/console/session").header(COOKIE, cookie)).await
}

#[tokio::test]
async fn files_come_with_a_policy_that_runs_nothing_else_and_are_not_sent_twice() {
    let harness = locked().await;
    let page = harness.client.get(harness.url("/")).send().await.unwrap();
    let (status, headers) = (page.status(), page.headers().clone());
    assert_eq!((status.as_u16(), headers["content-type"].to_str().unwrap()), (200, "text/html; charset=utf-8"));
    let policy = headers["content-security-policy"].to_str().unwrap();
    for part in ["default-src 'none'", "script-src 'self';", "style-src 'self';", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(headers["x-frame-options"], "DENY");
    let permissions = headers["permissions-policy"].to_str().unwrap();
    assert!(
        ["camera=()", "microphone=()", "geolocation=()"].iter().all(|none| permissions.contains(none)),
        "{permissions}"
    );
    assert_eq!(headers["x-content-type-options"], "nosniff");
    let text = page.text().await.unwrap();
    let script = text.split("src=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let again = harness.client.get(harness.url("/")).header("if-none-match", &headers["etag"]).send().await.unwrap();
    assert_eq!((again.status().as_u16(), again.bytes().await.unwrap().len()), (304, 0));
    let raw = reqwest::Client::builder().no_proxy().no_gzip().build().unwrap();
    let answer = raw.get(harness.url(&format!("/{script}"))).header("accept-encoding", "gzip").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "text/javascript; charset=utf-8");
    assert_eq!(
        (&answer.headers()["content-encoding"], &answer.headers()["vary"]),
        (&"gzip".parse().unwrap(), &"accept-encoding".parse().unwrap())
    );
    assert_eq!(answer.headers()["cache-control"], "public, max-age=31536000, immutable", "{script} has a version");
    let gzip = answer.bytes().await.unwrap();
    let plain = raw.get(harness.url(&format!("/{script}"))).send().await.unwrap();
    assert_eq!(plain.headers().get("content-encoding"), None);
    let plain = plain.bytes().await.unwrap();
    assert!(gzip.starts_with(&[0x1f, 0x8b]) && gzip.len() < plain.len());
    let version = script.split('/').nth(2).unwrap();
    for other in [script.replace(&format!("{version}/"), ""), script.replace(version, "0123456789abcdef")] {
        let answer = raw.get(harness.url(&format!("/{other}"))).send().await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["cache-control"]),
            (200, &"no-cache".parse().unwrap()),
            "{other}"
        );
        assert_eq!(answer.bytes().await.unwrap(), plain, "{other}");
    }
    for path in ["/console/assets/none.js", "/console/assets/../Cargo.toml", "/console/assets/%2e%2e/Cargo.toml"] {
        assert_eq!(harness.client.get(harness.url(path)).send().await.unwrap().status(), 404, "{path}");
    }
}

#[tokio::test]
async fn without_the_console_there_is_no_page_and_no_sign_in() {
    let harness = Harness::with(|parts| {
        tokens(parts);
        parts.config.console = false;
    })
    .await;
    for path in ["/", "/console/assets/app.js", "/console/session"] {
        assert_eq!(harness.client.get(harness.url(path)).send().await.unwrap().status(), 404, "{path}");
    }
    assert_eq!(sign_in(&harness, json!({"token": "oh"})).await.unwrap_err().0, 404);
}

#[tokio::test]
async fn a_browser_signs_in_by_a_token_and_is_who_the_token_says() {
    let harness = locked().await;
    assert_eq!(role(&harness, "x=y").await.0, 401);
    let wrong = sign_in(&harness, json!({"token": "no"})).await.unwrap_err();
    assert_eq!((wrong.0, &wrong.1["error"]["code"]), (401, &json!("unauthorized")));
    for proof in [json!({}), json!({"token": "oh", "link": "x"})] {
        assert_eq!(sign_in(&harness, proof).await.unwrap_err().0, 422);
    }
    for (token, expected) in [("tee", "client"), ("oh", "operator")] {
        let cookie = sign_in(&harness, json!({"token": token})).await.unwrap();
        let (status, session) = role(&harness, &cookie).await;
        assert_eq!((status, &session["role"], &session["cookie"]), (200, &json!(expected), &json!(true)));
        let settings = read(page(&harness, Method::GET, "/api/v1/settings").header(COOKIE, &cookie)).await.0;
        assert_eq!(settings, if expected == "operator" { 200 } else { 403 });
    }
    // Without tokens, a loopback address is enough.
    let open = Harness::open().await;
    let (status, session) = role(&open, &format!("belay_console_1={}", "a".repeat(64))).await;
    assert_eq!((status, &session["role"], &session["cookie"]), (200, &json!("operator"), &json!(false)));
    assert_eq!(sign_in(&open, json!({"token": "oh"})).await.unwrap_err().0, 409);
}

#[tokio::test]
async fn ten_wrong_tokens_lock_an_address_out_of_guessing() {
    let harness = locked().await;
    for _ in 0..10 {
        assert_eq!(sign_in(&harness, json!({"token": "no"})).await.unwrap_err().0, 401);
    }
    assert_eq!(sign_in(&harness, json!({"link": "no"})).await.unwrap_err().0, 429);
    assert!(sign_in(&harness, json!({"token": "oh"})).await.is_ok(), "the right one is admitted");
}

#[tokio::test]
async fn the_page_of_another_site_can_use_no_cookie() {
    let harness = Harness::with(|parts| {
        tokens(parts);
        parts.config.cors_origins = vec!["https://chat.example".to_owned()];
    })
    .await;
    let cookie = sign_in(&harness, json!({"token": "oh"})).await.unwrap();
    let stop = |harness: &Harness| harness.client.post(harness.url("/api/v1/stop")).header(COOKIE, cookie.clone());
    let own = harness.url("").trim_end_matches('/').to_owned();
    assert_eq!(
        read(stop(&harness).header("x-belay-csrf", "1")).await.0,
        200,
        "a program with a cookie sends no origin"
    );
    assert_eq!(read(stop(&harness).header(ORIGIN, &own)).await.0, 403, "a form cannot send the header");
    // A page of an allowed origin needs a token, as without a cookie.
    for (origin, status) in [("https://evil.example", 403), ("https://chat.example", 401), ("null", 403)] {
        let asked = stop(&harness).header("x-belay-csrf", "1").header(ORIGIN, origin);
        assert_eq!(read(asked).await.0, status, "{origin}");
    }
    for site in ["cross-site", "same-site"] {
        let read_runs = harness.client.get(harness.url("/api/v1/runs")).header(COOKIE, cookie.clone());
        assert_eq!(read(read_runs.header("sec-fetch-site", site)).await.0, 403, "{site}");
    }
    let foreign = harness.client.post(harness.url("/console/sign-in")).json(&json!({"token": "oh"}));
    let foreign = foreign.header(ORIGIN, "https://evil.example").header("x-belay-csrf", "1");
    assert_eq!(read(foreign).await.0, 403, "nor sign in");
}

#[tokio::test]
async fn a_cookie_is_worth_nothing_after_sign_out_and_its_streams_end() {
    let harness = locked().await;
    let (first, second) = (json!({"token": "oh"}), json!({"token": "oh"}));
    let first = sign_in(&harness, first).await.unwrap();
    let second = sign_in(&harness, second).await.unwrap();
    let stream = page(&harness, Method::GET, "/api/v1/events").header(COOKIE, &first).send().await.unwrap();
    let mut stream = stream.bytes_stream();
    assert!(String::from_utf8_lossy(&stream.next().await.unwrap().unwrap()).contains("begin"));
    let out = page(&harness, Method::DELETE, "/console/session").header(COOKIE, &first).send().await.unwrap();
    assert!(out.headers().get_all(SET_COOKIE).iter().all(|it| it.to_str().unwrap().contains("Max-Age=0")));
    assert_eq!(out.json::<Value>().await.unwrap(), json!({"ended": 1}));
    assert!(stream.next().await.is_none(), "its stream has ended");
    assert_eq!((role(&harness, &first).await.0, role(&harness, &second).await.0), (401, 200));
}

#[tokio::test]
async fn operators_see_and_end_every_sign_in_and_clients_their_own() {
    let harness = locked().await;
    let client = sign_in(&harness, json!({"token": "tee"})).await.unwrap();
    let operator = sign_in(&harness, json!({"token": "oh"})).await.unwrap();
    let list = async |cookie: &str| {
        let listed = read(page(&harness, Method::GET, "/console/sessions").header(COOKIE, cookie)).await.1;
        listed["sessions"].as_array().unwrap().clone()
    };
    let (of_client, of_operator) = (list(&client).await, list(&operator).await);
    assert_eq!((of_client.len(), of_operator.len()), (1, 2));
    assert_eq!((&of_operator[0]["current"], &of_operator[0]["role"]), (&json!(true), &json!("operator")));
    let id = |row: &Value| row["id"].as_str().unwrap().to_owned();
    let end = async |cookie: &str, id: &str| {
        read(page(&harness, Method::DELETE, &format!("/console/sessions/{id}")).header(COOKIE, cookie)).await.0
    };
    assert_eq!(end(&client, &id(&of_operator[0])).await, 404);
    assert_eq!(end(&operator, &id(&of_client[0])).await, 200);
    assert_eq!(role(&harness, &client).await.0, 401);
    let all = page(&harness, Method::DELETE, "/console/sessions").header(COOKIE, &operator);
    assert_eq!(read(all).await, (200, json!({"ended": 1})));
    assert_eq!(role(&harness, &operator).await.0, 401);
}

#[tokio::test]
async fn a_sign_in_ends_a_week_after_its_last_use_and_after_a_month_at_most() {
    let harness = locked().await;
    let cookie = sign_in(&harness, json!({"token": "oh"})).await.unwrap();
    for day in [6, 12, 18, 24, 29] {
        harness.clock.0.store(NOW + day * DAY_MS, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(role(&harness, &cookie).await.0, 200, "day {day}");
    }
    harness.clock.0.store(NOW + 30 * DAY_MS, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(role(&harness, &cookie).await.0, 401);
    let unused = sign_in(&harness, json!({"token": "oh"})).await.unwrap();
    harness.clock.0.store(NOW + 37 * DAY_MS, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(role(&harness, &unused).await.0, 401);
}

#[tokio::test]
async fn a_changed_token_ends_the_sign_ins_that_came_before() {
    let kept = Arc::new(FakeSignIns::default());
    let with = async |operator: &str| {
        Harness::with(|parts| {
            tokens(parts);
            parts.sign_ins = kept.clone();
            parts.secrets.operator_token = Some(operator.to_owned().into());
        })
        .await
    };
    let cookie = sign_in(&with("oh").await, json!({"token": "oh"})).await.unwrap();
    // Each of these gateways has a port of its own, and so a name of its own for the cookie.
    let secret = cookie.split('=').nth(1).unwrap();
    let role_at = async |harness: Harness| {
        role(&harness, &format!("belay_console_{}={secret}", harness.addr.unwrap().port())).await.0
    };
    assert_eq!(role_at(with("oh").await).await, 200, "it survives a restart");
    assert_eq!(role_at(with("another").await).await, 401);
}

#[tokio::test]
async fn a_link_is_made_over_the_control_socket_only() {
    let harness = locked().await;
    let make = harness.client.post(harness.url("/api/v1/console/links")).bearer_auth("oh");
    assert_eq!(read(make).await.0, 403);
    assert_eq!(sign_in(&harness, json!({"link": "a".repeat(64)})).await.unwrap_err().0, 401);
}

#[tokio::test]
async fn a_link_signs_one_browser_in_as_an_operator() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    let harness = Harness::with(|parts| {
        parts.secrets.token = Some("tee".to_owned().into());
        parts.control_socket = Some(path.clone());
    })
    .await;
    let request =
        "POST /api/v1/console/links HTTP/1.1\r\nhost: belay\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let made = ask(&path, request).await;
    let made: Value = serde_json::from_str(made.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert!(made["expires_at"].is_string(), "{made}");
    let (base, link) = made["url"].as_str().unwrap().split_once("#link=").unwrap();
    assert_eq!(base, harness.url("/"));
    let cookie = sign_in(&harness, json!({"link": link})).await.unwrap();
    assert_eq!(role(&harness, &cookie).await.1["role"], "operator");
    assert_eq!(sign_in(&harness, json!({"link": link})).await.unwrap_err().0, 401, "once");
    let stop = page(&harness, Method::POST, "/api/v1/stop").header(COOKIE, &cookie);
    assert_eq!(read(stop).await.0, 200);
    assert_eq!(&*harness.agent.seen.lock().unwrap()[0].principal.id, "console-link");
    let more = page(&harness, Method::POST, "/api/v1/console/links").header(COOKIE, &cookie);
    assert_eq!(read(more).await.0, 403, "a browser cannot renew its own permission");
    let elsewhere = page(&harness, Method::POST, "/api/v1/backups").header(COOKIE, &cookie);
    assert_eq!(read(elsewhere.json(&json!({"to": "/tmp/x", "with_key": true}))).await.0, 403, "nor write files");
    assert_eq!(role(&harness, &cookie.replace("belay", "__Host-belay")).await.0, 401, "nor pass as one over TLS");
    let made = ask(&path, request).await;
    let link = made.split("#link=").nth(1).unwrap().split('"').next().unwrap().to_owned();
    read(page(&harness, Method::DELETE, "/console/sessions").header(COOKIE, &cookie)).await;
    assert_eq!(
        sign_in(&harness, json!({"link": link})).await.unwrap_err().0,
        401,
        "sign out everywhere withdraws links"
    );
}

#[tokio::test]
async fn streams_end_with_a_sign_in_that_another_browser_ends_or_that_expires() {
    let harness = locked().await;
    let open = async |cookie: &str| {
        let stream = page(&harness, Method::GET, "/api/v1/events").header(COOKIE, cookie).send().await.unwrap();
        let mut stream = stream.bytes_stream();
        assert!(String::from_utf8_lossy(&stream.next().await.unwrap().unwrap()).contains("begin"));
        stream
    };
    let [first, second] = [json!({"token": "oh"}), json!({"token": "tee"})];
    let (first, second) = (sign_in(&harness, first).await.unwrap(), sign_in(&harness, second).await.unwrap());
    let mut ended = open(&second).await;
    let all = page(&harness, Method::DELETE, "/console/sessions").header(COOKIE, &first);
    assert_eq!(read(all).await.1, json!({"ended": 2}));
    assert!(ended.next().await.is_none(), "signed out by an operator");

    let cookie = sign_in(&harness, json!({"token": "oh"})).await.unwrap();
    let by = |ms: i64| harness.clock.0.fetch_add(ms, std::sync::atomic::Ordering::Relaxed);
    by(7 * DAY_MS - 50);
    // Its use moves the end, and is stored; nothing uses it after that.
    let mut expiring = open(&cookie).await;
    by(7 * DAY_MS + 1);
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(901)).await;
    tokio::time::resume();
    assert!(expiring.next().await.is_none(), "expired");
}

#[tokio::test]
async fn a_browser_has_one_sign_in_and_a_websocket_takes_no_cookie() {
    let harness = locked().await;
    let first = sign_in(&harness, json!({"token": "tee"})).await.unwrap();
    let again = page(&harness, Method::POST, "/console/sign-in").header(COOKIE, &first).json(&json!({"token": "oh"}));
    assert_eq!(read(again).await.0, 200);
    assert_eq!(role(&harness, &first).await.0, 401, "the one before is over");
    let cookie = sign_in(&harness, json!({"token": "oh"})).await.unwrap();
    let socket = page(&harness, Method::GET, "/ws").header(COOKIE, &cookie).header("connection", "upgrade");
    let socket = socket.header("upgrade", "websocket").header("sec-websocket-version", "13");
    let socket = socket.header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==").send().await.unwrap();
    assert_eq!(socket.status(), 101, "it may show a token in its first message");
    let mut socket = socket.upgrade().await.unwrap();
    let connect = r#"{"type":"req","id":"1","method":"connect","params":{"minProtocol":1,"maxProtocol":4,"client":{"id":"t","version":"1"}}}"#;
    let answer = exchange(&mut socket, connect).await;
    assert!(answer.contains("a token is needed"), "{answer}");
}

/// Sends one short masked text frame, and reads until there is an answer to it. RFC 6455, section 5.2.
async fn exchange(socket: &mut reqwest::Upgraded, text: &str) -> String {
    let mut frame = vec![0x81, 0x80 | u8::try_from(text.len()).unwrap(), 0, 0, 0, 0];
    frame.extend(text.as_bytes());
    socket.write_all(&frame).await.unwrap();
    let (mut read, mut bytes) = (String::new(), [0; 4096]);
    while !read.contains("\"res\"") {
        let count = socket.read(&mut bytes).await.unwrap();
        assert!(count > 0, "{read}");
        read.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    read
}
