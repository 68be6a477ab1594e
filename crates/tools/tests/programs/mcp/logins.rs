//! Logins at servers, with well-behaved and hostile authorization servers; the real one is in `tests/clients/mcp_oauth.py`.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use belay_protocol::{LoginRefusal, LoginState, ServerLogins, Tool};
use belay_tools::mcp::{LoginChange, Mcp, SurveyMode};
use serde_json::{Value, json};
use url::Url;

use super::http::server;
use super::login_host::{Fault, Host, Instead};
use super::support::{Bench, Run, until};

/// What a daemon has.
pub(super) struct Daemon {
    pub(super) host: Arc<Host>,
    pub(super) bench: Bench,
    pub(super) mcp: Mcp,
}

impl Daemon {
    pub(super) async fn new() -> Self {
        let (host, bench) = (Host::open().await, Bench::new());
        let mcp = mcp(&host, &bench);
        Self { host, bench, mcp }
    }

    pub(super) fn logins(&self) -> Arc<dyn ServerLogins> {
        self.mcp.logins().unwrap()
    }

    pub(super) async fn begin(&self) -> String {
        self.logins().begin("s", 7).await.unwrap().url
    }

    pub(super) async fn finish(&self, answer: &str) -> Result<LoginState, LoginRefusal> {
        self.logins().finish("s", answer).await.map(|login| login.state)
    }

    /// A daemon at whose server somebody has logged in, and its tool.
    pub(super) async fn logged_in() -> (Self, Arc<dyn Tool>) {
        let daemon = Self::new().await;
        let answer = daemon.host.agree(&daemon.begin().await);
        assert_eq!(daemon.finish(&answer).await, Ok(LoginState::LoggedIn));
        assert_eq!(daemon.mcp.login_change().await, change(None));
        let tool = tool(&daemon.mcp).await;
        (daemon, tool)
    }

