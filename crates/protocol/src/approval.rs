//! Approval requests: the stored questions to people about tool calls, who may answer them, and the port that keeps
//! them. A *gate* is an approval request.

use std::cmp::Ordering;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::client_tools::{ClientCall, ClientResult};
pub use crate::decision::Decision;
use crate::form::Form;
use crate::ids::{ApprovalId, CallId, ChannelId, IdPrefix, RunId, SessionKey};
use crate::lease::Lease;
use crate::outbound::Outbound;
use crate::principal::{Principal, Role};
use crate::route::ReplyRoute;
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
    /// The texts that hooks have put before and after the question.
    #[serde(skip)]
    pub added: Option<Box<AddedText>>,
    /// The principal that the run works for.
    pub asker: Asker,
    /// The conversation in which autonomous work asks; `None`: the run asks in its own conversation.
    pub place: Option<Box<AskedIn>>,
    /// The two answers that the call needs; `None`: one is enough.
    pub second: Option<Box<SecondYes>>,
    /// The time of the question.
    pub asked_at: UnixMillis,
    /// The time at which it becomes a denial.
    pub expires_at: UnixMillis,
    /// The time at which the conversation was reminded of it.
    pub reminded_at: Option<UnixMillis>,
    /// Its state.
    pub state: ApprovalState,
    /// The principal that answered.
    pub decided_by: Option<String>,
    /// The time of the answer.
    pub decided_at: Option<UnixMillis>,
}

/// The conversation in which autonomous work asks for an approval, and the person who is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedIn {
    /// The work, for people: `Job “title” (id)`.
    pub work: String,
    /// The session of the conversation.
    pub session: SessionKey,
    /// The destination of the question; `None`: the channel cannot send it, and only the API shows it.
    pub route: Option<ReplyRoute>,
    /// The person who is asked.
    pub asker: Asker,
    /// Whether the run works on while the question waits, because a run that it has started asks.
    #[serde(default)]
    pub in_place: bool,
}

/// The state of a request that two persons must approve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondYes {
    /// The first approval; `None`: it has not been given.
    pub first: Option<FirstYes>,
    /// The conversation in which the second person is asked; `None`: nobody is asked yet, or only the API shows it.
    #[serde(default)]
    pub place: Option<AskedIn>,
}

/// The first of two approvals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstYes {
    /// The principal that gave it.
    pub by: String,
    /// The person behind the principal, as far as it is known. The same person cannot give the second approval.
    pub person: String,
    /// Its time.
    #[serde(serialize_with = "stored")]
    pub at: UnixMillis,
}

/// The form of a date that is read back.
fn stored<S: serde::Serializer>(at: &UnixMillis, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_i64(at.0)
}

/// Texts that hooks have added to a question. The question itself stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedText {
    /// The text before it.
    pub before: String,
    /// The text after its call and reason.
    pub after: String,
}

/// The kind of an approval request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ApprovalKind {
    /// A yes or no.
    Approval,
    /// A secret; the next message of the person is taken as the secret.
    Credential {
        /// Its name in the vault.
        name: String,
    },
    /// A form of an MCP server, which a person fills in. No "always", and no model, answers it.
    Form {
        /// The form.
        #[serde(flatten)]
        form: Form,
        /// The values that a person has given; empty before.
        #[serde(skip)]
        answers: Map<String, Value>,
    },
    /// The results of calls that the client of the run carries out. No person is asked, and no list of approval requests
    /// contains it.
    ClientCalls {
        /// The calls.
        calls: Vec<ClientCall>,
        /// The results, once the client has given them.
        #[serde(skip)]
        results: Vec<ClientResult>,
    },
}

impl ApprovalKind {
    /// Whether a yes or a no is a whole answer.
    pub fn is_decidable(&self) -> bool {
        match self {
            Self::Approval => true,
            Self::Form { form, .. } => form.fields.is_empty(),
            Self::Credential { .. } | Self::ClientCalls { .. } => false,
        }
    }

    /// The form that a person is to fill in.
    pub fn form(&self) -> Option<&Form> {
        match self {
            Self::Form { form, .. } => Some(form),
            Self::Approval | Self::Credential { .. } | Self::ClientCalls { .. } => None,
        }
    }

    /// Whether the client of the run is asked for results, not a person for an answer.
    pub fn is_of_client(&self) -> bool {
        matches!(self, Self::ClientCalls { .. })
    }
}

