//! The ends of runs: the closed list of stop reasons, in six layers, and the evidence for them.

use std::cmp::Ordering;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::run_status::RunStatus;

/// The maximum length of a quote in the evidence, in characters. 120: a line of a terminal, enough to recognise
/// repeated text.
pub const QUOTE_MAX_CHARS: usize = 120;

/// The layer of a stop reason, in order of precedence: of two reasons that are true at the same time, that of the
/// earlier layer is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopLayer {
    /// A person or the operator has stopped the run.
    Operator,
    /// The work has ended by itself.
    Natural,
    /// A limit was reached.
    Budget,
    /// The run made no progress.
    Progress,
    /// An approval was missing, or a hook has refused the run.
    Gate,
    /// The provider or the daemon has failed.
    Host,
}

impl StopLayer {
    /// Every layer, in the order of precedence.
    pub const ALL: &'static [Self] =
        &[Self::Operator, Self::Natural, Self::Budget, Self::Progress, Self::Gate, Self::Host];

    /// The name in documents, logs and metrics.
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

/// Whether the work can continue from the point at which it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resume {
    /// No: there is nothing to continue, or it would end in the same way.
    No,
    /// Another message in the conversation continues the work.
    Yes,
    /// Another message continues the work after the limit is raised or the trouble is over.
    Later,
}

impl Resume {
    /// The name in documents.
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
        /// The reason for which a run has ended: a closed list. The name is the wire name, the metric label and the
        /// stored value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

            /// The layer of the reason.
            pub fn layer(self) -> StopLayer {
                match self { $(Self::$name => StopLayer::$layer,)+ }
            }

            /// The status of a run with this reason. A limit is never `completed`.
            pub fn status(self) -> RunStatus {
                match self { $(Self::$name => RunStatus::$status,)+ }
            }

            /// Whether the work can continue from the point at which it ended.
            pub fn resume(self) -> Resume {
                match self { $(Self::$name => Resume::$resume,)+ }
            }

            /// The line for the person, if the run itself has left no answer.
            pub fn user_line(self) -> &'static str {
                match self { $(Self::$name => $line,)+ }
            }
        }
    };
}

