//! `/sessions`, `/resume` and `/hide`: the conversations of a session in lists. A lane reads only its own session, so
//! nobody sees the conversations of another one.

use belay_protocol::{ConversationSummary, IdPrefix, SessionChange, ThreadEdit, UnixMillis};

use super::{CommandResult, Lane, LeaseLost, Undone, unchanged};

/// The most conversations in a list. 20: they fit a screen. `/resume` finds older ones too.
const LISTED: u32 = 20;

/// Characters of an id in a list. 13: the first 12 digits are the date in milliseconds.
const ID_CHARS: usize = 13;

/// The answer to an id that no conversation here has.
pub(super) const NOT_FOUND: &str = "No conversation here has this id. /sessions lists them.";

impl Lane {
    /// Lists the conversations of the session, newest first.
    pub(super) async fn list_conversations(&self) -> CommandResult {
        let found = self.services.store.conversations.conversations(&self.lease.session, None, LISTED).await;
        let found = found.map_err(|error| Undone::Unstored(format!("The conversations cannot be read: {error}")))?;
        if found.is_empty() {
            return Ok("There is no conversation here yet.".into());
        }
        let now = self.services.clock.now();
        let lines: Vec<String> = found.iter().map(|conversation| line(conversation, now)).collect();
        Ok(format!("{}\n\n/resume ID continues an earlier one.", lines.join("\n")))
    }

    /// Leaves the session out of lists. It is stored before the lane accepts a later message, which lists it again.
    pub(super) async fn hide(&self) -> Result<CommandResult, LeaseLost> {
        match self.services.store.archive.change_session(&self.lease.session, SessionChange::hidden(true)).await {
            Ok(()) => Ok(Ok("Hidden: lists leave this conversation out. Your next message shows it again.".into())),
            Err(error) => unchanged(&error),
        }
    }

    /// Makes the conversation whose id has this prefix the active one.
    pub(super) async fn resume_conversation(&mut self, id: &IdPrefix, word: &str) -> Result<CommandResult, LeaseLost> {
        let found = match self.services.store.conversations.conversations(&self.lease.session, Some(id), 2).await {
            Ok(found) => found,
            Err(error) => return Ok(Err(Undone::Unstored(format!("The conversations cannot be read: {error}")))),
        };
        let refused = |why: &str| Ok(Err(Undone::Refused(why.to_owned())));
        match found.as_slice() {
            [] => refused(NOT_FOUND),
            [one] if one.active => refused("This conversation is the present one already."),
            [one] => self.edit(ThreadEdit::Resume(one.thread), word).await,
            _ => refused("Several conversations have an id that begins so. Add more of its characters."),
        }
    }
}

/// A conversation in the list.
fn line(conversation: &ConversationSummary, now: UnixMillis) -> String {
    let id: String = conversation.thread.to_string().chars().take(ID_CHARS).collect();
    let title = belay_text::escaped_line(conversation.title.as_deref().unwrap_or_default()).replace('`', "'");
    let messages = match conversation.messages {
        1 => "1 message".to_owned(),
        n => format!("{n} messages"),
    };
    let present = if conversation.active { ", the present one" } else { "" };
    format!("- `{id}` {}, {messages}{present}: `{title}`", age(now, conversation.last_active_at))
}

/// The time since a date, in its largest unit.
fn age(now: UnixMillis, then: UnixMillis) -> String {
    match now.0.saturating_sub(then.0) / 1000 {
        ..60 => "just now".to_owned(),
        seconds @ 60..3600 => format!("{} min ago", seconds / 60),
        seconds @ 3600..86_400 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} d ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_one_unit() {
        for (seconds, expected) in
            [(-5, "just now"), (59, "just now"), (60, "1 min ago"), (7200, "2 h ago"), (200_000, "2 d ago")]
        {
            assert_eq!(age(UnixMillis(seconds * 1000), UnixMillis(0)), expected);
        }
    }
}
