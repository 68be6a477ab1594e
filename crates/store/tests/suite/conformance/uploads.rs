//! Uploads, and the files that messages refer to.

use std::sync::Arc;

use belay_protocol::{
    Archive, Attachment, AttachmentContent, BlobDigest, EditOutcome, LaneStore, Provenance, Retention, RunReader,
    RunStore, ThreadEdit, Upload, UploadId, UploadStore, Uploader,
};
use belay_store::SqliteStore;

use crate::kit::*;

super::for_every_store! {
    the_bytes_of_each_person_are_limited
    an_upload_is_found_by_its_uploader_until_it_expires
    a_file_is_in_use_as_long_as_an_upload_or_a_message_needs_it
    a_copied_conversation_keeps_the_files_of_a_deleted_original
}

fn digest(digit: char) -> BlobDigest {
    digit.to_string().repeat(64).parse().unwrap()
}

/// A picture with the digests `a` and, as it is shown, `b`.
fn picture(bytes: u64) -> Attachment {
    let content = AttachmentContent::Picture {
        digest: digest('b'),
        media_type: "image/png".into(),
        detail: "PNG picture".into(),
    };
    Attachment { name: "a.png".into(), media_type: "image/png".into(), bytes, digest: digest('a'), content }
}

fn from(principal: &str) -> Uploader {
    Uploader { channel: "http".into(), principal: principal.into() }
}

fn upload(bytes: u64) -> Upload {
    Upload { id: UploadId::new(), attachment: picture(bytes) }
}

async fn the_bytes_of_each_person_are_limited(store: Arc<SqliteStore>) {
    for (principal, bytes, when, taken) in
        [("ann", 6, 100, true), ("ann", 5, 200, false), ("ann", 4, 200, true), ("bob", 10, 200, true)]
    {
        let recorded = store.record_upload(&from(principal), &upload(bytes), at(when), at(50), 10).await.unwrap();
        assert_eq!(recorded, taken, "{principal} {bytes}");
    }
    assert_eq!(store.uploaded_since(&from("ann"), at(50)).await.unwrap(), 10);
    assert_eq!(store.uploaded_since(&from("ann"), at(150)).await.unwrap(), 4);
    assert_eq!(store.uploaded_since(&from("eve"), at(0)).await.unwrap(), 0);
}

async fn an_upload_is_found_by_its_uploader_until_it_expires(store: Arc<SqliteStore>) {
    let one = upload(3);
    assert!(store.record_upload(&from("ann"), &one, at(100), at(0), 10).await.unwrap());
    for (principal, since, found) in [("ann", 100, true), ("bob", 100, false), ("ann", 101, false)] {
        let known = store.upload(&from(principal), one.id, at(since)).await.unwrap();
        assert_eq!(known, found.then(|| one.attachment.clone()), "{principal} {since}");
    }
    assert_eq!(store.upload(&from("ann"), UploadId::new(), at(0)).await.unwrap(), None);
}

async fn a_file_is_in_use_as_long_as_an_upload_or_a_message_needs_it(store: Arc<SqliteStore>) {
    let all = vec![digest('a'), digest('b'), digest('c')];
    assert_eq!(store.unused_blobs(all.clone()).await.unwrap(), all);
    assert!(store.record_upload(&from("ann"), &upload(3), at(100), at(0), 10).await.unwrap());
    assert_eq!(store.unused_blobs(all.clone()).await.unwrap(), [digest('c')]);

    let lease = open(&*store, "s").await.lease;
    let provenance = Provenance { attachments: vec![picture(3)], ..Provenance::default() };
    let mut message = input("look");
    message.provenance = Some(Arc::new(provenance));
    let run = message.run_id;
    store.accept(&lease, message).await.unwrap();
    assert_eq!(store.forget_uploads(at(101)).await.unwrap(), 1);
    assert_eq!(store.unused_blobs(all.clone()).await.unwrap(), [digest('c')], "the message needs them");

    let opened =
        store.open_lane(&"s".into(), Default::default(), belay_protocol::BootId::new(), at(200)).await.unwrap();
    let restored = opened.unfinished.iter().find(|pending| pending.run_id == run).unwrap();
    assert_eq!(restored.messages[0].1.attachments(), [picture(3)]);
    store.finish_runs(&opened.lease, vec![finished(run, "a dot")]).await.unwrap();
    store.delete_session(&opened.lease, at(300)).await.unwrap();
    assert_eq!(store.unused_blobs(all.clone()).await.unwrap(), all);
}

async fn a_copied_conversation_keeps_the_files_of_a_deleted_original(store: Arc<SqliteStore>) {
    let all = vec![digest('a'), digest('b')];
    let lease = open(&*store, "s").await.lease;
    let mut message = input("look");
    message.provenance = Some(Arc::new(Provenance { attachments: vec![picture(3)], ..Provenance::default() }));
    let run = message.run_id;
    store.accept(&lease, message).await.unwrap();
    store.finish_runs(&lease, vec![finished(run, "a dot")]).await.unwrap();
    // The copy of a copy has the files of the first original.
    for when in [20_000, 50_000] {
        let copy = store.edit_thread(&lease, ThreadEdit::Fork, at(when)).await.unwrap();
        assert!(matches!(copy, EditOutcome::Done(_)), "{copy:?}");
    }
    let old = Retention {
        threads_before: Some(at(40_000)),
        events_before: None,
        ended_routine_runs_before: None,
        ephemeral_before: None,
        keys_before: at(40_000),
    };
    while !store.prune(old, 100).await.unwrap().is_nothing() {}
    assert!(store.run(run).await.unwrap().is_none(), "the original is deleted");
    assert_eq!(store.unused_blobs(all.clone()).await.unwrap(), [], "the active copy needs them");
    let lease = open(&*store, "s").await.lease;
    store.delete_session(&lease, at(60_000)).await.unwrap();
    assert_eq!(store.unused_blobs(all.clone()).await.unwrap(), all);
}
