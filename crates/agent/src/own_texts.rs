//! Lets hooks check Belay's own texts before they are sent: answers to commands, notices, reminders. Replies of runs, their
//! messages and questions were checked by their run.
//!
//! These texts wait for hooks for a short time only, so that the answer to `/stop` does not wait behind a slow one. A
//! late hook counts as failed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{
    BoundHook, ChannelId, Clock, CommandReply, EventKind, HookPoint, Outbound, SessionKey, TextChecker, TextKind,
};
use belay_run::AgentError;
use belay_run::hooks::{About, HookChain, HookRefusal, Sending};

/// Time limit for all hooks together. 2 s: a person who has sent `/stop` still waits for the answer.
const LIMIT: Duration = Duration::from_secs(2);

/// Lets hooks check an outbound text. Returns the message with the agreed text, and the actions of the hooks; `None`: it
/// was checked before, or no hook checks texts.
///
/// # Cancel safety
/// If the future is dropped, nothing has changed.
pub(crate) async fn checked(hooks: &HookChain, message: &Outbound) -> (Option<Outbound>, Vec<EventKind>) {
    let mut facts = Vec::new();
    let Some(kind) = message.unchecked.filter(|_| hooks.is_bound(HookPoint::MessageSending)) else {
        return (None, facts);
    };
    let about = About { run: message.run_id, ..About::default() };
    let text = message.text.clone();
    let sending = Sending { about, channel: Some(&message.route.channel), kind, text, limit: Some(LIMIT) };
    let decided = hooks.message_sending(sending, &mut facts).await;
    let message = message.clone().checked();
    let agreed = match decided {
        Err(refusal) => Outbound { text: withheld(&refusal), question: None, ..message },
        // A reminder must keep the call that it is about.
        Ok(text) if message.question.is_some() && !text.contains(&message.text) => {
            tracing::warn!("a hook may add to a reminder and remove nothing; its change is ignored");
            message
        }
        Ok(text) => Outbound { text, ..message },
    };
    (Some(agreed), facts)
}

/// Lets hooks check the answer to a command that a program reads.
///
/// # Cancel safety
/// If the future is dropped, nothing has changed.
pub(crate) async fn checked_reply(
    hooks: &HookChain,
    session: &SessionKey,
    channel: &ChannelId,
    reply: CommandReply,
) -> CommandReply {
    let sending = Sending {
        about: About { session: Some(session), ..About::default() },
        channel: Some(channel),
        kind: TextKind::Command,
        text: reply.reply.clone(),
        limit: Some(LIMIT),
    };
    let agreed = hooks.message_sending(sending, &mut Vec::new()).await; // the log and the metrics have the outcome
    CommandReply { reply: agreed.unwrap_or_else(|refusal| withheld(&refusal)), ..reply }
}

/// Lets hooks check the lines that a channel sends by itself.
pub struct OwnTexts(HookChain);

impl OwnTexts {
    /// A checker with these hooks.
    ///
    /// # Errors
    /// A pattern of tool names is invalid.
    pub fn new(hooks: Vec<BoundHook>, clock: Arc<dyn Clock>) -> Result<Self, AgentError> {
        Ok(Self(HookChain::new(hooks, clock)?))
    }
}

#[async_trait]
impl TextChecker for OwnTexts {
    async fn checked(&self, channel: &ChannelId, text: String) -> String {
        if !self.0.is_bound(HookPoint::MessageSending) {
            return text;
        }
        let (about, kind) = (About::default(), TextKind::Notice);
        let sending = Sending { about, channel: Some(channel), kind, text, limit: Some(LIMIT) };
        let agreed = self.0.message_sending(sending, &mut Vec::new()).await; // the log and the metrics have the outcome
        agreed.unwrap_or_else(|refusal| withheld(&refusal))
    }
}

/// The text that is sent instead of a refused one.
fn withheld(refusal: &HookRefusal) -> String {
    format!("This message was withheld: {refusal}")
}
