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
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::daemon::{AGAIN, Trouble};
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
        let question = tokio::select! {
            biased;
            () = self.answered.cancelled() => return,
            question = self.read() => question,
        };
        let question = match question {
            Ok(question) => question,
            Err(trouble) => return self.say(&unreadable(&self.question, &trouble)).await,
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
            Some(word) => match self.decide(word).await {
                // It was answered elsewhere in the meantime, which counts.
                Err(Trouble::Refused { status: 409, .. }) => {}
                Ok(answer) => {
                    if let Some(words) = open_still(&answer) {
                        self.say(words).await;
                    }
                }
                Err(trouble) => self.say(&format!("The answer does not count: {}", words(&trouble))).await,
            },
            None if self.stop.is_cancelled() || self.answered.is_cancelled() => {}
            None => {
                let how = how_to_answer(&question, &self.question);
                self.say(&format!("The question stays open: {how}.")).await;
            }
        }
    }

    /// Reads the question, however long the daemon is away: its run waits too.
    async fn read(&self) -> Result<Json, Trouble> {
        loop {
            match self.place.daemon.question(&self.question).await {
                Err(trouble) if trouble.is_passing() => sleep(AGAIN).await,
                question => return question,
            }
        }
    }

    /// Passes an answer on. It is moot when the question is answered, or its run has ended.
    async fn decide(&self, word: &str) -> Result<Json, Trouble> {
        tokio::select! {
            decided = self.place.daemon.decide(&self.question, word) => decided,
            () = self.answered.cancelled() => Ok(Json::Null),
        }
    }

    async fn say(&self, words: &str) {
        self.place.link.say(&self.place.session, &format!("\n\n{words}\n\n")).await;
    }
}

fn words(trouble: &Trouble) -> String {
    trouble.error().message
}

/// The line about a question that cannot be read.
fn unreadable(question: &str, trouble: &Trouble) -> String {
    let how = how_to_answer(&Json::Null, question);
    format!(
        "The question {question} waits, but cannot be read: {}. `belay approvals show {question}` shows it; {how}.",
        words(trouble)
    )
}

/// The daemon's words, if the question still waits after this answer: for a second person.
fn open_still(answer: &Json) -> Option<&str> {
    (text(answer, "/approval/state") == "waiting").then(|| text(answer, "/reply"))
}

/// The meaning of an answer. An option that was not offered is a no, because nobody knows what the person was shown. `None`: there is no
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
mod tests;
