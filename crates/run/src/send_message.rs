//! `send_message`: the tool with which a run sends a message before its answer, in its own or in another conversation.
//!
//! A message is committed together with the result of its call. After a crash both exist, or neither exists and the
//! call is made again. A message that was sent here is not repeated at the end of the run.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{
    Ask, CallPreview, ChannelId, Effect, HookPoint, Message, MessageBody, Outbound, ReplyRoute, SessionKey,
    SessionReader, StoreError, TextKind, ToolContext, ToolFailure, ToolOutput, ToolSpec, ToolStatus,
};
use serde_json::{Map, Value, json};

use crate::hooks::{HookChain, HookContext, Sending};
use crate::own_tools::{SEND_FILE, SEND_MESSAGE, SENDING_TOOLS};
use crate::pending_outbound::{OutboundBatch, PendingOutbound};
use crate::request::RunRequest;
use crate::rights::Channels;
use crate::run_tool::{DeclaredTool, RunTool};

/// The name for the conversation of the run.
pub(crate) const HERE: &str = "here";
/// Maximum length of a message, in characters. A channel shortens a message that exceeds its own limit.
const TEXT_MAX_CHARS: usize = 20_000;
/// The result of a call outside a conversation's run.
const UNBOUND: &str = "only the run of a conversation can send messages; put the message into your result";
/// Minimum length of a reply that is compared with sent messages, in characters. A shorter text is part of too many
/// others.
const COMPARED_CHARS: usize = 10;

/// The tool as models see it. It works once it is bound to the run that calls it, by a [`MessageSender`].
pub fn send_message_tool() -> DeclaredTool {
    let spec = ToolSpec {
        effect: Effect::External,
        max_output_bytes: 1000,
        ..ToolSpec::new(
            SEND_MESSAGE,
            "Sends a message before your final answer, which is sent by itself: progress, or to another conversation. Nothing \
             left to say: answer NO_REPLY.",
            json!({
                "type": "object",
                "properties": {
                    "place": {
                        "type": "string",
                        "description": "here (default), or another conversation, such as telegram:42",
                    },
                    "text": {
                        "type": "string", "minLength": 1, "maxLength": TEXT_MAX_CHARS, "description": "Markdown",
                    },
                },
                "required": ["text"],
                "additionalProperties": false,
            }),
        )
    };
    DeclaredTool::new(spec, UNBOUND)
}

/// The context in which a run sends messages.
#[derive(Clone)]
pub struct MessageSender {
    /// The configured channels, by name.
    pub channels: Channels,
    /// Reads sessions.
    pub sessions: Arc<dyn SessionReader>,
    /// The operator's hooks.
    pub hooks: Arc<HookChain>,
    /// The request of the run, with its conversation if it has one.
    pub request: Arc<RunRequest>,
    /// Whether the asker may write to other conversations.
    pub elsewhere: bool,
    /// The queue of messages, which are committed with the step.
    pub saying: PendingOutbound,
}

impl MessageSender {
    /// Resolves the name of a conversation to a destination.
    pub(crate) async fn route(&self, place: &str) -> Result<ReplyRoute, ToolFailure> {
        if is_here(place, &self.request.session) {
            let nowhere = "this run does not belong to a conversation, so there is no `here`: answer with text";
            return self.request.reply_to.clone().ok_or_else(|| ToolFailure::failed(nowhere));
        }
        if !self.elsewhere {
            let no = "only an operator's request may write to other conversations; use the place `here`, or answer with text";
            return Err(ToolFailure::Denied(no.into()));
        }
        let known = place.split_once(':').filter(|(channel, _)| self.channels.contains_key(&ChannelId::new(*channel)));
        let unknown = || {
            let words = "there is no such conversation; use `here`, or channel:conversation of a conversation that has \
                         written before";
            ToolFailure::failed(format!("{place}: {words}"))
        };
        let (channel, conversation) = known.ok_or_else(unknown)?;
        match self.sessions.session(&SessionKey::from(place.to_owned())).await {
            Ok(Some(_)) => {
                let (channel, conversation) = (ChannelId::new(channel), conversation.into());
                Ok(ReplyRoute { channel, conversation, reply_to: None })
            }
            Ok(None) => Err(unknown()),
            Err(error) => Err(unread(&error)),
        }
    }

    /// Runs the hooks for a text. Returns the text as they changed it. `channel`: its destination, if it is delivered.
    pub(crate) async fn agreed(
        &self,
        channel: Option<&ChannelId>,
        text: &str,
        said: &mut OutboundBatch,
    ) -> Result<String, ToolFailure> {
        let hooks = &self.hooks;
        if !hooks.is_bound(HookPoint::MessageSending) {
            return Ok(text.to_owned());
        }
        let sending = Sending {
            about: HookContext::from(&*self.request).into(),
            channel,
            kind: TextKind::Message,
            text: text.to_owned(),
            limit: None,
        };
        let decided = hooks.message_sending(sending, &mut said.facts).await;
        decided.map_err(|refusal| ToolFailure::Denied(format!("denied: {refusal}. It was not sent.")))
    }
}

