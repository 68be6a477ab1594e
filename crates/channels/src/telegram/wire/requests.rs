//! The bodies of the methods that are called. Bot API: the method of the same name.

use serde::Serialize;

/// The value of `parse_mode` for our formatting.
pub(in crate::telegram) const HTML: &str = "HTML";

/// Bot API: LinkPreviewOptions, without any preview. With one, Telegram would fetch a URL that an attacker may have talked
/// the model into writing.
#[derive(Clone, Copy, Debug, Serialize)]
pub(in crate::telegram) struct NoPreview {
    is_disabled: bool,
}

impl NoPreview {
    pub(in crate::telegram) const fn new() -> Self {
        Self { is_disabled: true }
    }
}

/// Bot API: ReplyParameters.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(in crate::telegram) struct ReplyParameters {
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ephemeral_message_id: Option<i32>,
    /// Bot API: "always False for … sent ephemeral messages".
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    allow_sending_without_reply: bool,
}

impl ReplyParameters {
    /// A reply to this message, or none if it is gone.
    pub(in crate::telegram) fn to(message_id: i32) -> Self {
        Self { message_id: Some(message_id), allow_sending_without_reply: true, ..Self::default() }
    }

    /// A reply to this ephemeral message.
    pub(in crate::telegram) fn to_ephemeral(id: i32) -> Self {
        Self { ephemeral_message_id: Some(id), ..Self::default() }
    }
}

/// Bot API: EphemeralMessageParameters. A message with them is shown to this person alone.
#[derive(Clone, Copy, Debug, Serialize)]
pub(in crate::telegram) struct EphemeralParameters {
    pub(in crate::telegram) receiver_user_id: u64,
}

/// Bot API: InlineKeyboardMarkup.
#[derive(Clone, Debug, Serialize)]
pub(in crate::telegram) struct Keyboard {
    pub(in crate::telegram) inline_keyboard: Vec<Vec<Button>>,
}

/// Bot API: InlineKeyboardButton, with data.
#[derive(Clone, Debug, Serialize)]
pub(in crate::telegram) struct Button {
    pub(in crate::telegram) text: &'static str,
    pub(in crate::telegram) callback_data: String,
}

#[derive(Debug, Serialize)]
pub(in crate::telegram) struct SendMessage<'a> {
    pub(in crate::telegram) chat_id: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::telegram) message_thread_id: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::telegram) direct_messages_topic_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::telegram) ephemeral_message_parameters: Option<EphemeralParameters>,
    pub(in crate::telegram) text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::telegram) parse_mode: Option<&'static str>,
    pub(in crate::telegram) link_preview_options: NoPreview,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::telegram) reply_parameters: Option<ReplyParameters>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::telegram) reply_markup: Option<&'a Keyboard>,
}

#[derive(Debug, Serialize)]
pub(in crate::telegram) struct EditMessageText<'a> {
    pub(in crate::telegram) chat_id: i64,
    pub(in crate::telegram) message_id: i32,
    pub(in crate::telegram) text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::telegram) parse_mode: Option<&'static str>,
    pub(in crate::telegram) link_preview_options: NoPreview,
}

#[derive(Debug, Serialize)]
pub(in crate::telegram) struct EditMessageReplyMarkup {
    pub(in crate::telegram) chat_id: i64,
    pub(in crate::telegram) message_id: i32,
}

#[derive(Debug, Serialize)]
pub(in crate::telegram) struct DeleteMessage {
    pub(in crate::telegram) chat_id: i64,
    pub(in crate::telegram) message_id: i32,
}

#[derive(Debug, Serialize)]
pub(in crate::telegram) struct SendChatAction {
    pub(in crate::telegram) chat_id: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::telegram) message_thread_id: Option<i32>,
    pub(in crate::telegram) action: &'static str,
}

#[derive(Debug, Serialize)]
pub(in crate::telegram) struct AnswerCallbackQuery<'a> {
    pub(in crate::telegram) callback_query_id: &'a str,
    pub(in crate::telegram) text: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::telegram) show_alert: bool,
}

#[derive(Debug, Serialize)]
pub(in crate::telegram) struct GetFile<'a> {
    pub(in crate::telegram) file_id: &'a str,
}

#[derive(Debug, Default, Serialize)]
pub(in crate::telegram) struct GetUpdates {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::telegram) offset: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::telegram) limit: Option<u32>,
    /// In seconds.
    pub(in crate::telegram) timeout: u64,
    #[serde(skip_serializing_if = "<[&str]>::is_empty")]
    pub(in crate::telegram) allowed_updates: &'static [&'static str],
}

#[derive(Debug, Serialize)]
pub(in crate::telegram) struct SetWebhook<'a> {
    pub(in crate::telegram) url: &'a str,
    pub(in crate::telegram) secret_token: &'a str,
    pub(in crate::telegram) allowed_updates: &'static [&'static str],
}
