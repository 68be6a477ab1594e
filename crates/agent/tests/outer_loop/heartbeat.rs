//! The heartbeat: when it beats, when it does not and says why, what it tells, and what a failure does to it; over silence,
//! crashes, and two daemons on one store.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use belay_automation::HeartbeatConfig;
use belay_automation::RoutinesConfig;
use belay_automation::routines::heartbeat::DeliverTo;
use belay_protocol::{
    Ack, Asker, Bootstrap, ContextSource, Control, EventKind, EventQuery, HEARTBEAT, HeartbeatReport, ModelErrorKind,
    NewRoutine, NoContext, Price, PrincipalRole, Purpose, PutBy, PutRule, Refusal, RoutineAnswer, RoutineId,
    RoutineOrigin, RoutineRequest, RoutineRunFilter, RoutineRunRecord, RoutineRunStatus, Skills, SkipReason, Trigger,
    UnixMillis, Unusable,
};
use belay_run::LimitsConfig;
use belay_store::SqlStore;
use belay_testkit::faulty::{Fault, Faulty, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};

use crate::routines::{fire, routine};
use crate::support::{PATIENCE, Running, Setup, TestTool, ports};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);
/// Longer than the engine sleeps, so that it has seen where the clock stands.
const A_TICK: Duration = Duration::from_secs(16);

/// Noon of a day, in UTC.
const NOON: i64 = 1_795_003_200_000;

/// A workspace with a list that can be changed.
struct Lists(Mutex<Option<String>>);

impl Lists {
    fn with(list: &str) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(list.to_owned()))))
    }

    fn write(&self, list: Option<&str>) {
        *self.0.lock().expect("no panic") = list.map(str::to_owned);
    }
}

#[async_trait]
impl ContextSource for Lists {
    async fn bootstrap(&self) -> Arc<Bootstrap> {
        NoContext.bootstrap().await
    }

    async fn skills(&self) -> Arc<Skills> {
        NoContext.skills().await
    }

    fn known_skills(&self) -> Arc<Skills> {
        NoContext.known_skills()
    }

    async fn file(&self, _path: &str, _max_bytes: u64) -> Result<Option<String>, Unusable> {
        Ok(None)
    }

    async fn file_start(&self, path: &str, max_bytes: u64) -> Result<Option<(String, bool)>, Unusable> {
        assert_eq!((path, max_bytes), ("HEARTBEAT.md", 16 * 1024));
        let list = self.0.lock().expect("no panic").clone();
        let most = usize::try_from(max_bytes).expect("small");
        Ok(list.map(|list| match list.get(..most) {
            Some(start) => (start.to_owned(), true),
            None => (list, false),
        }))
    }

    fn today(&self, _now: UnixMillis) -> Option<String> {
        None
    }
}

fn every_half_hour() -> HeartbeatConfig {
    HeartbeatConfig {
        enabled: true,
        quiet_hours: String::new(),
        deliver_to: Some(DeliverTo { channel: "one".into(), conversation: "alice".into() }),
        use_tools: false,
        ..HeartbeatConfig::default()
    }
}

/// An agent whose heart beats each half hour from noon on, and tells Alice.
fn beating(model: ScriptedModel) -> Setup {
    let setup = Setup {
        routines: RoutinesConfig::default(),
        heartbeat: every_half_hour(),
        context: Lists::with("- look at the cellar"),
        ..Setup::new(model)
    };
    setup.clock.set(NOON);
    setup
}

/// One for whom nobody need have spoken.
pub(crate) fn untiring(model: ScriptedModel) -> Setup {
    let setup = beating(model);
    Setup { heartbeat: HeartbeatConfig { idle_after_s: 0, ..every_half_hour() }, ..setup }
}

async fn beats_in(setup: &Setup) -> Vec<RoutineRunRecord> {
    let filter = RoutineRunFilter { routine: Some(HEARTBEAT.into()), limit: 1000, ..RoutineRunFilter::default() };
    let mut beats = setup.store.routines.routine_runs(filter).await.expect("readable");
    beats.reverse();
    beats
}

