//! Tests of each provider with a mock server on this machine.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use belay_protocol::{Secret, Tool, ToolFailure};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::testing::{context, install_tls};
use crate::web::config::SearchProvider;

/// The content of a request.
#[derive(Clone, Debug, Default)]
struct Asked {
    line: String,
    headers: HeaderMap,
    body: String,
}

#[derive(Clone)]
struct Script {
    status: StatusCode,
    answer: Arc<str>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

async fn answer(State(script): State<Script>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 10_000).await.unwrap();
    script.asked.lock().unwrap().push(Asked {
        line: format!("{} {}", parts.method, parts.uri),
        headers: parts.headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    });
    let headers = [("content-type", "application/json"), ("location", "/elsewhere")];
    (script.status, headers, script.answer.to_string()).into_response()
}

struct Engine {
    tool: WebSearch,
    asked: Arc<Mutex<Vec<Asked>>>,
    _tasks: JoinSet<()>,
}

impl Engine {
    async fn start(provider: SearchProvider, status: StatusCode, answered: &str) -> Self {
        install_tls();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = Some(format!("http://{}/base/", listener.local_addr().unwrap()));
        let asked = Arc::new(Mutex::default());
        let script = Script { status, answer: answered.into(), asked: Arc::clone(&asked) };
        let router = Router::new().fallback(answer).with_state(script);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        let config = SearchConfig { provider, base_url, ..SearchConfig::default() };
        Self { tool: WebSearch::new(&config, &[]).unwrap().unwrap(), asked, _tasks: tasks }
    }

    async fn search(&self, arguments: Value) -> Result<String, ToolFailure> {
        let mut context = context("s");
        context.credential = self.tool.spec.credential.as_ref().map(|_| Secret::new("sesame".into()));
        let reply = self.tool.call(arguments.as_object().unwrap(), &context).await?;
        assert!(reply.untrusted);
        Ok(reply.text)
    }

    fn last(&self) -> Asked {
        self.asked.lock().unwrap().last().cloned().unwrap_or_default()
    }
}

const SEARXNG: &str = r#"{"query": "x", "results": [
    {"title": "Ships &\n harbours", "url": "https://a.example/", "content": "All <b>ships</b>.", "engine": "x"},
    {"title": "No address"},
    {"url": "https://b.example/"}]}"#;
const BRAVE: &str = r#"{"type": "search", "web": {"results": [
    {"title": "Ships", "url": "https://a.example/", "description": "All <strong>ships</strong>.", "age": "1"}]}}"#;
const TAVILY: &str = r#"{"results": [
    {"title": "Ships", "url": "https://a.example/", "content": "All ships.", "score": 0.9}], "response_time": 1}"#;

const FOUND: &str = "1. Ships\n   https://a.example/\n   All ships.\n";

#[tokio::test]
async fn searxng_is_asked_for_json_without_a_key() {
    let engine = Engine::start(SearchProvider::Searxng, StatusCode::OK, SEARXNG).await;
    let found = engine.search(json!({"query": " ships & more "})).await.unwrap();
    let first = "1. Ships & harbours\n   https://a.example/\n   All ships.\n";
    assert_eq!(found, format!("{first}2. \n   https://b.example/\n   \n"));
    assert_eq!(engine.last().line, "GET /base/search?q=ships+%26+more&format=json");
    assert_eq!(engine.search(json!({"query": "ships", "count": 1})).await.unwrap(), first);
    assert!(engine.tool.spec.credential.is_none());
}

#[tokio::test]
async fn brave_is_asked_with_its_key_in_its_header() {
    let engine = Engine::start(SearchProvider::Brave, StatusCode::OK, BRAVE).await;
    assert_eq!(engine.search(json!({"query": "ships", "count": 3})).await.unwrap(), FOUND);
    let asked = engine.last();
    assert_eq!(asked.line, "GET /base/res/v1/web/search?q=ships&count=3");
    assert_eq!(asked.headers["x-subscription-token"], "sesame");
    assert_eq!(engine.tool.spec.credential.as_ref().unwrap().name, "brave_api_key");
}

