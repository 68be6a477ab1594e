//! The route table and the layers of every request.

use std::any::Any;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, OriginalUri, Request};

use axum::http::header::{AUTHORIZATION, CONTENT_DISPOSITION, CONTENT_TYPE, COOKIE, HOST, ORIGIN, RETRY_AFTER};
use axum::http::{HeaderName, Method};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;
use tower_http::trace::{DefaultOnFailure, TraceLayer};
use tracing::Level;

use crate::app::Shared;
use crate::auth::API_KEY;
use crate::error::{ApiError, ErrorCode};
use crate::file_links;
use crate::guard::guard;
use crate::openapi;
use crate::routes::openai::{anthropic, responses};
use crate::routes::{
    agent, approvals, archive, backups, console, context, costs, ends, error_for, events, files, freeze, health,
    heartbeat, hooks, jobs, judge, logins, memory, messages, models, nodes, openai, people, principals, routine_runs,
    routines, runs, sessions, settings, status, stop, tools, webhook,
};
use crate::table::{Table, delete, get, post};
use crate::{mcp, ws};

/// Builds the router: the gateway's routes and those of `extra`, under the layers that every request passes.
///
/// If both have a route with the same path, the gateway's route wins.
pub(crate) fn router(app: Shared, extra: Vec<Router>) -> Router {
    let extra = extra.into_iter().fold(Router::new().fallback(not_found), Router::merge);
    let extra = extra.layer(DefaultBodyLimit::max(app.config.max_body_bytes));
    let layers = ServiceBuilder::new()
        .layer(SetSensitiveRequestHeadersLayer::new([AUTHORIZATION, API_KEY, COOKIE, hooks::SECRET_HEADER]))
        .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
        .layer(TraceLayer::new_for_http().make_span_with(span).on_failure(DefaultOnFailure::new().level(Level::DEBUG)))
        .layer(PropagateRequestIdLayer::x_request_id())
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn(anthropic::identified))
        .layer(from_fn(refuse_duplicate_headers));
    let mut routes = guarded(&app).merge(open(&app));
    if !app.config.cors_origins.is_empty() {
        routes = routes.layer(cors(&app.config.cors_origins));
    }
    if app.config.console || crate::console::files::ABSENT.is_some() {
        routes = routes.merge(crate::console::files::router());
    }
    routes.with_state(app).fallback_service(extra).layer(layers)
}

/// The paths that the gateway serves and that no table lists, in any settings.
const OTHER_PATHS: [&str; 4] = ["/", MCP_PATHS[0], MCP_PATHS[1], "/api"];

/// The paths of the MCP endpoint: many clients are configured with a slash at the end.
const MCP_PATHS: [&str; 2] = ["/mcp", "/mcp/"];

/// The beginnings of such paths.
const OTHER_BEGINNINGS: [&str; 3] = ["/api/", "/v1/", "/console/assets/"];

/// Whether the gateway serves this path itself, in any settings. Such a path is no path for a route of another channel.
pub fn serves(path: &str) -> bool {
    let tables = [principals_table(), console_table(), open_table(true), sign_in_table()];
    let mut listed = tables.iter().flat_map(Table::routes).map(|(_, pattern)| *pattern).chain(OTHER_PATHS);
    listed.any(|pattern| fits(pattern, path)) || OTHER_BEGINNINGS.iter().any(|beginning| path.starts_with(beginning))
}

/// Whether a path fits the pattern of a route: a name in braces stands for one part of it.
fn fits(pattern: &str, path: &str) -> bool {
    let mut parts = path.split('/');
    for wanted in pattern.split('/') {
        match parts.next() {
            Some(part) if wanted.starts_with('{') && !part.is_empty() => {}
            Some(part) if part == wanted => {}
            _ => return false,
        }
    }
    parts.next().is_none()
}

/// How long a browser may keep the answer to a preflight. 10 minutes: a removed origin loses its access soon.
const PREFLIGHT_KEPT: Duration = Duration::from_secs(600);