/// The state of an approval request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// The run, or the call that asked, ended before an answer came.
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
            Self::Withdrawn => "is no longer asked: its run, or the call that asked, has ended",
        }
    }
}

/// The authority of a principal in relation to a conversation. Later ones are stronger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

impl From<Authority> for Role {
    fn from(authority: Authority) -> Self {
        match authority {
            Authority::Conversation => Self::User,
            Authority::Token => Self::Client,
            Authority::Operator => Self::Operator,
        }
    }
}

/// The principal that a run works for. It may answer the questions of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

    /// The principal, as the sender of a message.
    pub fn to_principal(&self) -> Principal {
        Principal { id: self.principal.as_str().into(), role: self.authority.into() }
    }

    /// Whether an "always" serves work for this principal. `by` has said it in `session`, to a question about work for
    /// `asked`.
    ///
    /// It serves the work of `by`, and of every principal who could have answered that question. It serves no relayed
    /// message, whose author is unknown.
    pub fn is_served_by(&self, by: &Self, asked: &Self, session: &SessionKey) -> bool {
        let is_same = self.principal == by.principal && self.authority == by.authority;
        !self.relayed && (is_same || asked.may_be_decided_by(session, &self.to_principal(), session))
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
    /// The conversation in which it is asked now, if it is not that of its run: that of the second person, or the one in
    /// which autonomous work asks.
    pub fn present_place(&self) -> Option<&AskedIn> {
        match self.second.as_deref() {
            Some(SecondYes { first: Some(_), place }) => place.as_ref(),
            _ => self.place.as_deref(),
        }
    }

    /// The first of two approvals, if it was given.
    pub fn first_yes(&self) -> Option<&FirstYes> {
        self.second.as_ref()?.first.as_ref()
    }

    /// Whether the next approval is the first of two.
    pub fn needs_first_yes(&self) -> bool {
        self.second.as_ref().is_some_and(|second| second.first.is_none())
    }

    /// The session of the conversation in which it is asked.
    pub fn asked_in(&self) -> &SessionKey {
        self.present_place().map_or(&self.session, |place| &place.session)
    }

    /// The person who is asked.
    pub fn asked_of(&self) -> &Asker {
        self.present_place().map_or(&self.asker, |place| &place.asker)
    }

    /// Whether a run that another run has started asks, and waits for the answer in its place.
    pub fn is_in_place(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.in_place)
    }

    /// Whether the principal `who`, who writes in `session`, may answer it as the first person, or deny it. See
    /// [`Asker::may_be_decided_by`].
    pub fn may_be_answered_by(&self, who: &Principal, session: &SessionKey) -> bool {
        let asked =
            self.place.as_ref().is_some_and(|place| place.asker.may_be_decided_by(&place.session, who, session));
        asked || self.asker.may_be_decided_by(&self.session, who, session)
    }

    /// The time at which the conversation is reminded, if it still has to be: half of the time, once.
    pub fn remind_at(&self) -> Option<UnixMillis> {
        let asked_at = self.first_yes().map_or(self.asked_at, |first| first.at);
        let due = UnixMillis(asked_at.0 + (self.expires_at.0 - asked_at.0) / 2);
        let can_be_sent = self.present_place().is_some_and(|place| place.route.is_some());
        (can_be_sent && self.reminded_at.is_none()).then_some(due)
    }

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
    /// Only those in this stored state. A request that has expired without being noticed yet is stored as waiting.
    pub state: Option<ApprovalState>,
    /// Only those that were asked at this date or later.
    pub since: Option<UnixMillis>,
    /// Only those that were asked before this date.
    pub until: Option<UnixMillis>,
    /// Only those that were asked before this request, in the order of the list.
    pub before: Option<ApprovalId>,
    /// The maximum count, newest first; 0 means 50.
    pub limit: u32,
}

/// An approval request of a run that another run has started, with the message that shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildQuestion {
    /// The request; it waits, and its place says that it is asked in place.
    pub approval: ApprovalRequest,
    /// The message that shows it; `None`: only the API shows it.
    pub outbound: Option<Outbound>,
}

/// Keeps the approval requests of runs that other runs have started. The run that owns the lane goes on meanwhile.
#[async_trait]
pub trait ChildQuestionStore: Send + Sync {
    /// Stores a request of a running run, with its message. Committed.
    async fn ask_in_place(&self, lease: &Lease, question: ChildQuestion) -> Result<(), StoreError>;
    /// Stores the checked answer to a form that waits, which is used with that. Only the first answer counts. Committed.
    async fn answer_form(
        &self,
        id: ApprovalId,
        answers: Map<String, Value>,
        by: &str,
        at: UnixMillis,
    ) -> Result<Decided, StoreError>;
    /// Withdraws a request that is open: nobody waits for its answer any more, and its run goes on. Returns whether it
    /// was open. Committed.
    async fn withdraw(&self, id: ApprovalId, at: UnixMillis) -> Result<bool, StoreError>;
}

