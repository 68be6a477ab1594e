//! Sorts updates for the webhook and for polling. Logs updates that are not for the bot, and answers messages that have
//! neither a text nor a file that Belay reads.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use belay_protocol::{
    Accepted, Ack, AttachmentContent, Body, ChannelId, Inbound, MoveStore, NO_TEXT, PairingCode, PairingCodes, Refusal,
    Stranger, TextChecker, Unread,
};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::{debug, error, info, trace, warn};

use super::NAME;
use super::api::{ApiError, BotApi};
use super::attached::{self, RemoteFile, Rest};
use super::callback_buttons::{self, ButtonPress};
use super::conversation::{Conversation, MessageRef};
use super::deliver;
use super::fetch::Fetcher;
use super::intake::{Rules, Verdict};
use super::moves::{Moves, Source};
use super::target::Sending;
use super::wire::{Update, UpdateContent, update_id};

/// Number of strangers, and of groups, that are logged once at a higher level. Further ones are logged at debug level
/// only, so that nobody can flood the log by opening accounts.
const STRANGERS_MAX: usize = 256;

/// Number of conversations that are remembered because they got the notice about old messages. Far more than a bot has,
/// because only listed people get it. Above this number there is no notice, and each such message is logged as a
/// warning.
const NOTIFIED_MAX: usize = 16_384;

/// Number of conversations whose last album is remembered. Far more than send albums at the same time. For further
/// ones, more than one part of an album may be answered.
const ALBUMS_MAX: usize = 256;

/// Deadline of a notice. Short: the webhook's answer waits for it.
const NOTICE_DEADLINE: Duration = Duration::from_secs(5);

/// Time without codes for strangers after one could not be sent.
const PAIRING_PAUSE: Duration = Duration::from_secs(60);

const NOT_TAKEN: &str =
    "Too many messages are waiting in this conversation; this one was not taken. Please send it again later.";

const ANONYMOUS: &str = "I cannot tell who you are, because you write in the name of a group or channel. Turn off \"Remain anonymous\" in your \
administrator rights, or choose yourself as the sender beside the input field, and write again.";

const UNREADABLE: &str = "I could not read this message: Telegram has sent it in a form that I do not know. Please send it again as plain text.";

const TOO_OLD: &str = "I was offline for long. What was written here in the meantime is too old to be answered; please send again what still matters.";

/// The state that webhook and polling share.
pub(super) struct UpdateRouter {
    pub(super) api: BotApi,
    pub(super) rules: Rules,
    pub(super) fetcher: Fetcher,
    /// Issues pairing codes; `None`: there is no pairing.
    codes: Option<Arc<dyn PairingCodes>>,
    /// Lets hooks check the channel's own lines.
    texts: Arc<dyn TextChecker>,
    /// After a code that could not be sent, strangers get none until then.
    no_codes_until: Mutex<Option<Instant>>,
    strangers: Mutex<HashSet<u64>>,
    /// Unlisted groups that were logged. Anybody may add the bot to a group.
    groups: Mutex<HashSet<i64>>,
    /// Groups whose anonymous administrators were told how to be recognised.
    anonymous_told: Mutex<HashSet<i64>>,
    /// Conversations that got the notice that their messages are too old.
    too_old_notified: Mutex<HashSet<Conversation>>,
    /// Groups that have become supergroups.
    pub(super) moves: Moves,
    /// The last answered album of each conversation. Each picture of an album is an update of its own.
    albums: Mutex<VecDeque<(Conversation, String)>>,
    /// Why the bot gets no updates now.
    trouble: Mutex<Option<String>>,
}

/// A message for the agent.
#[derive(Clone)]
pub(super) struct AgentMessage {
    pub(super) inbound: Inbound,
    /// What to do after its acknowledgement.
    pub(super) after: Arc<AfterAck>,
    /// The files to fetch before the agent gets the message.
    pub(super) files: Vec<RemoteFile>,
    /// The album that the message belongs to.
    pub(super) album: Option<String>,
}

