//! The words of an explanation.

use belay_agent_loop::policies::tool_loops::{
    CONSECUTIVE_IDENTICAL_TOOL_CALLS, POLLING_WITHOUT_PROGRESS, REPEATED_CALLS_WITHOUT_PROGRESS,
    SAME_RESULT_FOR_VARIED_ARGUMENTS,
};
use belay_protocol::{Finding, StopReason};

/// The sentence about a run with a strike, at a step of so many. `recovers`: the number of the strike and of the one that
/// ends a run; `None`: this one ends it.
pub(super) fn struck(finding: &Finding, (at, of): (u64, u64), recovers: Option<(u32, u32)>, same: &[u64]) -> String {
    let what = match recovers {
        Some((number, most)) => {
            format!(
                "been struck at step {at} of {of} (strike {number} of {most}; a live run gets a recovery turn first)"
            )
        }
        None => format!("stopped at step {at} of {of}"),
    };
    format!("would have {what}: {}{}", account(finding), in_steps(same))
}

/// The sentence about a run without a strike. `most`: the most frequent call, and how often it came.
pub(super) fn healthy(steps: u64, calls: u64, most: Option<(&str, u64)>, same: &[u64]) -> String {
    let plural = |count: u64, one: &str| if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") };
    let what = format!("{} with {}", plural(steps, "step"), plural(calls, "tool call"));
    match most {
        _ if steps == 0 && calls == 0 => "would not have stopped: there is no step".into(),
        None => format!("would not have stopped in {what}; no call came twice"),
        Some((call, count)) => {
            let often = format!("the most frequent call, `{call}`, came {count} times{}", in_steps(same));
            format!("would not have stopped in {what}; {often}")
        }
    }
}

/// The sentence of a finding's evidence.
fn account(finding: &Finding) -> String {
    let count = finding.count;
    let what = finding.quote.as_deref().map_or_else(|| finding.rule.replace('_', " "), |quote| format!("`{quote}`"));
    match (finding.rule.as_str(), finding.reason) {
        (CONSECUTIVE_IDENTICAL_TOOL_CALLS, _) => {
            format!("the same calls came {count} times in a row, the newest {what}")
        }
        (SAME_RESULT_FOR_VARIED_ARGUMENTS, _) => {
            format!("{count} calls with different arguments gave the same result, the newest {what}")
        }
        (REPEATED_CALLS_WITHOUT_PROGRESS, _) if finding.facts.contains_key("returned") => {
            format!("{count} answers showed nothing new or returned to an earlier state, the newest {what}")
        }
        (REPEATED_CALLS_WITHOUT_PROGRESS, _) => format!("{count} results showed nothing new, the newest of {what}"),
        (POLLING_WITHOUT_PROGRESS, _) => format!("{what} asked {count} times and got the same answer"),
        (_, StopReason::Chanting) => format!("one text came {count} times: {what}"),
        (_, StopReason::RepeatedReplies) => format!("an answer came again {count} times: {what}"),
        (_, StopReason::ConsecutiveErrors) => match &finding.quote {
            Some(quote) => format!("every call of {count} steps in a row failed, the newest with “{quote}”"),
            None => format!("every call of {count} steps in a row failed"),
        },
        (rule, _) => format!("{} reached {count} (the limit is {})", rule.replace('_', " "), finding.threshold),
    }
}

/// ` (steps 1, 2 and 3)`, or nothing if there is only one.
fn in_steps(steps: &[u64]) -> String {
    match steps {
        [] | [_] => String::new(),
        [first @ .., last] => {
            let first: Vec<_> = first.iter().map(ToString::to_string).collect();
            format!(" (steps {} and {last})", first.join(", "))
        }
    }
}

/// The settings that decide about a finding.
pub(super) fn settings(finding: &Finding) -> Vec<&'static str> {
    let of_rule: &[&'static str] = match (finding.rule.as_str(), finding.reason) {
        (CONSECUTIVE_IDENTICAL_TOOL_CALLS | REPEATED_CALLS_WITHOUT_PROGRESS | POLLING_WITHOUT_PROGRESS, _) => {
            &["stops.tool_loops.polling_tools", "stops.tool_loops.harmless_tools"]
        }
        // A rule of the operator's with the name of a built-in one replaces it.
        (
            _,
            StopReason::ConsecutiveErrors
            | StopReason::EmptyReplies
            | StopReason::UnknownTools
            | StopReason::InvalidArguments
            | StopReason::ApprovalReasks
            | StopReason::CompactionLoop,
        ) => &["stops.rules"],
        (_, StopReason::OperatorRule) => &["stops.rules"],
        (_, StopReason::Chanting | StopReason::ToolLoop | StopReason::RepeatedReplies) => &[],
        _ => return vec!["limits"],
    };
    let of_detection = [StopReason::ToolLoop, StopReason::Chanting, StopReason::RepeatedReplies];
    let shared: &[&'static str] =
        if of_detection.contains(&finding.reason) { &["stops.loops", "stops.max_strikes"] } else { &["stops.enabled"] };
    [of_rule, shared].concat()
}
