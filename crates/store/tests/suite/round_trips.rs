//! How often a message waits for PostgreSQL until it is answered.

use belay_protocol::{Purpose, RunStore, SpendLedger, StoreHealth};

use crate::kit::*;

const DAY: i64 = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_alone_takes_six_round_trips_until_it_is_answered() {
    let Some((store, _database)) = postgres().await else { return };
    let lease = open(&store, "s").await.lease;
    for prepared in [false, true] {
        store.ping().await.unwrap();
        let trips = || store.stats().round_trips;
        let mut times = vec![trips()];
        let run = accept(&store, &lease, input("hi")).await;
        times.push(trips());
        let reserved = store.reserve(reservation(run, Purpose::Chat, DAY, 100)).await.unwrap();
        times.push(trips());
        store.settle(reserved, charge(7)).await.unwrap();
        times.push(trips());
        store.finish_runs(&lease, vec![finished(run, "hello")]).await.unwrap();
        times.push(trips());
        let each: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // A settlement that waits too long for other work is committed alone.
        if prepared {
            assert!(
                matches!(each[..], [2, 2, 0, 2 | 3] | [2, 2, 1, 2]),
                "accepted, reserved, settled, stored: {each:?}"
            );
        }
    }
    store.close().await;
}
