//! A group becomes a supergroup with a new id: it keeps its permission, its session and the replies that wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use belay_channels::{GroupsConfig, Telegram, TelegramConfig};
use belay_protocol::{
    Channel, ChannelId, Envelope, MoveStore, MovedConversation, NoAttachments, Outbound, ReplyRoute, StoreError,
    Streaming, WorkIndicator,
};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::blobs::OneBlob;
use crate::deliver::{reply, route};
use crate::double::{Double, Trouble};
use crate::polling::polling;
use crate::webhook::{Served, serve_channel};
use crate::{accept, config, confirmed, next, telegram_of, update};

const OLD: i64 = -100;
const NEW: i64 = -1009;

/// Moves in memory, which outlive the channel.
#[derive(Default)]
pub(crate) struct MemoryMoves {
    rows: Mutex<Vec<MovedConversation>>,
    writes: Mutex<usize>,
    /// How many of the next writes fail.
    failures: AtomicUsize,
    /// How many of the next reads fail.
    unread: AtomicUsize,
    /// How many of the next writes get no answer, and a permit for each.
    silent: AtomicUsize,
    asked: Notify,
}

/// Counts down. Whether there was something left.
fn counts_down(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

#[async_trait]
impl MoveStore for MemoryMoves {
    async fn moves(&self, _channel: ChannelId) -> Result<Vec<MovedConversation>, StoreError> {
        if counts_down(&self.unread) {
            return Err(StoreError::Unavailable("no connection".into()));
        }
        Ok(self.rows.lock().unwrap().clone())
    }

    async fn put_move(&self, moved: MovedConversation) -> Result<(), StoreError> {
        if counts_down(&self.silent) {
            self.asked.notify_one();
            std::future::pending::<()>().await;
        }
        if counts_down(&self.failures) {
            return Err(StoreError::Unavailable("disk full".into()));
        }
        let mut rows = self.rows.lock().unwrap();
        rows.retain(|known| known.from != moved.from);
        rows.push(moved);
        *self.writes.lock().unwrap() += 1;
        Ok(())
    }
}

fn channel(config: TelegramConfig, moves: &Arc<MemoryMoves>) -> Telegram {
    telegram_of(config, Arc::new(NoAttachments), moves.clone())
}

async fn served(moves: &Arc<MemoryMoves>, allow: &[i64]) -> Served {
    let double = Double::start().await;
    let groups = GroupsConfig { allow: allow.to_vec(), ..GroupsConfig::default() };
    let config = TelegramConfig { groups, ..config(&double.base) };
    serve_channel(double, channel(config, moves)).await
}

/// A message of user 42 in a group, with these fields.
fn in_group(update_id: u64, chat: i64, fields: Value) -> Value {
    let kind = if chat == OLD { "group" } else { "supergroup" };
    let mut message = json!({
        "message_id": 7, "date": 1, "from": {"id": 42, "is_bot": false, "first_name": "A"},
        "chat": {"id": chat, "type": kind, "title": "G"},
    });
    message.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"update_id": update_id, "message": message})
}

fn to_the_bot(update_id: u64, chat: i64) -> Value {
    let entities = json!([{"type": "mention", "offset": 0, "length": 10}]);
    in_group(update_id, chat, json!({"text": "@belay_bot hello", "entities": entities}))
}

/// The service messages of the move: the one in the old group, and the one in the new group.
fn moved_to(update_id: u64) -> Value {
    in_group(update_id, OLD, json!({"migrate_to_chat_id": NEW}))
}

fn moved_from(update_id: u64) -> Value {
    in_group(update_id, NEW, json!({"migrate_from_chat_id": OLD}))
}

fn refusal() -> Trouble {
    let description = "Bad Request: group chat was upgraded to a supergroup chat";
    let parameters = json!({"migrate_to_chat_id": NEW});
    let body = json!({"ok": false, "error_code": 400, "description": description, "parameters": parameters});
    Trouble::Answer(400, body)
}