fn unread(error: &StoreError) -> ToolFailure {
    tracing::error!(%error, "conversations could not be read");
    ToolFailure::failed("conversations cannot be looked up at the moment; try again later")
}

pub(crate) fn is_here(place: &str, session: &SessionKey) -> bool {
    place == HERE || place == session.as_str()
}

pub(crate) fn place_of(arguments: &Map<String, Value>) -> &str {
    arguments.get("place").and_then(Value::as_str).map_or(HERE, str::trim)
}

/// The caption of a file.
pub(crate) fn caption_of(arguments: &Map<String, Value>) -> &str {
    arguments.get("caption").and_then(Value::as_str).unwrap_or_default()
}

fn text_of(arguments: &Map<String, Value>) -> &str {
    arguments.get("text").and_then(Value::as_str).unwrap_or_default()
}

#[async_trait]
impl RunTool for MessageSender {
    async fn preview(&self, arguments: &Map<String, Value>) -> Result<CallPreview, ToolFailure> {
        let place = place_of(arguments);
        self.route(place).await?;
        if text_of(arguments).trim().is_empty() {
            return Err(ToolFailure::failed("text: must not be empty"));
        }
        if is_here(place, &self.request.session) {
            return Ok(CallPreview::default());
        }
        Ok(CallPreview {
            summary: format!("send to {place}: {}", text_of(arguments)),
            shows: &["place", "text"],
            ask: Some(Ask::UnlessApproved),
            covers: Some(format!("messages to {place}")),
            ..CallPreview::default()
        })
    }

    /// Queues the message for the write that stores the result of this call.
    ///
    /// # Cancel safety
    /// If the future is dropped midway, nothing is sent.
    async fn call(&self, arguments: &Map<String, Value>, _context: &ToolContext) -> ToolOutput {
        let route = self.route(place_of(arguments)).await?;
        let mut said = OutboundBatch::default();
        let text = self.agreed(Some(&route.channel), text_of(arguments), &mut said).await?;
        // No run id: this message is not the answer of the run.
        said.messages.push(Outbound::new(None, route, text).checked());
        self.saying.add(said);
        Ok("sent".into())
    }
}

/// The texts that a run sent to its own conversation, taken from its messages: messages, and captions of files.
pub fn sent_here<'m>(own: &'m [Arc<Message>], session: &SessionKey) -> Vec<&'m str> {
    let sent = |id| {
        own.iter().any(|message| {
            matches!(&message.body, MessageBody::Tool(result)
                if result.call_id == id && SENDING_TOOLS.contains(&&*result.name) && result.status == ToolStatus::Success)
        })
    };
    let calls = own.iter().flat_map(|message| message.tool_calls()).filter(|call| SENDING_TOOLS.contains(&&*call.name));
    calls
        .filter(|call| sent(call.id.clone()))
        .filter_map(|call| match &call.arguments {
            belay_protocol::Arguments::Object(arguments) if is_here(place_of(arguments), session) => {
                Some(if call.name == SEND_FILE { caption_of(arguments) } else { text_of(arguments) })
            }
            _ => None,
        })
        .collect()
}

/// Whether `sent` contains the whole reply, apart from case, white space and emoji.
pub fn says_all_of(sent: &str, reply: &str) -> bool {
    let (sent, reply) = (normal(sent), normal(reply));
    reply.chars().count() >= COMPARED_CHARS && sent.contains(&reply)
}

fn normal(text: &str) -> String {
    let kept: String = text.to_lowercase().chars().filter(|c| !is_emoji(*c)).collect();
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a character is an emoji or a part of one. Unicode: the blocks of pictographs and dingbats, the zero width
/// joiner and the variation selector.
fn is_emoji(c: char) -> bool {
    matches!(c, '\u{1F000}'..='\u{1FAFF}' | '\u{2600}'..='\u{27BF}' | '\u{2B00}'..='\u{2BFF}' | '\u{FE0F}' | '\u{200D}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_compared_as_a_person_reads_them() {
        for (sent, reply, all) in [
            ("The meeting is at ten.", "  the MEETING is\nat ten. 🎉", true),
            ("I have told them: the meeting is at ten.", "The meeting is at ten.", true),
            ("The meeting is at ten.", "I have told them: the meeting is at ten.", false),
            ("I am checking.", "I am checking. The disk is full: delete the old logs.", false),
            ("The meeting is at ten.", "The meeting is at two.", false),
            ("Yes.", "Yes.", false),
            ("Yes.", "Yes. The meeting is at ten.", false),
            ("❤️❤️❤️❤️❤️❤️❤️❤️❤️❤️❤️", "❤️❤️❤️❤️❤️❤️❤️❤️❤️❤️❤️", false),
        ] {
            assert_eq!(says_all_of(sent, reply), all, "{sent:?} {reply:?}");
        }
    }
}
