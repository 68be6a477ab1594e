//! Logins at servers that change their mind, repeat what they were sent, or ask for what is not theirs.

use std::path::Path;
use std::sync::Arc;

use belay_protocol::{LoginState, Secret, ServerLogins, ToolFailure};
use belay_tools::mcp::{LoginChange, McpServerConfig, Server, ServerInputs, SurveyMode};
use serde_json::{Value, json};
use url::Url;

use super::http::server;
use super::login_host::{Echoes, Fault, Host};
use super::logins::{Daemon, change, mcp, tool, words};
use super::support::{Bench, Run};

/// A daemon whose server has a client with this secret in the settings.
async fn with_secret(secret: &str, issuer: impl Fn(&Host) -> String) -> Daemon {
    let secret = Some(Secret::new(secret.to_owned()));
    configured(secret, |host| json!({ "client_id": "me", "issuer": issuer(host) })).await
}

/// A daemon whose server has these settings of its login.
async fn configured(client_secret: Option<Secret>, oauth: impl Fn(&Host) -> Value) -> Daemon {
    let (host, bench) = (Host::open().await, Bench::new());
    let url = format!("{}/mcp", host.url());
    // It chooses the library for certificates, too.
    drop(server(url.clone(), None));
    let config: McpServerConfig =
        serde_json::from_value(json!({ "url": url, "timeout_s": 5, "oauth": oauth(&host) })).unwrap();
    let inputs = ServerInputs { directory: Path::new("/"), variable: &|_| None, token: None, client_secret };
    let server = Server::new("s", &config, inputs).unwrap();
    let mcp = bench.of(vec![server]).keeping_logins(&bench.path("logins"));
    Daemon { host, bench, mcp }
}

#[tokio::test]
async fn the_secret_of_a_client_goes_to_its_issuer_only_and_is_shown_nowhere() {
    for issuer in ["https://as.example.org", ""] {
        let daemon = with_secret("HUNTER2+SECRET", |_| issuer.to_owned()).await;
        let said = words(daemon.logins().begin("s", 7).await.unwrap_err());
        assert!(said.contains("oauth.issuer") && said.contains(&daemon.host.url()), "{said}");
        assert!(daemon.host.change(|seen| seen.forms.is_empty()));
    }
    let daemon = with_secret("HUNTER2+SECRET", |host| format!("{}/", host.url())).await;
    daemon
        .host
        .change(|seen| seen.metadata = json!({ "token_endpoint_auth_methods_supported": ["client_secret_post"] }));
    let answer = daemon.host.agree(&daemon.begin().await);
    assert_eq!(daemon.finish(&answer).await, Ok(LoginState::LoggedIn));
    assert_eq!(daemon.host.change(|seen| seen.forms[0]["client_secret"].clone()), "HUNTER2+SECRET");
    let tool = tool(&daemon.mcp).await;
    // The description of the error is the whole form.
    daemon
        .host
        .change(|seen| (seen.access, seen.fault) = ("revoked".into(), Some(Fault::Error(401, "invalid_client"))));
    let failure = Run::new().failure(&tool, json!({})).await;
    assert!(failure.contains("refuses the client: invalid_client") && !failure.contains("HUNTER2"), "{failure}");
    let detail = daemon.logins().logins().await.remove(0).detail;
    assert!(!detail.contains("HUNTER2"), "{detail}");
    daemon.bench.sessions.close().await;
}

