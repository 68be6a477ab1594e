//! Freezes of routines and of people, their thaws, and `/compact` while frozen.

use std::time::Duration;

use belay_automation::{JobsConfig, RoutinesConfig};
use belay_protocol::{
    Ack, Control, Freeze, FreezeId, FreezeRequest, FreezeScope, JobBudget, JobState, Misfire, PrincipalRole, Refusal,
    RoutineAction, RoutineSpec, RunsIn, Trigger, UnixMillis,
};
use belay_testkit::faulty::{Fault, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};

use crate::compaction::three_turns;
use crate::jobs::{create, done, in_state, order, until};
use crate::routines::{A_TICK, HOUR, TEN_PAST, ended, fire, hourly, put, routine, routine_runs};
use crate::support::{Running, Setup, faulty};

fn with_work(setup: Setup) -> Setup {
    setup.clock.set(TEN_PAST);
    Setup { routines: RoutinesConfig::default(), jobs: JobsConfig::default(), ..setup }
}

fn watch() -> FreezeScope {
    FreezeScope::Routine { name: "watch".into() }
}

fn by_job(spec: RoutineSpec) -> RoutineSpec {
    let (task, budget) = ("look".into(), JobBudget::default());
    RoutineSpec { action: RoutineAction::FullJob { task, plan: false, runs_in: RunsIn::Local, budget }, ..spec }
}

async fn request(agent: &Running, request: FreezeRequest) -> Result<Vec<Freeze>, Refusal> {
    match agent.one.control(Control::Freeze(request)).await {
        Ack::Freezes(in_force) => Ok(in_force),
        Ack::Refused(refusal) => Err(refusal),
        other => panic!("not an answer about freezes: {other:?}"),
    }
}

async fn freeze(agent: &Running, scope: FreezeScope) -> Vec<Freeze> {
    request(agent, FreezeRequest::Freeze { scope, detail: None }).await.expect("frozen")
}

async fn thaw(agent: &Running, scope: FreezeScope) {
    request(agent, FreezeRequest::Thaw(scope)).await.expect("thawed");
}

#[tokio::test(start_paused = true)]
async fn a_sender_learns_whether_its_work_is_frozen() {
    let agent = Setup::new(ScriptedModel::new([])).start().await;
    let check = || agent.one.control_as(PrincipalRole::Client, Control::Freeze(FreezeRequest::Check));
    assert!(matches!(check().await, Ack::Freezes(in_force) if in_force.is_empty()));
    freeze(&agent, FreezeScope::All).await;
    assert!(matches!(check().await, Ack::Refused(Refusal::Frozen(_))));
    thaw(&agent, FreezeScope::All).await;
    assert!(matches!(check().await, Ack::Freezes(in_force) if in_force.is_empty()));
    agent.shut_down().await;
}

/// The job of the only routine run of the routine `watch`.
async fn job_of_watch(setup: &Setup, state: JobState) {
    let run = routine_runs(setup, "watch").await.remove(0);
    until(setup, run.job_id.expect("a job"), state).await;
}

