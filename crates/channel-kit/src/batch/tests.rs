#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use async_trait::async_trait;
use belay_protocol::{Body, CommandReply, Principal, SessionKey};

use super::*;

/// One cursor in memory, whose store fails so often.
#[derive(Default)]
struct OneCursor {
    value: Mutex<Option<Arc<str>>>,
    failures: Mutex<u32>,
}

#[async_trait]
impl Cursors for OneCursor {
    async fn cursor(&self, _channel: &ChannelId, _name: &str) -> Result<Option<Arc<str>>, StoreError> {
        Ok(self.value.lock().unwrap().clone())
    }

    async fn keep_cursor(&self, _channel: &ChannelId, cursor: &Cursor) -> Result<(), StoreError> {
        let mut failures = self.failures.lock().unwrap();
        if *failures > 0 {
            *failures -= 1;
            return Err(StoreError::Unavailable("full".into()));
        }
        *self.value.lock().unwrap() = Some(cursor.value().into());
        Ok(())
    }
}

fn inbound() -> Inbound {
    Inbound::new("c".into(), SessionKey::new("c:1"), Principal::operator("c"), Body::Text("hi".into()))
}

fn accepted() -> Ack {
    Ack::Command(CommandReply { command: "/ping".into(), reply: "pong".into(), resumes: None, refused: false })
}

fn busy() -> Ack {
    Ack::Refused(Refusal::Busy { what: "queue".into(), retry_after: Duration::from_secs(3) })
}

struct Kit {
    cursors: Arc<OneCursor>,
    batches: Batches,
}

impl Kit {
    fn new() -> Self {
        let cursors = Arc::new(OneCursor::default());
        Self { batches: Batches::new("c".into(), cursors.clone()), cursors }
    }

    /// A batch whose messages get these acknowledgements; `None`: the sender is dropped.
    async fn read(&mut self, acks: impl IntoIterator<Item = Option<Ack>>) -> BatchEnd {
        let mut batch = Batch::default();
        for ack in acks {
            let envelope = batch.add(inbound());
            if let Some(ack) = ack {
                envelope.ack.send(ack);
            }
        }
        self.batches.end(batch, &Cursor::new("since", "s1").unwrap()).await
    }

    async fn pause(&mut self, acks: impl IntoIterator<Item = Option<Ack>>) -> Duration {
        match self.read(acks).await {
            BatchEnd::Again(pause) => pause,
            BatchEnd::Kept(acks) => panic!("the cursor was kept: {acks:?}"),
        }
    }

    async fn position(&self) -> Option<Arc<str>> {
        self.batches.position("since").await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_cursor_is_kept_once_all_messages_are_accepted_or_refused_for_good() {
    let mut kit = Kit::new();
    assert_eq!(kit.position().await, None);
    let forbidden = Ack::Refused(Refusal::Forbidden("no".into()));
    let BatchEnd::Kept(acks) = kit.read([Some(accepted()), Some(forbidden), Some(accepted())]).await else {
        panic!("the cursor stays");
    };
    assert!(matches!(&acks[..], [Ack::Command(_), Ack::Refused(Refusal::Forbidden(_)), Ack::Command(_)]), "{acks:?}");
    assert_eq!(kit.position().await.as_deref(), Some("s1"));
    assert!(matches!(kit.read([]).await, BatchEnd::Kept(acks) if acks.is_empty()), "a batch without messages");
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_read_again_after_growing_pauses_while_the_agent_cannot_take_it() {
    let mut kit = Kit::new();
    let mut pauses = Vec::new();
    let store = || Some(Ack::Refused(Refusal::Store("full".into())));
    for last in [store(), None, Some(Ack::Refused(Refusal::ShuttingDown)), store(), store(), store(), store()] {
        pauses.push(kit.pause([Some(accepted()), last]).await.as_secs());
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60]);
    assert_eq!(kit.position().await, None);
    assert!(matches!(kit.read([Some(accepted())]).await, BatchEnd::Kept(_)));
    assert_eq!(kit.pause([store()]).await.as_secs(), 1, "the pauses begin anew");
}

#[tokio::test(start_paused = true)]
async fn a_message_without_an_acknowledgement_holds_up_nothing_for_ever() {
    let mut kit = Kit::new();
    let mut batch = Batch::default();
    let _unanswered = batch.add(inbound());
    let end = kit.batches.end(batch, &Cursor::new("since", "s1").unwrap()).await;
    assert!(matches!(end, BatchEnd::Again(_)), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_is_given_up_if_its_conversation_stays_full() {
    let mut kit = Kit::new();
    let begun = Instant::now();
    let acks = loop {
        match kit.read([Some(busy()), Some(accepted())]).await {
            BatchEnd::Again(pause) => {
                assert!(pause >= Duration::from_secs(3), "as long as the refusal says");
                assert_eq!(kit.position().await, None);
                tokio::time::sleep(pause).await;
            }
            BatchEnd::Kept(acks) => break acks,
        }
    };
    assert!(begun.elapsed() >= BUSY_MAX, "{:?}", begun.elapsed());
    assert!(matches!(&acks[..], [Ack::Refused(Refusal::Busy { .. }), Ack::Command(_)]), "{acks:?}");
    assert_eq!(kit.position().await.as_deref(), Some("s1"));
    kit.pause([Some(busy())]).await; // the next full conversation has its own time
}

#[tokio::test(start_paused = true)]
async fn a_cursor_that_the_store_does_not_take_stays() {
    let mut kit = Kit::new();
    *kit.cursors.failures.lock().unwrap() = 1;
    assert_eq!(kit.pause([Some(accepted())]).await.as_secs(), 1);
    assert!(matches!(kit.read([Some(accepted())]).await, BatchEnd::Kept(_)));
}