/// Answers preflights, and tells browsers that pages of these origins may read the answers. Credentials of the browser
/// are not allowed; the guard demands a token.
fn cors(origins: &[String]) -> CorsLayer {
    let origins = origins.iter().filter_map(|origin| origin.parse().ok()); // checked with the settings
    CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
        // Clients send headers of their own, such as `x-stainless-os`. They decide nothing here.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(EXPOSED)
        .max_age(PREFLIGHT_KEPT)
}

/// The response headers of this API that are not readable by default.
const EXPOSED: [HeaderName; 7] = [
    RETRY_AFTER,
    CONTENT_DISPOSITION,
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("request-id"),
    HeaderName::from_static("x-belay-run"),
    HeaderName::from_static("x-belay-reason"),
    openai::SESSION_HEADER,
];

/// The span of a request, as [`tower_http`] makes it, without the token of a link.
fn span<B>(request: &axum::http::Request<B>) -> tracing::Span {
    let uri = request.uri();
    let uri = if uri.path().starts_with(file_links::PATH) { file_links::PATH.to_owned() } else { uri.to_string() };
    tracing::debug_span!("request", method = %request.method(), %uri, version = ?request.version())
}

/// Routes that need a principal.
fn guarded(app: &Shared) -> Router<Shared> {
    let mut guarded = principals_table();
    if app.config.console {
        guarded = guarded.merge(console_table());
    }
    if app.config.mcp {
        guarded = mcp::add_to(guarded, app, MCP_PATHS);
    }
    guarded
        .into_router()
        .method_not_allowed_fallback(wrong_method)
        // The guard also covers unknown routes: a stranger cannot learn which routes exist.
        .route("/api", any(not_found))
        .route("/api/{*rest}", any(not_found))
        .route("/v1/{*rest}", any(not_found))
        .layer(from_fn_with_state(app.clone(), guard))
}