#[tokio::test]
async fn tavily_is_asked_with_its_key_as_a_bearer() {
    let engine = Engine::start(SearchProvider::Tavily, StatusCode::OK, TAVILY).await;
    assert_eq!(engine.search(json!({"query": "ships"})).await.unwrap(), FOUND);
    let asked = engine.last();
    assert_eq!(asked.line, "POST /base/search");
    assert_eq!(asked.headers["authorization"], "Bearer sesame");
    assert_eq!(serde_json::from_str::<Value>(&asked.body).unwrap(), json!({"query": "ships", "max_results": 5}));
    assert_eq!(engine.tool.spec.credential.as_ref().unwrap().name, "tavily_api_key");
}

#[tokio::test]
async fn only_a_rejected_key_is_reported_as_a_refused_credential() {
    use SearchProvider::{Brave, Searxng, Tavily};
    for (provider, status, credential, words) in [
        (Brave, 401, true, "Brave Search does not accept the key"),
        (Brave, 403, true, "does not accept the key"),
        (Tavily, 401, true, "Tavily does not accept the key"),
        (Searxng, 403, false, "adds json to search.formats"),
        (Brave, 429, false, "rejected the request because of its rate limit"),
        (Tavily, 500, false, "answered 500"),
        (Searxng, 302, false, "answered 302"),
    ] {
        let engine = Engine::start(provider, StatusCode::from_u16(status).unwrap(), "sesame").await;
        let seen = engine.search(json!({"query": "ships"})).await.unwrap_err();
        let (refused, message) = match &seen {
            ToolFailure::CredentialRefused(message) => (true, message),
            ToolFailure::Failed(message) => (false, message),
            other => panic!("{other:?}"),
        };
        assert_eq!(refused, credential, "{provider:?} {status}");
        assert!(message.contains(words) && !message.contains("sesame"), "{provider:?} {status}: {message}");
        assert_eq!(engine.asked.lock().unwrap().len(), 1, "nothing is followed or tried again");
    }
}

#[tokio::test]
async fn answers_that_are_no_results_are_failures_and_none_are_not() {
    use SearchProvider::{Brave, Searxng, Tavily};
    for (provider, answered, ok) in [
        (Searxng, "", false),
        (Searxng, "<html>", false),
        (Searxng, "{}", false),
        (Searxng, r#"{"results": 3}"#, false),
        (Searxng, r#"{"results": []}"#, true),
        (Tavily, r#"{"results": [1, "x", null]}"#, true),
        (Brave, r#"{"type": "search"}"#, true),
        (Brave, r#"{"type": "ErrorResponse"}"#, false),
        (Brave, r#"{"web": []}"#, false),
    ] {
        let engine = Engine::start(provider, StatusCode::OK, answered).await;
        match engine.search(json!({"query": "ships"})).await {
            Ok(text) => assert!(ok && text.contains("Nothing was found"), "{answered}: {text}"),
            Err(ToolFailure::Failed(text)) => assert!(!ok && text.contains("no list of results"), "{answered}: {text}"),
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn results_are_bounded_and_have_no_hidden_characters() {
    let long = "word ".repeat(1000);
    let hits: Vec<_> = (0..50)
        .map(|at| json!({"title": format!("\u{202e}{long}"), "url": format!("https://{at}.example/{long}"), "content": long}))
        .collect();
    let engine = Engine::start(SearchProvider::Tavily, StatusCode::OK, &json!({ "results": hits }).to_string()).await;
    let text = engine.search(json!({"query": "ships", "count": 20})).await.unwrap();
    assert!(text.len() < 20 * (MAX_TITLE_BYTES + MAX_URL_BYTES + MAX_SNIPPET_BYTES + 30), "{}", text.len());
    assert_eq!(text.lines().count(), 60);
    assert!(!text.contains('\u{202e}'));
}

#[tokio::test]
async fn a_query_is_bounded_and_shown_in_the_approval() {
    let engine = Engine::start(SearchProvider::Brave, StatusCode::OK, BRAVE).await;
    for (query, words) in [("  ".to_owned(), "is empty"), ("x".repeat(401), "has 401 bytes")] {
        let Err(ToolFailure::Failed(message)) = engine.search(json!({ "query": query })).await else {
            panic!("accepted")
        };
        assert!(message.contains(words), "{message}");
    }
    assert!(engine.asked.lock().unwrap().is_empty());
    let weight = engine.tool.preview(json!({"query": "ships"}).as_object().unwrap(), &"s".into()).await.unwrap();
    assert_eq!(weight.summary, "search Brave Search for \"ships\"");
    assert_eq!(weight.covers.as_deref(), Some("web_search Brave Search"));
}
