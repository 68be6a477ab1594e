//! Jobs: begun as places become free, worked at from attempt to attempt, and told about once.

use std::sync::Arc;
use std::time::Duration;

use belay_agent::JobsConfig;
use belay_protocol::{
    Ack, Control, JobBudget, JobFilter, JobId, JobOrder, JobRecord, JobRequest, JobRoom, JobState, ModelErrorKind,
    PrincipalRole, Refusal, RunFilter, RunRecord, StopReason, StopTarget, job_session,
};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{Running, Setup, Talker, TestTool, saw};
use crate::workers::employ_here;

/// A model that says this and nothing else.
fn always(reply: Scripted) -> ScriptedModel {
    ScriptedModel::new([]).then_forever(reply)
}

pub(crate) fn done(result: &str) -> Scripted {
    Scripted::call("terminate", json!({"status": "success", "summary": result}))
}

/// An agent that has jobs.
fn setup_of(model: ScriptedModel) -> Setup {
    Setup { jobs: JobsConfig::default(), ..Setup::new(model) }
}

fn failed(why: &str) -> Scripted {
    Scripted::call("terminate", json!({"status": "failure", "summary": why}))
}

fn order(task: &str) -> JobOrder {
    JobOrder { task: task.into(), ..JobOrder::default() }
}

/// Makes a job as a program of the operator would, in the session `alice`.
async fn create(talker: &Talker, order: JobOrder) -> JobRecord {
    match request(talker, JobRequest::Create(order)).await {
        Ack::Job(job) => *job,
        other => panic!("no job was made: {other:?}"),
    }
}

async fn request(talker: &Talker, request: JobRequest) -> Ack {
    talker.control(Control::Job(request)).await
}

async fn job(setup: &Setup, id: JobId) -> JobRecord {
    setup.store.jobs.job(id).await.expect("readable").expect("known")
}