/// The routes of principals, described in `openapi`. `/mcp` has a protocol of its own.
pub(crate) fn principals_table() -> Table {
    Table::new()
        .route("/api/v1/messages", post(messages::send))
        .route("/api/v1/files", post(files::upload))
        .route("/api/v1/agent", post(agent::send))
        .route("/api/v1/agent/wait", post(agent::wait))
        .route("/api/v1/runs", get(runs::list))
        .route("/api/v1/runs/{id}", get(runs::show))
        .route("/api/v1/runs/{id}/wait", get(runs::wait))
        .route("/api/v1/runs/{id}/events", get(events::of_run))
        .route("/api/v1/runs/{id}/stream", get(agent::of_run))
        .route("/api/v1/runs/{id}/trajectory", get(runs::trajectory))
        .route("/api/v1/runs/{id}/stop", post(stop::run))
        .route("/api/v1/events", get(events::all).post(routine_runs::emit))
        .route("/api/v1/jobs", get(jobs::list).post(jobs::create))
        .route("/api/v1/jobs/{id}", get(jobs::show))
        .route("/api/v1/jobs/{id}/events", get(jobs::events))
        .route("/api/v1/jobs/{id}/messages", post(jobs::message))
        .route("/api/v1/jobs/{id}/cancel", post(jobs::cancel))
        .route("/api/v1/jobs/{id}/accept", post(jobs::accept))
        .route("/api/v1/jobs/{id}/revoke", post(jobs::revoke))
        .route("/api/v1/heartbeat", get(heartbeat::show))
        .route("/api/v1/routines", get(routines::list).post(routines::create))
        // No routine name collides with this route: `POST /api/v1/routines/test` differs by its method.
        .route(
            "/api/v1/routines/{name}",
            get(routines::show).put(routines::put).delete(routines::delete).post(routines::test_new),
        )
        .route("/api/v1/routines/{name}/enable", post(routines::enable))
        .route("/api/v1/routines/{name}/disable", post(routines::disable))
        .route("/api/v1/routines/{name}/revoke", post(routines::revoke))
        .route("/api/v1/routines/{name}/fire", post(routines::fire))
        .route("/api/v1/routines/{name}/runs", get(routine_runs::of_routine))
        .route("/api/v1/routines/{name}/test", post(routines::test))
        .route("/api/v1/routine-runs", get(routine_runs::list))
        .route("/api/v1/routine-runs/next", get(routine_runs::next))
        .route("/api/v1/routine-runs/{id}", get(routine_runs::show))
        .route("/api/v1/tools", get(tools::list))
        .route("/api/v1/tools/{name}/disable", post(tools::disable))
        .route("/api/v1/tools/{name}/enable", post(tools::enable))
        .route("/api/v1/principals", get(principals::list))
        .route("/api/v1/people", get(people::list))
        .route("/api/v1/people/pair", post(people::pair))
        .route("/api/v1/people/{person}", delete(people::remove))
        .route("/api/v1/memory", get(memory::list).delete(memory::delete_all))
        .route("/api/v1/memory/{id}", get(memory::show).put(memory::edit).delete(memory::delete))
        .route("/api/v1/sessions", get(sessions::list))
        .route("/api/v1/sessions/{key}", get(sessions::show).put(archive::change).delete(archive::delete))
        .route("/api/v1/sessions/{key}/threads", get(archive::threads))
        .route("/api/v1/sessions/{key}/export", get(archive::export))
        .route("/api/v1/sessions/{key}/secrets", delete(archive::forget_secrets))
        .route("/api/v1/sessions/{key}/secrets/{name}", delete(archive::forget_secret))
        .route("/api/v1/search", get(archive::search))
        .route("/api/v1/prune", post(archive::prune))
        .route("/api/v1/sessions/{key}/messages", get(sessions::messages))
        .route("/api/v1/sessions/{key}/stream", get(agent::of_session))
        .route("/api/v1/sessions/{key}/context", get(context::show))
        .route("/api/v1/sessions/{key}/stop", post(stop::session))
        .route("/api/v1/approvals", get(approvals::list))
        .route("/api/v1/approvals/{id}", get(approvals::show).post(approvals::decide))
        .route("/api/v1/judge", post(judge::judge))
        .route("/api/v1/models", get(models::list))
        .merge(servers_table())
        .route("/api/v1/settings", get(settings::show))
        .route("/api/v1/costs", get(costs::show))
        .route("/api/v1/ends", get(ends::count))
        .route("/api/v1/latency", get(status::latency))
        .route("/api/v1/stop", post(stop::all))
        .route("/api/v1/freeze", get(freeze::show).post(freeze::begin))
        .route("/api/v1/thaw", post(freeze::thaw))
        .route("/api/v1/console/links", post(console::make_link))
        .route("/api/v1/backups", get(backups::list).post(backups::create))
        .route("/api/v1/nodes", get(nodes::list))
        .route("/api/v1/status", get(status::show))
        .route("/api/v1/shutdown", post(status::shutdown))
        .route("/metrics", get(status::metrics))
        .merge(openai_table())
}

/// The routes of MCP servers.
fn servers_table() -> Table {
    Table::new()
        .route("/api/v1/mcp", get(models::servers))
        .route("/api/v1/mcp/{name}/login", post(logins::begin).delete(logins::end))
        .route("/api/v1/mcp/{name}/login/finish", post(logins::finish))
}

/// The routes of OpenAI's and Anthropic's APIs.
fn openai_table() -> Table {
    Table::new()
        .route("/v1/models", get(openai::models))
        .route("/v1/models/{name}", get(openai::model))
        .route("/v1/chat/completions", post(openai::chat))
        .route("/v1/completions", post(openai::complete))
        .route("/v1/embeddings", post(openai::embeddings))
        .merge(anthropic::table())
        .merge(responses::table())
}

/// The routes of signed-in browsers, described in `openapi`.
pub(crate) fn console_table() -> Table {
    Table::new()
        .route("/console/session", get(console::show).delete(console::sign_out))
        .route("/console/sessions", get(console::list).delete(console::end_all))
        .route("/console/sessions/{id}", delete(console::end))
}

