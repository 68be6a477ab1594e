//! Routine runs: claimed once, held back by guardrails, ended once.

use std::sync::Arc;

use belay_protocol::{
    Claim, Echo, EventKind, Held, JobId, Message, NewRoutine, NewRoutineRun, Removed, Retention, RoutineId,
    RoutineRecord, RoutineRunEnd, RoutineRunFilter, RoutineRunId, RoutineRunRecord, RoutineRunStatus, RoutineRunStore,
    RunId, RunUsage, SessionFilter, SessionNotice, Settled, StoreError, routine_run_session,
};
use tokio::task::JoinSet;

use super::for_every_store;
use crate::kit::*;

for_every_store! {
    a_claim_keeps_the_routine_run_and_moves_its_routine_on
    of_many_claims_of_one_cause_one_is_it
    a_burst_of_claims_passes_neither_cap
    a_cooldown_holds_back_what_was_not_asked_for_by_hand
    a_clock_that_was_set_back_holds_nothing_back
    the_same_content_fires_once_in_its_window
    a_scheduled_time_that_is_held_back_is_recorded_as_missed
    a_scheduled_time_waits_for_a_place_among_all
    what_is_held_back_without_a_time_leaves_nothing_behind
    missed_times_are_recorded_once
    a_time_that_has_passed_is_never_claimed_and_never_waited_for
    a_later_time_that_is_waited_for_stays
    nothing_is_claimed_of_a_routine_that_is_off
    a_routine_of_the_same_name_is_another_one
    what_was_claimed_lately_under_another_key_is_known_too
    a_routine_run_ends_once_and_tells_once
    what_is_skipped_tells_why_and_counts_for_nothing
    too_many_failures_in_a_row_switch_it_off
    an_end_that_says_so_switches_its_routine_off_and_tells_it_once
    the_end_of_a_routine_run_from_before_a_change_counts_for_nothing
    an_end_whose_notice_cannot_be_kept_is_not_made
    who_does_the_work_is_noted
    routine_runs_are_listed_newest_first
    old_routine_runs_go_with_their_facts_and_others_stay
    routine_runs_have_an_age_of_their_own_and_take_their_sessions_with_them
    an_open_routine_run_belongs_to_the_last_start_that_asked
}

type Store = Arc<dyn Everything>;

async fn try_claim(store: &Store, new: NewRoutineRun) -> Claim {
    store.claim(new, 1_000).await.unwrap()
}

async fn settle(store: &Store, end: RoutineRunEnd) -> Settled {
    RoutineRunStore::settle(&**store, end).await.unwrap()
}

async fn now(store: &Store, name: &str) -> RoutineRecord {
    store.routine(name).await.unwrap().expect("it is there")
}

/// A routine with these guardrails: cooldown and window in seconds, routine runs at work.
async fn guarded(store: &Store, new: NewRoutine, cooldown_s: u64, dedup_window_s: u64, max_concurrent: u32) {
    let mut new = new;
    let guard = &mut new.spec.guard;
    (guard.cooldown_s, guard.dedup_window_s, guard.max_concurrent) = (cooldown_s, dedup_window_s, max_concurrent);
    put(&**store, new).await;
}

fn expected(new: &NewRoutineRun) -> RoutineRunRecord {
    RoutineRunRecord {
        routine_run_id: new.id,
        routine_id: new.routine_id,
        routine: new.routine.clone(),
        revision: 1,
        trigger: new.by.into(),
        key: new.key.clone(),
        scheduled_at: new.scheduled_at,
        detail: new.detail.clone(),
        payload: new.payload.clone(),
        status: RoutineRunStatus::Running,
        summary: None,
        run_id: None,
        job_id: None,
        usage: RunUsage::default(),
        cost_micro_usd: 0,
        claimed_at: new.at,
        ended_at: None,
    }
}

fn fired(routine_run: &RoutineRunRecord) -> EventKind {
    EventKind::RoutineRunStarted {
        routine_run: routine_run.routine_run_id,
        routine: routine_run.routine.clone(),
        trigger: routine_run.trigger.clone(),
        scheduled_ms: routine_run.scheduled_at.map(|time| time.0),
    }
}

fn over(routine_run: &RoutineRunRecord, disabled: bool) -> EventKind {
    let (id, routine, status) = (routine_run.routine_run_id, routine_run.routine.clone(), routine_run.status);
    EventKind::RoutineRunEnded { routine_run: id, routine, status, disabled }
}

