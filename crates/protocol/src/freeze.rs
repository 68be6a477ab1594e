//! Freezes: an operator stops all work, or a part of it, and nothing of it begins until the thaw.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::ids::{ChannelId, FreezeId, RunId};
use crate::store_error::StoreError;
use crate::time::UnixMillis;
use crate::work::{Work, WorkSource};

/// The part of the work that a freeze stops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// The runs and jobs of a routine.
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

    /// Whether it covers a message with this kind of work, source, channel and sender.
    pub fn covers(&self, work: Work, source: Option<&WorkSource>, channel: &ChannelId, principal: &str) -> bool {
        match self {
            Self::Person { channel: Some(of), id } if work.is_autonomous() => {
                // Without a known source, a freeze rather covers too much.
                id == principal && source.is_none_or(|source| source.channel == *of)
            }
            Self::Person { channel: of, id } => id == principal && of.as_ref().is_none_or(|of| of == channel),
            Self::Channel { channel: of } => of == channel,
            Self::All => true,
            Self::Routine { name } => source.is_some_and(|source| source.routine.as_ref() == Some(name)),
        }
    }

    /// Whether it covers the work of this routine, if it belongs to one, with a creator of this channel and id.
    pub fn covers_work(&self, routine: Option<&str>, channel: &ChannelId, creator: &str) -> bool {
        match self {
            Self::All => true,
            Self::Person { channel: of, id } => id == creator && of.as_ref().is_none_or(|of| of == channel),
            Self::Channel { .. } => false, // the messages of a channel are no background work
            Self::Routine { name } => routine == Some(name),
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

/// A freeze, in force or ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// When it ended; `None`: it is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thawed_at: Option<UnixMillis>,
}

impl Freeze {
    /// Who has frozen it, since when, and why: `frozen by ann since 2026-01-01T…Z: maintenance`.
    pub fn by(&self) -> String {
        let why = self.detail.as_ref().map_or_else(String::new, |detail| format!(": {detail}"));
        format!("frozen by {} since {}{why}", self.actor, self.at.to_rfc3339())
    }

    /// What the sender of a message reads that waits for the thaw.
    pub fn notice(&self) -> String {
        format!(
            "This is {}. Your message is kept, and it is answered after the freeze.",
            self.by().trim_end_matches('.')
        )
    }
}

/// What a freeze has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FreezeReceipt {
    /// The time until the freeze was durable and every run was told to stop, in milliseconds; `None`: it is not durable
    /// yet.
    pub acknowledged_ms: Option<u64>,
    /// The time until no process of these runs was left, in milliseconds; `None`: some are still ending.
    pub trees_empty_ms: Option<u64>,
    /// The stopped runs, each once.
    pub stopped: Vec<RunId>,
    /// Effects outside of Belay that may still happen or have happened: calls with an unknown outcome, processes that
    /// are still ending.
    pub outside: Vec<String>,
}

/// A request about freezes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FreezeRequest {
    /// Ask whether a freeze holds the work of the sender: then the answer is [`Refusal::Frozen`](crate::Refusal::Frozen), else an
    /// empty list.
    Check,
    /// List the freezes in force; operators only.
    List,
    /// List the freezes in force, and then those that have ended, the newest first; operators only.
    ListAll,
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

    /// The freezes that have ended, newest first, at most `limit`.
    ///
    /// # Errors
    /// The store fails.
    async fn past_freezes(&self, limit: u32) -> Result<Vec<Freeze>, StoreError>;

    /// Writes a freeze, or its receipt, and returns the freeze of its scope that is in force: this one, or an earlier one,
    /// which another daemon may have written. `None`: this freeze has ended, and no other one is in force. The stopped
    /// runs of a receipt are added to the stored ones. Committed.
    ///
    /// # Errors
    /// The store fails. The freeze may have been written all the same.
    async fn put_freeze(&self, freeze: Freeze) -> Result<Option<Freeze>, StoreError>;

    /// Ends the freeze of this scope, also one that is not written yet. Committed. An ended freeze never comes into force
    /// again.
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
    fn a_scope_covers_the_messages_of_its_people_channels_and_routines() {
        let job = Work::Job { job: JobId::new(), attempt: Some(1) };
        let of = |channel: &str, routine: Option<&str>| {
            Some(WorkSource { channel: channel.into(), routine: routine.map(str::to_owned), asked_in: "s".into() })
        };
        let (ann, tick) = (FreezeScope::person("ann"), FreezeScope::Routine { name: "tick".into() });
        let telegram = FreezeScope::person("telegram:42");
        for (scope, work, source, channel, principal, covered) in [
            (FreezeScope::All, Work::Chat, None, "http", "ann", true),
            (FreezeScope::All, job, of("http", None), "job", "ann", true),
            (ann.clone(), Work::Chat, None, "http", "ann", true),
            (ann.clone(), Work::Chat, None, "http", "bob", false),
            (ann, job, of("http", None), "job", "ann", true),
            (telegram.clone(), Work::Chat, None, "telegram", "42", true),
            (telegram.clone(), Work::Chat, None, "http", "42", false),
            (telegram.clone(), job, of("telegram", None), "job", "42", true),
            (telegram.clone(), job, of("http", None), "job", "42", false),
            (telegram, job, None, "job", "42", true),
            (FreezeScope::Channel { channel: "http".into() }, Work::Chat, None, "http", "ann", true),
            (FreezeScope::Channel { channel: "http".into() }, job, of("http", None), "job", "ann", false),
            (tick.clone(), Work::Chat, None, "http", "ann", false),
            (tick.clone(), job, of("http", Some("tick")), "job", "ann", true),
            (tick, job, of("http", Some("tock")), "job", "ann", false),
        ] {
            let is_covered = scope.covers(work, source.as_ref(), &channel.into(), principal);
            assert_eq!(is_covered, covered, "{scope} {source:?} {channel} {principal}");
        }
        assert_eq!(FreezeScope::person(":42").to_string(), "person :42");
    }
}
