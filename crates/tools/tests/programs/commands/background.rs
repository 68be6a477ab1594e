//! Commands that go on in the background, and the tool `process`.

use std::time::Duration;

use belay_protocol::{Approved, Effect, Moment, RunId, RunProcesses as _, SessionKey, ToolContext, ToolFailure};
use belay_tools::processes::Limits;
use serde_json::{Value, json};

use super::support::{BOTH, Fixture, fixture, fixture_with_limits};
use belay_tools::sandbox::Policy;

/// Longest wait for an expected event. It only determines how long a failing test takes.
const PATIENCE: Duration = Duration::from_secs(300);

/// Prints a line for each line that it reads, and never ends by itself.
const ECHO: &str = "echo ready; while read line; do echo got $line; done; sleep 1000";

impl Fixture {
    /// Starts a script in the background and returns its handle.
    pub(super) async fn start(&self, script: &str, context: &ToolContext) -> String {
        let arguments = json!({"argv": ["sh", "-c", script], "background": true});
        let reply = self.call("run_command", arguments, context).await.unwrap();
        reply.text.trim_start_matches('[').split(' ').next().unwrap().to_owned()
    }

    /// The text of a successful call of `process`.
    pub(super) async fn process(&self, arguments: Value, context: &ToolContext) -> String {
        let what = arguments.to_string();
        self.call("process", arguments, context).await.unwrap_or_else(|failure| panic!("{what}: {failure:?}")).text
    }