async fn a_claim_keeps_the_routine_run_and_moves_its_routine_on(store: Store) {
    let made = put(&*store, scheduled("tick", 60_000)).await;
    let new = on_time("tick", 60_000, 120_000);
    let routine_run = expected(&new);
    assert_eq!(try_claim(&store, new.clone()).await, Claim::Claimed(Box::new(routine_run.clone())));
    let moved = RoutineRecord {
        next_at: Some(at(120_000)),
        claimed_to: Some(at(60_000)),
        fired_at: Some(at(60_000)),
        set_off_at: Some(at(60_000)),
        routine_runs: 1,
        ..made
    };
    assert_eq!(now(&store, "tick").await, moved);
    assert_eq!(store.routine_run(new.id).await.unwrap(), Some(routine_run.clone()));
    assert_eq!(store.open_routine_runs(boot()).await.unwrap(), std::slice::from_ref(&routine_run));
    assert_eq!(facts(&*store, routine_run_session(new.id)).await, [fired(&routine_run)]);

    // Asked again, by whomever, for whatever reason.
    let again = NewRoutineRun { id: RoutineRunId::new(), ..new };
    assert_eq!(try_claim(&store, again).await, Claim::Known(Box::new(routine_run)));
    assert_eq!(now(&store, "tick").await, moved);
}

async fn of_many_claims_of_one_cause_one_is_it(store: Store) {
    put(&*store, routine("hook")).await;
    let mut claiming = JoinSet::new();
    for _ in 0..200 {
        let store = store.clone();
        claiming.spawn(async move { try_claim(&store, routine_run("hook", "delivery")).await });
    }
    let claims = claiming.join_all().await;
    let claimed: Vec<_> =
        claims.iter().filter_map(|claim| if let Claim::Claimed(it) = claim { Some(it) } else { None }).collect();
    assert_eq!(claimed.len(), 1);
    let known = claims.iter().filter(|claim| matches!(claim, Claim::Known(it) if it == claimed[0])).count();
    assert_eq!(known, 199);
    assert_eq!(now(&store, "hook").await.routine_runs, 1);
}

async fn a_burst_of_claims_passes_neither_cap(store: Store) {
    guarded(&store, routine("a"), 0, 0, 5).await;
    guarded(&store, routine("b"), 0, 0, 5).await;
    let burst = async |wave: &str, global| {
        let mut claiming = JoinSet::new();
        for n in 0..200 {
            let name = if n % 2 == 0 { "a" } else { "b" };
            let (store, new) =
                (store.clone(), NewRoutineRun { by_hand: n % 3 == 0, ..routine_run(name, &format!("{wave}{n}")) });
            claiming.spawn(async move { store.claim(new, global).await.unwrap() });
        }
        claiming.join_all().await
    };
    let claims = burst("first", 7).await;
    assert_eq!(claims.iter().filter(|claim| matches!(claim, Claim::Claimed(_))).count(), 7);
    assert!(claims.contains(&Claim::Held(Held::Global)));
    let open = store.open_routine_runs(boot()).await.unwrap();
    assert_eq!(open.len(), 7);
    assert!(open.iter().filter(|routine_run| routine_run.routine == "a").count() <= 5, "{open:?}");
    let claims = burst("second", 100).await;
    assert_eq!(claims.iter().filter(|claim| matches!(claim, Claim::Claimed(_))).count(), 3);
    assert!(claims.contains(&Claim::Held(Held::Concurrent)));
    settle(&store, end(open[0].routine_run_id, RoutineRunStatus::Ok)).await;
    let claims = burst("third", 100).await;
    assert_eq!(
        claims.iter().filter(|claim| matches!(claim, Claim::Claimed(_))).count(),
        1,
        "the place is free at once"
    );
}

fn fired_at(new: NewRoutineRun, ms: i64) -> NewRoutineRun {
    NewRoutineRun { at: at(ms), ..new }
}

async fn a_cooldown_holds_back_what_was_not_asked_for_by_hand(store: Store) {
    guarded(&store, routine("hook"), 10, 0, 100).await;
    let by_hand = |key| NewRoutineRun { by_hand: true, by: "manual", ..routine_run("hook", key) };
    claim(&*store, fired_at(by_hand("h1"), 1_000)).await;
    claim(&*store, fired_at(routine_run("hook", "1"), 2_000)).await; // a hand starts no cooldown
    let held = try_claim(&store, fired_at(routine_run("hook", "2"), 11_999)).await;
    assert_eq!(held, Claim::Held(Held::Cooldown(1)));
    claim(&*store, fired_at(by_hand("h2"), 11_999)).await;
    claim(&*store, fired_at(routine_run("hook", "2"), 12_000)).await;
    assert_eq!(now(&store, "hook").await.routine_runs, 4);
}

async fn a_clock_that_was_set_back_holds_nothing_back(store: Store) {
    guarded(&store, routine("hook"), 10, 10, 100).await;
    let day = 24 * 3600 * 1000;
    let same = |key| NewRoutineRun { content: Some("c".into()), ..routine_run("hook", key) };
    claim(&*store, fired_at(same("1"), day)).await;
    claim(&*store, fired_at(same("2"), 5_000)).await;
    let held = try_claim(&store, fired_at(same("3"), 6_000)).await;
    assert_eq!(held, Claim::Held(Held::Cooldown(9_000)));
}

