//! A job at work: what ends it, what it may use, what is said to it.

use std::time::Duration;

use belay_protocol::{Ack, Control, JobBudget, JobOrder, JobRequest, JobState, ModelErrorKind, StopReason};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;
use tokio::time::Instant;

use super::{create, done, failed, id_in, order, request, runs, setup_of, silence, until};
use crate::support::{TestTool, saw};

#[tokio::test(start_paused = true)]
async fn a_text_is_no_end_unless_it_says_that_the_work_is_done() {
    let model = ScriptedModel::new([
        Scripted::text("The hall has two doors."),
        Scripted::text("The kitchen has one."),
        Scripted::text("The job is complete. Three doors."),
    ]);
    let setup = setup_of(model);
    let mut agent = setup.start().await;
    create(&agent.one, order("count the doors")).await;
    assert!(agent.one.next().await.ends_with("is done.\n\nThe job is complete. Three doors."));
    let last = saw(&agent.model, 3);
    assert_eq!([&last[1], &last[3]], ["The hall has two doors.", "The kitchen has one."]);
    assert!(last[2].contains("call `terminate` now"), "{last:#?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_no_success_unless_something_was_said_before() {
    let empty = || Scripted::text("");
    let answered = [Scripted::text("Three doors."), empty()];
    let nothing = (0..50).map(|_| empty());
    for (script, expected) in [
        (answered.to_vec(), "is done.\n\nThree doors."),
        (nothing.collect(), "has failed: the model gave an empty answer"),
    ] {
        let setup = setup_of(ScriptedModel::new(script));
        let mut agent = setup.start().await;
        create(&agent.one, order("count")).await;
        let told = agent.one.next().await;
        assert!(told.ends_with(expected), "{told}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_gives_up_or_uses_up_its_steps_has_failed_with_what_it_had() {
    let call = |n: u32| Scripted::call("echo", json!({"text": n.to_string()})).with_text(&format!("room {n}"));
    for (script, steps, expected, reason) in [
        (
            vec![failed("no key")],
            50,
            "has failed: the agent reports that it cannot be done\n\nSo far:\n\nno key",
            StopReason::GaveUp,
        ),
        (
            vec![call(1), call(2), call(3)],
            3,
            "has failed: it reached its step limit before it was done\n\nSo far:\n\nroom 3",
            StopReason::MaxIterations,
        ),
    ] {
        let setup = setup_of(ScriptedModel::new(script));
        let mut agent = setup.start().await;
        let budget = JobBudget { max_steps: steps, ..JobBudget::default() };
        let id = create(&agent.one, JobOrder { budget, ..order("count") }).await.job_id;
        let told = agent.one.next().await;
        assert!(told.ends_with(expected), "{told}");
        let job = until(&setup, id, JobState::Failed).await;
        assert_eq!((job.attempt, runs(&setup, id).await[0].reason), (1, Some(reason)));
        silence(&mut agent).await;
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_waits_for_a_model_that_limits_it_and_fails_when_that_does_not_end() {
    let limited = || Scripted::error(ModelErrorKind::RateLimited { retry_after: Some(Duration::from_secs(30)) });
    for (times, expected) in [
        (9, "is done.\n\nat last"),
        (10, "has failed: the model provider kept rejecting requests because of its rate limit"),
    ] {
        let script = (0..times).map(|_| limited()).chain([done("at last")]);
        let setup = setup_of(ScriptedModel::new(script));
        let mut agent = setup.start().await;
        let began = Instant::now();
        create(&agent.one, order("count")).await;
        let told = tokio::time::timeout(Duration::from_secs(3000), agent.one.delivered.recv()).await;
        let told = told.expect("told").expect("open").text;
        assert!(told.ends_with(expected), "{times}: {told}");
        assert!(began.elapsed() >= Duration::from_secs(9 * 30), "what the provider asks for is waited");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_are_counted_over_all_attempts() {
    let call = |n: u32| Scripted::call("echo", json!({"text": n.to_string()})).with_usage(40, 10);
    // Two steps of fifty tokens, then silence: the second attempt has fifty left.
    let script = vec![call(1), call(2), Scripted::hang(), call(3), call(4), Scripted::text("what I have")];
    let mut setup = setup_of(ScriptedModel::new(script));
    setup.jobs.max_tokens = 500;
    let mut agent = setup.start().await;
    let budget = JobBudget { max_tokens: 150, ..JobBudget::default() };
    let id = create(&agent.one, JobOrder { budget, ..order("count") }).await.job_id;
    let told = tokio::time::timeout(Duration::from_secs(3000), agent.one.delivered.recv()).await;
    let told = told.expect("told").expect("open").text;
    assert!(told.contains("has failed: it reached its token limit before it was done"), "{told}");
    let runs = runs(&setup, id).await;
    let reasons: Vec<_> = runs.iter().map(|run| run.reason).collect();
    assert_eq!(reasons, [Some(StopReason::Stuck), Some(StopReason::Tokens)]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_job_starts_is_held_to_the_jobs_own_limits() {
    let script = [
        Scripted::call("spawn_subagent", json!({"task": "look"})).with_usage(40, 10),
        Scripted::call("echo", json!({"text": "seen"})).with_usage(40, 10),
        Scripted::text("what I have"),
    ];
    let setup = setup_of(ScriptedModel::new(script));
    let mut agent = setup.start().await;
    let budget = JobBudget { max_tokens: 100, ..JobBudget::default() };
    create(&agent.one, JobOrder { budget, ..order("count") }).await;
    let told = agent.one.next().await;
    assert!(told.ends_with("it reached its token limit before it was done\n\nSo far:\n\nwhat I have"), "{told}");
    assert_eq!(agent.model.seen().len(), 3, "the subagent asked once, the job for its last words");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn messages_to_a_job_join_it_all_and_in_order_and_one_that_comes_too_late_is_told_of() {
    let slow = Scripted::call("slow", json!({})).after(Duration::from_secs(60));
    let setup = setup_of(ScriptedModel::new([slow, done("all of it")])).tool(TestTool::named("slow"));
    let mut agent = setup.start().await;
    let id = create(&agent.one, order("count")).await.job_id;
    agent.asked(1).await;
    for said in ["first the hall", "/stop at the kitchen", "then the rest"] {
        let answer = agent.one.command("control", &format!("/job {id} {said}")).await;
        assert_eq!(answer, "The message was passed to the job “count”.");
    }
    assert!(agent.one.next().await.ends_with("is done.\n\nall of it"));
    let seen = saw(&agent.model, 2);
    assert_eq!(seen[seen.len() - 3..], ["first the hall", "/stop at the kitchen", "then the rest"]);
    let late = agent.one.command("control", &format!("/job {id} and the garden")).await;
    assert_eq!(late, "The job “count” is not running: it is done.");
    silence(&mut agent).await;
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_is_cancelled_while_it_waits_or_works_and_nobody_is_told_twice() {
    let mut setup = setup_of(ScriptedModel::new([Scripted::hang()]));
    setup.jobs.max_parallel = 1;
    let mut agent = setup.start().await;
    let working = create(&agent.one, order("works")).await.job_id;
    let waiting = create(&agent.one, order("waits")).await.job_id;
    agent.asked(1).await;
    assert_eq!(agent.one.command("control", &format!("/cancel {waiting}")).await, "Job “waits” is cancelled.");
    assert_eq!(agent.one.command("control", &format!("/cancel {working}")).await, "Job “works” is cancelled.");
    agent.dropped(1).await;
    for id in [working, waiting] {
        until(&setup, id, JobState::Cancelled).await;
        let again = request(&agent.one, JobRequest::Cancel(id)).await;
        assert!(matches!(&again, Ack::Job(job) if job.state == JobState::Cancelled), "{again:?}");
    }
    assert_eq!(runs(&setup, working).await[0].reason, Some(StopReason::UserStop), "it is their own job");
    assert!(runs(&setup, waiting).await.is_empty());
    silence(&mut agent).await;
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_run_somebody_stops_is_cancelled_and_whoever_asked_is_told() {
    let setup = setup_of(ScriptedModel::new([Scripted::hang()]));
    let mut agent = setup.start().await;
    let id = create(&agent.one, order("works")).await.job_id;
    agent.asked(1).await;
    agent.one.control(Control::Stop(belay_protocol::StopTarget::All)).await;
    assert_eq!(agent.one.next().await, format!("Job “works” ({id}) was cancelled. Interrupted."));
    until(&setup, id, JobState::Cancelled).await;
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_asked_hears_that_somebody_else_has_cancelled_their_job() {
    let setup = setup_of(ScriptedModel::new([Scripted::hang()]));
    let mut agent = setup.start().await;
    let made = agent.one.command("alice", "/job count").await;
    let id = id_in(&made);
    agent.asked(1).await;
    // In another session, as the operator at the command line.
    let cancelled = request(&agent.one, JobRequest::Cancel(id)).await;
    assert!(matches!(&cancelled, Ack::Job(job) if job.state == JobState::Cancelled), "{cancelled:?}");
    let told = agent.one.next_message().await;
    assert_eq!((told.text.as_str(), &*told.route.conversation), ("The job “count” was cancelled.", "alice"));
    silence(&mut agent).await;
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_outlives_the_conversation_that_asked_for_it() {
    let setup =
        setup_of(ScriptedModel::new([Scripted::text("hello"), done("two rooms").after(Duration::from_secs(60))]));
    let mut agent = setup.start().await;
    agent.one.ask("alice", "hi").await;
    let id = id_in(&agent.one.command("alice", "/job count").await);
    agent.asked(2).await;
    let deleted = agent.one.control(Control::DeleteSession("alice".into())).await;
    assert!(matches!(&deleted, Ack::Removed(_)), "{deleted:?}");
    assert!(agent.one.next().await.ends_with("is done.\n\ntwo rooms"), "the place where they talk is still there");
    let job = until(&setup, id, JobState::Submitted).await;
    assert_eq!(job.result.as_deref(), Some("two rooms"));
    // The result was promised to this conversation: its notice is all that is in it.
    let again =
        setup.store.sessions.session(&"alice".into()).await.expect("readable").expect("made again by the notice");
    assert_eq!((again.open_runs, again.title), (0, None));
    agent.shut_down().await;
}
