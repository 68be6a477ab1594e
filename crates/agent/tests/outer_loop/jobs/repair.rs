//! Jobs that hang, crash, or are laid aside: each goes on from where it was, and whoever asked is told once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use belay_protocol::{JobFilter, JobState, RunId, RunProcesses, StillRunning, StopReason};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;
use tokio::time::Instant;

use super::{always, create, done, job, order, runs, setup_of, silence, told, until};
use crate::support::{TestTool, saw};

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
    assert!(told.contains("has failed: it made no progress for 3"), "{told}");
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
    assert!(told.contains("has failed: given up: Belay crashed 2 times in a row"), "{told}");
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
async fn whoever_says_something_each_minute_is_busy_for_as_long_as_it_likes() {
    const FIVE_HOURS: Duration = Duration::from_secs(18_000);
    let pieces = || (0..300).map(|minute| format!("minute {minute} "));
    let says = Scripted::call("echo", json!({"text": "said"})).after_pieces(pieces()).paced(Duration::from_secs(60));
    for first in [says, Scripted::call("chatty", json!({}))] {
        let mut setup = setup_of(ScriptedModel::new([first, done("all of it")]))
            .tool(TestTool::named("chatty").within(2 * FIVE_HOURS));
        setup.jobs.job_timeout_s = 40_000;
        let mut agent = setup.start().await;
        let began = Instant::now();
        let id = create(&agent.one, order("count")).await.job_id;
        assert!(told(&mut agent).await.ends_with("is done.\n\nall of it"));
        assert!(began.elapsed() >= FIVE_HOURS, "{:?}", began.elapsed());
        assert_eq!(job(&setup, id).await.attempt, 1);
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_falls_silent_in_the_middle_is_repaired() {
    let broken = Scripted::hang().after_pieces(["The hall has two", " doors, and"]).paced(Duration::from_secs(200));
    let setup = setup_of(ScriptedModel::new([broken, done("all rooms")]));
    let mut agent = setup.start().await;
    let began = Instant::now();
    let id = create(&agent.one, order("count")).await.job_id;
    assert!(told(&mut agent).await.ends_with("is done.\n\nall rooms"));
    let waited = began.elapsed().as_secs();
    assert!((500..=760).contains(&waited), "{waited} s: the silence counts from the last piece");
    assert_eq!(job(&setup, id).await.attempt, 2);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_repaired_keeps_its_one_place() {
    let script = [Scripted::hang(), done("one"), done("two")];
    let mut setup = setup_of(ScriptedModel::new(script));
    setup.jobs.max_parallel = 1;
    let mut agent = setup.start().await;
    let first = create(&agent.one, order("first")).await.job_id;
    let second = create(&agent.one, order("second")).await.job_id;
    let watch = async {
        loop {
            let states = [JobState::InProgress, JobState::Stuck];
            let filter = JobFilter { states: states.to_vec(), limit: 10, ..JobFilter::default() };
            let at_work = setup.store.jobs.jobs(filter).await.expect("readable").len();
            assert!(at_work <= 1, "{at_work} have a place");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let both = async { [told(&mut agent).await, told(&mut agent).await] };
    let said = tokio::select! {
        said = both => said,
        () = watch => unreachable!("it watches for ever"),
    };
    assert!(said[0].ends_with("one") && said[1].ends_with("two"), "{said:?}");
    assert_eq!((job(&setup, first).await.attempt, job(&setup, second).await.attempt), (2, 1));
    agent.shut_down().await;
}

/// Processes that take a while to end.
#[derive(Default)]
struct Lingering {
    ended: Mutex<Vec<RunId>>,
}

#[async_trait::async_trait]
impl RunProcesses for Lingering {
    async fn end(&self, run: RunId) {
        tokio::time::sleep(Duration::from_secs(20)).await;
        self.ended.lock().expect("not poisoned").push(run);
    }

    fn alive(&self, _run: RunId) -> Vec<StillRunning> {
        Vec::new()
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_old_run_has_started_is_gone_before_the_next_attempt_begins() {
    let mut setup = setup_of(ScriptedModel::new([Scripted::hang(), Scripted::hang()]));
    let processes = Arc::new(Lingering::default());
    setup.processes = processes.clone();
    let agent = setup.start().await;
    let id = create(&agent.one, order("count")).await.job_id;
    tokio::time::timeout(Duration::from_secs(3000), agent.model.called(2)).await.expect("a second attempt");
    let first = runs(&setup, id).await[0].run_id;
    assert!(processes.ended.lock().expect("not poisoned").contains(&first), "its processes may be alive");
    agent.crash().await;
}
