//! Bad input: each request has its status and its code, and nothing panics.

use proptest::prelude::*;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{Harness, PATIENCE};

type Headers = &'static [(&'static str, &'static str)];

const JSON: Headers = &[("content-type", "application/json")];
const CLIENT: Headers = &[("content-type", "application/json"), ("authorization", "Bearer client")];
const OPERATOR: Headers = &[("content-type", "application/json"), ("authorization", "Bearer operator")];
const NONE: Headers = &[];
const RUN: &str = "0190b3a0-0000-7000-8000-000000000000";

/// A request line, its headers and body, the status and the code of the answer (empty: no error).
type Row = (String, Headers, Vec<u8>, u16, &'static str);

fn row(line: &str, headers: Headers, body: impl AsRef<[u8]>, status: u16, code: &'static str) -> Row {
    (line.replace("{run}", RUN), headers, body.as_ref().to_vec(), status, code)
}

/// Without any token: loopback is the operator.
fn open_rows() -> Vec<Row> {
    let m = "POST /api/v1/messages";
    let c = "POST /v1/chat/completions";
    let long_text = json!({"session": "s", "text": "x".repeat(100_001)}).to_string();
    let long_session = json!({"session": "x".repeat(257), "text": "hi"}).to_string();
    let long_key = json!({"session": "s", "text": "hi", "idempotency_key": "x".repeat(257)}).to_string();
    let too_big = "x".repeat(200_001);
    let user = json!([{"role": "user", "content": "hi"}]);
    let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]);
    let chat = |text: &str| json!({"messages": [{"role": "user", "content": text}]}).to_string();
    vec![
        // The body as bytes, as JSON, as a shape.
        row(m, JSON, "", 400, "not_json"),
        row(m, JSON, "{", 400, "not_json"),
        row(m, JSON, "hello", 400, "not_json"),
        row(m, JSON, b"{\"session\":\"\xff\",\"text\":\"hi\"}", 400, "not_utf8"),
        row(m, JSON, "{\"session\":\"s\",\"text\":\"hi\"} trailing", 400, "not_json"),
        row(m, JSON, "[".repeat(100_000), 400, "not_json"),
        row(m, JSON, "{\"session\":\"s\",\"text\":\"\\ud800\"}", 400, "not_json"),
        row(m, JSON, "null", 422, "invalid"),
        row(m, JSON, "[\"s\",\"hi\"]", 422, "invalid"),
        row(m, JSON, "\"hi\"", 422, "invalid"),
        row(m, JSON, "{}", 422, "invalid"),
        row(m, JSON, "{\"session\":\"s\"}", 422, "invalid"),
        row(m, JSON, "{\"session\":7,\"text\":\"hi\"}", 422, "invalid"),
        row(m, JSON, "{\"session\":\"s\",\"text\":\"hi\",\"colour\":1}", 422, "invalid"),
        row(m, JSON, "{\"session\":\"s\",\"session\":\"t\",\"text\":\"hi\"}", 422, "invalid"),
        // The fields.
        row(m, JSON, "{\"session\":\"\",\"text\":\"hi\"}", 422, "invalid"),
        row(m, JSON, "{\"session\":\"a\\nb\",\"text\":\"hi\"}", 422, "invalid"),
        row(m, JSON, long_session, 422, "invalid"),
        row(m, JSON, "{\"session\":\"s\",\"text\":\"\"}", 422, "invalid"),
        row(m, JSON, "{\"session\":\"s\",\"text\":\" \\n\"}", 422, "invalid"),
        row(m, JSON, "{\"session\":\"s\",\"text\":\"a\\u0000b\"}", 422, "invalid"),
        row(m, JSON, long_text, 422, "invalid"),
        row(m, JSON, "{\"session\":\"s\",\"text\":\"hi\",\"wait_ms\":-1}", 422, "invalid"),
        row(m, JSON, "{\"session\":\"s\",\"text\":\"hi\",\"wait_ms\":1.5}", 422, "invalid"),
        row(m, JSON, "{\"session\":\"s\",\"text\":\"hi\",\"wait_ms\":600001}", 422, "invalid"),
        row(m, JSON, "{\"session\":\"s\",\"text\":\"hi\",\"wait_ms\":99999999999999999999}", 422, "invalid"),
        row(m, JSON, "{\"session\":\"s\",\"text\":\"hi\",\"idempotency_key\":\"\"}", 422, "invalid"),
        row(m, JSON, long_key, 422, "invalid"),
        row(m, JSON, "{\"session\":\"s\",\"text\":\"hi\",\"attachments\":[{}]}", 403, "forbidden"),
        row(
            m,
            JSON,
            "{\"session\":\"s\",\"text\":\"hi\",\"attachments\":[{\"path\":\"/etc/passwd\"}]}",
            422,
            "invalid",
        ),
        row(m, JSON, "{\"session\":\"s\",\"text\":\"hi\",\"attachments\":[],\"wait_ms\":null}", 202, ""),
        // What it says it is, and how much of it there is.
        row(m, NONE, "{\"session\":\"s\",\"text\":\"hi\"}", 415, "unsupported_media_type"),
        row(m, &[("content-type", "text/plain")], "{}", 415, "unsupported_media_type"),
        row(m, &[("content-type", "application/x-www-form-urlencoded")], "a=b", 415, "unsupported_media_type"),
        row(
            m,
            &[("content-type", "application/json"), ("content-encoding", "gzip")],
            "x",
            415,
            "unsupported_media_type",
        ),
        row(m, JSON, &too_big, 413, "too_large"),
        // What the agent says.
        row(m, JSON, "{\"session\":\"s\",\"text\":\"busy\"}", 429, "busy"),
        row(m, JSON, "{\"session\":\"s\",\"text\":\"conflict\"}", 409, "conflict"),
        row(m, JSON, "{\"session\":\"s\",\"text\":\"forbidden\"}", 403, "forbidden"),
        row(m, JSON, "{\"session\":\"s\",\"text\":\"draining\"}", 503, "shutting_down"),
        row(m, JSON, "{\"session\":\"s\",\"text\":\"invalid\"}", 422, "invalid"),
        row(m, JSON, "{\"session\":\"s\",\"text\":\"unstored\"}", 503, "store"),
        row(m, JSON, "{\"session\":\"s\",\"text\":\"drop\"}", 503, "unavailable"),
        // Pages of other sites, and names that are not ours.
        row(m, &[("content-type", "application/json"), ("origin", "http://evil.example")], "{}", 403, "forbidden"),
        row("POST /api/v1/stop", &[("origin", "null")], "", 403, "forbidden"),
        row("GET /api/v1/runs", &[("host", "evil.example")], "", 403, "forbidden"),
        row("GET /livez", &[("host", "evil.example")], "", 200, ""),
        // Routes and methods.
        row("GET /api/v1/messages", NONE, "", 405, "method_not_allowed"),
        row("DELETE /api/v1/runs", NONE, "", 405, "method_not_allowed"),
        row("POST /livez", NONE, "", 405, "method_not_allowed"),
        row("GET /api", NONE, "", 404, "not_found"),
        row("GET /api/v1/nonsense", NONE, "", 404, "not_found"),
        row("POST /api/v2/messages", JSON, "{}", 404, "not_found"),
        row("GET /none", NONE, "", 404, "not_found"),
        row("POST /webhook", JSON, "{}", 404, "not_found"),
        // Runs.
        row("GET /api/v1/runs/{run}", NONE, "", 404, "not_found"),
        row("GET /api/v1/runs/not-a-uuid", NONE, "", 404, "not_found"),
        row("GET /api/v1/runs/%ff", NONE, "", 400, "not_utf8"),
        row("GET /api/v1/runs/{run}/wait?timeout_ms=0", NONE, "", 404, "not_found"),
        row("GET /api/v1/runs/{run}/wait?timeout_ms=soon", NONE, "", 422, "invalid"),
        row("GET /api/v1/runs/{run}/wait?timeout_ms=600001", NONE, "", 422, "invalid"),
        row("GET /api/v1/runs/{run}/wait?timeout=1", NONE, "", 422, "invalid"),
        row("GET /api/v1/runs?status=asleep", NONE, "", 422, "invalid"),
        row("GET /api/v1/events?every_ms=10001", NONE, "", 422, "invalid"),
        row("GET /api/v1/events?every_ms=-1", NONE, "", 422, "invalid"),
        row("GET /api/v1/runs/{run}/events?every_ms=1", NONE, "", 422, "invalid"),
        row("GET /api/v1/runs?limit=0", NONE, "", 422, "invalid"),
        row("GET /api/v1/approvals?limit=501", NONE, "", 422, "invalid"),
        row("GET /api/v1/approvals?session=", NONE, "", 422, "invalid"),
        row("GET /api/v1/approvals/{run}", NONE, "", 404, "not_found"),
        row("GET /api/v1/approvals/%ff", NONE, "", 400, "not_utf8"),
        row("POST /api/v1/approvals/{run}", JSON, "{\"decision\":\"deny\"}", 404, "not_found"),
        row("POST /api/v1/approvals/{run}", JSON, "{\"decision\":true}", 422, "invalid"),
        row("DELETE /api/v1/approvals/{run}", NONE, "", 405, "method_not_allowed"),
        row("GET /api/v1/runs?limit=501", NONE, "", 422, "invalid"),
        row("GET /api/v1/runs?session=", NONE, "", 422, "invalid"),
        row("GET /api/v1/runs?colour=1", NONE, "", 422, "invalid"),
        row("POST /api/v1/runs/{run}/stop", NONE, "", 404, "not_found"),
        row("POST /api/v1/runs/x/stop", NONE, "", 404, "not_found"),
        row("POST /api/v1/runs/{run}/stop", NONE, "{}", 415, "unsupported_media_type"),
        row("POST /api/v1/runs/{run}/stop", JSON, "{\"why\":1}", 422, "invalid"),
        row("POST /api/v1/runs/{run}/stop?wait_ms=10001", JSON, "{}", 422, "invalid"),
        row("POST /api/v1/sessions/nobody/stop", JSON, "{}", 404, "not_found"),
        row("POST /api/v1/stop", NONE, "", 200, ""),
        // Events.
        row("GET /api/v1/runs/{run}/events", NONE, "", 404, "not_found"),
        row("GET /api/v1/events", &[("last-event-id", "latest")], "", 400, "bad_event_id"),
        row("GET /api/v1/events?since=-1", NONE, "", 400, "bad_event_id"),
        row("GET /api/v1/events?until=1", NONE, "", 422, "invalid"),
        // Sessions.
        row("GET /api/v1/sessions/nobody", NONE, "", 404, "not_found"),
        row("GET /api/v1/sessions/nobody/messages", NONE, "", 404, "not_found"),
        row("GET /api/v1/sessions/a%0Ab", NONE, "", 422, "invalid"),
        row("GET /api/v1/sessions?limit=x", NONE, "", 422, "invalid"),
        row("GET /api/v1/sessions/s/messages?after=x", NONE, "", 422, "invalid"),
        // The OpenAI-compatible routes, whose errors have another form.
        row(c, JSON, "{", 400, "not_json"),
        row(c, JSON, "[]", 400, "invalid"),
        row(c, JSON, "{\"messages\":7}", 400, "invalid"),
        row(c, JSON, "{}", 400, "missing_required_parameter"),
        row(c, NONE, "{}", 415, "unsupported_media_type"),
        row(c, JSON, &too_big, 413, "too_large"),
        row(c, JSON, json!({"messages": user, "model": "gpt-99"}).to_string(), 404, "model_not_found"),
        row(c, JSON, json!({"messages": user, "tools": [{}]}).to_string(), 400, "missing_required_parameter"),
        row(c, JSON, json!({"messages": image}).to_string(), 400, "unsupported_content"),
        row(
            c,
            &[("content-type", "application/json"), ("x-belay-session", "a\u{9}b")],
            chat("hi"),
            400,
            "invalid_value",
        ),
        row(c, JSON, chat("busy"), 429, "busy"),
        row(c, JSON, chat("drop"), 503, "unavailable"),
        row(c, JSON, chat("fail rate_limited"), 429, "rate_limited"),
        row(c, JSON, chat("fail cost_refused"), 402, "insufficient_quota"),
        row(c, JSON, chat("fail network"), 502, "network"),
        row(c, JSON, chat("fail overloaded"), 503, "overloaded"),
        row(c, JSON, chat("fail context_too_long"), 400, "context_length_exceeded"),
        row(c, JSON, chat("fail provider_auth"), 403, "provider_auth"),
        row("GET /v1/chat/completions", NONE, "", 405, "method_not_allowed"),
        row("POST /v1/embeddings", JSON, "{}", 404, "not_found"),
    ]
}

