//! The client side of a connection: requests and notifications of a server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rmcp::ErrorData;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientResult, CustomResult, ElicitationCapability, ErrorCode,
    FormElicitationCapability, Implementation, JsonObject, ProtocolVersion, ServerNotification, ServerRequest,
    TASKS_EXTENSION_ID, UrlElicitationCapability,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient, Service};
use serde_json::Value;
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::mcp::elicitor::Elicitor;
use crate::mcp::revision::Spoken;
use crate::mcp::untrusted::line;

/// Longest shown method of a request, in bytes.
const MAX_METHOD: usize = 100;

/// Why a question has no call.
const NO_CALL: &str = "no call of a tool is in progress";

/// Follows what a server has asked for while several of its tools were running.
const AGAIN: &str = ", while several of its tools were running and without saying for which; from now on its calls run one \
                     at a time, so a repeated call can ask; check first what this one did";

/// Answers a server's requests. A question for a person goes to the person of the call in progress. Every other request
/// except a ping is refused: there is no sampling and no list of roots.
pub(super) struct Listener {
    server: String,
    spoken: Spoken,
    notices: Arc<Notices>,
}

/// Counts the notifications of a server, and knows what it asks.
#[derive(Debug, Default)]
pub(super) struct Notices {
    tools_changed: AtomicU64,
    refused: Mutex<Refused>,
    /// The calls in progress, in their order.
    calls: Mutex<Vec<Weak<Elicitor>>>,
    /// Held by the one call in progress of a server that does not say for which call it asks.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// The requests of a server that were refused.
#[derive(Debug, Default)]
struct Refused {
    count: u64,
    /// What the last one asked for.
    last: String,
    /// The last question for a person that came while no call was in progress.
    early: Option<String>,
}

impl Notices {
    /// Number of notifications that the tools have changed.
    pub(super) fn tools_changed(&self) -> u64 {
        self.tools_changed.load(Ordering::SeqCst)
    }

    /// The tools have changed, or may have.
    pub(super) fn tools_have_changed(&self) {
        self.tools_changed.fetch_add(1, Ordering::SeqCst);
    }

    /// Number of requests of the server that were refused.
    pub(super) fn refused(&self) -> u64 {
        self.lock_refused().count
    }

    /// The last request that was refused since this number of them, or else the last question that came while no call
    /// was in progress, as of a server that wants to know something before its first call; `None`: nothing. Asked at
    /// the end of a call: that question has to do with no later one.
    pub(super) fn refused_since(&self, count: u64) -> Option<String> {
        let mut refused = self.lock_refused();
        let early = refused.early.take();
        if refused.count > count { Some(refused.last.clone()) } else { early }
    }

    /// Takes the last question that came while no call was in progress, to report it.
    pub(super) fn take_early(&self) -> Option<String> {
        self.lock_refused().early.take()
    }

    /// A call begins; it has ended when the value is dropped.
    pub(super) fn call(&self, elicitor: &Arc<Elicitor>) {
        let mut calls = self.lock_calls();
        calls.retain(|call| call.strong_count() > 0);
        calls.push(Arc::downgrade(elicitor));
    }

    /// Waits until no other call that takes a turn is in progress. The turn ends when the value is dropped.
    ///
    /// # Cancel safety
    /// If the future is dropped, the turn goes to the next call.
    pub(super) async fn turn(&self) -> OwnedMutexGuard<()> {
        self.turn.clone().lock_owned().await
    }

    /// The call in progress that a question of the server belongs to. The server does not say which, so several calls count
    /// only if all are of one tool: then it is the first that asks nothing yet. A call that is over asks nothing.
    fn asking(&self) -> Result<Arc<Elicitor>, &'static str> {
        Self::among(&self.lock_calls())
    }

    /// The same, if only these calls have begun.
    fn among(begun: &[Weak<Elicitor>]) -> Result<Arc<Elicitor>, &'static str> {
        let mut calls: Vec<_> = begun.iter().filter_map(Weak::upgrade).collect();
        calls.retain(|call| !call.is_over());
        let first = calls.first().ok_or(NO_CALL)?;
        match calls.iter().all(|call| call.tool == first.tool) {
            true => Ok(calls.iter().find(|call| !call.is_asking()).unwrap_or(first).clone()),
            false => Err("several tools are running, and it does not say for which of them it asks"),
        }
    }

    /// Asks the person of the call that a question belongs to. If that call ends while it waits, the question was of another
    /// one, and is asked for that.
    ///
    /// # Errors
    /// Why nobody was asked, as the end of a sentence.
    async fn ask(&self, params: &Value, stop: &CancellationToken) -> Result<Value, String> {
        // A call that begins later has not asked this.
        let begun = self.lock_calls().clone();
        loop {
            let call = Self::among(&begun)?;
            let answer = call.answer(params, stop).await;
            let is_given = answer.as_ref().is_ok_and(|answer| answer["action"] != "cancel");
            if is_given || !call.is_over() || stop.is_cancelled() || Self::among(&begun).is_err() {
                return answer;
            }
        }
    }

    fn lock_calls(&self) -> MutexGuard<'_, Vec<Weak<Elicitor>>> {
        // Each change is one insertion or removal, so a panic cannot leave it inconsistent.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request that is refused. Returns whether it is the first question that came while no call was in
    /// progress.
    fn refuse(&self, asked: String, is_question: bool) -> bool {
        let is_early = is_question && self.asking().err() == Some(NO_CALL);
        let mut refused = self.lock_refused();
        refused.count += 1;
        if is_early {
            let early = format!("{asked} while none of its tools was called");
            refused.last.clone_from(&early);
            refused.early.replace(early).is_none()
        } else {
            refused.last = asked;
            false
        }
    }

    fn lock_refused(&self) -> MutexGuard<'_, Refused> {
        // Both fields are plain values: a panic leaves at worst the words of another request.
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener {
    pub(super) fn new(server: &str, spoken: Spoken, notices: Arc<Notices>) -> Self {
        Self { server: server.to_owned(), spoken, notices }
    }

    /// Notes a request that is refused. `again` follows what it asks for.
    fn refuse(&self, request: &ServerRequest, again: &str) {
        let (server, asked) = (&self.server, asked(request));
        match self.notices.refuse(format!("{asked}{again}"), elicitation(request).is_some()) {
            true => {
                warn!(server, detail = asked, "mcp server asks a person while none of its tools is called, refused")
            }
            false => debug!(server, detail = asked, "mcp server asks for what is not offered, refused"),
        }
    }

    /// Refuses a request that comes before the connection is open. Returns the error for the server.
    pub(super) fn refuse_unopened(&self, request: &ServerRequest) -> ErrorData {
        self.refuse(request, "");
        match elicitation(request) {
            Some(_) => nobody(NO_CALL),
            None => not_offered(),
        }
    }
}