#[tokio::test]
async fn a_document_of_the_operator_is_the_client_where_documents_are_taken_and_the_port_is_that_of_the_settings() {
    let document = "https://client.example.org/belay.json";
    for takes in [true, false] {
        let daemon = configured(None, |_| json!({ "client_id": document, "redirect_port": 8788 })).await;
        daemon.host.change(|seen| seen.metadata = json!({ "client_id_metadata_document_supported": takes }));
        let begun = daemon.logins().begin("s", 7).await.unwrap();
        let url = Url::parse(&begun.url).unwrap();
        let asked = |key: &str| url.query_pairs().find(|(name, _)| name == key).map(|(_, value)| value.into_owned());
        let (client, redirect) = (if takes { document } else { "registered" }, "http://127.0.0.1:8788/callback");
        assert_eq!((asked("client_id").as_deref(), asked("redirect_uri").as_deref()), (Some(client), Some(redirect)));
        assert_eq!(begun.redirect_uri, redirect);
        let registered = daemon.host.change(|seen| seen.registered.clone());
        let expected = if takes { vec![] } else { vec![json!([redirect])] };
        assert_eq!(registered.iter().map(|client| client["redirect_uris"].clone()).collect::<Vec<_>>(), expected);
        assert_eq!(daemon.finish(&daemon.host.agree(&begun.url)).await, Ok(LoginState::LoggedIn));
        let form = daemon.host.change(|seen| seen.forms.remove(0));
        assert_eq!((&*form["client_id"], &*form["redirect_uri"]), (client, redirect));
    }
}

#[tokio::test]
async fn a_need_ends_when_the_server_takes_the_token_or_renews_it_again() {
    let (daemon, tool) = Daemon::logged_in().await;
    let state = async || daemon.logins().logins().await.remove(0).state;
    for round in 0..2 {
        daemon.host.change(|seen| seen.refusals = 2);
        let failure = Run::new().failure(&tool, json!({})).await;
        assert!(failure.contains("the server does not take its tokens"), "{failure}");
        let told = change(Some("the server does not take its tokens"));
        assert_eq!(daemon.mcp.login_change().await, LoginChange { is_new: round == 0, ..told });
        assert_eq!(state().await, LoginState::Needed);
        assert_eq!(Run::new().text(&tool, json!({})).await, "over http");
        assert_eq!((daemon.mcp.login_change().await, state().await), (change(None), LoginState::LoggedIn));
    }
    let fault = Fault::Error(400, "unauthorized_client");
    daemon.host.change(|seen| (seen.access, seen.fault) = ("revoked".into(), Some(fault)));
    let failure = Run::new().failure(&tool, json!({})).await;
    assert!(failure.contains("needs login") && failure.contains("unauthorized_client"), "{failure}");
    assert!(daemon.mcp.login_change().await.needed.is_some());
    daemon.host.change(|seen| seen.fault = None);
    assert_eq!(Run::new().text(&tool, json!({})).await, "over http");
    assert_eq!((daemon.mcp.login_change().await, state().await), (change(None), LoginState::LoggedIn));
    daemon.bench.sessions.close().await;
}

#[tokio::test]
async fn a_reason_is_new_once_until_the_next_login() {
    let (daemon, tool) = Daemon::logged_in().await;
    for (needs, is_new) in [("a", true), ("b", true), ("a", false), ("b", false)] {
        daemon.host.change(|seen| (seen.needs, seen.scopes) = (Some(needs), "x".into()));
        Run::new().failure(&tool, json!({})).await;
        let why = format!("the server asks for more rights: {needs}");
        assert_eq!(daemon.mcp.login_change().await, LoginChange { is_new, ..change(Some(&why)) });
    }
    let answer = daemon.host.agree(&daemon.begin().await);
    daemon.finish(&answer).await.unwrap();
    assert_eq!(daemon.mcp.login_change().await, change(None));
    daemon.host.change(|seen| (seen.needs, seen.scopes) = (Some("a"), "x".into()));
    Run::new().failure(&tool, json!({})).await;
    assert!(daemon.mcp.login_change().await.is_new);
    daemon.bench.sessions.close().await;
}