    /// The text of a call of `process` that fails.
    pub(super) async fn refused(&self, arguments: Value, context: &ToolContext) -> String {
        match self.call("process", arguments, context).await {
            Err(ToolFailure::Failed(text) | ToolFailure::Ended(text) | ToolFailure::Denied(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn offers_process(&self, session: &str, run: RunId) -> bool {
        let session = &SessionKey::new(session);
        let offered = self.tools.offered(Moment { session, run, messages: &[] });
        offered.as_deref().unwrap_or(&self.tools).get("process").is_some()
    }
}

#[tokio::test]
async fn a_process_is_read_waited_for_written_to_and_killed() {
    for policy in BOTH {
        let fixture = fixture(policy);
        let context = fixture.context();
        assert!(!fixture.offers_process("s", context.run_id));
        let id = fixture.start(ECHO, &context).await;
        assert_eq!(id, "p1");
        assert!(fixture.offers_process("s", context.run_id));
        assert!(!fixture.offers_process("s", RunId::new()) && !fixture.offers_process("other", context.run_id));
        let found = fixture.process(json!({"action": "wait", "id": id, "pattern": "^rea"}), &context).await;
        assert_eq!(found, "[p1 runs; found in the line at byte 0, the next offset is 6]\nready");
        let read = fixture.process(json!({"action": "read", "id": id}), &context).await;
        assert_eq!(read, "[p1 runs; from byte 0 on, the next offset is 6]\nready\n");
        let read = fixture.process(json!({"action": "read", "id": id}), &context).await;
        assert_eq!(read, "[p1 runs; nothing new, the next offset is 6]");
        let written = fixture.process(json!({"action": "write", "id": id, "text": "one\ntwo\n"}), &context).await;
        assert_eq!(written, "[8 bytes were written to p1]");
        fixture.process(json!({"action": "wait", "id": id, "pattern": "two"}), &context).await;
        let read = fixture.process(json!({"action": "read", "id": id}), &context).await;
        assert_eq!(read, "[p1 runs; from byte 6 on, the next offset is 22]\ngot one\ngot two\n");
        let list = fixture.process(json!({"action": "list"}), &context).await;
        assert!(
            list.starts_with("p1 runs: sh -c '") && list.ends_with("(ends with this run; printed 22 bytes)"),
            "{list}"
        );
        let killed = fixture.process(json!({"action": "kill", "id": id}), &context).await;
        assert_eq!(killed, "[p1 was killed on request; the action read shows what it printed]");
        assert_eq!((fixture.alive(context.run_id), fixture.background.running()), (0, 0));
        let again = fixture.process(json!({"action": "kill", "id": id}), &context).await;
        assert_eq!(again, "[p1 was killed on request]");
        let late = fixture.refused(json!({"action": "write", "id": id, "text": "x"}), &context).await;
        assert_eq!(late, "p1 was killed on request; nothing was written.");
        let read = fixture.process(json!({"action": "read", "id": id, "offset": 14}), &context).await;
        assert_eq!(read, "[p1 was killed on request; from byte 14 on, the next offset is 22]\ngot two\n");
    }
}

#[tokio::test]
async fn a_process_ends_with_its_run_and_with_everything_that_it_has_started() {
    for policy in BOTH {
        let fixture = fixture(policy);
        let context = fixture.context();
        let id = fixture.start("setsid sleep 1000 & echo ready; wait", &context).await;
        fixture.process(json!({"action": "wait", "id": id, "pattern": "ready"}), &context).await;
        let waiting = fixture.call("process", json!({"action": "wait", "id": id, "timeout_s": 300}), &context);
        let (waited, ()) = tokio::join!(waiting, fixture.processes.end(context.run_id));
        let text = "[p1 was ended with its run. The action read shows what it printed.]";
        assert_eq!(waited.unwrap_err(), ToolFailure::Ended(text.to_owned()));
        assert_eq!(fixture.alive(context.run_id), 0);
    }
}

#[tokio::test]
async fn a_wait_ends_with_the_process_with_its_time_and_with_a_stop() {
    let fixture = fixture(Policy::Off);
    let context = fixture.context();
    let id = fixture.start("read line; echo last; exit 3", &context).await;
    let short =
        fixture.process(json!({"action": "wait", "id": id, "pattern": "never", "timeout_s": 1}), &context).await;
    assert_eq!(short, "[p1 still runs after 1 s; no line from byte 0 on matches \"never\"]");
    let stopped = ToolContext { cancel: context.cancel.child_token(), ..context.clone() };
    stopped.cancel.cancel();
    let wait = json!({"action": "wait", "id": id, "pattern": "never", "timeout_s": 300});
    assert_eq!(fixture.call("process", wait.clone(), &stopped).await, Err(ToolFailure::Cancelled));
    fixture.process(json!({"action": "write", "id": id, "text": "go\n", "end": true}), &context).await;
    let over = tokio::time::timeout(PATIENCE, fixture.refused(wait, &context)).await.unwrap();
    assert_eq!(over, "[p1 ended with exit code 3; no line matches \"never\". The action read shows what it printed.]");
    let over = fixture.refused(json!({"action": "wait", "id": id}), &context).await;
    assert_eq!(over, "[p1 ended with exit code 3. The action read shows what it printed.]");
    let found = fixture.process(json!({"action": "wait", "id": id, "pattern": "la"}), &context).await;
    assert_eq!(found, "[p1 ended with exit code 3; found in the line at byte 0, the next offset is 5]\nlast");
}

#[tokio::test]
async fn wrong_calls_say_what_is_wrong_and_change_nothing() {
    let fixture = fixture(Policy::Off);
    let context = fixture.context();
    let id = fixture.start(ECHO, &context).await;
    fixture.process(json!({"action": "wait", "id": id, "pattern": "ready"}), &context).await;
    let elsewhere = ToolContext { session: "other".into(), ..context.clone() };
    let later = ToolContext { run_id: RunId::new(), ..context.clone() };
    for (arguments, context, begin) in [
        (json!({"action": "read"}), &context, "This action needs id"),
        (json!({"action": "read", "id": "p9"}), &context, "There is no background process \"p9\" here."),
        (json!({"action": "kill", "id": id}), &elsewhere, "There is no background process \"p1\" here."),
        (json!({"action": "write", "id": id, "text": "x"}), &later, "There is no background process \"p1\" here."),
        (json!({"action": "read", "id": id, "offset": 7}), &context, "p1 has printed 6 bytes; there is none at 7."),
        (json!({"action": "wait", "id": id, "offset": 7}), &context, "p1 has printed 6 bytes; there is none at 7."),
        (json!({"action": "wait", "id": id, "pattern": "("}), &context, "\"(\" is not a regular expression"),
        (json!({"action": "wait", "id": id, "timeout_s": 301}), &context, "timeout_s must be from 1 to 300."),
        (json!({"action": "write", "id": id}), &context, "The action write needs text, or end."),
    ] {
        let text = fixture.refused(arguments.clone(), context).await;
        assert!(text.starts_with(begin), "{arguments}: {text}");
    }
    assert_eq!(fixture.background.running(), 1);
    let closed = json!({"action": "write", "id": id, "end": true});
    assert_eq!(
        fixture.process(closed.clone(), &context).await,
        "[0 bytes were written to p1; its standard input has ended]"
    );
    let text = fixture.refused(closed, &context).await;
    assert_eq!(text, "The standard input of p1 was closed; nothing was written.");
}

#[tokio::test]
async fn endless_output_is_bounded_and_then_ended() {
    let fixture = fixture_with_limits(Limits { kept_bytes: 100_000, printed_bytes: 1_000_000, ..Limits::of(1) });
    let context = fixture.context();
    let id = fixture.start("yes 'a line'", &context).await;
    let over =
        fixture.refused(json!({"action": "wait", "id": id, "pattern": "another", "timeout_s": 300}), &context).await;
    assert!(over.starts_with("[p1 was ended because it had printed too much; no line matches"), "{over}");
    let read = fixture.process(json!({"action": "read", "id": id}), &context).await;
    assert!(read.contains("; the bytes 0 to ") && read.contains(" are gone; from byte "), "{:.200}", read);
}

#[tokio::test]
async fn only_so_many_run_at_the_same_time_and_each_only_so_long() {
    let fixture = fixture_with_limits(Limits::of(1));
    let context = fixture.context();
    let one = json!({"argv": ["sleep", "1000"], "background": true, "timeout_s": 1});
    fixture.call("run_command", one.clone(), &context).await.unwrap();
    let two = fixture.call("run_command", one.clone(), &context).await;
    assert!(matches!(two, Err(ToolFailure::Failed(text)) if text.starts_with("Not started: 1 background processes")));
    let over = fixture.refused(json!({"action": "wait", "id": "p1", "timeout_s": 300}), &context).await;
    assert_eq!(over, "[p1 was ended at its time limit. The action read shows what it printed.]");
    fixture.call("run_command", one, &context).await.unwrap();
}

#[tokio::test]
async fn a_question_says_that_a_command_stays_and_an_answer_for_the_other_kind_does_not_count() {
    let fixture = fixture(Policy::Off);
    let of = |more: Value| {
        let mut arguments = json!({"argv": ["sleep", "1000"]});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    let plain = fixture.preview(of(json!({}))).await.unwrap();
    let stays = fixture.preview(of(json!({"background": true}))).await.unwrap();
    assert_eq!(stays.summary, format!("{}, in the background, 30 min at most", plain.summary));
    assert!(!stays.must_ask && stays.covers != plain.covers);
    let keeps = of(json!({"background": true, "keep": true, "timeout_s": 90}));
    let kept = fixture.preview(keeps.clone()).await.unwrap();
    assert_eq!(kept.summary, format!("{}, in the background, also after this turn, 90 s at most", plain.summary));
    assert!(kept.must_ask && kept.covers.is_none());
    assert!(matches!(fixture.preview(of(json!({"keep": true}))).await, Err(ToolFailure::Failed(_))));
    let context = fixture.context();
    for bound in [None, Some(stays.bound)] {
        let context = ToolContext { approved: bound.map(Approved), ..context.clone() };
        assert!(matches!(fixture.call("run_command", keeps.clone(), &context).await, Err(ToolFailure::Denied(_))));
    }
    let context = ToolContext { approved: Some(Approved(kept.bound)), ..context };
    fixture.call("run_command", keeps, &context).await.unwrap();
    fixture.processes.end(context.run_id).await;
    // It is of use to a later run of the conversation, and to no other one.
    assert!(fixture.offers_process("s", RunId::new()) && !fixture.offers_process("other", RunId::new()));
    assert_eq!(fixture.background.running(), 1);
    fixture.background.close().await;
    assert_eq!(fixture.background.running(), 0);
}

#[tokio::test]
async fn what_is_written_needs_an_approval_and_looking_needs_none() {
    let fixture = fixture(Policy::Off);
    let context = fixture.context();
    let id = fixture.start(ECHO, &context).await;
    let preview = async |arguments: Value| {
        let tool = fixture.tools.get("process").unwrap();
        tool.preview(arguments.as_object().unwrap(), &"s".into()).await.unwrap()
    };
    let read = preview(json!({"action": "read", "id": id})).await;
    assert_eq!((read.effect, read.ask), (Some(Effect::Read), None));
    let write = preview(json!({"action": "write", "id": id, "text": "rm -r /\n"})).await;
    assert_eq!((write.effect, write.ask), (None, Some(belay_protocol::Ask::UnlessApproved)));
    assert_eq!(write.bound[1], ("input".to_owned(), "rm -r /\n".to_owned()));
}
