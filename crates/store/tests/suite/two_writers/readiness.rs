//! Readiness: a check of one daemon waits for no other one.

use belay_protocol::StoreHealth;

use super::two::two;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_writes_into_no_row_of_another_writer() {
    let Some(two) = two().await else { return };
    let pinged = two.committed().await;
    let own = format!("SELECT 1 FROM writers WHERE NOT ({}) FOR UPDATE; SELECT 1 FROM pings FOR UPDATE", two.of_other);
    let held = two.hold(&own, &pinged, "SELECT 1").await;
    two.other.ping().await.unwrap();
    held.await.unwrap();
    two.close().await;
}