/// What to tell the person after the agent's acknowledgement.
#[derive(Default)]
pub(super) struct AfterAck {
    /// The tap to answer.
    tap: Option<ButtonPress>,
    /// The notice about attachments that are not read. Set when the files of the message have been fetched.
    not_read: OnceLock<NotRead>,
    /// For a repeated delivery of an update: that of the first one, whose call may not have waited for the files.
    first: OnceLock<Arc<AfterAck>>,
    /// Whether the notice about attachments was due once. It is not sent again.
    was_due: AtomicBool,
}

impl AfterAck {
    /// Makes it that of a repeated delivery. Without effect for the first delivery itself.
    pub(super) fn repeats(self: &Arc<Self>, first: &Arc<Self>) {
        if !Arc::ptr_eq(self, first) {
            let _ = self.first.set(Arc::clone(first)); // set once for each call
        }
    }

    /// The notice about attachments that follows this acknowledgement, if it was not due before.
    fn due(&self, ack: Option<&Ack>) -> Option<&NotRead> {
        let first = self.first.get();
        let is_due = match ack {
            Some(Ack::Accepted(Accepted { duplicate, .. })) => !duplicate || first.is_some(),
            Some(Ack::Command(_)) => true,
            _ => false,
        };
        let of = first.map_or(self, |first| first);
        let not_read = of.not_read.get().filter(|_| is_due)?;
        (!of.was_due.swap(true, Ordering::Relaxed)).then_some(not_read)
    }
}

/// A notice about attachments that are not read, and its target.
struct NotRead {
    conversation: Conversation,
    message: Option<MessageRef>,
    line: String,
    /// The album that the message belongs to. The notice is sent once for the whole album.
    album: Option<String>,
}

/// What to do with an update.
pub(super) enum Sorted {
    /// Hand it to the agent.
    Message(Box<AgentMessage>),
    /// Nothing more.
    Done,
    /// Have Telegram deliver it again later.
    Later,
}

/// What the agent's acknowledgement means for the platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// It is committed, or never will be: do not deliver it again.
    Done,
    /// It may be accepted later, after the delay.
    Later {
        /// Whether only this conversation is full, and not the whole daemon.
        is_busy: bool,
        /// How long to wait.
        after: Duration,
    },
}

/// Delay before another attempt if the refusal names none.
pub(super) const LATER: Duration = Duration::from_secs(2);

impl UpdateRouter {
    pub(super) fn new(
        api: BotApi,
        rules: Rules,
        fetcher: Fetcher,
        codes: Option<Arc<dyn PairingCodes>>,
        texts: Arc<dyn TextChecker>,
        moves: Arc<dyn MoveStore>,
    ) -> Self {
        let moves = Moves::new(rules.people.clone(), moves);
        Self {
            api,
            rules,
            fetcher,
            codes,
            texts,
            no_codes_until: Mutex::default(),
            strangers: Mutex::default(),
            groups: Mutex::default(),
            anonymous_told: Mutex::default(),
            too_old_notified: Mutex::default(),
            albums: Mutex::default(),
            moves,
            trouble: Mutex::default(),
        }
    }

