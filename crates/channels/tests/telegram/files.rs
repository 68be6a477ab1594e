//! Files of messages: from the update over `getFile` and the download to the message for the agent.

use std::sync::Arc;
use std::time::Duration;

use belay_channels::{GroupAnswer, TelegramConfig};
use belay_protocol::{Ack, Body, Channel, Envelope, InboundStream, NO_TEXT, Provenance, Refusal};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::double::{Double, Download, Trouble, refusal};
use crate::intake::Intake;
use crate::polling::polling;
use crate::webhook::{Served, serve_channel};
use crate::{accept, config, confirmed, next, telegram_with, update};

/// An update with a photo of user 42, in two sizes.
fn photo(update_id: u64, caption: Option<&str>) -> Value {
    let size = |id: &str, width: u32| json!({"file_id": id, "file_unique_id": "u", "width": width, "height": width});
    attached(update_id, caption, "photo", json!([size("small", 90), size(&format!("p{update_id}"), 1280)]))
}

/// An update with a document of user 42, whose id is `d` with the number of the update.
fn document(update_id: u64, name: &str, bytes: u64) -> Value {
    let file =
        json!({"file_id": format!("d{update_id}"), "file_unique_id": "u", "file_name": name, "file_size": bytes});
    attached(update_id, None, "document", file)
}

fn attached(update_id: u64, caption: Option<&str>, kind: &str, media: Value) -> Value {
    let mut update = update(update_id, "");
    let fields = update["message"].as_object_mut().unwrap();
    fields.remove("text");
    fields.insert(kind.into(), media);
    fields.insert("message_id".into(), json!(update_id));
    caption.map(|words| fields.insert("caption".into(), json!(words)));
    update
}

fn part(mut update: Value, album: &str) -> Value {
    update["message"]["media_group_id"] = json!(album);
    update
}

pub(crate) fn text(envelope: &Envelope) -> String {
    match &envelope.inbound.body {
        Body::Text(text) | Body::Edit(text) => text.clone(),
        Body::Control(control) => panic!("{control:?}"),
    }
}

pub(crate) fn facts(envelope: &Envelope) -> Provenance {
    Provenance::clone(envelope.inbound.provenance.as_deref().unwrap())
}

/// The names of the files of a message, and the reasons of those that were not read.
pub(crate) fn files(envelope: &Envelope) -> (Vec<String>, Vec<String>) {
    let facts = facts(envelope);
    let names = facts.attachments.iter().map(|file| file.name.clone()).collect();
    (names, facts.not_read.iter().map(|unread| unread.reason.clone().unwrap_or_default()).collect())
}

pub(crate) async fn served(double: Double) -> (Served, Arc<Intake>) {
    let (intake, config) = (Arc::new(Intake::default()), config(&double.base));
    let channel = telegram_with(config, intake.clone());
    (serve_channel(double, channel).await, intake)
}

/// The next message, while time passes as fast as nothing happens.
async fn next_at_last(stream: &mut InboundStream) -> Envelope {
    for _ in 0..1000 {
        if let Ok(envelope) = timeout(Duration::from_millis(200), stream.next()).await {
            return envelope.expect("the stream goes on");
        }
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(21)).await;
        tokio::time::resume();
    }
    panic!("no message");
}

#[tokio::test]
async fn a_photo_without_words_is_a_message_with_its_largest_size() {
    let double = Double::start().await;
    double.file("p1", vec![Download::File(b"the photo".to_vec())]);
    let (mut served, intake) = served(double).await;
    let status = served.post_update(&photo(1, None));
    let envelope = next(&mut served.stream).await;
    assert_eq!((text(&envelope), files(&envelope)), (NO_TEXT.into(), (vec!["photo.jpg".into()], vec![])));
    assert_eq!(facts(&envelope).attachments[0].bytes, 9);
    assert_eq!(intake.taken(), [("telegram:42".to_owned(), "photo.jpg".to_owned(), 9)]);
    assert_eq!(served.double.downloads(), ["files/p1"]);
    tokio::time::sleep(Duration::from_millis(50)).await; // real: an answer that comes too early would come now
    assert!(!status.is_finished(), "200 means that the message is committed");
    accept(envelope.ack);
    assert_eq!(status.await.unwrap(), 200);
    assert!(served.double.calls("sendMessage").is_empty());
}

