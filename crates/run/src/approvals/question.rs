//! Approval requests: their text, the digest that binds an answer, and parsing of answers. Pure.

use std::collections::HashMap;
use std::fmt::Write as _;

use belay_protocol::{
    AddedText, ApprovalId, ApprovalKind, ApprovalRequest, ApprovalState, AskedIn, CallId, CallPreview, ClientResult,
    UnixMillis, canonical_json,
};
use belay_text::question::shown_line;
use serde_json::{Map, Value};

use super::form_text;

/// An approval request of the effect gate, without its run and its date.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The kind of answer.
    pub kind: ApprovalKind,
    /// The effect of the call.
    pub summary: String,
    /// The arguments; values of sensitive ones are replaced.
    pub arguments: Value,
    /// The reason for the question.
    pub why: String,
    /// The facts that the answer is bound to.
    pub bound: Vec<(String, String)>,
    /// The digest of the call and of these facts.
    pub digest: String,
    /// The calls that "always" would cover.
    pub covers: Option<String>,
    /// The texts that hooks have put before and after the question.
    pub added: Option<Box<AddedText>>,
    /// Whether two persons must approve.
    pub second: bool,
    /// The conversation in which autonomous work asks. The end of the turn sets it.
    pub place: Option<Box<AskedIn>>,
}

impl Wanted {
    /// A request that binds its answer to nothing but this summary, and without a reason.
    pub fn of(kind: ApprovalKind, summary: String) -> Self {
        Self {
            kind,
            summary,
            arguments: Value::Null,
            why: String::new(),
            bound: Vec::new(),
            digest: String::new(),
            covers: None,
            added: None,
            second: false,
            place: None,
        }
    }
}

/// State of the approval requests for one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApprovalAnswer {
    /// An unused approval: its gate, and the digest that it is bound to.
    pub approved: Option<(ApprovalId, String)>,
    /// Earlier unused approvals of the same call. The call had changed before it was executed, so it was asked about
    /// again.
    pub(crate) outdated: Vec<ApprovalId>,
    /// The gate of a secret that was entered.
    pub(crate) supplied: Option<ApprovalId>,
    /// A denial, as text for the model.
    pub denied: Option<String>,
    /// The result that the client gave for a call that it carries out, and its request.
    pub client: Option<(ApprovalId, ClientResult)>,
}

/// Answers by call id.
pub type Answers = HashMap<CallId, ApprovalAnswer>;

impl ApprovalAnswer {
    /// Whether an answer exists that the call has not used yet.
    pub fn is_open(&self) -> bool {
        self.approved.is_some() || self.supplied.is_some() || self.denied.is_some()
    }

    /// All unused approvals. They are used up together, because the call is executed once.
    pub(crate) fn yeses(&self) -> Vec<ApprovalId> {
        self.outdated.iter().copied().chain(self.approved.iter().map(|(approval, _)| *approval)).collect()
    }

    /// Collects the answers from the gates of a run, which must be in the order of asking.
    pub fn of(approvals: Vec<ApprovalRequest>) -> Answers {
        let mut answers = Answers::new();
        // Runs that this run has started wait for their own answers. Their calls may have the same ids.
        for approval in approvals.into_iter().filter(|approval| !approval.is_in_place()) {
            if let ApprovalKind::ClientCalls { results, .. } = approval.kind {
                // Used ones are in the context. A later call may have the same id.
                for result in results.into_iter().filter(|_| approval.state == ApprovalState::Approved) {
                    let call = result.call.clone();
                    answers.entry(call).or_default().client = Some((approval.id, result));
                }
                continue;
            }
            answers.entry(approval.call_id.clone()).or_default().add(approval);
        }
        answers
    }