    pub(super) fn file(&self) -> Value {
        let text = std::fs::read(self.bench.path("logins/s.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

pub(super) fn mcp(host: &Host, bench: &Bench) -> Mcp {
    bench.of(vec![server(format!("{}/mcp", host.url()), None)]).keeping_logins(&bench.path("logins"))
}

pub(super) async fn tool(mcp: &Mcp) -> Arc<dyn Tool> {
    let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
    assert_eq!(survey.reports[0].trouble, None);
    mcp.tools(&survey).remove(0)
}

pub(super) fn change(needed: Option<&str>) -> LoginChange {
    LoginChange { server: "s".into(), needed: needed.map(str::to_owned), is_new: needed.is_some() }
}

pub(super) fn words(refusal: LoginRefusal) -> String {
    match refusal {
        LoginRefusal::NoServer(words) | LoginRefusal::Refused(words) | LoginRefusal::Failed(words) => words,
    }
}

#[tokio::test]
async fn after_a_login_the_tools_are_offered_and_each_request_has_the_token() {
    let daemon = Daemon::new().await;
    let survey = daemon.mcp.survey(SurveyMode::ToUse).await.unwrap();
    let needs = "needs login: belay mcp login s (nobody has logged in)";
    assert_eq!(survey.reports[0].trouble.as_deref(), Some(needs));
    assert_eq!(daemon.mcp.login_change().await, change(Some("nobody has logged in")));
    assert_eq!(daemon.logins().logins().await[0].state, LoginState::Needed);

    let begun = daemon.logins().begin("s", 4711).await.unwrap();
    assert_eq!(begun.redirect_uri, "http://127.0.0.1:4711/callback");
    let url = Url::parse(&begun.url).unwrap();
    let asked = |key: &str| url.query_pairs().find(|(name, _)| name == key).map(|(_, value)| value.into_owned());
    assert_eq!(asked("resource").unwrap(), format!("{}/mcp", daemon.host.url()));
    assert_eq!((asked("scope").as_deref(), asked("prompt").as_deref()), (Some("offline_access"), Some("consent")));
    let registered = daemon.host.change(|seen| seen.registered.remove(0));
    assert_eq!(registered["redirect_uris"], json!([begun.redirect_uri]));
    assert!(registered.get("scope").is_none(), "{registered}");

    let answer = format!("{}?{}#_=_", begun.redirect_uri, daemon.host.agree(&begun.url));
    assert_eq!(daemon.finish(&answer).await, Ok(LoginState::LoggedIn));
    let mode = |path: &str| daemon.bench.path(path).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("logins"), mode("logins/s.json")), (0o700, 0o600));
    assert_eq!(daemon.mcp.login_change().await, change(None));
    let arrival = daemon.mcp.listed_again("s").await.unwrap().unwrap();
    assert_eq!((arrival.report.trouble, arrival.tools.len()), (None, 1));
    assert_eq!(Run::new().text(&arrival.tools[0], json!({})).await, "over http");

    // The next process finds the login.
    let next = mcp(&daemon.host, &daemon.bench);
    assert_eq!(Run::new().text(&tool(&next).await, json!({})).await, "over http");
    let shown = format!("{:?}", next.logins().unwrap().logins().await);
    assert!(!shown.contains("access-") && !shown.contains("refresh-"), "{shown}");
    assert_eq!(daemon.host.count("authorization_code"), 1);
    daemon.bench.sessions.close().await;
}

#[tokio::test]
async fn metadata_that_breaks_a_rule_begins_no_login() {
    let daemon = Daemon::new().await;
    let elsewhere = Host::open().await;
    let set = |resource: Value, metadata: Value, instead: Option<Instead>| {
        daemon.host.change(|seen| (seen.resource, seen.metadata, seen.instead) = (resource, metadata, instead));
    };
    let http = "http://as.example.org/x";
    for (resource, metadata, instead, expected) in [
        (json!({}), json!({ "issuer": "https://evil.example" }), None, "is that of https://evil.example"),
        (json!({}), json!({}), Some(Instead::Redirect(elsewhere.url())), "has no metadata"),
        (json!({}), json!({}), Some(Instead::Huge), "has more than 262144 bytes"),
        (json!({}), json!({ "token_endpoint": http }), None, "the token endpoint is not https"),
        (
            json!({}),
            json!({ "authorization_endpoint": "javascript:x" }),
            None,
            "the authorization endpoint cannot be used",
        ),
        (json!({}), json!({ "registration_endpoint": http }), None, "the registration endpoint is not https"),
        (json!({}), json!({ "token_endpoint": null }), None, "lacks the token endpoint"),
        (json!({}), json!({ "code_challenge_methods_supported": ["plain"] }), None, "does not offer PKCE"),
        (json!({}), json!({ "registration_endpoint": null }), None, "registers no clients"),
        (json!({ "resource": "https://bank.example/mcp" }), json!({}), None, "is about another resource"),
        (json!({ "authorization_servers": [http] }), json!({}), None, "its authorization server is not https"),
        (json!({ "authorization_servers": [] }), json!({}), None, "names no authorization server"),
    ] {
        set(resource, metadata, instead);
        let said = words(daemon.logins().begin("s", 7).await.unwrap_err());
        assert!(said.contains(expected), "{expected}: {said}");
    }
    set(json!({}), json!({}), None);
    daemon.begin().await;
    assert_eq!(elsewhere.change(|seen| seen.forms.len()), 0);
}

#[tokio::test]
async fn only_the_answer_to_the_login_that_waits_is_taken_and_once() {
    let daemon = Daemon::new().await;
    let url = daemon.begin().await;
    let answer = daemon.host.agree(&url);
    // An answer of something else does not end the login.
    let other = answer.replace("state=", "state=0");
    assert!(words(daemon.finish(&other).await.unwrap_err()).contains("is of no login that waits"));
    assert!(words(daemon.finish("hello").await.unwrap_err()).contains("this is no answer"));
    let twice = format!("{answer}&code=other");
    assert!(words(daemon.finish(&twice).await.unwrap_err()).contains("has code twice"));
    assert_eq!(daemon.finish(&answer).await, Ok(LoginState::LoggedIn));
    assert!(words(daemon.finish(&answer).await.unwrap_err()).contains("is of no login that waits"));

    let own = daemon.host.url();
    for (from, to, expected) in [
        (format!("&iss={own}"), "&iss=https://evil.example".to_owned(), "another authorization server has answered"),
        (format!("&iss={own}"), String::new(), "does not say which authorization server"),
        (
            "code=".to_owned(),
            "error=access_denied&error_description=no+thanks&x=".to_owned(),
            "says access_denied, no thanks",
        ),
        ("code=".to_owned(), "x=".to_owned(), "has sent no code"),
        ("code=".to_owned(), "code=made-up-".to_owned(), "does not take the code: invalid_grant"),
    ] {
        let before = daemon.host.count("authorization_code");
        let answer = daemon.host.agree(&daemon.begin().await);
        let said = words(daemon.finish(&answer.replace(&from, &to)).await.unwrap_err());
        assert!(said.contains(expected) && !said.contains("made-up"), "{expected}: {said}");
        let asked = usize::from(expected.contains("invalid_grant"));
        assert_eq!(daemon.host.count("authorization_code"), before + asked, "{expected}");
    }
    // A second beginning replaces the first.
    let (first, second) = (daemon.begin().await, daemon.begin().await);
    assert!(daemon.finish(&daemon.host.agree(&first)).await.is_err());
    assert_eq!(daemon.finish(&daemon.host.agree(&second)).await, Ok(LoginState::LoggedIn));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_token_is_renewed_once_for_all_that_need_it() {
    let (daemon, tool) = Daemon::logged_in().await;
    let next = mcp(&daemon.host, &daemon.bench);
    let other = self::tool(&next).await;
    daemon.host.change(|seen| seen.access = "revoked".into());
    let (one, two, three) = (Run::new(), Run::new(), Run::new());
    let texts = tokio::join!(one.text(&tool, json!({})), two.text(&tool, json!({})), three.text(&other, json!({})));
    assert_eq!(texts, ("over http".into(), "over http".into(), "over http".into()));
    assert_eq!(daemon.host.count("refresh_token"), 1);
    let form = daemon.host.change(|seen| seen.forms.last().cloned().unwrap());
    assert_eq!((&*form["refresh_token"], &*form["client_id"]), ("refresh-1", "registered"));
    assert_eq!((form["resource"].clone(), form.get("scope")), (format!("{}/mcp", daemon.host.url()), None));
    assert_eq!((&daemon.file()["refresh"], &daemon.file()["access"]), (&json!("refresh-2"), &json!("access-2")));
    daemon.bench.sessions.close().await;
}

#[tokio::test]
async fn a_token_that_has_expired_is_renewed_before_the_request() {
    let daemon = Daemon::new().await;
    daemon.host.change(|seen| seen.lifetime_s = Some(3600));
    let answer = daemon.host.agree(&daemon.begin().await);
    daemon.finish(&answer).await.unwrap();
    let mut file = daemon.file();
    file["expires_at_ms"] = 1.into();
    std::fs::write(daemon.bench.path("logins/s.json"), file.to_string()).unwrap();
    let next = mcp(&daemon.host, &daemon.bench);
    tool(&next).await;
    assert_eq!(daemon.host.count("refresh_token"), 1);
    let login = next.logins().unwrap().logins().await.remove(0);
    assert!(login.renewable && login.expires_at.is_some(), "{login:?}");
}

#[tokio::test]
async fn a_call_that_is_given_up_does_not_lose_the_new_token() {
    let (daemon, tool) = Daemon::logged_in().await;
    daemon.host.change(|seen| seen.access = "revoked".into());
    let all = daemon.host.gate.forget_permits(usize::MAX);
    assert!(all > 0);
    let run = Run::new();
    let call = run.call(&tool, json!({}));
    let begun = until("the refresh has begun", || daemon.host.count("refresh_token") == 1);
    tokio::select! {
        answer = call => panic!("{answer:?}"),
        () = begun => {}
    }
    daemon.host.gate.add_permits(1);
    until("the new token is on disk", || daemon.file()["refresh"] == "refresh-2").await;
    assert_eq!(Run::new().text(&tool, json!({})).await, "over http");
    assert_eq!(daemon.host.count("refresh_token"), 1);
    daemon.bench.sessions.close().await;
}

#[tokio::test]
async fn a_login_that_ends_is_told_once_and_the_tool_stays() {
    for (fault, expected) in [
        (Fault::Error(400, "invalid_grant"), "its authorization server renews the login no more: invalid_grant"),
        (Fault::Error(401, "invalid_client"), "its authorization server refuses the client: invalid_client"),
    ] {
        let (daemon, tool) = Daemon::logged_in().await;
        daemon.host.change(|seen| (seen.access, seen.fault) = ("revoked".into(), Some(fault)));
        for _ in 0..2 {
            let failure = Run::new().failure(&tool, json!({})).await;
            assert_eq!(failure, format!("The MCP server s needs login: belay mcp login s ({expected})."));
        }
        // Another client may be refused for a time only, so that the refresh token is still good.
        let is_kept = expected.contains("client");
        assert_eq!(
            (daemon.host.count("refresh_token"), daemon.file()["refresh"].is_string()),
            (1 + usize::from(is_kept), is_kept)
        );
        assert_eq!(daemon.mcp.login_change().await, change(Some(expected)));
        let more = tokio::time::timeout(std::time::Duration::ZERO, daemon.mcp.login_change()).await;
        assert!(more.is_err(), "{more:?}");
        assert_eq!(daemon.logins().logins().await[0].detail, expected);

        daemon.host.change(|seen| seen.fault = None);
        let answer = daemon.host.agree(&daemon.begin().await);
        daemon.finish(&answer).await.unwrap();
        assert_eq!(Run::new().text(&tool, json!({})).await, "over http");
        daemon.bench.sessions.close().await;
    }
}

#[tokio::test]
async fn a_server_that_is_away_needs_no_login_and_a_lost_answer_does() {
    let (daemon, tool) = Daemon::logged_in().await;
    for fault in [
        Fault::Error(503, "temporarily_unavailable"),
        Fault::Error(429, "slow_down"),
        Fault::Error(500, "x"),
        Fault::Error(403, "Forbidden"),
        Fault::Error(400, "invalid_request"),
    ] {
        daemon.host.change(|seen| (seen.access, seen.fault) = ("revoked".into(), Some(fault)));
        let failure = Run::new().failure(&tool, json!({})).await;
        assert!(failure.contains("cannot be called with its login now: it cannot be renewed: "), "{failure}");
        assert!(!failure.contains("refresh-1"), "{failure}");
    }
    assert_eq!(daemon.logins().logins().await[0].state, LoginState::LoggedIn);
    daemon.host.change(|seen| seen.fault = Some(Fault::Lost));
    let failure = Run::new().failure(&tool, json!({})).await;
    assert!(failure.contains("cannot be called with its login now"), "{failure}");
    daemon.host.change(|seen| seen.fault = None);
    let failure = Run::new().failure(&tool, json!({})).await;
    assert!(failure.contains("needs login: belay mcp login s") && failure.contains("before was lost"), "{failure}");
    daemon.bench.sessions.close().await;
}

#[tokio::test]
async fn a_call_that_lacks_rights_asks_for_a_login_with_all_of_them() {
    let (daemon, tool) = Daemon::logged_in().await;
    daemon.host.change(|seen| (seen.needs, seen.scopes) = (Some("mcp:write"), "mcp:read".into()));
    // The file has what was granted.
    let failure = Run::new().failure(&tool, json!({})).await;
    assert!(
        failure.contains("needs login: belay mcp login s (the server asks for more rights: mcp:write)"),
        "{failure}"
    );
    assert_eq!(daemon.mcp.login_change().await, change(Some("the server asks for more rights: mcp:write")));
    assert_eq!(daemon.host.count("refresh_token"), 0);
    let url = daemon.begin().await;
    let asked: Vec<_> =
        Url::parse(&url).unwrap().query_pairs().into_owned().filter(|(key, _)| key == "scope").collect();
    assert_eq!(asked, [("scope".to_owned(), "mcp:write offline_access".to_owned())]);
    daemon.finish(&daemon.host.agree(&url)).await.unwrap();
    assert_eq!(Run::new().text(&tool, json!({})).await, "over http");
    daemon.bench.sessions.close().await;
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named_and_a_login_replaces_it() {
    let (daemon, _tool) = Daemon::logged_in().await;
    let (path, good) = (daemon.bench.path("logins/s.json"), daemon.file());
    let with = |key: &str, value: Value| {
        let mut file = good.clone();
        file[key] = value;
        file.to_string()
    };
    for (text, mode, expected) in [
        ("{".to_owned(), 0o600, "is no JSON: log in again"),
        (with("version", json!(2)), 0o600, "has the format 2, and this Belay reads 1"),
        (with("access", json!(7)), 0o600, "is incomplete"),
        (good.to_string(), 0o644, "can be read by others (mode 0644)"),
    ] {
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let next = mcp(&daemon.host, &daemon.bench);
        let trouble = next.survey(SurveyMode::ToUse).await.unwrap().reports.remove(0).trouble.unwrap();
        assert!(trouble.contains(expected) && trouble.contains("s.json"), "{trouble}");
        assert!(!trouble.contains("access-1"), "{trouble}");
        assert_eq!(next.logins().unwrap().logins().await[0].state, LoginState::Unreadable);
    }
    let next = mcp(&daemon.host, &daemon.bench);
    let url = next.logins().unwrap().begin("s", 7).await.unwrap().url;
    next.logins().unwrap().finish("s", &daemon.host.agree(&url)).await.unwrap();
    tool(&next).await;
    // Tokens of another address are not sent to this one.
    std::fs::write(&path, with("server", json!("https://elsewhere.example/mcp"))).unwrap();
    let next = mcp(&daemon.host, &daemon.bench);
    let trouble = next.survey(SurveyMode::ToUse).await.unwrap().reports.remove(0).trouble.unwrap();
    assert!(trouble.contains("nobody has logged in"), "{trouble}");
}

#[tokio::test]
async fn a_logout_revokes_and_deletes() {
    let (daemon, tool) = Daemon::logged_in().await;
    let ended = daemon.logins().end("s").await.unwrap();
    assert!(ended.ended && ended.revoked, "{ended:?}");
    assert_eq!(daemon.host.change(|seen| seen.revoked.clone()), ["refresh-1"]);
    assert!(!daemon.bench.path("logins/s.json").exists());
    let failure = Run::new().failure(&tool, json!({})).await;
    assert!(failure.contains("needs login: belay mcp login s"), "{failure}");
    let ended = daemon.logins().end("s").await.unwrap();
    assert!(!ended.ended && !ended.revoked, "{ended:?}");
    daemon.bench.sessions.close().await;
}

#[tokio::test]
async fn a_login_is_refused_where_there_can_be_none() {
    let bench = Bench::new();
    let script = bench.script("program", "", json!({}));
    let mcp = bench.mcp(std::slice::from_ref(&script)).keeping_logins(&bench.path("logins"));
    assert!(mcp.logins().is_none());
    let mcp = bench.of(vec![server("http://example.org/mcp".into(), None)]).keeping_logins(&bench.path("logins"));
    let logins = mcp.logins().unwrap();
    assert!(words(logins.begin("s", 7).await.unwrap_err()).contains("use https://"));
    let unknown = logins.begin("t", 7).await.unwrap_err();
    assert!(
        matches!(&unknown, LoginRefusal::NoServer(words) if words.contains("Did you mean s?") || words.contains("no MCP server t")),
        "{unknown:?}"
    );
    let mcp =
        bench.of(vec![server("https://example.org/mcp".into(), Some("hush"))]).keeping_logins(&bench.path("logins"));
    assert!(mcp.logins().is_none());
    assert!(!bench.path("logins").exists());
}
