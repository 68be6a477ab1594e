//! Kept outputs of tools as rows.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{Archive, OutputStore, Retention, RunId, StoreError, StoreHealth, UnixMillis};
use belay_store::{SqlOutputs, SqlStore};
use belay_testkit::clock::ManualClock;
use belay_testkit::output_suite::{self as suite, MAX_TOTAL_BYTES, is_kept, keep};

use crate::kit::*;

super::for_every_store! {
    an_output_of_any_length_is_read_in_parts
    each_output_has_a_name_of_its_own
    an_output_is_read_after_its_end_alone
    the_oldest_are_removed_beyond_the_limit
    old_outputs_are_removed_by_the_date_of_their_run
    an_output_is_deleted_with_its_run
    an_output_that_was_dropped_leaves_no_row
    an_abandoned_output_is_removed_and_its_writer_fails
}

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The outputs of a node whose date is 1,000.
pub(crate) fn outputs(store: &SqlStore) -> SqlOutputs {
    SqlOutputs::new(store.clone(), Arc::new(ManualClock::at(at(1_000))), MAX_TOTAL_BYTES)
}

macro_rules! over_rows {
    ($($test:ident)+) => {$(
        async fn $test(store: Arc<SqlStore>) {
            suite::$test(Arc::new(outputs(&store))).await;
        }
    )+};
}

over_rows! {
    an_output_of_any_length_is_read_in_parts
    each_output_has_a_name_of_its_own
    an_output_is_read_after_its_end_alone
    the_oldest_are_removed_beyond_the_limit
    old_outputs_are_removed_by_the_date_of_their_run
}

async fn an_output_is_deleted_with_its_run(store: Arc<SqlStore>) {
    let outputs = outputs(&store);
    let (lease, other) = (open(&*store, "s").await.lease, open(&*store, "old").await.lease);
    let [run, old] = [turn(&*store, &lease, "one").await, turn(&*store, &other, "two").await];
    let long = vec![7; 300_000];
    let [deleted, pruned] =
        [keep(&outputs, run, "a", &[&long]).await.unwrap(), keep(&outputs, old, "a", &[&long]).await.unwrap()];
    let kept = keep(&outputs, RunId::new(), "a", &[&long]).await.unwrap();

    store.delete_session(&lease, at(3_000)).await.unwrap();
    assert_eq!([is_kept(&outputs, &deleted).await, is_kept(&outputs, &pruned).await], [false, true]);
    let retention = Retention { threads_before: Some(at(i64::MAX)), keys_before: at(i64::MAX), ..Retention::default() };
    assert_eq!(store.prune(retention, 1_000).await.unwrap().run_ids, [old]);
    assert_eq!([is_kept(&outputs, &pruned).await, is_kept(&outputs, &kept).await], [false, true]);
}

/// The number that the next output of a run gets: 1 if the run has no row.
async fn next_number(outputs: &SqlOutputs, run: RunId) -> u32 {
    keep(outputs, run, "next", &[b"x"]).await.unwrap().number()
}

async fn an_output_that_was_dropped_leaves_no_row(store: Arc<SqlStore>) {
    let outputs = outputs(&store);
    let run = RunId::new();
    let mut writer = outputs.begin(run, &"a".into()).await.unwrap();
    writer.write(&[7; 600_000]).await.unwrap();
    drop(writer);
    store.ping().await.unwrap(); // relaxed writes are committed with it
    assert_eq!(next_number(&outputs, run).await, 1);
    drop(outputs.begin(run, &"a".into()).await.unwrap());
    store.ping().await.unwrap();
    assert_eq!(next_number(&outputs, run).await, 2);
}

async fn an_abandoned_output_is_removed_and_its_writer_fails(store: Arc<SqlStore>) {
    let clock = Arc::new(ManualClock::at(UnixMillis(1_000)));
    let outputs = SqlOutputs::new((*store).clone(), clock.clone(), MAX_TOTAL_BYTES);
    let (abandoned_run, slow_run, run) = (RunId::new(), RunId::new(), RunId::new());
    let mut abandoned = outputs.begin(abandoned_run, &"a".into()).await.unwrap();
    abandoned.write(&[1; 300_000]).await.unwrap();
    let mut slow = outputs.begin(slow_run, &"a".into()).await.unwrap();
    slow.write(&[2; 300_000]).await.unwrap();
    clock.advance(DAY + DAY / 2);
    slow.write(&[3; 300_000]).await.unwrap();
    clock.advance(DAY);
    let finished = keep(&outputs, run, "a", &[&[4; 300_000]]).await.unwrap();

    assert_eq!(next_number(&outputs, abandoned_run).await, 1);
    assert!(matches!(abandoned.write(&[1; 300_000]).await, Err(StoreError::NotFound(_))));
    assert!(matches!(abandoned.finish().await, Err(StoreError::NotFound(_))));
    let slow = slow.finish().await.unwrap();
    assert!(is_kept(&outputs, &slow).await && is_kept(&outputs, &finished).await);
    assert_eq!(next_number(&outputs, slow_run).await, 2);
    // The abandoned one is removed by the janitor too.
    let mut other = outputs.begin(abandoned_run, &"b".into()).await.unwrap();
    other.write(&[1; 300_000]).await.unwrap();
    clock.advance(3 * DAY);
    outputs.forget_before(UnixMillis(1_000 + 6 * 24 * 3600 * 1_000)).await.unwrap();
    assert!(matches!(other.finish().await, Err(StoreError::NotFound(_))));
}
