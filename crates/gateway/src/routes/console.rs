//! `/console/…`: browsers sign in and out. `POST /api/v1/console/links` makes a one-time link.

use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::http::header::USER_AGENT;
use axum::http::{HeaderMap, Method};
use axum::response::{IntoResponse, Response};
use belay_protocol::{Principal, SignIn, UnixMillis};
use serde::{Deserialize, Serialize};

use crate::app::{App, Shared};
use crate::console::{admission, files};
use crate::entry::Entry;
use crate::error::ApiError;
use crate::extract::{Caller, JsonBody, Operator};
use crate::peer::Peer;
use crate::sign_ins::cookie::sees_tls;
use crate::sign_ins::{SignedIn, VALID_MS};

/// How a browser proves who it is: one of the two.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "SignInProof"))]
#[serde(deny_unknown_fields)]
pub(crate) struct Proof {
    /// The token, or that of the operators.
    token: Option<String>,
    /// The secret of a one-time link.
    link: Option<String>,
}

/// Who the page is.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ConsoleSession"))]
pub(crate) struct Session {
    /// `operator` or `client`.
    #[cfg_attr(test, schemars(extend("enum" = ["operator", "client"])))]
    role: &'static str,
    /// Whether a cookie says so. `false`: the address of the browser does, or a token in the request.
    cookie: bool,
    /// The version of the daemon.
    version: String,
}

/// A browser that is signed in.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SignInReport {
    id: String,
    /// `operator` or `client`.
    #[cfg_attr(test, schemars(extend("enum" = ["operator", "client"])))]
    role: &'static str,
    created_at: UnixMillis,
    /// Lags by at most a minute.
    used_at: UnixMillis,
    expires_at: UnixMillis,
    /// The browser, as it names itself.
    agent: String,
    /// Whether the request came with it.
    current: bool,
}

/// The browsers that are signed in.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SignInList {
    sessions: Vec<SignInReport>,
}

/// How many sign-ins were ended.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct EndedSignIns {
    ended: usize,
}

/// A one-time link.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ConsoleLink {
    /// The address of the console, with the secret of the link if a sign-in is needed; relative, if the daemon listens at
    /// no address.
    url: String,
    /// When it is not valid any more. `null`: no sign-in is needed here.
    expires_at: Option<UnixMillis>,
}

/// Signs a browser in.
pub(crate) async fn sign_in(
    State(app): State<Shared>,
    Extension(peer): Extension<Peer>,
    method: Method,
    headers: HeaderMap,
    JsonBody(proof): JsonBody<Proof>,
) -> Result<Response, ApiError> {
    let Peer::Tcp(_) = peer else { return Err(ApiError::forbidden("the control socket needs no sign-in")) };
    admission::own_page(&app, &method, &headers)?;
    if !app.auth.needs_token() {
        return Err(ApiError::decided("no token is configured, so this machine needs no sign-in"));
    }
    let entry = match (proof.token, proof.link) {
        (Some(token), None) => app.auth.entry_of(token.as_bytes()),
        (None, Some(link)) if app.sign_ins.links.take(&link).await? => Ok(Entry::Link),
        (None, Some(_)) => {
            Err(ApiError::unauthorized("the link has expired, or was used: `belay console` makes another"))
        }
        _ => return Err(ApiError::invalid("token: one of token and link is needed")),
    };
    let entry = match entry {
        Ok(entry) => entry,
        Err(error) => return Err(app.wrong_tokens.refuse(Some(peer), error).await),
    };
    let agent = headers.get(USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()));
    let before = admission::signed_in(&app, peer, &headers).await?;
    let (secret, sign_in) = app.sign_ins.begin(entry, &agent.unwrap_or_default(), sees_tls(&headers)).await?;
    // A browser has one sign-in.
    app.sign_ins.end(before.into_iter().map(|before| before.sign_in.id).collect()).await?;
    tracing::info!(principal = entry.id(), sign_in = sign_in.id, "a browser has signed in");
    let cookie = app.cookies.set(&headers, &secret, VALID_MS / 1000);
    Ok((cookie, Json(session_of(&app, &entry.principal(), true))).into_response())
}

/// Who the page is.
pub(crate) async fn show(
    State(app): State<Shared>,
    Caller(principal): Caller,
    current: Option<Extension<SignedIn>>,
) -> Json<Session> {
    Json(session_of(&app, &principal, current.is_some()))
}

