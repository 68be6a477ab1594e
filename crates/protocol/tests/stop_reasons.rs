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

| reason | layer | status | line |
|---|---|---|---|
";

const TAIL: &str = "
Layers: `operator` is a person, a client or the operator; `natural` is the end of the work; `budget` is a limit; `host` is the
provider of the model, or our own machine.

## Evidence

`evidence` is an object with what was seen when the run ended. It never holds message text.

| reason | evidence |
|---|---|
";

/// What each reason comes with. A new reason does not compile without its row.
fn evidence(reason: StopReason) -> &'static str {
    match reason {
        StopReason::FinalText => {
            "`silent`: true, when the model chose to say nothing (`NO_REPLY`); `cut_off`: the reason why the text is not whole"
        }
        StopReason::MaxIterations => "`iterations`: steps begun; `max_tool_iterations`: the setting",
        StopReason::CostRefused => {
            "`spent_micro_usd`, `limit_micro_usd`, `needed_micro_usd` (by one request): today's, in millionths of a US dollar"
        }
        StopReason::RateLimited
        | StopReason::Overloaded
        | StopReason::ProviderAuth
        | StopReason::ContextTooLong
        | StopReason::BadRequest
        | StopReason::Network => {
            "`requests`: sent for the call that failed; `answers_begun`: how many of them were answered in part"
        }
        StopReason::Internal => "`cause`: `store` or `panic`, among others",
        StopReason::RestartLimit => "`attempts`: how often it was taken up",
        StopReason::EmptyReply
        | StopReason::LengthLimit
        | StopReason::ContentFilter
        | StopReason::UserStop
        | StopReason::OperatorStop
        | StopReason::ClientGone
        | StopReason::Shutdown => "–",
    }
}

fn layer(layer: StopLayer) -> &'static str {
    match layer {
        StopLayer::Operator => "operator",
        StopLayer::Natural => "natural",
        StopLayer::Budget => "budget",
        StopLayer::Host => "host",
    }
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for reason in StopReason::ALL {
        let line = if reason.user_line().is_empty() { "–" } else { reason.user_line() };
        let (word, layer, status) = (reason.word(), layer(reason.layer()), reason.status().word());
        let _ = writeln!(page, "| `{word}` | {layer} | `{status}` | {line} |");
    }
    page.push_str(TAIL);
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
