//! Reads of stored sessions: `GET /api/v1/search`, `/api/v1/sessions/{key}/threads` and `/export`. Deletions by
//! operators: `DELETE /api/v1/sessions/{key}` and `/secrets`, `POST /api/v1/prune`.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use belay_protocol::archive::QUERY_MAX_BYTES;
use belay_protocol::{
    Ack, Archive, Control, Found, Removed, SearchQuery, SessionChange, SessionKey, SessionSummary, StoreError,
    ThreadSummary, plain_line,
};
use futures_util::stream;
use serde::{Deserialize, Serialize};

use super::status::Nothing;
use crate::app::Shared;
use crate::checks::{check_limit, no_such_session};
use crate::cursor;
use crate::error::ApiError;
use crate::export::Format;
use crate::extract::{Caller, JsonBody, NamePath, Operator, OptionalBody, Params};
use crate::visibility::VisibleSession;

/// Messages per page of an export.
const PAGE: u32 = 200;

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchParams {
    q: String,
    session: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// The length of a page.
    #[cfg_attr(test, schemars(range(min = 1, max = 500)))]
    limit: Option<u32>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FoundList {
    found: Vec<Found>,
    /// The value of `after` for the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Searches messages for words, best match first, in pages.
pub(crate) async fn search(
    State(app): State<Shared>,
    Caller(principal): Caller,
    Params(params): Params<SearchParams>,
) -> Result<Response, ApiError> {
    let session = app.visibility(&principal).named_session("session", params.session.as_deref()).await?;
    let session = session.map(VisibleSession::into_key);
    if params.q.len() > QUERY_MAX_BYTES {
        return Err(ApiError::invalid(format!("q: at most {QUERY_MAX_BYTES} bytes")));
    }
    let limit = check_limit(params.limit.or(Some(20)))?;
    let mut query = SearchQuery { words: params.q, session, ..SearchQuery::default() };
    let terms = query.terms();
    if terms.is_empty() {
        return Err(ApiError::invalid("q: a word to look for is needed"));
    }
    let cursor = cursor::Search::of(&terms, query.session.as_ref());
    query.skip = cursor.skip(params.after.as_deref())?;
    query.limit = limit + 1; // one row more than a page tells whether a page follows
    let after_page = query.skip.checked_add(limit);
    let mut found = app.archive.search(query).await?;
    let next = after_page.filter(|_| found.len() > limit as usize).map(|skip| cursor.after(skip));
    found.truncate(limit as usize);
    let found = app.visibility(&principal).rows(found, |found| &found.session).await?;
    Ok(Json(FoundList { found, next }).into_response())
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ThreadList {
    threads: Vec<ThreadSummary>,
}

/// Lists the conversations of a session, oldest first.
pub(crate) async fn threads(State(app): State<Shared>, session: VisibleSession) -> Result<Response, ApiError> {
    Ok(Json(ThreadList { threads: threads_of(&app, session.key()).await? }).into_response())
}

async fn threads_of(app: &Shared, key: &SessionKey) -> Result<Vec<ThreadSummary>, ApiError> {
    let threads = app.archive.threads(key).await?;
    if threads.is_empty() { Err(no_such_session(key)) } else { Ok(threads) }
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportParams {
    #[serde(default)]
    format: Format,
    #[serde(default)]
    threads: Which,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ExportedThreads"))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Which {
    #[default]
    Active,
    All,
}

/// Exports a session, page by page. The export of a conversation that is deleted meanwhile ends there.
pub(crate) async fn export(
    State(app): State<Shared>,
    session: VisibleSession,
    Params(params): Params<ExportParams>,
) -> Result<Response, ApiError> {
    let key = session.into_key();
    let mut threads = threads_of(&app, &key).await?;
    threads.retain(|thread| params.threads == Which::All || thread.active);
    let (format, archive) = (params.format, app.archive.clone());
    let writing = Writing {
        archive,
        format,
        title: Some(format.title(&key)),
        session: key,
        threads: threads.into(),
        after: None,
    };
    let pages = stream::try_unfold(writing, |mut writing| async move {
        Ok::<_, StoreError>(writing.next_page().await?.map(|page| (page, writing)))
    });
    Ok(([(CONTENT_TYPE, format.content_type())], Body::from_stream(pages)).into_response())
}

/// The state of an export.
struct Writing {
    archive: Arc<dyn Archive>,
    format: Format,
    session: SessionKey,
    /// The text before everything, until it is written.
    title: Option<String>,
    /// Conversations that are not completely written; the first may be partly written.
    threads: VecDeque<ThreadSummary>,
    /// The last message of the first conversation that is written; `None`: none is.
    after: Option<u64>,
}

impl Writing {
    async fn next_page(&mut self) -> Result<Option<String>, StoreError> {
        if let Some(title) = self.title.take().filter(|title| !title.is_empty()) {
            return Ok(Some(title));
        }
        while let Some(thread) = self.threads.front() {
            let mut page = if self.after.is_none() { self.format.head(thread) } else { String::new() };
            let lines = self.archive.transcript(thread.thread, self.after.unwrap_or(0), PAGE).await?;
            page.extend(lines.iter().map(|line| self.format.line(&self.session, thread, line)));
            match lines.last() {
                Some(last) => self.after = Some(last.id),
                None => {
                    self.threads.pop_front();
                    self.after = None;
                }
            }
            if !page.is_empty() {
                return Ok(Some(page));
            }
        }
        Ok(None)
    }
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "DeletedSession"))]
pub(crate) struct Deleted {
    session: SessionKey,
    removed: Removed,
}

/// Longest title in characters.
const TITLE_MAX: usize = 200;

/// Changes of a session. At least one is needed.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionChanges {
    /// The title of its current conversation: one line of at most 200 characters; empty: the first words of the
    /// conversation.
    title: Option<String>,
    /// Whether lists leave it out until its next message.
    hidden: Option<bool>,
}

impl SessionChanges {
    fn change(&self) -> Result<SessionChange, ApiError> {
        let title = self.title.as_deref().map(str::trim);
        if title.is_some_and(|title| title.chars().count() > TITLE_MAX || title.contains(char::is_control)) {
            return Err(ApiError::invalid(format!("title: one line of at most {TITLE_MAX} characters")));
        }
        // Other line breaks and hidden characters are no control characters.
        let title = title.map(|title| plain_line(title, TITLE_MAX));
        let change = SessionChange { title, hidden: self.hidden };
        if change == SessionChange::default() {
            return Err(ApiError::invalid("title or hidden: one of them is needed"));
        }
        Ok(change)
    }
}

/// Gives the current conversation of a session a title, hides the session or shows it again; operators only.
pub(crate) async fn change(
    State(app): State<Shared>,
    Operator(_): Operator,
    session: VisibleSession,
    JsonBody(body): JsonBody<SessionChanges>,
) -> Result<Json<SessionSummary>, ApiError> {
    let (key, change) = (session.into_key(), body.change()?);
    if app.sessions.session(&key).await?.is_none() {
        return Err(no_such_session(&key));
    }
    app.archive.change_session(&key, change).await?;
    app.sessions.session(&key).await?.map(Json).ok_or_else(|| no_such_session(&key))
}

/// Deletes a session; operators only.
pub(crate) async fn delete(
    State(app): State<Shared>,
    Operator(principal): Operator,
    session: VisibleSession,
    OptionalBody(Nothing {}): OptionalBody<Nothing>,
) -> Result<Response, ApiError> {
    let key = session.into_key();
    if app.sessions.session(&key).await?.is_none() {
        return Err(no_such_session(&key));
    }
    match app.control(principal, Control::DeleteSession(key.clone())).await? {
        Ack::Removed(removed) => Ok(Json(Deleted { session: key, removed }).into_response()),
        other => Err(ApiError::unexpected(&other)),
    }
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ForgottenSecrets"))]
pub(crate) struct Forgotten {
    session: SessionKey,
    forgotten: u32,
}

/// Deletes all secrets of a session; operators only.
pub(crate) async fn forget_secrets(
    State(app): State<Shared>,
    _: Operator,
    session: VisibleSession,
) -> Result<Response, ApiError> {
    let session = session.into_key();
    let forgotten = app.kept.vault.forget_all(&session).await?;
    Ok(Json(Forgotten { session, forgotten }).into_response())
}

/// Deletes one secret of a session; operators only.
pub(crate) async fn forget_secret(
    State(app): State<Shared>,
    _: Operator,
    session: VisibleSession,
    NamePath(name): NamePath,
) -> Result<Response, ApiError> {
    let session = session.into_key();
    if !app.kept.vault.forget(&session, &name).await? {
        return Err(ApiError::not_found(format!("{session} has no secret {name:?}")));
    }
    Ok(Json(Forgotten { session, forgotten: 1 }).into_response())
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct PruneParams {
    #[serde(default)]
    dry_run: bool,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Pruned {
    dry_run: bool,
    removed: Removed,
}

/// Deletes data that is older than the settings allow; a dry run only counts it. Operators only.
pub(crate) async fn prune(
    State(app): State<Shared>,
    _: Operator,
    Params(PruneParams { dry_run }): Params<PruneParams>,
    OptionalBody(Nothing {}): OptionalBody<Nothing>,
) -> Result<Response, ApiError> {
    Ok(Json(Pruned { dry_run, removed: app.janitor.tidy(dry_run).await? }).into_response())
}