#[tokio::test]
async fn a_file_that_cannot_be_fetched_is_named_with_the_reason_and_the_message_is_accepted() {
    let double = Double::start().await;
    let huge = "the file is larger than 1000 bytes, the limit of attachments.max_bytes";
    for (number, downloads) in [
        (2, vec![Download::File(vec![b'x'; 1001])]),
        (3, vec![Download::File(vec![])]),
        (4, vec![Download::Status(403)]),
        (5, vec![Download::Redirect("http://127.0.0.1:1/elsewhere".into())]),
        (7, vec![Download::Redirect(format!("{}/file/bot777:the-bots-token/files/moved", double.base))]),
    ] {
        double.file(&format!("d{number}"), downloads);
    }
    double.file("moved", vec![Download::File(b"moved".to_vec())]);
    let (mut served, _intake) = served(double).await;
    for (number, announced, expected) in [
        (1, 2_000_000_000, huge),
        (2, 10, huge),
        (3, 10, "the file is empty (0 bytes)"),
        (4, 10, "Telegram did not give it (refused with 403: HTTP 403 Forbidden for the download)"),
        (5, 10, "Telegram did not give it (refused with 302: HTTP 302 Found for the download)"),
        (6, 10, "Telegram gives bots no files of more than 20 MB"),
        (7, 10, ""),
    ] {
        if number == 6 {
            served.double.trouble("getFile", refusal(400, "Bad Request: file is too big"));
        }
        let status = served.post_update(&document(number, "a.pdf", announced));
        let envelope = next(&mut served.stream).await;
        let (read, unread) = files(&envelope);
        assert_eq!(unread.first().map_or("", |reason| reason), expected, "{number}");
        assert_eq!(read.len(), usize::from(expected.is_empty()), "{number}");
        assert_eq!(text(&envelope), NO_TEXT);
        accept(envelope.ack);
        assert_eq!(status.await.unwrap(), 200, "{number}");
    }
    assert_eq!(served.double.calls("getFile").len(), 6, "what is announced as too large is not asked for");
    let told = served.double.calls("sendMessage");
    let first = format!("I have not read this: document (a.pdf, 2000.0 MB): {huge}. Please write it out.");
    assert_eq!((told.len(), &told[0]["text"], &told[0]["chat_id"]), (6, &json!(first), &json!(42)));
}

#[tokio::test]
async fn a_temporary_failure_is_tried_again_within_a_bound() {
    let double = Double::start().await;
    let file = || Download::File(b"hello".to_vec());
    double.file("d1", vec![Download::BreakOff(b"he".to_vec()), file()]);
    double.file("d2", vec![Download::Status(502), Download::Hang(b"he".to_vec()), file()]);
    double.file("d3", vec![Download::Hang(vec![])]);
    double.file("d4", vec![Download::Status(404)]);
    let (mut served, intake) = served(double).await;
    for (number, expected, downloads) in [
        (1, "", 2),
        (2, "", 3),
        (3, "the file did not arrive completely: nothing arrived for 20 s", 3),
        (4, "Telegram did not give it (refused with 404: HTTP 404 Not Found for the download)", 3),
    ] {
        let before = served.double.downloads().len();
        let _status = served.post_update(&document(number, "a.txt", 5));
        let envelope = next_at_last(&mut served.stream).await;
        let (read, unread) = files(&envelope);
        assert_eq!((read.len(), unread.join(" ")), (usize::from(expected.is_empty()), expected.to_owned()), "{number}");
        assert_eq!(served.double.downloads().len() - before, downloads, "{number}");
        accept(envelope.ack);
    }
    assert_eq!(intake.taken().len(), 2, "what did not arrive completely is not taken");
}