#[tokio::test(start_paused = true)]
async fn a_freeze_of_a_routine_stops_the_job_of_its_run() {
    let setup = with_work(Setup::new(ScriptedModel::new([Scripted::hang(), Scripted::hang()])));
    let agent = setup.start().await;
    create(&agent.one, order("another job")).await;
    agent.asked(1).await;
    put(&agent, by_job(routine("watch", Trigger::Manual))).await;
    fire(&agent, "watch").await.expect("fired");
    agent.asked(2).await;
    let in_force = freeze(&agent, watch()).await;
    assert_eq!(in_force[0].receipt.as_ref().map(|receipt| receipt.stopped.len()), Some(1), "{in_force:?}");
    job_of_watch(&setup, JobState::Cancelled).await;
    assert_eq!(in_state(&setup, JobState::InProgress).await, 1, "the other job continues");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_freeze_of_a_routine_stops_the_job_of_its_run_also_after_a_crash() {
    let setup = with_work(Setup::new(ScriptedModel::new([Scripted::hang()])));
    let agent = setup.start().await;
    put(&agent, by_job(routine("watch", Trigger::Manual))).await;
    fire(&agent, "watch").await.expect("fired");
    agent.asked(1).await;
    agent.crash().await;
    let (id, actor, at) = (FreezeId::new(), "op".to_owned(), UnixMillis(1));
    let stored =
        Freeze { id, scope: watch(), detail: None, actor, source: "http".into(), at, receipt: None, thawed_at: None };
    setup.store.freezes.put_freeze(stored).await.expect("stored");
    let agent = setup.next_boot(ScriptedModel::new([])).start().await;
    job_of_watch(&setup, JobState::Cancelled).await;
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_routine_run_that_was_claimed_before_the_freeze_of_its_routine_begins_after_the_thaw() {
    for spec in [routine("watch", Trigger::Manual), by_job(routine("watch", Trigger::Manual))] {
        let setup = with_work(Setup::new(ScriptedModel::new([]).then_forever(done("ROUTINE_OK"))));
        let agent = setup.start().await;
        put(&agent, spec).await;
        freeze(&agent, FreezeScope::All).await;
        fire(&agent, "watch").await.expect("a freeze of everything keeps it");
        freeze(&agent, watch()).await;
        thaw(&agent, FreezeScope::All).await;
        tokio::time::sleep(3 * A_TICK).await;
        assert_eq!(agent.model.seen().len(), 0);
        thaw(&agent, watch()).await;
        agent.asked(1).await;
        ended(&setup, "watch", 1).await;
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_frozen_person_takes_no_job_slot_and_none_of_their_routines_is_claimed() {
    let setup = with_work(Setup::new(ScriptedModel::new([]).then_forever(done("ROUTINE_OK"))));
    let setup = Setup { jobs: JobsConfig { max_parallel: 1, ..JobsConfig::default() }, ..setup };
    let agent = setup.start().await;
    put(&agent, hourly("watch", Misfire::Once)).await;
    let tester = || FreezeScope::person("one:tester");
    freeze(&agent, tester()).await;
    let frozen = create(&agent.one, order("count the rooms")).await.job_id;
    // The same id in another channel is another person.
    let other = create(&agent.two, order("count the doors")).await.job_id;
    until(&setup, other, JobState::Submitted).await;
    setup.clock.forward(HOUR);
    tokio::time::sleep(3 * A_TICK).await;
    assert_eq!(in_state(&setup, JobState::Pending).await, 1);
    assert_eq!(routine_runs(&setup, "watch").await, []);
    let refused = fire(&agent, "watch").await;
    assert!(matches!(&refused, Err(Refusal::Decided(why)) if why.contains("frozen")), "{refused:?}");
    thaw(&agent, tester()).await;
    until(&setup, frozen, JobState::Submitted).await;
    ended(&setup, "watch", 1).await;
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_thaw_that_cannot_be_stored_is_refused_and_the_second_one_works() {
    let (setup, store) = faulty(ScriptedModel::new([Scripted::text("hello")]));
    let mut agent = setup.start().await;
    freeze(&agent, FreezeScope::All).await;
    agent.one.accepted("alice", "hi").await;
    assert!(agent.one.next().await.contains("frozen"));
    store.plan().nth_of(StoreOp::EndFreeze, 1, Fault::Fail);
    let refused = request(&agent, FreezeRequest::Thaw(FreezeScope::All)).await;
    assert!(matches!(&refused, Err(Refusal::Store(why)) if why.contains("still frozen")), "{refused:?}");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(agent.model.seen().len(), 0, "nothing begins");
    thaw(&agent, FreezeScope::All).await;
    assert_eq!(agent.one.next().await, "hello");
    assert_eq!(setup.store.freezes.freezes().await.expect("readable"), []);
    agent.shut_down().await;
}

/// The dispatcher takes both messages before the lane reads the first one.
#[tokio::test(start_paused = true)]
async fn a_compact_that_waits_in_a_lane_asks_no_model_while_frozen() {
    let setup = Setup::new(ScriptedModel::new([]));
    let mut agent = setup.start().await;
    three_turns(&mut agent).await;
    let compact = agent.one.text("alice", "/compact");
    let (compacted, _) = tokio::join!(compact, freeze(&agent, FreezeScope::All));
    match compacted {
        Ack::Command(reply) => assert_eq!(reply.reply, "Stopped: the conversation is unchanged."),
        other => panic!("not answered as a command: {other:?}"),
    }
    assert_eq!(agent.model.seen().len(), 3);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_freeze_of_a_channel_that_there_is_not_says_so_and_freezes_nothing() {
    let agent = Setup::new(ScriptedModel::new([])).start().await;
    for scope in [FreezeScope::Channel { channel: "telegramm".into() }, FreezeScope::person("Telegram:42")] {
        let refused = request(&agent, FreezeRequest::Freeze { scope, detail: None }).await;
        let Err(Refusal::Invalid(words)) = refused else { panic!("{refused:?}") };
        assert!(words.starts_with("nothing is frozen: there is no channel") && words.contains("one, two"), "{words}");
    }
    assert_eq!(request(&agent, FreezeRequest::List).await.expect("listed"), []);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_freeze_of_a_routine_that_there_is_not_says_so_and_freezes_nothing() {
    let setup = with_work(Setup::new(ScriptedModel::new([])));
    let mut agent = setup.start().await;
    put(&agent, hourly("watch", Misfire::Skip)).await;
    for words in [
        request(&agent, FreezeRequest::Freeze { scope: FreezeScope::Routine { name: "wacth".into() }, detail: None })
            .await
            .expect_err("refused")
            .to_string(),
        agent.one.command("alice", "/freeze --routine wacth --reason late").await,
    ] {
        assert!(words.contains("nothing is frozen: there is no routine wacth"), "{words}");
        assert!(words.ends_with("Did you mean watch?"), "{words}");
    }
    assert_eq!(request(&agent, FreezeRequest::List).await.expect("listed"), []);
    let usage = agent.one.command("alice", "/freeze --persn 42").await;
    assert!(usage.starts_with("/freeze REASON freezes everything."), "{usage}");
    assert_eq!(request(&agent, FreezeRequest::List).await.expect("listed"), [], "an option that is not known");
    agent.one.command("alice", "/freeze --routine watch --reason late").await;
    let in_force = request(&agent, FreezeRequest::List).await.expect("listed");
    assert_eq!((&in_force[0].scope, in_force[0].detail.as_deref()), (&watch(), Some("late")));
    agent.one.command("alice", "/thaw --routine watch").await;
    assert_eq!(request(&agent, FreezeRequest::List).await.expect("listed"), []);
    agent.shut_down().await;
}
