//! Questions to people about tool calls: what is asked, who may answer, and where questions are kept.

use std::cmp::Ordering;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{CallId, ChannelId, GateId, IdPrefix, RunId, SessionKey};
use crate::principal::{Principal, Role};
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// A question about one tool call. Stored before it is shown, answered once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// Its id: what an answer names.
    pub id: GateId,
    /// The run that rests on it.
    pub run_id: RunId,
    /// The session of the run.
    pub session: SessionKey,
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: String,
    /// What is asked for.
    pub kind: GateKind,
    /// What the call would do, in one line.
    pub summary: String,
    /// The arguments, sensitive ones replaced.
    pub arguments: Value,
    /// Why it is asked: the rule, or what was read before.
    pub detail: String,
    /// What the answer is bound to, by name, as it is shown.
    pub bound: Vec<(String, String)>,
    /// blake3 over tool, canonical arguments and all that the answer is bound to, in hex.
    pub digest: String,
    /// What "always" would cover; `None`: it is not offered.
    pub covers: Option<String>,
    /// For whom the run works.
    pub asker: Asker,
    /// When it was asked.
    pub asked_at: UnixMillis,
    /// When it becomes a denial.
    pub expires_at: UnixMillis,
    /// Where it stands.
    pub state: GateState,
    /// Who answered.
    pub decided_by: Option<String>,
    /// When.
    pub decided_at: Option<UnixMillis>,
}

/// What a question is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum GateKind {
    /// A yes or no.
    Approval,
    /// A secret, taken from the next message.
    Credential {
        /// Its name in the vault.
        name: String,
    },
}

/// Where a question stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateState {
    /// Nobody has answered.
    Waiting,
    /// Yes, this once; not used yet.
    Approved,
    /// The call it allowed has begun: it allows nothing more.
    Used,
    /// No.
    Denied,
    /// Nobody answered in time.
    Expired,
    /// The run ended first.
    Withdrawn,
}

impl GateState {
    /// The word in the store and on the wire.
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

    /// The state of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Waiting, Self::Approved, Self::Used, Self::Denied, Self::Expired, Self::Withdrawn]
            .into_iter()
            .find(|state| state.word() == word)
    }

    /// What a second answer is told.
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

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Yes, this once.
    Approve,
    /// Yes, and to the like in this session from now on.
    Always,
    /// No.
    Deny,
}

/// How strong a place is that an answer comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Authority {
    /// A conversation on a platform.
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

/// For whom a run works: who may answer its questions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asker {
    /// Who sent the message.
    pub principal: String,
    /// From what place.
    pub place: Authority,
    /// Whether another program relayed the message, such as an inline bot: nobody is asked, and approvals are refused at once.
    #[serde(default)]
    pub relayed: bool,
}

impl Asker {
    /// Whoever sends a message.
    pub fn of(principal: &Principal, relayed: bool) -> Self {
        Self { principal: principal.id.to_string(), place: principal.role.into(), relayed }
    }

    /// Whether work that goes on by itself, a job or a routine, which `creator` has made through the channel `made_through`, is
    /// theirs to see and to change, who speak through `through`: an operator's is all of it, everybody else's what is their own.
    pub fn owns(&self, through: &ChannelId, creator: &Self, made_through: &ChannelId) -> bool {
        self.place == Authority::Operator || (self.principal == creator.principal && through == made_through)
    }

    /// Whether `who`, speaking in `session`, may answer a question of `asked_in`: whoever asked, or somebody in a stronger
    /// place. Two principals of the same place are still two: neither answers for the other. A person answers in the
    /// conversation of the question; a program, which has no conversation of its own, from any.
    pub fn may_be_decided_by(&self, asked_in: &SessionKey, who: &Principal, session: &SessionKey) -> bool {
        let place = Authority::from(who.role);
        let is_asker = *who.id == *self.principal;
        match (place, place.cmp(&self.place)) {
            (Authority::Operator, _) => true,
            (_, Ordering::Less) => false,
            (_, Ordering::Greater) => true,
            (Authority::Token, Ordering::Equal) => is_asker,
            (Authority::Conversation, Ordering::Equal) => is_asker && session == asked_in,
        }
    }
}

/// What goes to the person with a question, so that a channel can show buttons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The gate.
    pub gate: GateId,
    /// Whether "always" is offered.
    pub offers_always: bool,
    /// Whether it is a yes or no: a secret is typed instead.
    pub decidable: bool,
}

/// What became of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Decided {
    /// It is the answer; the gate as it stands now.
    Now(Box<Gate>),
    /// There was one before, or nobody is asked any more.
    Before(Box<Gate>),
    /// There is no such question.
    Unknown,
}

impl Gate {
    /// How it stands at this moment: one whose time is up has expired, also before the lane that waits for it has noticed, since
    /// no answer counts any more. A clock that was set forward is noticed by lanes within a minute.
    pub fn state_at(&self, now: UnixMillis) -> GateState {
        match self.state {
            GateState::Waiting if now.0 >= self.expires_at.0 => GateState::Expired,
            state => state,
        }
    }
}

/// Which questions.
#[derive(Clone, Debug, Default)]
pub struct GateFilter {
    /// Whose id begins so.
    pub id: Option<IdPrefix>,
    /// Of this session only.
    pub session: Option<SessionKey>,
    /// Of this channel's runs only.
    pub channel: Option<ChannelId>,
    /// Only those that nobody has answered.
    pub waiting: bool,
    /// At most so many, newest first; 0 means 50.
    pub limit: u32,
}

/// Keeps questions and what they granted. A gate comes into being with
/// [`pause_run`](crate::store::RunStore::pause_run), is used by a
/// [`Checkpoint`](crate::store::Checkpoint), and is withdrawn by the end of its run.
#[async_trait]
pub trait GateStore: Send + Sync {
    /// Answers a question that waits: [`GateState::Approved`], [`GateState::Denied`] or [`GateState::Expired`]; with
    /// `always`, what it covers is granted to the session in the same commit. Only the first answer counts. Committed.
    async fn decide(
        &self,
        id: GateId,
        state: GateState,
        always: bool,
        by: &str,
        at: UnixMillis,
    ) -> Result<Decided, StoreError>;
    /// The question of that id.
    async fn gate(&self, id: GateId) -> Result<Option<Gate>, StoreError>;
    /// Questions, newest first.
    async fn gates(&self, filter: GateFilter) -> Result<Vec<Gate>, StoreError>;
    /// The questions of a run, oldest first.
    async fn gates_of(&self, run: RunId) -> Result<Vec<Gate>, StoreError>;
    /// Whether the session has said "always" to what a call is covered by.
    async fn granted(&self, session: &SessionKey, tool: &str, covers: &str) -> Result<bool, StoreError>;
    /// Takes back what a session was granted; how many.
    async fn forget_grants(&self, session: &SessionKey) -> Result<u32, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_from_whoever_asked_or_from_a_stronger_place() {
        let who = |id: &str, role| Principal { id: id.into(), role };
        let here = SessionKey::new("here");
        let there = SessionKey::new("there");
        for (place, who, session, expected) in [
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
            let asker = Asker { principal: "ann".into(), place, relayed: false };
            assert_eq!(asker.may_be_decided_by(&here, &who, session), expected, "{place:?} {who:?} {session}");
        }
    }
}
