//! A server that wants a token, and its authorization server, both at one address.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use url::Url;
use url::form_urlencoded::parse;

/// How a token endpoint answers instead of granting.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Fault {
    /// With this status and this error.
    Error(u16, &'static str),
    /// It grants tokens, and the connection breaks.
    Lost,
}

pub(super) struct Host {
    pub(super) address: SocketAddr,
    seen: Mutex<Seen>,
    /// Refreshes wait here.
    pub(super) gate: Semaphore,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
pub(super) struct Seen {
    pub(super) access: String,
    pub(super) refresh: String,
    pub(super) scopes: String,
    /// The codes that were given out, with the digest of the verifier.
    codes: HashMap<String, String>,
    /// The forms that came to the token endpoint.
    pub(super) forms: Vec<HashMap<String, String>>,
    pub(super) registered: Vec<Value>,
    pub(super) revoked: Vec<String>,
    /// Fields that replace those of the metadata.
    pub(super) resource: Value,
    pub(super) metadata: Value,
    /// The metadata is instead this.
    pub(super) instead: Option<Instead>,
    pub(super) fault: Option<Fault>,
    pub(super) lifetime_s: Option<u64>,
    /// A call needs this scope.
    pub(super) needs: Option<&'static str>,
    /// Fields that replace those of the answer to a registration.
    pub(super) registers: Value,
    /// Only calls need a token.
    pub(super) is_open: bool,
    /// So many calls are refused as if the token were bad.
    pub(super) refusals: usize,
    /// The headers of a request are in the answer.
    pub(super) echoes: Option<Echoes>,
    grants: usize,
}

/// Where a server repeats the headers of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Echoes {
    /// In a refusal of a call, which is no message.
    Refusal,
    /// In the error of a call.
    Error,
    ErrorInStream,
    /// In the result of a call.
    Result,
    ResultInStream,
    /// In the descriptions of tools.
    Descriptions,
}

#[derive(Clone)]
pub(super) enum Instead {
    Redirect(String),
    Huge,
}

impl Host {
    pub(super) async fn open() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let gate = Semaphore::new(Semaphore::MAX_PERMITS);
        Arc::new_cyclic(|host: &std::sync::Weak<Self>| {
            let host = host.clone();
            let mut tasks = JoinSet::new();
            let router = Router::new()
                .route("/mcp", any(mcp))
                .route("/.well-known/oauth-protected-resource/mcp", get(resource))
                .route("/.well-known/oauth-authorization-server", get(metadata))
                .route("/register", post(register))
                .route("/token", post(token))
                .route("/revoke", post(revoke))
                .with_state(host);
            tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
            Self { address, seen: Mutex::default(), gate, _tasks: tasks }
        })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Seen) -> T) -> T {
        change(&mut self.seen.lock().unwrap())
    }

    /// The requests of this kind at the token endpoint.
    pub(super) fn count(&self, kind: &str) -> usize {
        self.change(|seen| seen.forms.iter().filter(|form| form["grant_type"] == kind).count())
    }

    /// What a person does who agrees: the query with which the browser is sent back.
    pub(super) fn agree(&self, url: &str) -> String {
        let asked: HashMap<String, String> = Url::parse(url).unwrap().query_pairs().into_owned().collect();
        assert_eq!(asked["code_challenge_method"], "S256");
        let code = self.change(|seen| {
            seen.scopes = asked.get("scope").cloned().unwrap_or_default();
            let code = format!("code-{}", seen.codes.len());
            seen.codes.insert(code.clone(), asked["code_challenge"].clone());
            code
        });
        format!("code={code}&state={}&iss={}", asked["state"], self.url())
    }
}

type Shared = State<std::sync::Weak<Host>>;

fn merged(mut object: Value, with: &Value) -> Value {
    object.as_object_mut().unwrap().extend(with.as_object().cloned().unwrap_or_default());
    object
}

async fn resource(State(host): Shared) -> Response {
    let host = host.upgrade().unwrap();
    let url = host.url();
    let own = json!({ "resource": format!("{url}/mcp"), "authorization_servers": [url] });
    axum::Json(host.change(|seen| merged(own, &seen.resource))).into_response()
}

async fn metadata(State(host): Shared) -> Response {
    let host = host.upgrade().unwrap();
    let url = host.url();
    match host.change(|seen| seen.instead.clone()) {
        Some(Instead::Redirect(to)) => return (StatusCode::FOUND, [(header::LOCATION, to)]).into_response(),
        Some(Instead::Huge) => {
            return format!("{{\"issuer\": \"{url}\", \"x\": \"{}\"}}", "x".repeat(5 << 20)).into_response();
        }
        None => {}
    }
    let own = json!({
        "issuer": url,
        "authorization_endpoint": format!("{url}/authorize"),
        "token_endpoint": format!("{url}/token"),
        "registration_endpoint": format!("{url}/register"),
        "revocation_endpoint": format!("{url}/revoke"),
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": true,
        "scopes_supported": ["offline_access"],
    });
    axum::Json(host.change(|seen| merged(own, &seen.metadata))).into_response()
}

async fn register(State(host): Shared, axum::Json(body): axum::Json<Value>) -> Response {
    let host = host.upgrade().unwrap();
    let own = json!({ "client_id": "registered", "client_secret": "" });
    let answer = host.change(|seen| {
        seen.registered.push(body);
        merged(own, &seen.registers)
    });
    (StatusCode::CREATED, axum::Json(answer)).into_response()
}

