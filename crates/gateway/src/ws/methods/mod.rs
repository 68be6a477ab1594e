//! The RPC methods: the name, scope and effect of each. Schemas are closed: an unknown parameter is refused.

mod approvals;
mod chat;
mod daemon;
#[cfg(test)]
mod params;
mod runs;
mod sessions;

use belay_protocol::{Principal, RunId, RunWatch, Seq, SessionKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::claims::Kind;
use super::frames::RpcError;
use super::scope::{Scope, Scopes};
use crate::app::Shared;
use crate::checks::run_id;
use crate::error::ApiError;
use crate::extract::parse_object;
use crate::visibility::{VisibleRun, VisibleSession};

/// The caller of a method.
pub(super) struct Caller {
    pub(super) app: Shared,
    pub(super) principal: Principal,
    pub(super) scopes: Scopes,
}

impl Caller {
    /// Checks the session of that key.
    ///
    /// # Errors
    /// The key is invalid; or 404 if the caller may not see the session.
    async fn session(&self, key: &str) -> Result<VisibleSession, ApiError> {
        self.app.visibility(&self.principal).visible_session(session_key(key)?).await
    }

    /// Checks the run of that id.
    ///
    /// # Errors
    /// As [`Caller::session`].
    async fn run(&self, id: &str) -> Result<VisibleRun, ApiError> {
        self.app.visibility(&self.principal).visible_run(run_id(id)?).await
    }

    /// Whether the caller may receive events of runs.
    pub(super) fn may_follow(&self) -> bool {
        self.scopes.has(Scope::Read)
    }
}

/// The result of a call.
pub(super) enum Outcome {
    /// The only answer.
    Answered(Value),
    /// The first answer: the message was accepted.
    Accepted(Value, Begun),
    /// The last answer: the run has ended.
    RunEnd(RunEnd),
}

/// The end of a run.
pub(super) struct RunEnd {
    pub(super) run: RunId,
    pub(super) session: SessionKey,
    pub(super) payload: Value,
}

/// A run that was started or found live.
pub(super) struct Begun {
    /// The kind of events to send.
    pub(super) kind: Kind,
    pub(super) run: RunId,
    pub(super) session: SessionKey,
    pub(super) watch: Option<RunWatch>,
    /// Whether the end of the run is a second answer to the same request.
    pub(super) answers_twice: bool,
}

/// The effect of a method on a connection.
pub(super) enum Effect {
    /// It gets an answer.
    Ask(Urgency),
    /// It makes the connection follow a session.
    Subscribe(Kind),
    /// It stops following a session.
    Unsubscribe(Kind),
}

/// Whether a method must work when the limit of requests is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// It counts towards the limit.
    Normal,
    /// It stops a run or answers an approval request.
    Urgent,
}

impl Urgency {
    pub(super) fn is_urgent(self) -> bool {
        self == Self::Urgent
    }
}

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $scope:expr, $effect:expr;)+) => {
        /// A method.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Method { $($(#[$doc])* $name,)+ }

        impl Method {
            /// The names of all methods.
            pub(super) fn names() -> &'static [&'static str] {
                &[$($word,)+]
            }

            /// The method of that name.
            pub(super) fn from_name(name: &str) -> Option<Self> {
                match name { $($word => Some(Self::$name),)+ _ => None }
            }

            /// The scope that it needs; `None`: none.
            pub(super) fn scope(self) -> Option<Scope> {
                match self { $(Self::$name => $scope,)+ }
            }

            /// The effect on the connection.
            pub(super) fn effect(self) -> Effect {
                match self { $(Self::$name => $effect,)+ }
            }
        }
    };
}

const READ: Option<Scope> = Some(Scope::Read);
const WRITE: Option<Scope> = Some(Scope::Write);
const ASK: Effect = Effect::Ask(Urgency::Normal);
const URGENT: Effect = Effect::Ask(Urgency::Urgent);

