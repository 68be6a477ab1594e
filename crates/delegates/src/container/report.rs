//! The report about a worker's end for the model that started it. Pure.

use belay_protocol::{Termination, ToolFailure, ToolOutput, WorkerEnd};
use serde_json::json;

use super::job::Ended;

/// The termination that corresponds to a worker's end.
pub(super) fn termination(end: &WorkerEnd) -> Termination {
    match end {
        WorkerEnd::Completed { .. } => Termination::Goal,
        WorkerEnd::MaxTurns => Termination::MaxTurns,
        WorkerEnd::TimedOut => Termination::Timeout,
        WorkerEnd::Stopped => Termination::Aborted,
        WorkerEnd::Failed { .. } => Termination::Error,
    }
}

/// Makes the report: facts as JSON, and one plain line.
pub(super) fn report(ended: Ended) -> ToolOutput {
    let Ended { end, reason, turns, duration } = ended;
    let mut facts = json!({
        "termination": termination(&end).word(),
        "reason": reason.word(),
        "turns": turns,
        "duration_ms": u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
    });
    let line = match end {
        WorkerEnd::Completed { reply } => {
            facts["result"] = reply.into();
            return Ok(format!("{facts}\nThe worker completed its task.").into());
        }
        WorkerEnd::MaxTurns => {
            "The worker reached its step limit before it completed its task. What it wrote is in the workspace."
                .to_owned()
        }
        WorkerEnd::TimedOut => {
            "The worker reached its time limit before it completed its task. What it wrote is in the workspace."
                .to_owned()
        }
        WorkerEnd::Failed { detail } => {
            format!("The worker did not complete its task: {}.", detail.trim_end_matches('.'))
        }
        WorkerEnd::Stopped => return Err(ToolFailure::Cancelled),
    };
    Err(ToolFailure::Failed(format!("{facts}\n{line}")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use belay_protocol::StopReason;

    use super::*;

    #[test]
    fn each_end_has_its_word_and_only_a_completed_one_is_a_success() {
        let end = |end, reason| report(Ended { end, reason, turns: 2, duration: Duration::from_millis(7) });
        // The order of keys depends on the features of the JSON library.
        let facts = |text: &str| {
            let (facts, line) = text.split_once('\n').expect("facts, then a line");
            (serde_json::from_str::<serde_json::Value>(facts).expect("JSON"), line.to_owned())
        };
        let expected = |termination: &str, reason: &str| serde_json::json!({ "duration_ms": 7, "reason": reason, "termination": termination, "turns": 2 });
        let done = end(WorkerEnd::Completed { reply: "42".into() }, StopReason::FinalText).expect("a success");
        let mut with_result = expected("GOAL", "final_text");
        with_result["result"] = "42".into();
        assert_eq!(facts(&done.text), (with_result, "The worker completed its task.".to_owned()));
        for (given, reason, termination, line) in [
            (WorkerEnd::MaxTurns, StopReason::MaxIterations, "MAX_TURNS", "its step limit"),
            (WorkerEnd::TimedOut, StopReason::ActiveTime, "TIMEOUT", "its time limit"),
            (WorkerEnd::failed("it fell over."), StopReason::Internal, "ERROR", "not complete its task: it fell over."),
        ] {
            let Err(ToolFailure::Failed(text)) = end(given, reason) else { panic!("{termination} is a failure") };
            let (read, said) = facts(&text);
            assert_eq!(read, expected(termination, reason.word()));
            assert!(said.contains(line), "{text}");
        }
        assert_eq!(end(WorkerEnd::Stopped, StopReason::ParentStopped), Err(ToolFailure::Cancelled));
    }
}
