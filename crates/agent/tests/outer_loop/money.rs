//! The cost guard through the agent: it refuses, it opens at midnight, and it remembers over restarts.

use std::collections::BTreeMap;
use std::time::Duration;

use belay_automation::JobsConfig;

use belay_protocol::{Ack, Control, ModelErrorKind, Price, Purpose, RunStatus, Spent, StopReason};
use belay_run::LimitsConfig;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::support::{Setup, end_of};

const NOON: i64 = 20_000 * 86_400_000 + 43_200_000;
const NEXT_DAY: i64 = 20_001 * 86_400_000;

/// One dollar for a million tokens either way: a request is estimated at a little over 1000
/// millionths (1000 output tokens), and a reservation is for the three requests that a call may take.
fn priced(script: Vec<Scripted>) -> ScriptedModel {
    let price = Price { input: 1_000_000, cached_input: None, output: 1_000_000 };
    ScriptedModel::new(script).with_info(|info| info.price = Some(price))
}

fn setup(limit_micro_usd: f64, script: Vec<Scripted>) -> Setup {
    let setup = Setup {
        limits: LimitsConfig { usd_per_day: Some(limit_micro_usd / 1e6), ..LimitsConfig::default() },
        ..Setup::new(priced(script))
    };
    setup.clock.set(NOON);
    setup
}

#[tokio::test(start_paused = true)]
async fn a_used_up_day_refuses_without_a_call_and_midnight_opens_it_without_a_restart() {
    let setup = setup(
        6000.0,
        vec![Scripted::text("one").with_usage(1000, 4500), Scripted::text("the next day").with_usage(10, 10)],
    );
    let mut agent = setup.start().await;
    let first = end_of(agent.one.accepted("alice", "hello").await).await;
    assert_eq!((first.status, first.cost_micro_usd), (RunStatus::Completed, 5500));
    assert_eq!(agent.one.next().await, "one");
    let refused = end_of(agent.one.accepted("alice", "more").await).await;
    assert_eq!((refused.reason, refused.usage.model_calls), (Some(StopReason::CostRefused), 0));
    assert_eq!(refused.evidence["spent_micro_usd"], 5500);
    assert_eq!(agent.one.next().await, StopReason::CostRefused.user_line());
    setup.clock.set(NEXT_DAY);
    assert_eq!(agent.one.ask("alice", "good morning").await, "the next day");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn calls_side_by_side_cannot_pass_together_what_only_one_may() {
    let setup = setup(2000.0, vec![Scripted::hang()]);
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "hello").await;
    agent.asked(1).await;
    let second = end_of(agent.two.accepted("bob", "hello").await).await;
    assert_eq!(second.reason, Some(StopReason::CostRefused));
    agent.two.next().await;
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_no_usage_was_reported_for_is_estimated_and_a_crash_charges_the_whole_reservation() {
    let setup = setup(4000.0, vec![Scripted::text("no usage")]);
    let mut agent = setup.start().await;
    let record = end_of(agent.one.accepted("alice", "hello").await).await;
    assert!((10..900).contains(&record.cost_micro_usd), "{}", record.cost_micro_usd);
    assert_eq!(record.usage.estimated_calls, 1);
    agent.one.next().await;
    agent.shut_down().await;

    // A crash during a call: the reservation was stored and counts.
    let next = setup.next_boot(priced(vec![Scripted::hang()]));
    let agent = next.start().await;
    agent.one.accepted("alice", "again").await;
    agent.asked(1).await;
    agent.crash().await;

    let next = setup.next_boot(priced(vec![]));
    let mut agent = next.start().await;
    assert_eq!(agent.one.next().await, StopReason::CostRefused.user_line(), "the run is taken up and refused");
    agent.shut_down().await;
}

async fn today(setup: &Setup) -> Spent {
    setup.store.spend.spent(NOON / 86_400_000).await.expect("readable")
}

/// A job spends what jobs may cost, with all that it has others do, and people's own messages go on.
#[tokio::test(start_paused = true)]
async fn what_calls_are_for_has_a_budget_of_its_own() {
    let spawn = Scripted::call("spawn_subagent", json!({"task": "count"})).with_usage(100, 200);
    let counted = Scripted::text("two").with_usage(100, 300);
    let finished =
        Scripted::call("terminate", json!({"status": "success", "summary": "two rooms"})).with_usage(100, 900);
    let mut setup = setup(100_000.0, vec![spawn, counted, finished, Scripted::text("hello").with_usage(10, 20)]);
    setup.jobs = JobsConfig::default();
    // Three calls, each reserved with about 1500, fit as long as no more than 5000 are spent; a fourth does not.
    setup.limits.usd_per_day_for = BTreeMap::from([(Purpose::Job, 0.005)]);
    let mut agent = setup.start().await;
    agent.one.command("alice", "/job count the rooms").await;
    assert!(agent.one.next().await.ends_with("two rooms"));
    assert_eq!(today(&setup).await.each().collect::<Vec<_>>(), [(Purpose::Job, 1700)]);

    let Ack::Status(status) = agent.one.control(Control::Status).await else { panic!("no status") };
    assert_eq!(status.spent_today_for.of(Purpose::Job), 1700);
    assert_eq!(status.limit_today_for, BTreeMap::from([(Purpose::Job, 5000)]));
    assert_eq!(agent.one.ask("alice", "hello?").await, "hello");
    let told = agent.one.command("alice", "/status").await;
    assert!(told.contains("Spent today: 0.0017 of 0.10") && told.contains("For jobs: 0.0017 of 0.01"), "{told}");
    assert!(
        told.contains("\nThis conversation and its newest run: context ") && told.contains(" · 30 tokens"),
        "{told}"
    );
    agent.shut_down().await;

    let mut next = setup.next_boot(priced(vec![Scripted::text("still here").with_usage(10, 20)]));
    next.limits.usd_per_day_for = BTreeMap::from([(Purpose::Job, 0.002)]);
    let mut agent = next.start().await;
    agent.one.command("alice", "/job count the halls").await;
    let refused = agent.one.next().await;
    assert!(refused.contains("today's model budget") && refused.contains("(limits.usd_per_day_for.job)"), "{refused}");
    assert_eq!(agent.one.ask("alice", "and you?").await, "still here");
    let spent = today(&next).await;
    assert_eq!((spent.of(Purpose::Job), spent.of(Purpose::Chat)), (1700, 60));
    agent.shut_down().await;
}

/// The day's limit is over all: what jobs have spent is missing for people.
#[tokio::test(start_paused = true)]
async fn the_days_limit_holds_for_all_together() {
    let finished = Scripted::call("terminate", json!({"status": "success", "summary": "done"})).with_usage(1000, 4500);
    let mut setup = setup(6000.0, vec![finished]);
    setup.jobs = JobsConfig::default();
    let mut agent = setup.start().await;
    agent.one.command("alice", "/job work").await;
    assert!(agent.one.next().await.ends_with("done"));
    let refused = end_of(agent.one.accepted("alice", "hello").await).await;
    assert_eq!(refused.reason, Some(StopReason::CostRefused));
    assert_eq!(refused.evidence["budget"], "limits.usd_per_day");
    agent.shut_down().await;
}

/// A request is reserved with more than 1000 millionths, three of them: what was streamed of it costs far less.
#[tokio::test(start_paused = true)]
async fn a_stopped_or_broken_call_is_charged_its_input_and_what_was_streamed() {
    let said = || ["y".repeat(200), "z".repeat(200)];
    let broken = Scripted::error(ModelErrorKind::Network).after_pieces(said());
    for (name, script, stop, reason) in [
        ("stopped", Scripted::hang().after_pieces(said()), true, StopReason::UserStop),
        ("stopped before a word", Scripted::hang(), true, StopReason::UserStop),
        ("broken", broken, false, StopReason::Network),
    ] {
        let streamed: u64 = if name == "stopped before a word" { 0 } else { 100 };
        let setup = setup(100_000.0, vec![script]);
        let mut agent = setup.start().await;
        let run = agent.one.accepted("alice", &"x".repeat(4000)).await;
        agent.asked(1).await;
        if stop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            agent.one.command("alice", "/stop").await;
        }
        let record = end_of(run).await;
        assert_eq!((record.reason, record.usage.model_calls), (Some(reason), 1), "{name}: {record:?}");
        // 4000 characters are about 1000 tokens, and a third more is assumed.
        let (read, generated) = (record.usage.input, record.usage.output);
        assert!((1300..2600).contains(&read), "{name}: the whole input, as estimated: {record:?}");
        assert_eq!((generated, record.cost_micro_usd), (streamed, read + streamed), "{name}: {record:?}");
        assert_eq!(record.usage.estimated_calls, 1, "{name} is marked as an estimate");
        assert_eq!(today(&setup).await.total(), record.cost_micro_usd, "{name}: the day is charged the same");
        agent.shut_down().await;
    }
}

