//! Uploads, and the files that messages refer to.

use std::sync::Arc;

use belay_protocol::store::{EditedMessage, input_digest};
use belay_protocol::{
    Archive, Attachment, AttachmentContent, BlobDigest, Checkpoint, Durability, EditOutcome, EventKind, JournalStore,
    LaneStore, Message, NO_TEXT, NewEvent, NewInput, Outbound, OutboundFile, Outbox, OutboxState, Provenance,
    Retention, RunReader, RunStore, SentFile, ThreadEdit, Unread, Upload, UploadId, UploadStore, Uploader,
};
use belay_store::SqlStore;

use crate::kit::*;

super::for_every_store! {
    the_bytes_of_each_person_are_limited
    an_upload_is_charged_before_it_is_read
    the_same_file_of_a_person_renews_its_upload
    an_upload_is_found_by_its_uploader_until_it_expires
    a_file_is_in_use_as_long_as_an_upload_or_a_message_needs_it
    a_deleted_conversation_takes_the_uploads_of_its_files_with_it
    an_edit_leaves_the_attachments_of_a_message_as_they_are
    an_edit_of_a_caption_leaves_the_words_of_a_voice_message
    a_copied_conversation_keeps_the_files_of_a_deleted_original
    a_sent_file_is_in_use_until_its_run_and_its_delivery_are_deleted
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

async fn the_bytes_of_each_person_are_limited(store: Arc<SqlStore>) {
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

/// The upload as it is recorded before the file is read.
fn unread(upload: &Upload) -> Upload {
    let content = AttachmentContent::Named { detail: "unread".into() };
    Upload { id: upload.id, attachment: Attachment { content, ..upload.attachment.clone() } }
}

async fn an_upload_is_charged_before_it_is_read(store: Arc<SqlStore>) {
    let read = upload(3);
    assert!(store.record_upload(&from("ann"), &unread(&read), at(100), at(0), 10).await.unwrap());
    let all = vec![digest('a'), digest('b')];
    assert_eq!(store.unused_blobs(all.clone()).await.unwrap(), [digest('b')]);
    store.update_upload(&read).await.unwrap();
    assert_eq!(store.upload(&from("ann"), read.id, at(0)).await.unwrap(), Some(read.attachment.clone()));
    assert!(store.unused_blobs(all.clone()).await.unwrap().is_empty());
    assert_eq!(store.uploaded_since(&from("ann"), at(0)).await.unwrap(), 3);

    assert_eq!(store.forget_uploads(at(101)).await.unwrap(), 1);
    store.update_upload(&read).await.unwrap();
    assert_eq!(store.unused_blobs(all.clone()).await.unwrap(), all, "a deleted upload gets no reference");
}

async fn the_same_file_of_a_person_renews_its_upload(store: Arc<SqlStore>) {
    let one = upload(3);
    assert!(store.record_upload(&from("ann"), &one, at(100), at(0), 10).await.unwrap());
    for (principal, digit, name, since, found) in [
        ("bob", 'a', "a.png", 50, false),
        ("ann", 'b', "a.png", 50, false), // the picture as it is shown is no upload
        ("ann", 'a', "b.png", 50, false),
        ("ann", 'a', "a.png", 101, false),
        ("ann", 'a', "a.png", 100, true),
    ] {
        let known = store.renew_upload(&from(principal), &digest(digit), name, at(since), at(200)).await.unwrap();
        assert_eq!(known, found.then(|| one.clone()), "{principal} {digit} {name} {since}");
    }
    assert_eq!(store.upload(&from("ann"), one.id, at(200)).await.unwrap(), Some(one.attachment.clone()));
    assert_eq!(store.uploaded_since(&from("ann"), at(150)).await.unwrap(), 3, "charged once, for the new period");
}

async fn an_upload_is_found_by_its_uploader_until_it_expires(store: Arc<SqlStore>) {
    let one = upload(3);
    assert!(store.record_upload(&from("ann"), &one, at(100), at(0), 10).await.unwrap());
    for (principal, since, found) in [("ann", 100, true), ("bob", 100, false), ("ann", 101, false)] {
        let known = store.upload(&from(principal), one.id, at(since)).await.unwrap();
        assert_eq!(known, found.then(|| one.attachment.clone()), "{principal} {since}");
    }
    assert_eq!(store.upload(&from("ann"), UploadId::new(), at(0)).await.unwrap(), None);
}

async fn a_file_is_in_use_as_long_as_an_upload_or_a_message_needs_it(store: Arc<SqlStore>) {
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

    let opened = store
        .open_lane(
            &"s".into(),
            Default::default(),
            belay_protocol::LaneClaim::free(belay_protocol::BootId::new()),
            at(200),
        )
        .await
        .unwrap()
        .opened()
        .unwrap();
    let restored = opened.unfinished.iter().find(|pending| pending.run_id == run).unwrap();
    assert_eq!(restored.messages[0].1.attachments(), [picture(3)]);
    store.finish_runs(&opened.lease, vec![finished(run, "a dot")]).await.unwrap();
    store.delete_session(&opened.lease, at(300)).await.unwrap();
    assert_eq!(store.unused_blobs(all.clone()).await.unwrap(), all);
}

async fn a_copied_conversation_keeps_the_files_of_a_deleted_original(store: Arc<SqlStore>) {
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

async fn a_deleted_conversation_takes_the_uploads_of_its_files_with_it(store: Arc<SqlStore>) {
    let (kept, all) = (Uploader { channel: "http".into(), principal: "bob".into() }, vec![digest('a'), digest('b')]);
    let lease = open(&*store, "s").await.lease;
    let mut message = input("look");
    let asker = Uploader { channel: message.channel.clone(), principal: message.asker.principal.clone() };
    message.provenance = Some(Arc::new(Provenance { attachments: vec![picture(3)], ..Provenance::default() }));
    let run = message.run_id;
    let (own, others) = (upload(3), upload(3));
    for (from, upload) in [(&asker, &own), (&kept, &others)] {
        assert!(store.record_upload(from, upload, at(100), at(0), 10).await.unwrap());
    }
    store.accept(&lease, message).await.unwrap();
    store.finish_runs(&lease, vec![finished(run, "a dot")]).await.unwrap();
    store.delete_session(&lease, at(300)).await.unwrap();

    assert_eq!(store.upload(&asker, own.id, at(0)).await.unwrap(), None);
    assert_eq!(store.renew_upload(&asker, &digest('a'), "a.png", at(0), at(301)).await.unwrap(), None);
    assert_eq!(store.uploaded_since(&asker, at(0)).await.unwrap(), 3, "it counts for the day");
    assert!(store.upload(&kept, others.id, at(0)).await.unwrap().is_some(), "the upload of another person stays");
    assert_eq!(store.unused_blobs(all.clone()).await.unwrap(), []);
    store.forget_uploads(at(100)).await.unwrap();
    store.update_upload(&own).await.unwrap();
    assert_eq!(store.unused_blobs(all.clone()).await.unwrap(), [], "that of the other person");
    store.forget_uploads(at(101)).await.unwrap();
    store.update_upload(&own).await.unwrap(); // committed, so that the next reader sees what is before it
    assert_eq!(store.unused_blobs(all.clone()).await.unwrap(), all, "reading it late refers to nothing");
}

async fn an_edit_leaves_the_attachments_of_a_message_as_they_are(store: Arc<SqlStore>) {
    let mut lease = open(&*store, "s").await.lease;
    let facts = Provenance { message_id: Some("7".into()), ..Provenance::default() };
    let sent = Provenance {
        attachments: vec![picture(6)],
        not_read: vec![Unread { kind: "video".into(), ..Unread::default() }],
        ..facts.clone()
    };
    let run = accept(&*store, &lease, NewInput { provenance: Some(Arc::new(sent.clone())), ..queued("wrong") }).await;
    let edited =
        EditedMessage { run, text: "right".into(), provenance: Some(Arc::new(facts)), digest: input_digest("right") };
    let now = store.replace_message(&lease, edited).await.unwrap();
    assert_eq!(now.as_deref(), Some(&sent));
    let pending = reload(&*store, &mut lease).await.unfinished.remove(0);
    assert_eq!((&*pending.text, pending.provenance), ("right", now));
}

async fn an_edit_of_a_caption_leaves_the_words_of_a_voice_message(store: Arc<SqlStore>) {
    let mut lease = open(&*store, "s").await.lease;
    let content = AttachmentContent::Spoken { text: "call me".into(), detail: "transcript".into() };
    let facts = Provenance { message_id: Some("7".into()), ..Provenance::default() };
    let sent = Provenance { attachments: vec![Attachment { content, ..picture(6) }], ..facts.clone() };
    let run = accept(&*store, &lease, NewInput { provenance: Some(Arc::new(sent)), ..queued("first") }).await;
    for (text, expected) in [("second", "second\n[voice message] call me"), (NO_TEXT, "[voice message] call me")] {
        let (provenance, digest) = (Some(Arc::new(facts.clone())), input_digest(text));
        store.replace_message(&lease, EditedMessage { run, text: text.into(), provenance, digest }).await.unwrap();
        assert_eq!(&*reload(&*store, &mut lease).await.unfinished.remove(0).text, expected);
    }
}

async fn a_sent_file_is_in_use_until_its_run_and_its_delivery_are_deleted(store: Arc<SqlStore>) {
    let lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, input("send it")).await;
    let (name, path) = ("a.pdf".to_owned(), "/workspace/a.pdf".to_owned());
    let file = OutboundFile { name, media_type: "application/pdf".into(), bytes: 3, digest: digest('a'), path };
    let sent =
        [SentFile::new("1".into(), &file, "A".into(), None), SentFile::new("2".into(), &file, String::new(), None)];
    let delivery = Outbound { file: Some(file), ..outbound("c", "A") };
    let event = |file: &SentFile| NewEvent {
        at: at(1_500),
        session: Some("s".into()),
        run_id: Some(run),
        kind: EventKind::FileSent { file: file.clone() },
    };
    // One file with a step, one with the end of the run.
    let step = Checkpoint {
        outbound: vec![delivery.clone()],
        events: vec![event(&sent[0])],
        durability: Durability::Committed,
        ..checkpoint(run, vec![Message::assistant("one")])
    };
    store.checkpoint(&lease, step).await.unwrap();
    assert_eq!(store.run(run).await.unwrap().unwrap().files, sent[..1]);
    let again = store
        .open_lane(
            &"s".into(),
            Default::default(),
            belay_protocol::LaneClaim::free(belay_protocol::BootId::new()),
            at(1_600),
        )
        .await
        .unwrap()
        .opened()
        .unwrap();
    assert_eq!(again.unfinished[0].files, sent[..1], "the next attempt knows them");
    let lease = again.lease;
    let end = belay_protocol::FinishedRun { events: vec![event(&sent[1])], ..finished(run, "done") };
    store.finish_runs(&lease, vec![end]).await.unwrap();
    assert_eq!(store.run(run).await.unwrap().unwrap().files, sent);
    assert_eq!(store.due(at(2_000), &[], None, 10, 10).await.unwrap()[0].message, delivery);

    let all = vec![digest('a')];
    assert!(store.unused_blobs(all.clone()).await.unwrap().is_empty());
    store.delete_session(&lease, at(3_000)).await.unwrap();
    assert!(store.run(run).await.unwrap().is_none());
    assert!(store.unused_blobs(all.clone()).await.unwrap().is_empty(), "the delivery waits");
    store.mark(delivery.id, OutboxState::Sending, at(0), None).await.unwrap();
    store.mark(delivery.id, OutboxState::Sent, at(0), None).await.unwrap();
    // After the id of the delivery: 2100-01-01.
    let later = belay_protocol::UnixMillis(4_102_444_800_000);
    let old = Retention {
        threads_before: Some(later),
        events_before: None,
        ended_routine_runs_before: None,
        ephemeral_before: None,
        keys_before: later,
    };
    assert_eq!(store.prune(old, 100).await.unwrap().replies, 1);
    assert_eq!(store.unused_blobs(all.clone()).await.unwrap(), all);
}
