//! Freezes: an operator stops all work, or a part of it, and nothing of it begins until the thaw.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::ids::{ChannelId, FreezeId, RunId};
use crate::store_error::StoreError;
use crate::time::UnixMillis;
use crate::work::Work;

/// The part of the work that a freeze stops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FreezeScope {
    /// Everything.
    All,
    /// The messages of a person or program, and the background work that they have created.
    Person {
        /// The channel that the id belongs to; `None`: the id of every channel.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        channel: Option<ChannelId>,
        /// The id of the principal.
        id: String,
    },
    /// The messages of a channel.
    Channel {
        /// Its name.
        channel: ChannelId,
    },
    /// A routine.
    Routine {
        /// Its name.
        name: String,
    },
}

impl FreezeScope {
    /// The scope of a person, written as `ID` or `CHANNEL:ID`.
    pub fn person(text: &str) -> Self {
        match text.split_once(':') {
            Some((channel, id)) if !channel.is_empty() && !id.is_empty() => {
                Self::Person { channel: Some(ChannelId::new(channel)), id: id.to_owned() }
            }
            _ => Self::Person { channel: None, id: text.to_owned() },
        }
    }

    /// Whether it covers a message with this kind of work, channel and sender. The runs of a routine are not known by
    /// their messages: [`FreezeScope::Routine`] covers none.
    pub fn covers(&self, work: Work, channel: &ChannelId, principal: &str) -> bool {
        match self {
            Self::All => true,
            // Background work comes through a channel of its own, in the name of its creator.
            Self::Person { channel: of, id } => {
                id == principal && of.as_ref().is_none_or(|of| of == channel || work.is_autonomous())
            }
            Self::Channel { channel: of } => of == channel,
            Self::Routine { .. } => false,
        }
    }
}

impl std::fmt::Display for FreezeScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::All => f.write_str("everything"),
            Self::Person { channel: Some(channel), id } => write!(f, "person {channel}:{id}"),
            Self::Person { channel: None, id } => write!(f, "person {id}"),
            Self::Channel { channel } => write!(f, "channel {channel}"),
            Self::Routine { name } => write!(f, "routine {name}"),
        }
    }
}

/// A freeze in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Freeze {
    /// Its id. The evidence of each run that it has stopped has it.
    pub id: FreezeId,
    /// What is frozen.
    pub scope: FreezeScope,
    /// The reason, in the operator's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The operator.
    pub actor: String,
    /// The channel through which the operator asked.
    pub source: ChannelId,
    /// When it began.
    pub at: UnixMillis,
    /// What it has done; `None`: that is not known yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<FreezeReceipt>,
}

/// What a freeze has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreezeReceipt {
    /// The time until the freeze was durable and every run was told to stop, in milliseconds.
    pub acknowledged_ms: u64,
    /// The time until no process of these runs was left, in milliseconds; `None`: some are still ending.
    pub trees_empty_ms: Option<u64>,
    /// The stopped runs.
    pub stopped: Vec<RunId>,
    /// Effects outside of Belay that may still happen or have happened: calls with an unknown outcome, processes that
    /// are still ending.
    pub outside: Vec<String>,
}

/// A request about freezes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FreezeRequest {
    /// List the freezes in force.
    List,
    /// Freeze; operators only. A scope that is frozen already stays as it is.
    Freeze {
        /// What to freeze.
        scope: FreezeScope,
        /// The reason.
        detail: Option<String>,
    },
    /// End the freeze of this scope; operators only.
    Thaw(FreezeScope),
}

/// Keeps the freezes in force.
#[async_trait]
pub trait FreezeStore: Send + Sync {
    /// The freezes in force, oldest first.
    ///
    /// # Errors
    /// The store fails.
    async fn freezes(&self) -> Result<Vec<Freeze>, StoreError>;

    /// Writes a freeze, or its receipt. Committed.
    ///
    /// # Errors
    /// The store fails. The freeze may have been written all the same.
    async fn put_freeze(&self, freeze: Freeze) -> Result<(), StoreError>;

    /// Ends a freeze, also one that is not written yet. Committed. An ended freeze never comes into force again.
    ///
    /// # Errors
    /// The store fails. The freeze may have been ended all the same.
    async fn thaw(&self, freeze: Freeze, at: UnixMillis) -> Result<(), StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::JobId;

    #[test]
    fn a_scope_covers_the_messages_of_its_people_and_channels() {
        let job = Work::Job { job: JobId::new(), attempt: Some(1) };
        for (scope, work, channel, principal, covered) in [
            (FreezeScope::All, Work::Chat, "http", "ann", true),
            (FreezeScope::person("ann"), Work::Chat, "http", "ann", true),
            (FreezeScope::person("ann"), Work::Chat, "http", "bob", false),
            (FreezeScope::person("telegram:42"), Work::Chat, "telegram", "42", true),
            (FreezeScope::person("telegram:42"), Work::Chat, "http", "42", false),
            (FreezeScope::person("telegram:42"), job, "job", "42", true),
            (FreezeScope::Channel { channel: "http".into() }, Work::Chat, "http", "ann", true),
            (FreezeScope::Channel { channel: "http".into() }, job, "job", "ann", false),
            (FreezeScope::Routine { name: "tick".into() }, Work::Chat, "http", "ann", false),
        ] {
            assert_eq!(scope.covers(work, &channel.into(), principal), covered, "{scope} {channel} {principal}");
        }
        assert_eq!(FreezeScope::person(":42").to_string(), "person :42");
    }
}
