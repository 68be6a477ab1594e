//! Questions of runs as permission requests of the protocol.

use std::path::Path;
use std::sync::Arc;

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, ToolCallContent, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields,
};
use belay_cli::client::{how_to_answer, text, waits_for};
use belay_text::escaped_line;
use serde_json::Value as Json;
use tokio_util::sync::CancellationToken;

use crate::daemon::Trouble;
use crate::place::Place;
use crate::{shown, tools};

/// The ids of the options.
const ALLOW: &str = "allow";
const ALWAYS: &str = "always";
const REJECT: &str = "reject";

/// A question on its way to the editor.
pub(crate) struct Asking {
    pub(crate) place: Place,
    /// The id of the question. Its content never changes, so an answer by the id is bound to what was shown.
    pub(crate) question: String,
    /// Cancelled when the question was answered elsewhere, or its run has ended.
    pub(crate) answered: CancellationToken,
    /// Cancelled when the prompt is.
    pub(crate) stop: CancellationToken,
}

impl Asking {
    /// Asks, and passes the answer on. Ends when the question is answered, here or elsewhere.
    pub(crate) async fn ask(self) {
        let question = match self.place.daemon.get(&["api", "v1", "approvals", &self.question], &[]).await {
            Ok(question) => question,
            Err(trouble) => {
                return self.say(&format!("A question waits, but cannot be read: {}", words(&trouble))).await;
            }
        };
        if text(&question, "/state") != "waiting" {
            return;
        }
        let request = request(&self.place.session, &question, self.place.workspace.as_deref());
        let offered: Vec<_> = request.options.iter().map(|option| option.option_id.0.clone()).collect();
        let sent = self.place.link.ask(request);
        let answer = tokio::select! {
            biased;
            // Dropping the request withdraws it.
            () = self.answered.cancelled() => return,
            answer = sent.block_task() => answer,
        };
        match decision(&answer, &offered) {
            Some(word) => match self.place.daemon.decide(&self.question, word).await {
                // It was answered elsewhere in the meantime, which counts.
                Ok(_) | Err(Trouble::Refused { status: 409, .. }) => {}
                Err(trouble) => self.say(&format!("The answer does not count: {}", words(&trouble))).await,
            },
            None if self.stop.is_cancelled() || self.answered.is_cancelled() => {}
            None => {
                let how = how_to_answer(&question, &self.question);
                self.say(&format!("The question stays open: {how}.")).await;
            }
        }
    }

    async fn say(&self, words: &str) {
        self.place.link.say(&self.place.session, &format!("\n\n{words}\n\n")).await;
    }
}

fn words(trouble: &Trouble) -> String {
    trouble.error().message
}

/// What an answer means. An option that was not offered is a no, because nobody knows what the person was shown. `None`: there is no
/// answer, and the question stays open.
fn decision(answer: &Result<RequestPermissionResponse, Error>, offered: &[Arc<str>]) -> Option<&'static str> {
    match &answer.as_ref().ok()?.outcome {
        RequestPermissionOutcome::Selected(selected) => Some(match &*selected.option_id.0 {
            id if !offered.iter().any(|offered| **offered == *id) => "deny",
            ALLOW => "approve",
            ALWAYS => "always",
            _ => "deny",
        }),
        _ => None,
    }
}