async fn the_same_content_fires_once_in_its_window(store: Store) {
    guarded(&store, routine("hook"), 0, 10, 100).await;
    guarded(&store, routine("other"), 0, 0, 100).await;
    let same = |name, key, ms| NewRoutineRun { content: Some("c".into()), ..fired_at(routine_run(name, key), ms) };
    claim(&*store, same("hook", "1", 1_000)).await;
    assert_eq!(try_claim(&store, same("hook", "2", 10_999)).await, Claim::Held(Held::Content));
    claim(&*store, NewRoutineRun { content: Some("d".into()), ..same("hook", "3", 2_000) }).await;
    claim(&*store, NewRoutineRun { content: None, ..same("hook", "4", 2_000) }).await;
    claim(&*store, NewRoutineRun { by_hand: true, ..same("hook", "5", 900) }).await;
    claim(&*store, same("hook", "2", 11_000)).await;
    claim(&*store, same("other", "1", 1_000)).await;
    claim(&*store, same("other", "2", 1_000)).await; // it does not look
}

async fn a_scheduled_time_that_is_held_back_is_recorded_as_missed(store: Store) {
    guarded(&store, scheduled("tick", 60_000), 100, 0, 100).await;
    claim(&*store, on_time("tick", 60_000, 120_000)).await;
    let new = NewRoutineRun { missed: vec![at(90_000)], ..on_time("tick", 120_000, 180_000) };
    assert_eq!(try_claim(&store, new.clone()).await, Claim::Held(Held::Cooldown(40_000)));
    let held = RoutineRunRecord {
        status: RoutineRunStatus::Missed,
        summary: Some("cooldown".into()),
        ended_at: Some(at(120_000)),
        ..expected(&new)
    };
    assert_eq!(store.routine_run(new.id).await.unwrap(), Some(held.clone()));
    assert_eq!(facts(&*store, routine_run_session(new.id)).await, [fired(&held), over(&held, false)]);
    let routine = now(&store, "tick").await;
    assert_eq!((routine.next_at, routine.claimed_to), (Some(at(180_000)), Some(at(120_000))));
    assert_eq!((routine.fired_at, routine.routine_runs), (Some(at(60_000)), 1));
    assert_eq!(try_claim(&store, new).await, Claim::Known(Box::new(held)));
    assert_eq!(missed(&store, "tick").await, [(90_000, None), (120_000, Some("cooldown".into()))]);
}

/// The missed times, in the order in which they were recorded, with what held them back.
async fn missed(store: &Store, name: &str) -> Vec<(i64, Option<String>)> {
    let filter = RoutineRunFilter {
        routine: Some(name.into()),
        status: Some(RoutineRunStatus::Missed),
        ..RoutineRunFilter::default()
    };
    let routine_runs = store.routine_runs(filter).await.unwrap();
    routine_runs
        .into_iter()
        .rev()
        .map(|routine_run| (routine_run.scheduled_at.expect("a time").0, routine_run.summary))
        .collect()
}

async fn a_scheduled_time_waits_for_a_place_among_all(store: Store) {
    put(&*store, routine("hook")).await;
    let other = claim(&*store, routine_run("hook", "1")).await.routine_run_id;
    put(&*store, scheduled("tick", 60_000)).await;
    let before = now(&store, "tick").await;
    let new = NewRoutineRun { missed: vec![at(30_000)], ..on_time("tick", 60_000, 120_000) };
    assert_eq!(store.claim(new.clone(), 1).await.unwrap(), Claim::Held(Held::Global));
    assert_eq!(now(&store, "tick").await, before, "it waits for that time as it did");
    assert_eq!(store.routine_runs(RoutineRunFilter::default()).await.unwrap().len(), 1);
    settle(&store, end(other, RoutineRunStatus::Ok)).await;
    assert!(matches!(store.claim(new, 1).await.unwrap(), Claim::Claimed(_)));
}

async fn what_is_held_back_without_a_time_leaves_nothing_behind(store: Store) {
    guarded(&store, scheduled("tick", 60_000), 0, 0, 0).await;
    let before = now(&store, "tick").await;
    let new = NewRoutineRun { next_at: Some(at(90_000)), missed: vec![at(30_000)], ..routine_run("tick", "k") };
    assert_eq!(try_claim(&store, new.clone()).await, Claim::Held(Held::Concurrent));
    assert_eq!(now(&store, "tick").await, before);
    assert_eq!(store.routine_runs(RoutineRunFilter::default()).await.unwrap(), []);
    assert_eq!(facts(&*store, routine_run_session(new.id)).await, []);
}