/// The error for a question that nobody is asked.
fn nobody(why: &str) -> ErrorData {
    ErrorData::invalid_params(format!("nobody can be asked: {why}"), None)
}

/// The error for a request that no client of Belay answers.
fn not_offered() -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "this client offers servers nothing to ask for", None)
}

impl Service<RoleClient> for Listener {
    async fn handle_request(
        &self,
        request: ServerRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        if matches!(request, ServerRequest::PingRequest(_)) {
            return Ok(ClientResult::empty(()));
        }
        if let Some(params) = elicitation(&request) {
            self.spoken.has_asked();
            let answered = match self.notices.asking() {
                Ok(_) => self.notices.ask(&params, &context.ct).await,
                Err(why) => {
                    self.refuse(&request, if why == NO_CALL { "" } else { AGAIN });
                    Err(why.to_owned())
                }
            };
            return answered.map(|result| ClientResult::CustomResult(CustomResult(result))).map_err(|why| nobody(&why));
        }
        self.refuse(&request, "");
        Err(not_offered())
    }

    async fn handle_notification(
        &self,
        notification: ServerNotification,
        _context: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        if matches!(notification, ServerNotification::ToolListChangedNotification(_)) {
            self.notices.tools_have_changed();
            debug!(server = self.server, "mcp server says that its tools have changed");
        }
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("belay", env!("CARGO_PKG_VERSION"));
        // Also while nobody can be asked: a server may list other tools to a client that cannot ask.
        let elicitation = ElicitationCapability::new()
            .with_form(FormElicitationCapability::default())
            .with_url(UrlElicitationCapability::default());
        let mut can = ClientCapabilities::default();
        can.elicitation = Some(elicitation);
        // Each request of a revision without `initialize` says it: such a server may run any call as a task.
        can.extensions = Some([(TASKS_EXTENSION_ID.to_owned(), JsonObject::new())].into());
        ClientConfig::new(can, us).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}

/// The parameters of a question for a person, also in a form that the SDK does not read.
fn elicitation(request: &ServerRequest) -> Option<Value> {
    match request {
        ServerRequest::ElicitRequest(request) => serde_json::to_value(&request.params).ok(),
        ServerRequest::CustomRequest(custom) if custom.method == "elicitation/create" => {
            Some(custom.params.clone().unwrap_or_default())
        }
        _ => None,
    }
}

/// What a request asks for, for the model and people.
fn asked(request: &ServerRequest) -> String {
    let method = match request {
        ServerRequest::CreateMessageRequest(_) => "sampling/createMessage",
        ServerRequest::ElicitRequest(_) => "elicitation/create",
        ServerRequest::ListRootsRequest(_) => "roots/list",
        ServerRequest::CustomRequest(custom) => &custom.method,
        _ => "another request",
    };
    let thing = match method {
        "sampling/createMessage" => "a model",
        "elicitation/create" => "an answer of a person",
        "roots/list" => "directories",
        other => return line(other, MAX_METHOD),
    };
    format!("{thing} ({method})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_between_two_calls_is_reported_once() {
        let notices = Notices::default();
        assert!(notices.refuse("an answer".into(), true));
        let count = notices.refused();
        let reported = notices.refused_since(count);
        assert_eq!(reported.as_deref(), Some("an answer while none of its tools was called"));
        assert_eq!((notices.refused_since(count), notices.take_early()), (None, None));
    }

    #[test]
    fn a_question_belongs_to_no_call_that_is_over() {
        let notices = Notices::default();
        let call = |tool: &str| {
            let elicitor = Arc::new(Elicitor::new("s", tool, Default::default(), Default::default()));
            notices.call(&elicitor);
            elicitor
        };
        let (first, second) = (call("a"), call("b"));
        assert!(notices.asking().is_err(), "it may be of either");
        drop(first.until_dropped());
        assert_eq!(notices.asking().ok().map(|call| call.tool.clone()).as_deref(), Some("b"));
        drop(second.until_dropped());
        assert_eq!(notices.asking().err(), Some(NO_CALL));
    }
}
