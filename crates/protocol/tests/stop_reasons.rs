//! `docs/reference/stop-reasons.md` is written from the code: it lists every reason, and none that does not exist.

use std::fmt::Write as _;
use std::path::Path;

use belay_protocol::{StopLayer, StopReason};

const HEAD: &str = "\
# Stop reasons

<!-- Written by crates/protocol/tests/stop_reasons.rs from the code. `make golden` refreshes it. -->

Every run ends for exactly one of these reasons. The list is closed: the word is the value of `reason` in the API, in the
events and in the store. `status` is never better than the end was: a limit is not `completed`.

The person reads the line if the run itself left no answer. In the API the line is the `reply` of such a run.

| reason | layer | status | resume | line |
|---|---|---|---|---|
";

const TAIL: &str = "
`resume` says whether another message in the same conversation resumes the work: `yes`; `later`, once the limit is raised or the
trouble is over; `no`, because nothing is left, or because it would end the same way.

## Who has stopped it

A run is `operator_stop` where an operator stops the run of another principal, and `user_stop` where its own principal stops it,
or anybody else who is no operator. It does not matter how the stop is asked for: by a command in a conversation, over HTTP, or
over a WebSocket. A principal is an id within a channel. The run of a job or of a routine belongs to its creator. A freeze ends every
run that it covers with `operator_stop`.

## Layers and precedence

If two endings are true at the same moment, the one of the earlier layer wins; within a layer the more conservative status wins
(`failed` before `stopped` before `completed`), then the order of the table above.

| rank | layer | meaning |
|---|---|---|
";

const EVIDENCE: &str = "
## Evidence

`evidence` is an object with the figures that the reason is based on. It holds no message text beyond one `quote` of at most 120
characters, and the last `text` of the model if a run lacks declared outputs. The evidence of a stop rule always has `rule`, `count` and `threshold`; `fingerprints` are digests of the repeated
items, oldest first. `closing` is the result of the closing turn, the one model call without tools that a stopped run gets for its
best partial answer: `answered`, `cut` (its text repeated itself or was too long, and is kept up to there), `empty`, `failed`,
`timeout`, `stopped`, `no_reserve`, `no_time` (a limit of time is too short for it) or `off`. In a run with declared outputs, the closing turn has only the tools that deliver outputs;
`not_reached` says that some are missing after it.

A rule about progress explains itself: `explanation` is its evidence in a sentence of at most 400 bytes, with at most one line of a result, and
follows the line for the person (\"The last 6 runs of solve.py (steps 7 to 17), with 5 edits in between, printed the same 14 lines, beginning with …\").
`loop` has the same as a value, without text of a result: `kind` (`same_call`, `varied_arguments`, `cycle`, `guessing`, `edit_run`, `debugger`,
`dead_environment`, `errors`, `growing_arguments`, `polling`, `oscillating_writes`, `no_news`, `chanting`, `repeated_lines`, `repeated_answers`,
`empty_replies`, `unknown_tools`, `invalid_arguments`, `denied`, `compactions`, `judged`); where they apply `tool`, `target` (the script, command, file or address of
the newest call), `calls`, `first_step` and `last_step`, `edits`, `equal_lines` (lines of the results that stayed equal), and `differs`: what
differed nevertheless, `numbers`, `ids` or `arguments`.

If the provider of the model refused or failed a call, the evidence has the provider's own words too: `provider_fault` (`key`, `quota`,
`unknown_model`, `rate_limit`, `overloaded`, `server`, `context_too_long` or `request`), `provider_status`, `provider_code`,
`provider_message` (at most 500 characters, without secrets), and `key_from`: the variable or setting of the key. An operator reads
these words instead of the line; other people read the line, because the words may name accounts and addresses.

| reason | evidence |
|---|---|
";