async fn missed_times_are_recorded_once(store: Store) {
    put(&*store, scheduled("tick", 60_000)).await;
    let new = NewRoutineRun { missed: vec![at(60_000), at(120_000)], ..on_time("tick", 180_000, 240_000) };
    claim(&*store, new).await;
    assert_eq!(missed(&store, "tick").await, [(60_000, None), (120_000, None)]);
    let routine = now(&store, "tick").await;
    assert_eq!((routine.next_at, routine.claimed_to, routine.routine_runs), (Some(at(240_000)), Some(at(180_000)), 1));

    let times = vec![at(120_000), at(180_000), at(240_000)];
    store.miss(routine_id("tick"), times.clone(), Some(at(300_000)), at(250_000)).await.unwrap();
    store.miss(routine_id("tick"), times.clone(), Some(at(300_000)), at(250_000)).await.unwrap();
    assert_eq!(missed(&store, "tick").await, [(60_000, None), (120_000, None), (240_000, None)]);
    let routine = now(&store, "tick").await;
    assert_eq!((routine.next_at, routine.claimed_to), (Some(at(300_000)), Some(at(240_000))));
    assert_eq!((routine.fired_at, routine.routine_runs), (Some(at(180_000)), 1));

    // Where nothing can be missed, nothing is.
    store.enable(routine_id("tick"), false, "", None, at(260_000)).await.unwrap();
    store.miss(routine_id("tick"), vec![at(300_000)], Some(at(360_000)), at(310_000)).await.unwrap();
    store.miss(routine_id("other"), vec![at(300_000)], None, at(310_000)).await.unwrap();
    assert_eq!(missed(&store, "tick").await.len(), 3);
    assert_eq!(now(&store, "tick").await.next_at, None);

    let record = store
        .routine_runs(RoutineRunFilter { status: Some(RoutineRunStatus::Missed), ..RoutineRunFilter::default() })
        .await;
    let record = record.unwrap().remove(0);
    assert_eq!((&*record.trigger, &*record.key, record.ended_at), ("schedule", "240000", Some(at(250_000))));
    let told = facts(&*store, routine_run_session(record.routine_run_id)).await;
    assert_eq!(told, [fired(&record), over(&record, false)]);
}

async fn a_time_that_has_passed_is_never_claimed_and_never_waited_for(store: Store) {
    put(&*store, scheduled("tick", 60_000)).await;
    claim(&*store, on_time("tick", 60_000, 120_000)).await;
    // Never fired, and not to be: a later one was.
    let passed = try_claim(&store, on_time("tick", 30_000, 60_000)).await;
    assert!(matches!(&passed, Claim::Off(why) if why.contains("has passed")), "{passed:?}");
    assert_eq!(now(&store, "tick").await.next_at, Some(at(120_000)));

    // The clock was set back, and the routine was changed: it waits for a time that it has fired at before.
    let mut changed = NewRoutine { at: at(40_000), ..scheduled("tick", 60_000) };
    changed.spec.description = "another".into();
    put(&*store, changed).await;
    let known = try_claim(&store, on_time("tick", 60_000, 120_000)).await;
    assert!(matches!(known, Claim::Known(_)), "{known:?}");
    assert_eq!(now(&store, "tick").await.next_at, Some(at(120_000)), "it goes on all the same");
    assert_eq!(now(&store, "tick").await.routine_runs, 1);
}

async fn a_later_time_that_is_waited_for_stays(store: Store) {
    put(&*store, scheduled("tick", 60_000)).await;
    claim(&*store, NewRoutineRun { next_at: Some(at(240_000)), ..on_time("tick", 60_000, 0) }).await;
    // Of several times that are fired at once, and from somebody who has not heard of it.
    claim(&*store, on_time("tick", 120_000, 180_000)).await;
    assert_eq!(now(&store, "tick").await.next_at, Some(at(240_000)));
    // Set off otherwise, its times are left alone.
    claim(&*store, NewRoutineRun { next_at: None, ..routine_run("tick", "by hand") }).await;
    assert_eq!(now(&store, "tick").await.next_at, Some(at(240_000)));
    // The last time of all.
    claim(&*store, NewRoutineRun { next_at: None, ..on_time("tick", 240_000, 0) }).await;
    assert_eq!(now(&store, "tick").await.next_at, None);
}

async fn nothing_is_claimed_of_a_routine_that_is_off(store: Store) {
    let off = try_claim(&store, routine_run("hook", "1")).await;
    assert!(matches!(&off, Claim::Off(why) if why.contains("no routine named hook")), "{off:?}");
    put(&*store, routine("hook")).await;
    let known = claim(&*store, routine_run("hook", "1")).await;
    store.enable(routine_id("hook"), false, "ann said so", None, at(2_000)).await.unwrap();
    let off = try_claim(&store, NewRoutineRun { by_hand: true, ..routine_run("hook", "2") }).await;
    assert!(matches!(&off, Claim::Off(why) if why.contains("ann said so")), "{off:?}");
    // What was claimed stays known, also when the routine is gone.
    assert_eq!(try_claim(&store, routine_run("hook", "1")).await, Claim::Known(Box::new(known.clone())));
    store.delete("hook", None).await.unwrap();
    assert_eq!(try_claim(&store, routine_run("hook", "1")).await, Claim::Known(Box::new(known)));
}