/// The request for a question. A secret or a form cannot be given here, so such a question can only be declined.
fn request(session: &str, question: &Json, workspace: Option<&Path>) -> RequestPermissionRequest {
    let (tool, arguments) = (text(question, "/tool"), &question["arguments"]);
    let is_decidable = text(question, "/kind") == "approval";
    let about = waits_for(question);
    let title = shown::title(&about);
    // A title has room for one short line.
    let mut lines: Vec<String> = (title != about).then(|| shown::block(&about)).into_iter().collect();
    lines.extend(Some(text(question, "/detail")).filter(|detail| !detail.is_empty()).map(shown::line));
    for pair in question.pointer("/bound").and_then(Json::as_array).into_iter().flatten() {
        lines.push(shown::pair(text(pair, "/0"), text(pair, "/1")));
    }
    if !is_decidable {
        lines.push(format!("It is answered elsewhere: {}.", how_to_answer(question, text(question, "/id"))));
    }
    let change = tools::change(tool, arguments, workspace);
    let words = (!lines.is_empty()).then(|| ToolCallContent::from(lines.join("\n")));
    let fields = ToolCallUpdateFields::new()
        .title(title)
        .kind(tools::kind(tool))
        .status(ToolCallStatus::Pending)
        .raw_input(arguments.clone())
        .content(change.into_iter().chain(words).collect::<Vec<_>>())
        .locations(tools::location(arguments, workspace).into_iter().collect::<Vec<_>>());
    let covers = question.pointer("/covers").and_then(Json::as_str).filter(|_| is_decidable);
    let option = |id: &'static str, name: String, kind| PermissionOption::new(id, name, kind);
    let options = [
        is_decidable.then(|| option(ALLOW, "Allow".into(), PermissionOptionKind::AllowOnce)),
        covers.map(|covers| {
            option(ALWAYS, format!("Always ({})", escaped_line(covers)), PermissionOptionKind::AllowAlways)
        }),
        Some(option(REJECT, "Reject".into(), PermissionOptionKind::RejectOnce)),
    ];
    let call = ToolCallUpdate::new(text(question, "/call_id").to_owned(), fields);
    RequestPermissionRequest::new(session.to_owned(), call, options.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use agent_client_protocol::v1::schema::SelectedPermissionOutcome;
    use serde_json::json;

    use super::*;

    fn question(kind: &str, covers: Json) -> Json {
        json!({
            "id": "q", "call_id": "c", "tool": "run_command", "kind": kind, "summary": "ls", "name": "key",
            "arguments": {"argv": ["ls"]}, "detail": "It asks.", "bound": [["directory", "."]], "covers": covers,
        })
    }

    #[test]
    fn always_is_offered_only_where_the_question_offers_it() {
        for (kind, covers, expected) in [
            ("approval", Json::Null, vec!["allow_once", "reject_once"]),
            ("approval", json!("ls"), vec!["allow_once", "allow_always", "reject_once"]),
            ("credential", json!("ls"), vec!["reject_once"]),
            ("form", Json::Null, vec!["reject_once"]),
        ] {
            let request = serde_json::to_value(request("s", &question(kind, covers), None)).unwrap();
            let kinds: Vec<_> =
                request["options"].as_array().unwrap().iter().map(|option| text(option, "/kind")).collect();
            assert_eq!(kinds, expected, "{kind}");
        }
    }

    #[test]
    fn a_question_shows_what_the_answer_is_bound_to() {
        let request = serde_json::to_value(request("s", &question("approval", Json::Null), None)).unwrap();
        assert_eq!(
            request["toolCall"],
            json!({
                "toolCallId": "c", "kind": "execute", "status": "pending", "title": "run_command: ls",
                "content": [{"type": "content", "content": {"type": "text", "text": "It asks.\n- directory: ."}}],
                "locations": [], "rawInput": {"argv": ["ls"]},
            })
        );
    }

    #[test]
    fn what_a_model_writes_neither_acts_nor_hides_in_a_question() {
        let mut question = question("approval", json!("ls\n\u{202e}"));
        question["summary"] = json!("ls <!--\nrm \u{200b}x");
        question["detail"] = json!("[ok](https://example.com)");
        question["bound"] = json!([["stdin", "a\n- directory: /\n<!--"], ["argument \u{202e}x", "*"]]);
        let request = serde_json::to_value(request("s", &question, None)).unwrap();
        assert_eq!(text(&request, "/toolCall/title"), r"run_command: ls <!--\nrm \u{200b}x");
        assert_eq!(text(&request, "/options/1/name"), r"Always (ls\n\u{202e})");
        let whole = "```\nrun_command: ls <!--\nrm \\u{200b}x\n```\n\n`[ok](https://example.com)`\n- stdin:\n\n```\na\n- \
                     directory: /\n<!--\n```\n\n- `argument \\u{202e}x`: `*`";
        assert_eq!(text(&request, "/toolCall/content/0/content/text"), whole);
    }

    #[test]
    fn an_option_that_was_not_offered_is_a_no_and_no_answer_leaves_the_question_open() {
        let selected = |id: &'static str| {
            let outcome = RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(id));
            Ok(RequestPermissionResponse::new(outcome))
        };
        let offered = [ALLOW, ALWAYS, REJECT].map(Arc::from);
        for (id, expected) in [(ALLOW, "approve"), (ALWAYS, "always"), (REJECT, "deny"), ("yes", "deny"), ("", "deny")]
        {
            assert_eq!(decision(&selected(id), &offered), Some(expected), "{id}");
        }
        assert_eq!(decision(&selected(ALWAYS), &offered[..1]), Some("deny"), "this question has no always");
        assert_eq!(decision(&Ok(RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled)), &offered), None);
        assert_eq!(decision(&Err(Error::method_not_found()), &offered), None);
    }
}
