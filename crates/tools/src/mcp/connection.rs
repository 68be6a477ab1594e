//! One connection to one server, from opening to closing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belay_protocol::{Generation, RunId};
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, CustomRequest, JsonObject, ProtocolVersion};
use rmcp::service::{RoleClient, ServiceError};
use rmcp::{ClientCacheConfig, Peer};
use serde_json::json;
use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::mcp::answer::Answer;
use crate::mcp::calls::{Calls, LiveTask};
use crate::mcp::elicitor::Elicitor;
use crate::mcp::input::Input;
use crate::mcp::listener::Notices;
use crate::mcp::listing::{self, Dialect, Listed};
use crate::mcp::membership::Membership;
use crate::mcp::offer::digests;
use crate::mcp::opening::{Open, Opener, close};
use crate::mcp::program::StartPrograms;
use crate::mcp::rounds::{Begun, Rounds};
use crate::mcp::server::Server;
use crate::mcp::server_error::ServerError;
use crate::mcp::subscribed::subscribe;
use crate::mcp::tasks::{TASK_LIMIT, TaskState, TaskSupport, has_server_tasks};
use crate::mcp::troubles::{MAX_ERROR, is_over, of_call, of_transport, silent};
use crate::mcp::untrusted::line;
use crate::mcp::wire::Watch;

/// Longest time for listing all tools of a server.
pub(super) const LIST_LIMIT: Duration = Duration::from_secs(10);

/// How often a call is sent because its server wants to know more. 10, as in the SDKs.
const MAX_ROUNDS: usize = 10;

/// What a call has come to.
pub(super) enum Called {
    /// Its answer.
    Answer(Answer),
    /// It goes on as a task.
    Task(TaskState),
}

/// The outcome of sending a call once.
enum Round {
    Called(Box<Called>),
    Input(Input),
}

/// The limits of the end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct EndLimits {
    /// The longest wait for the SDK to close a connection. Over HTTP, this sends a request that ends the session.
    pub close: Duration,
    /// The part of `close` in which the server is told which calls have no reader any more. A server that does not take
    /// that still gets the end of its session.
    pub tell: Duration,
    /// How long a program is given to read that its calls are cancelled, before it is asked to end.
    pub read: Duration,
}

impl Default for EndLimits {
    fn default() -> Self {
        let (close, tell, read) = (Duration::from_secs(2), Duration::from_millis(500), Duration::from_millis(100));
        Self { close, tell, read }
    }
}

/// A connection. If it is dropped, it is closed in the background.
pub(super) struct Connection {
    peer: Peer<RoleClient>,
    calls: Arc<Calls>,
    revision: ProtocolVersion,
    /// Whether no new call uses this connection: the server does not know its session any more, or speaks another
    /// revision in the next one. Calls in progress may still get their answers.
    gone: AtomicBool,
    notices: Arc<Notices>,
    watch: Arc<Watch>,
    open: Mutex<Option<Open>>,
    limits: EndLimits,
    known: Mutex<Option<Known>>,
    /// The subscription to changes of the tools.
    listening: Mutex<JoinSet<()>>,
}

/// The tools of the last listing.
struct Known {
    /// Number of change notifications before the listing.
    as_of: u64,
    /// The digest of each tool, and whether it can be called as a task, by name.
    tools: HashMap<String, (String, TaskSupport)>,
    /// Until when the server lets the listing count; `None`: until it reports a change.
    fresh_until: Option<Instant>,
}

impl Known {
    fn is_fresh(&self, as_of: u64) -> bool {
        self.as_of == as_of && self.fresh_until.is_none_or(|until| Instant::now() < until)
    }
}

impl Connection {
    /// Opens a connection for a run: starts the server or calls its URL, and performs the handshake. `watch` records
    /// what the server writes. `membership`: whether this node may still act for the run.
    ///
    /// # Cancel safety
    /// If the future is dropped, the server is ended.
    pub(super) async fn open(
        server: &Server,
        starter: &dyn StartPrograms,
        run: RunId,
        generation: &Generation,
        watch: Arc<Watch>,
        (limits, membership): (EndLimits, Membership),
    ) -> Result<Self, ServerError> {
        if !generation.is_current() {
            return Err(ServerError::Stopped);
        }
        let notices = Arc::new(Notices::default());
        let opener = Opener { server, starter, run, generation, watch: &watch, notices: &notices };
        let open = Box::pin(opener.open()).await.map_err(|trouble| trouble.after(notices.take_early()))?;
        let peer = open.service.peer().clone();
        let revision = peer.peer_info().map(|info| info.protocol_version.clone()).unwrap_or_default();
        let connection = Self {
            calls: Arc::new(Calls::new(peer.clone(), membership)),
            peer,
            revision,
            gone: AtomicBool::new(false),
            notices,
            watch,
            open: Mutex::new(Some(open)),
            limits,
            known: Mutex::new(None),
            listening: Mutex::default(),
        };
        // Disables the cache, so that every listing is current.
        connection.peer.set_response_cache_config(ClientCacheConfig::disabled()).await;
        Ok(connection)
    }