#[tokio::test]
async fn the_messages_of_a_conversation_keep_their_order_and_others_and_commands_do_not_wait() {
    let double = Double::start().await;
    double.file("p1", vec![Download::Hang(b"half".to_vec()), Download::File(b"photo".to_vec())]);
    let mut other = update(3, "elsewhere");
    other["message"]["from"]["id"] = json!(7);
    other["message"]["chat"]["id"] = json!(7);
    for update in [photo(1, Some("first")), update(2, "second"), other, update(4, "/status")] {
        double.add_update(update);
    }
    let intake = Arc::new(Intake::default());
    let channel = telegram_with(polling(&double), intake);
    let mut stream = channel.start(CancellationToken::new()).await.unwrap();
    let mut order = Vec::new();
    for _ in 0..2 {
        let envelope = next(&mut stream).await;
        order.push(text(&envelope));
        accept(envelope.ack);
    }
    assert_eq!(order, ["elsewhere", "/status"]);
    for expected in ["first", "second"] {
        let envelope = next_at_last(&mut stream).await;
        assert_eq!(text(&envelope), expected);
        assert_eq!(double.unconfirmed().first(), Some(&1), "an update whose message is not committed is not confirmed");
        accept(envelope.ack);
    }
    double.add_update(update(5, "last"));
    assert_eq!(text(&next(&mut stream).await), "last");
    assert_eq!(double.unconfirmed(), [5]);
}

#[tokio::test]
async fn a_stop_comes_behind_the_messages_whose_files_are_still_fetched_and_does_not_wait_for_them() {
    let double = Double::start().await;
    double.file("p1", vec![Download::Hang(b"half".to_vec())]);
    for update in [photo(1, Some("first")), update(2, "second"), update(3, "/stop")] {
        double.add_update(update);
    }
    let channel = telegram_with(polling(&double), Arc::new(Intake::default()));
    let mut stream = channel.start(CancellationToken::new()).await.unwrap();
    let mut order = Vec::new();
    for _ in 0..3 {
        let envelope = next(&mut stream).await;
        order.push((text(&envelope), files(&envelope).1.join(" ")));
        accept(envelope.ack);
    }
    let expected = [("first", "its message was stopped before it was fetched"), ("second", ""), ("/stop", "")];
    assert_eq!(order, expected.map(|(text, unread)| (text.to_owned(), unread.to_owned())));
}

#[tokio::test]
async fn the_end_of_intake_ends_downloads_and_leaves_their_updates() {
    let double = Double::start().await;
    double.file("p1", vec![Download::Hang(b"half".to_vec())]);
    double.add_update(photo(1, None));
    let channel = telegram_with(polling(&double), Arc::new(Intake::default()));
    let intake = CancellationToken::new();
    let mut stream = channel.start(intake.clone()).await.unwrap();
    let end = async {
        while double.downloads().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        intake.cancel();
    };
    let (ended, ()) = tokio::join!(timeout(Duration::from_secs(300), stream.next()), end);
    assert!(ended.expect("it ends").is_none());
    assert_eq!(double.unconfirmed(), [1]);
}

