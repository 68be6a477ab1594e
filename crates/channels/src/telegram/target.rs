//! The target of a message, and the changes to it after which Telegram may take the message after all.
//!
//! Each change is made once, so a message ends: it is sent, or Telegram refuses it for good.

use tracing::info;

use super::api::{ApiError, BotApi};
use super::conversation::{Conversation, MessageRef, Topic};
use super::moves::Moves;
use super::wire::{EphemeralParameters, ReplyParameters};

/// The parts that send messages.
#[derive(Clone, Copy)]
pub(super) struct Sending<'a> {
    pub(super) api: &'a BotApi,
    pub(super) moves: &'a Moves,
}

impl Sending<'_> {
    /// The target of a message to a conversation that answers another one.
    pub(super) fn target(self, to: Conversation, answered: Option<MessageRef>) -> Target {
        Target::new(to, self.moves.current(to.chat), answered)
    }

    /// Changes the target after a refusal, see [`Target::amend`]. Remembers the new id of a group.
    pub(super) async fn amend(self, target: &mut Target, error: &ApiError) -> bool {
        self.learn(target.chat, error).await;
        target.amend(error)
    }

    /// Remembers the new id of a group, if the error of a request to `chat` has one.
    pub(super) async fn learn(self, chat: i64, error: &ApiError) {
        if let ApiError::Refused { migrate_to: Some(to), .. } = error {
            self.moves.note_refusal(chat, *to).await;
        }
    }
}

/// Where a message goes, and what it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The chat that Telegram is told.
    pub(super) chat: i64,
    /// The topic in it.
    topic: Option<Topic>,
    /// The message that it answers.
    pub(super) reply_to: Option<i32>,
    /// Whether the text is sent as HTML.
    pub(super) is_html: bool,
    /// Whether a group may still be followed to its new id.
    may_follow: bool,
}

impl Target {
    /// `chat`: the id that Telegram knows the chat of the conversation by.
    fn new(to: Conversation, chat: i64, answered: Option<MessageRef>) -> Self {
        // The General topic has the number 1 and must not be named when sending.
        let topic = to.topic.filter(|topic| *topic != Topic::Thread(1));
        // In a supergroup, the number of a message of the old group is that of another one.
        let reply_to = answered.filter(|message| message.chat(to) == chat).map(|message| message.id);
        Self { chat, topic, reply_to, is_html: true, may_follow: true }
    }

    /// The same target for a line of plain text.
    pub(super) fn plain(self) -> Self {
        Self { is_html: false, ..self }
    }

    /// The same target for a further message, which answers nothing.
    pub(super) fn next(&mut self) {
        self.reply_to = None;
        self.is_html = true;
    }

    /// Follows a group that has moved since.
    pub(super) fn follow(&mut self, chat: i64) {
        if self.chat != chat {
            (self.chat, self.reply_to) = (chat, None);
        }
    }

    /// The `message_thread_id`.
    pub(super) fn thread(&self) -> Option<i32> {
        match self.topic? {
            Topic::Thread(topic) => Some(topic),
            Topic::Ephemeral { thread, .. } => thread,
            Topic::Direct(_) => None,
        }
    }

    /// The `direct_messages_topic_id`. Bot API, sendMessage: "required if the message is sent to a direct messages chat".
    pub(super) fn direct_topic(&self) -> Option<i64> {
        match self.topic? {
            Topic::Thread(_) | Topic::Ephemeral { .. } => None,
            Topic::Direct(topic) => Some(topic),
        }
    }

    /// The one person who may see the message.
    pub(super) fn ephemeral(&self) -> Option<EphemeralParameters> {
        match self.topic? {
            Topic::Ephemeral { person, .. } => Some(EphemeralParameters { receiver_user_id: person }),
            Topic::Thread(_) | Topic::Direct(_) => None,
        }
    }

    /// The `reply_parameters`.
    pub(super) fn reply_parameters(&self) -> Option<ReplyParameters> {
        let parameters = match self.ephemeral() {
            Some(_) => ReplyParameters::to_ephemeral,
            None => ReplyParameters::to,
        };
        self.reply_to.map(parameters)
    }

