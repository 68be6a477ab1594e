//! The purposes of money in the ledger. The purpose of a run follows from its [`Work`](crate::work::Work).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::ChannelId;

/// The purpose of a run: it selects the budget and the rights of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A message of a person or a program.
    #[default]
    Chat,
    /// A job.
    Job,
    /// A routine run.
    Routine,
    /// A beat of the heartbeat.
    Heartbeat,
    /// A title of a conversation.
    Title,
}

impl Purpose {
    /// Every purpose.
    pub const ALL: &'static [Self] = &[Self::Chat, Self::Job, Self::Routine, Self::Heartbeat, Self::Title];

    /// The name in the store, in metrics and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Job => "job",
            Self::Routine => "routine",
            Self::Heartbeat => "heartbeat",
            Self::Title => "title",
        }
    }

    /// Its name in sentences for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chats",
            Self::Job => "jobs",
            Self::Routine => "routines",
            Self::Heartbeat => "the heartbeat",
            Self::Title => "titles",
        }
    }

    /// The purpose with this name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|purpose| purpose.word() == word)
    }

    /// The channel of its runs. Runs for [`Purpose::Chat`] come from many channels, none of which has this name.
    pub fn channel(self) -> ChannelId {
        ChannelId::new(self.word())
    }

    /// Whether the work is autonomous: its rights were decided when it was created, and nobody can be asked.
    pub fn is_autonomous(self) -> bool {
        self != Self::Chat
    }
}

/// Money by purpose, in millionths of a US dollar. The cost of a child run, a summary or a check counts for the purpose
/// of the run that caused it. On the wire a map from the names of purposes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Spent(BTreeMap<Purpose, u64>);

impl Spent {
    /// The amount of this purpose.
    pub fn of(&self, purpose: Purpose) -> u64 {
        self.0.get(&purpose).copied().unwrap_or_default()
    }

    /// The total of all purposes.
    pub fn total(&self) -> u64 {
        self.0.values().copied().fold(0, u64::saturating_add)
    }

    /// Adds an amount to a purpose.
    pub fn add(&mut self, purpose: Purpose, micro_usd: u64) {
        let of = self.0.entry(purpose).or_default();
        *of = of.saturating_add(micro_usd);
    }

    /// Subtracts an amount from a purpose.
    pub fn take_back(&mut self, purpose: Purpose, micro_usd: u64) {
        if let Some(of) = self.0.get_mut(&purpose) {
            *of = of.saturating_sub(micro_usd);
        }
    }

    /// The amounts above zero, in the order of [`Purpose::ALL`].
    pub fn each(&self) -> impl Iterator<Item = (Purpose, u64)> + '_ {
        self.0.iter().map(|(purpose, micro_usd)| (*purpose, *micro_usd)).filter(|(_, micro_usd)| *micro_usd > 0)
    }
}

/// The money that is reserved for model calls in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OpenReservations {
    /// The number of calls. A call that costs nothing has no reservation.
    pub calls: u32,
    /// The sum of their highest possible costs, in millionths of a US dollar.
    pub cost_micro_usd: u64,
}

impl OpenReservations {
    /// Adds one call.
    pub fn add(&mut self, micro_usd: u64) {
        self.calls = self.calls.saturating_add(1);
        self.cost_micro_usd = self.cost_micro_usd.saturating_add(micro_usd);
    }

    /// Removes one call.
    pub fn take_back(&mut self, micro_usd: u64) {
        self.calls = self.calls.saturating_sub(1);
        self.cost_micro_usd = self.cost_micro_usd.saturating_sub(micro_usd);
    }
}

/// The session of HTTP requests that name none. It has no conversation.
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