/// Waits until a job is in this state.
pub(crate) async fn until(setup: &Setup, id: JobId, state: JobState) -> JobRecord {
    let reached = async {
        loop {
            let job = job(setup, id).await;
            if job.state == state {
                return job;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let last = tokio::time::timeout(Duration::from_secs(100_000), reached).await;
    match last {
        Ok(job) => job,
        Err(_) => panic!("it never became {state:?}: {:?}", job(setup, id).await),
    }
}

async fn in_state(setup: &Setup, state: JobState) -> usize {
    let filter = JobFilter { states: vec![state], limit: 500, ..JobFilter::default() };
    setup.store.jobs.jobs(filter).await.expect("readable").len()
}

/// The runs of a job, oldest first.
pub(crate) async fn runs(setup: &Setup, id: JobId) -> Vec<RunRecord> {
    let filter = RunFilter { session: Some(job_session(id)), status: None, limit: 100 };
    let mut runs = setup.store.runs.runs(filter).await.expect("readable");
    runs.reverse();
    runs
}

/// The id in the answer to `/job`.
pub(crate) fn id_in(answer: &str) -> JobId {
    answer.split('`').nth(1).expect("an id").parse().expect("an id")
}

/// That nobody is told anything more.
pub(crate) async fn silence(agent: &mut Running) {
    let more = tokio::time::timeout(Duration::from_secs(200), agent.one.delivered.recv()).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_works_beside_the_conversation_and_its_result_comes_as_a_message_that_no_model_reads() {
    let model = ScriptedModel::new([
        Scripted::call("echo", json!({"text": "seen"})),
        done("two rooms"),
        Scripted::text("hello"),
    ]);
    let setup = setup_of(model);
    let mut agent = setup.start().await;
    let made = agent.one.command("alice", "/job count the rooms\nand the halls").await;
    let id = id_in(&made);
    assert!(made.starts_with("Job “count the rooms” is made"), "{made}");
    let told = agent.one.next_message().await;
    assert_eq!(told.text, format!("Job “count the rooms” ({id}) is done.\n\ntwo rooms"));
    let settled = until(&setup, id, JobState::Submitted).await;
    assert_eq!((settled.attempt, settled.result.as_deref()), (1, Some("two rooms")));
    let tools = agent.model.seen()[0].tools.clone().expect("tools");
    assert!(tools.contains(&"terminate".to_owned()) && !tools.contains(&"create_job".to_owned()), "{tools:?}");
    assert_eq!(saw(&agent.model, 1), ["count the rooms\nand the halls"]);
    agent.one.ask("alice", "hi").await;
    assert_eq!(saw(&agent.model, 3), ["hi"], "the conversation's model reads nothing of the job");
    assert!(agent.model.seen()[2].tools.clone().expect("tools").contains(&"create_job".to_owned()));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_begins_like_a_command_is_a_task() {
    let setup = setup_of(ScriptedModel::new([done("stopped it")]));
    let mut agent = setup.start().await;
    create(&agent.one, order("/stop the music in the hall")).await;
    assert!(agent.one.next().await.ends_with("is done.\n\nstopped it"));
    assert_eq!(saw(&agent.model, 1), ["/stop the music in the hall"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn places_are_exact_under_a_burst_and_a_finished_job_frees_its_own_at_once() {
    let model = always(done("done").after(Duration::from_secs(10)));
    let mut setup = setup_of(model);
    setup.jobs =
        JobsConfig { max_parallel: 5, max_parallel_per_user: 5, max_open_per_user: 150, ..JobsConfig::default() };
    let mut agent = setup.start().await;
    let began = Instant::now();
    let asked = (0..200).map(|n| {
        let writer = agent.one.writer();
        tokio::spawn(async move { request(&writer, JobRequest::Create(order(&format!("job {n}")))).await })
    });
    let asked: Vec<_> = asked.collect();
    let mut refused = 0_usize;
    for asked in asked {
        match asked.await.expect("no panic") {
            Ack::Job(_) => {}
            Ack::Refused(Refusal::Busy { what, .. }) => {
                assert!(what.contains("150 of your jobs"), "{what}");
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    // Some may have been done before the last was asked for, and left their places to others.
    assert!((1..=50).contains(&refused), "{refused}");
    let mut most = 0;
    for _ in 0..200 - refused {
        let at_work = in_state(&setup, JobState::InProgress).await;
        most = most.max(at_work);
        assert!(at_work <= 5, "{at_work} are at work");
        agent.one.next().await;
    }
    assert_eq!(most, 5);
    // Rounds of ten seconds with no pause between them.
    let rounds = u32::try_from((200 - refused).div_ceil(5)).expect("few");
    assert!(began.elapsed() < rounds * Duration::from_secs(10) + Duration::from_secs(5), "{:?}", began.elapsed());
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn one_person_leaves_places_to_others() {
    let mut setup = setup_of(always(Scripted::hang()));
    setup.jobs = JobsConfig { max_parallel: 3, max_parallel_per_user: 2, ..JobsConfig::default() };
    let agent = setup.start().await;
    for n in 0..4 {
        create(&agent.one, order(&format!("mine {n}"))).await;
    }
    agent.asked(2).await;
    let theirs = create(&agent.two, order("theirs")).await;
    agent.asked(3).await;
    assert_eq!(in_state(&setup, JobState::InProgress).await, 3);
    assert_eq!(job(&setup, theirs.job_id).await.state, JobState::InProgress);
    agent.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_waiting_jobs_are_rows_and_nothing_else() {
    let mut setup = setup_of(always(Scripted::hang()));
    setup.jobs = JobsConfig { max_parallel: 1, max_open_per_user: 2000, ..JobsConfig::default() };
    let agent = setup.start().await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    create(&agent.one, order("first")).await;
    agent.asked(1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = tasks();
    for n in 0..1000 {
        create(&agent.one, order(&format!("job {n}"))).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(tasks() <= before, "{} tasks, before {before}", tasks());
    agent.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_twice_makes_one_job() {
    let setup = setup_of(always(done("done")));
    let agent = setup.start().await;
    let id = JobId::new();
    for _ in 0..2 {
        let made = create(&agent.one, JobOrder { job_id: Some(id), ..order("count") }).await;
        assert_eq!(made.job_id, id);
    }
    let Ack::Refused(Refusal::Invalid(what)) =
        request(&agent.two, JobRequest::Create(JobOrder { job_id: Some(id), ..order("mine") })).await
    else {
        panic!("somebody else's id was taken")
    };
    assert!(what.contains("another job"), "{what}");
    let twice = [agent.one.keyed("alice", "/job count", "1").await, agent.one.keyed("alice", "/job count", "1").await];
    assert!(matches!(&twice[1], Ack::Command(reply) if reply.reply.contains("delivered before")), "{twice:?}");
    agent.shut_down().await;
    let next = setup.next_boot(always(done("done")));
    let agent = next.start().await;
    agent.one.keyed("alice", "/job count", "1").await;
    let all = setup.store.jobs.jobs(JobFilter::default()).await.expect("readable");
    assert_eq!(all.len(), 2, "one by id, one by command");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_a_job_is_refused_in_words() {
    let mut setup = setup_of(ScriptedModel::new([]));
    let agent = setup.start().await;
    for (order, expected) in [
        (order("  "), "task: must have text"),
        (order(&"x".repeat(70_000)), "task: must have text, at most 65536 bytes"),
        (JobOrder { room: JobRoom::Worker, ..order("x") }, "room: "),
    ] {
        match request(&agent.one, JobRequest::Create(order)).await {
            Ack::Refused(Refusal::Invalid(what)) => assert!(what.contains(expected), "{what}"),
            other => panic!("{expected}: {other:?}"),
        }
    }
    agent.shut_down().await;
    setup.jobs.enabled = false;
    let agent = setup.next_boot(ScriptedModel::new([])).start().await;
    let refused = request(&agent.one, JobRequest::Create(order("x"))).await;
    assert!(matches!(&refused, Ack::Refused(Refusal::Forbidden(_))), "{refused:?}");
    agent.shut_down().await;
}

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
        (nothing.collect(), "has failed: the model had nothing to say"),
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
            "has failed: the agent says that it cannot be done\n\nSo far:\n\nno key",
            StopReason::GaveUp,
        ),
        (
            vec![call(1), call(2), call(3)],
            3,
            "has failed: its steps were used up before it was done\n\nSo far:\n\nroom 3",
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
    for (times, expected) in [(9, "is done.\n\nat last"), (10, "has failed: the model provider kept limiting our rate")]
    {
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
    assert!(told.contains("has failed: its tokens were used up before it was done"), "{told}");
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
    assert!(told.ends_with("tokens were used up before it was done\n\nSo far:\n\nwhat I have"), "{told}");
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
        assert_eq!(answer, "Passed on to the job “count”.");
    }
    assert!(agent.one.next().await.ends_with("is done.\n\nall of it"));
    let seen = saw(&agent.model, 2);
    assert_eq!(seen[seen.len() - 3..], ["first the hall", "/stop at the kitchen", "then the rest"]);
    let late = agent.one.command("control", &format!("/job {id} and the garden")).await;
    assert_eq!(late, "The job “count” is not at work: it is done.");
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
    assert_eq!(runs(&setup, working).await[0].reason, Some(StopReason::OperatorStop));
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
    assert_eq!(agent.one.next().await, format!("Job “works” ({id}) was cancelled. Stopped by the operator."));
    until(&setup, id, JobState::Cancelled).await;
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_belongs_to_whoever_made_it() {
    let setup = setup_of(ScriptedModel::new([Scripted::hang()]));
    let mut agent = setup.start().await;
    let id = create(&agent.one, order("works")).await.job_id;
    for (role, theirs) in [(PrincipalRole::User, true), (PrincipalRole::Operator, false)] {
        // Somebody else, in another channel.
        let answer = match agent.two.text_as("bob", role, &format!("/job {id}")).await {
            Ack::Command(reply) => reply.reply,
            other => panic!("{other:?}"),
        };
        assert_eq!(answer == format!("There is no job {id} of yours."), theirs, "{answer}");
    }
    let list = agent.one.command("alice", "/jobs").await;
    assert!(list.contains("at work: works"), "{list}");
    let refused = agent.one.text(&job_session(id).to_string(), "hello").await;
    assert!(matches!(&refused, Ack::Refused(Refusal::Forbidden(what)) if what.contains("/job")), "{refused:?}");
    for role in [PrincipalRole::User, PrincipalRole::Client] {
        let stop = Control::Stop(StopTarget::Session(job_session(id)));
        let refused = agent.two.control_as(role, stop).await;
        assert!(matches!(&refused, Ack::Refused(Refusal::Forbidden(what)) if what.contains("/cancel")), "{refused:?}");
    }
    assert_eq!(job(&setup, id).await.state, JobState::InProgress);
    agent.crash().await;
}

#[tokio::test(start_paused = true)]
async fn the_result_can_be_accepted_once_it_is_there() {
    let setup = setup_of(ScriptedModel::new([done("two").after(Duration::from_secs(5))]));
    let mut agent = setup.start().await;
    let id = create(&agent.one, order("count")).await.job_id;
    let early = request(&agent.one, JobRequest::Accept(id)).await;
    assert!(matches!(&early, Ack::Refused(Refusal::Decided(_))), "{early:?}");
    agent.one.next().await;
    until(&setup, id, JobState::Submitted).await;
    for _ in 0..2 {
        let accepted = request(&agent.one, JobRequest::Accept(id)).await;
        assert!(matches!(&accepted, Ack::Job(job) if job.state == JobState::Accepted), "{accepted:?}");
    }
    let cancelled = request(&agent.one, JobRequest::Cancel(id)).await;
    assert!(matches!(&cancelled, Ack::Refused(Refusal::Decided(_))), "{cancelled:?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_stuck_job_really_runs_again_from_where_it_was() {
    let script = [Scripted::call("echo", json!({"text": "the hall is done"})), Scripted::hang(), done("all rooms")];
    let setup = setup_of(ScriptedModel::new(script));
    let mut agent = setup.start().await;
    let began = Instant::now();
    let id = create(&agent.one, order("count the rooms")).await.job_id;
    let told = tokio::time::timeout(Duration::from_secs(3000), agent.one.delivered.recv()).await;
    assert!(told.expect("told").expect("open").text.ends_with("is done.\n\nall rooms"));
    let waited = began.elapsed().as_secs();
    assert!((300..=330).contains(&waited), "{waited} s of silence");
    let seen = saw(&agent.model, 3);
    assert_eq!([seen[0].as_str(), seen[2].as_str()], ["count the rooms", "the hall is done"], "{seen:#?}");
    let last = seen.last().expect("a message");
    assert!(last.starts_with("This is attempt 2 of the job.") && last.ends_with("count the rooms"), "{last}");
    let job = until(&setup, id, JobState::Submitted).await;
    let ends: Vec<_> = runs(&setup, id).await.iter().map(|run| run.reason).collect();
    assert_eq!((job.attempt, ends), (2, vec![Some(StopReason::Stuck), Some(StopReason::Terminated)]));
    silence(&mut agent).await;
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_hangs_again_and_again_has_failed_with_one_notice() {
    let setup = setup_of(always(Scripted::hang()));
    let mut agent = setup.start().await;
    let id = create(&agent.one, order("count")).await.job_id;
    let told = tokio::time::timeout(Duration::from_secs(3000), agent.one.delivered.recv()).await;
    let told = told.expect("told").expect("open").text;
    assert!(told.contains("has failed: nothing was heard of it for 3"), "{told}");
    assert!(told.contains("in its third and last attempt"), "{told}");
    let job = until(&setup, id, JobState::Failed).await;
    assert_eq!((job.attempt, runs(&setup, id).await.len()), (3, 3));
    tokio::time::sleep(Duration::from_secs(10_000)).await;
    assert!(agent.one.delivered.try_recv().is_err(), "told once");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_gets_on_is_never_touched_however_long_it_takes() {
    let step = |n: u32| Scripted::call("echo", json!({"text": n.to_string()})).after(Duration::from_secs(240));
    let script = (0..30).map(step).chain([done("two hours of work")]);
    let mut setup = setup_of(ScriptedModel::new(script));
    setup.jobs.job_timeout_s = 10_000;
    let mut agent = setup.start().await;
    let began = Instant::now();
    let id = create(&agent.one, order("count")).await.job_id;
    let told = tokio::time::timeout(Duration::from_secs(20_000), agent.one.delivered.recv()).await;
    assert!(told.expect("told").expect("open").text.ends_with("two hours of work"));
    assert!(began.elapsed() >= Duration::from_secs(7200));
    assert_eq!(job(&setup, id).await.attempt, 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_is_gone_on_from_and_the_result_told_once() {
    let setup = setup_of(ScriptedModel::new([Scripted::call("echo", json!({"text": "half"})), Scripted::hang()]));
    let agent = setup.start().await;
    let id = create(&agent.one, order("count")).await.job_id;
    agent.asked(2).await;
    agent.crash().await;
    let next = setup.next_boot(ScriptedModel::new([done("whole")]));
    let mut agent = next.start().await;
    assert!(agent.one.next().await.ends_with("is done.\n\nwhole"));
    assert_eq!(saw(&agent.model, 1)[2], "half", "it goes on from its last step");
    let job = until(&setup, id, JobState::Submitted).await;
    assert_eq!((job.attempt, job.crashes, runs(&setup, id).await.len()), (1, 1, 1), "the same attempt, the same run");
    silence(&mut agent).await;
    agent.shut_down().await;
    let mut agent = setup.next_boot(ScriptedModel::new([])).start().await;
    silence(&mut agent).await;
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_the_daemon_dies_of_twice_is_given_up_and_asks_no_model() {
    let setup = setup_of(ScriptedModel::new([Scripted::hang()]));
    let agent = setup.start().await;
    let id = create(&agent.one, order("poison")).await.job_id;
    agent.asked(1).await;
    agent.crash().await;
    let next = setup.next_boot(ScriptedModel::new([Scripted::hang()]));
    let agent = next.start().await;
    agent.asked(1).await;
    agent.crash().await;
    let last = setup.next_boot(ScriptedModel::new([]));
    let mut agent = last.start().await;
    let told = agent.one.next().await;
    assert!(told.contains("has failed: given up: Belay died 2 times in a row"), "{told}");
    until(&setup, id, JobState::Failed).await;
    silence(&mut agent).await;
    assert_eq!(agent.model.seen().len(), 0);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_is_laid_aside_at_an_orderly_end_as_often_as_it_may_be() {
    let mut setup = setup_of(ScriptedModel::new([Scripted::call("echo", json!({"text": "half"})), Scripted::hang()]));
    setup.config.drain_s = 1;
    let agent = setup.start().await;
    let id = create(&agent.one, order("count")).await.job_id;
    agent.asked(2).await;
    agent.shut_down().await;
    for _ in 0..6 {
        let next = setup.next_boot(ScriptedModel::new([Scripted::hang()]));
        let agent = next.start().await;
        agent.asked(1).await;
        agent.shut_down().await;
    }
    let next = setup.next_boot(ScriptedModel::new([done("whole")]));
    let mut agent = next.start().await;
    let told = agent.one.next().await;
    assert!(told.ends_with("is done.\n\nwhole"), "nothing was said at the orderly ends: {told}");
    assert_eq!(saw(&agent.model, 1)[2], "half");
    let job = until(&setup, id, JobState::Submitted).await;
    assert_eq!((job.attempt, job.crashes, runs(&setup, id).await.len()), (1, 0, 1));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_model_of_a_conversation_makes_a_job_whose_result_comes_there() {
    let asks = Scripted::call("create_job", json!({"task": "count the rooms", "title": "rooms"}));
    // Whoever of the two is asked first gets the same.
    let mut setup = setup_of(ScriptedModel::new([asks]).then_forever(done("fine")));
    setup.config.terminate = true;
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "have the rooms counted").await;
    let mut told = [agent.one.next_message().await, agent.one.next_message().await];
    told.sort_by_key(|told| told.text.len());
    let job = setup.store.jobs.jobs(JobFilter::default()).await.expect("readable").remove(0);
    let result = format!("Job “rooms” ({}) is done.\n\nfine", job.job_id);
    assert_eq!([&told[0].text, &told[1].text], ["fine", &result]);
    assert_eq!(&*told[1].route.conversation, "alice");
    assert_eq!((job.task.as_str(), job.asked_in.as_str()), ("count the rooms", "alice"));
    assert!(job.parent.is_some());
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_a_model_has_written_counts_as_words_of_the_outside() {
    for (by_model, posts) in [(true, 0), (false, 1)] {
        let post = TestTool::named("echo").called("post").writing();
        let posted = post.calls.clone();
        let asks = [("create_job", json!({"task": "post it"})), ("terminate", json!({"status": "success"}))];
        let works = [Scripted::call("post", json!({"text": "secrets"})), done("over")];
        let script: Vec<_> = by_model.then(|| Scripted::calls(asks)).into_iter().chain(works).collect();
        let mut setup = setup_of(ScriptedModel::new(script)).tool(post);
        setup.config.terminate = true;
        let mut agent = setup.start().await;
        if by_model {
            agent.one.accepted("alice", "have it posted").await;
        } else {
            create(&agent.one, order("post it")).await;
        }
        while !agent.one.next().await.ends_with("over") {}
        assert_eq!(posted.load(std::sync::atomic::Ordering::SeqCst), posts, "ordered by a model: {by_model}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_can_make_a_plan_first() {
    let success = |summary: &str| done(summary);
    let model = ScriptedModel::new([
        Scripted::call("planning", json!({"command": "create", "title": "The work", "steps": ["look", "work"]})),
        success("two rooms"),
        success("clean"),
        Scripted::text("Everything is tidy."),
    ]);
    let setup = setup_of(model);
    let mut agent = setup.start().await;
    let id = create(&agent.one, JobOrder { plan: true, ..order("tidy the house") }).await.job_id;
    assert!(agent.one.next().await.ends_with("is done.\n\nEverything is tidy."));
    let runs = runs(&setup, id).await;
    assert_eq!(runs[0].reason, Some(StopReason::PlanCompleted));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_can_work_in_a_worker_whose_result_is_its_own() {
    let script = [Scripted::call("read_file", json!({"text": "seen there"})), Scripted::text("two rooms")];
    let mut setup = setup_of(ScriptedModel::new(script));
    employ_here(&mut setup, |name| TestTool::named("echo").called(name));
    setup = setup.tool(TestTool::named("fail").called("read_file"));
    let mut agent = setup.start().await;
    let room = JobRoom::Worker;
    let id = create(&agent.one, JobOrder { room, ..order("count the rooms") }).await.job_id;
    let told = agent.one.next().await;
    assert!(told.ends_with("is done.\n\ntwo rooms"), "{told}");
    assert_eq!(until(&setup, id, JobState::Submitted).await.room, room);
    assert_eq!(saw(&agent.model, 2)[2], "seen there", "its own tools, not the daemon's");
    let planned = request(&agent.one, JobRequest::Create(JobOrder { room, plan: true, ..order("x") })).await;
    assert!(matches!(&planned, Ack::Refused(Refusal::Invalid(what)) if what.starts_with("plan:")), "{planned:?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_can_be_asked_and_a_job_makes_no_job() {
    let script = [
        Scripted::calls([("ask", json!({"text": "may I?"})), ("create_job", json!({"task": "more"}))]),
        done("without"),
    ];
    let tool = TestTool::named("echo").called("ask").asking();
    let calls = tool.calls.clone();
    let setup = setup_of(ScriptedModel::new(script)).tool(tool);
    let mut agent = setup.start().await;
    create(&agent.one, order("count")).await;
    assert!(agent.one.next().await.ends_with("without"));
    let seen = saw(&agent.model, 2);
    assert!(seen[2].contains("works by itself, and nobody is there to be asked"), "{seen:#?}");
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 0);
    let all = setup.store.jobs.jobs(JobFilter::default()).await.expect("readable");
    assert_eq!(all.len(), 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_channel_with_the_name_of_the_agents_own_work_keeps_it_from_starting() {
    let setup = setup_of(ScriptedModel::new([]));
    let mut parts = setup.parts();
    parts.channels = vec![Arc::new(NamedJob("job".into()))];
    let refused = belay_agent::Agent::start(parts).await.err().expect("refused").to_string();
    assert!(refused.starts_with("channel job:"), "{refused}");
}

/// A channel that has no business to be called so.
struct NamedJob(belay_protocol::ChannelId);

#[async_trait::async_trait]
impl belay_protocol::Channel for NamedJob {
    fn id(&self) -> &belay_protocol::ChannelId {
        &self.0
    }

    async fn start(
        &self,
        _intake: tokio_util::sync::CancellationToken,
    ) -> Result<belay_protocol::InboundStream, belay_protocol::ChannelError> {
        Ok(Box::pin(futures_util::stream::pending()))
    }

    async fn deliver(&self, _message: &belay_protocol::Outbound) -> Result<(), belay_protocol::DeliverError> {
        Ok(())
    }
}