/// With a client's and an operator's token.
fn locked_rows() -> Vec<Row> {
    let message = "{\"session\":\"s\",\"text\":\"hi\"}";
    vec![
        row("POST /api/v1/messages", JSON, message, 401, "unauthorized"),
        row("POST /api/v1/messages", CLIENT, message, 202, ""),
        row("POST /api/v1/messages", CLIENT, r#"{"session":"s","text":"hi","timeout_ms":0}"#, 403, "forbidden"),
        row("GET /api/v1/runs", &[("authorization", "Bearer wrong")], "", 401, "unauthorized"),
        row("GET /api/v1/runs", &[("authorization", "Bearer")], "", 401, "unauthorized"),
        row("GET /api/v1/runs", &[("authorization", "Basic Y2xpZW50")], "", 401, "unauthorized"),
        row("GET /api/v1/runs", &[("authorization", "bearer operator")], "", 200, ""),
        row("GET /api/v1/nonsense", NONE, "", 401, "unauthorized"),
        row("GET /api/v1/status", CLIENT, "", 200, ""),
        row("POST /api/v1/sessions/s/stop", CLIENT, "", 200, ""),
        row("POST /api/v1/stop", CLIENT, "", 403, "forbidden"),
        row("POST /api/v1/stop", OPERATOR, "", 200, ""),
        row("DELETE /api/v1/sessions/s", CLIENT, "", 403, "forbidden"),
        row("DELETE /api/v1/sessions/s/secrets", CLIENT, "", 403, "forbidden"),
        row("DELETE /api/v1/sessions/s/secrets/mail", CLIENT, "", 403, "forbidden"),
        row("POST /api/v1/prune", CLIENT, "", 403, "forbidden"),
        row("POST /api/v1/prune?dry_run=true", CLIENT, "", 403, "forbidden"),
        row("GET /api/v1/search?q=tea", CLIENT, "", 200, ""),
        row("GET /api/v1/search?q=tea", NONE, "", 401, "unauthorized"),
        row("POST /api/v1/shutdown", CLIENT, "", 403, "forbidden"),
        row("POST /api/v1/shutdown", OPERATOR, "", 200, ""),
        row("GET /v1/models", NONE, "", 401, "invalid_api_key"),
        row("GET /v1/models", CLIENT, "", 200, ""),
        row("GET /readyz", NONE, "", 200, ""),
        row("GET /webhook", NONE, "", 405, "method_not_allowed"),
        row("POST /webhook", JSON, "{}", 401, "unauthorized"),
    ]
}

async fn check(harness: &Harness, rows: Vec<Row>) {
    for (line, headers, body, status, code) in rows {
        let (method, path) = line.split_once(' ').unwrap();
        let mut request = harness.client.request(Method::from_bytes(method.as_bytes()).unwrap(), harness.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.body(body.clone()).send().await.unwrap();
        let shown = format!("{line} {headers:?} {}", String::from_utf8_lossy(&body[..body.len().min(80)]));
        let got = response.status().as_u16();
        let (allow, retry, www) =
            (has(&response, "allow"), has(&response, "retry-after"), has(&response, "www-authenticate"));
        let text = response.text().await.unwrap();
        let json: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{shown}: not JSON: {text}"));
        let error = &json["error"];
        assert_eq!((got, error["code"].as_str().unwrap_or_default()), (status, code), "{shown}: {text}");
        assert_eq!(allow, got == 405, "{shown}: Allow");
        assert_eq!(www, got == 401, "{shown}: WWW-Authenticate");
        assert_eq!(retry, code == "busy", "{shown}: Retry-After");
        if !code.is_empty() {
            assert!(!error["message"].as_str().unwrap().is_empty(), "{shown}");
            let own = line.contains("/v1/") && !line.contains("/api/");
            assert_eq!(error["type"].is_string(), own, "{shown}: {text}");
            assert_eq!(error["retryable"].is_boolean(), !own, "{shown}: {text}");
        }
    }
}

fn has(response: &reqwest::Response, header: &str) -> bool {
    response.headers().contains_key(header)
}

#[tokio::test]
async fn every_bad_request_gets_its_status_and_code() {
    let rows = open_rows();
    assert!(rows.len() >= 60);
    check(&Harness::open().await, rows).await;
}

/// A request line, a body, and the path of what is wrong in it.
const FIELDS: &[(&str, &str, &str)] = &[
    ("POST /api/v1/messages", r#"{"text":"hi"}"#, "session"),
    ("POST /api/v1/messages", r#"{"session":"s","session":"t","text":"hi"}"#, "session"),
    ("POST /api/v1/messages", r#"{"session":"","text":"hi"}"#, "session"),
    ("POST /api/v1/messages", r#"{"session":"s","text":7}"#, "text"),
    ("POST /api/v1/messages", r#"{"session":"s","text":" "}"#, "text"),
    ("POST /api/v1/messages", r#"{"session":"s","text":"hi","colour":1}"#, "colour"),
    ("POST /api/v1/messages", r#"{"session":"s","text":"hi","wait_ms":600001}"#, "wait_ms"),
    ("POST /api/v1/messages", r#"{"session":"s","text":"hi","timeout_ms":604800001}"#, "timeout_ms"),
    ("POST /api/v1/messages", r#"{"session":"s","text":"hi","idempotency_key":""}"#, "idempotency_key"),
    ("POST /api/v1/messages", r#"{"session":"s","text":"hi","thinking":"much"}"#, "thinking"),
    ("POST /api/v1/messages", r#"{"session":"s","text":"hi","attachments":[{},{"path":"x"}]}"#, "attachments[1].path"),
    ("POST /api/v1/messages", r#"{"session":"s","text":"hi","outputs":[{"name":"a"}]}"#, "outputs[0].schema"),
    ("POST /api/v1/messages", r#"{"session":"s","text":"invalid"}"#, "outputs"),
    ("POST /api/v1/agent", r#"{"message":"hi","sessionKey":"s"}"#, "idempotencyKey"),
    ("POST /api/v1/agent", r#"{"message":"hi","sessionKey":"s","idempotencyKey":"k","timeout":604801}"#, "timeout"),
    ("POST /api/v1/agent/wait", r#"{"runId":"x"}"#, "runId"),
    ("POST /api/v1/jobs", "{}", "task"),
    ("POST /api/v1/jobs", r#"{"task":"x","budget":{"max_steps":-1}}"#, "budget.max_steps"),
    ("POST /api/v1/routines", r#"{"name":"n","trigger":{"kind":"schedule"},"action":{}}"#, "trigger.when"),
    ("POST /api/v1/routines", r#"{"name":"n","trigger":{"kind":"schedule","when":5},"action":{}}"#, "trigger.when"),
    (
        "POST /api/v1/routines",
        r#"{"name":"n","trigger":{"kind":"manual"},"action":{"mode":"full_job","task":"x","budget":{"max_steps":"many"}}}"#,
        "action.budget.max_steps",
    ),
    (
        "POST /api/v1/routines",
        r#"{"name":"n","trigger":{"kind":"manual"},"action":{"mode":"lightweight","prompt":"x","colour":1}}"#,
        "action.colour",
    ),
    ("POST /api/v1/routines", r#"{"name":"n","trigger":{"kind":"moon"},"action":{}}"#, "trigger.kind"),
    ("POST /api/v1/approvals/{run}", "{}", "decision"),
    ("POST /api/v1/approvals/{run}", r#"{"decision":"perhaps"}"#, "decision"),
    ("POST /api/v1/freeze", r#"{"person":" "}"#, "person"),
    ("POST /api/v1/freeze", r#"{"person":"a","routine":"b"}"#, "routine"),
    ("POST /api/v1/thaw", r#"{"detail":"x"}"#, "detail"),
    ("POST /api/v1/events", r#"{"source":"","event":"x"}"#, "source"),
    ("POST /api/v1/judge", r#"{"rules":"","last":0}"#, "last"),
    ("GET /api/v1/runs?limit=x", "", "limit"),
    ("GET /api/v1/runs?limit=501", "", "limit"),
    ("GET /api/v1/runs?status=asleep", "", "status"),
    ("GET /api/v1/runs?colour=1", "", "colour"),
    ("GET /api/v1/runs?status=running&status=asleep", "", "status"),
    ("GET /api/v1/runs?limit=1&limit=2", "", "limit"),
    ("GET /api/v1/runs?since=soon", "", "since"),
    ("GET /api/v1/runs?after=x", "", "after"),
    ("GET /api/v1/jobs?state=gone", "", "state"),
    ("GET /api/v1/search", "", "q"),
    ("GET /api/v1/events?since=-1", "", "since"),
    ("GET /api/v1/costs?by=planet", "", "by"),
    ("GET /api/v1/sessions/s/messages?after=x", "", "after"),
    ("DELETE /api/v1/memory", "", "person"),
    ("DELETE /api/v1/memory?person=http:a&group=g", "", "group"),
    ("POST /v1/chat/completions", r#"{"messages":7}"#, "messages"),
    ("POST /v1/chat/completions", r#"{"messages":[{"content":"hi"}]}"#, "messages[0].role"),
    ("POST /v1/chat/completions", r#"{"messages":[],"stream":7}"#, "stream"),
];

#[tokio::test]
async fn an_error_names_the_path_of_the_field_that_is_wrong() {
    let (harness, mut wrong) = (Harness::open().await, Vec::new());
    for (line, body, expected) in FIELDS {
        let (method, path) = line.split_once(' ').unwrap();
        let url = harness.url(&path.replace("{run}", RUN));
        let request = harness.client.request(Method::from_bytes(method.as_bytes()).unwrap(), url);
        let request = if body.is_empty() { request } else { request.header(JSON[0].0, JSON[0].1).body(*body) };
        let response = request.send().await.unwrap();
        let (status, answer) = (response.status().as_u16(), response.json::<Value>().await.unwrap());
        if ![400, 422].contains(&status) || answer["error"]["param"] != *expected {
            wrong.push(format!("{line} {body}: {expected} expected, {status} {answer}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn every_request_without_the_right_token_gets_its_status_and_code() {
    check(&Harness::locked().await, locked_rows()).await;
}

#[tokio::test]
async fn a_header_that_decides_who_asks_is_there_once_on_every_route() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let harness = Harness::with(|parts| {
        parts.config.mcp = true;
        let secret = |text: &str| Some(text.to_owned().into());
        (parts.secrets.token, parts.secrets.webhook_secret) = (secret("client"), secret("signs"));
    })
    .await;
    let addr = harness.addr.unwrap();
    let own = format!("Host: {addr}");
    let token = "Authorization: Bearer client".to_owned();
    let origin = format!("Origin: http://{addr}");
    for path in ["/livez", "/readyz", "/api/v1/runs", "/v1/models", "/ws", "/mcp", "/webhook", "/hooks/ci", "/nowhere"]
    {
        let others = [
            "Content-Type: application/json",
            "Idempotency-Key: k",
            "X-Belay-Session: s",
            "X-Delivery-Id: d",
            "X-Hub-Signature-256: sha256=0",
            "X-Telegram-Bot-Api-Secret-Token: t",
            "X-Webhook-Secret: w",
        ]
        .map(str::to_owned);
        for twice in [&own, &origin, &token].into_iter().chain(&others) {
            let mut said = vec![&own, &origin, &token, twice];
            said.extend(others.contains(twice).then_some(twice));
            said.sort();
            let said: String = said.into_iter().map(|line| format!("{line}\r\n")).collect();
            let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\n{said}Connection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            let refused = answer.starts_with("HTTP/1.1 400") && answer.contains("duplicate_header");
            assert!(refused, "{path} with two of {twice:?}: {answer}");
        }
    }
}

#[tokio::test]
async fn a_wrong_field_is_named() {
    let harness = Harness::open().await;
    let (_, body) = harness.post("/api/v1/messages", json!({"session": "s", "text": "hi", "colour": 1})).await;
    assert!(body["error"]["message"].as_str().unwrap().contains("colour"), "{body}");
    let (_, body) = harness.post("/api/v1/messages", json!({"session": "s", "text": "hi", "wait_ms": "soon"})).await;
    assert!(body["error"]["message"].as_str().unwrap().starts_with("wait_ms: invalid type"), "{body}");
    let (_, body) = harness.post("/api/v1/messages", json!({"session": "s", "text": "busy"})).await;
    assert_eq!((&body["error"]["retryable"], &body["error"]["retry_after_ms"]), (&json!(true), &json!(1500)));
}

#[tokio::test]
async fn a_store_that_cannot_be_read_is_a_503_and_fails_readiness_alone() {
    let harness = Harness::open().await;
    harness.store.broken.store(true, std::sync::atomic::Ordering::Relaxed);
    for path in ["/api/v1/runs", "/api/v1/sessions", &format!("/api/v1/runs/{RUN}"), "/api/v1/sessions/s/messages"] {
        let (status, body) = harness.get(path).await;
        assert_eq!((status, &body["error"]["code"]), (503, &json!("store")), "{path}");
    }
    assert_eq!(harness.get("/readyz").await, (503, json!({"ready": false, "reason": "the store cannot take a write"})));
    assert_eq!(harness.get("/livez").await.0, 200);
    assert_eq!(harness.get("/startupz").await.0, 200);
}

#[tokio::test]
async fn a_lost_store_is_no_reason_to_try_again() {
    let harness = Harness::open().await;
    let message = json!({"session": "s", "text": "unstored"});
    for (lost, retryable) in [(false, true), (true, false)] {
        harness.store.lost.store(lost, std::sync::atomic::Ordering::Relaxed);
        harness.store.broken.store(false, std::sync::atomic::Ordering::Relaxed);
        let sent = harness.post("/api/v1/messages", message.clone()).await;
        harness.store.broken.store(true, std::sync::atomic::Ordering::Relaxed);
        for (status, body) in
            [sent, harness.get("/api/v1/runs").await, harness.get(&format!("/api/v1/runs/{RUN}")).await]
        {
            let error = &body["error"];
            assert_eq!(
                (status, &error["code"], &error["retryable"]),
                (503, &json!("store"), &json!(retryable)),
                "{body}"
            );
            assert_eq!(error["message"].as_str().unwrap().contains("until Belay is restarted"), lost, "{body}");
        }
    }
}

#[tokio::test]
async fn readiness_follows_the_agent_and_startup_does_not_go_back() {
    let harness = Harness::open().await;
    assert_eq!(harness.get("/readyz").await, (200, json!({"ready": true})));
    assert_eq!(harness.get("/startupz").await, (200, json!({"started": true})));
    harness.ready.send_replace(false);
    assert_eq!(harness.get("/readyz").await.0, 503);
    assert_eq!(harness.get("/startupz").await, (200, json!({"started": true})));
    let (early, seen) = tokio::sync::watch::channel(false);
    let harness = Harness::with(|parts| parts.ready = seen).await;
    assert_eq!(harness.get("/startupz").await, (503, json!({"started": false})));
    assert_eq!(harness.get("/livez").await.0, 200);
    early.send_replace(true);
    assert_eq!(harness.get("/startupz").await.0, 200);
}

/// Sends bytes as they are, and returns what comes back: so many bytes, or all there is if the other end closes first.
async fn raw(harness: &Harness, bytes: &[u8], enough: usize) -> String {
    let mut stream = tokio::net::TcpStream::connect(harness.addr.unwrap()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    if enough == 0 {
        stream.shutdown().await.unwrap(); // nothing is expected; the other end closes in turn
    }
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while enough == 0 || answer.len() < enough {
        match tokio::time::timeout(PATIENCE, stream.read(&mut piece)).await.unwrap() {
            Ok(n @ 1..) => answer.extend_from_slice(&piece[..n]),
            _closed => break,
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn what_is_not_http_is_refused_and_harms_nobody() {
    let harness = Harness::open().await;
    let huge_header = format!("GET /livez HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(200_000));
    let declared = "POST /api/v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 999999999\r\n\r\n";
    let chunked_liar = "POST /api/v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n";
    let mut chunked_flood = b"POST /api/v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..21 {
        chunked_flood.extend_from_slice(b"2710\r\n");
        chunked_flood.extend_from_slice(&[b' '; 10_000]);
        chunked_flood.extend_from_slice(b"\r\n");
    }
    for (bytes, begin) in [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(), "HTTP/1.1 400"),
        (b"hello\r\n\r\n".as_slice(), "HTTP/1.1 400"),
        (b"GET /livez HTTP/1.0\r\n\r\n".as_slice(), "HTTP/1.0 200"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), ""),
        (huge_header.as_bytes(), "HTTP/1.1 431"),
        (declared.as_bytes(), "HTTP/1.1 413"),
        (chunked_liar.as_bytes(), "HTTP/1.1 400"),
        (&chunked_flood, "HTTP/1.1 413"),
        (b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\nGET /livez HTTP/1.1\r\nhost: a\r\n\r\n".as_slice(), "HTTP/1.1 200"),
        (b"".as_slice(), ""),
    ] {
        let answer = raw(&harness, bytes, begin.len()).await;
        assert!(
            answer.starts_with(begin) && answer.is_empty() == begin.is_empty(),
            "{:?}: {answer}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(60)])
        );
    }
    assert_eq!(harness.get("/livez").await.0, 200);
}

#[tokio::test]
async fn a_brought_router_is_served_beside_ours_and_a_panic_in_it_is_a_500() {
    use axum::routing::post;
    async fn fall() -> &'static str {
        panic!("on purpose")
    }
    let brought = axum::Router::new()
        .route("/telegram/webhook", post(|body: String| async { body }))
        .route("/fall", axum::routing::get(fall));
    let harness = Harness::with(|parts| parts.extra = vec![brought]).await;
    assert_eq!(harness.post("/telegram/webhook", json!({"a": 1})).await, (200, json!({"a": 1})));
    let (status, body) = harness.get("/fall").await;
    assert_eq!((status, &body["error"]["code"]), (500, &json!("internal")));
    let big = "x".repeat(200_001);
    let (status, _) = crate::harness::read(harness.client.post(harness.url("/telegram/webhook")).body(big)).await;
    assert_eq!(status, 413);
}

#[test]
fn whatever_bytes_come_as_a_body_the_answer_is_never_our_fault() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let harness = runtime.block_on(Harness::open());
    let piece = prop_oneof![
        any::<Vec<u8>>(),
        prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            "\"",
            ":",
            ",",
            "null",
            "1e999",
            "\"session\"",
            "\"text\"",
            "\"messages\"",
            "\"role\"",
            "\"user\"",
            "\"content\"",
            "\"stream\"",
            "true",
            "\\u0000",
            "\\ud83d",
            "\"wait_ms\"",
            "0",
        ])
        .prop_map(|word| word.as_bytes().to_vec()),
    ];
    let bodies = prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat());
    let routes = prop::sample::select(vec![
        "/api/v1/messages",
        "/v1/chat/completions",
        "/api/v1/stop",
        "/api/v1/sessions/s/stop",
        "/api/v1/shutdown",
    ]);
    proptest!(ProptestConfig::with_cases(400), |(body in bodies, route in routes)| {
        let request = harness.client.post(harness.url(route)).header("content-type", "application/json").body(body);
        let status = runtime.block_on(async { request.send().await.unwrap().status().as_u16() });
        prop_assert!(status < 500 || status == 503, "{}", status);
    });
}
