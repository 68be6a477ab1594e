//! Files by their digest, in every place.

use std::sync::Arc;

use belay_protocol::{Attachment, AttachmentContent, BlobDigest, BlobStore, Upload, UploadId, UploadStore, Uploader};
use belay_store::{Blobs, SqlStore};
use belay_testkit::clock::ManualClock;
use bytes::Bytes;
use futures_util::StreamExt;

use crate::kit::*;

/// Makes a test of each place out of each function.
macro_rules! for_every_place {
    ($($test:ident)+) => {
        mod blobs_in_memory {
            $(#[tokio::test] async fn $test() { super::$test(belay_store::Blobs::in_memory()).await; })+
        }
        mod directory {
            $(#[tokio::test] async fn $test() {
                let directory = tempfile::tempdir().unwrap();
                super::$test(belay_store::Blobs::in_directory(directory.path().join("files"))).await;
            })+
        }
        mod table_in_memory {
            $(#[tokio::test] async fn $test() { super::$test(super::table(&crate::kit::memory())).await; })+
        }
        mod table_in_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $test() {
                let (store, _directory) = crate::kit::sqlite();
                super::$test(super::table(&store)).await;
                store.close().await;
            })+
        }
        mod table_in_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $test() {
                let Some((store, _database)) = crate::kit::postgres().await else { return };
                super::$test(super::table(&store)).await;
                store.close().await;
            })+
        }
    };
}

for_every_place! {
    a_file_is_found_by_the_digest_of_its_bytes
    a_file_in_pieces_of_any_length_is_read_as_it_was_written
}

super::for_every_store! {
    a_file_in_the_table_is_swept_when_it_is_old_and_nothing_refers_to_it
    a_file_that_was_not_finished_leaves_nothing_after_a_sweep
}

/// A table whose files are written at 1,000.
pub(super) fn table(store: &SqlStore) -> Blobs {
    Blobs::in_table(store.clone(), Arc::new(ManualClock::at(at(1_000))))
}

async fn put(blobs: &Blobs, pieces: &[&[u8]]) -> BlobDigest {
    let mut writer = blobs.begin().await.unwrap();
    for piece in pieces {
        writer.write(&Bytes::copy_from_slice(piece)).await.unwrap();
    }
    writer.finish().await.unwrap()
}

async fn streamed(blobs: &Blobs, digest: &BlobDigest) -> Option<Vec<Bytes>> {
    Some(blobs.stream(digest).await.unwrap()?.map(Result::unwrap).collect().await)
}

async fn a_file_is_found_by_the_digest_of_its_bytes(blobs: Blobs) {
    let digest = put(&blobs, &[b"a", b"bc"]).await;
    // Source: FIPS 180-2, appendix B.1.
    assert_eq!(digest.as_str(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_eq!(put(&blobs, &[b"abc"]).await, digest);
    assert_eq!(blobs.digest(b"abc").unwrap(), digest);
    assert_eq!(blobs.read(&digest).await.unwrap().unwrap(), "abc");
    assert_eq!(streamed(&blobs, &digest).await.unwrap().concat(), b"abc");
    let other = "0".repeat(64).parse().unwrap();
    assert_eq!(blobs.read(&other).await.unwrap(), None);
    assert!(streamed(&blobs, &other).await.is_none());
    let later = at(4_102_444_800_000); // after every file of a test: 2100-01-01
    assert_eq!(blobs.remove(&[digest.clone(), other], later).await.unwrap(), 1);
    assert_eq!(blobs.read(&digest).await.unwrap(), None);
}

async fn a_file_in_pieces_of_any_length_is_read_as_it_was_written(blobs: Blobs) {
    let bytes: Vec<u8> = (0..600_000u32).map(|n| (n % 251) as u8).collect();
    for (length, piece) in [(0, 1), (1, 1), (262_144, 100_000), (262_145, 262_145), (600_000, 70_001)] {
        let bytes = &bytes[..length];
        let digest = put(&blobs, &bytes.chunks(piece).collect::<Vec<_>>()).await;
        assert_eq!(digest, blobs.digest(bytes).unwrap());
        assert_eq!(blobs.read(&digest).await.unwrap().unwrap(), bytes, "{length}");
        let pieces = streamed(&blobs, &digest).await.unwrap();
        assert!(pieces.concat() == bytes && pieces.iter().all(|piece| piece.len() <= 600_000), "{length}");
    }
}

/// Refers to a file by an upload.
pub(super) async fn refer(store: &SqlStore, digest: &BlobDigest) {
    let from = Uploader { channel: "http".into(), principal: "ann".into() };
    let content = AttachmentContent::Named { detail: "a file".into() };
    let attachment =
        Attachment { name: "a".into(), media_type: "x/y".into(), bytes: 1, digest: digest.clone(), content };
    let upload = Upload { id: UploadId::new(), attachment };
    assert!(store.record_upload(&from, &upload, at(1_000), at(0), 10).await.unwrap());
}

async fn a_file_in_the_table_is_swept_when_it_is_old_and_nothing_refers_to_it(store: Arc<SqlStore>) {
    let clock = Arc::new(ManualClock::at(at(1_000)));
    let blobs = Blobs::in_table((*store).clone(), clock.clone());
    let [used, old, again] = [put(&blobs, &[b"used"]).await, put(&blobs, &[b"old"]).await, put(&blobs, &[b"x"]).await];
    refer(&store, &used).await;
    assert_eq!(blobs.older_than(at(1_000)).await.unwrap(), []);
    assert_eq!(blobs.older_than(at(1_001)).await.unwrap().len(), 3);
    clock.set(at(2_000));
    assert_eq!(put(&blobs, &[b"x"]).await, again, "it counts as written now");
    let all = [used.clone(), old.clone(), again.clone()];
    assert_eq!(blobs.remove(&all, at(1_000)).await.unwrap(), 0);
    assert_eq!(blobs.remove(&all, at(2_000)).await.unwrap(), 1);
    for (digest, kept) in [(&used, true), (&old, false), (&again, true)] {
        assert_eq!(blobs.read(digest).await.unwrap().is_some(), kept);
    }
    store.forget_uploads(at(1_001)).await.unwrap();
    assert_eq!(blobs.remove(&all, at(3_000)).await.unwrap(), 2);
}

async fn a_file_that_was_not_finished_leaves_nothing_after_a_sweep(store: Arc<SqlStore>) {
    let blobs = table(&store);
    let mut writer = blobs.begin().await.unwrap();
    writer.write(&Bytes::from(vec![7; 300_000])).await.unwrap();
    drop(writer);
    let mut slow = blobs.begin().await.unwrap();
    slow.write(&Bytes::from(vec![7; 300_000])).await.unwrap();
    assert_eq!(blobs.older_than(at(1_001)).await.unwrap(), []);
    assert!(slow.finish().await.is_err(), "a file that lacks a part is not stored");
    assert_eq!(blobs.older_than(at(1_001)).await.unwrap(), []);
    let whole = blobs.digest(&vec![7; 300_000]).unwrap();
    assert_eq!(blobs.read(&whole).await.unwrap(), None);
}
