//! `/api/v1/memory`: the notes of persons and groups. Operators read and change all of them, others only their own.

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use belay_protocol::{MemoryOwner, Note, NoteFilter, NoteSelection, Principal, SessionKey, StoreError};
use serde::{Deserialize, Serialize};

use crate::app::{App, Shared};
use crate::checks::check_limit;
use crate::error::ApiError;
use crate::extract::{Caller, JsonBody, Params, path_text};
use crate::visibility::Page;

/// The maximum length of a search, in bytes.
const WORDS_MAX_BYTES: usize = belay_protocol::archive::QUERY_MAX_BYTES;

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// `CHANNEL:ID`.
    person: Option<String>,
    /// The session of a group.
    group: Option<String>,
    q: Option<String>,
    /// The `next` of the page before.
    #[serde(default)]
    after: u64,
    /// The length of a page.
    #[cfg_attr(test, schemars(range(min = 1, max = 500)))]
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteParams {
    person: Option<String>,
    group: Option<String>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "NoteText"))]
#[serde(deny_unknown_fields)]
pub(crate) struct Edited {
    text: String,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NoteList {
    notes: Vec<Note>,
    /// The value of `after` for the next page; absent on the last page, and with `q`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NotesDeleted {
    deleted: u64,
}

/// The number of the note in the path.
pub(crate) struct NotePath(u64);

impl FromRequestParts<Shared> for NotePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let id = path_text(parts, app, "id").await?.parse();
        id.map(Self).map_err(|_not_a_number| ApiError::not_found("no such note: its id is not a number"))
    }
}

/// Lists notes, oldest first, in pages; with `q`, those that contain any of the words, best first.
pub(crate) async fn list(
    State(app): State<Shared>,
    Caller(caller): Caller,
    Params(params): Params<ListParams>,
) -> Result<Json<NoteList>, ApiError> {
    let ListParams { person, group, q, after, limit } = params;
    let words = q.unwrap_or_default();
    if words.len() > WORDS_MAX_BYTES {
        return Err(ApiError::invalid(format!("q: at most {WORDS_MAX_BYTES} bytes")));
    }
    let owner = match named(person.as_deref(), group.as_deref())? {
        Some(owner) => Some(visible(&app, &caller, owner)?),
        None => (!caller.is_operator()).then(|| own(&app, &caller)),
    };
    let limit = check_limit(limit)?;
    let in_order = words.trim().is_empty();
    let filter = NoteFilter { owner, id: None, after, words, limit: limit.saturating_add(1) };
    let page = Page::cut(app.notes.notes(filter).await?, limit, |note| note.id);
    Ok(Json(NoteList { notes: page.rows, next: page.next.filter(|_| in_order) }))
}

/// Shows a note.
pub(crate) async fn show(
    State(app): State<Shared>,
    Caller(caller): Caller,
    NotePath(id): NotePath,
) -> Result<Json<Note>, ApiError> {
    visible_note(&app, &caller, id).await.map(Json)
}

/// Replaces the text of a note.
pub(crate) async fn edit(
    State(app): State<Shared>,
    Caller(caller): Caller,
    NotePath(id): NotePath,
    JsonBody(Edited { text }): JsonBody<Edited>,
) -> Result<Json<Note>, ApiError> {
    visible_note(&app, &caller, id).await?;
    if text.trim().is_empty() {
        return Err(ApiError::invalid("text: must not be empty; delete the note instead"));
    }
    app.notes.edit_note(id, &text, app.clock.now()).await.map_err(too_long)?;
    visible_note(&app, &caller, id).await.map(Json)
}

/// Deletes a note.
pub(crate) async fn delete(
    State(app): State<Shared>,
    Caller(caller): Caller,
    NotePath(id): NotePath,
) -> Result<Json<NotesDeleted>, ApiError> {
    visible_note(&app, &caller, id).await?;
    let deleted = app.notes.delete_notes(NoteSelection::One(id)).await?;
    Ok(Json(NotesDeleted { deleted }))
}

/// Deletes all notes of a person or a group.
pub(crate) async fn delete_all(
    State(app): State<Shared>,
    Caller(caller): Caller,
    Params(params): Params<DeleteParams>,
) -> Result<Json<NotesDeleted>, ApiError> {
    let named = named(params.person.as_deref(), params.group.as_deref())?;
    let owner = named.ok_or_else(|| ApiError::invalid("person: one of person and group is needed"))?;
    let owner = visible(&app, &caller, owner)?;
    let deleted = app.notes.delete_notes(NoteSelection::AllOf(owner.clone())).await?;
    tracing::info!(%owner, deleted, by = %caller.id, "all notes were deleted");
    Ok(Json(NotesDeleted { deleted }))
}

/// The owner that the parameters name.
fn named(person: Option<&str>, group: Option<&str>) -> Result<Option<MemoryOwner>, ApiError> {
    match (person, group) {
        (None, None) => Ok(None),
        (Some(person), None) => {
            let person = MemoryOwner::person(person).map_err(|why| ApiError::invalid(format!("person: {why}")))?;
            Ok(Some(person))
        }
        (None, Some(group)) => {
            let session = SessionKey::parse(group).map_err(|why| ApiError::invalid(format!("group: {why}")))?;
            Ok(Some(MemoryOwner::Group { session }))
        }
        (Some(_), Some(_)) => Err(ApiError::invalid("group: give only one of person and group")),
    }
}

/// The caller as an owner of notes.
fn own(app: &App, caller: &Principal) -> MemoryOwner {
    MemoryOwner::Person { channel: app.channel.clone(), id: caller.id.clone() }
}

/// The owner, if its notes are visible to the caller.
fn visible(app: &App, caller: &Principal, owner: MemoryOwner) -> Result<MemoryOwner, ApiError> {
    if caller.is_operator() || owner == own(app, caller) {
        return Ok(owner);
    }
    let MemoryOwner::Person { channel, id } = own(app, caller) else { return Err(ApiError::internal()) };
    Err(ApiError::forbidden(format!(
        "only operators read and change the notes of others; yours: person={channel}:{id}"
    )))
}

/// The note with this id, if it is visible to the caller.
async fn visible_note(app: &App, caller: &Principal, id: u64) -> Result<Note, ApiError> {
    let filter = NoteFilter { id: Some(id), ..NoteFilter::default() };
    let note = app.notes.notes(filter).await?.pop();
    note.filter(|note| visible(app, caller, note.owner.clone()).is_ok())
        .ok_or_else(|| ApiError::not_found("no such note"))
}

/// The answer for a text that the store refuses.
fn too_long(error: StoreError) -> ApiError {
    match error {
        StoreError::TooMuch(why) => ApiError::invalid(format!("text: {why}")),
        other => other.into(),
    }
}