    /// The parts that send messages.
    pub(super) fn sending(&self) -> Sending<'_> {
        Sending { api: &self.api, moves: &self.moves }
    }

    /// Why the bot gets no updates now.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes how the last call went that updates depend on.
    pub(super) fn set_trouble(&self, error: Option<&ApiError>) {
        let words = error.map(|error| match error {
            error if error.is_auth() => {
                format!("the Bot API rejects the token ({error}). Check the token of channels.telegram")
            }
            error if error.is_conflict() => format!("somebody else takes this bot's updates ({error})"),
            error => format!("no updates: {error}"),
        });
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = words;
    }

    /// Decides what to do with an update. One that cannot be understood is dropped, because it would fail again.
    pub(super) async fn sort(&self, raw: &RawValue) -> Sorted {
        let Some(update) = Update::parse(raw) else {
            warn!(update_id = update_id(raw), "an update that cannot be understood is skipped");
            return Sorted::Done;
        };
        let (update_id, album) = (update.update_id, album_of(&update));
        match self.rules.judge(update) {
            Verdict::Message(inbound) => {
                let message = AgentMessage { inbound: *inbound, after: Arc::default(), files: Vec::new(), album };
                if message.album.is_none() || !self.rules.takes_files {
                    message.set_notice(); // the notice of an album is set when all of its parts are there
                }
                return Sorted::Message(Box::new(message));
            }
            Verdict::WithFiles(inbound, files) => {
                let after = Arc::default();
                return Sorted::Message(Box::new(AgentMessage { inbound: *inbound, after, files, album }));
            }
            Verdict::Tapped(inbound, tap) => {
                let after = Arc::new(AfterAck { tap: Some(tap), ..AfterAck::default() });
                return Sorted::Message(Box::new(AgentMessage {
                    inbound: *inbound,
                    after,
                    files: Vec::new(),
                    album: None,
                }));
            }
            Verdict::InvalidTap { tap, words, stranger } => {
                stranger.into_iter().for_each(|id| self.log_stranger(id));
                callback_buttons::answer_query(&self.api, &tap, words, true).await;
            }
            Verdict::Undecided => {
                debug!(update_id, "the bot's own user name is not known yet");
                return Sorted::Later;
            }
            Verdict::NoText { conversation, message, not_read, album } => {
                if self.is_new_album(conversation, album)
                    && let Some(line) = attached::line(&not_read, Rest::Nothing)
                {
                    self.send_notice(conversation, message, &line).await; // best effort
                }
            }
            Verdict::Anonymous(conversation, message) => {
                if is_new(&self.anonymous_told, conversation.chat) {
                    self.send_notice(conversation, message, ANONYMOUS).await; // best effort
                }
            }
            Verdict::Unreadable(conversation) => {
                warn!(update_id, %conversation, "a message cannot be read, and its person is told so");
                self.send_notice(conversation, None, UNREADABLE).await; // best effort
            }
            Verdict::TooOld(conversation) => {
                debug!(update_id, %conversation, "a message from long before the start is not answered");
                self.notify_too_old(conversation).await;
            }
            Verdict::Stranger(id) => self.log_stranger(id),
            Verdict::Pairable(stranger) => self.offer_pairing(&stranger).await,
            Verdict::Added(group, greeting) => _ = self.send_notice(group, None, &greeting).await, // best effort
            Verdict::Moved { from, to } => {
                if let Err(error) = self.moves.note(from, to, Source::Message).await {
                    error!(%error, update_id, "the new id of a group could not be stored; it is tried again");
                    return Sorted::Later;
                }
            }
            Verdict::UnlistedGroup(id) => {
                // Another node may have learned that it is a listed group under a new id. Asked once for each group.
                if is_unseen(&self.groups, &id) {
                    if let Err(error) = self.moves.load().await {
                        warn!(%error, update_id, "whether a group is listed under another id cannot be read; tried again");
                        return Sorted::Later;
                    }
                    if self.rules.people.serves_group(id) {
                        return Box::pin(self.sort(raw)).await;
                    }
                }
                if is_new(&self.groups, id) {
                    info!(telegram_group = id, "messages of a group not in channels.telegram.groups.allow are dropped");
                }
            }
            Verdict::NotForUs(why) => trace!(update_id, why, "update skipped"),
        }
        Sorted::Done
    }

    /// Whether the album has not been answered in its conversation, and marks it as answered. `true` without an album.
    fn is_new_album(&self, conversation: Conversation, album: Option<String>) -> bool {
        let Some(album) = album else { return true };
        let mut albums = self.albums.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !albums.iter().any(|(at, known)| *at == conversation && *known == album);
        albums.retain(|(at, _)| *at != conversation);
        albums.push_back((conversation, album));
        if albums.len() > ALBUMS_MAX {
            albums.pop_front();
        }
        is_new
    }

    /// Tells a conversation once that its messages are too old. If sending fails, the next such message tries again.
    async fn notify_too_old(&self, conversation: Conversation) {
        {
            let mut told = self.too_old_notified();
            if told.contains(&conversation) {
                return;
            }
            if told.len() >= NOTIFIED_MAX {
                warn!(%conversation, told = NOTIFIED_MAX, "a message is too old to be answered, and its conversation gets \
                                                       no notice");
                return;
            }
            told.insert(conversation); // before it is sent: the webhook handles several updates at a time
        }
        if !self.send_notice(conversation, None, TOO_OLD).await {
            self.too_old_notified().remove(&conversation);
        }
    }

    fn too_old_notified(&self) -> MutexGuard<'_, HashSet<Conversation>> {
        self.too_old_notified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Interprets the agent's acknowledgement of a message; `None`: the agent dropped it or was too late. Answers a
    /// settled tap. Sends the notice about attachments once, after the acceptance.
    pub(super) async fn settle(&self, after: &AfterAck, ack: Option<Ack>) -> Settled {
        let settled = settled(ack.as_ref());
        if let Some(tap) = after.tap.as_ref().filter(|_| settled == Settled::Done) {
            callback_buttons::answer(&self.api, tap, ack.as_ref()).await;
        }
        if let Some(NotRead { conversation, message, line, album }) = after.due(ack.as_ref()) {
            self.is_new_album(*conversation, album.clone()); // no further notice for its parts
            self.send_notice(*conversation, *message, line).await; // best effort: the model is told as well
        }
        settled
    }

    /// Tells the person that a message or a tap was given up. Best effort.
    pub(super) async fn notify_not_accepted(&self, message: &AgentMessage) {
        if let Some(tap) = &message.after.tap {
            return callback_buttons::answer(&self.api, tap, None).await;
        }
        let inbound = &message.inbound;
        let Some(route) = &inbound.reply_to else { return };
        let Ok(conversation) = route.conversation.parse() else { return };
        self.send_notice(conversation, deliver::answered(route), NOT_TAKEN).await; // best effort
    }

    /// Sends a notice as hooks agree to it. Returns whether a retry is pointless: it was sent, or Telegram refuses it. Best
    /// effort.
    async fn send_notice(&self, conversation: Conversation, answered: Option<MessageRef>, line: &str) -> bool {
        let line = self.texts.checked(&ChannelId::new(NAME), line.to_owned()).await;
        self.send_line(conversation, answered, &line).await
    }

    /// Sends a line that no hook sees. Returns what [`send_notice`](Self::send_notice) returns.
    async fn send_line(&self, conversation: Conversation, answered: Option<MessageRef>, line: &str) -> bool {
        match deliver::notice(self.sending(), conversation, answered, line, NOTICE_DEADLINE).await {
            Ok(()) => true,
            Err(error) => {
                debug!(detail = %error, line, "a line of our own was not sent");
                matches!(error, ApiError::Refused { .. })
            }
        }
    }

    /// Sends a stranger a pairing code, unless the stranger has one or too many strangers have one.
    async fn offer_pairing(&self, stranger: &Stranger) {
        stranger.id.parse().into_iter().for_each(|id| self.log_stranger(id));
        let (Some(codes), Ok(conversation)) = (&self.codes, stranger.conversation.parse()) else { return };
        if self.no_codes_until().is_some_and(|until| Instant::now() < until) {
            return;
        }
        match codes.issue(stranger.clone()).await {
            Ok(Some(code)) => {
                // A code is a secret, so no hook sees it.
                if !self.send_line(conversation, None, &pairing_line(&code)).await {
                    codes.withdraw(stranger).await; // a later message gets another code
                    // The next messages of strangers must not hold up those of others.
                    *self.no_codes_until() = Some(Instant::now() + PAIRING_PAUSE);
                }
            }
            Ok(None) => debug!(telegram_user = stranger.id, "a stranger gets no pairing code now"),
            Err(error) => warn!(%error, "a stranger gets no pairing code: the store does not answer"),
        }
    }

    fn no_codes_until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.no_codes_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_stranger(&self, id: u64) {
        if is_new(&self.strangers, id) {
            info!(telegram_user = id, "a message from somebody not in channels.telegram.allow was dropped");
        } else {
            debug!(telegram_user = id, "a stranger's message was dropped");
        }
    }
}