async fn hears(served: &mut Served, update: Value) -> (String, ReplyRoute) {
    let status = served.post_update(&update);
    let Envelope { inbound, ack } = next(&mut served.stream).await;
    accept(ack);
    assert_eq!(status.await.unwrap(), 200);
    (inbound.session.to_string(), inbound.reply_to.unwrap())
}

/// A reply that was queued before the move.
fn queued() -> Outbound {
    Outbound { route: route("-100", Some("5")), ..reply("queued") }
}

/// The chat and the answered message of each call of a method.
fn places(double: &Double, method: &str) -> Vec<Value> {
    double.calls(method).iter().map(|call| json!([call["chat_id"], call["reply_parameters"]["message_id"]])).collect()
}

/// How a move becomes known.
#[derive(Clone, Copy, Debug)]
enum Told {
    InOldGroup,
    InNewGroup,
    ByRefusal,
}

async fn tell(served: &Served, told: Told, update_id: u64) {
    let status = match told {
        Told::InOldGroup => served.post_update(&moved_to(update_id)),
        Told::InNewGroup => served.post_update(&moved_from(update_id)),
        Told::ByRefusal => {
            served.double.trouble("sendMessage", refusal());
            return served.channel.deliver(&queued()).await.unwrap();
        }
    };
    assert_eq!(status.await.unwrap(), 200);
}

#[tokio::test]
async fn a_group_keeps_permission_session_and_replies_however_its_move_becomes_known() {
    use Told::{ByRefusal, InNewGroup, InOldGroup};
    let orders: [&[Told]; 7] = [
        &[InOldGroup],
        &[InNewGroup],
        &[ByRefusal],
        &[InOldGroup, InNewGroup, InOldGroup, InNewGroup],
        &[InNewGroup, InOldGroup],
        &[ByRefusal, InOldGroup, InNewGroup],
        &[InOldGroup, ByRefusal, ByRefusal],
    ];
    for order in orders {
        let moves = Arc::default();
        let mut before = served(&moves, &[OLD]).await;
        for (number, told) in (1..).zip(order) {
            tell(&before, *told, number).await;
        }
        assert_eq!(*moves.writes.lock().unwrap(), 1, "{order:?}: stored and told once");
        // Also after a restart, and after the line was put into the settings.
        for (restarted, allow) in [(false, OLD), (true, OLD), (true, NEW)] {
            let mut again = match restarted {
                false => None,
                true => Some(served(&moves, &[allow]).await),
            };
            let served = again.as_mut().unwrap_or(&mut before);
            let (session, to) = hears(served, to_the_bot(50, NEW)).await;
            assert_eq!((session.as_str(), &*to.conversation), ("telegram:-100", "-100"), "{order:?}");
            let sent = served.double.calls("sendMessage").len();
            served.channel.deliver(&Outbound { route: to, ..reply("answer") }).await.unwrap();
            served.channel.deliver(&queued()).await.unwrap();
            let seen = places(&served.double, "sendMessage").split_off(sent);
            assert_eq!(seen, [json!([NEW, 7]), json!([NEW, null])], "{order:?} {allow}");
        }
    }
}

