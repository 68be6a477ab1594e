//! Endings: the closed list of reasons, in six layers, and what was seen when one of them ended a run.

use std::cmp::Ordering;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::run_status::RunStatus;

/// Longest quote in an evidence, in characters. 120: a line of a terminal, enough to recognise what went in circles.
pub const QUOTE_MAX_CHARS: usize = 120;

/// Which layer ended a run, in the order of their precedence: of two endings that are true at the same moment, the one
/// of the earlier layer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopLayer {
    /// A person or the operator.
    Operator,
    /// The work came to its own end.
    Natural,
    /// A limit.
    Budget,
    /// It went on without getting on.
    Progress,
    /// A question that nobody answered with yes.
    Gate,
    /// The provider, or our own machine.
    Host,
}

impl StopLayer {
    /// Every layer, in the order of precedence.
    pub const ALL: &'static [Self] =
        &[Self::Operator, Self::Natural, Self::Budget, Self::Progress, Self::Gate, Self::Host];

    /// The word for documents, logs and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Natural => "natural",
            Self::Budget => "budget",
            Self::Progress => "progress",
            Self::Gate => "gate",
            Self::Host => "host",
        }
    }
}

/// Whether the work can be taken up where it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resume {
    /// There is nothing to resume, or it would end the same way.
    No,
    /// Another message in the conversation goes on from here.
    Yes,
    /// Another message goes on from here once the limit is raised, or the trouble is over.
    Later,
}

impl Resume {
    /// The word for documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Yes => "yes",
            Self::Later => "later",
        }
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $layer:ident, $status:ident, $resume:ident, $line:literal;)+) => {
        /// Why a run ended: a closed list. The word is the wire name, the metric label and the stored value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum StopReason {
            $($(#[$doc])* #[serde(rename = $word)] $name,)+
        }

        impl StopReason {
            /// Every reason, in the order of the list.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The wire name, and the label of metrics.
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

            /// Whether the work can be taken up where it ended.
            pub fn resume(self) -> Resume {
                match self { $(Self::$name => Resume::$resume,)+ }
            }

            /// What the person is told, where the run itself left no answer.
            pub fn user_line(self) -> &'static str {
                match self { $(Self::$name => $line,)+ }
            }
        }
    };
}