async fn a_routine_of_the_same_name_is_another_one(store: Store) {
    guarded(&store, scheduled("tick", 60_000), 600, 600, 1).await;
    let content = Some("c".to_owned());
    let old = claim(&*store, NewRoutineRun { content: content.clone(), ..on_time("tick", 60_000, 120_000) }).await;
    store.delete("tick", None).await.unwrap();
    let id = RoutineId::new();
    guarded(&store, NewRoutine { id, at: at(50_000), ..scheduled("tick", 60_000) }, 600, 600, 1).await;
    // Neither is the old routine run known, nor at work for it, nor is there a cooldown or the same content.
    let new = NewRoutineRun { routine_id: id, content, ..on_time("tick", 60_000, 120_000) };
    let claimed = claim(&*store, new.clone()).await;
    assert_eq!((claimed.routine_id, claimed.revision), (id, 1));
    assert_eq!(
        try_claim(&store, NewRoutineRun { id: RoutineRunId::new(), ..new }).await,
        Claim::Known(Box::new(claimed))
    );
    // Who has looked before fires neither.
    let late = try_claim(&store, on_time("tick", 120_000, 180_000)).await;
    assert!(matches!(late, Claim::Off(_)), "{late:?}");
    assert_eq!(try_claim(&store, on_time("tick", 60_000, 120_000)).await, Claim::Known(Box::new(old.clone())));
    store.miss(old.routine_id, vec![at(180_000)], Some(at(500_000)), at(180_000)).await.unwrap();
    assert_eq!(now(&store, "tick").await.next_at, Some(at(120_000)));
    // Nor does the end of the old one count.
    let settled = settle(&store, end(old.routine_run_id, RoutineRunStatus::Failed)).await;
    assert!(matches!(settled, Settled::Now { disabled: false, .. }), "{settled:?}");
    assert_eq!(now(&store, "tick").await.failures, 0);
    let filter = RoutineRunFilter { routine: Some("tick".into()), ..RoutineRunFilter::default() };
    assert_eq!(store.routine_runs(filter).await.unwrap().len(), 2, "by name both are found");
}

async fn what_was_claimed_lately_under_another_key_is_known_too(store: Store) {
    put(&*store, routine("hook")).await;
    let first = claim(&*store, fired_at(routine_run("hook", "span 1"), 59_000)).await;
    let again = |ms: i64| NewRoutineRun {
        echo: Some(Echo { key: "span 1".into(), since: at(ms - 59_999) }),
        ..fired_at(routine_run("hook", "span 2"), ms)
    };
    for ms in [61_000, 118_999] {
        assert_eq!(try_claim(&store, again(ms)).await, Claim::Known(Box::new(first.clone())), "{ms}");
    }
    let second = claim(&*store, again(119_000)).await;
    assert_eq!(try_claim(&store, again(61_000)).await, Claim::Known(Box::new(second)), "its own key first");
    put(&*store, routine("other")).await;
    claim(&*store, NewRoutineRun { routine_id: routine_id("other"), routine: "other".into(), ..again(61_000) }).await;
}

async fn a_routine_run_ends_once_and_tells_once(store: Store) {
    put(&*store, routine("hook")).await;
    let running = claim(&*store, routine_run("hook", "1")).await;
    let told_end = |text: &str| RoutineRunEnd {
        notice: Some(outbound(text, text)),
        disabled_notice: Some(outbound("off", "it is off")),
        told_in: Some(SessionNotice { session: "s".into(), text: text.into() }),
        ..end(running.routine_run_id, RoutineRunStatus::Attention)
    };
    let ended = RoutineRunRecord {
        status: RoutineRunStatus::Attention,
        summary: Some("there is a comet".into()),
        usage: RunUsage { input: 10, output: 5, model_calls: 1, tool_calls: 0, estimated_calls: 1 },
        cost_micro_usd: 7,
        ended_at: Some(at(3_000)),
        ..running.clone()
    };
    let first = settle(&store, told_end("first")).await;
    assert_eq!(first, Settled::Now { routine_run: Box::new(ended.clone()), disabled: false });
    assert_eq!(settle(&store, told_end("second")).await, Settled::Before);
    assert_eq!(settle(&store, end(RoutineRunId::new(), RoutineRunStatus::Ok)).await, Settled::Before);
    assert_eq!(store.routine_run(running.routine_run_id).await.unwrap(), Some(ended.clone()));
    assert_eq!(told(&*store).await, ["first"]);
    assert_eq!(texts(&open(&*store, "s").await.thread.messages), [Message::notice("first").text()]);
    assert_eq!(store.open_routine_runs(boot()).await.unwrap(), []);
    assert_eq!(
        facts(&*store, routine_run_session(running.routine_run_id)).await,
        [fired(&running), over(&ended, false)]
    );
    for status in [RoutineRunStatus::Running, RoutineRunStatus::Missed] {
        let refused = RoutineRunStore::settle(&*store, end(running.routine_run_id, status)).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    }
}

