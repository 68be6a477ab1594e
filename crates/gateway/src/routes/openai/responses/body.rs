//! The response as an object, whole and within events.

use belay_protocol::{Principal, UsedTokens};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::id::{MESSAGE, RESPONSE, ResponseId};
use super::status::{belay_of, status_of, usage};
use crate::app::App;
use crate::routes::openai::answer::Head;
use crate::routes::openai::outcome::{End, Outcome};

/// A response.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ResponseObject"))]
pub(crate) struct ResponseBody {
    pub(super) id: String,
    #[cfg_attr(test, schemars(extend("enum" = ["response"])))]
    object: &'static str,
    /// Seconds since 1970.
    created_at: i64,
    /// Seconds since 1970; null before the end of the run.
    completed_at: Option<i64>,
    /// `queued`, `in_progress`, `completed`, `incomplete`, `failed` or `cancelled`.
    #[cfg_attr(test, schemars(extend("enum" = ["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"])))]
    pub(super) status: &'static str,
    background: bool,
    /// `{"code","message"}` of a run that has failed.
    #[cfg_attr(test, schemars(with = "Option<Map<String, Value>>"))]
    error: Option<Value>,
    /// `{"reason"}` of an answer that is cut off.
    #[cfg_attr(test, schemars(with = "Option<Map<String, Value>>"))]
    incomplete_details: Option<Value>,
    model: String,
    /// Items of the types `reasoning`, `message` and `function_call`.
    #[cfg_attr(test, schemars(with = "Vec<Map<String, Value>>"))]
    output: Vec<Value>,
    store: bool,
    /// The usage of the response; null before its end.
    #[cfg_attr(test, schemars(with = "Option<Map<String, Value>>"))]
    usage: Option<Value>,
    /// `{"run_id","session","status","reason","cost_micro_usd"}` of the run, with `files` that it has sent, or the `approval`
    /// that it waits for; null without a run.
    #[cfg_attr(test, schemars(with = "Option<Map<String, Value>>"))]
    belay: Option<Value>,
    /// The fields of the request, as they were sent.
    #[serde(flatten)]
    #[cfg_attr(test, schemars(skip))]
    shown: Map<String, Value>,
}

/// The fields that all bodies of one response have in common.
pub(super) struct Shape {
    pub(super) head: Head,
    /// `None`: the reply to a command, which cannot be read again.
    pub(super) id: Option<ResponseId>,
    /// The id of the response, of its text and of its reasoning.
    texts: [String; 3],
    shown: Map<String, Value>,
}

/// The id of the run, or of an answer without one.
fn own_id(head: &Head) -> String {
    head.run.map_or_else(|| head.id.trim_start_matches("chatcmpl-").to_owned(), |run| run.to_string())
}

impl Shape {
    pub(super) fn new(
        app: &App,
        principal: &Principal,
        head: Head,
        id: Option<ResponseId>,
        shown: Map<String, Value>,
    ) -> Self {
        let own = own_id(&head).replace('-', "");
        let text = |prefix: &str| match &id {
            Some(id) => id.text(app, principal, prefix),
            None => format!("{prefix}{own}"),
        };
        let texts = [text(RESPONSE), text(MESSAGE), format!("rs_{own}")];
        Self { head, id, texts, shown }
    }

    /// Shows these fields of the request.
    pub(super) fn show(&mut self, fields: Map<String, Value>) {
        self.shown.extend(fields);
    }

    /// The id of the text.
    pub(super) fn message(&self) -> &str {
        &self.texts[1]
    }

    /// The id of the reasoning.
    pub(super) fn reasoning(&self) -> &str {
        &self.texts[2]
    }

    pub(super) fn is_background(&self) -> bool {
        self.id.is_some_and(|id| id.kind.background)
    }

    /// The response before its end.
    pub(super) fn begun(&self, status: &'static str) -> ResponseBody {
        ResponseBody {
            id: self.texts[0].clone(),
            object: "response",
            created_at: self.head.created,
            completed_at: None,
            status,
            background: self.is_background(),
            error: None,
            incomplete_details: None,
            model: self.head.model.clone(),
            output: Vec::new(),
            store: self.id.is_some_and(|id| id.kind.stored),
            usage: None,
            belay: None,
            shown: self.shown.clone(),
        }
    }

    /// The reply to a command.
    pub(super) fn of_command(&self, output: Vec<Value>) -> ResponseBody {
        ResponseBody { output, usage: Some(usage(UsedTokens::default())), ..self.begun("completed") }
    }

    /// The response as the outcome has it.
    pub(super) fn ended(&self, outcome: &Outcome, output: Vec<Value>) -> ResponseBody {
        let run = &outcome.run;
        let status = status_of(outcome);
        let error = match &outcome.end {
            End::Error(error) if status == "failed" => {
                let (code, message) = error.parts();
                Some(json!({"code": code, "message": message}))
            }
            _ => None,
        };
        let cut_off = (status == "incomplete").then(|| match &outcome.end {
            End::Text { finish: "content_filter", .. } => json!({"reason": "content_filter"}),
            _ => json!({"reason": "max_output_tokens"}),
        });
        let is_over = !matches!(status, "queued" | "in_progress");
        ResponseBody {
            completed_at: run.ended_at.filter(|_| is_over).map(|at| at.0.div_euclid(1000)),
            error,
            incomplete_details: cut_off,
            output,
            usage: is_over.then(|| usage(outcome.used)),
            belay: Some(belay_of(outcome)),
            ..self.begun(status)
        }
    }
}
