//! A night with two hundred routines and fifty jobs, on a store on disk, with a daemon that dies every ten
//! minutes in the middle of something and a model that errs in five calls of a hundred. In the morning every time of every
//! schedule has one row, which says honestly what became of it; nothing was done or told twice; and the ledger is printed.
//!
//! Without variables it is one night of six hours. `BELAY_NIGHTS=20` has as many nights of twelve, `BELAY_NIGHTS=7,9` those
//! (`make night`). A failure names its seed. Which operation of the store a daemon dies at follows from the seed; the threads of the store keep the rest from being the same each time.

#![allow(clippy::print_stdout)] // the ledger

mod cast;
mod dice;
mod ledger;
mod model;
mod oracle;
mod times;
mod tool;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{
    Ack, Body, Control, DispatcherStore, JobFilter, JobId, JobReader, Outbox, RoutineAnswer, RoutineReader,
    RoutineRecord, RoutineRequest, UnixMillis,
};
use belay_testkit::faulty::Fault;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use self::cast::{Act, Cast, Deed, JOBS, ROUTINES};
use self::ledger::Ledger;
use self::world::{Life, World};

/// Between two crashes.
const CRASH_EVERY_S: u64 = 600;
/// When everything has to be over at last, after dawn.
const MORNING_S: u64 = 8 * 3600;

/// The evenings before clocks are changed in Europe: 20:30 UTC, four and a half hours before the change.
const DUSKS: [&str; 2] = ["2026-10-24T20:30:00Z", "2026-03-28T20:30:00Z"];