    /// Changes the target after a refusal. Returns whether Telegram may take the message now.
    ///
    /// A message of a forum is never sent outside of its topic, where other people read.
    pub(super) fn amend(&mut self, error: &ApiError) -> bool {
        let Some(problem) = Problem::of(error) else { return self.amend_ephemeral(error) };
        match problem {
            Problem::Formatting if self.is_html => {
                info!(detail = %error, "telegram could not read our formatting; the text is sent plain");
                self.is_html = false;
            }
            Problem::Moved(chat) if self.may_follow => {
                info!(from = self.chat, to = chat, "the group has become a supergroup");
                self.follow(chat);
                self.may_follow = false;
            }
            Problem::NoTopic | Problem::ClosedTopic if self.chat > 0 && self.topic.is_some() => {
                info!(chat = self.chat, topic = ?self.topic, "the topic is gone; the text is sent without it");
                self.topic = None;
            }
            Problem::NoReply if self.reply_to.is_some() => self.reply_to = None,
            _ => return false,
        }
        true
    }

    /// Sends an ephemeral message as a reply to nothing: an ephemeral message can be replied to for 15 seconds, but an
    /// administrator may send others at any time. Telegram's words for that are not known.
    fn amend_ephemeral(&mut self, error: &ApiError) -> bool {
        let is_refused = matches!(error, ApiError::Refused { code: 400, .. });
        is_refused && self.ephemeral().is_some() && self.reply_to.take().is_some()
    }

    /// The reason for the operator why a message cannot be delivered, and the remedy.
    pub(super) fn explained(&self, error: &ApiError) -> Option<String> {
        let chat = if self.chat < 0 { format!("group {}", self.chat) } else { format!("chat {}", self.chat) };
        let place = match self.topic {
            Some(Topic::Thread(topic)) => format!("topic {topic} of the {chat}"),
            Some(Topic::Direct(topic)) => format!("direct messages {topic} of the {chat}"),
            Some(Topic::Ephemeral { person, .. }) => format!("ephemeral messages of {person} in the {chat}"),
            None => chat,
        };
        let problem = Problem::of(error);
        if problem.is_none() && self.ephemeral().is_some() && matches!(error, ApiError::Refused { code: 400, .. }) {
            let remedy = "such a message can be answered for 15 seconds, and later if the bot is an administrator; nothing is \
                          shown to the group";
            return Some(format!("{place}: {remedy} ({error})"));
        }
        let remedy = match problem? {
            Problem::NoTopic => "the topic was deleted; the answer is not sent to another one, where others read it",
            Problem::ClosedTopic => "the topic is closed: open it again, or make the bot an administrator",
            Problem::NoChat => "there is no such chat, or the bot is not in it: add it again",
            Problem::Blocked => "the person has blocked the bot, and must start it again",
            Problem::Deleted => "the account of the person was deleted",
            Problem::NotMember => "the bot is not in the group any more: add it again",
            Problem::NoRights => "the bot may not write there: give it the right to send messages",
            Problem::Formatting | Problem::Moved(_) | Problem::NoReply => return None,
        };
        Some(format!("{place}: {remedy} ({error})"))
    }
}

/// What Telegram objects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    Formatting,
    /// The group has this new id.
    Moved(i64),
    NoTopic,
    ClosedTopic,
    NoReply,
    NoChat,
    Blocked,
    Deleted,
    NotMember,
    NoRights,
}

/// Parts of Telegram's descriptions, in lower case, and what they mean. The first match counts. Telegram documents none
/// of them; `docs/reference/telegram.md` has the sources.
const DESCRIPTIONS: [(&str, Problem); 25] = [
    ("can't parse entities", Problem::Formatting),
    ("message thread not found", Problem::NoTopic),
    ("message_thread_invalid", Problem::NoTopic),
    ("topic_deleted", Problem::NoTopic),
    ("topic_id_invalid", Problem::NoTopic),
    ("topic not found", Problem::NoTopic),
    ("topic_closed", Problem::ClosedTopic),
    ("topic closed", Problem::ClosedTopic),
    ("message to be replied not found", Problem::NoReply),
    ("message to reply not found", Problem::NoReply),
    ("replied message not found", Problem::NoReply),
    ("reply_message_id_invalid", Problem::NoReply),
    ("reply_to_invalid", Problem::NoReply),
    ("chat not found", Problem::NoChat),
    ("group chat was deleted", Problem::NoChat),
    ("user is deactivated", Problem::Deleted),
    ("bot was blocked", Problem::Blocked),
    ("bot can't initiate conversation", Problem::Blocked),
    ("bot was kicked", Problem::NotMember),
    ("bot is not a member", Problem::NotMember),
    ("not enough rights", Problem::NoRights),
    ("have no rights", Problem::NoRights),
    ("need administrator rights", Problem::NoRights),
    ("chat_write_forbidden", Problem::NoRights),
    ("chat_restricted", Problem::NoRights),
];

