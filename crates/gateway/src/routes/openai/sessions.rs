//! The session of a request: its name, and whether the messages that the client sends again are those of the store.
//!
//! `user` names a person in OpenAI's API, and front ends send it for each chat of that person. So it names no session.

use axum::http::header::USER_AGENT;
use axum::http::{HeaderMap, HeaderName};
use belay_protocol::inbound::{HistoryLine, HistoryRole};
use belay_protocol::{ApprovalFilter, Decision, Principal, SessionKey};
use serde_json::Value;

use super::SESSION_HEADER;
use super::error::OpenAiError;
use super::request::{ChatRequest, is_ours};
use crate::app::App;
use crate::error::ApiError;

/// The id of a chat of Open WebUI, which it sends where `ENABLE_FORWARD_USER_INFO_HEADERS` is set.
pub(super) const CHAT_ID_HEADER: HeaderName = HeaderName::from_static("x-openwebui-chat-id");
/// The beginning of the id of a chat that Open WebUI does not keep.
const TEMPORARY: &str = "local:";
/// Most lines of the store, and of a history, that are compared.
const COMPARED: u32 = 500;

/// The session that a request names.
pub(super) struct Named {
    pub(super) session: SessionKey,
    /// Whether the client sends the whole conversation each time, so that the store has nothing that it does not show.
    shows_all: bool,
    /// Whether the session takes all messages of the request, because the store has none.
    pub(super) takes_all: bool,
}

impl Named {
    /// The session that the client names: by the header, `conversation`, `metadata.session`, or the id of a chat.
    ///
    /// # Errors
    /// 400: the name is no session key.
    pub(super) fn of(request: &ChatRequest, headers: &HeaderMap) -> Result<Option<Self>, OpenAiError> {
        let header = |name: &HeaderName| headers.get(name).map(|v| std::str::from_utf8(v.as_bytes()).unwrap_or("\0"));
        let conversation = request.conversation.as_ref().and_then(|named| named.get("id").unwrap_or(named).as_str());
        let metadata = request.metadata.as_ref().and_then(|metadata| metadata.get("session")).and_then(Value::as_str);
        let names = [
            ("X-Belay-Session", header(&SESSION_HEADER)),
            ("conversation", conversation),
            ("metadata.session", metadata),
        ];
        let said = names.into_iter().find_map(|(param, name)| Some((param, name.filter(|name| !name.is_empty())?)));
        let (param, key, shows_all) = match said {
            Some((param, name)) => (param, name.to_owned(), false),
            None => match header(&CHAT_ID_HEADER).filter(|id| !id.is_empty() && !id.starts_with(TEMPORARY)) {
                Some(id) => ("X-OpenWebUI-Chat-Id", format!("open-webui:{id}"), true),
                None => return Ok(None),
            },
        };
        let session = SessionKey::parse(&key).map_err(|e| OpenAiError::invalid(param, "invalid_value", e))?;
        Ok(Some(Self { session, shows_all, takes_all: false }))
    }

    /// The session of a request that was sent before. `takes_new`: it took the messages after the last answer.
    pub(super) fn again(session: SessionKey, takes_new: bool) -> Self {
        Self { session, shows_all: false, takes_all: !takes_new }
    }

    /// Compares the messages of the client with those of the store. `None`: they differ, so that the request goes on in a
    /// session of its own, with the messages that the client shows.
    ///
    /// # Errors
    /// The session is not visible to the principal, or the store cannot be read.
    pub(super) async fn compared(
        mut self,
        app: &App,
        principal: &Principal,
        headers: &HeaderMap,
        lines: &[HistoryLine],
    ) -> Result<Option<Self>, ApiError> {
        let is_answer = |line: &HistoryLine| matches!(line.role, HistoryRole::Assistant | HistoryRole::Calls);
        let resent = lines.iter().rposition(is_answer).map_or(0, |at| at + 1);
        let program = headers.get(USER_AGENT).map_or(&b""[..], |name| name.as_bytes());
        let client = [principal.id.as_bytes(), program, self.session.as_str().as_bytes()];
        let resenders = &app.first_attempts.resenders;
        let said = said_in(&lines[..resent]);
        let has_results = lines.iter().any(|line| line.role == HistoryRole::Result);
        // An answer alone is no history: clients send the calls with their results, or the beginning of the next
        // answer.
        if !said.is_empty() {
            resenders.note(client);
        } else if resent == 0 && !self.shows_all && (has_results || !resenders.has(client)) {
            return Ok(Some(self)); // a client that sends what is new; results are not the beginning of a chat
        }
        // Without an answer, it shows its first message.
        self.shows_all |= resent == 0;
        app.visibility(principal).visible_session(self.session.clone()).await?;
        if resent == 0 && is_order(app, &self.session, lines).await? {
            return Ok(Some(self));
        }
        let stored = app.sessions.recent_history(&self.session, COMPARED).await?;
        let is_whole = stored.len() < COMPARED as usize;
        let of_the_user = stored.iter().filter(|line| line.role == "user").map(|line| line.text.trim());
        let stored: Vec<&str> = of_the_user.filter(|text| !is_ours(text)).collect();
        if stored.is_empty() {
            self.takes_all = true;
            return Ok(Some(self));
        }
        let left = unmatched(&said, &stored, is_whole);
        Ok(left.is_some_and(|left| left == 0 || !self.shows_all).then_some(self))
    }
}

