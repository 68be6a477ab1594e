//! The money of the day of the nodes: each of them shows that of all, and gives back what it does not need.

use std::sync::Arc;
use std::time::Duration;

use belay_agent::AgentParts;
use belay_protocol::{Ack, BootId, BudgetSlices, Clock, Control, Draw, Drawn, Price, RunStatus};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use tokio::time::sleep;

use crate::cluster::{Cluster, accepted, command};
use crate::support::TestClock;

/// One dollar for a million tokens either way, and a limit of one dollar a day.
fn priced(replies: Vec<Scripted>) -> impl FnOnce(&mut AgentParts) {
    let price = Price { input: 1_000_000, cached_input: None, output: 1_000_000 };
    move |parts| {
        parts.model = Arc::new(ScriptedModel::new(replies).with_info(|info| info.price = Some(price)));
        parts.limits.usd_per_day = Some(1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_status_of_each_node_has_the_money_of_all_nodes() {
    let cluster = Cluster::new();
    let replies = vec![Scripted::text("one").with_usage(1_000, 4_500)];
    let a = cluster.node_with("a", [], priced(replies)).await;
    let b = cluster.node_with("b", [], priced(vec![Scripted::text("two").with_usage(100, 400)])).await;
    let first = accepted(&a.agent.one, "first").await.run_id;
    cluster.run(first, RunStatus::Completed).await;
    let second = accepted(&b.agent.one, "second").await.run_id;
    cluster.run(second, RunStatus::Completed).await;
    for node in [&a, &b] {
        let Ack::Status(status) = node.agent.one.control(Control::Status).await else { panic!("no status") };
        assert_eq!((status.spent_today_micro_usd, status.spent_today_for.total()), (6_000, 6_000));
        let told = command(&node.agent.one, "/status", None).await;
        assert!(told.contains("Spent today: 0.0060 of 1.00"), "{told}");
    }
    a.agent.shut_down().await;
    b.agent.shut_down().await;
}

/// A minute after its last call, while it runs.
#[tokio::test(start_paused = true)]
async fn a_node_without_calls_gives_its_money_to_the_others() {
    let cluster = Cluster::new();
    // The second one is the title.
    let replies = vec![Scripted::text("one").with_usage(1_000, 4_000), Scripted::text("First").with_usage(100, 400)];
    let node = cluster.node_with("a", [], priced(replies)).await;
    let run = accepted(&node.agent.one, "first").await.run_id;
    cluster.run(run, RunStatus::Completed).await;
    let (boot, utc_day) = (BootId::new(), TestClock::new().now().utc_day());
    let left = async || {
        let draw = Draw { utc_day, budget: None, boot, limit: 1_000_000, least: 1, need: 1, want: 1 };
        let Drawn { granted, left } = cluster.store.draw(draw).await.expect("drawn");
        granted + left
    };
    let before = left().await;
    assert!(before < 994_500, "the node has a slice: {before}");
    sleep(Duration::from_secs(200)).await;
    assert_eq!(left().await, 994_500 - 1, "all but what it has spent, and what was drawn above");
    node.agent.shut_down().await;
}
