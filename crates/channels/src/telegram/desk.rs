//! Sorts updates for the webhook and for polling: logs what is not for us, answers what has no text.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belay_protocol::{Ack, Inbound, Refusal};
use frankenstein::updates::Update;
use serde_json::Value;
use serde_json::value::RawValue;
use tracing::{debug, info, trace, warn};

use super::api::{ApiError, BotApi};
use super::conversation::Conversation;
use super::deliver;
use super::intake::{Rules, Verdict};
use super::taps::{self, Tap};

/// Strangers and groups that are remembered as logged. Beyond, new ones are logged at debug level only, so that nobody fills
/// the log by opening accounts.
const STRANGERS_MAX: usize = 256;

/// Conversations that are remembered as told that their messages are too old. Far beyond what a bot has, since only people on
/// its lists are told; beyond it, each message that goes without a word is a warning.
const TOLD_MAX: usize = 16_384;

/// Deadline of a line of our own. Short: the webhook's answer waits for it.
const NOTICE_DEADLINE: Duration = Duration::from_secs(5);

const TEXT_ONLY: &str = "I can only read text so far. Please write it out.";

const NOT_TAKEN: &str =
    "Too many messages are waiting in this conversation; this one was not taken. Please send it again later.";

const TOO_OLD: &str = "I was away for long. What was written here in the meantime is too old to be answered; please send again what still matters.";

/// What both ways of receiving share.
pub(super) struct Desk {
    pub(super) api: BotApi,
    pub(super) rules: Rules,
    strangers: Mutex<HashSet<u64>>,
    /// Groups that are not listed and were logged; the bot may be added to any.
    groups: Mutex<HashSet<i64>>,
    /// Conversations that were told that their messages are too old.
    told_too_old: Mutex<HashSet<Conversation>>,
    /// The last album that was answered: each of its pictures is an update of its own.
    album: Mutex<Option<String>>,
}

/// What goes to the agent.
pub(super) struct Parcel {
    pub(super) inbound: Inbound,
    /// The tap that it is, which wants an answer.
    pub(super) tap: Option<Tap>,
}

/// What to do with an update.
pub(super) enum Sorted {
    /// Hand it to the agent.
    Message(Box<Parcel>),
    /// Nothing more.
    Done,
    /// Have it delivered again later.
    Later,
}

/// What the agent's acknowledgement means for the platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// It is committed, or will never be: no more of it.
    Done,
    /// It may be accepted later; not before the delay, if there is one.
    Later {
        /// Whether only this conversation is full, not the house.
        is_busy: bool,
        /// How long to wait.
        after: Duration,
    },
}

/// Delay before another attempt where the refusal names none.
const LATER: Duration = Duration::from_secs(2);

impl Desk {
    pub(super) fn new(api: BotApi, rules: Rules) -> Self {
        Self {
            api,
            rules,
            strangers: Mutex::default(),
            groups: Mutex::default(),
            told_too_old: Mutex::default(),
            album: Mutex::default(),
        }
    }

    /// Decides on an update as it came. One that cannot be understood is done with: it would be the same next time.
    pub(super) async fn sort(&self, raw: &RawValue) -> Sorted {
        let update: Update = match serde_json::from_str(raw.get()) {
            Ok(update) => update,
            Err(error) => {
                // The error's own words may quote the message: only its place is logged.
                let (line, column) = (error.line(), error.column());
                warn!(update_id = update_id(raw), line, column, "an update that cannot be understood is skipped");
                return Sorted::Done;
            }
        };
        let update_id = update.update_id;
        match self.rules.judge(update) {
            Verdict::Message(inbound) => return Sorted::Message(Box::new(Parcel { inbound: *inbound, tap: None })),
            Verdict::Tapped(inbound, tap) => {
                return Sorted::Message(Box::new(Parcel { inbound: *inbound, tap: Some(tap) }));
            }
            Verdict::TappedInVain { tap, words, stranger } => {
                stranger.into_iter().for_each(|id| self.log_stranger(id));
                taps::tell(&self.api, &tap, words, true).await;
            }
            Verdict::NotYet => {
                debug!(update_id, "the bot's own user name is not known yet");
                return Sorted::Later;
            }
            Verdict::NoText { conversation, message_id, album } => {
                if self.is_new_album(album) {
                    self.say_text_only(conversation, message_id).await;
                }
            }
            Verdict::TooOld(conversation) => {
                debug!(update_id, %conversation, "a message from long before the start is not answered");
                self.say_too_old(conversation).await;
            }
            Verdict::Stranger(id) => self.log_stranger(id),
            Verdict::UnlistedGroup(id) => self.log_group(id),
            Verdict::NotForUs(why) => trace!(update_id, why, "update skipped"),
        }
        Sorted::Done
    }

    fn is_new_album(&self, album: Option<String>) -> bool {
        if album.is_none() {
            return true;
        }
        let mut last = self.album.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = *last != album;
        *last = album;
        is_new
    }

