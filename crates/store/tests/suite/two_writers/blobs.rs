//! Files in the table: the sweep of one writer, and the references and files of the other.

use std::sync::Arc;

use belay_protocol::{
    Attachment, AttachmentContent, BlobDigest, BlobStore, StoreError, Upload, UploadId, UploadStore, Uploader,
};
use belay_store::{Blobs, SqlStore};
use belay_testkit::clock::ManualClock;
use bytes::Bytes;

use super::two::{Two, against, two};
use crate::kit::*;

const ROUNDS: usize = 40;

fn table(store: &SqlStore, now: i64) -> Blobs {
    Blobs::in_table(store.clone(), Arc::new(ManualClock::at(at(now))))
}

async fn put(blobs: &Blobs, bytes: &[u8]) -> Result<BlobDigest, StoreError> {
    let mut writer = blobs.begin().await?;
    writer.write(&Bytes::copy_from_slice(bytes)).await?;
    writer.finish().await
}

async fn refer(store: &SqlStore, digest: &BlobDigest) {
    let from = Uploader { channel: "http".into(), principal: "ann".into() };
    let content = AttachmentContent::Named { detail: "a file".into() };
    let attachment =
        Attachment { name: "a".into(), media_type: "x/y".into(), bytes: 1, digest: digest.clone(), content };
    let upload = Upload { id: UploadId::new(), attachment };
    assert!(store.record_upload(&from, &upload, at(1_000), at(0), u64::MAX).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_store_the_same_file_store_it_once() {
    let Some(Two { one, other, database, .. }) = two().await else { return };
    for n in 0..ROUNDS {
        let bytes = vec![n as u8; 300_000];
        let (first, second) = (table(&one, 1_000), table(&other, 1_000));
        let (a, b) = against(put(&first, &bytes), put(&second, &bytes)).await;
        let digest = a.unwrap();
        assert_eq!(digest, b.unwrap());
        assert_eq!(first.read(&digest).await.unwrap().unwrap(), bytes, "round {n}");
    }
    assert_eq!(database.sql("SELECT COUNT(*) FROM blobs").unwrap().trim(), (2 * ROUNDS).to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_waits_for_a_reference_that_is_not_committed_and_keeps_its_file() {
    let Some(two) = two().await else { return };
    let blobs = table(&two.one, 1_000);
    let digest = put(&blobs, b"x").await.unwrap();
    // The other writer has executed its insert, and its commit waits, when the sweep begins.
    let row = format!("SELECT 1 FROM writers WHERE {} FOR UPDATE", two.of_other);
    let sweep = blobs.remove(std::slice::from_ref(&digest), at(2_000));
    let ((), removed) = two.race(&row, refer(&two.other, &digest), sweep).await;
    assert_eq!((removed.unwrap(), blobs.read(&digest).await.unwrap().is_some()), (0, true));
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_stored_again_while_it_is_swept_is_there_afterwards() {
    let Some(Two { one, other, database: _database, .. }) = two().await else { return };
    let (first, second) = (table(&one, 1_000), table(&other, 5_000));
    for n in 0..ROUNDS {
        let digest = put(&first, &[n as u8]).await.unwrap();
        let bytes = [n as u8];
        let (swept, again) =
            against(first.remove(std::slice::from_ref(&digest), at(2_000)), put(&second, &bytes)).await;
        swept.unwrap();
        assert_eq!(again.unwrap(), digest);
        assert_eq!(first.read(&digest).await.unwrap().unwrap(), bytes.as_slice(), "round {n}");
    }
}
