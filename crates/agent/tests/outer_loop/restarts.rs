//! Background tasks that panic are restarted, after growing pauses, and nothing of what they had to do is lost.

use std::time::Duration;

use belay_testkit::faulty::{Fault, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};

use crate::support::faulty;

/// Most that is asked of the store in a minute by one task that panics each time: its restarts, and little else.
const ASKED_IN_A_MINUTE: u64 = 60;

#[tokio::test(start_paused = true)]
async fn replies_to_commands_outlast_a_store_that_panics_and_keep_their_order() {
    let (setup, store) = faulty(ScriptedModel::new([]));
    for time in 1..=3 {
        store.plan().nth_of(StoreOp::Enqueue, time, Fault::Panic);
    }
    let mut agent = setup.start().await;
    agent.one.text("alice", "/ping").await;
    agent.one.text("alice", "/version").await;
    assert_eq!(agent.one.next().await, "pong");
    assert!(agent.one.next().await.contains("test"), "the version");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn delivery_that_panics_each_time_is_restarted_after_growing_pauses_and_loses_no_reply() {
    let (setup, store) = faulty(ScriptedModel::new([Scripted::text("hello")]));
    let mut agent = setup.start().await;
    store.plan().every(StoreOp::Due, Fault::Panic);
    agent.one.accepted("alice", "hi").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let asked = store.plan().asked();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked = store.plan().asked() - asked;
    assert!(asked < ASKED_IN_A_MINUTE, "{asked} times in a minute");
    store.plan().clear();
    assert_eq!(agent.one.next().await, "hello");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_delivery_whose_settlement_panics_each_time_does_not_spin_and_holds_up_nothing_for_ever() {
    let (setup, store) = faulty(ScriptedModel::new([Scripted::text("perhaps"), Scripted::text("surely")]));
    let mut agent = setup.start().await;
    store.plan().every(StoreOp::Mark, Fault::Panic);
    agent.one.accepted("alice", "hi").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let asked = store.plan().asked();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked = store.plan().asked() - asked;
    assert!(asked < ASKED_IN_A_MINUTE, "{asked} times in a minute");
    store.plan().clear();
    // Whether the first was delivered nobody knows: it is not sent again, and those behind it are.
    agent.one.accepted("alice", "and now").await;
    assert_eq!(agent.one.next().await, "surely");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_lane_panics_again_and_again_is_tried_until_its_message_is_answered() {
    let (setup, store) = faulty(ScriptedModel::new([Scripted::hang()]));
    let agent = setup.start().await;
    agent.one.accepted("alice", "hi").await;
    agent.asked(1).await;
    agent.crash().await;
    let setup = setup.next_boot(ScriptedModel::new([Scripted::text("hello")]));
    store.plan().every(StoreOp::OpenLane, Fault::Panic);
    let mut agent = setup.start().await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    let asked = store.plan().asked();
    tokio::time::sleep(Duration::from_secs(120)).await;
    let asked = store.plan().asked() - asked;
    assert!(asked < 2 * ASKED_IN_A_MINUTE, "{asked} times in two minutes");
    store.plan().clear();
    assert_eq!(agent.one.next().await, "hello");
    agent.shut_down().await;
}
