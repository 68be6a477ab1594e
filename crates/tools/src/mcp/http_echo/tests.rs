#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::get;
use rmcp::transport::streamable_http_client::StreamableHttpClient;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::mcp::http_client::SessionClient;

#[test]
fn a_token_is_removed_with_its_escapes_and_where_the_text_is_cut() {
    for (text, expected) in [
        ("Bearer ab+/cd=efgh!", Some("Bearer [token]!")),
        (r#"{"a":"ab+\/cd=efgh"}"#, Some(r#"{"a":"[token]"}"#)),
        (r#"{"a":"ab\u002b\/cd\u003Defgh"}"#, Some(r#"{"a":"[token]"}"#)),
        (r#""{\"a\":\"ab+\\\/cd=efgh\"}""#, Some(r#""{\"a\":\"[token]\"}""#)),
        ("ab+/cd=efghab+/cd=efgh ü ab+/cd=e", Some("[token][token] ü [token]")),
        ("ab+/cd= efgh, ab+/cd=", None),
        (r"ab\", None),
        (r"ab\u00e", None),
        ("", None),
    ] {
        assert_eq!(without(text, "ab+/cd=efgh").as_deref(), expected, "{text}");
    }
}

#[test]
fn many_backslashes_take_linear_time() {
    let text = "\\".repeat(1 << 20);
    assert_eq!(without(&text, "ab+/cd=efgh"), None);
    let text = format!("{text}ab+/cd=efgh");
    assert!(without(&text, "ab+/cd=efgh").is_some_and(|clean| clean.ends_with("\\[token]")));
}

#[test]
fn json_keeps_the_numbers_and_names_that_equal_a_token() {
    let number = Echo::new(Some("12345678"), None);
    let clean = number.removed_from_json(r#"{"id":12345678,"said":["it is 12345678"]}"#);
    assert_eq!(clean.as_deref(), Some(r#"{"id":12345678,"said":["it is [token]"]}"#));
    assert_eq!(number.removed_from_json(r#"{"id":12345678}"#), None);
    let word = Echo::new(Some("password"), None);
    assert_eq!(word.removed_from_json(r#"{"properties":{"password":{}}}"#), None);
    assert_eq!(word.removed_from_json("no JSON: password").as_deref(), Some("no JSON: [token]"));
}

#[test]
fn a_short_token_removes_no_words() {
    let (short, none) = (Echo::new(Some("a"), None), Echo::new(None, None));
    assert_eq!((short.removed("a cat"), none.removed("a cat")), (None, None));
}

/// A server whose streams, and whose errors of GET and DELETE, repeat the token.
async fn echoing(tasks: &mut JoinSet<()>) -> String {
    let token = |headers: HeaderMap| headers[header::AUTHORIZATION].to_str().unwrap().to_owned();
    let stream = move |headers: HeaderMap| async move {
        (
            [(header::CONTENT_TYPE, "text/event-stream")],
            format!("event: {0}\ndata: {{\"a\":\"{0}\"}}\n\n", token(headers)),
        )
    };
    let refused = move |headers: HeaderMap| async move { (StatusCode::IM_A_TEAPOT, token(headers)) };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/stream", get(stream)).route("/refused", get(refused).delete(refused));
    tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

#[tokio::test]
async fn streams_and_errors_of_get_and_delete_repeat_no_token() {
    let (mut tasks, token) = (JoinSet::new(), Some("hush-hush".to_owned()));
    let url = echoing(&mut tasks).await;
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default(); // another test may have been first
    let http = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
    let client = SessionClient { http, login: None };
    let at = |path: &str| -> Arc<str> { format!("{url}/{path}").into() };
    let none = HashMap::new;
    let mut events = client.get_stream(at("stream"), None, None, token.clone(), none()).await.unwrap();
    let event = events.next().await.unwrap().unwrap();
    assert_eq!(
        (event.event.as_deref(), event.data.as_deref()),
        (Some("Bearer [token]"), Some(r#"{"a":"Bearer [token]"}"#))
    );
    let got = client.get_stream(at("refused"), None, None, token.clone(), none()).await.err().unwrap();
    let deleted = client.delete_session(at("refused"), "s".into(), token, none()).await.unwrap_err();
    for failure in [got, deleted] {
        let words = words(&failure);
        assert!(words.contains("418") && !words.contains("hush"), "{words}");
    }
}