    /// Has changes of the tools reported, for a connection that lasts.
    pub(super) fn subscribe(&self) {
        *self.listening.lock().unwrap_or_else(PoisonError::into_inner) = subscribe(&self.peer, &self.notices);
    }

    /// Whether the server still accepts requests.
    pub(super) fn is_open(&self) -> bool {
        !self.is_gone() && !self.peer.is_transport_closed() && self.lock_open().is_some()
    }

    /// Whether no new call uses this connection, which may still be open.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// Makes the next call open another connection. This one is closed when its last call ends: other calls may be in
    /// progress.
    pub(super) fn leave(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    /// Whether the connection speaks a revision that begins with `initialize`.
    pub(super) fn has_initialize(&self) -> bool {
        self.revision.has_initialize()
    }

    /// Whether the server is an address instead of a program of this machine.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.lock_open().as_ref().is_some_and(|open| open.program.is_none())
    }

    /// Lists all tools of the server, in its order. A malformed tool is listed with its problem.
    pub(super) async fn tools(&self) -> Result<Vec<Listed>, ServerError> {
        self.list().await.map(|(tools, _)| tools)
    }

    async fn list(&self) -> Result<(Vec<Listed>, Option<Duration>), ServerError> {
        let listed = timeout(LIST_LIMIT, self.pages()).await;
        let listed = listed.unwrap_or_else(|_| Err(silent("`tools/list`", LIST_LIMIT, &self.watch)));
        listed.map_err(|trouble| trouble.after(self.notices.take_early()))
    }

    /// The tools, and how long the server lets the list count.
    async fn pages(&self) -> Result<(Vec<Listed>, Option<Duration>), ServerError> {
        let offers_tools = self.peer.peer_info().is_some_and(|info| info.capabilities.tools.is_some());
        if !offers_tools {
            return Ok((Vec::new(), None));
        }
        let dialect = Dialect { is_new: !self.revision.has_initialize(), has_tasks: self.has_tasks() };
        match listing::all(&self.peer, dialect).await {
            Ok(listed) => Ok(listed),
            Err(error) => Err(self.trouble(error).await),
        }
    }

    /// The digest of the tool's current description; `None`: the server has no such tool. Lists the tools once, and
    /// again after the server reports a change, or when the time is over for which it lets the list count.
    pub(super) async fn digest_of(&self, tool: &str) -> Result<Option<String>, ServerError> {
        let as_of = self.notices.tools_changed();
        if let Some(known) = self.known().as_ref().filter(|known| known.is_fresh(as_of)) {
            return Ok(known.tools.get(tool).map(|(digest, _)| digest.clone()));
        }
        let (listed, ttl) = self.list().await?;
        let fresh_until = ttl.and_then(|ttl| Instant::now().checked_add(ttl));
        let known = listed.iter().flatten();
        let tools: HashMap<_, _> =
            known.map(|listed| (listed.tool.name.to_string(), (digests(&listed.tool).whole, listed.tasks))).collect();
        let digest = tools.get(tool).map(|(digest, _)| digest.clone());
        *self.known() = Some(Known { as_of, tools, fresh_until });
        Ok(digest)
    }

    /// Whether the server is of a revision in which the client asks for tasks, and has them.
    fn has_tasks(&self) -> bool {
        self.has_initialize() && self.peer.peer_info().is_some_and(|info| has_server_tasks(&info.capabilities))
    }

    /// Whether a call of this tool, as the last listing describes it, is made as a task.
    fn calls_as_task(&self, tool: &str) -> bool {
        let support = self.known().as_ref().and_then(|known| known.tools.get(tool).map(|(_, support)| *support));
        self.has_tasks() && support.is_some_and(|support| support.is_used(self.is_elsewhere()))
    }

    /// The call of this person asks on this connection from now on.
    pub(super) fn expect_questions(&self, elicitor: &Arc<Elicitor>) {
        self.notices.call(elicitor);
    }

    /// The turn of a call, if the server does not say for which call it asks a person: then its calls run one at a time.
    pub(super) async fn turn(&self, server: &Server) -> Option<OwnedMutexGuard<()>> {
        match self.has_initialize() && server.spoken().asks() {
            true => Some(self.notices.turn().await),
            false => None,
        }
    }

    /// A task for which a call waits on this connection from now on. `is_kept`: whether the state of the run has its handle.
    pub(super) fn live_task(&self, id: &str, is_kept: bool) -> LiveTask {
        self.calls.live_task(id, is_kept)
    }

    /// The requests of the connection.
    pub(super) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// The error of a server that did not answer in time.
    pub(super) fn silent(&self, what: &'static str, limit: Duration) -> ServerError {
        silent(what, limit, &self.watch)
    }

