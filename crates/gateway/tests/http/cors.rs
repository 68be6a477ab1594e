//! Pages of other origins: those of `gateway.cors_origins` may use the API with a token, others may not.

use reqwest::Method;
use serde_json::json;

use crate::harness::{Harness, read};

const PAGE: &str = "https://chat.example";

async fn allowing(token: Option<&str>) -> Harness {
    let token = token.map(|token| token.to_owned().into());
    Harness::with(|parts| {
        parts.config.cors_origins = vec![PAGE.to_owned()];
        parts.secrets.token = token;
    })
    .await
}

/// The answer to a preflight: its status, and the headers that allow something.
async fn preflight(harness: &Harness, origin: &str) -> (u16, Option<String>, Option<String>) {
    let request = harness.client.request(Method::OPTIONS, harness.url("/api/v1/messages")).header("origin", origin);
    let request = request.header("access-control-request-method", "POST");
    let request = request
        .header("access-control-request-headers", "authorization,content-type,x-stainless-os,x-stainless-retry-count");
    let answer = request.send().await.unwrap();
    let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    assert_eq!(header("access-control-allow-credentials"), None);
    (answer.status().as_u16(), header("access-control-allow-origin"), header("access-control-allow-headers"))
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_asks_with_a_token_and_reads_the_answer() {
    let harness = allowing(Some("client")).await;
    // Whatever the client of the page sends, such as those of OpenAI's package in a browser.
    let headers = "authorization,content-type,x-stainless-os,x-stainless-retry-count".to_owned();
    assert_eq!(preflight(&harness, PAGE).await, (200, Some(PAGE.into()), Some(headers)));
    let list = || harness.client.get(harness.url("/api/v1/runs")).header("origin", PAGE);
    let answer = list().bearer_auth("client").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["access-control-allow-origin"], PAGE);
    assert!(answer.headers()["access-control-expose-headers"].to_str().unwrap().contains("retry-after"));
    let refused = list().send().await.unwrap();
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["access-control-allow-origin"]),
        (401, &PAGE.parse().unwrap())
    );
    assert_eq!(read(list().header("cookie", "session=client")).await.0, 401, "a cookie is no token");
}

#[tokio::test]
async fn every_other_origin_is_refused() {
    let harness = allowing(Some("client")).await;
    for origin in ["http://chat.example", "https://chat.example:8443", "https://evil.chat.example", "null", "*"] {
        assert_eq!(preflight(&harness, origin).await.1, None, "{origin}");
        let list = harness.client.get(harness.url("/api/v1/runs")).header("origin", origin).bearer_auth("client");
        let answer = list.send().await.unwrap();
        assert_eq!(answer.status(), 403, "{origin}");
        assert_eq!(answer.headers().get("access-control-allow-origin"), None, "{origin}");
    }
    let none = Harness::locked().await;
    assert_eq!(preflight(&none, PAGE).await, (403, None, None), "without the setting there is no preflight");
}

#[tokio::test]
async fn without_a_token_a_page_of_an_allowed_origin_is_no_operator() {
    let harness = allowing(None).await;
    let message = json!({ "session": "s", "text": "hi" });
    let send = harness.client.post(harness.url("/api/v1/messages")).header("origin", PAGE).json(&message);
    let (status, body) = read(send).await;
    assert_eq!((status, &body["error"]["code"]), (401, &json!("unauthorized")), "{body}");
    assert!(harness.agent.seen.lock().unwrap().is_empty());
    assert_eq!(harness.get("/api/v1/runs").await.0, 200, "a program of this machine still is one");
}
