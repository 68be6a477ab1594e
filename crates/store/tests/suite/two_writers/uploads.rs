//! The limit of uploads, and an upload that one writer renews while another forgets it.

use belay_protocol::{Attachment, AttachmentContent, BlobDigest, StoreHealth, Upload, UploadId, UploadStore, Uploader};

use super::holder::waiting;
use super::two::two;
use crate::kit::*;

fn digest() -> BlobDigest {
    "a".repeat(64).parse().unwrap()
}

fn ann() -> Uploader {
    Uploader { channel: "http".into(), principal: "ann".into() }
}

fn upload(bytes: u64) -> Upload {
    let content = AttachmentContent::Named { detail: "a file".into() };
    let attachment = Attachment { name: "a.bin".into(), media_type: "x/y".into(), bytes, digest: digest(), content };
    Upload { id: UploadId::new(), attachment }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_a_person_holds_for_both_together() {
    let Some(two) = two().await else { return };
    // Reads go on, and nobody can insert before both have come.
    let held = two.hold("LOCK TABLE uploads IN SHARE MODE", &waiting(2), "SELECT 1").await;
    let (from, uploads) = (ann(), [upload(6), upload(6)]);
    let (one, other) = tokio::join!(
        two.one.record_upload(&from, &uploads[0], at(100), at(50), 10),
        two.other.record_upload(&from, &uploads[1], at(100), at(50), 10)
    );
    held.await.unwrap();
    assert!(one.unwrap() != other.unwrap(), "one of them");
    assert_eq!(two.one.uploaded_since(&from, at(50)).await.unwrap(), 6);
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_is_renewed_keeps_its_file() {
    let Some(two) = two().await else { return };
    assert!(two.one.record_upload(&ann(), &upload(6), at(100), at(50), 10).await.unwrap());
    let renewing = two.hold("SELECT 1 FROM uploads FOR UPDATE", &waiting(1), "UPDATE uploads SET at = 500").await;
    assert_eq!(two.one.forget_uploads(at(200)).await.unwrap(), 0);
    renewing.await.unwrap();
    two.one.ping().await.unwrap(); // what is relaxed is committed with it
    assert!(two.one.unused_blobs(vec![digest()]).await.unwrap().is_empty());
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_is_being_forgotten_is_not_renewed() {
    let Some(two) = two().await else { return };
    assert!(two.one.record_upload(&ann(), &upload(6), at(100), at(50), 10).await.unwrap());
    let forgetting = two.hold("DELETE FROM uploads", &waiting(1), "DELETE FROM blob_references").await;
    assert_eq!(two.one.renew_upload(&ann(), &digest(), "a.bin", at(50), at(150)).await.unwrap(), None);
    forgetting.await.unwrap();
    two.close().await;
}
