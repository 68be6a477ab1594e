//! `send_file`: the tool with which a run sends a file of the workspace, to its own or to another conversation.
//!
//! The bytes are stored first. The delivery, the reference to the bytes and the result of the call are committed
//! together. An approval is bound to the digest of the bytes, so that the bytes that are sent are those that were
//! approved.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{
    Ask, Audience, CallPreview, Effect, EventKind, Outbound, OutboundFile, OutgoingFiles, ReplyRoute, SentFile,
    ToolContext, ToolFailure, ToolOutput, ToolSpec, Work, size_text,
};
use belay_text::escaped_line;
use serde_json::{Map, Value, json};

use crate::live::LiveRun;
use crate::own_tools::SEND_FILE;
use crate::pending_outbound::OutboundBatch;
use crate::run_tool::{DeclaredTool, RunTool};
use crate::send_message::{MessageSender, caption_of, is_here, place_of};

/// Maximum length of a caption, in characters.
const CAPTION_MAX_CHARS: usize = 4_000;
/// Maximum length of the path, in characters; the workspace has a limit in bytes.
const PATH_MAX_CHARS: usize = 4_095;
/// Time limit of one call. 60 s: it writes at most `attachments.max_bytes` to the disk.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);
/// The name of the fact that an approval is bound to.
const DIGEST: &str = "sha256";
/// The result of a call outside a conversation's run.
const UNBOUND: &str = "only the run of a conversation can send files; name the file in your result";
/// The result of a call whose file has changed since its approval.
const CHANGED: &str = "denied: the file has changed since it was approved, so it was not sent. Look at it again, then \
                       repeat the call to request a new approval.";

/// The tool as models see it. It works once it is bound to the run that calls it, by a [`FileSender`].
pub fn send_file_tool() -> DeclaredTool {
    let spec = ToolSpec {
        effect: Effect::External,
        timeout: TIMEOUT,
        max_output_bytes: 1000,
        ..ToolSpec::new(
            SEND_FILE,
            "Sends a file of the workspace to the person at once. Your final answer follows by itself, without the \
             caption.",
            json!({
                "type": "object",
                "properties": {
                    "path": {
                        "type": "string", "minLength": 1, "maxLength": PATH_MAX_CHARS,
                        "description": "the file",
                    },
                    "caption": {
                        "type": "string", "maxLength": CAPTION_MAX_CHARS, "description": "Markdown",
                    },
                    "place": {
                        "type": "string",
                        "description": "here (default), or another conversation, such as telegram:42",
                    },
                },
                "required": ["path"],
                "additionalProperties": false,
            }),
        )
    };
    DeclaredTool::new(spec, UNBOUND)
}

/// The context in which a run sends files.
#[derive(Clone)]
pub struct FileSender {
    /// Finds destinations, and asks hooks about captions.
    pub messages: MessageSender,
    /// Reads the files of the workspace.
    pub files: Arc<dyn OutgoingFiles>,
    /// The run. Its record lists the sent files.
    pub run: Arc<LiveRun>,
}

/// The destination of a file.
struct Destination {
    /// The conversation that it is delivered to; `None`: readers of the run get a link.
    route: Option<ReplyRoute>,
    /// The name of another conversation; `None`: that of the run.
    place: Option<String>,
    /// Maximum size that it takes, in bytes.
    max_bytes: u64,
}

impl FileSender {
    /// Finds the destination of a call. A client that reads its run has no delivery.
    async fn destination(&self, arguments: &Map<String, Value>) -> Result<Destination, ToolFailure> {
        let (place, request) = (place_of(arguments), &self.messages.request);
        let here = is_here(place, &request.session);
        if here && request.reply_to.is_none() && request.work == Work::Chat {
            return Ok(Destination { route: None, place: None, max_bytes: u64::MAX });
        }
        let route = self.messages.route(place).await?;
        let channel = self.messages.channels.get(&route.channel);
        let max_bytes = channel.map_or(0, |channel| channel.profile().max_file_bytes);
        if max_bytes == 0 {
            return Err(ToolFailure::failed(format!("{} delivers no files; answer with text", route.channel)));
        }
        Ok(Destination { route: Some(route), place: (!here).then(|| place.to_owned()), max_bytes })
    }
}

fn path_of(arguments: &Map<String, Value>) -> &str {
    arguments.get("path").and_then(Value::as_str).unwrap_or_default()
}

/// The facts that a person approves.
fn facts(path: &str, file: &OutboundFile, caption: &str, to: &str) -> Vec<(String, String)> {
    let mut facts = vec![
        ("file", path.to_owned()),
        ("size", format!("{} bytes", file.bytes)),
        ("type", file.media_type.clone()),
        (DIGEST, file.digest.to_string()),
        ("to", to.to_owned()),
    ];
    if !caption.is_empty() {
        facts.push(("caption", caption.to_owned()));
    }
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[async_trait]
impl RunTool for FileSender {
    /// A file for the person who asked needs no approval by default. One that other people can read does.
    async fn preview(&self, arguments: &Map<String, Value>) -> Result<CallPreview, ToolFailure> {
        let Destination { place, max_bytes, .. } = self.destination(arguments).await?;
        let path = path_of(arguments);
        let file = self.files.describe(path, max_bytes).await?;
        let is_group = self.messages.request.audience == Audience::Group;
        let to = match &place {
            Some(place) => place.clone(),
            None if is_group => "this group".to_owned(),
            None => "this conversation".to_owned(),
        };
        Ok(CallPreview {
            summary: format!(
                "send the file {} to {to} ({}, {})",
                escaped_line(path),
                size_text(file.bytes),
                file.media_type
            ),
            shows: &["path", "caption", "place"],
            bound: facts(path, &file, caption_of(arguments), &to),
            ask: (place.is_some() || is_group).then_some(Ask::Always),
            ..CallPreview::default()
        })
    }

    /// Stores the bytes, and queues the file for the write that stores the result of this call.
    ///
    /// # Cancel safety
    /// If the future is dropped midway, nothing is sent.
    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let Destination { route, place, max_bytes } = self.destination(arguments).await?;
        let file = self.files.store(path_of(arguments), max_bytes).await?;
        let approved = context.approved.as_ref().and_then(|approved| approved.get(DIGEST));
        if approved.is_some_and(|digest| digest != file.digest.as_str()) {
            return Err(ToolFailure::Denied(CHANGED.into()));
        }
        let mut said = OutboundBatch::default();
        let channel = route.as_ref().map(|route| &route.channel);
        let caption = self.messages.agreed(channel, caption_of(arguments), &mut said).await?;
        let sent = SentFile::new(context.call_id.clone(), &file, caption.clone(), place);
        let (name, size) = (sent.name.clone(), size_text(sent.bytes));
        said.facts.push(EventKind::FileSent { file: sent.clone() });
        let is_delivered = route.is_some();
        // No run id: the file is not the answer of the run.
        let delivery = |route| Outbound { file: Some(file), ..Outbound::new(None, route, caption).checked() };
        said.messages.extend(route.map(delivery));
        // No await from here on: the record of the run and the next write agree.
        self.run.files.add(sent);
        self.messages.saying.add(said);
        let how = if is_delivered { "" } else { "; the reader of your answer gets a link to it" };
        Ok(format!("sent {name} ({size}){how}").into())
    }
}