reasons! {
    /// The person has stopped it.
    UserStop = "user_stop", Operator, Stopped, Yes, "Interrupted.";
    /// An operator has stopped another principal's run.
    OperatorStop = "operator_stop", Operator, Stopped, Yes, "Stopped by the operator.";
    /// The only client that could stop it has disconnected.
    ClientGone = "client_gone", Operator, Stopped, Yes, "Stopped: the client went away.";
    /// The run that started it was stopped, or has ended.
    ParentStopped = "parent_stopped", Operator, Stopped, No, "Stopped together with the run that started this.";
    /// A newer message of the person has replaced it.
    Superseded = "superseded", Operator, Stopped, Yes, "Interrupted by your newer message.";
    /// The daemon shut down before it was done.
    Shutdown = "shutdown", Operator, Stopped, Yes, "Stopped: Belay is shutting down. Send the message again to continue.";

    /// The model has given its final answer.
    FinalText = "final_text", Natural, Completed, No, "";
    /// Its message has become part of another run, which answers both.
    Joined = "joined", Natural, Completed, No, "";
    /// The model has called `terminate` and reported success.
    Terminated = "terminated", Natural, Completed, No, "Done.";
    /// All declared outputs exist, and all checks of a goal hold.
    Goal = "goal", Natural, Completed, No, "Done: all outputs are there.";
    /// Every step of the plan is completed.
    PlanCompleted = "plan_completed", Natural, Completed, No, "Done: every step of the plan is completed.";
    /// The reply of the model was empty.
    EmptyReply = "empty_reply", Natural, Completed, No, "The model had nothing to say.";
    /// The model has called `terminate` and reported failure.
    GaveUp = "gave_up", Natural, Failed, Yes, "The agent gave up: it reports that it cannot do this.";
    /// The plan has ended with blocked steps.
    PlanBlocked = "plan_blocked", Natural, Failed, Yes, "The plan is at its end, but not every step could be completed.";
    /// The model kept answering in text while declared outputs were missing.
    MissingOutputs = "missing_outputs", Natural, Failed, Yes, "Ended without all of the declared outputs.";
    /// The check of a goal does not hold after the last attempt, or it may not be carried out.
    GoalMissed = "goal_missed", Natural, Failed, Yes, "Ended without reaching the goal.";

    /// The budget of the day is spent.
    CostRefused = "cost_refused", Budget, Failed, Later, "Refused: what is left of today's model budget does not cover \
                                                          another call.";
    /// The run has reached the hard limit of steps.
    MaxIterations = "max_iterations", Budget, Failed, Yes, "Stopped: the limit of tool iterations was exceeded.";
    /// The model has reached its token limit without any text.
    LengthLimit = "length_limit", Budget, Failed, Yes, "The answer reached its length limit before it said anything.";
    /// The budget of the run is spent.
    RunCost = "run_cost", Budget, Stopped, Yes, "Stopped: this request has used up its budget.";
    /// The budget of the session is spent.
    SessionCost = "session_cost", Budget, Stopped, Later, "Stopped: this conversation has used up its budget.";
    /// The limit of time since the start is reached.
    WallClock = "wall_clock", Budget, Stopped, Yes, "Stopped: the time for this request is up.";
    /// The limit of working time is reached.
    ActiveTime = "active_time", Budget, Stopped, Yes, "Stopped: this request took too long.";
    /// The limit of model calls is reached.
    ModelCalls = "model_calls", Budget, Stopped, Yes, "Stopped: the limit of model calls was reached.";
    /// The limit of tool calls is reached.
    ToolCalls = "tool_calls", Budget, Stopped, Yes, "Stopped: the limit of tool calls was reached.";
    /// The limit of tokens is reached.
    Tokens = "tokens", Budget, Stopped, Yes, "Stopped: the limit of tokens was reached.";
    /// The limit of output is reached.
    OutputBytes = "output_bytes", Budget, Stopped, Yes, "Stopped: the limit of output was reached.";
    /// The limit of steps of plans or of their attempts is reached.
    PlanLimit = "plan_limit", Budget, Stopped, Yes, "Stopped: the plan took more steps than it may.";

    /// The same tool calls repeat without a new result.
    ToolLoop = "tool_loop", Progress, Stopped, Yes, "Stopped: the agent was repeating the same tool calls without \
                                                     making progress.";
    /// The same text repeats within one answer.
    Chanting = "chanting", Progress, Stopped, Yes, "Stopped: the model was repeating itself.";
    /// The judge model has found that the run repeats itself.
    JudgedLoop = "judged_loop", Progress, Stopped, Yes, "Stopped: the work was going in circles.";
    /// The same or nearly the same answer repeats.
    RepeatedReplies = "repeated_replies", Progress, Stopped, Yes, "Stopped: the model kept giving the same answer \
                                                                   without making progress.";
    /// Empty replies without calls repeat.
    EmptyReplies = "empty_replies", Progress, Stopped, Yes, "Stopped: the model kept answering with nothing.";
    /// Calls of unknown tools repeat.
    UnknownTools = "unknown_tools", Progress, Stopped, Yes, "Stopped: the model kept calling tools that do not exist.";
    /// Calls with invalid arguments repeat.
    InvalidArguments = "invalid_arguments", Progress, Stopped, Yes, "Stopped: the model kept calling tools with invalid arguments.";
    /// Steps in which every call fails repeat.
    ConsecutiveErrors = "consecutive_errors", Progress, Stopped, Yes, "Stopped: too many tool calls failed one after another.";
    /// The model asks again for an approval that was denied.
    ApprovalReasks = "approval_reasks", Progress, Stopped, Yes, "Stopped: the agent kept asking for what had been denied.";
    /// Compactions repeat without shortening the context.
    CompactionLoop = "compaction_loop", Progress, Stopped, Yes, "Stopped: shortening this conversation no longer helps. Start a new one with /new.";
    /// A rule of the operator has ended it.
    OperatorRule = "operator_rule", Progress, Stopped, Yes, "Stopped by a rule of the operator.";

    /// An approval is needed, and nobody can give it.
    ApprovalUnavailable = "approval_unavailable", Gate, Failed, No, "Stopped: this needs an approval, and nobody can be asked.";

    /// A hook of the operator has refused the run before its start.
    HookRefused = "hook_refused", Gate, Failed, No, "Refused by a hook of the operator.";

    /// The provider limits the rate of requests.
    RateLimited = "rate_limited", Host, Failed, Later, "The model provider limits the number of requests. Please try again later.";
    /// The provider is overloaded.
    Overloaded = "overloaded", Host, Failed, Later, "The model provider is overloaded. Please try again later.";
    /// The provider rejects the API key.
    ProviderAuth = "provider_auth", Host, Failed, Later, "The model provider rejects the API key. The operator must check it.";
    /// The provider's quota or credit is used up.
    ProviderQuota = "provider_quota", Host, Failed, Later, "The model provider's quota or credit is used up. The operator must raise it.";
    /// The provider does not know the model.
    UnknownModel = "unknown_model", Host, Failed, Later, "The model provider does not know the configured model. The operator must check its name.";
    /// The provider has an internal error.
    ProviderError = "provider_error", Host, Failed, Later, "The model provider reports an internal error. Please try again later.";
    /// The context exceeds the model's limit even after compaction.
    ContextTooLong = "context_too_long", Host, Failed, No, "This conversation is too long for the model, even shortened. Start a new one with /new.";
    /// The provider rejects the request.
    BadRequest = "bad_request", Host, Failed, No, "The model provider refused the request.";
    /// The provider has withheld the whole answer.
    ContentFilter = "content_filter", Host, Failed, No, "The model provider withheld the answer.";
    /// The provider cannot be reached, or has broken off the connection.
    Network = "network", Host, Failed, Later, "The model could not be reached, or broke off. Please try again.";
    /// The run has shown no sign of progress for too long, and its lane was freed.
    Stuck = "stuck", Host, Failed, Yes, "Ended: this made no progress for too long. Please try again.";
    /// A panic or another bug of Belay.
    Internal = "internal", Host, Failed, Later, "Something went wrong inside Belay. The log says more.";
    /// The run was resumed after crashes too often.
    RestartLimit = "restart_limit", Host, Failed, No, "Given up: the daemon restarted several times while working on this.";
}

