//! Approval requests: the stored questions to people about tool calls, who may answer them, and the port that keeps
//! them. A *gate* is an approval request.

use std::cmp::Ordering;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{ApprovalId, CallId, ChannelId, IdPrefix, RunId, SessionKey};
use crate::principal::{Principal, Role};
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// An approval request for one tool call. It is stored before it is shown, and it is answered once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    /// Its id; an answer names it.
    pub id: ApprovalId,
    /// The run that is paused by it.
    pub run_id: RunId,
    /// The session of that run.
    pub session: SessionKey,
    /// The tool call.
    pub call_id: CallId,
    /// The tool.
    pub tool: String,
    /// The kind of answer that is asked for.
    pub kind: ApprovalKind,
    /// The effect of the call, in one line.
    pub summary: String,
    /// The arguments; values of sensitive ones are replaced.
    pub arguments: Value,
    /// The reason for the question: the rule, or the untrusted content that the run has read.
    pub detail: String,
    /// The facts that the answer is bound to, by name, as the person sees them.
    pub bound: Vec<(String, String)>,
    /// blake3 of the tool, the canonical arguments and all bound facts, in hex.
    pub digest: String,
    /// The calls that "always" would cover; `None`: "always" is not offered.
    pub covers: Option<String>,
    /// The principal that the run works for.
    pub asker: Asker,
    /// The time of the question.
    pub asked_at: UnixMillis,
    /// The time at which it becomes a denial.
    pub expires_at: UnixMillis,
    /// Its state.
    pub state: ApprovalState,
    /// The principal that answered.
    pub decided_by: Option<String>,
    /// The time of the answer.
    pub decided_at: Option<UnixMillis>,
}

/// The kind of an approval request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ApprovalKind {
    /// A yes or no.
    Approval,
    /// A secret; the next message of the person is taken as the secret.
    Credential {
        /// Its name in the vault.
        name: String,
    },
}

/// The state of an approval request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// It waits for an answer.
    Waiting,
    /// It was approved for one call, which has not begun.
    Approved,
    /// The approved call has begun. The approval allows no further call.
    Used,
    /// It was denied.
    Denied,
    /// Its time passed without an answer.
    Expired,
    /// The run ended before an answer came.
    Withdrawn,
}

impl ApprovalState {
    /// The name in the store and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Approved => "approved",
            Self::Used => "used",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }

    /// The state with this name.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Waiting, Self::Approved, Self::Used, Self::Denied, Self::Expired, Self::Withdrawn]
            .into_iter()
            .find(|state| state.word() == word)
    }

    /// The text for a second answer, as the end of a sentence.
    pub fn told(self) -> &'static str {
        match self {
            Self::Waiting => "is waiting for an answer",
            Self::Approved | Self::Used => "was approved before",
            Self::Denied => "was denied before",
            Self::Expired => "has expired: nobody answered in time",
            Self::Withdrawn => "is no longer asked: its run has ended",
        }
    }
}

/// An answer to an approval request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Approve this call.
    Approve,
    /// Approve this call and all calls in this session that [`ApprovalRequest::covers`] covers.
    Always,
    /// Deny this call.
    Deny,
}

/// The authority of a principal in relation to a conversation. Later ones are stronger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Authority {
    /// A person in a conversation on a platform.
    #[default]
    Conversation,
    /// A program with the API token.
    Token,
    /// The operator.
    Operator,
}

impl From<Role> for Authority {
    fn from(role: Role) -> Self {
        match role {
            Role::User => Self::Conversation,
            Role::Client => Self::Token,
            Role::Operator => Self::Operator,
        }
    }
}

/// The principal that a run works for. It may answer the questions of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asker {
    /// The id of the sender.
    pub principal: String,
    /// The authority of the sender.
    pub authority: Authority,
    /// Whether another program relayed the message, such as an inline bot. Then nobody is asked: calls that need
    /// approval are refused at once.
    #[serde(default)]
    pub relayed: bool,
}

impl Asker {
    /// The sender of a message.
    pub fn of(principal: &Principal, relayed: bool) -> Self {
        Self { principal: principal.id.to_string(), authority: principal.role.into(), relayed }
    }

    /// Whether this principal, who writes through the channel `through`, may see and change a job or a routine.
    /// `creator` has made it through the channel `made_through`. An operator may see and change all of them; everybody
    /// else only their own.
    pub fn owns(&self, through: &ChannelId, creator: &Self, made_through: &ChannelId) -> bool {
        self.authority == Authority::Operator || (self.principal == creator.principal && through == made_through)
    }

