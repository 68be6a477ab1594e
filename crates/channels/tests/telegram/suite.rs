//! The suite of channels over Telegram.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use belay_protocol::{Channel, ReplyRoute};
use belay_testkit::channel_suite::{self, Platform};

use super::*;
use crate::deliver::route;
use crate::double::Trouble;
use crate::polling::polling;

struct Chat {
    double: Double,
    /// The number of the last update.
    updates: AtomicU64,
    /// The numbers of the calls of `sendMessage` that were refused.
    refused: Mutex<HashSet<usize>>,
}

impl Chat {
    async fn start() -> Self {
        Self { double: Double::start().await, updates: AtomicU64::new(0), refused: Mutex::default() }
    }

    fn sent(&self) -> Vec<Value> {
        self.double.calls("sendMessage")
    }
}

#[async_trait]
impl Platform for Chat {
    fn channel(&self) -> Arc<dyn Channel> {
        Arc::new(telegram(polling(&self.double)))
    }

    async fn says(&self, text: &str) {
        let number = self.updates.fetch_add(1, Ordering::SeqCst) + 1;
        let mut update = update(number, text);
        update["message"]["message_id"] = json!(number);
        self.double.add_update(update);
    }

    fn route(&self) -> ReplyRoute {
        route("42", None)
    }

    async fn saw(&self) -> Vec<String> {
        let refused = self.refused.lock().unwrap().clone();
        let shown = self.sent().into_iter().enumerate().filter(|(number, _)| !refused.contains(number));
        shown.map(|(_, call)| call["text"].as_str().unwrap().to_owned()).collect()
    }

    async fn lose_answer_after(&self, shown: usize) {
        for number in 0..shown {
            let sent = json!({"message_id": number, "date": 1, "chat": {"id": 42, "type": "private"}});
            self.double.trouble("sendMessage", Trouble::Answer(200, json!({"ok": true, "result": sent})));
        }
        self.double.trouble("sendMessage", Trouble::BreakOff);
    }

    async fn limit_next(&self, after: Option<Duration>) {
        self.refused.lock().unwrap().insert(self.sent().len());
        let mut refusal = json!({"ok": false, "error_code": 429, "description": "Too Many Requests"});
        if let Some(after) = after {
            refusal["parameters"] = json!({"retry_after": after.as_secs()});
        }
        self.double.trouble("sendMessage", Trouble::Answer(429, refusal));
    }

    fn length(&self, text: &str) -> usize {
        text.encode_utf16().count()
    }

    fn longest(&self) -> usize {
        4096
    }
}

macro_rules! passes {
    ($($case:ident)+) => {
        $(#[tokio::test]
        async fn $case() {
            channel_suite::$case(&Chat::start().await).await;
        })+
    };
}

passes! {
    a_message_that_a_crash_left_unacknowledged_comes_again_under_its_key
    a_message_that_the_store_cannot_take_is_offered_again_and_those_behind_it_keep_their_order
    a_thousand_messages_after_an_outage_all_arrive_once_and_in_order
    a_lost_answer_shows_nothing_twice
    a_rate_limit_shows_nothing_and_says_when_to_try_again
    a_long_text_is_split_in_the_unit_of_the_platform_and_goes_on_where_it_was_interrupted
}