impl Problem {
    fn of(error: &ApiError) -> Option<Self> {
        let ApiError::Refused { description, migrate_to, .. } = error else { return None };
        if let Some(chat) = migrate_to {
            return Some(Self::Moved(*chat));
        }
        let description = description.to_ascii_lowercase();
        DESCRIPTIONS.iter().find(|(part, _)| description.contains(part)).map(|(_, problem)| *problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(description: &str) -> ApiError {
        ApiError::Refused { code: 400, description: description.into(), migrate_to: None }
    }

    #[test]
    fn a_refusal_changes_the_target_once_and_never_leaves_the_topic_of_a_forum() {
        let forum = Conversation { chat: -100, topic: Some(Topic::Thread(9)) };
        let private = Conversation { chat: 42, topic: Some(Topic::Thread(9)) };
        for (to, description, topic, reply_to, amended) in [
            (private, "Bad Request: message thread not found", None, Some(5), true),
            (private, "Bad Request: TOPIC_DELETED", None, Some(5), true),
            (private, "Bad Request: TOPIC_CLOSED", None, Some(5), true),
            (forum, "Bad Request: message thread not found", Some(9), Some(5), false),
            (forum, "Bad Request: TOPIC_CLOSED", Some(9), Some(5), false),
            (forum, "Bad Request: TOPIC_DELETED", Some(9), Some(5), false),
            (forum, "Bad Request: message to be replied not found", Some(9), None, true),
            (private, "Bad Request: REPLY_MESSAGE_ID_INVALID", Some(9), None, true),
            (forum, "Bad Request: chat not found", Some(9), Some(5), false),
            (forum, "Bad Request: something new", Some(9), Some(5), false),
        ] {
            let mut target = Target::new(to, to.chat, Some(MessageRef::new(to, to.chat, 5)));
            let error = refused(description);
            assert_eq!(target.amend(&error), amended, "{description}");
            assert_eq!((target.thread(), target.reply_to), (topic, reply_to), "{description}");
            assert!(!target.amend(&error), "{description}: once");
        }
    }

    #[test]
    fn a_group_is_followed_once_and_the_numbers_of_its_messages_end() {
        let moved = ApiError::Refused { code: 400, description: "upgraded".into(), migrate_to: Some(-1007) };
        let group = Conversation { chat: -100, topic: None };
        let mut target = Target::new(group, -100, Some(MessageRef::new(group, -100, 5)));
        assert!(target.amend(&moved));
        assert_eq!((target.chat, target.reply_to), (-1007, None));
        assert!(!target.amend(&moved));
        for (chat, reply_to) in [(-100, None), (-1007, Some(5))] {
            let message = MessageRef::new(group, chat, 5);
            assert_eq!(Target::new(group, -1007, Some(message)).reply_to, reply_to, "{message}");
        }
    }

    #[test]
    fn the_operator_reads_the_place_and_the_remedy() {
        let target = Target::new(Conversation { chat: -100, topic: Some(Topic::Thread(9)) }, -100, None);
        let why = |description: &str| target.explained(&refused(description)).unwrap_or_default();
        assert_eq!(
            why("Bad Request: message thread not found"),
            "topic 9 of the group -100: the topic was deleted; the answer is not sent to another one, where others read it \
             (refused with 400: Bad Request: message thread not found)"
        );
        for (description, part) in [
            ("Bad Request: TOPIC_CLOSED", "is closed"),
            ("Bad Request: chat not found", "no such chat"),
            ("Forbidden: bot was blocked by the user", "has blocked the bot"),
            ("Forbidden: bot was kicked from the supergroup chat", "not in the group"),
            ("Bad Request: not enough rights to send text messages to the chat", "may not write"),
            ("Bad Request: CHAT_WRITE_FORBIDDEN", "may not write"),
        ] {
            assert!(why(description).contains(part), "{description}: {}", why(description));
        }
        assert_eq!(why("Bad Request: something new"), "");
    }
}