    /// Tells a conversation, once, that its messages are too old. One that this did not reach hears it with its next message.
    async fn say_too_old(&self, conversation: Conversation) {
        {
            let mut told = self.told_too_old();
            if told.contains(&conversation) {
                return;
            }
            if told.len() >= TOLD_MAX {
                warn!(%conversation, told = TOLD_MAX, "a message is too old to be answered, and its conversation is not told");
                return;
            }
            told.insert(conversation); // before it is said: the webhook sorts several at a time
        }
        if !self.say(conversation, None, TOO_OLD).await {
            self.told_too_old().remove(&conversation);
        }
    }

    fn told_too_old(&self) -> MutexGuard<'_, HashSet<Conversation>> {
        self.told_too_old.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn say_text_only(&self, conversation: Conversation, message_id: i32) {
        self.say(conversation, Some(message_id), TEXT_ONLY).await; // best effort
    }

    /// What the agent's acknowledgement of a parcel means; `None`: it was dropped, or did not come in time. A tap that is
    /// done with is answered.
    pub(super) async fn settle(&self, tap: Option<&Tap>, ack: Option<Ack>) -> Settled {
        let settled = settled(ack.as_ref());
        if let Some(tap) = tap.filter(|_| settled == Settled::Done) {
            taps::answer(&self.api, tap, ack.as_ref()).await;
        }
        settled
    }

    /// Tells the person that a message, or a tap, was given up. Best effort.
    pub(super) async fn say_not_taken(&self, parcel: &Parcel) {
        if let Some(tap) = &parcel.tap {
            return taps::answer(&self.api, tap, None).await;
        }
        let inbound = &parcel.inbound;
        let Some(route) = &inbound.reply_to else { return };
        let Ok(conversation) = route.conversation.parse() else { return };
        let message_id = route.reply_to.as_deref().and_then(|id| id.parse().ok());
        self.say(conversation, message_id, NOT_TAKEN).await; // best effort
    }

    /// Best effort. Whether trying again is of no use: it was sent, or Telegram refuses it.
    async fn say(&self, conversation: Conversation, message_id: Option<i32>, line: &str) -> bool {
        match deliver::notice(&self.api, conversation, message_id, line, NOTICE_DEADLINE).await {
            Ok(()) => true,
            Err(error) => {
                debug!(%error, line, "a line of our own was not sent");
                matches!(error, ApiError::Refused { .. })
            }
        }
    }

    fn log_group(&self, id: i64) {
        if is_new(&self.groups, id) {
            info!(telegram_group = id, "messages of a group not in channels.telegram.groups.allow are dropped");
        }
    }

    fn log_stranger(&self, id: u64) {
        if is_new(&self.strangers, id) {
            info!(telegram_user = id, "a message from somebody not in channels.telegram.allow was dropped");
        } else {
            debug!(telegram_user = id, "a stranger's message was dropped");
        }
    }
}

/// Whether that id was not there before, and is remembered now.
fn is_new<T: Eq + std::hash::Hash>(seen: &Mutex<HashSet<T>>, id: T) -> bool {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.len() < STRANGERS_MAX && seen.insert(id)
}

/// The number of an update that may be broken otherwise.
pub(super) fn update_id(raw: &RawValue) -> Option<i64> {
    serde_json::from_str::<Value>(raw.get()).ok()?.get("update_id")?.as_i64()
}

fn settled(ack: Option<&Ack>) -> Settled {
    match ack {
        Some(Ack::Refused(Refusal::Busy { retry_after, .. })) => Settled::Later { is_busy: true, after: *retry_after },
        // Kept by Telegram until there is room again: whoever wrote cannot help it.
        Some(Ack::Refused(Refusal::Overloaded { retry_after, .. })) => {
            Settled::Later { is_busy: false, after: *retry_after }
        }
        None | Some(Ack::Refused(Refusal::Store(_) | Refusal::ShuttingDown)) => {
            Settled::Later { is_busy: false, after: LATER }
        }
        Some(_) => Settled::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telegram::test_desk;

    fn conversation(chat: usize) -> Conversation {
        chat.to_string().parse().expect("a conversation")
    }

    #[tokio::test]
    async fn who_could_not_be_told_that_messages_are_too_old_is_told_with_the_next() {
        let desk = test_desk();
        desk.say_too_old(conversation(42)).await;
        assert!(desk.told_too_old().is_empty(), "nobody was reached");
    }

    #[tokio::test]
    async fn conversations_that_are_told_are_remembered_up_to_a_bound() {
        let desk = test_desk();
        desk.told_too_old().extend((0..TOLD_MAX).map(|chat| conversation(chat + 1)));
        desk.say_too_old(conversation(1)).await;
        desk.say_too_old(conversation(TOLD_MAX + 1)).await;
        let told = desk.told_too_old();
        assert_eq!((told.len(), told.contains(&conversation(1))), (TOLD_MAX, true));
    }
}