#[tokio::test]
async fn the_parts_of_an_album_are_one_message_that_settles_all_of_their_updates() {
    let double = Double::start().await;
    for number in [1, 2, 3, 4] {
        double.file(&format!("p{number}"), vec![Download::File(vec![b'x'; number])]);
    }
    let video = json!({"file_id": "v", "file_unique_id": "u", "width": 1, "height": 1, "duration": 1});
    for update in [
        part(photo(1, None), "a"),
        part(photo(2, Some("what are these?")), "a"),
        update(3, "another message"),
        part(attached(4, Some("and this"), "video", video), "a"),
    ] {
        double.add_update(update);
    }
    let channel = telegram_with(polling(&double), Arc::new(Intake::default()));
    let mut stream = channel.start(CancellationToken::new()).await.unwrap();
    let album = next(&mut stream).await;
    assert_eq!(text(&album), "what are these?\nand this");
    let facts = facts(&album);
    let sizes: Vec<u64> = facts.attachments.iter().map(|file| file.bytes).collect();
    assert_eq!((sizes, facts.not_read.len(), facts.message_id.as_deref()), (vec![1, 2], 1, Some("2")));
    assert!(timeout(Duration::from_millis(1200), stream.next()).await.is_err(), "the next message waits for the album");
    assert_eq!(double.unconfirmed(), [1, 2, 3, 4], "the album is not committed");
    accept(album.ack);
    let another = next(&mut stream).await;
    assert_eq!(text(&another), "another message");
    accept(another.ack);
    double.add_update(update(5, "last"));
    assert_eq!(text(&next(&mut stream).await), "last");
    confirmed(&double, &mut stream, 5).await;
    assert_eq!(double.unconfirmed(), [5]);
    let told = double.calls("sendMessage");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0]["text"].as_str().unwrap().ends_with("I answer the rest."), "{told:?}");
}

#[tokio::test]
async fn each_part_of_an_album_is_answered_and_a_repeated_delivery_joins_its_first_one() {
    let double = Double::start().await;
    for number in [1, 2, 3, 4] {
        double.file(&format!("p{number}"), vec![Download::File(b"photo".to_vec())]);
    }
    let (mut served, _intake) = served(double).await;
    for (refused, expected) in [(true, 503), (false, 200)] {
        let calls: Vec<_> =
            [1, 2, 2, 3, 4].map(|number| served.post_update(&part(photo(number, None), "a"))).into_iter().collect();
        let album = next(&mut served.stream).await;
        let (read, unread) = files(&album);
        assert_eq!((read.len(), unread), (3, vec!["a message has at most 3 files (attachments.max_count)".to_owned()]));
        match refused {
            true => album.ack.send(Ack::Refused(Refusal::Store("disk full".into()))),
            false => accept(album.ack),
        }
        for call in calls {
            assert_eq!(call.await.unwrap(), expected);
        }
    }
    assert!(served.is_silent().await);
    assert_eq!(served.double.calls("sendMessage").len(), 1, "one notice for the album");
}

#[tokio::test]
async fn a_notice_about_a_file_follows_a_repeated_delivery_if_the_first_call_has_ended() {
    let double = Double::start().await;
    double.file("p1", vec![Download::Hang(b"half".to_vec())]);
    let (mut served, _intake) = served(double).await;
    let gone = served.post_update(&photo(1, Some("look")));
    while served.double.downloads().is_empty() {
        assert!(served.is_silent().await);
    }
    gone.abort(); // Telegram waits no longer
    let _ = gone.await;
    assert!(served.is_silent().await); // the server sees it
    let again = served.post_update(&photo(1, Some("look")));
    assert!(served.is_silent().await);
    let stop = served.post_update(&update(2, "/stop"));
    for expected in ["look", "/stop"] {
        let envelope = next(&mut served.stream).await;
        assert_eq!(text(&envelope), expected);
        accept(envelope.ack);
    }
    assert_eq!(answer_beside(&mut served, again).await, 200);
    assert_eq!(answer_beside(&mut served, stop).await, 200);
    let third = served.post_update(&photo(1, Some("look")));
    assert_eq!(answer_beside(&mut served, third).await, 200);
    assert!(served.is_silent().await);
    let told = served.double.calls("sendMessage");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0]["text"].as_str().unwrap().contains("stopped before it was fetched"), "{told:?}");
}

