//! Keys of an editor's sessions, and rows of the API about them. Pure.
//!
//! The key is `acp:ID`, or `acp:ID:home:me:project` with the editor's directory in it: so a list of an editor's sessions by directory
//! needs no state of its own, and `belay sessions` shows whose conversation it is.

use agent_client_protocol::v1::schema::{ContentBlock, ContentChunk, SessionInfo, SessionUpdate};
use belay_cli::client::text;
use serde_json::Value as Json;
use uuid::Uuid;

use crate::link::said;

/// The beginning of the keys. Programs may not write to conversations of people, whose keys begin otherwise.
pub(crate) const PREFIX: &str = "acp:";

/// Longest key in bytes, by the API.
const KEY_MAX_BYTES: usize = 256;

/// A message of the history.
pub(crate) fn remembered(message: &Json) -> SessionUpdate {
    let words = text(message, "/text");
    match text(message, "/role") {
        "user" => SessionUpdate::UserMessageChunk(ContentChunk::new(ContentBlock::from(words))),
        _ => said(words), // also a notice
    }
}

pub(crate) fn next_of(page: &Json) -> Option<String> {
    match page.pointer("/next")? {
        Json::String(next) => Some(next.clone()),
        Json::Null => None,
        next => Some(next.to_string()),
    }
}

/// A row of a list. `None`: not of an editor, or of another directory.
pub(crate) fn listed(row: &Json, wanted: Option<&str>) -> Option<SessionInfo> {
    let session = text(row, "/session");
    let cwd = directory(session.strip_prefix(PREFIX)?);
    if wanted.is_some_and(|wanted| cwd.as_deref() != Some(wanted)) {
        return None;
    }
    let some = |place: &str| Some(text(row, place).to_owned()).filter(|text| !text.is_empty());
    // The protocol wants a directory, also where none is known.
    let info = SessionInfo::new(session.to_owned(), cwd.unwrap_or_else(|| "/".to_owned()));
    Some(info.title(some("/title")).updated_at(some("/last_active_at")))
}

/// The key of a new session. The directory is left out if a key cannot hold it.
pub(crate) fn key(id: Uuid, cwd: &str) -> String {
    let plain = format!("{PREFIX}{}", id.simple());
    let is_fit = |c: char| c.is_alphanumeric() || c == ' ' || (c.is_ascii_graphic() && c != ':');
    let whole = format!("{plain}{}", cwd.replace('/', ":"));
    let is_whole = cwd.starts_with('/') && cwd.chars().all(is_fit) && whole.len() <= KEY_MAX_BYTES;
    if is_whole { whole } else { plain }
}

/// The directory in a key without its prefix.
fn directory(rest: &str) -> Option<String> {
    let (_, path) = rest.split_once(':')?;
    Some(format!("/{}", path.replace(':', "/")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_holds_the_directory_if_it_can() {
        let id = Uuid::nil();
        let plain = format!("acp:{}", id.simple());
        for (cwd, expected) in [
            ("/home/me/my project", format!("{plain}:home:me:my project")),
            ("/", format!("{plain}:")),
            ("/a:b", plain.clone()),
            ("C:\\x", plain.clone()),
            ("relative", plain.clone()),
            ("", plain.clone()),
            ("/tab\there", plain.clone()),
            (&format!("/{}", "x".repeat(300)), plain.clone()),
        ] {
            let key = key(id, cwd);
            assert_eq!(key, expected, "{cwd}");
            let found = directory(&key[PREFIX.len()..]);
            assert_eq!(found, (key != plain).then(|| cwd.to_owned()), "{cwd}");
        }
    }

    #[test]
    fn a_list_has_the_sessions_of_editors_alone() {
        let row = |key: &str| json!({"session": key, "title": "T", "last_active_at": "2026-11-20T19:43:00.123Z"});
        let mine = row("acp:1:p:q");
        let shown = |row: &Json, wanted| listed(row, wanted).map(|info| info.cwd.display().to_string());
        assert_eq!(shown(&mine, None), Some("/p/q".into()));
        assert_eq!(shown(&mine, Some("/p/q")), Some("/p/q".into()));
        assert_eq!(shown(&mine, Some("/p")), None);
        assert_eq!(shown(&row("acp:1"), None), Some("/".into()));
        assert_eq!(shown(&row("acp:1"), Some("/")), None);
        assert_eq!(shown(&row("telegram:4"), None), None);
    }
}
