//! Logins at MCP servers: for operators, with errors that say what is wrong.

use std::sync::Arc;

use async_trait::async_trait;
use belay_gateway::KeptSecrets;
use belay_protocol::{BegunLogin, EndedLogin, LoginRefusal, LoginReport, LoginState, ServerLogins};
use serde_json::json;

use crate::harness::{FakeArchive, Harness, read};

/// Logins at the server `tickets`.
struct FakeLogins;

#[async_trait]
impl ServerLogins for FakeLogins {
    async fn begin(&self, server: &str, port: u16) -> Result<BegunLogin, LoginRefusal> {
        match server {
            "tickets" => {
                let redirect_uri = format!("http://127.0.0.1:{port}/callback");
                Ok(BegunLogin { url: "https://as.example/x".into(), redirect_uri, expires_in_s: 600 })
            }
            "program" => Err(LoginRefusal::Refused("it is a program".into())),
            _ => Err(LoginRefusal::NoServer("no such server".into())),
        }
    }

    async fn finish(&self, server: &str, answer: &str) -> Result<LoginReport, LoginRefusal> {
        if answer != "code=a" {
            return Err(LoginRefusal::Failed("the code was not exchanged".into()));
        }
        let (scopes, detail) = (vec!["read".into()], String::new());
        let state = LoginState::LoggedIn;
        Ok(LoginReport { server: server.into(), state, scopes, expires_at: None, renewable: true, detail })
    }

    async fn end(&self, server: &str) -> Result<EndedLogin, LoginRefusal> {
        Ok(EndedLogin { server: server.into(), ended: true, revoked: true, detail: String::new() })
    }

    async fn logins(&self) -> Vec<LoginReport> {
        Vec::new()
    }
}

const LOGIN: &str = "/api/v1/mcp/tickets/login";

#[tokio::test]
async fn an_operator_begins_completes_and_ends_a_login() {
    let kept = || KeptSecrets::new(Arc::new(FakeArchive::default()), Some(Arc::new(FakeLogins)));
    let harness = Harness::with(|parts| parts.kept = kept()).await;
    let begun =
        json!({ "url": "https://as.example/x", "redirect_uri": "http://127.0.0.1:7/callback", "expires_in_s": 600 });
    assert_eq!(harness.post(LOGIN, json!({ "port": 7 })).await, (200, begun));
    let login = json!({ "server": "tickets", "state": "logged_in", "scopes": ["read"], "renewable": true });
    assert_eq!(harness.post(&format!("{LOGIN}/finish"), json!({ "answer": "code=a" })).await, (200, login));
    let ended = json!({ "server": "tickets", "ended": true, "revoked": true });
    assert_eq!(read(harness.client.delete(harness.url(LOGIN))).await, (200, ended));
    for (path, body, status, code) in [
        (LOGIN.to_owned(), json!({ "port": 0 }), 422, "invalid"),
        (LOGIN.to_owned(), json!({ "port": 70_000 }), 422, "invalid"),
        (LOGIN.to_owned(), json!({}), 422, "invalid"),
        (format!("{LOGIN}/finish"), json!({ "answer": "code=b" }), 422, "login_failed"),
        ("/api/v1/mcp/program/login".to_owned(), json!({ "port": 7 }), 409, "decided"),
        ("/api/v1/mcp/other/login".to_owned(), json!({ "port": 7 }), 404, "not_found"),
    ] {
        let (found, answer) = harness.post(&path, body.clone()).await;
        assert_eq!((found, answer["error"]["code"].as_str()), (status, Some(code)), "{path} {body}: {answer}");
    }
}

#[tokio::test]
async fn a_client_logs_in_nowhere_and_without_servers_there_is_nothing() {
    let harness = Harness::locked().await;
    for (path, body) in
        [(LOGIN.to_owned(), json!({ "port": 7 })), (format!("{LOGIN}/finish"), json!({ "answer": "x" }))]
    {
        let post = |token: &str| read(harness.client.post(harness.url(&path)).bearer_auth(token).json(&body));
        assert_eq!(post("client").await.0, 403, "{path}");
    }
    assert_eq!(read(harness.client.delete(harness.url(LOGIN)).bearer_auth("client")).await.0, 403);
    let open = Harness::open().await;
    assert_eq!(open.post(LOGIN, json!({ "port": 7 })).await.0, 404);
}