reasons! {
    /// The person stopped it.
    UserStop = "user_stop", Operator, Stopped, Yes, "Interrupted.";
    /// An operator stopped it from elsewhere.
    OperatorStop = "operator_stop", Operator, Stopped, Yes, "Stopped by the operator.";
    /// The client that alone could stop it went away.
    ClientGone = "client_gone", Operator, Stopped, Yes, "Stopped: the client went away.";
    /// The run that started it was stopped, or has ended.
    ParentStopped = "parent_stopped", Operator, Stopped, No, "Stopped together with the run that started this.";
    /// The person wrote something newer, which is answered in its place.
    Superseded = "superseded", Operator, Stopped, Yes, "Interrupted by your newer message.";
    /// The daemon shut down before it was done.
    Shutdown = "shutdown", Operator, Stopped, Yes, "Stopped: Belay is shutting down. Send the message again to continue.";

    /// The model's text ended the turn.
    FinalText = "final_text", Natural, Completed, No, "";
    /// Its message became part of another run, which answers both.
    Joined = "joined", Natural, Completed, No, "";
    /// The model called `terminate` and said that it has succeeded.
    Terminated = "terminated", Natural, Completed, No, "Done.";
    /// All declared outputs are there.
    Goal = "goal", Natural, Completed, No, "Done: all outputs are there.";
    /// Every step of the plan is completed.
    PlanCompleted = "plan_completed", Natural, Completed, No, "Done: every step of the plan is completed.";
    /// The model answered with nothing.
    EmptyReply = "empty_reply", Natural, Completed, No, "The model had nothing to say.";
    /// The model called `terminate` and said that it has failed.
    GaveUp = "gave_up", Natural, Failed, Yes, "The agent gave up: it reports that it cannot do this.";
    /// The plan is at its end, and some of its steps are blocked.
    PlanBlocked = "plan_blocked", Natural, Failed, Yes, "The plan is at its end, but not every step could be completed.";
    /// The model went on answering in text while declared outputs were missing.
    MissingOutputs = "missing_outputs", Natural, Failed, Yes, "Ended without all of the declared outputs.";

    /// The day's money is spent.
    CostRefused = "cost_refused", Budget, Failed, Later, "Refused: what is left of today's model budget does not cover \
                                                          another call.";
    /// The hard limit of steps.
    MaxIterations = "max_iterations", Budget, Failed, Yes, "Stopped: the limit of tool iterations was exceeded.";
    /// The model used up its tokens before it said anything.
    LengthLimit = "length_limit", Budget, Failed, Yes, "The answer reached its length limit before it said anything.";
    /// The money of this run is spent.
    RunCost = "run_cost", Budget, Stopped, Yes, "Stopped: this request has used up its budget.";
    /// The money of this session is spent.
    SessionCost = "session_cost", Budget, Stopped, Later, "Stopped: this conversation has used up its budget.";
    /// The time since its beginning is up.
    WallClock = "wall_clock", Budget, Stopped, Yes, "Stopped: the time for this request is up.";
    /// The time at work is up.
    ActiveTime = "active_time", Budget, Stopped, Yes, "Stopped: this request took too long.";
    /// The requests to the model are used up.
    ModelCalls = "model_calls", Budget, Stopped, Yes, "Stopped: the limit of model calls was reached.";
    /// The tool calls are used up.
    ToolCalls = "tool_calls", Budget, Stopped, Yes, "Stopped: the limit of tool calls was reached.";
    /// The tokens are used up.
    Tokens = "tokens", Budget, Stopped, Yes, "Stopped: the limit of tokens was reached.";
    /// What it may write is used up.
    OutputBytes = "output_bytes", Budget, Stopped, Yes, "Stopped: the limit of output was reached.";
    /// The steps of a plan, or their attempts, are used up over all.
    PlanLimit = "plan_limit", Budget, Stopped, Yes, "Stopped: the plan took more steps than it may.";

    /// The same tool calls, again and again, without anything new.
    ToolLoop = "tool_loop", Progress, Stopped, Yes, "Stopped: the agent was repeating the same tool calls without \
                                                     making progress.";
    /// The same words, again and again, within one answer.
    Chanting = "chanting", Progress, Stopped, Yes, "Stopped: the model was repeating itself.";
    /// Another model judged that the work goes in circles.
    JudgedLoop = "judged_loop", Progress, Stopped, Yes, "Stopped: the work was going in circles.";
    /// The same answer, or nearly so, again and again.
    RepeatedReplies = "repeated_replies", Progress, Stopped, Yes, "Stopped: the model kept giving the same answer \
                                                                   without making progress.";
    /// Answer after answer without a word or a call.
    EmptyReplies = "empty_replies", Progress, Stopped, Yes, "Stopped: the model kept answering with nothing.";
    /// Calls of tools that do not exist, again and again.
    UnknownTools = "unknown_tools", Progress, Stopped, Yes, "Stopped: the model kept calling tools that do not exist.";
    /// Calls with arguments that the tools refuse, again and again.
    InvalidArguments = "invalid_arguments", Progress, Stopped, Yes, "Stopped: the model kept calling tools with invalid arguments.";
    /// Step after step in which every call failed.
    ConsecutiveErrors = "consecutive_errors", Progress, Stopped, Yes, "Stopped: too many tool calls failed one after another.";
    /// The same approval asked for again after it was denied.
    ApprovalReasks = "approval_reasks", Progress, Stopped, Yes, "Stopped: the agent kept asking for what had been denied.";
    /// The context was shortened again and again without getting shorter.
    CompactionLoop = "compaction_loop", Progress, Stopped, Yes, "Stopped: shortening this conversation no longer helps. Start a new one with /new.";
    /// A rule of the operator's own.
    OperatorRule = "operator_rule", Progress, Stopped, Yes, "Stopped by a rule of the operator.";

    /// An approval is needed, and there is nobody who could give it.
    ApprovalUnavailable = "approval_unavailable", Gate, Failed, No, "Stopped: this needs an approval, and nobody can be asked.";

    /// A hook of the operator's refused the run before it began.
    HookRefused = "hook_refused", Gate, Failed, No, "Refused by a hook of the operator.";

    /// The provider limits our rate.
    RateLimited = "rate_limited", Host, Failed, Later, "The model provider limits the number of requests. Please try again later.";
    /// The provider is overloaded.
    Overloaded = "overloaded", Host, Failed, Later, "The model provider is overloaded. Please try again later.";
    /// The provider refuses our key.
    ProviderAuth = "provider_auth", Host, Failed, Later, "The model provider rejects the API key. The operator must check it.";
    /// The provider's quota or credit is used up.
    ProviderQuota = "provider_quota", Host, Failed, Later, "The model provider's quota or credit is used up. The operator must raise it.";
    /// The provider does not know the model.
    UnknownModel = "unknown_model", Host, Failed, Later, "The model provider does not know the configured model. The operator must check its name.";
    /// The provider has an error of its own.
    ProviderError = "provider_error", Host, Failed, Later, "The model provider reports an internal error. Please try again later.";
    /// The context does not fit even after compaction.
    ContextTooLong = "context_too_long", Host, Failed, No, "This conversation is too long for the model, even shortened. Start a new one with /new.";
    /// The provider refuses the request.
    BadRequest = "bad_request", Host, Failed, No, "The model provider refused the request.";
    /// The provider withheld the whole answer.
    ContentFilter = "content_filter", Host, Failed, No, "The model provider withheld the answer.";
    /// The provider cannot be reached, or broke off.
    Network = "network", Host, Failed, Later, "The model could not be reached, or broke off. Please try again.";
    /// Nothing was heard of it for too long, and its lane was freed.
    Stuck = "stuck", Host, Failed, Yes, "Ended: this made no progress for too long. Please try again.";
    /// A panic or a bug of ours.
    Internal = "internal", Host, Failed, Later, "Something went wrong inside Belay. The log says more.";
    /// It was taken up again after a crash too often.
    RestartLimit = "restart_limit", Host, Failed, No, "Given up: the daemon restarted several times while working on this.";
}