methods! {
    /// Sends a message. Answers when it is accepted, and again when its run has ended.
    Agent = "agent", WRITE, ASK;
    /// Waits for the end of a run.
    AgentWait = "agent.wait", READ, ASK;
    /// Sends a message. Answers when it is accepted.
    ChatSend = "chat.send", WRITE, ASK;
    /// Stops a run, or the running turn and queue of a session.
    ChatAbort = "chat.abort", WRITE, URGENT;
    /// Returns the messages of a session.
    ChatHistory = "chat.history", READ, ASK;
    /// Follows the text of a session's runs.
    ChatSubscribe = "chat.subscribe", READ, Effect::Subscribe(Kind::Chat);
    /// Stops following the text of a session's runs.
    ChatUnsubscribe = "chat.unsubscribe", READ, Effect::Unsubscribe(Kind::Chat);
    /// Lists sessions, most recently used first.
    SessionsList = "sessions.list", READ, ASK;
    /// Shows one session.
    SessionsGet = "sessions.get", READ, ASK;
    /// Shows one session. Its first message creates it.
    SessionsCreate = "sessions.create", WRITE, ASK;
    /// Changes the run options of a session.
    SessionsPatch = "sessions.patch", WRITE, ASK;
    /// Begins a new conversation in a session.
    SessionsReset = "sessions.reset", WRITE, ASK;
    /// Stops the running turn and queue of a session.
    SessionsStop = "sessions.stop", WRITE, URGENT;
    /// Follows the progress of a session's runs.
    SessionsSubscribe = "sessions.subscribe", READ, Effect::Subscribe(Kind::Agent);
    /// Stops following the progress of a session's runs.
    SessionsUnsubscribe = "sessions.unsubscribe", READ, Effect::Unsubscribe(Kind::Agent);
    /// Lists open approval requests.
    ApprovalsList = "approvals.list", Some(Scope::Approvals), ASK;
    /// Answers an approval request.
    ApprovalsDecide = "approvals.decide", Some(Scope::Approvals), URGENT;
    /// Whether messages are accepted.
    Health = "health", None, ASK;
    /// Returns the status of the daemon.
    Status = "status", READ, ASK;
    /// Lists the available models.
    ModelsList = "models.list", READ, ASK;
}

impl Method {
    /// Whether the method starts a run, which is then followed.
    pub(super) fn begins_runs(self) -> bool {
        matches!(self, Self::Agent | Self::ChatSend)
    }
}

/// Calls a method. The first poll hands the request to the agent, so a caller that polls in order keeps the order. Only
/// if the request names a run, an approval request, or the session of a job or a routine run, visibility is checked
/// before.
///
/// # Cancel safety
/// The agent handles what it has received; only the answer is lost.
pub(super) async fn call(caller: &Caller, method: Method, params: &str) -> Result<Outcome, RpcError> {
    let answer = match method {
        Method::Agent => return Ok(runs::agent(caller, read(params)?).await?),
        Method::ChatSend => return Ok(chat::send(caller, read(params)?).await?),
        Method::AgentWait => return Ok(runs::wait(caller, read(params)?).await?),
        Method::ChatAbort => chat::abort(caller, read(params)?).await?,
        Method::ChatHistory => chat::history(caller, read(params)?).await?,
        Method::SessionsList => sessions::list(caller, read(params)?).await?,
        Method::SessionsGet => sessions::get(caller, read(params)?).await?,
        Method::SessionsCreate => sessions::create(caller, read(params)?).await?,
        Method::SessionsPatch => sessions::patch(caller, read(params)?).await?,
        Method::SessionsReset => sessions::reset(caller, read(params)?).await?,
        Method::SessionsStop => sessions::stop(caller, read(params)?).await?,
        Method::ApprovalsList => approvals::list(caller, read(params)?).await?,
        Method::ApprovalsDecide => approvals::decide(caller, read(params)?).await?,
        Method::Health => daemon::health(caller, read(params)?).await,
        Method::Status => daemon::status(caller, read(params)?).await?,
        Method::ModelsList => daemon::models(caller, read(params)?),
        Method::ChatSubscribe | Method::ChatUnsubscribe | Method::SessionsSubscribe | Method::SessionsUnsubscribe => {
            return Err(ApiError::internal().into());
        } // handled by the connection
    };
    Ok(Outcome::Answered(answer))
}

/// Parses the parameters of a method.
fn read<T: DeserializeOwned>(params: &str) -> Result<T, RpcError> {
    parse_object(params.as_bytes()).map_err(|error| RpcError::invalid(format!("params: {}", error.message)))
}

/// Parses a session key.
fn session_key(text: &str) -> Result<SessionKey, ApiError> {
    SessionKey::parse(text).map_err(|error| ApiError::invalid(format!("sessionKey: {error}")))
}

/// The parameters of a method without parameters.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "NoParams"))]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SubscriptionParams {
    session_key: String,
    /// The cursor of the last seen event: the facts after it come first.
    since: Option<u64>,
}

/// The parameters of a subscription.
pub(super) struct Subscription {
    pub(super) session: SessionKey,
    /// The facts after this one come first; `None`: only new events.
    pub(super) since: Option<Seq>,
}

impl Subscription {
    pub(super) fn read(params: &str) -> Result<Self, RpcError> {
        let SubscriptionParams { session_key: key, since } = read(params)?;
        Ok(Self { session: session_key(&key)?, since: since.map(Seq) })
    }
}
