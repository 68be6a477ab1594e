//! The texts about a goal for the model and the person. Pure.

use belay_protocol::GoalRequest;

use super::state::GoalState;

/// Most characters of a check's output that a person reads. 500: a few lines of a test run.
const SAID_CHARS: usize = 500;
/// Most lines of it.
const SAID_LINES: usize = 5;

/// Told to the model before an attempt.
pub(super) fn notice(request: &GoalRequest, state: &GoalState, failed: &str) -> String {
    let (check, of) = (request.until.written(), request.attempts());
    let more = match state.attempts {
        1 => "This request has a goal. ",
        _ => "The goal is not reached yet. ",
    };
    format!(
        "{more}It is reached when this holds: {check}. {failed}\nThis is attempt {} of {of}. Work until the goal is reached, \
         then give your final answer; Belay checks again after it, and only the check decides. Do not change what is checked \
         so that it passes: a changed check is refused.",
        state.attempts
    )
}

/// The line for the person at the end of a goal that is reached.
pub(super) fn reached(request: &GoalRequest, state: &GoalState, evidence: &str) -> String {
    let after = match state.attempts {
        0 => "before any work".to_owned(),
        1 => "after 1 attempt".to_owned(),
        n => format!("after {n} attempts"),
    };
    with_evidence(format!("Goal reached {after}: {} holds.", request.until.written()), evidence)
}

/// The line for the person at the end of a goal that is not reached.
pub(super) fn missed(why: &str, missing: &str) -> String {
    // The result of a refused call is a sentence already.
    let why = why.strip_suffix('.').unwrap_or(why);
    with_evidence(format!("The goal is not reached: {why}."), missing)
}

/// Why no further attempt follows.
pub(super) fn used(attempts: u32) -> String {
    match attempts {
        1 => "the only attempt is used".to_owned(),
        n => format!("all {n} attempts are used"),
    }
}

fn with_evidence(line: String, evidence: &str) -> String {
    match evidence.trim() {
        "" => line,
        evidence => format!("{line}\n\n{evidence}"),
    }
}

/// The goal, as `/goal` shows it.
pub(super) fn shown(request: &GoalRequest, state: &GoalState, micro_usd: u64) -> String {
    let doing = if state.working { "working" } else { "checking" };
    let budget = &request.budget;
    let money = budget.micro_usd.map_or_else(String::new, |most| format!(" of ${}", usd(most)));
    let time = budget.seconds.map_or_else(String::new, |seconds| format!(", at most {seconds} s of work"));
    let last = match state.said.trim() {
        "" => "not checked yet".to_owned(),
        said => said.to_owned(),
    };
    format!(
        "Goal: {}\nUntil: {}\nAttempt {} of {} ({doing}); spent ${}{money}{time}\nLast check: {last}",
        request.text,
        request.until.written(),
        state.attempts,
        request.attempts(),
        usd(micro_usd),
    )
}

fn usd(micro: u64) -> String {
    format!("{}.{:04}", micro / 1_000_000, micro % 1_000_000 / 100)
}

/// The end of an output: the line about its exit code if there is one, and its last lines, bounded.
pub(super) fn tail(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let code = lines.first().copied().filter(|line| line.starts_with("[exit code"));
    lines.drain(..lines.len().saturating_sub(SAID_LINES).max(usize::from(code.is_some())));
    let last = lines.join("\n");
    let surplus = last.chars().count().saturating_sub(SAID_CHARS);
    let last: String = last.chars().skip(surplus).collect();
    code.into_iter().map(str::to_owned).chain(Some(last).filter(|last| !last.is_empty())).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::{missed, tail, used};

    #[test]
    fn a_goal_that_is_not_reached_ends_with_one_stop() {
        for (why, missing, expected) in [
            ("denied: state what is missing.", "", "The goal is not reached: denied: state what is missing."),
            (&*used(1), "1 failed", "The goal is not reached: the only attempt is used.\n\n1 failed"),
            (&*used(2), "", "The goal is not reached: all 2 attempts are used."),
        ] {
            assert_eq!(missed(why, missing), expected);
        }
    }

    #[test]
    fn the_end_of_an_output_keeps_its_exit_code() {
        for (text, expected) in [
            ("", ""),
            ("[exit code 0]\n", "[exit code 0]"),
            ("[exit code 1]\na\n\nb\n", "[exit code 1]\na\nb"),
            ("[exit code 1]\n1\n2\n3\n4\n5\n6", "[exit code 1]\n2\n3\n4\n5\n6"),
            ("1\n2\n3\n4\n5\n6", "2\n3\n4\n5\n6"),
        ] {
            assert_eq!(tail(text), expected, "{text:?}");
        }
        assert_eq!(tail(&"x".repeat(600)).len(), 500);
    }
}
