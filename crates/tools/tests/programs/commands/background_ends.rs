//! The end of background commands: what is listed until then, and what is forgotten after it.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use belay_protocol::{Approved, Generation, ProcessesOf, RunId, RunProcesses as _, ToolContext, ToolFailure};
use belay_tools::sandbox::Policy;
use serde_json::{Value, json};

use super::support::{Fixture, fixture};

/// Ends at KILL only.
const STUBBORN: &str = "trap '' TERM; echo ready; while true; do sleep 1000; done";

impl Fixture {
    /// A call that a person has approved, of a script that the conversation keeps.
    async fn keeping(&self, script: &str, context: &ToolContext) -> (Value, ToolContext) {
        let arguments = json!({"argv": ["sh", "-c", script], "background": true, "keep": true});
        let bound = self.preview(arguments.clone()).await.unwrap().bound;
        (arguments, ToolContext { approved: Some(Approved(bound)), ..context.clone() })
    }

    async fn keep(&self, script: &str, context: &ToolContext) {
        let (arguments, context) = self.keeping(script, context).await;
        self.call("run_command", arguments, &context).await.unwrap();
    }
}

#[tokio::test]
async fn a_process_that_does_not_end_at_once_is_listed_until_it_has_ended() {
    let fixture = fixture(Policy::Off);
    let (context, ends) = (fixture.context(), fixture.ends());
    fixture.start(STUBBORN, &context).await;
    fixture.keep(STUBBORN, &context).await;
    for id in ["p1", "p2"] {
        fixture.process(json!({"action": "wait", "id": id, "pattern": "ready", "timeout_s": 300}), &context).await;
    }
    let of = ProcessesOf::Session("s".into());
    assert_eq!((ends.background_ending(&of).len(), ends.stop_background(&of), ends.stop_background(&of)), (0, 2, 0));
    let ending = ends.background_ending(&of);
    assert_eq!((ending.len(), ending.iter().all(|still| still.pid.is_some())), (2, true), "{ending:?}");
    ends.background_ended(&of).await;
    assert_eq!((ends.background_ending(&of), fixture.alive(context.run_id)), (Vec::new(), 0));
}

#[tokio::test]
async fn a_process_whose_run_is_stopped_before_it_has_begun_is_not_started() {
    let fixture = fixture(Policy::Off);
    let generation = Generation::default().renewed();
    let context = ToolContext { generation: generation.clone(), ..fixture.context() };
    let (arguments, context) = fixture.keeping(STUBBORN, &context).await;
    generation.end();
    let before = fixture.processes.counts().started;
    assert_eq!(fixture.call("run_command", arguments, &context).await, Err(ToolFailure::Cancelled));
    let (ends, of) = (fixture.ends(), ProcessesOf::Session("s".into()));
    ends.background_ended(&of).await;
    assert_eq!((ends.background_ending(&of).len(), fixture.background.running()), (0, 0));
    assert_eq!(fixture.processes.counts().started, before);
}

#[tokio::test]
async fn a_process_whose_call_is_aborted_while_it_starts_is_never_alive_without_being_listed() {
    let fixture = fixture(Policy::Off);
    let of = ProcessesOf::Session("s".into());
    let (mut seen, ends) = (0, fixture.ends());
    // The abort meets the start at another moment each time.
    for round in 0..30 {
        let (arguments, context) = fixture.keeping("sleep 1000", &fixture.context()).await;
        let begun = fixture.processes.counts();
        {
            let mut call = std::pin::pin!(fixture.call("run_command", arguments, &context));
            while fixture.background.running() == 0 {
                let is_pending = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await;
                assert!(is_pending);
                tokio::task::yield_now().await;
            }
            // The program is requested with one of the next polls.
            let mut polls = 0;
            while polls < round && poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await {
                tokio::task::yield_now().await;
                polls += 1;
            }
        }
        // Until the program has been started and has ended, or certainly is not started any more.
        for _ in 0..200_000 {
            let (listed, counts) = (fixture.background.running(), fixture.processes.counts());
            assert!(listed > 0 || counts.alive == 0, "a process without an entry: {counts:?}");
            if counts.started > begun.started {
                seen += 1;
                break;
            }
            if listed == 0 {
                break;
            }
            tokio::task::yield_now().await;
        }
        for _ in 0..2000 {
            let (listed, counts) = (fixture.background.running(), fixture.processes.counts());
            assert!(listed > 0 || counts.alive == 0, "a process without an entry: {counts:?}");
        }
        ends.stop_background(&of);
        ends.background_ended(&of).await;
    }
    assert!(seen > 0, "no abort met a start");
    let counts = fixture.processes.counts();
    assert_eq!((fixture.background.running(), counts.alive), (0, 0), "{counts:?}");
}

#[tokio::test]
async fn a_new_conversation_finds_nothing_of_what_the_old_one_has_kept() {
    let fixture = fixture(Policy::Off);
    let (context, ends) = (fixture.context(), fixture.ends());
    fixture.keep("echo secret", &context).await;
    fixture.keep(STUBBORN, &context).await;
    let over = fixture.process(json!({"action": "wait", "id": "p1", "timeout_s": 300}), &context).await;
    assert_eq!(over, "[p1 ended with exit code 0]");
    let of = ProcessesOf::Session("s".into());
    ends.stop_background(&of);
    ends.forget_background(&"s".into());
    let later = fixture.context();
    assert!(!fixture.offers_process("s", later.run_id));
    assert_eq!(fixture.process(json!({"action": "list"}), &later).await, "There is no background process here.");
    for id in ["p1", "p2"] {
        let read = fixture.refused(json!({"action": "read", "id": id}), &later).await;
        assert!(read.starts_with("There is no background process"), "{read}");
    }
    // People see it as long as it is alive, and a stop waits for it.
    assert_eq!(ends.in_background().len(), 1);
    ends.background_ended(&of).await;
    assert_eq!(ends.in_background(), []);
}

#[tokio::test]
async fn an_hour_after_its_end_a_kept_process_is_no_reason_to_offer_the_tool() {
    let fixture = fixture(Policy::Off);
    let context = fixture.context();
    fixture.keep("echo done", &context).await;
    fixture.process(json!({"action": "wait", "id": "p1", "timeout_s": 300}), &context).await;
    assert!(fixture.offers_process("s", RunId::new()));
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(3601)).await;
    assert!(!fixture.offers_process("s", RunId::new()));
}
