//! `docs/reference/stop-reasons.md` is written from the code: it lists every reason, and none that does not exist.

use std::fmt::Write as _;
use std::path::Path;

use belay_protocol::{StopLayer, StopReason};

const HEAD: &str = "\
# Stop reasons

<!-- Written by crates/protocol/tests/stop_reasons.rs from the code. `make golden` refreshes it. -->

Every run ends for exactly one of these reasons. The list is closed: the word is the value of `reason` in the API, in the
events and in the store. `status` is the honest one: a limit is never `completed`.

The line is what the person is told where the run itself left no answer. In the API it is the `reply` of such a run.

| reason | layer | status | resume | line |
|---|---|---|---|---|
";

const TAIL: &str = "
`resume` says whether another message in the same conversation takes the work up where it ended: `yes`; `later`, once the
limit is raised or the trouble is over; `no`, since there is nothing left, or since it would end the same way.

## Who has stopped it

A run is `operator_stop` where an operator stops the run of another principal, and `user_stop` where its own principal stops it,
or anybody else who is no operator. It does not matter how the stop is asked for: by a command in a conversation, over HTTP, or
over a WebSocket. A principal is an id within a channel. The run of a job or of a routine belongs to whoever made it.

## Layers and precedence

Of two endings that are true at the same moment, the one of the earlier layer is told; within a layer the more conservative
status (`failed` before `stopped` before `completed`), then the order of the table above.

| place | layer | what it is |
|---|---|---|
";

const EVIDENCE: &str = "
## Evidence

`evidence` is an object with what was seen when the run ended. It holds no message text beyond one `quote` of at most 120
characters. The evidence of a stop rule always has `rule`, `count` and `threshold`; `fingerprints` are digests of what was
repeated, oldest first. `closing` says what became of the closing turn, the one model call without tools that a stopped run
gets for its best partial answer: `answered`, `cut` (its text repeated itself or was too long, and is kept up to there), `empty`, `failed`, `timeout`, `stopped`, `no_reserve` or `off`. A run with declared
outputs is offered nothing but the tools that hand them over; `not_reached` says that some are missing after it.

Where the provider of the model refused or failed a call, the evidence has its own words too: `provider_fault` (`key`, `quota`,
`unknown_model`, `rate_limit`, `overloaded`, `server`, `context_too_long` or `request`), `provider_status`, `provider_code`,
`provider_message` (at most 500 characters, without secrets), and `key_from`: the variable or setting of the key. An operator is
told these words in the place of the line; other people are told the line, since the words may name accounts and addresses.

| reason | evidence |
|---|---|
";

/// What each reason comes with. A new reason does not compile without its row.
fn evidence(reason: StopReason) -> &'static str {
    match reason {
        StopReason::FinalText => {
            "`silent`: true, when the model chose to say nothing (`NO_REPLY`); `said_by_tool`: \
             true, when what `send_message` has sent took the place of the answer; `cut_off`: the reason why the text is not whole; \
             `forced_text_by`: what had taken the tools away (`max_tool_iterations`, `duplicate_failures` or `truncated_calls`), and \
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
        StopReason::RestartLimit => "`attempts`: how often it was taken up",
        StopReason::Terminated | StopReason::GaveUp => "`step`: in which the model called `terminate`",
        StopReason::Goal => {
            "`outputs`: the names of the declared outputs; `interrupted`: the reason that had ended the run before its \
             closing turn handed them over; `closing`"
        }
        StopReason::MissingOutputs => {
            "`missing`: the names of the outputs that are not there; `nudges`: how often it was told; `closing`"
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
            "`rule`, `count` and `threshold` in seconds (`unit`: `s`), or in milliseconds (`ms`) where the limit is no whole number of seconds; `closing`"
        }
        StopReason::ModelCalls | StopReason::ToolCalls | StopReason::Tokens | StopReason::OutputBytes => {
            "`rule`, `count`, `threshold`; `tool`, where the limit is of one tool; `closing`"
        }
        StopReason::ToolLoop => {
            "`rule`: the kind of loop; `count` and `threshold`: repetitions; `period`: calls in one; `fingerprints`, `quote`, `strikes`, `closing`"
        }
        StopReason::Chanting => {
            "`rule`, `count`, `threshold`: occurrences; `spacing`: characters between them; `quote`, `strikes`, `closing`"
        }
        StopReason::JudgedLoop => {
            "`rule`; `count` and `threshold`: confidence in percent; `turn`, `confirmed_by`, `analysis`: what the judge saw, in at most 500 characters; `strikes`, `closing`"
        }
        StopReason::RepeatedReplies => "`rule`, `count`, `threshold`: equal replies; `quote`, `strikes`, `closing`",
        StopReason::ConsecutiveErrors
        | StopReason::EmptyReplies
        | StopReason::UnknownTools
        | StopReason::InvalidArguments
        | StopReason::ApprovalReasks
        | StopReason::CompactionLoop => "`rule`, `count`, `threshold`: how often in a row; `closing`",
        StopReason::OperatorRule => {
            "`rule`: its name; `count` and `threshold` of its first condition that held; `closing`"
        }
        StopReason::ApprovalUnavailable => "`tool`: what needs the approval",
        StopReason::HookRefused => "`hook`: the name of the hook that refused",
        StopReason::Joined => {
            "`run`: the one that its message became part of; `how`: `steer`, `collect`, or `summarize` (as a line of a digest)"
        }
        StopReason::Superseded => "`by`: the run of the newer message",
        StopReason::Stuck => "`silent_s`: seconds since anything was heard of it",
        StopReason::EmptyReply
        | StopReason::LengthLimit
        | StopReason::ContentFilter
        | StopReason::UserStop
        | StopReason::OperatorStop
        | StopReason::ClientGone
        | StopReason::ParentStopped
        | StopReason::Shutdown => "–",
    }
}

fn layer(layer: StopLayer) -> &'static str {
    match layer {
        StopLayer::Operator => "a person, a client or the operator",
        StopLayer::Natural => "the work came to its own end, well or not",
        StopLayer::Budget => "a limit: steps, time, calls, tokens, money, output",
        StopLayer::Progress => "it went on without getting on: loops, chanting, repetition, errors",
        StopLayer::Gate => "a question that nobody answered with yes",
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