    /// Adds the next gate of the same call.
    pub(crate) fn add(&mut self, approval: ApprovalRequest) {
        match (&approval.kind, approval.state) {
            (ApprovalKind::Approval, ApprovalState::Approved) => {
                let before = self.approved.replace((approval.id, approval.digest));
                self.outdated.extend(before.map(|(earlier, _)| earlier));
            }
            (ApprovalKind::Credential { .. }, ApprovalState::Approved) => self.supplied = Some(approval.id),
            (
                kind @ (ApprovalKind::Approval | ApprovalKind::Credential { .. } | ApprovalKind::ClientCalls { .. }),
                state @ (ApprovalState::Denied | ApprovalState::Expired),
            ) => {
                self.denied = Some(denial(kind, state));
            }
            // The call that has asked for a form reads its answer itself.
            (_, ApprovalState::Waiting | ApprovalState::Used | ApprovalState::Withdrawn)
            | (ApprovalKind::ClientCalls { .. } | ApprovalKind::Form { .. }, _) => {}
        }
    }
}

/// The text of a denial for the model. Nobody can deny the calls of a client.
fn denial(kind: &ApprovalKind, state: ApprovalState) -> String {
    let text = match (kind, state) {
        (ApprovalKind::Credential { .. }, ApprovalState::Expired) => {
            "denied: nobody entered the secret that this tool needs in time. It was not executed."
        }
        (ApprovalKind::Credential { .. }, _) => {
            "denied: the user did not provide the secret that this tool needs. It was not executed."
        }
        (_, ApprovalState::Expired) => {
            "denied: nobody answered the approval request in time. It was not executed. Do not request the same again; \
             continue without it, or state what you need."
        }
        (_, _) => {
            "denied: the user refused. It was not executed. Do not request the same again; use another approach, or \
             answer without it."
        }
    };
    text.to_owned()
}

/// Digest that binds an answer: blake3, in hex, over the tool, its canonical arguments and all bound values.
pub fn digest(tool: &str, arguments: &Map<String, Value>, weight: &CallPreview) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut feed = |text: &str| {
        // The length prefix prevents that one text has the digest of two.
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    feed(tool);
    feed(&canonical_json(&Value::Object(arguments.clone())));
    for (name, value) in &weight.bound {
        feed(name);
        feed(value);
    }
    hasher.finalize().to_hex().to_string()
}

/// The part of a question that nobody can change: the call, the facts that the answer is bound to, and the reason. The
/// calls of a client are no question.
pub(crate) fn question_body(
    tool: &str,
    kind: &ApprovalKind,
    summary: &str,
    bound: &[(String, String)],
    detail: &str,
) -> String {
    match kind {
        ApprovalKind::Credential { name } => {
            format!("`{tool}` needs a secret: **{name}**.\n\n{}", shown_line(summary))
        }
        ApprovalKind::Form { form, .. } => form_text::body(tool, form),
        ApprovalKind::Approval | ApprovalKind::ClientCalls { .. } => {
            belay_text::question::about_call(tool, summary, bound, detail)
        }
    }
}

/// The question as shown at the time `now`, in Markdown.
pub fn question_text(approval: &ApprovalRequest, now: UnixMillis) -> String {
    let mut text = String::new();
    let ApprovalRequest { tool, kind, summary, bound, detail, added, .. } = approval;
    if let Some(AddedText { before, .. }) = added.as_deref() {
        text.push_str(before);
    }
    if let Some(first) = approval.first_yes() {
        let _ = write!(
            text,
            "**1 of 2 approvals**: {} has approved this. You are the second person.\n\n",
            shown_line(&first.by)
        );
    }
    if let Some(place) = approval.present_place() {
        let _ = write!(text, "{} asks:\n\n", shown_line(&place.work));
    }
    text.push_str(&question_body(tool, kind, summary, bound, detail));
    if let Some(AddedText { after, .. }) = added.as_deref() {
        text.push_str(after);
    }
    text.push_str("\n\n");
    text.push_str(&how_to_answer(approval, now));
    text
}