async fn what_is_skipped_tells_why_and_counts_for_nothing(store: Store) {
    put(&*store, scheduled("tick", 60_000)).await; // two failures
    assert!(!fire(&store, "tick", "1", RoutineRunStatus::Failed).await);
    let running = claim(&*store, routine_run("tick", "2")).await;
    let skipped = RoutineRunEnd {
        summary: Some("quiet_hours".into()),
        notice: None,
        ..end(running.routine_run_id, RoutineRunStatus::Skipped)
    };
    let Settled::Now { routine_run, disabled: false } = settle(&store, skipped).await else {
        panic!("it has ended now")
    };
    assert_eq!((routine_run.status, routine_run.summary.as_deref()), (RoutineRunStatus::Skipped, Some("quiet_hours")));
    assert_eq!(store.routine_run(routine_run.routine_run_id).await.unwrap().as_ref(), Some(&*routine_run));
    let why = EventKind::HeartbeatSkipped { routine_run: routine_run.routine_run_id, reason: "quiet_hours".into() };
    let told = facts(&*store, routine_run_session(routine_run.routine_run_id)).await;
    assert_eq!(told, [fired(&running), why, over(&routine_run, false)]);
    assert_eq!(now(&store, "tick").await.failures, 1, "neither a failure nor a success");
    assert!(fire(&store, "tick", "3", RoutineRunStatus::Failed).await, "the second in a row");
    let filter = RoutineRunFilter { status: Some(RoutineRunStatus::Skipped), ..RoutineRunFilter::default() };
    assert_eq!(store.routine_runs(filter).await.unwrap(), [*routine_run]);
}

/// Fires a routine and ends it so; returns whether that switched it off.
async fn fire(store: &Store, name: &str, key: &str, status: RoutineRunStatus) -> bool {
    let routine_run = claim(&**store, routine_run(name, key)).await.routine_run_id;
    let disabled_notice = Some(outbound(key, &format!("off after {key}")));
    match settle(store, RoutineRunEnd { disabled_notice, ..end(routine_run, status) }).await {
        Settled::Now { disabled, .. } => disabled,
        Settled::Before => panic!("it had ended"),
    }
}

async fn an_end_that_says_so_switches_its_routine_off_and_tells_it_once(store: Store) {
    put(&*store, scheduled("tick", 60_000)).await;
    let both = [claim(&*store, routine_run("tick", "1")).await, claim(&*store, routine_run("tick", "2")).await];
    // A change of the routine meanwhile keeps it from nothing.
    let mut changed = scheduled("tick", 60_000);
    changed.spec.description = "changed".into();
    put(&*store, changed).await;
    let before = store.changes().await.unwrap();
    let mut switched = Vec::new();
    for routine_run in both {
        let end = RoutineRunEnd {
            switch_off: Some("nobody is let in".into()),
            disabled_notice: Some(outbound(&routine_run.key, &format!("off after {}", routine_run.key))),
            ..end(routine_run.routine_run_id, RoutineRunStatus::Failed)
        };
        switched.push(matches!(settle(&store, end).await, Settled::Now { disabled: true, .. }));
    }
    assert_eq!(switched, [true, false]);
    let off = now(&store, "tick").await;
    assert_eq!((off.enabled, off.next_at, off.disabled_detail.as_str()), (false, None, "nobody is let in"));
    assert_eq!(told(&*store).await, ["off after 1"]);
    assert_ne!(store.changes().await.unwrap(), before);
}

async fn too_many_failures_in_a_row_switch_it_off(store: Store) {
    put(&*store, scheduled("tick", 60_000)).await; // two failures
    assert!(!fire(&store, "tick", "1", RoutineRunStatus::Failed).await);
    assert!(!fire(&store, "tick", "2", RoutineRunStatus::Ok).await);
    assert!(!fire(&store, "tick", "3", RoutineRunStatus::Failed).await);
    let late = claim(&*store, routine_run("tick", "late")).await.routine_run_id;
    assert!(fire(&store, "tick", "4", RoutineRunStatus::Failed).await);
    let off = now(&store, "tick").await;
    assert_eq!((off.enabled, off.next_at, off.failures, off.changed_at), (false, None, 2, at(3_000)));
    assert_eq!(off.disabled_detail, "it failed 2 times in a row, the last time: there is a comet");
    assert_eq!(told(&*store).await, ["off after 4"]);
    // One more failure does not switch off what is off.
    let more = settle(&store, end(late, RoutineRunStatus::Failed)).await;
    assert!(matches!(more, Settled::Now { disabled: false, .. }), "{more:?}");
    // Switched on, it may fail again before it is off.
    store.enable(routine_id("tick"), true, "", None, at(4_000)).await.unwrap();
    assert!(!fire(&store, "tick", "5", RoutineRunStatus::Failed).await);
    assert!(fire(&store, "tick", "6", RoutineRunStatus::Failed).await);

    // Where failures do not matter, they are counted all the same.
    let mut patient = routine("patient");
    patient.spec.guard.max_failures = 0;
    put(&*store, patient).await;
    for key in ["1", "2", "3"] {
        assert!(!fire(&store, "patient", key, RoutineRunStatus::Failed).await);
    }
    assert_eq!(now(&store, "patient").await.failures, 3);
}