/// The one message to a stranger.
fn pairing_line(code: &PairingCode) -> String {
    format!(
        "I do not know you yet. Give this code to the person who runs me, who can admit you with it: {}. It is valid for \
         one hour. Your message was not read.",
        code.expose()
    )
}

impl AgentMessage {
    /// Sets the notice about its attachments that are not read, if there are any.
    pub(super) fn set_notice(&self) {
        if let Some(notice) = not_read(&self.inbound, &self.album) {
            let _ = self.after.not_read.set(notice); // set once for each message
        }
    }
}

/// The notice about the attachments of a message that are not read.
fn not_read(inbound: &Inbound, album: &Option<String>) -> Option<NotRead> {
    let Body::Text(text) = &inbound.body else { return None };
    let provenance = inbound.provenance.as_ref()?;
    let is_read = |content: &AttachmentContent| !matches!(content, AttachmentContent::Named { .. });
    let rest = match text.as_str() {
        _ if provenance.attachments.iter().any(|file| is_read(&file.content)) => Rest::Files,
        NO_TEXT => Rest::Nothing,
        _ => Rest::Text,
    };
    let named = attached::named_only(&provenance.attachments);
    let not_read: Vec<Unread> = provenance.not_read.iter().cloned().chain(named).collect();
    let line = attached::line(&not_read, rest)?;
    let album = album.clone();
    let conversation = inbound.reply_to.as_ref()?.conversation.parse().ok()?;
    let message = provenance.message_id.as_deref().and_then(|id| id.parse().ok());
    Some(NotRead { conversation, message, line, album })
}

