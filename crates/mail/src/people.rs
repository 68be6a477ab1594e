//! Who may write to Belay. Mails, answers and autonomous work are all checked here.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_protocol::principal::Role;
use belay_protocol::{AccessDecision, ChannelAccess, SessionKey};

use crate::NAME;
use crate::config::{MailConfig, is_address};

/// The length of the digest of a thread, in hexadecimal digits.
pub(crate) const THREAD_DIGITS: usize = 32;

/// The people of the settings. Clones share it. The lock is held for a few instructions and never across an await.
#[derive(Clone, Default)]
pub struct MailPeople(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    allow: HashSet<String>,
    operators: HashSet<String>,
}

impl MailPeople {
    /// The people of these settings.
    pub fn of(config: &MailConfig) -> Self {
        let people = Self::default();
        people.replace(config);
        people
    }

    /// Replaces the people by those of other settings.
    pub fn replace(&self, config: &MailConfig) {
        let set = |addresses: &[String]| addresses.iter().map(|address| address.to_ascii_lowercase()).collect();
        let mut state = self.state();
        (state.allow, state.operators) = (set(&config.allow), set(&config.operators));
    }

    /// The role of an address in lower case; `None`: it may not write to Belay.
    pub(crate) fn role(&self, address: &str) -> Option<Role> {
        let state = self.state();
        let listed = |list: &HashSet<String>, role| list.contains(address).then_some(role);
        listed(&state.operators, Role::Operator).or_else(|| listed(&state.allow, Role::User))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg_attr(not(any(test, feature = "client")), expect(dead_code, reason = "a build without the channel"))]
impl MailPeople {
    /// Whether anybody may write to Belay.
    pub(crate) fn has_anybody(&self) -> bool {
        let state = self.state();
        !state.allow.is_empty() || !state.operators.is_empty()
    }
}

impl ChannelAccess for MailPeople {
    fn may_exist(&self, principal: &str) -> bool {
        is_person(principal)
    }

    fn tells_persons_apart(&self) -> bool {
        true
    }

    fn standing_of(&self, principal: &str, conversation: Option<&str>) -> AccessDecision {
        let Some(role) = self.role(principal) else {
            let lists = "is neither on the list channels.mail.allow nor on that of the operators";
            return AccessDecision::NotAllowed(format!("{principal} {lists}"));
        };
        match conversation.filter(|text| Conversation::parse(text).is_none_or(|it| it.address != principal)) {
            Some(other) => AccessDecision::NotAllowed(format!("{other} is no conversation of {principal}")),
            None => AccessDecision::May(role.into()),
        }
    }

    fn serves(&self, conversation: &str) -> bool {
        Conversation::parse(conversation).is_some_and(|it| self.role(it.address).is_some())
    }

    fn session_of(&self, conversation: &str) -> Option<SessionKey> {
        Conversation::parse(conversation).map(|_| SessionKey::new(format!("{NAME}:{conversation}")))
    }
}

/// A conversation: `ADDRESS:THREAD`, or `ADDRESS` for mails that begin a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conversation<'a> {
    /// The address of the person, in lower case.
    pub(crate) address: &'a str,
    /// The digest of the id of the first mail.
    pub(crate) thread: Option<&'a str>,
}

impl<'a> Conversation<'a> {
    /// `None`: the text is no conversation.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (address, thread) = match text.split_once(':') {
            Some((address, thread)) => (address, Some(thread)),
            None => (text, None),
        };
        (is_person(address) && thread.is_none_or(is_thread)).then_some(Self { address, thread })
    }
}

/// Whether a text can be the id of a person: an address in lower case, as it is made of the sender of a mail.
fn is_person(text: &str) -> bool {
    is_address(text) && !text.contains(|c: char| c.is_ascii_uppercase())
}

/// Whether a text is the digest of a thread.
pub(crate) fn is_thread(text: &str) -> bool {
    text.len() == THREAD_DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether messages can be sent to a conversation of this name: the address of a person, in lower case.
pub fn is_conversation(text: &str) -> bool {
    Conversation::parse(text).is_some()
}

#[cfg(test)]
mod tests;