#[tokio::test]
async fn in_a_group_the_other_parts_of_an_album_belong_to_the_part_that_addresses_the_bot() {
    let double = Double::start().await;
    for number in [1, 2, 3] {
        double.file(&format!("p{number}"), vec![Download::File(b"photo".to_vec())]);
    }
    let in_group = |mut update: Value, from: u64| {
        update["message"]["chat"] = json!({"id": -100, "type": "supergroup", "title": "G"});
        update["message"]["from"]["id"] = json!(from);
        update
    };
    let mut first = photo(1, Some("@belay_bot which one?"));
    first["message"]["caption_entities"] = json!([{"type": "mention", "offset": 0, "length": 10}]);
    for update in [
        in_group(part(first, "a"), 42),
        in_group(part(photo(2, None), "a"), 42),
        in_group(part(photo(3, None), "a"), 7),
        in_group(photo(4, None), 42),
    ] {
        double.add_update(update);
    }
    let config = polling(&double);
    assert_eq!(config.groups.answer, GroupAnswer::Mention);
    let channel = telegram_with(config, Arc::new(Intake::default()));
    let mut stream = channel.start(CancellationToken::new()).await.unwrap();
    let album = next(&mut stream).await;
    assert_eq!((text(&album), files(&album).0.len()), ("which one?".to_owned(), 2));
    accept(album.ack);
    assert!(timeout(Duration::from_millis(700), stream.next()).await.is_err(), "nothing else addresses the bot");
    assert_eq!(double.downloads().len(), 2);
}

#[tokio::test]
async fn a_command_and_an_edit_bring_no_files() {
    let double = Double::start().await;
    let (mut served, intake) = served(double).await;
    let mut edited = photo(2, Some("better"));
    edited["message"]["edit_date"] = json!(2);
    edited["edited_message"] = edited["message"].take();
    edited.as_object_mut().unwrap().remove("message");
    for (update, body, reasons) in [
        (photo(1, Some("/stop")), Body::Text("/stop".into()), vec!["a command takes no files".to_owned()]),
        (edited, Body::Edit("better".into()), vec![]),
    ] {
        let status = served.post_update(&update);
        let envelope = next(&mut served.stream).await;
        assert_eq!((&envelope.inbound.body, files(&envelope)), (&body, (vec![], reasons)));
        accept(envelope.ack);
        assert_eq!(status.await.unwrap(), 200);
    }
    assert!(intake.taken().is_empty() && served.double.calls("getFile").is_empty());
}

#[tokio::test]
async fn a_broken_get_file_and_a_flood_are_waited_for() {
    let double = Double::start().await;
    double.file("d1", vec![Download::File(b"hello".to_vec())]);
    double.trouble(
        "getFile",
        Trouble::Answer(429, json!({"ok": false, "error_code": 429, "parameters": {"retry_after": 7}})),
    );
    double.trouble("getFile", Trouble::BreakOff);
    let intake = Arc::new(Intake::default());
    let channel = telegram_with(TelegramConfig { ..polling(&double) }, intake);
    double.add_update(document(1, "a.txt", 5));
    let mut stream = channel.start(CancellationToken::new()).await.unwrap();
    let envelope = next_at_last(&mut stream).await;
    assert_eq!(files(&envelope), (vec!["a.txt".to_owned()], vec![]));
    assert_eq!(double.calls("getFile").len(), 3);
}

