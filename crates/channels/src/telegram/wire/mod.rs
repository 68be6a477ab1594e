//! The parts of the Bot API that Belay reads and sends, as types of its own. Pure.
//!
//! Telegram adds fields, kinds and values several times a year, so nothing here is closed. A kind is a text. A field that
//! cannot be read is missing, and a part that is there and cannot be read is there and empty: that it is there may matter
//! (a forward is a forward, also of an unknown author). An element of a list that cannot be read is left out. So nothing around a
//! text can cost the text.
//!
//! Reading order: `json` (a text as a value) → `read` (fields) → `message`, `words`, `rich` (a rich message as Markdown), `content`, `unknown` → `update`. `requests`: what is sent.

mod content;
pub(super) mod json;
mod message;
mod read;
mod requests;
mod rich;
mod unknown;
mod update;
mod words;

pub(super) use content::{Checklist, Contact, Content, Dice, File, Location, Poll, Venue};
pub(super) use message::{Chat, Entity, Message, Origin, User};
#[cfg(test)]
pub(super) use read::Read;
pub(super) use requests::{
    AnswerCallbackQuery, Button, DeleteMessage, EditMessageReplyMarkup, EditMessageText, EphemeralParameters, GetFile,
    GetUpdates, HTML, Keyboard, NoPreview, ReplyParameters, SendChatAction, SendMessage, SetWebhook,
};
pub(super) use update::{CallbackQuery, ChatMemberUpdated, Update, UpdateContent, update_id};
pub(super) use words::Words;