async fn the_end_of_a_routine_run_from_before_a_change_counts_for_nothing(store: Store) {
    put(&*store, routine("hook")).await;
    let routine_runs = [claim(&*store, routine_run("hook", "1")).await, claim(&*store, routine_run("hook", "2")).await];
    let mut changed = routine("hook");
    changed.spec.description = "mended".into();
    put(&*store, changed).await;
    assert!(!fire(&store, "hook", "3", RoutineRunStatus::Failed).await);
    for routine_run in routine_runs {
        let settled = settle(&store, end(routine_run.routine_run_id, RoutineRunStatus::Failed)).await;
        assert!(matches!(settled, Settled::Now { disabled: false, .. }), "{settled:?}");
    }
    assert_eq!(now(&store, "hook").await.failures, 1);
}

async fn an_end_whose_notice_cannot_be_kept_is_not_made(store: Store) {
    put(&*store, routine("hook")).await;
    let running = claim(&*store, routine_run("hook", "1")).await;
    let notice = outbound("c", "told before");
    store.enqueue(notice.clone()).await.unwrap();
    let failed = RoutineRunEnd { notice: Some(notice), ..end(running.routine_run_id, RoutineRunStatus::Failed) };
    let refused = RoutineRunStore::settle(&*store, failed).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert_eq!(store.open_routine_runs(boot()).await.unwrap(), [running]);
    assert_eq!(now(&store, "hook").await.failures, 0);
}

async fn who_does_the_work_is_noted(store: Store) {
    put(&*store, routine("hook")).await;
    let routine_run = claim(&*store, routine_run("hook", "1")).await.routine_run_id;
    let (run, job) = (RunId::new(), JobId::new());
    store.note_work(routine_run, Some(run), None).await.unwrap();
    store.note_work(routine_run, None, Some(job)).await.unwrap();
    let noted = store.routine_run(routine_run).await.unwrap().unwrap();
    assert_eq!((noted.run_id, noted.job_id), (Some(run), Some(job)));
    let unknown = store.note_work(RoutineRunId::new(), Some(run), None).await;
    assert!(matches!(unknown, Err(StoreError::NotFound(_))), "{unknown:?}");
}

async fn routine_runs_are_listed_newest_first(store: Store) {
    put(&*store, routine("a")).await;
    put(&*store, routine("b")).await;
    let mut ids = Vec::new();
    for (name, key) in [("a", "1"), ("b", "1"), ("a", "2")] {
        ids.push(claim(&*store, routine_run(name, key)).await.routine_run_id);
    }
    settle(&store, end(ids[0], RoutineRunStatus::Ok)).await;
    let list = async |routine: Option<&str>, status, limit| {
        let filter =
            RoutineRunFilter { routine: routine.map(Into::into), status, limit, ..RoutineRunFilter::default() };
        let routine_runs = store.routine_runs(filter).await.unwrap();
        routine_runs.into_iter().map(|routine_run| routine_run.routine_run_id).collect::<Vec<_>>()
    };
    assert_eq!(list(None, None, 0).await, [ids[2], ids[1], ids[0]]);
    assert_eq!(list(None, None, 1).await, [ids[2]]);
    assert_eq!(list(Some("a"), None, 0).await, [ids[2], ids[0]]);
    assert_eq!(list(Some("a"), Some(RoutineRunStatus::Running), 0).await, [ids[2]]);
    assert_eq!(list(None, Some(RoutineRunStatus::Ok), 0).await, [ids[0]]);
    // Not those of another that had the name before.
    let mut fresh = routine("a");
    fresh.id = RoutineId::new();
    assert!(store.delete("a", None).await.unwrap());
    put(&*store, fresh.clone()).await;
    let new = claim(&*store, NewRoutineRun { routine_id: fresh.id, ..routine_run("a", "1") }).await.routine_run_id;
    let of_it =
        |id| RoutineRunFilter { routine: Some("a".into()), routine_ids: Some(vec![id]), ..RoutineRunFilter::default() };
    for (id, expected) in [(fresh.id, vec![new]), (routine_id("a"), vec![ids[2], ids[0]])] {
        let routine_runs = store.routine_runs(of_it(id)).await.unwrap();
        assert_eq!(routine_runs.iter().map(|routine_run| routine_run.routine_run_id).collect::<Vec<_>>(), expected);
    }
    assert_eq!(list(Some("a"), None, 0).await, [new, ids[2], ids[0]]);
    let open = store.open_routine_runs(boot()).await.unwrap();
    assert_eq!(
        open.iter().map(|routine_run| routine_run.routine_run_id).collect::<Vec<_>>(),
        [ids[1], ids[2], new],
        "oldest first"
    );
}