#[tokio::test]
async fn a_refusal_of_any_request_tells_the_move_and_what_was_asked_goes_to_the_new_group() {
    let files = |channel: Telegram| channel.with_files(Arc::new(OneBlob(b"hello")));
    for method in ["sendDocument", "sendMessage", "editMessageText", "sendChatAction"] {
        let (double, moves) = (Double::start().await, Arc::default());
        let channel = files(channel(config(&double.base), &moves));
        double.trouble(method, refusal());
        match method {
            "sendDocument" => {
                let file = belay_protocol::OutboundFile {
                    name: "a.txt".into(),
                    media_type: "text/plain".into(),
                    bytes: 5,
                    digest: "0".repeat(64).parse().unwrap(),
                    path: String::new(),
                };
                channel.deliver(&Outbound { file: Some(file), ..queued() }).await.unwrap();
                let chats: Vec<_> = double.calls(method).iter().map(|call| call["chat_id"].clone()).collect();
                assert_eq!(chats, ["-100", "-1009"]);
            }
            "sendMessage" => {
                let Streaming::Preview(preview) = channel.display().streaming else { panic!("previews") };
                let shown = preview.begin(&route("-100", Some("5")), "half").await.unwrap();
                assert_eq!(&*shown, "-1009/99");
                preview.change(&route("-100", None), &shown, "half an answer").await.unwrap();
                let answer = Outbound { preview: Some(shown), ..queued() };
                channel.deliver(&answer).await.unwrap();
                let edited = double.calls("editMessageText");
                assert!(edited.iter().all(|call| call["chat_id"] == NEW && call["message_id"] == 99), "{edited:?}");
                assert_eq!(places(&double, method), [json!([OLD, 5]), json!([NEW, null])]);
            }
            "editMessageText" => {
                // The preview stays in the old group, where nobody looks: it is taken away.
                channel.deliver(&Outbound { preview: Some("99".into()), ..queued() }).await.unwrap();
                assert_eq!(places(&double, "sendMessage"), [json!([NEW, null])]);
                assert_eq!(places(&double, "deleteMessage"), [json!([OLD, null])]);
            }
            _ => {
                let run = CancellationToken::new();
                let place = route("-100", None);
                tokio::join!(channel.working(&place, run.clone()), async {
                    let calls = double.wait_for(method, 2).await;
                    assert_eq!(calls[1]["chat_id"], NEW);
                    run.cancel();
                });
            }
        }
        assert_eq!(*moves.writes.lock().unwrap(), 1, "{method}");
    }
}

#[tokio::test]
async fn a_button_of_the_old_group_and_one_of_the_new_group_answer_in_the_same_session() {
    let moves = Arc::default();
    let mut served = served(&moves, &[OLD]).await;
    tell(&served, Told::InOldGroup, 1).await;
    let data = format!("belay:a:{}", belay_protocol::ApprovalId::new());
    for (number, chat) in [(2, OLD), (3, NEW)] {
        let mut tap = crate::tap(number, 42, &data);
        tap["callback_query"]["message"]["chat"] = json!({"id": chat, "type": "supergroup", "title": "G"});
        let _status = served.post_update(&tap);
        let envelope = next(&mut served.stream).await;
        assert_eq!(envelope.inbound.session.to_string(), "telegram:-100", "{chat}");
    }
}

#[tokio::test]
async fn a_move_of_a_group_that_is_not_served_changes_nothing() {
    let moves = Arc::default();
    let mut served = served(&moves, &[-5]).await;
    for (number, told) in [(1, Told::InOldGroup), (2, Told::InNewGroup)] {
        tell(&served, told, number).await;
    }
    assert_eq!(*moves.writes.lock().unwrap(), 0);
    assert_eq!(served.post_update(&to_the_bot(3, NEW)).await.unwrap(), 200);
    assert!(served.is_silent().await);
    // A stored reply is followed all the same.
    tell(&served, Told::ByRefusal, 4).await;
    assert_eq!(places(&served.double, "sendMessage"), [json!([OLD, 5]), json!([NEW, null])]);
    assert_eq!(*moves.writes.lock().unwrap(), 0);
}

#[tokio::test]
async fn a_group_that_the_settings_already_name_by_its_new_id_keeps_the_session_that_it_has_there() {
    let moves = Arc::default();
    let mut served = served(&moves, &[NEW]).await;
    assert_eq!(hears(&mut served, to_the_bot(1, NEW)).await.0, "telegram:-1009");
    tell(&served, Told::ByRefusal, 2).await; // a routine of long ago
    assert_eq!(hears(&mut served, to_the_bot(3, NEW)).await.0, "telegram:-1009");
    served.channel.deliver(&queued()).await.unwrap();
    assert_eq!(places(&served.double, "sendMessage").split_off(1), [json!([NEW, null]), json!([NEW, null])]);
}

