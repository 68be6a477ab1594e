//! The methods: what each is called, what it needs, and what it does. Schemas are closed: an unknown parameter is refused.

mod approvals;
mod chat;
mod daemon;
mod runs;
mod sessions;

use belay_protocol::{Principal, RunId, RunWatch, Seq, SessionKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::follow::Kind;
use super::frames::RpcError;
use super::scope::{Scope, Scopes};
use crate::app::Shared;
use crate::checks::run_id;
use crate::error::ApiError;
use crate::extract::parse_object;
use crate::visibility::{VisibleRun, VisibleSession};

/// Who calls.
pub(super) struct Caller {
    pub(super) app: Shared,
    pub(super) principal: Principal,
    pub(super) scopes: Scopes,
}

impl Caller {
    /// The session of that key.
    ///
    /// # Errors
    /// It is no key, or 404: for them there is none.
    async fn session(&self, key: &str) -> Result<VisibleSession, ApiError> {
        self.app.visibility(&self.principal).visible_session(session_key(key)?).await
    }

    /// The run of that id.
    ///
    /// # Errors
    /// As [`Caller::session`].
    async fn run(&self, id: &str) -> Result<VisibleRun, ApiError> {
        self.app.visibility(&self.principal).visible_run(run_id(id)?).await
    }

    /// Whether events of runs may be sent to it.
    pub(super) fn may_follow(&self) -> bool {
        self.scopes.has(Scope::Read)
    }
}

/// What a call comes to.
pub(super) enum Outcome {
    /// This is the answer.
    Answered(Value),
    /// A message was accepted; this is the first answer.
    Accepted(Value, Begun),
    /// A run has ended, and this says how.
    Over(Over),
}

/// How a run has ended.
pub(super) struct Over {
    pub(super) run: RunId,
    pub(super) session: SessionKey,
    pub(super) payload: Value,
}

/// A run that was begun, or found at work.
pub(super) struct Begun {
    /// Which of its events are sent.
    pub(super) kind: Kind,
    pub(super) run: RunId,
    pub(super) session: SessionKey,
    pub(super) watch: Option<RunWatch>,
    /// Whether its end is another answer to the same request.
    pub(super) answers_twice: bool,
}

/// What a method does to a connection.
pub(super) enum Does {
    /// It asks, and is answered.
    Ask(Urgency),
    /// It makes the connection follow a session.
    Subscribe(Kind),
    /// It ends that.
    Unsubscribe(Kind),
}

/// Whether a method must come through when everything is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// It waits for its turn.
    Usual,
    /// It stops something, or answers a question.
    Brake,
}

impl Urgency {
    pub(super) fn is_brake(self) -> bool {
        self == Self::Brake
    }
}

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $scope:expr, $does:expr;)+) => {
        /// A method.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Method { $($(#[$doc])* $name,)+ }

        impl Method {
            /// Every name.
            pub(super) fn names() -> &'static [&'static str] {
                &[$($word,)+]
            }

            /// The method of that name.
            pub(super) fn from_name(name: &str) -> Option<Self> {
                match name { $($word => Some(Self::$name),)+ _ => None }
            }

            /// What it needs; `None`: nothing.
            pub(super) fn scope(self) -> Option<Scope> {
                match self { $(Self::$name => $scope,)+ }
            }

            /// What it does to the connection.
            pub(super) fn does(self) -> Does {
                match self { $(Self::$name => $does,)+ }
            }
        }
    };
}

const READ: Option<Scope> = Some(Scope::Read);
const WRITE: Option<Scope> = Some(Scope::Write);
const ASK: Does = Does::Ask(Urgency::Usual);
const BRAKE: Does = Does::Ask(Urgency::Brake);

methods! {
    /// Send a message; answered when it is accepted, and again when its run has ended.
    Agent = "agent", WRITE, ASK;
    /// Wait for the end of a run.
    AgentWait = "agent.wait", READ, ASK;
    /// Send a message; answered when it is accepted.
    ChatSend = "chat.send", WRITE, ASK;
    /// Stop a run, or all of a session.
    ChatAbort = "chat.abort", WRITE, BRAKE;
    /// What was said.
    ChatHistory = "chat.history", READ, ASK;
    /// Follow what is said in a session.
    ChatSubscribe = "chat.subscribe", READ, Does::Subscribe(Kind::Chat);
    /// End that.
    ChatUnsubscribe = "chat.unsubscribe", READ, Does::Unsubscribe(Kind::Chat);
    /// Sessions, most recently used first.
    SessionsList = "sessions.list", READ, ASK;
    /// One session.
    SessionsGet = "sessions.get", READ, ASK;
    /// One session, which the first message makes.
    SessionsCreate = "sessions.create", WRITE, ASK;
    /// Change what a session asks of its runs.
    SessionsPatch = "sessions.patch", WRITE, ASK;
    /// Begin a new conversation in a session.
    SessionsReset = "sessions.reset", WRITE, ASK;
    /// Stop all of a session.
    SessionsStop = "sessions.stop", WRITE, BRAKE;
    /// Follow what runs of a session do.
    SessionsSubscribe = "sessions.subscribe", READ, Does::Subscribe(Kind::Agent);
    /// End that.
    SessionsUnsubscribe = "sessions.unsubscribe", READ, Does::Unsubscribe(Kind::Agent);
    /// Questions that wait for an answer.
    ApprovalsList = "approvals.list", Some(Scope::Approvals), ASK;
    /// Answer one.
    ApprovalsDecide = "approvals.decide", Some(Scope::Approvals), BRAKE;
    /// Whether messages are taken.
    Health = "health", None, ASK;
    /// What is going on.
    Status = "status", READ, ASK;
    /// The models that can be asked.
    ModelsList = "models.list", READ, ASK;
}

impl Method {
    /// Whether runs begin by it, which are followed.
    pub(super) fn begins_runs(self) -> bool {
        matches!(self, Self::Agent | Self::ChatSend)
    }
}

/// Calls a method that asks. What it hands to the agent it hands over when it is first polled, so that who polls calls in
/// order keeps their order; only where a run, a question, or the session of a job or a routine run is named, it looks first whose that is.
///
/// # Cancel safety
/// What was handed to the agent takes its course; only the answer is lost.
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
        } // seen to by the connection itself
    };
    Ok(Outcome::Answered(answer))
}

/// The parameters of a method.
fn read<T: DeserializeOwned>(params: &str) -> Result<T, RpcError> {
    parse_object(params.as_bytes()).map_err(|error| RpcError::invalid(format!("params: {}", error.message)))
}

/// The session of that key.
fn session_key(text: &str) -> Result<SessionKey, ApiError> {
    SessionKey::parse(text).map_err(|error| ApiError::invalid(format!("sessionKey: {error}")))
}

/// The parameters of a method that takes none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// What is subscribed to.
pub(super) struct Subscription {
    pub(super) session: SessionKey,
    /// Facts behind this one come first; `None`: what happens from now on.
    pub(super) since: Option<Seq>,
}

impl Subscription {
    pub(super) fn read(params: &str) -> Result<Self, RpcError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        struct Params {
            session_key: String,
            since: Option<u64>,
        }
        let Params { session_key: key, since } = read(params)?;
        Ok(Self { session: session_key(&key)?, since: since.map(Seq) })
    }
}
