//! The cursors of lists without a number for each row, as opaque text: the values that a list is sorted by, or the
//! position in a list that is sorted by relevance.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belay_protocol::{KnownPrincipal, PrincipalCursor, SessionCursor, SessionKey, SessionSummary, UnixMillis};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ApiError;

/// The cursor behind a session.
pub(crate) fn of_session(session: &SessionSummary) -> String {
    encoded(&(session.last_active_at.0, session.session.as_str()))
}

/// Parses the parameter `after` of a list of sessions.
///
/// # Errors
/// 400 `invalid_cursor` for another text.
pub(crate) fn session(after: Option<&str>) -> Result<Option<SessionCursor>, ApiError> {
    let Some((date, key)) = decoded::<(i64, String)>(after)? else { return Ok(None) };
    // Without the rules of a new key: the store may have one from before them, and its list must go on.
    Ok(Some(SessionCursor { last_active_at: UnixMillis(date), session: SessionKey::new(key) }))
}

/// The cursor behind a principal.
pub(crate) fn of_principal(principal: &KnownPrincipal) -> String {
    encoded(&(principal.last_seen_at.0, principal.channel.as_str(), &principal.id))
}

/// Parses the parameter `after` of a list of principals.
///
/// # Errors
/// 400 `invalid_cursor` for another text.
pub(crate) fn principal(after: Option<&str>) -> Result<Option<PrincipalCursor>, ApiError> {
    let Some((date, channel, id)) = decoded::<(i64, String, String)>(after)? else { return Ok(None) };
    Ok(Some(PrincipalCursor { last_seen_at: UnixMillis(date), channel: channel.into(), id }))
}

/// The cursors of one search: the number of the rows before, with a digest of what is searched for.
pub(crate) struct Search {
    digest: String,
}

impl Search {
    /// The cursors of a search for these words in this session, or in all.
    pub(crate) fn of(terms: &[String], session: Option<&SessionKey>) -> Self {
        let asked = serde_json::json!([terms, session.map(SessionKey::as_str)]).to_string();
        Self { digest: URL_SAFE_NO_PAD.encode(&digest(&SHA256, asked.as_bytes()).as_ref()[..9]) }
    }

    /// The cursor behind that many rows.
    pub(crate) fn after(&self, rows: u32) -> String {
        encoded(&(rows, &self.digest))
    }

    /// Parses the parameter `after` of the search: the number of the rows before.
    ///
    /// # Errors
    /// 400 `invalid_cursor` for another text, and for the cursor of another search.
    pub(crate) fn skip(&self, after: Option<&str>) -> Result<u32, ApiError> {
        match decoded::<(u32, String)>(after)? {
            None => Ok(0),
            Some((rows, digest)) if digest == self.digest => Ok(rows),
            Some(_) => Err(ApiError::no_such_row(OTHER_LIST)),
        }
    }
}

/// The problem of a cursor that this list has not given.
pub(crate) const OTHER_LIST: &str = "this is no `next` of this list";

fn encoded(values: &impl Serialize) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::json!(values).to_string())
}

fn decoded<T: DeserializeOwned>(after: Option<&str>) -> Result<Option<T>, ApiError> {
    let Some(text) = after else { return Ok(None) };
    let json = URL_SAFE_NO_PAD.decode(text).ok();
    let values = json.and_then(|json| serde_json::from_slice(&json).ok());
    values.map(Some).ok_or_else(|| ApiError::no_such_row(OTHER_LIST))
}
