//! A history that a client sends again without a session: the answer to the question that it ends with.
//!
//! The run that asks waits in a session that the client does not name. The text of the question has the id of the
//! question, so the history says which question a bare "yes" answers.

use belay_protocol::inbound::{HistoryLine, HistoryRole};
use belay_protocol::{
    ApprovalId, ApprovalKind, ApprovalRequest, ApprovalState, Authority, Decision, Principal, UnixMillis,
};

use super::error::OpenAiError;
use super::request::Conversation;
use crate::app::App;
use crate::error::ApiError;

/// The command in the text of each question, before its id.
const APPROVE: &str = "/approve ";

/// The question that a text asks: the last one that it names.
pub(super) fn question_in(text: &str) -> Option<ApprovalId> {
    let (_, rest) = text.rsplit_once(APPROVE)?;
    let end = rest.find(|c: char| !(c.is_ascii_hexdigit() || c == '-')).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// In the text of each question for a secret.
const ASKS_FOR_SECRET: &str = "needs a secret: **";

/// Replaces the secrets in a history that the client sends again, so that the model does not read them.
pub(super) fn hide_secrets(history: &mut [HistoryLine]) {
    let asks = |line: &HistoryLine| {
        let text = line.text.as_str();
        line.role == HistoryRole::Assistant && text.contains(ASKS_FOR_SECRET) && question_in(text).is_some()
    };
    for at in 1..history.len() {
        if history[at].role == HistoryRole::User && asks(&history[at - 1]) && !history[at].text.starts_with('/') {
            "[a secret]".clone_into(&mut history[at].text);
        }
    }
}

impl Conversation {
    /// Sends the last message to the session of the question that the history ends with, if it answers that question: the
    /// question waits, this principal was asked, and the client has shown its text. Otherwise nothing changes, also if
    /// the store cannot be read.
    ///
    /// # Errors
    /// The text may be a secret, and goes nowhere: 409 if its question has ended, or the store cannot be read.
    pub(super) async fn answering(self, app: &App, principal: &Principal) -> Result<Self, OpenAiError> {
        let Some((shown, id)) = self
            .history
            .last()
            .filter(|line| line.role == HistoryRole::Assistant)
            .and_then(|HistoryLine { text, .. }| Some((text, question_in(text)?)))
        else {
            return Ok(self);
        };
        let may_be_secret = shown.contains(ASKS_FOR_SECRET) && !self.text.trim_start().starts_with('/');
        let question = match app.approvals.approval(id).await {
            Ok(Some(question)) => question,
            Err(error) if may_be_secret => return Err(ApiError::from(error).into()),
            Ok(None) | Err(_) => return Ok(self),
        };
        let now = app.clock.now();
        let is_for_secret = matches!(question.kind, ApprovalKind::Credential { .. });
        // A late yes is told so by the agent. A late secret must not become a message.
        let waits = question.state == ApprovalState::Waiting && (!is_for_secret || question.expires_at > now);
        let is_own = question.place.is_none()
            && *question.asker.principal == *principal.id
            && question.asker.authority == Authority::from(principal.role);
        if may_be_secret && is_own && !waits && is_for_secret {
            return Err(OpenAiError::not_taken(match question.state {
                ApprovalState::Approved | ApprovalState::Used => "the question has its answer; this text was not taken",
                _ => "the question has ended; the secret was not taken",
            }));
        }
        let is_asked = waits && is_own && shown.contains(&*body_of(app, &question, now));
        let Some(text) = answer(&question, &self.text).filter(|_| is_asked && self.files.is_empty()) else {
            return Ok(self);
        };
        Ok(Self { session: question.session, text, answers: true, history: Vec::new(), ..self })
    }
}

/// The text of a question without its last paragraph, which says how long it waits.
fn body_of(app: &App, question: &ApprovalRequest, now: UnixMillis) -> String {
    let text = (app.texts.question)(question, now);
    text.rsplit_once("\n\n").map_or(text.clone(), |(body, _)| body.to_owned())
}

/// The message that answers a question in its session; `None`: the text is no answer.
fn answer(question: &ApprovalRequest, text: &str) -> Option<String> {
    let id = question.id;
    match (&question.kind, Decision::from_words(text)) {
        (ApprovalKind::Approval | ApprovalKind::Credential { .. }, Some(Decision::Deny)) => Some(format!("/deny {id}")),
        (ApprovalKind::Credential { .. }, _) if text.trim_start().starts_with('/') => None,
        (ApprovalKind::Credential { .. }, _) => Some(text.to_owned()), // the secret
        (ApprovalKind::Approval, Some(Decision::Approve)) => Some(format!("{APPROVE}{id}")),
        (ApprovalKind::Approval, Some(Decision::Always)) => Some(format!("/always {id}")),
        // The results of a client's tools are no words.
        // No form is shown in such a conversation.
        (ApprovalKind::Approval, None) | (ApprovalKind::ClientCalls { .. } | ApprovalKind::Form { .. }, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_found_by_the_id_in_its_text() {
        let id = ApprovalId::new();
        let older = ApprovalId::new();
        for (text, expected) in [
            (format!("May I?\n\nAnswer **yes** or **no**. (/approve {id}, /deny {id})"), Some(id)),
            (format!("(/approve {older}) then (/approve {id})"), Some(id)),
            (format!("/approve {id}"), Some(id)),
            ("Type /approve 7.".to_owned(), None),
            ("no question".to_owned(), None),
        ] {
            assert_eq!(question_in(&text), expected, "{text}");
        }
    }
}