impl StopReason {
    /// The reason of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.word() == word)
    }

    /// Which of two reasons that are true at the same moment is told: `Less` when this one is. The earlier layer comes
    /// first; within a layer the more conservative status (failed, then stopped, then completed), then the order of the
    /// list.
    pub fn precedence(self, other: Self) -> Ordering {
        let conservative = |reason: Self| match reason.status() {
            RunStatus::Failed => 0,
            RunStatus::Stopped => 1,
            _ => 2,
        };
        let place = |reason: Self| Self::ALL.iter().position(|known| *known == reason);
        let key = |reason: Self| (reason.layer(), conservative(reason), place(reason));
        key(self).cmp(&key(other))
    }
}

/// What a rule saw when it fired.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The ending that it leads to.
    pub reason: StopReason,
    /// The rule: its name in the configuration, or the wire name of a kind of loop.
    pub rule: String,
    /// How often, or how much: in the unit of the rule.
    pub count: u64,
    /// From which count on the rule fires.
    pub threshold: u64,
    /// Digests of what was repeated, oldest first; at most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fingerprints: Vec<String>,
    /// A short piece of what was repeated; see [`Finding::quoting`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
    /// Whatever else was seen.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub facts: Map<String, Value>,
}

impl Finding {
    /// A finding without fingerprints, quote and further facts.
    pub fn new(reason: StopReason, rule: impl Into<String>, count: u64, threshold: u64) -> Self {
        let (fingerprints, facts) = (Vec::new(), Map::new());
        Self { reason, rule: rule.into(), count, threshold, fingerprints, quote: None, facts }
    }

    /// The same with a quote: its first [`QUOTE_MAX_CHARS`] characters, control characters as spaces.
    #[must_use]
    pub fn quoting(mut self, text: &str) -> Self {
        let mut chars = text.chars().map(|c| if c.is_control() { ' ' } else { c });
        let mut quote: String = chars.by_ref().take(QUOTE_MAX_CHARS).collect();
        if chars.next().is_some() {
            quote.push('…');
        }
        self.quote = Some(quote);
        self
    }