async fn token(State(host): Shared, headers: HeaderMap, body: String) -> Response {
    let host = host.upgrade().unwrap();
    let mut form: HashMap<String, String> = parse(body.as_bytes()).into_owned().collect();
    if let Some(header) = headers.get(header::AUTHORIZATION) {
        form.insert("header".into(), header.to_str().unwrap().to_owned());
    }
    let is_refresh = form["grant_type"] == "refresh_token";
    host.change(|seen| seen.forms.push(form.clone()));
    if is_refresh {
        let _ = host.gate.acquire().await;
    }
    let refused = |status: u16, error: &str| {
        let body = json!({ "error": error, "error_description": format!("{body} is refused") });
        (StatusCode::from_u16(status).unwrap(), axum::Json(body)).into_response()
    };
    let fault = host.change(|seen| seen.fault);
    if let Some(Fault::Error(status, error)) = fault {
        return refused(status, error);
    }
    let is_fine = host.change(|seen| match is_refresh {
        true => form["refresh_token"] == seen.refresh,
        false => {
            let digest = base64::Engine::encode(
                &base64::engine::general_purpose::URL_SAFE_NO_PAD,
                <sha2::Sha256 as sha2::Digest>::digest(&form["code_verifier"]),
            );
            seen.codes.remove(&form["code"]) == Some(digest)
        }
    });
    if !is_fine {
        return refused(400, "invalid_grant");
    }
    let granted = host.change(|seen| {
        seen.grants += 1;
        (seen.access, seen.refresh) = (format!("access-{}", seen.grants), format!("refresh-{}", seen.grants));
        let mut granted =
            json!({ "access_token": seen.access, "token_type": "Bearer", "refresh_token": seen.refresh, "scope": seen.scopes });
        if let Some(lifetime) = seen.lifetime_s {
            granted["expires_in"] = lifetime.into();
        }
        granted
    });
    if fault == Some(Fault::Lost) {
        let broken = futures_util::stream::iter([Ok("{"), Err(std::io::Error::other("broken"))]);
        return Body::from_stream(broken).into_response();
    }
    axum::Json(granted).into_response()
}

async fn revoke(State(host): Shared, body: String) -> StatusCode {
    let host = host.upgrade().unwrap();
    let form: HashMap<String, String> = parse(body.as_bytes()).into_owned().collect();
    host.change(|seen| seen.revoked.push(form["token"].clone()));
    StatusCode::OK
}

async fn mcp(State(host): Shared, headers: HeaderMap, request: Request) -> Response {
    let host = host.upgrade().unwrap();
    let token = headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let challenge = |status: StatusCode, more: &str| {
        let place =
            format!("Bearer resource_metadata=\"{}/.well-known/oauth-protected-resource/mcp\"{more}", host.url());
        (status, [(header::WWW_AUTHENTICATE, place)]).into_response()
    };
    let message = serde_json::from_slice::<Value>(&body);
    let is_call = message.as_ref().is_ok_and(|message| message["method"] == "tools/call");
    let is_refused = host.change(|seen| {
        let is_bad = seen.access.is_empty() || token != format!("Bearer {}", seen.access);
        let is_in_turn = is_call && seen.refusals > 0;
        seen.refusals -= usize::from(is_in_turn);
        is_in_turn || (is_bad && (is_call || !seen.is_open))
    });
    if is_refused {
        return challenge(StatusCode::UNAUTHORIZED, "");
    }
    let Ok(message) = message else {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    };
    let echoes = host.change(|seen| seen.echoes);
    if is_call && let Some(echoes) = echoes {
        return echoed(echoes, &message["id"], &token);
    }
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": { "name": "x", "version": "1" },
        }),
        "tools/list" => {
            let description = if echoes == Some(Echoes::Descriptions) { &*token } else { "Says it." };
            json!({ "tools": [{ "name": "t", "description": description, "inputSchema": { "type": "object" } }] })
        }
        "tools/call" => {
            let lacks =
                host.change(|seen| seen.needs.filter(|needs| !seen.scopes.split(' ').any(|scope| scope == *needs)));
            if let Some(needs) = lacks {
                return challenge(StatusCode::FORBIDDEN, &format!(", error=\"insufficient_scope\", scope=\"{needs}\""));
            }
            json!({ "content": [{ "type": "text", "text": "over http" }] })
        }
        "server/discover" => return StatusCode::BAD_REQUEST.into_response(),
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    axum::Json(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })).into_response()
}

/// The answer to a call, with the header of its request.
fn echoed(echoes: Echoes, id: &Value, token: &str) -> Response {
    let headers = json!({ "headers": { "authorization": token } });
    let answer = match echoes {
        Echoes::Refusal => return (StatusCode::IM_A_TEAPOT, axum::Json(headers)).into_response(),
        Echoes::Error | Echoes::ErrorInStream => {
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": 1, "message": token, "data": headers } })
        }
        _ => json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [{ "type": "text", "text": token }] } }),
    };
    match echoes {
        Echoes::ErrorInStream | Echoes::ResultInStream => {
            // Some encoders escape more than they must.
            let data = answer.to_string().replace('-', "\\u002d");
            ([(header::CONTENT_TYPE, "text/event-stream")], format!("data: {data}\n\n")).into_response()
        }
        _ => axum::Json(answer).into_response(),
    }
}