/// Keeps approval requests and grants. [`pause_run`](crate::store::RunStore::pause_run) creates an approval request, a
/// [`Checkpoint`](crate::store::Checkpoint) uses it, and the end of its run withdraws it.
#[async_trait]
pub trait ApprovalStore: Send + Sync {
    /// Answers an open approval request with [`ApprovalState::Approved`], [`ApprovalState::Denied`] or [`ApprovalState::Expired`].
    /// With `always`, the calls that it covers are granted in the session in the same commit, see [`granted`](Self::granted);
    /// `always` is the authority of the principal `by`. Only the first answer counts. An approval of a request that needs two is refused before the first one is stored, and so is an expiry
    /// before its stored date, which a first approval postpones: the request is returned as it is, still waiting.
    /// Committed.
    async fn decide(
        &self,
        id: ApprovalId,
        state: ApprovalState,
        always: Option<Authority>,
        by: &str,
        at: UnixMillis,
    ) -> Result<Decided, StoreError>;
    /// Stores the first of two approvals of an open request, the time at which it expires now, and the question for the
    /// second person, in one commit. Only one first approval counts. Committed.
    async fn first_yes(
        &self,
        id: ApprovalId,
        second: SecondYes,
        expires_at: UnixMillis,
        question: Option<Outbound>,
    ) -> Result<Decided, StoreError>;
    /// Notes a reminder of an approval request that waits and has none yet, and stores its message in the same commit.
    /// Returns whether it did.
    async fn remind(&self, id: ApprovalId, reminder: Outbound, at: UnixMillis) -> Result<bool, StoreError>;
    /// The approval request with this id.
    async fn approval(&self, id: ApprovalId) -> Result<Option<ApprovalRequest>, StoreError>;
    /// Approval requests, newest first.
    ///
    /// # Errors
    /// [`StoreError::InvalidCursor`] if the request `filter.before` does not exist.
    async fn approvals(&self, filter: ApprovalFilter) -> Result<Vec<ApprovalRequest>, StoreError>;
    /// The approval requests of a run, oldest first.
    async fn approvals_of(&self, run: RunId) -> Result<Vec<ApprovalRequest>, StoreError>;
    /// Whether an earlier "always" in the session covers this call of work for the principal `work_for`. See
    /// [`Asker::is_served_by`].
    async fn granted(
        &self,
        session: &SessionKey,
        tool: &str,
        covers: &str,
        work_for: &Asker,
    ) -> Result<bool, StoreError>;
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

    #[test]
    fn an_always_serves_who_said_it_and_who_could_have_answered_the_question() {
        use Authority::{Conversation, Operator, Token};
        let person = |id: &str, authority| Asker { principal: id.into(), authority, relayed: false };
        let (ann, root) = (person("ann", Conversation), person("root", Operator));
        let (script, robot) = (person("script", Token), person("robot", Token));
        let bob = person("bob", Conversation);
        let relayed = Asker { relayed: true, ..ann.clone() };
        let signer = person("webhook", Conversation);
        for (by, asked, served, others) in [
            (&ann, &ann, vec![&ann, &script, &robot, &root], vec![&bob, &signer, &relayed]),
            // An operator has answered for the person who asked.
            (&root, &ann, vec![&ann, &script, &root], vec![&bob, &signer, &relayed]),
            (&root, &root, vec![&root], vec![&ann, &bob, &script, &signer]),
            (&script, &script, vec![&script, &root], vec![&robot, &ann, &signer]),
            (&script, &ann, vec![&script, &robot, &ann, &root], vec![&bob, &signer]),
        ] {
            let serves = |work_for: &Asker| work_for.is_served_by(by, asked, &SessionKey::new("here"));
            assert!(served.iter().all(|work_for| serves(work_for)), "{by:?} {asked:?}");
            assert!(!others.iter().any(|work_for| serves(work_for)), "{by:?} {asked:?}");
        }
        let namesake = person("ann", Token);
        assert!(!namesake.is_served_by(&person("ann", Operator), &root, &SessionKey::new("here")), "another authority");
    }
}
