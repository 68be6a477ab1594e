//! What users of schedulers have suffered from most, what a routine may be badly asked for, and what jobs and routines had to
//! show before they were done; and the tests of each. A name without a module is a test of this file.
//!
//! | pain | proved by |
//! |---|---|
//! | a time is skipped | `night::after_a_night_of_crashes_each_routine_run_was_done_once_or_has_honestly_failed`, `misfire_tests::times_denser_than_the_ticks_all_fire_under_every_policy` |
//! | a time fires twice, also from two daemons | `routines::a_schedule_fires_each_time_once_also_where_two_engines_share_a_store`, `routines::a_claim_whose_answer_is_lost_fires_once_and_the_engine_goes_on` |
//! | nothing fires any more after a change or an upgrade | `a_changed_schedule_fires_at_its_new_times_and_at_no_old_one`, `the_same_put_again_right_before_its_time_skips_nothing`, `routines::routines_of_the_configuration_are_put_at_each_start_and_switched_off_when_they_are_gone` |
//! | one error ends the timer for ever | `a_store_that_fails_for_an_hour_ends_no_timer`, `routines::a_claim_whose_answer_is_lost_fires_once_and_the_engine_goes_on` |
//! | nothing fires, or twice, where clocks are changed; the search for the next time never ends | `transition_tests::every_change_of_every_zone_in_two_years_is_kept_by_the_rule`, `transition_tests::a_daily_time_fires_once_for_each_day_of_the_calendar_in_every_zone`, `schedule_tests::no_text_does_harm` |
//! | a clock jumps by an hour or a day, forward or back | `a_clock_that_jumps_by_an_hour_or_a_day_either_way_fires_no_time_twice_and_loses_none`, `routines::a_clock_that_jumps_fires_by_the_policy_and_no_time_twice` |
//! | it begins again while it is at work | `what_is_still_at_work_is_not_begun_a_second_time` |
//! | everything begins at the top of the hour | `a_herd_at_the_top_of_the_hour_fires_whole_and_never_more_at_once_than_may` |
//! | times that passed while it was down are lost, or all played back | `what_passed_while_it_was_down_is_settled_by_the_policy_of_each` |
//! | a date for once comes again and again, or never | `a_date_for_once_fires_once_whether_it_fails_is_missed_or_the_daemon_dies`, `misfire_tests::a_date_that_was_missed_fires_once_or_is_passed_over` |
//! | the wrong time zone | `schedule_tests::fixed_times_fire_once_where_clocks_are_changed`, `routines::people_make_and_see_their_own_routines_and_operators_all` |
//! | told in the wrong place, or twice | `routines::nothing_to_report_is_silent_and_other_words_are_told`, `routines::a_routine_run_that_was_done_and_not_settled_is_settled_by_the_next_start_and_told_once` |
//! | a restart drops what was routine run | `routines::a_routine_run_is_led_on_by_the_next_start_wherever_a_crash_has_left_it`, `routines::a_routine_run_that_is_at_work_at_the_end_of_the_daemon_goes_on_with_the_next_start`, `routines::the_first_message_after_a_start_sets_off_what_waits_for_it` |
//! | 30 February, and other days that never come | `schedule_tests::what_is_no_schedule_is_refused_with_the_forms_that_are`, `spec_tests::each_thing_that_is_wrong_names_its_field` |
//! | a zone that nobody knows | `schedule_tests::an_unknown_zone_is_refused_with_the_nearest_names` |
//! | a pattern that explodes | `a_pattern_that_explodes_elsewhere_is_answered_at_once`, `routines::everything_that_is_wrong_with_a_routine_is_said_at_once` |
//! | a webhook without, with a wrong, or with a replayed secret | `hooks::a_call_that_proves_nothing_or_cannot_be_used_is_refused`, `hooks::a_second_delivery_is_answered_with_the_same_routine_run`, `routines::webhooks_cool_down_and_the_same_content_or_delivery_fires_once` |
//! | more jobs at work than may be, or a place that is not given back | `jobs::places_are_exact_under_a_burst_and_a_finished_job_frees_its_own_at_once`, `jobs::one_person_leaves_places_to_others` |
//! | a job leaves a state for one that it may not come to | `job::a_job_moves_along_the_table_and_nowhere_else` |
//! | a job asks for more than any may use | `config::what_a_job_asks_for_is_brought_within_what_any_job_may_use` |
//! | a job is called stuck while it works, or called recovered and never runs again | `jobs::a_job_that_gets_on_is_never_touched_however_long_it_takes`, `jobs::a_stuck_job_really_runs_again_from_where_it_was`, `jobs::a_job_that_hangs_again_and_again_has_failed_with_one_notice` |
//! | a job without steps left, or whose model limits it without end, is a success | `jobs::a_job_that_gives_up_or_uses_up_its_steps_has_failed_with_what_it_had`, `jobs::a_job_waits_for_a_model_that_limits_it_and_fails_when_that_does_not_end` |
//! | nothing to report is reported, and an empty answer is a report | `routines::nothing_to_report_is_silent_and_other_words_are_told`, `routines::an_empty_answer_is_asked_for_twice_more_and_then_a_failure` |
//! | a burst passes the guardrails | `routines::a_burst_keeps_to_every_guardrail` |
//! | a message sets off what is somebody else's, or is answered besides | `routines::a_message_of_its_owner_sets_it_off_once_and_is_not_answered_otherwise`, `spec_tests::a_message_sets_off_what_its_owner_made_through_the_channel_that_it_names` |
//! | after a crash nobody looks after the job of a routine run | `routines::a_full_job_is_the_routine_runs_work_until_it_is_over_also_over_a_crash` |
//! | it is late where there are many | `of_ten_thousand_routines_ninety_nine_in_a_hundred_fire_within_200_ms` |