/// Signs this browser out.
pub(crate) async fn sign_out(
    State(app): State<Shared>,
    current: Option<Extension<SignedIn>>,
) -> Result<Response, ApiError> {
    let ids = current.into_iter().map(|Extension(current)| current.sign_in.id).collect();
    Ok(without_cookie(&app, app.sign_ins.end(ids).await?))
}

/// Lists the browsers that are signed in.
pub(crate) async fn list(
    State(app): State<Shared>,
    Caller(principal): Caller,
    current: Option<Extension<SignedIn>>,
) -> Result<Json<SignInList>, ApiError> {
    let current = current.map(|Extension(current)| current.sign_in.id);
    let report = |sign_in: SignIn| SignInReport {
        role: role_of_id(&sign_in.principal),
        current: current.as_ref() == Some(&sign_in.id),
        id: sign_in.id,
        created_at: sign_in.created_at,
        used_at: sign_in.used_at,
        expires_at: sign_in.expires_at,
        agent: sign_in.agent,
    };
    let sessions = visible(&app, &principal).await?.into_iter().map(report).collect();
    Ok(Json(SignInList { sessions }))
}

/// Ends all sign-ins that the caller may see. For an operator, links are withdrawn too.
pub(crate) async fn end_all(State(app): State<Shared>, Caller(principal): Caller) -> Result<Response, ApiError> {
    if principal.is_operator() {
        app.sign_ins.links.clear().await?;
    }
    let ids = visible(&app, &principal).await?.into_iter().map(|sign_in| sign_in.id).collect();
    Ok(without_cookie(&app, app.sign_ins.end(ids).await?))
}

/// Ends one sign-in.
pub(crate) async fn end(
    State(app): State<Shared>,
    Caller(principal): Caller,
    Path(id): Path<String>,
) -> Result<Json<EndedSignIns>, ApiError> {
    let known = visible(&app, &principal).await?.iter().any(|sign_in| sign_in.id == id);
    match app.sign_ins.end(if known { vec![id] } else { Vec::new() }).await? {
        0 => Err(ApiError::not_found("no such sign-in")),
        ended => Ok(Json(EndedSignIns { ended })),
    }
}

/// Makes a one-time link. Over the control socket only: a browser must not renew its own permission.
pub(crate) async fn make_link(
    State(app): State<Shared>,
    _: Operator,
    Extension(peer): Extension<Peer>,
) -> Result<Json<ConsoleLink>, ApiError> {
    if matches!(peer, Peer::Tcp(_)) {
        return Err(ApiError::forbidden("links are made over the control socket: `belay console`"));
    }
    if !app.config.console {
        return Err(ApiError::decided(files::ABSENT.unwrap_or("there is no console: gateway.console = false")));
    }
    let base = app.address.map_or_else(|| "/".to_owned(), |address| format!("http://{address}/"));
    if !app.auth.needs_token() {
        return Ok(Json(ConsoleLink { url: base, expires_at: None }));
    }
    let (secret, expires_at) = app.sign_ins.links.issue().await?;
    // In the fragment: browsers send it to no server, so it is in no log.
    Ok(Json(ConsoleLink { url: format!("{base}#link={secret}"), expires_at: Some(expires_at) }))
}

/// The sign-ins that a principal may see and end: operators all, others their own.
async fn visible(app: &App, principal: &Principal) -> Result<Vec<SignIn>, ApiError> {
    Ok(app
        .sign_ins
        .all()
        .await?
        .into_iter()
        .filter(|sign_in| principal.is_operator() || *principal.id == *sign_in.principal)
        .collect())
}

fn session_of(app: &App, principal: &Principal, cookie: bool) -> Session {
    Session { role: role(principal), cookie, version: app.version.clone() }
}

fn role(principal: &Principal) -> &'static str {
    if principal.is_operator() { "operator" } else { "client" }
}

fn role_of_id(id: &str) -> &'static str {
    let entry = Entry::ALL.into_iter().find(|entry| entry.id() == id);
    entry.map_or("client", |entry| role(&entry.principal()))
}

fn without_cookie(app: &App, ended: usize) -> Response {
    (app.cookies.delete(), Json(EndedSignIns { ended })).into_response()
}
