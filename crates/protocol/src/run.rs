//! Runs: their record, their endings, and the closed list of reasons.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::{RunId, SessionKey};
use crate::model::Usage;
use crate::time::UnixMillis;

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Committed, not yet looked at.
    Accepted,
    /// Waits for its turn.
    Queued,
    /// At work.
    Running,
    /// Waits for a person.
    Paused,
    /// Ended well.
    Completed,
    /// Ended early because somebody, or a rule, said so.
    Stopped,
    /// Ended without doing its work.
    Failed,
}

impl RunStatus {
    /// The word on the wire and in the store.
    pub fn word(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }

    /// The status of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Accepted, Self::Queued, Self::Running, Self::Paused, Self::Completed, Self::Stopped, Self::Failed]
            .into_iter()
            .find(|status| status.word() == word)
    }

    /// Whether nothing more will happen.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Stopped | Self::Failed)
    }
}

/// Which layer ended a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopLayer {
    /// A person or the operator.
    Operator,
    /// The work was done.
    Natural,
    /// A limit.
    Budget,
    /// The provider, or our own machine.
    Host,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $layer:ident, $status:ident, $line:literal;)+) => {
        /// Why a run ended: a closed list. The word is the wire name, the metric label and the stored value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum StopReason {
            $($(#[$doc])* #[serde(rename = $word)] $name,)+
        }

        impl StopReason {
            /// Every reason, in the order of the list.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The wire name.
            pub fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }

            /// Which layer it belongs to.
            pub fn layer(self) -> StopLayer {
                match self { $(Self::$name => StopLayer::$layer,)+ }
            }

            /// The honest status: a cap is never `completed`.
            pub fn status(self) -> RunStatus {
                match self { $(Self::$name => RunStatus::$status,)+ }
            }

            /// What the person is told, where the run itself left no answer.
            pub fn user_line(self) -> &'static str {
                match self { $(Self::$name => $line,)+ }
            }
        }
    };
}

reasons! {
    /// The model's text ended the turn.
    FinalText = "final_text", Natural, Completed, "";
    /// The model answered with nothing.
    EmptyReply = "empty_reply", Natural, Completed, "The model had nothing to say.";
    /// The person stopped it.
    UserStop = "user_stop", Operator, Stopped, "Interrupted.";
    /// An operator stopped it from elsewhere.
    OperatorStop = "operator_stop", Operator, Stopped, "Stopped by the operator.";
    /// The client that alone could stop it went away.
    ClientGone = "client_gone", Operator, Stopped, "Stopped: the client went away.";
    /// The daemon shut down before it was done.
    Shutdown = "shutdown", Operator, Stopped, "Stopped: Belay is shutting down. Send the message again to continue.";
    /// The hard limit of steps.
    MaxIterations = "max_iterations", Budget, Failed, "Stopped: the limit of tool iterations was exceeded.";
    /// The model used up its tokens before it said anything.
    LengthLimit = "length_limit", Budget, Failed, "The answer reached its length limit before it said anything.";
    /// The day's money is spent.
    CostRefused = "cost_refused", Budget, Failed, "Refused: what is left of today's budget for the model does not suffice for another call.";
    /// The provider limits our rate.
    RateLimited = "rate_limited", Host, Failed, "The model provider is limiting our rate. Please try again later.";
    /// The provider is overloaded.
    Overloaded = "overloaded", Host, Failed, "The model provider is overloaded. Please try again later.";
    /// The provider refuses our key.
    ProviderAuth = "provider_auth", Host, Failed, "The model provider refuses our key. The operator must check it.";
    /// The context does not fit even after compaction.
    ContextTooLong = "context_too_long", Host, Failed, "This conversation is too long for the model, even shortened. Start afresh with /new.";
    /// The provider refuses the request.
    BadRequest = "bad_request", Host, Failed, "The model provider refused the request.";
    /// The provider withheld the whole answer.
    ContentFilter = "content_filter", Host, Failed, "The model provider withheld the answer.";
    /// The provider cannot be reached, or broke off.
    Network = "network", Host, Failed, "The model could not be reached, or broke off. Please try again.";
    /// A panic or a bug of ours.
    Internal = "internal", Host, Failed, "Something went wrong inside Belay. The log says more.";
    /// It was taken up again after a crash too often.
    RestartLimit = "restart_limit", Host, Failed, "Given up: the daemon restarted several times while working on this.";
}

impl StopReason {
    /// The reason of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.word() == word)
    }
}

/// How a run ended: exactly one of these for each run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEnd {
    /// Why.
    pub reason: StopReason,
    /// What was seen: rule, counts, thresholds. Never message text.
    #[serde(default)]
    pub evidence: Map<String, Value>,
}

impl RunEnd {
    /// An ending without evidence beyond its reason.
    pub fn of(reason: StopReason) -> Self {
        Self { reason, evidence: Map::new() }
    }

    /// The same ending with one more fact.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.evidence.insert(key.into(), value.into());
        self
    }
}

/// A run as the outside sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunRecord {
    /// Its id; survives restarts.
    pub run_id: RunId,
    /// Its session.
    pub session: SessionKey,
    /// Where it stands.
    pub status: RunStatus,
    /// Why it ended; `null` while it goes on.
    pub reason: Option<StopReason>,
    /// What was seen when it ended.
    pub evidence: Map<String, Value>,
    /// The answer, or the line that says why there is none; `null` while it goes on.
    pub reply: Option<String>,
    /// What it used.
    pub usage: RunUsage,
    /// What it cost, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// How often it was taken up, from 1; 0 before it started.
    pub attempt: u32,
    /// When it was committed.
    pub accepted_at: UnixMillis,
    /// When it was first taken up.
    pub started_at: Option<UnixMillis>,
    /// When it ended.
    pub ended_at: Option<UnixMillis>,
}

/// What a run used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunUsage {
    /// Tokens read.
    pub input: u64,
    /// Tokens generated.
    pub output: u64,
    /// Requests sent to the model, failed ones included.
    pub model_calls: u32,
    /// Tool calls that were executed.
    pub tool_calls: u32,
}

impl RunUsage {
    /// Adds one model call.
    pub fn add_call(&mut self, attempts: u32, usage: Option<&Usage>) {
        self.model_calls += attempts;
        if let Some(usage) = usage {
            self.input += usage.input;
            self.output += usage.output;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_word_an_end_status_and_an_honest_line() {
        for (i, reason) in StopReason::ALL.iter().enumerate() {
            assert!(reason.status().is_end(), "{reason:?}");
            assert_eq!(StopReason::from_word(reason.word()), Some(*reason));
            assert!(StopReason::ALL[..i].iter().all(|other| other.word() != reason.word()));
            assert_eq!(reason.user_line().is_empty(), *reason == StopReason::FinalText);
            if reason.layer() == StopLayer::Budget {
                assert_ne!(reason.status(), RunStatus::Completed, "a cap is never ok");
            }
        }
    }
}
