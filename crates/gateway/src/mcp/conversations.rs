//! The read tools: list sessions, and read a conversation.

use std::collections::VecDeque;

use belay_protocol::{HistoryEntry, Principal, SessionFilter};
use serde_json::{Value, json};

use super::results::{CallFailure, json_of};
use super::tools::{ListSessions, ReadConversation};
use crate::app::App;
use crate::checks::{LIST_MAX, no_such_session};
use crate::error::ApiError;
use crate::routes::list_sessions;

/// Most bytes of text in one answer. 200 000: about 50 000 tokens, which a model can still read.
const TEXTS_MAX_BYTES: usize = 200_000;

/// The tool `list_sessions`.
pub(super) async fn list(app: &App, principal: &Principal, asked: ListSessions) -> Result<Value, CallFailure> {
    let sessions = list_sessions(app, principal, SessionFilter::lasting(asked.limit()?)).await?.rows;
    Ok(json!({ "sessions": json_of(&sessions) }))
}

/// The tool `read_conversation`: returns the newest messages that fit.
pub(super) async fn read(app: &App, principal: &Principal, asked: ReadConversation) -> Result<Value, CallFailure> {
    let (session, limit) = (asked.session()?, asked.limit()? as usize);
    let session = app.visibility(principal).visible_session(session).await?.into_key();
    let mut newest: VecDeque<HistoryEntry> = VecDeque::new();
    let (mut after, mut earlier) = (0, 0usize);
    // The store reads from the beginning, page by page; only the end is kept.
    loop {
        let page = app.sessions.history(&session, after, LIST_MAX).await.map_err(ApiError::from)?;
        let Some(last) = page.last().map(|line| line.id) else { break };
        let full = page.len() >= LIST_MAX as usize;
        newest.extend(page);
        while newest.len() > limit {
            newest.pop_front();
            earlier += 1;
        }
        if !full {
            break;
        }
        after = last;
    }
    if newest.is_empty() && app.sessions.session(&session).await.map_err(ApiError::from)?.is_none() {
        return Err(no_such_session(&session).into());
    }
    earlier += shorten(&mut newest);
    let mut answer = json!({ "session": session, "messages": json_of(&newest) });
    if earlier > 0 {
        answer["earlier"] = json!(earlier);
        answer["next"] =
            json!("Earlier messages are not shown; a larger limit shows more of them, as far as they fit.");
    }
    Ok(answer)
}

/// Drops the oldest messages until the rest fits, and returns how many. If the newest alone is too long, it is cut.
fn shorten(messages: &mut VecDeque<HistoryEntry>) -> usize {
    let mut bytes: usize = messages.iter().map(|line| line.text.len()).sum();
    let mut gone = 0;
    while bytes > TEXTS_MAX_BYTES && messages.len() > 1 {
        bytes -= messages.pop_front().map_or(0, |line| line.text.len());
        gone += 1;
    }
    if let Some(only) = messages.front_mut().filter(|_| bytes > TEXTS_MAX_BYTES) {
        only.text.truncate(only.text.floor_char_boundary(TEXTS_MAX_BYTES));
        only.text.push_str(" … [cut: the message is longer]");
    }
    gone
}

#[cfg(test)]
mod tests {
    use belay_protocol::UnixMillis;

    use super::*;

    #[test]
    fn the_oldest_are_left_out_and_a_single_long_one_is_cut_between_characters() {
        let line = |text: String| HistoryEntry {
            id: 1,
            role: "user".into(),
            text,
            run_id: None,
            at: UnixMillis(0),
            files: Vec::new(),
        };
        for (lengths, left, gone) in [
            (&[1, 2, 3][..], &[1, 2, 3][..], 0),
            (&[TEXTS_MAX_BYTES, 1, 1], &[1, 1], 1),
            (&[5, TEXTS_MAX_BYTES], &[TEXTS_MAX_BYTES], 1),
            (&[], &[], 0),
        ] {
            let mut lines = lengths.iter().map(|length| line("x".repeat(*length))).collect();
            assert_eq!(shorten(&mut lines), gone, "{lengths:?}");
            assert_eq!(lines.iter().map(|line| line.text.len()).collect::<Vec<_>>(), left);
        }
        let mut lines = VecDeque::from([line("é".repeat(TEXTS_MAX_BYTES))]);
        assert_eq!(shorten(&mut lines), 0);
        let text = &lines[0].text;
        assert!(text.len() < TEXTS_MAX_BYTES + 50 && text.ends_with("é … [cut: the message is longer]"));
    }
}
