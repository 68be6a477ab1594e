//! What money goes for: a word of the ledger, which follows from what a run is ([`Work`](crate::work::Work)).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::ChannelId;

/// What a run, or a part of it, is for: whose budget it uses, and what it may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A message of a person or a program.
    #[default]
    Chat,
    /// A job.
    Job,
    /// A routine run of a routine.
    Routine,
    /// A look at what the operator wants watched.
    Heartbeat,
}

impl Purpose {
    /// Every purpose.
    pub const ALL: &'static [Self] = &[Self::Chat, Self::Job, Self::Routine, Self::Heartbeat];

    /// The word in the store, in metrics and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Job => "job",
            Self::Routine => "routine",
            Self::Heartbeat => "heartbeat",
        }
    }

    /// Its name in sentences for people: what money went for.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chats",
            Self::Job => "jobs",
            Self::Routine => "routines",
            Self::Heartbeat => "the heartbeat",
        }
    }

    /// The purpose of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|purpose| purpose.word() == word)
    }

    /// The channel that its runs come through; for [`Purpose::Chat`] there are many, and none of this name.
    pub fn channel(self) -> ChannelId {
        ChannelId::new(self.word())
    }

    /// Whether nobody waits at the other end: what it does was decided when it was made, and nobody can be asked.
    pub fn is_autonomous(self) -> bool {
        self != Self::Chat
    }
}

/// Money by what it went for, in millionths of a US dollar. What another run, a summary or a check costs on the way is for
/// what the run is for that wanted it. On the wire a map from the words of purposes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Spent(BTreeMap<Purpose, u64>);

impl Spent {
    /// What went for this.
    pub fn of(&self, purpose: Purpose) -> u64 {
        self.0.get(&purpose).copied().unwrap_or_default()
    }

    /// What went for all together.
    pub fn total(&self) -> u64 {
        self.0.values().copied().fold(0, u64::saturating_add)
    }

    /// Adds what goes for this.
    pub fn add(&mut self, purpose: Purpose, micro_usd: u64) {
        let of = self.0.entry(purpose).or_default();
        *of = of.saturating_add(micro_usd);
    }

    /// Takes back what did not go for this after all.
    pub fn take_back(&mut self, purpose: Purpose, micro_usd: u64) {
        if let Some(of) = self.0.get_mut(&purpose) {
            *of = of.saturating_sub(micro_usd);
        }
    }

    /// What went for each, in the order of [`Purpose::ALL`], without those for which nothing went.
    pub fn each(&self) -> impl Iterator<Item = (Purpose, u64)> + '_ {
        self.0.iter().map(|(purpose, micro_usd)| (*purpose, *micro_usd)).filter(|(_, micro_usd)| *micro_usd > 0)
    }
}

/// The session of requests over HTTP that name none. Nobody has a conversation there.
pub const NO_SESSION: &str = "http";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_kept_apart_by_purpose() {
        let mut spent = Spent::default();
        spent.add(Purpose::Job, 7);
        spent.add(Purpose::Chat, u64::MAX);
        spent.take_back(Purpose::Job, 2);
        spent.take_back(Purpose::Heartbeat, 1);
        assert_eq!((spent.of(Purpose::Job), spent.of(Purpose::Heartbeat), spent.total()), (5, 0, u64::MAX));
        spent.take_back(Purpose::Chat, u64::MAX);
        assert_eq!(spent.each().collect::<Vec<_>>(), [(Purpose::Job, 5)]);
        assert_eq!(serde_json::to_value(&spent).expect("a map"), serde_json::json!({"chat": 0, "job": 5}));
    }
}