#[tokio::test]
async fn the_words_of_an_own_voice_message_are_its_text_and_never_an_order() {
    let voice = |number: u64, caption: Option<&str>| {
        let file = json!({"file_id": format!("v{number}"), "file_unique_id": "u", "duration": 2});
        attached(number, caption, "voice", file)
    };
    let mut forwarded = voice(3, None);
    forwarded["message"]["forward_origin"] = json!({"type": "hidden_user", "date": 1, "sender_user_name": "Carl"});
    let double = Double::start().await;
    for (id, words) in [("v1", "yes"), ("v2", "/stop"), ("v3", "yes"), ("v5", "yes")] {
        double.file(id, vec![Download::File(words.into())]);
    }
    double.file("v4", vec![Download::File(vec![0xff, 0xfe])]);
    let audio = json!({"file_id": "v5", "file_unique_id": "u", "duration": 2, "file_name": "song.mp3"});
    let (mut served, _intake) = served(double).await;
    for (update, expected, detail) in [
        (voice(1, None), "[voice message] yes", "text, which is part of the text of this message"),
        (voice(2, Some("hear")), "hear\n[voice message] /stop", "text, which is part of the text of this message"),
        (forwarded, NO_TEXT, "text"),
        (voice(4, None), NO_TEXT, "its type is not known"),
        (attached(5, None, "audio", audio), NO_TEXT, "text"),
    ] {
        let _status = served.post_update(&update);
        let envelope = next(&mut served.stream).await;
        let facts = facts(&envelope);
        assert_eq!((&*text(&envelope), facts.attachments[0].content.detail()), (expected, detail));
        assert!(facts.is_untrusted());
        accept(envelope.ack);
    }
    let told = served.double.wait_for("sendMessage", 1).await;
    let line = "I have not read this: file (voice.ogg, 2 bytes): its type is not known. Please write it out.";
    assert_eq!((told.len(), &told[0]["text"]), (1, &json!(line)), "only for the file without words");
}

/// The answer to a call that begins no message. The channel works only while its stream is asked.
async fn answer_beside(served: &mut Served, call: JoinHandle<u16>) -> u16 {
    tokio::select! {
        status = call => status.unwrap(),
        message = served.stream.next() => panic!("a message of its own: {}", message.is_some()),
    }
}

#[tokio::test]
async fn a_part_that_is_delivered_again_after_its_album_went_on_is_no_message_of_its_own() {
    let post = |served: &Served, number: u64| served.post_update(&part(photo(number, None), "a"));
    // On a slow machine the second part may come after the pause that ends an album: then it begins anew.
    let (mut served, _intake, mut calls, album) = loop {
        let double = Double::start().await;
        for number in [1, 2, 3] {
            double.file(&format!("p{number}"), vec![Download::File(b"photo".to_vec())]);
        }
        let (mut served, intake) = served(double).await;
        let calls = vec![post(&served, 1), post(&served, 2)];
        let album = next(&mut served.stream).await;
        if facts(&album).attachments.len() == 2 {
            break (served, intake, calls, album);
        }
    };
    // Telegram gives up waiting: its connections end, and it delivers both parts again.
    calls.drain(..).for_each(|call| call.abort());
    let waiting = post(&served, 2);
    assert!(served.is_silent().await);
    accept(album.ack);
    assert_eq!(answer_beside(&mut served, waiting).await, 200);
    let late = post(&served, 1);
    assert_eq!(answer_beside(&mut served, late).await, 200);
    assert!(timeout(Duration::from_millis(800), served.stream.next()).await.is_err());

    // One that was not accepted is a message again.
    let call = post(&served, 3);
    next(&mut served.stream).await.ack.send(Ack::Refused(Refusal::ShuttingDown));
    assert_eq!(call.await.unwrap(), 503);
    let again = post(&served, 3);
    accept(next(&mut served.stream).await.ack);
    assert_eq!(again.await.unwrap(), 200);
}

#[tokio::test]
async fn four_files_are_downloaded_at_the_same_time_and_no_more() {
    let double = Double::start().await;
    for number in 1..=6 {
        double.file(&format!("p{number}"), vec![Download::Hang(b"half".to_vec()), Download::File(b"photo".to_vec())]);
        double.add_update(photo(number, None));
    }
    let channel = telegram_with(polling(&double), Arc::new(Intake::default()));
    let mut stream = channel.start(CancellationToken::new()).await.unwrap();
    assert!(timeout(Duration::from_millis(500), stream.next()).await.is_err());
    assert_eq!(double.downloads().len(), 4);
    for number in 1..=6 {
        let envelope = next_at_last(&mut stream).await;
        assert_eq!(facts(&envelope).message_id, Some(number.to_string()));
        accept(envelope.ack);
    }
}