async fn old_routine_runs_go_with_their_facts_and_others_stay(store: Store) {
    put(&*store, routine("hook")).await;
    let old = claim(&*store, routine_run("hook", "old")).await.routine_run_id;
    let lease = open(&*store, routine_run_session(old).as_str()).await.lease;
    turn(&*store, &lease, "look").await;
    settle(&store, end(old, RoutineRunStatus::Ok)).await;
    let recognised = claim(&*store, fired_at(routine_run("hook", "recognised"), 2_700)).await.routine_run_id;
    settle(&store, end(recognised, RoutineRunStatus::Ok)).await;
    let open = claim(&*store, routine_run("hook", "open")).await.routine_run_id;
    let new = claim(&*store, routine_run("hook", "new")).await.routine_run_id;
    settle(&store, RoutineRunEnd { at: at(9_000), ..end(new, RoutineRunStatus::Ok) }).await;

    let age = Retention {
        threads_before: Some(at(5_000)),
        events_before: None,
        ended_routine_runs_before: None,
        ephemeral_before: None,
        keys_before: at(2_500),
    };
    let expected = store.prunable(age).await.unwrap();
    assert_eq!((expected.routine_runs, expected.sessions, expected.jobs), (1, 1, 0));
    let mut removed = Removed::default();
    loop {
        let piece = store.prune(age, 3).await.unwrap();
        if piece.is_nothing() {
            break;
        }
        removed.add(piece);
    }
    assert_eq!((removed.routine_runs, removed.sessions, removed.threads), (1, 1, 1));
    let left = store.routine_runs(RoutineRunFilter::default()).await.unwrap();
    assert_eq!(left.iter().map(|routine_run| routine_run.routine_run_id).collect::<Vec<_>>(), [new, open, recognised]);
    assert_eq!(facts(&*store, routine_run_session(old)).await, []);
    assert_eq!(facts(&*store, routine_run_session(recognised)).await.len(), 2);
    // Nothing recognises it any longer.
    claim(&*store, routine_run("hook", "old")).await;
}

async fn routine_runs_have_an_age_of_their_own_and_take_their_sessions_with_them(store: Store) {
    for name in ["hook", "tick"] {
        put(&*store, scheduled(name, 60_000)).await;
    }
    // With a session and without, by time and by a delivery, of now and of before, at work and ended.
    let mut ids = Vec::new();
    for (new, ended_at) in [
        (on_time("tick", 60_000, 120_000), Some(60_500)),
        (on_time("tick", 120_000, 180_000), Some(300_500)),
        (on_time("tick", 180_000, 240_000), None),
        (fired_at(routine_run("hook", "long ago"), 20_000), Some(20_500)),
        (fired_at(routine_run("hook", "before"), 60_000), Some(60_500)),
    ] {
        let new = claim(&*store, new).await;
        let lease = open(&*store, routine_run_session(new.routine_run_id).as_str()).await.lease;
        turn(&*store, &lease, "look").await;
        if let Some(ms) = ended_at {
            settle(&store, RoutineRunEnd { at: at(ms), ..end(new.routine_run_id, RoutineRunStatus::Ok) }).await;
        }
        ids.push(new.routine_run_id);
    }
    store.miss(routine_id("tick"), vec![at(240_000)], Some(at(300_000)), at(250_000)).await.unwrap();
    turn(&*store, &open(&*store, "ann").await.lease, "hello").await;

    let age = Retention {
        ended_routine_runs_before: Some(at(200_000)),
        ephemeral_before: None,
        keys_before: at(50_000),
        ..Retention::default() // conversations stay
    };
    let expected = store.prunable(age).await.unwrap();
    // Of what a delivery has set off the row stays, to recognise it; its words go.
    assert_eq!((expected.routine_runs, expected.sessions, expected.threads), (2, 3, 3), "{expected:?}");
    let mut removed = Removed::default();
    loop {
        let piece = store.prune(age, 3).await.unwrap();
        if piece.is_nothing() {
            break;
        }
        removed.add(piece);
    }
    assert_eq!((removed.routine_runs, removed.sessions, removed.threads), (2, 3, 3), "{removed:?}");
    let left: Vec<_> = store
        .routine_runs(RoutineRunFilter::default())
        .await
        .unwrap()
        .into_iter()
        .map(|routine_run| routine_run.routine_run_id)
        .collect();
    assert_eq!(left[1..], [ids[4], ids[2], ids[1]], "{left:?}");
    // What is gone is done all the same.
    let again = try_claim(&store, on_time("tick", 60_000, 120_000)).await;
    assert!(matches!(again, Claim::Off(_)), "{again:?}");
    let again = try_claim(&store, fired_at(routine_run("hook", "before"), 400_000)).await;
    assert!(matches!(again, Claim::Known(_)), "{again:?}");
    assert_eq!(
        store.sessions(SessionFilter::lasting(9)).await.unwrap().len(),
        3,
        "of the two that are kept, and ann's"
    );
}

async fn an_open_routine_run_belongs_to_the_last_start_that_asked(store: Store) {
    put(&*store, routine("hook")).await;
    let first = claim(&*store, routine_run("hook", "1")).await;
    let other = belay_protocol::BootId::new();
    for asking in [boot(), other, boot(), boot()] {
        assert_eq!(store.open_routine_runs(asking).await.unwrap(), std::slice::from_ref(&first));
    }
    // One of its own and one of an ended start, in their order.
    let own = claim(&*store, NewRoutineRun { boot: other, ..routine_run("hook", "2") }).await;
    assert_eq!(store.open_routine_runs(other).await.unwrap(), [first.clone(), own.clone()]);
    settle(&store, end(first.routine_run_id, RoutineRunStatus::Ok)).await;
    assert_eq!(store.open_routine_runs(other).await.unwrap(), [own]);
}