    /// Calls a tool, as a task if the server and the tool allow that. `begun`: the round of an earlier attempt, with
    /// which the call goes on.
    ///
    /// # Cancel safety
    /// If the future is dropped, the server is notified (`notifications/cancelled`). Effects that have happened remain.
    pub(super) async fn call(
        &self,
        (tool, arguments): (&str, JsonObject),
        elicitor: &Arc<Elicitor>,
        rounds: &Rounds<'_>,
        mut begun: Option<Begun>,
    ) -> Result<Called, ServerError> {
        self.expect_questions(elicitor);
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let refused = self.notices.refused();
        for before in begun.as_ref().map_or(0, |begun| begun.before)..MAX_ROUNDS {
            let input = match begun.take() {
                Some(begun) => begun.input,
                None => match self.round(params.clone(), refused).await? {
                    Round::Called(called) => return Ok(*called),
                    Round::Input(input) => input,
                },
            };
            rounds.asks(Begun { before, asked: elicitor.asked(), input: input.clone() }).await;
            params = input.answered(params, elicitor).await?;
            rounds.sends().await;
        }
        Err(ServerError::AsksOn(MAX_ROUNDS))
    }

    /// Sends a call once.
    async fn round(&self, params: CallToolRequestParams, refused: u64) -> Result<Round, ServerError> {
        let request = match self.calls_as_task(&params.name) {
            false => ClientRequest::CallToolRequest(CallToolRequest::new(params)),
            // The server keeps the end of the task at least for this time, if it agrees.
            true => {
                let task = json!({ "ttl": u64::try_from(TASK_LIMIT.as_millis()).unwrap_or(u64::MAX) });
                let params = json!({ "name": params.name, "arguments": params.arguments, "task": task });
                ClientRequest::CustomRequest(CustomRequest::new("tools/call", Some(params)))
            }
        };
        match self.calls.ask(request).await {
            Ok(result) => {
                if let Some(task) = TaskState::read(&result) {
                    return Ok(Round::Called(Box::new(Called::Task(task))));
                }
                let result = match Input::read(result) {
                    Ok(input) => return Ok(Round::Input(input)),
                    Err(other) => other,
                };
                match Answer::read(*result) {
                    Some(answer) => {
                        let answer = answer.after(self.notices.refused_since(refused));
                        Ok(Round::Called(Box::new(Called::Answer(answer))))
                    }
                    None => Err(self.trouble(ServiceError::UnexpectedResponse).await),
                }
            }
            Err(ServiceError::McpError(error)) => Err(of_call(&error, self.notices.refused_since(refused))),
            Err(error) => Err(self.trouble(error).await),
        }
    }

    /// Cancels the calls without an answer, and waits until the server has been told, for `limit` at most. Returns the
    /// time at which it was last told.
    pub(super) async fn cancel_calls(&self, limit: Duration) -> Option<Instant> {
        self.calls.cancel_all(limit).await
    }

    /// Closes the connection and ends the server; returns how a server program ended. Pending requests fail.
    ///
    /// # Cancel safety
    /// If the future is dropped, the server is ended in the background.
    pub(super) async fn end(&self) -> Option<String> {
        let open = self.lock_open().take()?;
        *self.listening.lock().unwrap_or_else(PoisonError::into_inner) = JoinSet::new();
        let until = Instant::now() + self.limits.close;
        self.cancel_calls(self.limits.tell).await;
        close(open, until).await
    }

    /// Converts an error of the SDK. A broken connection is closed here, so that the error can say how the server
    /// ended.
    pub(super) async fn trouble(&self, error: ServiceError) -> ServerError {
        match error {
            ServiceError::McpError(error) => ServerError::Error(line(&error.message, MAX_ERROR)),
            ServiceError::TransportSend(error) => {
                let trouble = of_transport(&*error.error);
                if trouble == ServerError::SessionGone {
                    self.leave();
                    return trouble;
                }
                // The connection is unusable, so the next call opens a new one.
                if is_over(&*error.error) { self.end().await.map_or(trouble, ServerError::Ended) } else { trouble }
            }
            ServiceError::UnexpectedResponse => ServerError::NotMcp("its answer does not match the request".into()),
            ServiceError::TransportClosed => {
                let how = self.end().await.unwrap_or_else(|| "the connection is closed".into());
                self.watch.ended().map_or(ServerError::Ended(how), ServerError::NotMcp)
            }
            ServiceError::Cancelled { .. } => ServerError::Stopped,
            other => ServerError::Unreachable(line(&other.to_string(), MAX_ERROR)),
        }
    }

    fn lock_open(&self) -> std::sync::MutexGuard<'_, Option<Open>> {
        // The value is only replaced as a whole, so a panic cannot leave it inconsistent.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
