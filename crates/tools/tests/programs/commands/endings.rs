//! However a command ends, nothing of it is left, and what it printed is told.

use std::time::{Duration, Instant};

use belay_protocol::ToolFailure;
use serde_json::json;

use super::support::{BOTH, Fixture, fixture};

/// Longest wait for an expected event. It only determines how long a failing test takes.
const PATIENCE: Duration = Duration::from_secs(300);

/// Takes ten seconds, so that also a busy machine has begun the command by then.
#[tokio::test]
async fn a_command_that_takes_too_long_is_ended_and_what_it_printed_is_told() {
    let ended = BOTH.map(|policy| async move {
        let argv = ["sh", "-c", "echo begun; (trap '' TERM; sleep 1000) & exec sleep 1000"];
        (policy, fixture(policy).run(json!({"argv": argv, "timeout_s": 10})).await)
    });
    for (policy, answer) in futures_util::future::join_all(ended).await {
        match answer {
            Err(ToolFailure::Failed(text) | ToolFailure::Ended(text)) => {
                assert!(text.starts_with("[ended after 10 s") && text.ends_with("\nbegun\n"), "{policy:?}: {text}");
            }
            other => panic!("{policy:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn what_a_command_leaves_running_is_ended_with_it() {
    for policy in BOTH {
        let fixture = fixture(policy);
        let begun = Instant::now();
        let text = fixture.argv(&["sh", "-c", "sleep 1000 & setsid sleep 1000 & echo started"]).await;
        assert_eq!(text, "[exit code 0]\nstarted\n");
        assert!(begun.elapsed() < Duration::from_secs(300), "it was waited for what it left");
    }
}

/// Waits until the command has made its file: then it runs.
async fn has_begun(fixture: &Fixture) {
    let limit = Instant::now() + PATIENCE;
    while !fixture.inside("begun").exists() {
        assert!(Instant::now() < limit, "the command did not begin");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_stop_ends_it() {
    for policy in BOTH {
        let fixture = fixture(policy);
        let context = fixture.context();
        let stop = async {
            has_begun(&fixture).await;
            context.cancel.cancel();
        };
        let argv = json!({"argv": ["sh", "-c", "touch begun; sleep 1000"]});
        let (answer, ()) = tokio::join!(fixture.call("run_command", argv, &context), stop);
        assert_eq!(answer, Err(ToolFailure::Cancelled));
        assert_eq!(fixture.alive(context.run_id), 0);
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_is_ended_in_the_background() {
    let fixture = fixture(BOTH[0]);
    let context = fixture.context();
    let argv = json!({"argv": ["sh", "-c", "touch begun; sleep 1000"]});
    tokio::select! {
        answer = fixture.call("run_command", argv, &context) => panic!("{answer:?}"),
        () = has_begun(&fixture) => {}
    }
    let limit = Instant::now() + PATIENCE;
    while fixture.alive(context.run_id) > 0 {
        assert!(Instant::now() < limit, "it goes on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_run_that_was_stopped_starts_nothing() {
    let fixture = fixture(BOTH[0]);
    let context = fixture.context();
    context.generation.end();
    let answer = fixture.call("run_command", json!({"argv": ["touch", "late"]}), &context).await;
    assert_eq!(answer, Err(ToolFailure::Cancelled));
    assert!(!fixture.inside("late").exists());
}