/// Routes that are open to all, or that authenticate requests themselves.
fn open(app: &Shared) -> Router<Shared> {
    let signed = app.webhook_secret.is_some();
    let mut open = open_table(signed);
    if app.config.console {
        open = open.merge(sign_in_table());
    }
    open.into_router().method_not_allowed_fallback(wrong_method)
}

/// The open routes, described in `openapi`; with that of signed messages, if they have a secret.
pub(crate) fn open_table(signed: bool) -> Table {
    let open = Table::new()
        .route("/openapi.json", get(openapi::show))
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/startupz", get(health::started))
        // The token in the path is the permission.
        .route("/api/v1/files/{token}", get(files::download))
        // Each webhook has a secret of its own.
        .route("/hooks/{name}", post(hooks::receive))
        // The first message may also authenticate: see `ws`.
        .route("/ws", get(ws::upgrade));
    if signed { open.route("/webhook", post(webhook::receive)) } else { open }
}

/// The sign-in of browsers, described in `openapi`.
pub(crate) fn sign_in_table() -> Table {
    Table::new().route("/console/sign-in", post(console::sign_in))
}

/// Headers that decide who asks for what. If one of them appears twice, one server of a proxy chain may read the first
/// value and another server the last.
///
/// Source of the last one: Telegram, setWebhook, `secret_token`.
const DECISIVE: [HeaderName; 12] = [
    HOST,
    ORIGIN,
    AUTHORIZATION,
    API_KEY,
    COOKIE,
    CONTENT_TYPE,
    hooks::SECRET_HEADER,
    hooks::DELIVERY_HEADER,
    webhook::SIGNATURE_HEADER,
    routines::KEY_HEADER,
    openai::SESSION_HEADER,
    HeaderName::from_static("x-telegram-bot-api-secret-token"),
];

/// Refuses a request that has one of the [`DECISIVE`] headers twice, on any route.
async fn refuse_duplicate_headers(request: Request, next: Next) -> Response {
    let twice = |name: &&HeaderName| request.headers().get_all(*name).iter().nth(1).is_some();
    match DECISIVE.iter().find(twice) {
        Some(name) => {
            let message = format!("the header {name} is there more than once");
            error_for(request.uri().path(), ApiError::bad_request(ErrorCode::DuplicateHeader, message))
        }
        None => next.run(request).await,
    }
}

async fn not_found(OriginalUri(uri): OriginalUri) -> Response {
    match uri.path() {
        path if path.starts_with("/v1/") => openai::no_such_route(path),
        path => error_for(path, ApiError::not_found("no such route")),
    }
}

async fn wrong_method(OriginalUri(uri): OriginalUri) -> Response {
    match uri.path() {
        path if path.starts_with("/v1/") => openai::wrong_method(path),
        path => error_for(path, ApiError::method_not_allowed()),
    }
}

fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    let what = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = what.unwrap_or("unknown"), "a handler panicked");
    ApiError::internal().into_response()
}

#[cfg(test)]
mod tests {
    use super::serves;

    #[test]
    fn the_paths_of_the_gateway_are_told_from_free_ones() {
        for (path, expected) in [
            ("/", true),
            ("/livez", true),
            ("/metrics", true),
            ("/webhook", true),
            ("/hooks/ci", true),
            ("/hooks/ci/more", false),
            ("/hooks", false),
            ("/ws", true),
            ("/mcp", true),
            ("/mcp/", true),
            ("/mcp/x", false),
            ("/api", true),
            ("/api/v2/anything", true),
            ("/v1/chat/completions", true),
            ("/v1", false),
            ("/console/sign-in", true),
            ("/console/assets/a/b.js", true),
            ("/telegram/webhook", false),
            ("/livez/", false),
        ] {
            assert_eq!(serves(path), expected, "{path}");
        }
    }
}