#[tokio::test]
async fn a_move_that_cannot_be_stored_is_told_again() {
    let moves: Arc<MemoryMoves> = Arc::default();
    let served = served(&moves, &[OLD]).await;
    moves.failures.store(usize::MAX, Ordering::Relaxed);
    assert_eq!(served.post_update(&moved_to(1)).await.unwrap(), 503, "telegram delivers it again");
    served.double.trouble("sendMessage", refusal());
    served.channel.deliver(&queued()).await.unwrap();
    moves.failures.store(0, Ordering::Relaxed);
    assert_eq!(served.post_update(&moved_to(1)).await.unwrap(), 200);
    assert_eq!(*moves.writes.lock().unwrap(), 1);
}

#[tokio::test]
async fn polling_repeats_a_move_that_cannot_be_stored_and_confirms_nothing_before() {
    let (double, moves) = (Double::start().await, Arc::<MemoryMoves>::default());
    moves.failures.store(1, Ordering::Relaxed);
    double.add_update(update(1, "before"));
    double.add_update(moved_to(2));
    double.add_update(to_the_bot(3, NEW));
    let mut stream = channel(polling(&double), &moves).start(CancellationToken::new()).await.unwrap();
    for session in ["telegram:42", "telegram:-100"] {
        let Envelope { inbound, ack } = next(&mut stream).await;
        assert_eq!(inbound.session.to_string(), session);
        assert_eq!(double.calls("getUpdates").len(), 1, "{session}");
        accept(ack);
    }
    confirmed(&double, &mut stream, 4).await;
    assert_eq!(*moves.writes.lock().unwrap(), 1);
}

#[tokio::test]
async fn a_move_that_another_node_has_learned_is_found_with_the_first_message_of_the_new_group() {
    let moves: Arc<MemoryMoves> = Arc::default();
    let mut served = served(&moves, &[OLD]).await;
    let channel = "telegram".into();
    let moved = MovedConversation { channel, from: OLD.to_string(), to: NEW.to_string(), keeps_session: true };
    moves.put_move(moved).await.unwrap();
    assert_eq!(hears(&mut served, to_the_bot(1, NEW)).await.0, "telegram:-100");
}

#[tokio::test]
async fn a_message_of_the_new_group_waits_for_a_store_that_cannot_tell_whose_it_is() {
    let moves: Arc<MemoryMoves> = Arc::default();
    let mut served = served(&moves, &[OLD]).await;
    let moved = MovedConversation {
        channel: "telegram".into(),
        from: OLD.to_string(),
        to: NEW.to_string(),
        keeps_session: true,
    };
    moves.put_move(moved).await.unwrap();
    moves.unread.store(1, Ordering::Relaxed);
    assert_eq!(served.post_update(&to_the_bot(1, NEW)).await.unwrap(), 503, "telegram delivers it again");
    assert_eq!(hears(&mut served, to_the_bot(1, NEW)).await.0, "telegram:-100");
}

#[tokio::test]
async fn a_store_that_gives_no_answer_for_one_group_holds_up_no_other() {
    let moves: Arc<MemoryMoves> = Arc::default();
    let served = served(&moves, &[OLD]).await;
    moves.silent.store(1, Ordering::Relaxed);
    let update = moved_to(1);
    let mut waiting = std::pin::pin!(served.post_update(&update)); // it stays: a request that is given up holds nothing
    tokio::select! {
        answer = &mut waiting => panic!("the store gives no answer: {answer:?}"),
        () = moves.asked.notified() => {}
    }
    let other = to_the_bot(2, -777); // a group that is not listed: the moves are read again
    let answered = tokio::time::timeout(std::time::Duration::from_secs(300), served.post_update(&other)).await;
    assert_eq!(answered.expect("an answer").unwrap(), 200);
}