/// Only a request that is under way has cost something; the one before the pause was refused.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_stopped_in_the_pause_between_two_requests_is_charged_nothing() {
    let setup = setup(100_000.0, vec![Scripted::pausing()]);
    let mut agent = setup.start().await;
    let run = agent.one.accepted("alice", &"x".repeat(4000)).await;
    agent.asked(1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    agent.one.command("alice", "/stop").await;
    let record = end_of(run).await;
    assert_eq!((record.reason, record.cost_micro_usd), (Some(StopReason::UserStop), 0), "{record:?}");
    assert_eq!((record.usage.model_calls, record.usage.estimated_calls), (1, 0), "it was sent, and failed: {record:?}");
    assert_eq!((record.usage.input, record.usage.output), (0, 0), "{record:?}");
    assert_eq!(today(&setup).await.total(), 0);
    agent.shut_down().await;
}

/// The reservation is made before the call, so that the day's limit holds whatever the call comes to.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_under_way_holds_its_reservation_until_it_is_settled() {
    let setup =
        setup(3000.0, vec![Scripted::hang().after_pieces(["y".repeat(40)]), Scripted::text("now").with_usage(1, 1)]);
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "hello").await;
    agent.asked(1).await;
    let refused = end_of(agent.two.accepted("bob", "hello").await).await;
    assert_eq!(refused.reason, Some(StopReason::CostRefused));
    agent.two.next().await;
    agent.one.command("alice", "/stop").await;
    assert_eq!(agent.two.ask("bob", "hello again").await, "now", "what was not used is free again");
    agent.shut_down().await;
}
