//! Deliveries of two nodes, while the lease of their channel moves.

use belay_protocol::store::WorkLeases;
use belay_protocol::{BootId, LeasedWork, Outbox, OutboxState, StoreError, WorkLease};
use belay_store::SqlStore;

use super::two::{Two, against, two};
use crate::kit::*;

const ROUNDS: usize = 60;

async fn claim(store: &SqlStore) -> WorkLease {
    let work = LeasedWork::Channel("telegram".into());
    loop {
        // Its owner has ended. A claim does not wait until that owner has left the row.
        if let Some(lease) = store.claim(&work, BootId::new()).await.unwrap() {
            return lease;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_begun_while_the_lease_moves_is_settled_or_sent_by_the_next_holder() {
    let Some(Two { one, other, database: _database, .. }) = two().await else { return };
    let mut begun_first = 0;
    for round in 0..ROUNDS {
        let message = outbound(&round.to_string(), "hi");
        one.enqueue(message.clone()).await.unwrap();
        let last = claim(&one).await;
        let begin = one.mark(message.id, OutboxState::Sending, at(0), Some(&last));
        let take_over = async {
            let lease = claim(&other).await;
            let settled = other.settle_interrupted(at(0), Some(std::slice::from_ref(&lease)), &[]).await.unwrap();
            let sent = other.mark(message.id, OutboxState::Sending, at(0), Some(&lease)).await.is_ok();
            if sent {
                other.mark(message.id, OutboxState::Sent, at(0), Some(&lease)).await.unwrap();
            }
            (settled.len(), sent)
        };
        let (begun, (settled, sent)) = against(begin, take_over).await;
        begun_first += usize::from(begun.is_ok());
        match begun {
            Ok(()) => assert_eq!((settled, sent), (1, false), "round {round}: the next holder knows of the attempt"),
            Err(StoreError::WorkLost(_) | StoreError::NotFound(_)) => {
                assert_eq!((settled, sent), (0, true), "round {round}: the next holder sends it");
            }
            Err(error) => panic!("round {round}: {error}"),
        }
    }
    println!("{begun_first} of {ROUNDS} were begun before the lease moved");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_sent_once_by_two_of_which_one_holds_the_lease() {
    let Some(Two { one, other, database: _database, .. }) = two().await else { return };
    let (stale, lease) = (claim(&one).await, claim(&other).await);
    for round in 0..ROUNDS {
        let message = outbound(&round.to_string(), "hi");
        one.enqueue(message.clone()).await.unwrap();
        let a = one.mark(message.id, OutboxState::Sending, at(0), Some(&stale));
        let b = other.mark(message.id, OutboxState::Sending, at(0), Some(&lease));
        let (a, b) = against(a, b).await;
        assert!(matches!(a, Err(StoreError::WorkLost(_))), "round {round}: {a:?}");
        b.unwrap();
    }
}