impl StopReason {
    /// The reason with this name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.word() == word)
    }

    /// The precedence of two reasons that are true at the same time: `Less` if this one is reported. The earlier layer
    /// comes first; within a layer the more conservative status (failed, then stopped, then completed), then the order
    /// of the list.
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

/// The finding of a stop rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The stop reason that it leads to.
    pub reason: StopReason,
    /// The rule: its name in the configuration, or the wire name of a kind of loop.
    pub rule: String,
    /// The measured value, in the unit of the rule.
    pub count: u64,
    /// The value from which on the rule applies.
    pub threshold: u64,
    /// Digests of the repeated items, oldest first; at most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fingerprints: Vec<String>,
    /// A short quote of the repeated text; see [`Finding::quoting`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
    /// Further facts.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub facts: Map<String, Value>,
}

impl Finding {
    /// A finding without fingerprints, quote and further facts.
    pub fn new(reason: StopReason, rule: impl Into<String>, count: u64, threshold: u64) -> Self {
        let (fingerprints, facts) = (Vec::new(), Map::new());
        Self { reason, rule: rule.into(), count, threshold, fingerprints, quote: None, facts }
    }

    /// The same with a quote: the first [`QUOTE_MAX_CHARS`] characters of `text`, with control characters as spaces.
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

    /// The evidence in its stored form: all fields except the reason, with the further facts beside them.
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

/// Removes the marks of untrusted content from every text of a JSON value. The recursion is as deep as the value: for values
/// that a parser has bounded.
pub fn unmark_value(value: &mut Value) {
    match value {
        Value::String(text) => belay_text::untrusted::unmark(text),
        Value::Array(values) => values.iter_mut().for_each(unmark_value),
        Value::Object(values) => values.values_mut().for_each(unmark_value),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The end of a run: exactly one for each run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEnd {
    /// The stop reason.
    pub reason: StopReason,
    /// The evidence: rule, counts, thresholds, fingerprints, at most a short quote.
    #[serde(default)]
    pub evidence: Map<String, Value>,
}

/// Evidence that no log line has.
const UNLOGGED: [&str; 4] = ["quote", "text", RunEnd::EXPLANATION, "loop"];

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
    /// The evidence in a sentence for people, of a stop rule about progress.
    pub const EXPLANATION: &str = "explanation";

    /// An end without evidence.
    pub fn of(reason: StopReason) -> Self {
        Self { reason, evidence: Map::new() }
    }

    /// The same end with one more fact.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.evidence.insert(key.into(), value.into());
        self
    }

    /// The same end without the marks of untrusted content in its evidence, which people read.
    #[must_use]
    pub fn for_people(mut self) -> Self {
        self.evidence.values_mut().for_each(unmark_value);
        self
    }

    /// The line for the person: that of the reason, and the explanation if there is one.
    pub fn line(&self) -> String {
        let line = self.reason.user_line();
        match self.evidence.get(Self::EXPLANATION).and_then(Value::as_str) {
            Some(explanation) => format!("{line} {explanation}"),
            None => line.to_owned(),
        }
    }

    /// The line for the log: the reason's name, then the evidence as `key=value`. It omits the quote, the text, the
    /// explanation and the loop, which may contain a person's words.
    pub fn log_line(&self) -> String {
        let mut line = self.reason.word().to_owned();
        // Sorted here, since the order of the map depends on the features of the library.
        let mut facts: Vec<_> = self.evidence.iter().filter(|(key, _)| !UNLOGGED.contains(&key.as_str())).collect();
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
        let end = RunEnd::from(finding).with(RunEnd::EXPLANATION, "The last 5 calls of read were equal.");
        let line = "Stopped: the agent was repeating the same tool calls without making progress. The last 5 calls of read \
                    were equal.";
        assert_eq!(end.line(), line);
        assert_eq!(end.evidence["count"], 5, "facts never replace what a finding says");
        let quote = end.evidence["quote"].as_str().expect("a quote");
        assert_eq!((quote.chars().count(), quote.starts_with("read x")), (QUOTE_MAX_CHARS + 1, true));
        let line = "tool_loop count=5 period=1 rule=\"CONSECUTIVE_IDENTICAL_TOOL_CALLS\" threshold=5";
        assert_eq!(end.log_line(), line);
    }
}