    /// Whether the principal `who`, who writes in `session`, may answer an approval request of the session `asked_in`.
    ///
    /// The asker may, and so may every principal with a stronger authority. A principal with the same authority may not
    /// answer for another one. A person answers in the conversation of the question; a program has no conversation of
    /// its own and answers from any.
    pub fn may_be_decided_by(&self, asked_in: &SessionKey, who: &Principal, session: &SessionKey) -> bool {
        let authority = Authority::from(who.role);
        let is_asker = *who.id == *self.principal;
        match (authority, authority.cmp(&self.authority)) {
            (Authority::Operator, _) => true,
            (_, Ordering::Less) => false,
            (_, Ordering::Greater) => true,
            (Authority::Token, Ordering::Equal) => is_asker,
            (Authority::Conversation, Ordering::Equal) => is_asker && session == asked_in,
        }
    }
}

/// The data of an approval request that goes to a channel with its text, so that the channel can show buttons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The id of the approval request.
    pub approval: ApprovalId,
    /// Whether the person may answer "always".
    pub offers_always: bool,
    /// Whether it asks for a yes or no. A secret has to be typed.
    pub decidable: bool,
}

/// The result of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Decided {
    /// The answer is accepted. The gate is as it is now.
    Now(Box<ApprovalRequest>),
    /// It was answered before, or it is no longer open.
    Before(Box<ApprovalRequest>),
    /// There is no approval request with this id.
    Unknown,
}

impl ApprovalRequest {
    /// Its state at this moment. It has expired as soon as its time has passed, even before the lane that waits for it
    /// notices, since no later answer counts. Lanes notice a clock that was set forward within a minute.
    pub fn state_at(&self, now: UnixMillis) -> ApprovalState {
        match self.state {
            ApprovalState::Waiting if now.0 >= self.expires_at.0 => ApprovalState::Expired,
            state => state,
        }
    }
}

/// The filter of a list of approval requests.
#[derive(Clone, Debug, Default)]
pub struct ApprovalFilter {
    /// Only those whose id has this prefix.
    pub id: Option<IdPrefix>,
    /// Only those of this session.
    pub session: Option<SessionKey>,
    /// Only those of runs from this channel.
    pub channel: Option<ChannelId>,
    /// Only those that wait for an answer.
    pub waiting: bool,
    /// The maximum count, newest first; 0 means 50.
    pub limit: u32,
}

/// Keeps approval requests and grants. [`pause_run`](crate::store::RunStore::pause_run) creates an approval request, a
/// [`Checkpoint`](crate::store::Checkpoint) uses it, and the end of its run withdraws it.
#[async_trait]
pub trait ApprovalStore: Send + Sync {
    /// Answers an open approval request with [`ApprovalState::Approved`], [`ApprovalState::Denied`] or [`ApprovalState::Expired`].
    /// With `always`, the calls that it covers are granted to the session in the same commit. Only the first answer
    /// counts. Committed.
    async fn decide(
        &self,
        id: ApprovalId,
        state: ApprovalState,
        always: bool,
        by: &str,
        at: UnixMillis,
    ) -> Result<Decided, StoreError>;
    /// The approval request with this id.
    async fn approval(&self, id: ApprovalId) -> Result<Option<ApprovalRequest>, StoreError>;
    /// Approval requests, newest first.
    async fn approvals(&self, filter: ApprovalFilter) -> Result<Vec<ApprovalRequest>, StoreError>;
    /// The approval requests of a run, oldest first.
    async fn approvals_of(&self, run: RunId) -> Result<Vec<ApprovalRequest>, StoreError>;
    /// Whether the session has a grant for this tool and this cover, by an earlier "always".
    async fn granted(&self, session: &SessionKey, tool: &str, covers: &str) -> Result<bool, StoreError>;
    /// Revokes the grants of a session. Returns their number.
    async fn forget_grants(&self, session: &SessionKey) -> Result<u32, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_from_whoever_asked_or_from_a_stronger_authority() {
        let who = |id: &str, role| Principal { id: id.into(), role };
        let here = SessionKey::new("here");
        let there = SessionKey::new("there");
        for (authority, who, session, expected) in [
            (Authority::Conversation, who("ann", Role::User), &here, true),
            (Authority::Conversation, who("bob", Role::User), &here, false),
            (Authority::Conversation, who("ann", Role::User), &there, false),
            (Authority::Conversation, who("token", Role::Client), &there, true),
            (Authority::Conversation, who("root", Role::Operator), &there, true),
            (Authority::Token, who("ann", Role::User), &here, false),
            (Authority::Token, who("ann", Role::Client), &here, true),
            (Authority::Token, who("ann", Role::Client), &there, true),
            (Authority::Token, who("another program", Role::Client), &here, false),
            (Authority::Token, who("another program", Role::Client), &there, false),
            (Authority::Operator, who("token", Role::Client), &here, false),
            (Authority::Operator, who("root", Role::Operator), &there, true),
        ] {
            let asker = Asker { principal: "ann".into(), authority, relayed: false };
            assert_eq!(asker.may_be_decided_by(&here, &who, session), expected, "{authority:?} {who:?} {session}");
        }
    }
}