/// Whether the only message is for the work of the session: a command, or the answer to a question that waits there.
/// Buttons of clients send such a message alone.
async fn is_order(app: &App, session: &SessionKey, lines: &[HistoryLine]) -> Result<bool, ApiError> {
    let mut said = lines.iter().filter(|line| line.role == HistoryRole::User).map(|line| line.text.trim());
    let (Some(said), None) = (said.next(), said.next()) else { return Ok(false) };
    if said.starts_with('/') || Decision::from_words(said).is_none() {
        return Ok(said.starts_with('/'));
    }
    let waiting =
        ApprovalFilter { session: Some(session.clone()), waiting: true, limit: 1, ..ApprovalFilter::default() };
    Ok(!app.approvals.approvals(waiting).await?.is_empty())
}

/// The texts of the user that became messages of the store: no commands, no answers to questions, no files alone.
fn said_in(lines: &[HistoryLine]) -> Vec<&str> {
    let mut after_question = false;
    let mut said = Vec::new();
    for line in lines {
        let text = line.text.trim();
        match line.role {
            HistoryRole::Assistant => after_question = super::resent::question_in(text).is_some(),
            HistoryRole::User if after_question || text.is_empty() || text.starts_with('/') => {}
            HistoryRole::User => said.push(text),
            HistoryRole::System | HistoryRole::Calls | HistoryRole::Result => {}
        }
    }
    said
}

/// Finds these texts in the store, in their order; the store may have more between them, of other clients. Returns how
/// many texts of the store follow the last one; `None`: the store lacks one of them. `is_whole`: the store has shown its
/// oldest text.
fn unmatched(said: &[&str], stored: &[&str], is_whole: bool) -> Option<usize> {
    let older = said.len().saturating_sub(COMPARED as usize);
    let (said, is_whole) = (&said[older..], is_whole && older == 0);
    let (mut from, mut matched) = (0, 0);
    for text in said {
        match (from..stored.len()).find(|at| has_part(stored[*at], text)) {
            Some(at) => {
                // Several messages in a row are one message of the store: the next one may be a part of the same.
                from = if stored[at].len() > text.len() { at } else { at + 1 };
                matched = at + 1;
            }
            None if matched == 0 && !is_whole => {} // older than what was read
            None => return None,
        }
    }
    Some(stored.len() - matched)
}

/// Whether a stored message is this text, or several joined texts with this one among them.
fn has_part(stored: &str, text: &str) -> bool {
    if stored.len() <= text.len() {
        return stored == text;
    }
    let first = stored.strip_prefix(text).is_some_and(|after| after.starts_with("\n\n"));
    let last = || stored.strip_suffix(text).is_some_and(|before| before.ends_with("\n\n"));
    first || last() || stored.contains(&format!("\n\n{text}\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_that_of_the_store_or_was_changed() {
        for (said, stored, expected) in [
            (&["a"][..], &["a"][..], Some(0)),
            (&["a", "c"], &["a", "b", "c", "d"], Some(1)),
            (&["a", "b"], &["a\n\nb"], Some(0)),
            (&["A"], &["a"], None),
            (&["b", "a"], &["a", "b"], None),
            (&["my word"], &["my word is LEMUR"], None),
            (&[], &["a", "b"], Some(2)),
        ] {
            assert_eq!(unmatched(said, stored, true), expected, "{said:?} in {stored:?}");
        }
        assert_eq!(unmatched(&["older", "a"], &["a"], false), Some(0));
        assert_eq!(unmatched(&["a", "other"], &["a"], false), None);
        // The end of a message may also be the beginning of what is looked for.
        assert_eq!(unmatched(&["a\n\na"], &["ba\n\na\n\na"], true), Some(0));
        // Of a long history, the newest texts are compared.
        let long: Vec<_> = ["of another chat"].into_iter().chain(vec!["a"; COMPARED as usize]).collect();
        assert_eq!(unmatched(&long, &["a\n\na"], true), Some(0));
        assert_eq!(unmatched(&long[..9], &["a\n\na"], true), None);
    }
}
