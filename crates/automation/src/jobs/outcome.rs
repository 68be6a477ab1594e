//! Maps the end of an attempt's run to the outcome for its job. Pure.

use belay_protocol::{RunEnd, RunRecord, RunStatus, StopLayer, StopReason};

use super::text;
use belay_run::tool_health::{FAILING_TOOL, FAILING_TOOL_TIMES};

/// How an attempt ended, from the view of its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AttemptOutcome {
    /// It has a result.
    Done(String),
    /// A person or a program stopped it.
    Stopped(String),
    /// It made no progress.
    Stuck(String),
    /// It failed; `partial` is its best partial result.
    Failed { why: String, partial: Option<String> },
}

impl AttemptOutcome {
    /// A failure without a partial result.
    pub(super) fn failed(why: impl Into<String>) -> Self {
        Self::Failed { why: why.into(), partial: None }
    }

    /// The outcome of this ended run.
    pub(super) fn of(run: &RunRecord) -> Self {
        let Some(reason) = run.reason else { return Self::failed(StopReason::Internal.user_line()) };
        // A reply that only states the stop reason is not a result.
        let line = reason.user_line();
        let end = RunEnd { reason, evidence: run.evidence.clone() }.line();
        let said = run.reply.as_deref().map(|reply| reply.strip_suffix(end.as_str()).unwrap_or(reply).trim());
        let said = said.filter(|said| !said.is_empty()).map(str::to_owned);
        match (reason, reason.layer()) {
            (StopReason::Stuck, _) => {
                let silent = run.evidence.get("silent_s").and_then(serde_json::Value::as_u64);
                let time = silent.map_or("too long".to_owned(), |silent| format!("{silent} s"));
                Self::Stuck(format!("it made no progress for {time}"))
            }
            // A run that a shutdown defers does not end. It ended because the deferral failed; the next start begins a
            // new attempt.
            (StopReason::Shutdown, _) => Self::Stuck("Belay was shut down while it was running".to_owned()),
            (_, StopLayer::Operator) => Self::Stopped(line.to_owned()),
            (StopReason::EmptyReply, _) => Self::failed(text::why(reason)),
            // A run that ends with `terminate` and no summary has still done the job.
            (StopReason::Terminated, _) => Self::Done(said.unwrap_or_else(|| line.to_owned())),
            _ => match (reason.status(), said) {
                (RunStatus::Completed, Some(result)) => Self::Done(result),
                (_, partial) => {
                    // The message names the budget, so that its reader can raise that budget.
                    let budget = run.evidence.get("budget").and_then(serde_json::Value::as_str);
                    let budget = budget.map_or_else(String::new, |budget| format!(" ({budget})"));
                    Self::Failed { why: format!("{}{budget}{}", text::why(reason), failing_tool(run)), partial }
                }
            },
        }
    }
}

/// Names the tool that kept the run from its end, if any, as a suffix of the failure's detail.
fn failing_tool(run: &RunRecord) -> String {
    let tool = run.evidence.get(FAILING_TOOL).and_then(serde_json::Value::as_str);
    let times = run.evidence.get(FAILING_TOOL_TIMES).and_then(serde_json::Value::as_u64);
    match (tool, times) {
        (Some(tool), Some(times)) => format!("; the tool {tool} failed {times} times and did not work again"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::{RunId, RunUsage, UnixMillis};
    use serde_json::{Map, json};

    use super::*;

    fn run(reason: StopReason, reply: Option<&str>) -> RunRecord {
        RunRecord {
            run_id: RunId::new(),
            session: "job:x".into(),
            status: reason.status(),
            reason: Some(reason),
            evidence: Map::from_iter([("silent_s".to_owned(), json!(300))]),
            reply: reply.map(str::to_owned),
            usage: RunUsage::default(),
            cost_micro_usd: 0,
            attempt: 1,
            accepted_at: UnixMillis(0),
            started_at: None,
            ended_at: None,
            waiting_for: None,
            files: Vec::new(),
        }
    }

    #[test]
    fn only_a_result_is_done_and_a_limit_never_is() {
        let failed = |why: StopReason, partial: Option<&str>| AttemptOutcome::Failed {
            why: text::why(why).to_owned(),
            partial: partial.map(str::to_owned),
        };
        let line = |reason: StopReason| format!("half of it\n\n{}", reason.user_line());
        for (reason, reply, expected) in [
            (StopReason::FinalText, Some("42".to_owned()), AttemptOutcome::Done("42".into())),
            (StopReason::FinalText, None, failed(StopReason::FinalText, None)),
            (StopReason::Terminated, Some("Done.".to_owned()), AttemptOutcome::Done("Done.".into())),
            (
                StopReason::EmptyReply,
                Some("The model had nothing to say.".into()),
                failed(StopReason::EmptyReply, None),
            ),
            (
                StopReason::MaxIterations,
                Some(line(StopReason::MaxIterations)),
                failed(StopReason::MaxIterations, Some("half of it")),
            ),
            (StopReason::GaveUp, Some("no broom".into()), failed(StopReason::GaveUp, Some("no broom"))),
            (StopReason::UserStop, Some("Interrupted.".into()), AttemptOutcome::Stopped("Interrupted.".into())),
            (StopReason::Stuck, None, AttemptOutcome::Stuck("it made no progress for 300 s".into())),
        ] {
            assert_eq!(AttemptOutcome::of(&run(reason, reply.as_deref())), expected, "{reason:?}");
        }
    }

    #[test]
    fn a_failure_names_the_tool_that_kept_failing() {
        let mut run = run(StopReason::ConsecutiveErrors, None);
        run.evidence.insert(FAILING_TOOL.to_owned(), json!("web_search"));
        run.evidence.insert(FAILING_TOOL_TIMES.to_owned(), json!(6));
        let line = StopReason::ConsecutiveErrors.user_line();
        let why = format!("{line}; the tool web_search failed 6 times and did not work again");
        assert_eq!(AttemptOutcome::of(&run), AttemptOutcome::failed(why));
    }
}