    /// The same with one more fact.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.facts.insert(key.into(), value.into());
        self
    }

    /// The evidence as it is stored and shown: everything but the reason, facts beside the rest.
    pub fn evidence(&self) -> Map<String, Value> {
        let mut evidence = Map::new();
        evidence.insert("rule".into(), self.rule.clone().into());
        evidence.insert("count".into(), self.count.into());
        evidence.insert("threshold".into(), self.threshold.into());
        if !self.fingerprints.is_empty() {
            evidence.insert("fingerprints".into(), self.fingerprints.clone().into());
        }
        if let Some(quote) = &self.quote {
            evidence.insert("quote".into(), quote.clone().into());
        }
        for (key, value) in &self.facts {
            evidence.entry(key.clone()).or_insert_with(|| value.clone());
        }
        evidence
    }
}

/// How a run ended: exactly one of these for each run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEnd {
    /// Why.
    pub reason: StopReason,
    /// What was seen: rule, counts, thresholds, fingerprints, at most a short quote.
    #[serde(default)]
    pub evidence: Map<String, Value>,
}

impl From<StopReason> for RunEnd {
    fn from(reason: StopReason) -> Self {
        Self::of(reason)
    }
}

impl From<Finding> for RunEnd {
    fn from(finding: Finding) -> Self {
        Self { reason: finding.reason, evidence: finding.evidence() }
    }
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

    /// The line for the log: the reason's word, then the evidence as `key=value`, without the quote, which may be a
    /// person's words.
    pub fn log_line(&self) -> String {
        let mut line = self.reason.word().to_owned();
        // Sorted here: whether the map is, depends on how the library was built.
        let mut facts: Vec<_> = self.evidence.iter().filter(|(key, _)| *key != "quote").collect();
        facts.sort_unstable_by_key(|(key, _)| key.as_str());
        for (key, value) in facts {
            let _ = write!(line, " {key}={value}"); // a String takes everything
        }
        line
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
            assert_eq!(reason.user_line().is_empty(), matches!(reason, StopReason::FinalText | StopReason::Joined));
            if matches!(reason.layer(), StopLayer::Budget | StopLayer::Progress | StopLayer::Gate) {
                assert_ne!(reason.status(), RunStatus::Completed, "a cap is never ok: {reason:?}");
            }
        }
        for layer in StopLayer::ALL {
            assert!(StopReason::ALL.iter().any(|reason| reason.layer() == *layer), "{layer:?} has no reason");
        }
    }

    #[test]
    fn of_two_endings_the_table_says_which_is_told() {
        use StopReason::*;
        for (told, other, why) in [
            (UserStop, FinalText, "a person's stop comes before everything"),
            (UserStop, Shutdown, "the order of the list"),
            (FinalText, ToolCalls, "work that is done is done, whatever it used up"),
            (CostRefused, RunCost, "within a layer the failure is told"),
            (RunCost, ToolLoop, "a limit before a suspicion"),
            (ToolLoop, Network, "what we saw before what a provider did"),
            (GaveUp, FinalText, "within a layer the failure is told"),
        ] {
            assert_eq!(told.precedence(other), Ordering::Less, "{told:?} {other:?}: {why}");
            assert_eq!(other.precedence(told), Ordering::Greater, "{told:?} {other:?}: {why}");
            assert_eq!(told.precedence(told), Ordering::Equal);
        }
    }

    #[test]
    fn a_finding_becomes_evidence_with_a_short_quote_that_the_log_does_not_show() {
        let finding = Finding::new(StopReason::ToolLoop, "CONSECUTIVE_IDENTICAL_TOOL_CALLS", 5, 5)
            .quoting(&format!("read\n{}", "x".repeat(200)))
            .with("period", 1)
            .with("count", 99);
        let end = RunEnd::from(finding);
        assert_eq!(end.evidence["count"], 5, "facts never replace what a finding says");
        let quote = end.evidence["quote"].as_str().expect("a quote");
        assert_eq!((quote.chars().count(), quote.starts_with("read x")), (QUOTE_MAX_CHARS + 1, true));
        let line = "tool_loop count=5 period=1 rule=\"CONSECUTIVE_IDENTICAL_TOOL_CALLS\" threshold=5";
        assert_eq!(end.log_line(), line);
    }
}
