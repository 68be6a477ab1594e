//! Dates in a cluster. Each node has a clock that shows the time of the database, whatever its machine shows.

use std::sync::Arc;

use belay_protocol::{RunFilter, UnixMillis};
use belay_testkit::scripted_model::Scripted;

use crate::cluster::{Cluster, accepted};
use crate::support::TestClock;

/// A day that no machine of a test has: 2001-09-09.
const DATABASE: i64 = 1_000_000_000_000;

#[tokio::test(start_paused = true)]
async fn runs_of_all_nodes_are_listed_by_the_clock_of_the_database_and_not_by_those_of_their_machines() {
    let (cluster, clock) = (Cluster::new(), Arc::new(TestClock::new()));
    let node = async |name, reply| {
        let clock = clock.clone();
        cluster.node_with(name, [Scripted::text(reply)], |parts| parts.clock = clock).await
    };
    let (a, b) = (node("a", "one").await, node("b", "two").await);
    let mut runs = Vec::new();
    for (node, minutes) in [(&a, 0), (&b, 30)] {
        clock.set(DATABASE + minutes * 60_000);
        let run = accepted(&node.agent.one, "hello").await.run_id;
        cluster.reply(run).await;
        runs.push(run);
    }
    let (first, second) = (runs[0], runs[1]);
    for (since, until, expected) in
        [(0, None, vec![second, first]), (29, None, vec![second]), (31, None, vec![]), (0, Some(30), vec![first])]
    {
        let date = |minutes: i64| UnixMillis(DATABASE + minutes * 60_000);
        let filter = RunFilter { since: Some(date(since)), until: until.map(date), limit: 10, ..RunFilter::default() };
        let found = belay_protocol::RunReader::runs(&*cluster.store, filter).await.expect("readable");
        let found: Vec<_> = found.into_iter().map(|run| run.run_id).collect();
        assert_eq!(found, expected, "{since} {until:?}");
    }
    a.agent.shut_down().await;
    b.agent.shut_down().await;
}
