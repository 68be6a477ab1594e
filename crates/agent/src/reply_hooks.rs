//! Lets hooks change or withhold a run's reply before anybody can read it. They are called once, so that the person,
//! the readers of the run and the next turn all get the same text.

use std::sync::Arc;

use belay_agent_loop::LoopContext;
use belay_protocol::{ChannelId, HookPoint, Message, MessageBody, RunEnd, StopReason, TextKind};

use belay_run::core::RunCore;
use belay_run::hooks::{HookContext, Sending};

/// Replaces an answer that hooks had no time to check.
const UNSEEN: &str = "[withheld: the run was stopped before the operator's hooks had checked this answer]";

/// Lets hooks check the reply of a run whose own messages begin at `start`. They do not check Belay's own texts about
/// the end of a run.
///
/// # Cancel safety
/// If the future is dropped, nothing has changed, and the run has no end yet.
pub(crate) async fn agree(
    core: &mut RunCore,
    context: &mut LoopContext,
    start: usize,
    channel: Option<&ChannelId>,
    (end, reply): (RunEnd, Option<String>),
) -> (RunEnd, Option<String>) {
    let hooks = core.services.hooks.clone();
    let reply = match reply {
        Some(reply) if hooks.is_bound(HookPoint::MessageSending) => reply,
        other => return (end, other),
    };
    let mut facts = Vec::new();
    let sending = Sending {
        about: HookContext::from(&*core.request).into(),
        channel,
        kind: TextKind::Reply,
        text: reply.clone(),
        limit: None,
    };
    let decided = tokio::select! {
        biased; // a stop does not wait for hooks
        () = core.cancel.cancelled() => None,
        decided = hooks.message_sending(sending, &mut facts) => Some(decided),
    };
    facts.into_iter().for_each(|fact| core.journal.note(fact));
    let (end, agreed) = match decided {
        Some(Ok(text)) if text == reply => return (end, Some(reply)),
        Some(Ok(text)) => (end, Some(text).filter(|text| !text.trim().is_empty())),
        Some(Err(refusal)) => {
            let text = format!("This answer was withheld: {refusal}");
            (end.with("withheld_by", refusal.by), Some(text))
        }
        None => (RunEnd::of(core.stopped().unwrap_or(StopReason::UserStop)), None),
    };
    replace(context, start, &reply, agreed.as_deref().unwrap_or(UNSEEN));
    (end, agreed)
}

/// Replaces the message that the reply comes from by the agreed text.
fn replace(context: &mut LoopContext, start: usize, reply: &str, agreed: &str) {
    let own = context.messages.iter_mut().skip(start);
    let says = |message: &Message| {
        matches!(&message.body, MessageBody::Assistant { text, tool_calls }
            if tool_calls.is_empty() && !text.is_empty() && reply.starts_with(text.as_str()))
    };
    let Some(message) = own.rev().find(|message| says(message)) else { return };
    let said = Message::assistant(agreed);
    *message = Arc::new(Message { scope: message.scope, ..said });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agreed_text_takes_the_place_of_the_message_that_the_reply_comes_from() {
        let messages = |texts: [&str; 3]| -> Vec<Arc<Message>> {
            [Message::assistant(texts[0]), Message::user(texts[1]), Message::assistant(texts[2])]
                .into_iter()
                .map(Arc::new)
                .collect()
        };
        for (reply, expected) in [
            ("four", ["four", "2+2?", "4!"]),
            ("four\n\nStopped: time is up.", ["four", "2+2?", "4!"]),
            ("five", ["four", "2+2?", "four"]),
        ] {
            let mut context = LoopContext::new(messages(["four", "2+2?", "four"]));
            replace(&mut context, 1, reply, "4!");
            assert_eq!(context.messages, messages(expected), "{reply}");
        }
    }
}
