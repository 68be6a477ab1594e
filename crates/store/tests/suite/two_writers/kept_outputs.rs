//! Kept outputs of tools, and pins of MCP tools: each of two nodes writes and reads what the other one has written.

use std::sync::Arc;

use belay_protocol::{Archive, OutputPart, OutputStore, PinStore, RunId};
use belay_store::{SqlOutputs, SqlStore};
use belay_testkit::clock::ManualClock;
use belay_testkit::output_suite::{is_kept, keep};
use belay_testkit::pin_suite;

use super::holder::waiting;
use super::two::{against, two};
use crate::kit::*;

const ROUNDS: usize = 20;

fn outputs(store: &SqlStore, max_total_bytes: u64) -> SqlOutputs {
    SqlOutputs::new(store.clone(), Arc::new(ManualClock::at(at(1_000))), max_total_bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_of_one_node_is_read_at_another() {
    let Some(two) = two().await else { return };
    let name = keep(&outputs(&two.one, u64::MAX), RunId::new(), "call", &[&[7; 300_000]]).await.unwrap();
    let part = outputs(&two.other, u64::MAX).part(&name, 299_998, 9).await.unwrap();
    assert_eq!(part, Some(OutputPart { bytes: vec![7; 2], size: 300_000 }));
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_that_keep_outputs_of_one_run_give_them_names_of_their_own() {
    let Some(two) = two().await else { return };
    let (one, other, run) = (outputs(&two.one, u64::MAX), outputs(&two.other, u64::MAX), RunId::new());
    for n in 0..ROUNDS {
        let (a, b) = against(keep(&one, run, "c", &[b"a"]), keep(&other, run, "c", &[b"b"])).await;
        assert_ne!(a.unwrap(), b.unwrap(), "round {n}");
    }
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_holds_for_both_nodes_together() {
    let Some(two) = two().await else { return };
    let (one, other, long) = (outputs(&two.one, 1_000), outputs(&two.other, 1_000), [1; 400]);
    let old = keep(&one, RunId::new(), "a", &[&long]).await.unwrap();
    // Reads go on, and nobody can insert before both have come.
    let held = two.hold("LOCK TABLE kept_outputs IN SHARE MODE", &waiting(2), "SELECT 1").await;
    let [run, later] = [RunId::new(), RunId::new()];
    let pieces: [&[u8]; 1] = [&long];
    let (a, b) = tokio::join!(keep(&one, run, "a", &pieces), keep(&other, later, "a", &pieces));
    held.await.unwrap();
    let kept = [is_kept(&one, &old).await, is_kept(&one, &a.unwrap()).await, is_kept(&one, &b.unwrap()).await];
    assert_eq!(kept, [false, true, true]);
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_and_a_limit_that_remove_the_same_outputs_both_succeed() {
    let Some(two) = two().await else { return };
    let (one, other) = (outputs(&two.one, u64::MAX), outputs(&two.other, 100));
    for n in 0..ROUNDS {
        let lease = open(&two.one, &format!("s{n}")).await.lease;
        let runs = [turn(&two.one, &lease, "one").await, turn(&two.one, &lease, "two").await];
        let mut names = Vec::new();
        for run in runs {
            names.push(keep(&one, run, "a", &[&[1; 80]]).await.unwrap());
        }
        let deletion = two.one.delete_session(&lease, at(3_000));
        let (deleted, kept) = against(deletion, keep(&other, RunId::new(), "a", &[&[1; 90]])).await;
        deleted.unwrap();
        let kept = kept.unwrap();
        for name in &names {
            assert!(!is_kept(&one, name).await, "round {n}");
        }
        assert!(is_kept(&one, &kept).await, "round {n}");
    }
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pins_that_two_nodes_change_at_once_are_all_kept() {
    let Some(two) = two().await else { return };
    let stores: Vec<Arc<dyn PinStore>> = vec![Arc::new(two.one.clone()), Arc::new(two.other.clone())];
    pin_suite::changes_of_many_at_once_are_all_kept(stores).await;
    for n in 0..ROUNDS {
        let before = two.one.pins().await.unwrap();
        let (a, b) = against(
            two.one.replace_pins(before.as_deref(), &format!("a{n}")),
            two.other.replace_pins(before.as_deref(), &format!("b{n}")),
        )
        .await;
        assert!(a.unwrap() != b.unwrap(), "one of them");
    }
    two.close().await;
}