/// The last part of a question: how it is answered, and until when.
fn how_to_answer(approval: &ApprovalRequest, now: UnixMillis) -> String {
    let waits = span((approval.expires_at.0 - now.0) / 1000);
    let id = approval.id;
    if let ApprovalKind::Credential { .. } = approval.kind {
        return format!(
            "Your next message is taken as the secret: it is not shown to the model and not stored in the \
             conversation. /deny continues without it. The request expires after {waits}."
        );
    }
    if let ApprovalKind::Form { form, .. } = &approval.kind {
        let how = form_text::how(form, id);
        return format!("{how} Without an answer the server gets none after {waits}.");
    }
    let second = if approval.needs_first_yes() { " After you, a second person must approve it." } else { "" };
    if approval.present_place().is_some() {
        return format!(
            "Answer /approve {id} or /deny {id}. A plain **yes** or **no** counts while this is the newest message here. \
             Without an answer the call is denied after {waits}.{second}"
        );
    }
    let mut text = "Answer **yes** or **no**".to_owned();
    if let Some(covers) = &approval.covers {
        let _ = write!(text, ", or **always** for {} in this conversation", shown_line(covers));
    }
    let _ = write!(text, ". Without an answer the call is denied after {waits}.{second} (/approve {id}, /deny {id})");
    text
}

/// The reminder of a question of autonomous work that still waits at the time `now`.
pub fn reminder_text(approval: &ApprovalRequest, now: UnixMillis) -> String {
    format!("**Reminder:** this question still waits. {}", question_text(approval, now))
}

/// Formats a time span for people.
fn span(seconds: i64) -> String {
    match seconds {
        1 => "1 second".to_owned(),
        ..=90 => format!("{} seconds", seconds.max(0)),
        91..=5400 => format!("{} minutes", (seconds + 30) / 60),
        5401..=172_800 => format!("{} hours", (seconds + 1800) / 3600),
        _ => format!("{} days", (seconds + 43_200) / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::Decision;

    use belay_protocol::{Asker, RunId};
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_bound_to_every_byte() {
        let preview = |bound: &[(&str, &str)]| CallPreview {
            bound: bound.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..CallPreview::default()
        };
        let of = |tool: &str, arguments: Value, bound: &[(&str, &str)]| {
            digest(tool, arguments.as_object().expect("an object"), &preview(bound))
        };
        let base = of("t", json!({"a": 1, "b": [2]}), &[("argv", "x y")]);
        assert_eq!(base, of("t", json!({"b": [2], "a": 1}), &[("argv", "x y")]), "the order of keys is nothing");
        for (name, other) in [
            ("tool", of("u", json!({"a": 1, "b": [2]}), &[("argv", "x y")])),
            ("argument", of("t", json!({"a": 1, "b": [3]}), &[("argv", "x y")])),
            ("bound value", of("t", json!({"a": 1, "b": [2]}), &[("argv", "x z")])),
            ("bound name", of("t", json!({"a": 1, "b": [2]}), &[("arg", "vx y")])),
            ("one more", of("t", json!({"a": 1, "b": [2]}), &[("argv", "x y"), ("", "")])),
        ] {
            assert_ne!(base, other, "{name}");
        }
    }

    #[test]
    fn bare_words_are_read_as_people_type_them() {
        for (text, expected) in [
            ("yes", Some(Decision::Approve)),
            (" Yes! ", Some(Decision::Approve)),
            ("y", Some(Decision::Approve)),
            ("ALWAYS", Some(Decision::Always)),
            ("no.", Some(Decision::Deny)),
            ("yes please do", None),
            ("nope", None),
            ("", None),
        ] {
            assert_eq!(Decision::from_words(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_summary_of_a_call_that_needs_a_secret_stays_on_its_line() {
        let request = ApprovalRequest {
            id: ApprovalId::new(),
            run_id: RunId::new(),
            session: "s".into(),
            call_id: "c".into(),
            tool: "pay".into(),
            kind: ApprovalKind::Credential { name: "pin".into() },
            summary: "pay 1\n\nThe request does **not** expire.\u{202e}".into(),
            arguments: json!({}),
            detail: String::new(),
            bound: Vec::new(),
            digest: String::new(),
            covers: None,
            added: None,
            asker: Asker::default(),
            place: None,
            second: None,
            reminded_at: None,
            asked_at: UnixMillis(0),
            expires_at: UnixMillis(60_000),
            state: ApprovalState::Waiting,
            decided_by: None,
            decided_at: None,
        };
        let text = question_text(&request, UnixMillis(0));
        assert!(text.contains("\n`pay 1\\n\\nThe request does **not** expire.\\u{202e}`\n"), "{text}");
    }
}
