//! Rules that are swapped while the agent runs: what they change, and for whom.

use std::sync::atomic::Ordering;

use belay_run::ApprovalsConfig;

use belay_run::LimitsConfig;

use belay_automation::RoutinesConfig;

use belay_agent::Rules;
use belay_protocol::{Price, RunStatus, StopReason, ToolStatus};
use belay_testkit::faulty::{Fault, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::support::{Setup, TestTool, end_of, faulty, rest_of, rules};

/// The rules of a setup, to be changed.
fn same(setup: &Setup) -> Rules {
    Rules {
        stops: setup.rules.clone(),
        limits: setup.limits.clone(),
        approvals: setup.approvals.clone(),
        routines: setup.routines.define.clone(),
    }
}

fn approvals(rules: &str) -> ApprovalsConfig {
    toml::from_str(rules).expect("approval rules")
}

#[tokio::test(start_paused = true)]
async fn an_approval_rule_holds_from_the_next_call_on_also_in_a_run_that_is_under_way() {
    let bell = TestTool::named("echo").called("ring").asking();
    let rung = bell.calls.clone();
    let ring = || Scripted::call("ring", json!({ "text": "noon" }));
    let model = ScriptedModel::new([ring(), ring(), Scripted::text("done")]);
    let setup = Setup::new(model).tool(bell);
    let mut agent = setup.start().await;
    let mut accepted = agent.one.accepted("alice", "ring twice").await;
    agent.one.next().await;
    rest_of(&mut accepted).await;
    let refuse = approvals("[[rules]]\ntool = \"ring\"\nask = \"refuse\"\n");
    agent.reloader.apply(Rules { approvals: refuse, ..same(&setup) }, || ()).await.expect("applied");
    agent.one.text("alice", "yes").await;
    agent.one.next().await;
    assert_eq!(agent.one.next().await, "done");
    assert_eq!(end_of(accepted).await.status, RunStatus::Completed);
    assert_eq!(rung.load(Ordering::SeqCst), 0, "what is refused now is not done by an older yes");
    let seen = agent.model.seen();
    let last = seen.last().expect("asked");
    let statuses: Vec<ToolStatus> = last
        .messages
        .iter()
        .filter_map(|message| match &message.body {
            belay_protocol::MessageBody::Tool(result) => Some(result.status),
            _ => None,
        })
        .collect();
    assert_eq!(statuses, [ToolStatus::Denied; 2]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_under_way_keeps_the_stop_rules_it_began_with_and_the_next_one_has_the_new() {
    let look = || Scripted::call("slow", json!({}));
    let script = [look(), look(), Scripted::text("first"), look(), look(), Scripted::text("second")];
    let setup = Setup::new(ScriptedModel::new(script)).tool(TestTool::named("slow"));
    let mut agent = setup.start().await;
    let first = agent.one.accepted("alice", "look around").await;
    agent.asked(1).await;
    let one_call = rules("[limits]\ntool_calls = 1\n");
    agent.reloader.apply(Rules { stops: one_call, ..same(&setup) }, || ()).await.expect("applied");
    assert_eq!(agent.one.next().await, "first");
    assert_eq!(end_of(first).await.status, RunStatus::Completed);
    let second = end_of(agent.one.accepted("bob", "look around").await).await;
    assert_eq!((second.status, second.usage.tool_calls), (RunStatus::Stopped, 1), "{second:?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_the_day_counts_from_the_next_call_on() {
    let price = Price { input: 1_000_000, cached_input: None, output: 1_000_000 };
    let script = vec![Scripted::text("one").with_usage(10, 10), Scripted::text("two").with_usage(10, 10)];
    let setup = Setup::new(ScriptedModel::new(script).with_info(|info| info.price = Some(price)));
    let mut agent = setup.start().await;
    assert_eq!(agent.one.ask("alice", "hello").await, "one");
    let poor = LimitsConfig { usd_per_day: Some(0.00001), ..LimitsConfig::default() };
    agent.reloader.apply(Rules { limits: poor, ..same(&setup) }, || ()).await.expect("applied");
    let refused = end_of(agent.one.accepted("alice", "more").await).await;
    assert_eq!((refused.reason, refused.usage.model_calls), (Some(StopReason::CostRefused), 0));
    agent.one.next().await;
    agent.reloader.apply(same(&setup), || ()).await.expect("applied");
    assert_eq!(agent.one.ask("alice", "and now").await, "two");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn routines_of_the_configuration_come_and_go_with_a_reload() {
    let config: RoutinesConfig = toml::from_str(
        "[[define]]\nname = \"watch\"\ntrigger = { kind = \"schedule\", when = \"every 2h\" }\naction = { mode = \"lightweight\", prompt = \"Look.\" }\n",
    )
    .expect("a routine");
    let setup = Setup { routines: RoutinesConfig::default(), ..Setup::new(ScriptedModel::new([])) };
    let agent = setup.start().await;
    let read = async || setup.store.routines.routine("watch").await.expect("readable");
    assert!(read().await.is_none());
    agent.reloader.apply(Rules { routines: config.define.clone(), ..same(&setup) }, || ()).await.expect("applied");
    let put = read().await.expect("it is there");
    assert!(put.enabled && put.next_at.is_some(), "{put:?}");
    agent.reloader.apply(same(&setup), || ()).await.expect("applied");
    assert!(!read().await.expect("kept").enabled, "it is switched off");
    agent.reloader.apply(Rules { routines: config.define, ..same(&setup) }, || ()).await.expect("applied");
    assert!(read().await.expect("kept").enabled, "it is back");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn rules_that_come_with_routines_that_are_not_stored_change_nothing() {
    let price = Price { input: 1_000_000, cached_input: None, output: 1_000_000 };
    let script = vec![Scripted::text("one").with_usage(10, 10), Scripted::text("two").with_usage(10, 10)];
    let (setup, store) = faulty(ScriptedModel::new(script).with_info(|info| info.price = Some(price)));
    let setup = Setup { routines: RoutinesConfig::default(), ..setup };
    let mut agent = setup.start().await;
    let config: RoutinesConfig = toml::from_str(
        "[[define]]\nname = \"watch\"\ntrigger = { kind = \"schedule\", when = \"every 2h\" }\naction = { mode = \"lightweight\", prompt = \"Look.\" }\n",
    )
    .expect("a routine");
    let poor = || Rules {
        limits: LimitsConfig { usd_per_day: Some(0.00001), ..LimitsConfig::default() },
        routines: config.define.clone(),
        ..same(&setup)
    };
    let mut others = 0;
    store.plan().nth_of(StoreOp::PutRoutine, 1, Fault::Fail);
    agent.reloader.apply(poor(), || others += 1).await.expect_err("the store fails");
    assert_eq!(agent.one.ask("alice", "hello").await, "one", "the budget has not changed");
    agent.reloader.apply(poor(), || others += 1).await.expect("applied");
    let refused = end_of(agent.one.accepted("alice", "more").await).await;
    assert_eq!((refused.reason, others), (Some(StopReason::CostRefused), 1));
    agent.one.next().await;
    agent.shut_down().await;
}
