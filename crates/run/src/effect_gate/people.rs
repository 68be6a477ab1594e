//! Forms that a call asks a person to fill in. The call waits in its place, as a run that another run has started does.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{
    ApprovalKind, ApprovalState, Arguments, AskPerson, AskedIn, CallPreview, Form, FormAnswer, Lease, PersonPort,
    StoreError, ToolCall,
};
use serde_json::Map;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::approvals::{Wanted, digest};
use crate::child_asker::{ChildAnswer, ChildAsker, ChildCall};
use crate::deadlines::WaitClock;
use crate::live::LiveRun;
use crate::log_failure;
use crate::request::RunRequest;
use crate::store_wait::StoreWait;

/// What a batch of calls has to ask people by.
#[derive(Clone)]
pub struct BatchPeople {
    pub(crate) asker: Arc<dyn ChildAsker>,
    pub(crate) lease: Lease,
    pub(crate) stored: StoreWait,
    pub(crate) request: Arc<RunRequest>,
    pub(crate) live: Arc<LiveRun>,
    pub(crate) place: AskedIn,
    pub(crate) waits: WaitClock,
    pub(crate) may_ask: Result<(), &'static str>,
    pub(crate) holds_slot: bool,
    /// Held by the call whose form a person fills in: a text of that person can answer one form at a time.
    pub(crate) turn: Arc<Mutex<()>>,
}

impl BatchPeople {
    /// The way of one call to a person.
    pub(super) fn of(&self, call: &ToolCall) -> PersonPort {
        PersonPort::to(Arc::new(CallPeople { batch: self.clone(), call: call.clone() }))
    }
}

struct CallPeople {
    batch: BatchPeople,
    call: ToolCall,
}

/// The question for a form. The answer is bound to the server, the tool, and every byte of the form.
fn wanted(call: &ToolCall, form: Form, nth: u32) -> Wanted {
    let bound = vec![("mcp server".to_owned(), form.server.clone())];
    let facts = [
        ("mcp server".to_owned(), form.server.clone()),
        ("call".to_owned(), call.id.to_string()),
        ("question".to_owned(), nth.to_string()),
        ("form".to_owned(), serde_json::to_string(&form).unwrap_or_default()),
    ];
    let weight = CallPreview { bound: facts.into(), ..CallPreview::default() };
    let arguments = match &call.arguments {
        Arguments::Object(arguments) => arguments.clone(),
        Arguments::Malformed(_) => Map::new(),
    };
    let digest = digest(&call.name, &arguments, &weight);
    let summary = form.message.clone();
    let kind = ApprovalKind::Form { form, answers: Map::new() };
    Wanted { why: "an MCP server asks for it".into(), bound, digest, ..Wanted::of(kind, summary) }
}

#[async_trait]
impl AskPerson for CallPeople {
    async fn fill_in(&self, form: Form, nth: u32, stop: &CancellationToken) -> FormAnswer {
        let BatchPeople { asker, lease, stored, request, live, place, waits, may_ask, holds_slot, turn } = &self.batch;
        if let Err(why) = request.parts_may_ask(*may_ask) {
            return FormAnswer::Unasked(why.to_owned());
        }
        let work = match place.work.as_str() {
            "" => format!("The MCP server {}", form.server),
            work => format!("The MCP server {}, in {work},", form.server),
        };
        let (place, wanted) = (AskedIn { work, ..place.clone() }, wanted(&self.call, form, nth));
        let _wait = waits.begin();
        // The forms of parallel calls are asked in the order in which the calls wanted them.
        let Some(_turn) = stop.run_until_cancelled(turn.lock()).await else { return FormAnswer::Stopped };
        let ask = || async {
            let question = ChildCall {
                lease,
                request,
                live,
                place: place.clone(),
                call: &self.call,
                wanted: wanted.clone(),
                holds_slot: *holds_slot,
                cancel: stop,
            };
            asker.ask(question).await
        };
        match stored.until_stored(ask).await {
            Ok(ChildAnswer::Decided(decided)) => match (decided.kind, decided.state) {
                (ApprovalKind::Form { answers, .. }, ApprovalState::Used | ApprovalState::Approved) => {
                    FormAnswer::Given(answers)
                }
                (_, ApprovalState::Expired) => FormAnswer::Expired,
                (_, ApprovalState::Denied) => FormAnswer::Declined,
                _ => FormAnswer::Stopped,
            },
            Ok(ChildAnswer::Refused(_)) => FormAnswer::Unasked("too many runs wait for people already".into()),
            Ok(ChildAnswer::Cancelled) => FormAnswer::Stopped,
            Err(error) => {
                log_failure!(error, error, %error, run = %request.run, "a form could not be stored");
                FormAnswer::Unasked(unasked(&error).into())
            }
        }
    }
}

/// Why the person was not asked, for the server.
fn unasked(error: &StoreError) -> &'static str {
    match error.is_elsewhere() {
        true => "another node continues the run",
        false => "the store does not answer",
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::CallId;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_bound_to_server_call_and_form() {
        let call = |id: &str| ToolCall {
            id: CallId::from(id),
            name: "t".into(),
            arguments: Arguments::Object(json!({ "a": 1 }).as_object().cloned().unwrap_or_default()),
        };
        let form = |server: &str, message: &str| Form {
            server: server.into(),
            message: message.into(),
            fields: Vec::new(),
            url: None,
            asks_for_secret: false,
        };
        let base = wanted(&call("1"), form("s", "m"), 1);
        assert_eq!(base.digest, wanted(&call("1"), form("s", "m"), 1).digest);
        for other in [
            wanted(&call("2"), form("s", "m"), 1),
            wanted(&call("1"), form("x", "m"), 1),
            wanted(&call("1"), form("s", "n"), 1),
            wanted(&call("1"), form("s", "m"), 2),
        ] {
            assert_ne!(base.digest, other.digest);
        }
    }
}