/// What each reason comes with. A new reason does not compile without its row.
fn evidence(reason: StopReason) -> &'static str {
    match reason {
        StopReason::FinalText => {
            "`silent`: true, when the model chose to say nothing (`NO_REPLY`); `said_by_tool`: \
             true, when a message of `send_message` replaced the answer; `cut_off`: the reason why the text is incomplete; \
             `forced_text_by`: the rule that had removed the tools (`max_tool_iterations`, `duplicate_failures` or `truncated_calls`), and \
             `step`: in which step"
        }
        StopReason::MaxIterations => "`iterations`: steps begun; `max_tool_iterations`: the setting",
        StopReason::CostRefused => {
            "`budget`: the setting of the budget that did not suffice, `limits.usd_per_day` or `limits.usd_per_day_for.…`; \
             `spent_micro_usd`, `limit_micro_usd`, `needed_micro_usd` (by one request): today's, in millionths of a US dollar"
        }
        StopReason::RateLimited | StopReason::Overloaded | StopReason::ProviderError => {
            "`requests`: sent for the call that failed; `answers_begun`: how many of them were answered in part; \
             `retry_after_s`: when to try again, if that is known"
        }
        StopReason::ProviderAuth
        | StopReason::ProviderQuota
        | StopReason::UnknownModel
        | StopReason::ContextTooLong
        | StopReason::BadRequest
        | StopReason::Network => {
            "`requests`: sent for the call that failed; `answers_begun`: how many of them were answered in part"
        }
        StopReason::Internal => "`cause`: `store` or `panic`, among others",
        StopReason::RestartLimit => "`attempts`: how often it was begun or resumed",
        StopReason::Terminated | StopReason::GaveUp => "`step`: in which the model called `terminate`",
        StopReason::Goal => {
            "`outputs`: the names of the declared outputs; `interrupted`: the reason that had ended the run before its \
             closing turn delivered them; `closing`. Of a goal: `check`, `attempts`, and `said`: the end of what the \
             command printed, or the quote of the judge"
        }
        StopReason::GoalMissed => {
            "`check`; `missing`: what the check says; `attempts`: how many were made; `cause`: `attempts`, \
             `check_changed` or `check_refused`"
        }
        StopReason::MissingOutputs => {
            "`missing`: the names of the missing outputs; `nudges`: how many reminders the model got; `text`: the \
             latest text of the model that was not the answer, at most 16 KiB; `closing`"
        }
        StopReason::PlanCompleted | StopReason::PlanBlocked => {
            "`completed` and `blocked`: numbers of steps; `executions`: attempts over all steps"
        }
        StopReason::PlanLimit => {
            "`completed`, `blocked` and `open`: numbers of steps; `executions` and `max_executions`: attempts over all steps"
        }
        StopReason::RunCost | StopReason::SessionCost => {
            "`rule`, `count` and `threshold` in millionths of a US dollar; `reserve_micro_usd`: held back for the closing turn; `closing`"
        }
        StopReason::WallClock | StopReason::ActiveTime => {
            "`rule`, `count` and `threshold`, the end of the work, in seconds (`unit`: `s`), or in milliseconds (`ms`) if it is no whole number of seconds; `held_for_closing_ms`: the rest of the limit, for the closing turn; `closing`"
        }
        StopReason::ModelCalls | StopReason::ToolCalls | StopReason::Tokens | StopReason::OutputBytes => {
            "`rule`, `count`, `threshold`; `tool`, if the limit is of one tool; `closing`"
        }
        StopReason::ToolLoop => {
            "`rule`: the kind of loop; `count` and `threshold`: repetitions; `period`: calls in one; `fingerprints`, `quote`, `loop`, `explanation`, `strikes`, `closing`"
        }
        StopReason::Chanting => {
            "`rule`, `count`, `threshold`: occurrences; `spacing`: characters between them; `quote`, `loop`, `explanation`, `strikes`, `closing`"
        }
        StopReason::JudgedLoop => {
            "`rule`; `count` and `threshold`: confidence in percent; `turn`, `confirmed_by`, `analysis`: the finding of the judge, in at most 500 characters; `loop`, `explanation`, `strikes`, `closing`"
        }
        StopReason::RepeatedReplies => {
            "`rule`, `count`, `threshold`: equal replies; `quote`, `loop`, `explanation`, `strikes`, `closing`"
        }
        StopReason::ConsecutiveErrors
        | StopReason::EmptyReplies
        | StopReason::UnknownTools
        | StopReason::InvalidArguments
        | StopReason::ApprovalReasks
        | StopReason::CompactionLoop => {
            "`rule`, `count`, `threshold`: how often in a row; `loop`, `explanation`, `closing`"
        }
        StopReason::OperatorRule => {
            "`rule`: its name; `count` and `threshold` of its first condition that held; `closing`"
        }
        StopReason::ApprovalUnavailable => "`tool`: the tool that needs the approval",
        StopReason::HookRefused => "`hook`: the name of the hook that refused",
        StopReason::Joined => {
            "`run`: the run that its message became part of; `mode`: `steer`, `collect`, or `summarize` (as a line of a digest); of a message that waited for another node of a cluster: `duplicate` (its key had a run already), or `answer` (it answered a question; without `run`)"
        }
        StopReason::Superseded => "`newer_run`: the run of the newer message",
        StopReason::OperatorStop => "`freeze`: the id of the [freeze](http-api.md#freezes) that stopped it, if one did",
        StopReason::Stuck => "`silent_s`: seconds since its last sign of progress",
        StopReason::EmptyReply
        | StopReason::LengthLimit
        | StopReason::ContentFilter
        | StopReason::UserStop
        | StopReason::ClientGone
        | StopReason::ParentStopped
        | StopReason::Shutdown => "–",
    }
}

fn layer(layer: StopLayer) -> &'static str {
    match layer {
        StopLayer::Operator => "a person, a client or the operator",
        StopLayer::Natural => "the work ended by itself, with or without success",
        StopLayer::Budget => "a limit: steps, time, calls, tokens, money, output",
        StopLayer::Progress => "it continued without progress: loops, chanting, repetition, errors",
        StopLayer::Gate => "an approval that nobody gave, or a refusal of a hook",
        StopLayer::Host => "the provider of the model, or our own machine",
    }
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for reason in StopReason::ALL {
        let line = if reason.user_line().is_empty() { "–" } else { reason.user_line() };
        let (word, layer, status) = (reason.word(), reason.layer().word(), reason.status().word());
        let _ = writeln!(page, "| `{word}` | {layer} | `{status}` | {} | {line} |", reason.resume().word());
    }
    page.push_str(TAIL);
    for (place, known) in StopLayer::ALL.iter().enumerate() {
        let _ = writeln!(page, "| {} | `{}` | {} |", place + 1, known.word(), layer(*known));
    }
    page.push_str(EVIDENCE);
    for reason in StopReason::ALL {
        let _ = writeln!(page, "| `{}` | {} |", reason.word(), evidence(*reason));
    }
    page
}

#[test]
fn the_reference_lists_every_stop_reason_as_the_code_has_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/stop-reasons.md");
    if std::env::var("BELAY_UPDATE_GOLDEN").is_ok_and(|value| value == "1") {
        std::fs::write(&path, page()).expect("the reference can be written");
        return;
    }
    let written = std::fs::read_to_string(&path).expect("the reference is there");
    assert!(
        written == page(),
        "docs/reference/stop-reasons.md is not what the code says; `BELAY_UPDATE_GOLDEN=1 cargo test -p belay-protocol` \
         writes it anew, then read the difference:\n{}",
        page()
    );
}