/// Whether the id is not remembered. `false` for every id once [`STRANGERS_MAX`] are.
fn is_unseen<T: Eq + std::hash::Hash>(seen: &Mutex<HashSet<T>>, id: &T) -> bool {
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.len() < STRANGERS_MAX && !seen.contains(id)
}

/// Whether the id is new, and remembers it. `false` for every id once [`STRANGERS_MAX`] are remembered.
fn is_new<T: Eq + std::hash::Hash>(seen: &Mutex<HashSet<T>>, id: T) -> bool {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.len() < STRANGERS_MAX && seen.insert(id)
}

/// The album that a message belongs to.
fn album_of(update: &Update) -> Option<String> {
    match &update.content {
        UpdateContent::Message(message) => message.media_group_id.clone(),
        _ => None,
    }
}

fn settled(ack: Option<&Ack>) -> Settled {
    match ack {
        Some(Ack::Refused(Refusal::Busy { retry_after, .. })) => Settled::Later { is_busy: true, after: *retry_after },
        // Telegram keeps the update until the daemon has capacity: the sender cannot change anything.
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
    use crate::telegram::unreachable_router;

    fn conversation(chat: usize) -> Conversation {
        chat.to_string().parse().expect("a conversation")
    }

    #[tokio::test]
    async fn each_conversation_has_its_last_album_and_few_are_remembered() {
        let router = unreachable_router();
        let album = |name: &str| Some(name.to_owned());
        assert!(router.is_new_album(conversation(1), album("a")));
        assert!(router.is_new_album(conversation(2), album("b")));
        assert!(!router.is_new_album(conversation(1), album("a")), "the other conversation's album is none of its own");
        assert!(router.is_new_album(conversation(1), album("c")) && router.is_new_album(conversation(1), None));
        for chat in 0..=ALBUMS_MAX {
            router.is_new_album(conversation(chat + 10), album("d"));
        }
        assert_eq!(router.albums.lock().expect("a lock").len(), ALBUMS_MAX);
    }

    #[tokio::test]
    async fn a_failed_notice_about_old_messages_is_sent_with_the_next_message() {
        let router = unreachable_router();
        router.notify_too_old(conversation(42)).await;
        assert!(router.too_old_notified().is_empty(), "nobody was reached");
    }

    #[tokio::test]
    async fn notified_conversations_are_remembered_up_to_a_bound() {
        let router = unreachable_router();
        router.too_old_notified().extend((0..NOTIFIED_MAX).map(|chat| conversation(chat + 1)));
        router.notify_too_old(conversation(1)).await;
        router.notify_too_old(conversation(NOTIFIED_MAX + 1)).await;
        let told = router.too_old_notified();
        assert_eq!((told.len(), told.contains(&conversation(1))), (NOTIFIED_MAX, true));
    }
}