/// The seeds of the nights, and how many seconds a night has. Clocks are changed in the shorter one too.
fn nights() -> (Vec<u64>, u64) {
    const HOUR_S: u64 = 3600;
    let wanted = std::env::var("BELAY_NIGHTS").unwrap_or_default();
    match wanted.trim().parse::<u64>() {
        Ok(nights) => ((1..=nights).collect(), 12 * HOUR_S),
        Err(_) if wanted.trim().is_empty() => (vec![1], 6 * HOUR_S),
        Err(_) => {
            let seeds = wanted.split(',').map(|seed| seed.trim().parse().expect("seeds, with commas"));
            (seeds.collect(), 12 * HOUR_S)
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_night_of_crashes_each_routine_run_was_done_once_or_has_honestly_failed() {
    let (seeds, night_s) = nights();
    for seed in seeds {
        let (ledger, wrong) = Box::pin(night(seed, night_s)).await;
        println!("{ledger}");
        assert!(wrong.is_empty(), "seed {seed}: {} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
    }
}

/// What was asked from outside, and how it was answered.
type Answers = Vec<(Act, Ack)>;

/// The times at which the daemon died, by what it died at.
type Crashes = BTreeMap<String, u64>;

async fn night(seed: u64, night_s: u64) -> (Ledger, Vec<String>) {
    let dusk: jiff::Timestamp = DUSKS[usize::from(seed.is_multiple_of(2))].parse().expect("a date");
    let world = Arc::new(World::new(seed, UnixMillis(dusk.as_millisecond())));
    let (began, dawn_at) = (Instant::now(), UnixMillis(dusk.as_millisecond() + night_s as i64 * 1000));
    let cast: Vec<Cast> = (0..ROUTINES).map(|n| cast::routine(world.dice, n, dusk.as_millisecond(), night_s)).collect();
    let jobs: Vec<JobId> = (0..JOBS).map(|_| JobId::new()).collect();

    let mut life = world.begin().await;
    for (n, cast) in cast.iter().enumerate() {
        let put = RoutineRequest::Put { spec: cast.spec.clone(), fresh: true };
        let put = world.inbound(&format!("put-{}", cast.spec.name), n, Body::Control(Control::Routine(Box::new(put))));
        let answer = world.tell(put).await;
        assert!(matches!(answer, Ack::Routine(RoutineAnswer::Routine(_))), "{}: {answer:?}", cast.spec.name);
    }
    let mut untrusted = JoinSet::new();
    for act in cast::acts(world.dice, &jobs, night_s) {
        untrusted.spawn(do_it(world.clone(), began, act));
    }
    let (mut answers, mut crashes) = (Answers::new(), Crashes::new());
    for boot in 1.. {
        let next = Instant::now().duration_since(began).as_secs() / CRASH_EVERY_S + 1;
        let jitter = world.dice.roll("crash", next, 30);
        let crash_at = began + Duration::from_secs(next * CRASH_EVERY_S + jitter);
        let before_dawn = next * CRASH_EVERY_S < night_s;
        let died_at = tokio::select! {
            () = sleep_until(crash_at), if before_dawn => die(&world, &life, next).await,
            () = world.model.poison.notified() => "a poisoned job".to_owned(),
            () = morning(&world, &life, &cast, dawn_at, &mut untrusted, &mut answers), if !before_dawn => break,
        };
        *crashes.entry(died_at).or_default() += 1;
        world.crash(life).await;
        let downtime = match world.dice.roll("long", boot, 4) {
            0 => 60 + world.dice.roll("down", boot, 180),
            _ => 2 + world.dice.roll("down", boot, 20),
        };
        sleep(Duration::from_secs(downtime)).await;
        life = world.begin().await;
    }
    let checked = oracle::check(&world, &life, &cast, &jobs, &answers, crashes, dawn_at).await;
    world.shut_down(life).await;
    checked
}

/// Does what is done from outside, in its time.
async fn do_it(world: Arc<World>, began: Instant, act: Act) -> (Act, Ack) {
    sleep_until(began + Duration::from_secs(act.after_s)).await;
    let body = match act.deed.clone() {
        Deed::Say(text) => Body::Text(text),
        Deed::Routine(request) => Body::Control(Control::Routine(Box::new(request))),
        Deed::Job(request) => Body::Control(Control::Job(request)),
    };
    let conversation = usize::try_from(act.about).expect("few");
    let answer = world.tell(world.inbound(&act.key, conversation, body)).await;
    (act, answer)
}

/// Dies at one of the next operations of the store, before or after its work; or soon, where there are none.
async fn die(world: &World, life: &Life, nth: u64) -> String {
    let fault = world.dice.pick("fault", nth, &[Fault::Die, Fault::DieAfter]);
    life.plan.nth(1 + world.dice.roll("op", nth, 80), fault);
    tokio::select! {
        op = life.plan.died() => format!("{op:?}, {}", if fault == Fault::Die { "before" } else { "after" }),
        () = sleep(Duration::from_secs(45)) => "nothing".to_owned(),
    }
}

/// Waits until all that was due by dawn was looked at, switches every routine off, and waits until all work has ended.
async fn morning(
    world: &World,
    life: &Life,
    cast: &[Cast],
    dawn_at: UnixMillis,
    untrusted: &mut JoinSet<(Act, Ack)>,
    answers: &mut Answers,
) {
    let store = &life.store;
    let noon = world.now().0.max(dawn_at.0) + MORNING_S as i64 * 1000;
    let patience = |what: &str| assert!(world.now().0 < noon, "it is noon, and {what}");
    // What is laid aside is not due, and has a time all the same.
    while world.now() < dawn_at || waits(&store.routines().await.expect("readable"), dawn_at) {
        sleep(Duration::from_secs(10)).await;
        patience("what was due by dawn still is");
    }
    for (n, cast) in cast.iter().enumerate() {
        let off = RoutineRequest::Enable { name: cast.spec.name.clone(), on: false };
        let off = world.inbound("off", n, Body::Control(Control::Routine(Box::new(off))));
        world.tell(off).await;
    }
    while let Some(done) = untrusted.join_next().await {
        answers.push(done.expect("no panic"));
    }
    loop {
        sleep(Duration::from_secs(10)).await;
        let jobs = JobFilter { limit: 1000, ..JobFilter::default() };
        let jobs = store.jobs(jobs).await.expect("readable");
        let at_work = jobs.iter().filter(|job| !job.state.is_over()).count();
        let routine_runs = RoutineReader::numbers(store).await.expect("readable").running as usize;
        let runs = store.unfinished_runs().await.expect("readable").len();
        let post = Outbox::next_due(store, None).await.expect("readable").is_some()
            || !Outbox::due(store, world.now(), &[], None, 1, 1).await.expect("readable").is_empty();
        if at_work + routine_runs + runs == 0 && !post {
            return;
        }
        patience(&format!(
            "{at_work} jobs, {routine_runs} routine runs and {runs} sessions are at work (post: {post})"
        ));
    }
}

/// Whether a time up to this one was not looked at yet.
fn waits(routines: &[RoutineRecord], until: UnixMillis) -> bool {
    routines.iter().any(|routine| routine.next_at.is_some_and(|next| next <= until))
}