#[tokio::test]
async fn an_answer_that_repeats_the_request_shows_no_token() {
    let (daemon, tool) = Daemon::logged_in().await;
    for echoes in [Echoes::Refusal, Echoes::Error, Echoes::ErrorInStream, Echoes::Result, Echoes::ResultInStream] {
        daemon.host.change(|seen| seen.echoes = Some(echoes));
        let text = match Run::new().call(&tool, json!({})).await {
            Ok(result) => result.text,
            Err(ToolFailure::Failed(text)) => text,
            other => panic!("{other:?}"),
        };
        assert!(text.contains("Bearer [token]") && !text.contains("access-1"), "{echoes:?}: {text}");
    }
    daemon.host.change(|seen| seen.echoes = Some(Echoes::Descriptions));
    let next = mcp(&daemon.host, &daemon.bench);
    let report = next.survey(SurveyMode::ToUse).await.unwrap().reports.remove(0);
    assert!(report.tools[0].description.contains("Bearer [token]"), "{report:?}");
    daemon.bench.sessions.close().await;
}

#[tokio::test]
async fn a_server_whose_calls_alone_need_a_token_has_a_login() {
    let daemon = Daemon::new().await;
    daemon.host.change(|seen| (seen.is_open, seen.resource) = (true, json!({ "resource": null })));
    assert!(words(daemon.logins().begin("s", 7).await.unwrap_err()).contains("lets everybody in"));
    daemon.host.change(|seen| seen.resource = Value::Null);
    let answer = daemon.host.agree(&daemon.begin().await);
    assert_eq!(daemon.finish(&answer).await, Ok(LoginState::LoggedIn));
    assert_eq!(Run::new().text(&tool(&daemon.mcp).await, json!({})).await, "over http");
    daemon.bench.sessions.close().await;
}

#[tokio::test]
async fn a_code_is_used_when_its_tokens_have_a_place_and_tokens_without_one_are_revoked() {
    let daemon = Daemon::new().await;
    let (file, new) = (daemon.bench.path("logins/s.json"), daemon.bench.path("logins/s.json.new"));
    std::fs::create_dir_all(&new).unwrap();
    let answer = daemon.host.agree(&daemon.begin().await);
    assert!(words(daemon.finish(&answer).await.unwrap_err()).contains("cannot be written"));
    assert_eq!(daemon.host.count("authorization_code"), 0);
    std::fs::remove_dir(&new).unwrap();
    std::fs::create_dir_all(file.join("x")).unwrap();
    let said = words(daemon.finish(&answer).await.unwrap_err());
    assert!(said.contains("cannot be written") && said.contains("the new tokens are revoked"), "{said}");
    assert_eq!(daemon.host.change(|seen| seen.revoked.clone()), ["refresh-1"]);
}

#[tokio::test]
async fn a_logout_revokes_the_tokens_that_are_not_on_disk() {
    let (daemon, tool) = Daemon::logged_in().await;
    std::fs::create_dir(daemon.bench.path("logins/s.json.new")).unwrap();
    daemon.host.change(|seen| seen.access = "revoked".into());
    assert_eq!(Run::new().text(&tool, json!({})).await, "over http");
    assert_eq!(daemon.file()["refresh"], "refresh-1");
    assert!(daemon.logins().end("s").await.unwrap().revoked);
    assert_eq!(daemon.host.change(|seen| seen.revoked.clone()), ["refresh-2"]);
    daemon.bench.sessions.close().await;
}

#[tokio::test]
async fn a_client_without_a_method_sends_no_secret_and_no_lifetime_is_no_renewal() {
    let daemon = Daemon::new().await;
    let registers = json!({ "client_secret": "made", "token_endpoint_auth_method": "none" });
    daemon.host.change(|seen| (seen.registers, seen.lifetime_s) = (registers, Some(0)));
    let answer = daemon.host.agree(&daemon.begin().await);
    daemon.finish(&answer).await.unwrap();
    let form = daemon.host.change(|seen| seen.forms.remove(0));
    assert!(!form.contains_key("client_secret") && !form.contains_key("header"), "{form:?}");
    let next = mcp(&daemon.host, &daemon.bench);
    tool(&next).await;
    assert_eq!(daemon.host.count("refresh_token"), 0);
    let logins: Arc<dyn ServerLogins> = next.logins().unwrap();
    assert_eq!(logins.logins().await.remove(0).expires_at, None);
}