use std::sync::Arc;
use std::time::Duration;

use belay_automation::RoutinesConfig;
use belay_protocol::{
    Ack, Clock, Misfire, ModelErrorKind, NewRoutine, PutBy, PutRule, RoutineOrigin, RoutineRequest, RoutineRunRecord,
    RoutineRunStatus, RoutineSpec, Trigger, UnixMillis,
};
use belay_store::SqlStore;
use belay_testkit::faulty::{Fault, Faulty, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use tokio::time::sleep;

use crate::routines::{
    A_TICK, HOUR, TEN_PAST, ask, at_ten_past, ended, hourly, put, routine, routine_runs, setup_with, statuses,
};
use crate::support::{PATIENCE, Setup, ports};

const HOUR_MS: i64 = 3_600_000;

/// A model that has nothing to report.
fn quiet() -> ScriptedModel {
    ScriptedModel::new([]).then_forever(Scripted::text("ROUTINE_OK"))
}

fn scheduled(name: &str, when: &str, misfire: Misfire) -> RoutineSpec {
    routine(name, Trigger::Schedule { when: when.into(), zone: "UTC".into(), misfire })
}

/// The scheduled times of routine runs with one of these ends, in minutes after the full hour before [`TEN_PAST`].
fn minutes(routine_runs: &[RoutineRunRecord], of: &[RoutineRunStatus]) -> Vec<i64> {
    let of = routine_runs.iter().filter(|routine_run| of.contains(&routine_run.status));
    of.filter_map(|routine_run| Some((routine_run.scheduled_at?.0 - (TEN_PAST - 600_000)) / 60_000)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_changed_schedule_fires_at_its_new_times_and_at_no_old_one() {
    let setup = at_ten_past(quiet());
    let agent = setup.start().await;
    put(&agent, scheduled("watch", "20 * * * *", Misfire::Once)).await;
    setup.clock.set(TEN_PAST + 5 * 60_000);
    let spec = scheduled("watch", "40 * * * *", Misfire::Once);
    ask(&agent, RoutineRequest::Put { spec, fresh: false }).await.expect("changed");
    for hour in 0..3 {
        setup.clock.set(TEN_PAST + hour * HOUR_MS + 31 * 60_000);
        ended(&setup, "watch", usize::try_from(hour + 1).expect("few")).await;
    }
    sleep(A_TICK).await;
    let all = routine_runs(&setup, "watch").await;
    assert_eq!(minutes(&all, &[RoutineRunStatus::Ok]), [40, 100, 160]);
    assert_eq!(all.len(), 3, "and nothing was missed: {all:#?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_same_put_again_right_before_its_time_skips_nothing() {
    let setup = at_ten_past(quiet());
    let agent = setup.start().await;
    for when in ["20 * * * *", "every 10m"] {
        put(&agent, scheduled(&when[..2].replace("20", "cron").replace("ev", "every"), when, Misfire::Once)).await;
    }
    for time in 1..=3 {
        setup.clock.set(TEN_PAST + time * 600_000 - 1);
        for (name, when) in [("cron", "20 * * * *"), ("every", "every 10m")] {
            let spec = scheduled(name, when, Misfire::Once);
            ask(&agent, RoutineRequest::Put { spec, fresh: false }).await.expect("the same");
        }
        setup.clock.set(TEN_PAST + time * 600_000);
        ended(&setup, "every", usize::try_from(time).expect("few")).await;
    }
    ended(&setup, "cron", 1).await;
    assert_eq!(minutes(&routine_runs(&setup, "every").await, &[RoutineRunStatus::Ok]), [20, 30, 40]);
    assert_eq!(minutes(&routine_runs(&setup, "cron").await, &[RoutineRunStatus::Ok]), [20]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_an_hour_ends_no_timer() {
    for op in [StoreOp::DueRoutines, StoreOp::ClaimRoutineRun, StoreOp::RoutineChanges, StoreOp::ListRoutines] {
        let store = Faulty::new(Arc::new(SqlStore::in_memory().unwrap()));
        let setup = Setup { store: ports(Arc::new(store.clone())), ..at_ten_past(quiet()) };
        let agent = setup.start().await;
        put(&agent, hourly("watch", Misfire::Once)).await;
        store.plan().every(op, Fault::Fail);
        setup.clock.set(TEN_PAST + 50 * 60_000);
        sleep(HOUR).await;
        store.plan().clear();
        let first = ended(&setup, "watch", 1).await;
        assert_eq!(statuses(&first), [RoutineRunStatus::Ok], "{op:?}: it fires once the store answers");
        setup.clock.forward(HOUR);
        assert_eq!(statuses(&ended(&setup, "watch", 2).await), [RoutineRunStatus::Ok; 2], "{op:?}: and again");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_by_an_hour_or_a_day_either_way_fires_no_time_twice_and_loses_none() {
    for hours in [1, 24, -1, -24] {
        let setup = at_ten_past(quiet());
        let agent = setup.start().await;
        put(&agent, hourly("watch", Misfire::All(100))).await;
        setup.clock.forward(HOUR);
        ended(&setup, "watch", 1).await;
        setup.clock.set(TEN_PAST + HOUR_MS + hours * HOUR_MS);
        sleep(2 * A_TICK).await;
        // Until two hours past the latest time that the clock has shown.
        let last = TEN_PAST + HOUR_MS + hours.max(0) * HOUR_MS + 2 * HOUR_MS;
        while setup.clock.now().0 < last {
            setup.clock.forward(HOUR);
            sleep(2 * A_TICK).await;
        }
        let times = usize::try_from(1 + hours.max(0) + 2).expect("few");
        let all = ended(&setup, "watch", times).await;
        let expected: Vec<i64> = (1..).take(times).map(|hour| hour * 60).collect();
        assert_eq!(minutes(&all, &[RoutineRunStatus::Ok]), expected, "a jump by {hours} hours");
        assert_eq!(all.len(), times, "a jump by {hours} hours: {all:#?}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_still_at_work_is_not_begun_a_second_time() {
    let slow = Scripted::text("ROUTINE_OK").after(Duration::from_secs(100));
    let setup = at_ten_past(ScriptedModel::new([slow]).then_forever(Scripted::text("ROUTINE_OK")));
    let agent = setup.start().await;
    put(&agent, scheduled("watch", "* * * * *", Misfire::Once)).await;
    setup.clock.set(TEN_PAST + 60_000);
    agent.asked(1).await;
    setup.clock.set(TEN_PAST + 120_000);
    let all = ended(&setup, "watch", 1).await;
    let held = all.iter().find(|routine_run| routine_run.ended_at.is_some()).expect("one has ended");
    assert_eq!((held.status, held.summary.as_deref()), (RoutineRunStatus::Missed, Some("max_concurrent")));
    sleep(Duration::from_secs(110)).await;
    setup.clock.set(TEN_PAST + 180_000);
    let all = ended(&setup, "watch", 3).await;
    assert_eq!(statuses(&all), [RoutineRunStatus::Ok, RoutineRunStatus::Missed, RoutineRunStatus::Ok]);
    assert_eq!(agent.model.seen().len(), 2);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_herd_at_the_top_of_the_hour_fires_whole_and_never_more_at_once_than_may() {
    const HERD: usize = 300;
    let model = ScriptedModel::new([]).then_forever(Scripted::text("ROUTINE_OK").after(Duration::from_secs(1)));
    let config = RoutinesConfig { max_concurrent: 10, max_per_person: 1000, ..RoutinesConfig::default() };
    let setup = Setup { routines: config, ..at_ten_past(model) };
    let agent = setup.start().await;
    for n in 0..HERD {
        put(&agent, hourly(&format!("r{n}"), Misfire::Skip)).await;
    }
    setup.clock.set(TEN_PAST + 50 * 60_000);
    let whole = async {
        loop {
            let at_work = setup.store.routines.numbers().await.expect("readable").running;
            assert!(at_work <= 10, "{at_work} at once");
            let next = setup.store.schedule.due(setup.clock.now(), 1).await.expect("readable");
            if next.is_empty() && at_work == 0 {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, whole).await.expect("the herd passes");
    for n in 0..HERD {
        assert_eq!(statuses(&routine_runs(&setup, &format!("r{n}")).await), [RoutineRunStatus::Ok], "r{n}");
    }
    assert_eq!(agent.model.seen().len(), HERD);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_passed_while_it_was_down_is_settled_by_the_policy_of_each() {
    let policies = [("skip", Misfire::Skip), ("once", Misfire::Once), ("two", Misfire::All(2))];
    let setup = at_ten_past(quiet());
    let agent = setup.start().await;
    for (name, misfire) in policies {
        put(&agent, hourly(name, misfire)).await;
    }
    agent.crash().await;
    setup.clock.forward(5 * HOUR);
    let agent = setup.next_boot(quiet()).start().await;
    for _ in 0..8 {
        // What is late anyway may be laid aside for a minute.
        setup.clock.forward(A_TICK);
        sleep(A_TICK).await;
    }
    for ((name, _), fired) in policies.into_iter().zip([&[][..], &[300], &[240, 300]]) {
        let all = ended(&setup, name, 5).await;
        assert_eq!(minutes(&all, &[RoutineRunStatus::Ok]), fired, "{name}");
        let missed: Vec<i64> = (1..=5).map(|hour| hour * 60).filter(|time| !fired.contains(time)).collect();
        assert_eq!(minutes(&all, &[RoutineRunStatus::Missed]), missed, "{name}");
    }
    setup.clock.set(TEN_PAST - 600_000 + 6 * HOUR_MS);
    for (name, _) in policies {
        let all = ended(&setup, name, 6).await;
        assert_eq!(minutes(&all, &[RoutineRunStatus::Ok]).last(), Some(&360), "{name} goes on");
    }
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_date_for_once_fires_once_whether_it_fails_is_missed_or_the_daemon_dies() {
    let refuses = || ScriptedModel::new([]).then_forever(Scripted::error(ModelErrorKind::BadRequest));
    let setup = at_ten_past(refuses());
    let agent = setup.start().await;
    put(&agent, scheduled("fails", "in 1m", Misfire::Once)).await;
    setup.clock.forward(Duration::from_secs(60));
    ended(&setup, "fails", 1).await;
    put(&agent, scheduled("missed", "in 1h", Misfire::Once)).await;
    agent.crash().await;
    setup.clock.forward(3 * HOUR);
    let agent = setup.next_boot(ScriptedModel::new([]).then_forever(Scripted::hang())).start().await;
    agent.asked(1).await;
    agent.crash().await;
    for _ in 0..2 {
        setup.clock.forward(24 * HOUR);
        let agent = setup.next_boot(quiet()).start().await;
        ended(&setup, "missed", 1).await;
        sleep(2 * A_TICK).await;
        agent.crash().await;
    }
    for (name, expected) in [("fails", RoutineRunStatus::Failed), ("missed", RoutineRunStatus::Ok)] {
        assert_eq!(statuses(&routine_runs(&setup, name).await), [expected], "{name}");
        assert_eq!(setup.store.routines.routine(name).await.expect("readable").expect("kept").next_at, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pattern_that_explodes_elsewhere_is_answered_at_once() {
    let setup = setup_with(ScriptedModel::new([]).then_forever(Scripted::text("hello")));
    let mut agent = setup.start().await;
    for (n, pattern) in [r"^(a+)+$", r"(a|a)*b", r"(.*a){20}c", r"^(([a-z])+.)+[A-Z]$"].into_iter().enumerate() {
        put(&agent, routine(&format!("r{n}"), Trigger::Event { pattern: pattern.into(), channel: None })).await;
    }
    // A search that goes back over its steps would not end in the life of anybody who waits for this test.
    let text = format!("{}!", "a".repeat(15_000));
    assert_eq!(agent.one.ask("alice", &text).await, "hello");
    let set_off = agent.one.text("alice", "aaaa").await;
    assert!(matches!(&set_off, Ack::Command(reply) if reply.reply == "Routine r0 has started."), "{set_off:?}");
    agent.shut_down().await;
}

/// As many schedules as a store is to carry, spread over ten minutes so that seventeen fire in each second, and the clock of
/// dates goes as paused time does.
#[tokio::test(start_paused = true)]
async fn of_ten_thousand_routines_ninety_nine_in_a_hundred_fire_within_200_ms() {
    const ROUTINES: i64 = 10_000;
    const SPREAD_MS: i64 = 600_000;
    /// Those of the first minute are looked at.
    const LOOKED_AT: i64 = ROUTINES * 60_000 / SPREAD_MS;
    let config = RoutinesConfig { max_concurrent: 100, ..RoutinesConfig::default() };
    let setup = Setup { routines: config, ..at_ten_past(quiet()) };
    let clock = Arc::new(PausedClock { began: tokio::time::Instant::now(), at: TEN_PAST });
    let rule = PutRule { fresh: true, by: PutBy::Config };
    for n in 0..ROUTINES {
        let at = UnixMillis(TEN_PAST + 60_000 + n * SPREAD_MS / ROUTINES);
        let new = NewRoutine {
            id: Default::default(),
            spec: scheduled(&format!("r{n}"), &format!("at {}", at.to_rfc3339()), Misfire::Skip),
            creator: Default::default(),
            channel: "one".into(),
            made_in: "test".into(),
            reply_to: None,
            origin: RoutineOrigin::Made,
            next_at: Some(at),
            at: UnixMillis(TEN_PAST),
        };
        setup.store.routine_store.put(new, rule).await.expect("stored");
    }
    let agent = setup.start_with(|parts| parts.clock = clock.clone()).await;
    let end = UnixMillis(TEN_PAST + 60_000 + LOOKED_AT * SPREAD_MS / ROUTINES);
    tokio::time::sleep_until(clock.began + Duration::from_millis((end.0 - TEN_PAST).unsigned_abs())).await;
    let mut late = Vec::new();
    for n in 0..LOOKED_AT {
        let all = ended(&setup, &format!("r{n}"), 1).await;
        assert_eq!(statuses(&all), [RoutineRunStatus::Ok], "r{n}");
        late.push(all[0].claimed_at.0 - all[0].scheduled_at.expect("scheduled").0);
    }
    late.sort_unstable();
    let p99 = late[late.len() * 99 / 100];
    assert!((0..=200).contains(&p99), "the latest hundredth is {p99} ms late or more");
    agent.shut_down().await;
}

/// Tells the date that paused time has come to.
struct PausedClock {
    began: tokio::time::Instant,
    at: i64,
}

impl Clock for PausedClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.at + i64::try_from(self.began.elapsed().as_millis()).expect("in range"))
    }
}