/// Waits until so many beats have ended, and returns all, oldest first.
async fn beats(setup: &Setup, count: usize) -> Vec<RoutineRunRecord> {
    let wait = async {
        loop {
            let all = beats_in(setup).await;
            if all.iter().filter(|beat| beat.ended_at.is_some()).count() >= count {
                return all;
            }
            tokio::time::sleep(Duration::from_secs(1)).await; // of paused time
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("so many beats end")
}

/// Goes on by half an hour, and waits until that beat, the `n`-th, has ended.
async fn beat(setup: &Setup, n: usize) -> RoutineRunRecord {
    setup.clock.forward(HOUR / 2);
    beats(setup, n).await.remove(n - 1)
}

/// The status of a beat, and what it says.
fn said(beat: &RoutineRunRecord) -> (RoutineRunStatus, &str) {
    (beat.status, beat.summary.as_deref().unwrap_or_default())
}

async fn ask(agent: &Running, role: PrincipalRole, request: RoutineRequest) -> Result<RoutineAnswer, Refusal> {
    match agent.one.control_as(role, Control::Routine(Box::new(request))).await {
        Ack::Routine(answer) => Ok(answer),
        Ack::Refused(refusal) => Err(refusal),
        other => panic!("not an answer about routines: {other:?}"),
    }
}

async fn report(agent: &Running) -> HeartbeatReport {
    match ask(agent, PrincipalRole::Operator, RoutineRequest::Heartbeat).await {
        Ok(RoutineAnswer::Heartbeat(report)) => *report,
        other => panic!("no report: {other:?}"),
    }
}

/// Waits until the routine of the heartbeat is there.
async fn is_set_up(setup: &Setup, on: bool) {
    let wait = async {
        let there = || async { setup.store.routines.routine(HEARTBEAT).await.expect("readable") };
        while there().await.is_none_or(|routine| routine.enabled != on) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it is set up");
}

#[tokio::test(start_paused = true)]
async fn a_week_on_an_idle_session_asks_no_model_and_each_skip_is_told() {
    let setup = beating(ScriptedModel::new([Scripted::text("hello"), Scripted::text("HEARTBEAT_OK")]));
    let mut agent = setup.start().await;
    is_set_up(&setup, true).await;
    agent.one.ask("alice", "hello").await;
    assert_eq!(said(&beat(&setup, 1).await), (RoutineRunStatus::Ok, ""), "she has just spoken");
    setup.clock.forward(DAY);
    tokio::time::sleep(A_TICK).await; // what passed while nobody looked is missed
    let before = beats_in(&setup).await.len();
    for n in 1..=7 * 48 {
        setup.clock.forward(HOUR / 2);
        tokio::time::sleep(A_TICK).await;
        let all = beats(&setup, before + n).await;
        assert_eq!(said(&all[before + n - 1]), (RoutineRunStatus::Skipped, "idle"), "beat {n}");
    }
    let all = beats_in(&setup).await;
    let week = &all[before..];
    assert_eq!(week.len(), 7 * 48);
    assert!(week.iter().all(|beat| beat.run_id.is_none() && beat.usage.model_calls == 0 && beat.cost_micro_usd == 0));
    assert_eq!(agent.model.seen().len(), 2, "her message, and the beat after it");
    let (mut told, mut query) = (0, EventQuery::default());
    loop {
        let facts = setup.store.events.read(query.clone()).await.expect("readable");
        let Some(last) = facts.last() else { break };
        query.after = last.seq;
        let idle = |kind: &EventKind| matches!(kind, EventKind::HeartbeatSkipped { reason, .. } if reason == "idle");
        told += facts.iter().filter(|fact| idle(&fact.kind)).count();
    }
    let skipped = all.iter().filter(|beat| beat.status == RoutineRunStatus::Skipped).count();
    assert!(skipped >= week.len());
    assert_eq!(told, skipped, "each once");
    assert_eq!(report(&agent).await.would_skip, Some(SkipReason::Idle));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_needs_attention_is_told_where_the_settings_say_from_a_session_of_its_own() {
    let long = format!("- look at the cellar\n{}", "x".repeat(20_000));
    let model = ScriptedModel::new([Scripted::text("The cellar is wet."), Scripted::text("HEARTBEAT_OK")]);
    let setup = Setup { context: Lists::with(&long), ..untiring(model) };
    let mut agent = setup.start().await;
    is_set_up(&setup, true).await;
    tokio::time::sleep(A_TICK).await;
    assert_eq!(beats_in(&setup).await, [], "not at the start: one interval after it");
    let first = beat(&setup, 1).await;
    let told = agent.one.next_message().await;
    assert_eq!((&*told.text, &*told.route.conversation), ("Heartbeat: The cellar is wet.", "alice"));
    assert_eq!(said(&first), (RoutineRunStatus::Attention, "The cellar is wet."));
    assert_eq!(first.scheduled_at, Some(UnixMillis(NOON + 1_800_000)));
    beat(&setup, 2).await;
    let seen = agent.model.seen();
    let prompt = &seen[0].prompt;
    assert!(prompt.contains("HEARTBEAT_OK") && prompt.contains("Nobody reads along"), "{prompt}");
    let texts: Vec<String> = seen[1].messages.iter().map(|message| message.text().to_owned()).collect();
    assert_eq!(texts.len(), 2, "its task and the list, and nothing of the beat before: {texts:?}");
    assert!(texts[0].contains("HEARTBEAT.md") && texts[1].contains("look at the cellar"), "{texts:?}");
    assert!(
        texts[1].len() < 17 * 1024 && texts[1].contains("bytes of HEARTBEAT.md; the rest is omitted"),
        "the cut is said"
    );
    assert!(seen[1].messages[1].untrusted, "data of the workspace");
    let run = setup.store.runs.run(first.run_id.expect("a run")).await.expect("readable").expect("there");
    assert_ne!(run.session.as_str(), "alice");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_same_alert_is_told_once_a_day() {
    let wet = |at: &str| Scripted::text(format!("The cellar is wet ({at})."));
    let dry = Scripted::text("The attic burns.");
    let model = ScriptedModel::new([wet("12:30"), wet("13:00"), dry, wet("14:00"), wet("12:00"), wet("12:30")]);
    let setup = untiring(model);
    let mut agent = setup.start().await;
    is_set_up(&setup, true).await;
    let first = beat(&setup, 1).await;
    let again = beat(&setup, 2).await;
    let (status, why) = said(&again);
    assert_eq!(status, RoutineRunStatus::Ok, "what is not sent is not told");
    assert!(why.starts_with(&format!("same as {}, told at ", first.routine_run_id)), "{why}");
    beat(&setup, 3).await;
    assert_eq!(beat(&setup, 4).await.status, RoutineRunStatus::Ok, "also behind another one");
    assert_eq!(agent.one.next().await, "Heartbeat: The cellar is wet (12:30).");
    assert_eq!(agent.one.next().await, "Heartbeat: The attic burns.");
    setup.clock.forward(22 * HOUR); // 23½ hours after the first
    tokio::time::sleep(A_TICK).await;
    let beats = beats_in(&setup).await;
    assert_eq!(beats.last().map(|beat| beat.status), Some(RoutineRunStatus::Ok), "{beats:#?}");
    setup.clock.forward(HOUR / 2);
    assert_eq!(agent.one.next().await, "Heartbeat: The cellar is wet (12:30).", "a day after it was told");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn it_may_beat_once_a_day() {
    let model = ScriptedModel::new([]).then_forever(Scripted::text("The cellar is wet."));
    let heartbeat = HeartbeatConfig { at: Some("13:00".into()), idle_after_s: 0, ..every_half_hour() };
    let setup = Setup { heartbeat, ..beating(model) };
    let mut agent = setup.start().await;
    is_set_up(&setup, true).await;
    setup.clock.forward(HOUR);
    assert_eq!(agent.one.next().await, "Heartbeat: The cellar is wet.");
    beats(&setup, 1).await;
    fire(&agent, HEARTBEAT).await.expect("fired");
    assert_eq!(beats(&setup, 2).await[1].status, RoutineRunStatus::Ok);
    setup.clock.forward(DAY);
    assert_eq!(agent.one.next().await, "Heartbeat: The cellar is wet.");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn every_reason_to_skip_is_on_record_and_a_hand_passes_some() {
    let model = ScriptedModel::new([Scripted::text("HEARTBEAT_OK"), Scripted::hang()]);
    let lists = Lists::with("# Heartbeat\n\n- [ ]\n<!-- nothing yet -->\n");
    let heartbeat = HeartbeatConfig { quiet_hours: "13:00-14:00".into(), ..every_half_hour() };
    let setup = Setup { heartbeat, context: lists.clone(), ..beating(model) };
    let agent = setup.start().await;
    is_set_up(&setup, true).await;
    assert_eq!(said(&beat(&setup, 1).await), (RoutineRunStatus::Skipped, "nothing_to_do"));
    assert_eq!(said(&beat(&setup, 2).await), (RoutineRunStatus::Skipped, "quiet_hours"));
    lists.write(None);
    fire(&agent, HEARTBEAT).await.expect("fired");
    assert_eq!(said(&beats(&setup, 3).await[2]), (RoutineRunStatus::Skipped, "nothing_to_do"), "not even by hand");
    lists.write(Some("- look at the cellar"));
    fire(&agent, HEARTBEAT).await.expect("fired");
    assert_eq!(said(&beats(&setup, 4).await[3]), (RoutineRunStatus::Ok, ""), "in quiet hours, and nobody has spoken");
    setup.clock.forward(HOUR / 2); // 13:30
    assert_eq!(said(&beats(&setup, 5).await[4]), (RoutineRunStatus::Skipped, "quiet_hours"));
    assert_eq!(said(&beat(&setup, 6).await), (RoutineRunStatus::Skipped, "idle"), "14:00");
    agent.one.accepted("alice", "wait").await;
    agent.asked(2).await;
    assert_eq!(said(&beat(&setup, 7).await), (RoutineRunStatus::Skipped, "at_work"));
    assert_eq!(agent.model.seen().len(), 2, "the one by hand, and hers");
    agent.crash().await;
}

#[tokio::test(start_paused = true)]
async fn without_money_no_model_is_asked_and_nothing_has_failed() {
    let price = Price { input: 1_000_000_000, cached_input: None, output: 1_000_000_000 };
    let costs = |model: ScriptedModel| model.with_info(|info| info.price = Some(price));
    for (usd, why) in [(0.0, "the day has none"), (0.000_001, "what is left is too little for a call")] {
        let mut setup = untiring(costs(ScriptedModel::new([])));
        setup.limits = LimitsConfig { usd_per_day_for: [(Purpose::Heartbeat, usd)].into(), ..setup.limits };
        let agent = setup.start().await;
        is_set_up(&setup, true).await;
        assert_eq!(said(&beat(&setup, 1).await), (RoutineRunStatus::Skipped, "no_budget"), "{why}");
        let routine = setup.store.routines.routine(HEARTBEAT).await.expect("readable").expect("there");
        assert_eq!((routine.failures, agent.model.seen().len()), (0, 0), "{why}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn failures_make_the_pauses_longer_and_a_success_ends_that() {
    let empty = || Scripted::text("");
    // Three tries for each of four beats that fail.
    let model = ScriptedModel::new((0..12).map(|_| empty())).then_forever(Scripted::text("HEARTBEAT_OK"));
    let setup = untiring(model);
    let mut agent = setup.start().await;
    is_set_up(&setup, true).await;
    let mut course = String::new();
    for n in 1..=18 {
        course.push(match beat(&setup, n).await.status {
            RoutineRunStatus::Failed => 'F',
            RoutineRunStatus::Skipped => '.',
            RoutineRunStatus::Ok => 'o',
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(course, "FF.F...F.......ooo");
    assert_eq!(agent.model.seen().len(), 15);
    let told = agent.one.next().await;
    assert!(told.starts_with("The heartbeat failed (3 in a row): ") && told.contains("belay heartbeat now"), "{told}");
    let routine = setup.store.routines.routine(HEARTBEAT).await.expect("readable").expect("there");
    assert_eq!((routine.failures, routine.enabled), (0, true), "it never stops for good");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_key_is_told_once_and_waits_a_day() {
    let refused = || Scripted::error(ModelErrorKind::Auth);
    let model = ScriptedModel::new([refused(), refused()]).then_forever(Scripted::text("HEARTBEAT_OK"));
    let setup = untiring(model);
    let mut agent = setup.start().await;
    is_set_up(&setup, true).await;
    assert_eq!(beat(&setup, 1).await.status, RoutineRunStatus::Failed);
    let told = agent.one.next().await;
    assert!(told.starts_with("The heartbeat failed (1 in a row): "), "{told}");
    for n in 2..=48 {
        assert_eq!(said(&beat(&setup, n).await), (RoutineRunStatus::Skipped, "back_off"), "beat {n}");
        if n == 20 {
            // A new start forgets nothing of it.
            agent.shut_down().await;
            let next = setup.next_boot(ScriptedModel::new([refused()]).then_forever(Scripted::text("HEARTBEAT_OK")));
            agent = next.start().await;
        }
    }
    assert_eq!(beat(&setup, 49).await.status, RoutineRunStatus::Failed, "after a day it is tried again");
    for n in 50..=96 {
        assert_eq!(said(&beat(&setup, n).await), (RoutineRunStatus::Skipped, "back_off"), "beat {n}");
    }
    assert_eq!(said(&beat(&setup, 97).await), (RoutineRunStatus::Ok, ""));
    assert!(agent.one.delivered.try_recv().is_err(), "and nobody is told again");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_claim_and_settle_beats_and_tells_once() {
    let model = ScriptedModel::new([Scripted::text("The cellar is wet.")]);
    let store = Faulty::new(Arc::new(SqlStore::in_memory().unwrap()));
    let setup = Setup { store: ports(Arc::new(store.clone())), ..untiring(model) };
    let agent = setup.start().await;
    is_set_up(&setup, true).await;
    store.plan().every(StoreOp::SettleRoutineRun, Fault::Stall);
    setup.clock.forward(HOUR / 2);
    agent.asked(1).await;
    tokio::time::sleep(A_TICK).await;
    assert_eq!(beats_in(&setup).await.iter().map(|beat| beat.status).collect::<Vec<_>>(), [RoutineRunStatus::Running]);
    agent.crash().await;
    store.plan().clear();
    let next = setup.next_boot(ScriptedModel::new([]));
    let mut agent = next.start().await;
    assert_eq!(agent.one.next().await, "Heartbeat: The cellar is wet.");
    let all = beats(&setup, 1).await;
    assert_eq!((all.len(), said(&all[0])), (1, (RoutineRunStatus::Attention, "The cellar is wet.")));
    assert_eq!(agent.model.seen().len(), 0, "what was said is not asked for again");
    agent.shut_down().await;
    // One that had not begun is looked at again: by now nothing is to be done.
    let claimed = setup.next_boot(ScriptedModel::new([]));
    let lists = Lists::with("- look at the cellar");
    let claimed = Setup { context: lists.clone(), ..claimed };
    let agent = claimed.start().await;
    store.plan().every(StoreOp::Presence, Fault::Stall);
    setup.clock.forward(HOUR / 2);
    tokio::time::sleep(2 * A_TICK).await;
    assert_eq!(beats_in(&setup).await.last().map(|beat| beat.status), Some(RoutineRunStatus::Running));
    agent.crash().await;
    store.plan().clear();
    lists.write(None);
    let agent = claimed.start().await;
    assert_eq!(said(&beats(&setup, 2).await[1]), (RoutineRunStatus::Skipped, "nothing_to_do"));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_beat_that_a_crash_held_up_until_the_quiet_hours_is_skipped() {
    let store = Faulty::new(Arc::new(SqlStore::in_memory().unwrap()));
    let heartbeat = HeartbeatConfig { quiet_hours: "13:15-14:00".into(), idle_after_s: 0, ..every_half_hour() };
    let setup = Setup { heartbeat, store: ports(Arc::new(store.clone())), ..beating(ScriptedModel::new([])) };
    let agent = setup.start().await;
    is_set_up(&setup, true).await;
    store.plan().every(StoreOp::Presence, Fault::Stall);
    setup.clock.forward(HOUR / 2);
    tokio::time::sleep(2 * A_TICK).await;
    assert_eq!(beats_in(&setup).await.iter().map(|beat| beat.status).collect::<Vec<_>>(), [RoutineRunStatus::Running]);
    agent.crash().await;
    store.plan().clear();
    setup.clock.forward(50 * MINUTE); // 13:20
    let agent = setup.next_boot(ScriptedModel::new([])).start().await;
    let first = beats(&setup, 1).await.remove(0);
    assert_eq!(first.scheduled_at, Some(UnixMillis(NOON + 1_800_000)));
    assert_eq!(said(&first), (RoutineRunStatus::Skipped, "quiet_hours"));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_alert_of_the_future_hides_none_after_the_clock_was_set_back() {
    let wet = || Scripted::text("The cellar is wet.");
    let setup = untiring(ScriptedModel::new([wet(), wet()]));
    let mut agent = setup.start().await;
    is_set_up(&setup, true).await;
    beat(&setup, 1).await;
    assert_eq!(agent.one.next().await, "Heartbeat: The cellar is wet.");
    setup.clock.set(NOON - 2 * 86_400_000);
    fire(&agent, HEARTBEAT).await.expect("fired");
    assert_eq!(beats(&setup, 2).await[1].status, RoutineRunStatus::Attention);
    assert_eq!(agent.one.next().await, "Heartbeat: The cellar is wet.");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn of_two_daemons_on_one_store_one_beats() {
    let model = || ScriptedModel::new([]).then_forever(Scripted::text("HEARTBEAT_OK"));
    let setup = untiring(model());
    let other = setup.next_boot(model());
    let (one, two) = (setup.start().await, other.start().await);
    is_set_up(&setup, true).await;
    tokio::time::sleep(A_TICK).await;
    for n in 1..=20 {
        setup.clock.forward(HOUR / 2);
        tokio::time::sleep(2 * A_TICK).await;
        assert_eq!(beats(&setup, n).await.len(), n);
    }
    assert_eq!(one.model.seen().len() + two.model.seen().len(), 20);
    one.shut_down().await;
    two.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn it_is_changed_in_the_configuration_alone() {
    let setup = beating(ScriptedModel::new([]));
    let mut agent = setup.start().await;
    is_set_up(&setup, true).await;
    let refused = |answer: Result<RoutineAnswer, Refusal>| answer.expect_err("refused").to_string();
    let put = |fresh| RoutineRequest::Put { spec: routine(HEARTBEAT, Trigger::Manual), fresh };
    for request in [
        put(true),
        put(false),
        RoutineRequest::Enable { name: HEARTBEAT.into(), on: false },
        RoutineRequest::Delete(HEARTBEAT.into()),
    ] {
        let why = refused(ask(&agent, PrincipalRole::Operator, request.clone()).await);
        assert!(why.contains("[heartbeat]"), "{request:?}: {why}");
    }
    let why = refused(ask(&agent, PrincipalRole::User, RoutineRequest::Heartbeat).await);
    assert!(why.contains("operator"), "{why}");
    let listed = agent.one.command("alice", "/routine").await;
    assert!(listed.contains("`heartbeat`: `every 30m from "), "{listed}");
    let first = report(&agent).await;
    assert_eq!((first.enabled, &*first.when, first.next_at), (true, "every 30m", Some(UnixMillis(NOON + 1_800_000))));
    agent.shut_down().await;

    // Ten minutes later it is started again: the interval goes on.
    setup.clock.forward(10 * MINUTE);
    let agent = setup.next_boot(ScriptedModel::new([])).start().await;
    tokio::time::sleep(A_TICK).await;
    assert_eq!(report(&agent).await.next_at, first.next_at);
    agent.shut_down().await;

    let off = Setup { heartbeat: HeartbeatConfig::default(), ..setup.next_boot(ScriptedModel::new([])) };
    let agent = off.start().await;
    is_set_up(&setup, false).await;
    setup.clock.forward(DAY);
    tokio::time::sleep(A_TICK).await;
    let report = report(&agent).await;
    assert_eq!((report.enabled, report.next_at, beats_in(&setup).await.len()), (false, None, 0));
    let fired = fire(&agent, HEARTBEAT).await.expect_err("refused");
    assert!(fired.to_string().contains("heartbeat.enabled"), "{fired}");
    agent.shut_down().await;

    let agent = setup.next_boot(ScriptedModel::new([])).start().await;
    is_set_up(&setup, true).await;
    let routine = setup.store.routines.routine(HEARTBEAT).await.expect("readable").expect("there");
    assert_eq!((routine.origin, beats_in(&setup).await.len()), (RoutineOrigin::Heartbeat, 0), "nothing is made up for");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn it_has_the_tools_of_what_works_by_itself() {
    let heartbeat = HeartbeatConfig { use_tools: true, idle_after_s: 0, ..every_half_hour() };
    let order = TestTool::named("echo").called("order").asking();
    let ordered = order.calls.clone();
    let model = ScriptedModel::new([
        Scripted::call("order", serde_json::json!({"text": "pumps"})),
        Scripted::text("I could not order a pump."),
    ]);
    let setup = Setup { heartbeat, ..beating(model) }.tool(order);
    let mut agent = setup.start().await;
    is_set_up(&setup, true).await;
    setup.clock.forward(HOUR / 2);
    assert_eq!(agent.one.next().await, "Heartbeat: I could not order a pump.");
    assert_eq!(ordered.load(std::sync::atomic::Ordering::SeqCst), 0, "nobody could be asked");
    let offered = agent.model.seen()[0].tools.clone().expect("tools");
    assert!(offered.contains(&"order".to_owned()) && !offered.contains(&"routine".to_owned()), "{offered:?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn settings_that_it_cannot_work_with_are_refused_at_the_start() {
    let to = |channel: &str| Some(DeliverTo { channel: channel.into(), conversation: "alice".into() });
    for (heartbeat, part) in [
        (HeartbeatConfig { deliver_to: to("three"), ..every_half_hour() }, "heartbeat.deliver_to.channel: "),
        (HeartbeatConfig { model: Some("none".into()), ..every_half_hour() }, "llm.small_model: "),
        (HeartbeatConfig { zone: "Mars".into(), ..every_half_hour() }, "agent.timezone: "),
    ] {
        let setup = Setup { heartbeat, ..beating(ScriptedModel::new([])) };
        let error = setup.refused().await;
        assert!(error.starts_with(part), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_routine_that_somebody_has_made_under_its_name_is_left_alone_and_the_rest_starts() {
    let define = vec![routine("rounds", Trigger::Manual)];
    let setup = untiring(ScriptedModel::new([]));
    let setup = Setup { routines: RoutinesConfig { define, ..RoutinesConfig::default() }, ..setup };
    let theirs = NewRoutine {
        id: RoutineId::new(),
        spec: routine(HEARTBEAT, Trigger::Manual), // of a version that had no heartbeat
        creator: Asker { principal: "ann".into(), ..Asker::default() },
        channel: "one".into(),
        made_in: "s".into(),
        reply_to: None,
        origin: RoutineOrigin::Made,
        next_at: None,
        at: UnixMillis(NOON),
    };
    setup.store.routine_store.put(theirs, PutRule { fresh: true, by: PutBy::Operator }).await.expect("put");
    let before = setup.store.routines.routine(HEARTBEAT).await.expect("readable");
    let agent = setup.start().await;
    let there = async {
        while setup.store.routines.routine("rounds").await.expect("readable").is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, there).await.expect("what the configuration defines is there");
    setup.clock.forward(HOUR);
    tokio::time::sleep(A_TICK).await;
    assert_eq!(setup.store.routines.routine(HEARTBEAT).await.expect("readable"), before);
    assert_eq!(beats_in(&setup).await, []);
    agent.shut_down().await;
}
