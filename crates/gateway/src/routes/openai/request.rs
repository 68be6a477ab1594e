//! Parses a chat request and finds its new messages.

use std::collections::HashSet;
use std::sync::Arc;

use belay_protocol::attachment::NO_TEXT;
use belay_protocol::inbound::{HistoryLine, HistoryRole};
use belay_protocol::{ClientTools, RunId, Sampling, SessionKey, Thinking};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use super::client_tools::{ToolFields, ToolLines};
use super::error::OpenAiError;
use super::format::AnswerForm;
use super::front_ends::background_of;
use super::offered::list;
use super::refused::RefusedFields;
use super::resent::hide_secrets;
use super::sampling::SamplingFields;
use super::sessions::Named;

use crate::checks::check_text;
use crate::files::NewFile;
use crate::foreign::shown;

/// Most older files whose names the model gets.
const OLDER_NAMED: usize = 20;

/// The text of a turn without a new message of the user, as of "Continue Response" in front ends.
const CONTINUE: &str = "continue";
/// The text of a turn that begins with results whose run is not known any more.
const CONTINUE_WITH_RESULTS: &str = "Continue with the results of the tools above.";

/// Whether a message of the user in the store is a text of ours, which no client has sent.
pub(super) fn is_ours(text: &str) -> bool {
    [CONTINUE, CONTINUE_WITH_RESULTS].contains(&text)
}

/// A chat request; unused fields are left out.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ChatRequest {
    pub(crate) model: Option<String>,
    #[serde(default)]
    messages: Vec<ChatMessage>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    /// The session: its key, or an object with the key as `id`.
    pub(super) conversation: Option<Value>,
    /// `session` is the key of the session.
    #[cfg_attr(test, schemars(with = "Option<serde_json::Map<String, Value>>"))]
    pub(super) metadata: Option<Value>,
    n: Option<u64>,
    // Their text: it is read once, without a tree of it.
    #[cfg_attr(test, schemars(with = "Option<Vec<serde_json::Map<String, Value>>>"))]
    tools: Option<Box<RawValue>>,
    #[serde(flatten)]
    tool_fields: ToolFields,
    #[cfg_attr(test, schemars(with = "Option<serde_json::Map<String, Value>>"))]
    response_format: Option<Value>,
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    reasoning_effort: Option<Value>,
    #[serde(flatten)]
    sampling: SamplingFields,
    #[serde(flatten)]
    #[cfg_attr(test, schemars(skip))]
    refused: RefusedFields,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ChatMessage {
    #[cfg_attr(test, schemars(extend("enum" = ["system", "developer", "user", "assistant", "tool"])))]
    pub(super) role: String,
    pub(super) content: Option<Content>,
    /// The words with which the model has refused, instead of a content.
    refusal: Option<String>,
    /// The calls of an answer, as they were sent.
    #[cfg_attr(test, schemars(with = "Option<Vec<serde_json::Map<String, Value>>>"))]
    pub(super) tool_calls: Option<Value>,
    /// The call of a result.
    pub(super) tool_call_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum Content {
    Text(String),
    Parts(Vec<Part>),
    #[cfg_attr(test, schemars(skip))]
    Other(IgnoredAny),
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ContentPart"))]
pub(crate) struct Part {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) text: Option<String>,
    /// The words with which a model has refused, in an assistant message.
    refusal: Option<String>,
    image_url: Option<ImageUrl>,
    file: Option<FilePart>,
    input_audio: Option<AudioPart>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ImageUrl {
    url: String,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FilePart {
    filename: Option<String>,
    file_data: Option<String>,
    file_id: Option<String>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AudioPart {
    data: String,
    format: Option<String>,
}

impl Part {
    /// The file of a part; `None`: it is a text, or a part of an unknown type.
    fn file(&self) -> Option<Result<NewFile, &'static str>> {
        Some(match (self.kind.as_str(), self) {
            ("image_url", Self { image_url: Some(image), .. }) if image.url.starts_with("data:") => {
                Ok(NewFile::inline("picture", &image.url))
            }
            ("image_url", _) => {
                Err("only data: URLs are accepted as pictures: send the picture itself in base64, or upload it to \
                 /api/v1/files and name it in a part of type file by its file_id")
            }
            ("file", Self { file: Some(FilePart { file_id: Some(id), .. }), .. }) => Ok(NewFile::uploaded(id)),
            ("file", Self { file: Some(FilePart { filename, file_data: Some(data), .. }), .. }) => {
                Ok(NewFile::inline(filename.as_deref().unwrap_or_default(), data))
            }
            ("file", _) => Err("a part of type file needs file_data or file_id"),
            ("input_audio", Self { input_audio: Some(audio), .. }) => {
                let ending = audio.format.as_deref().unwrap_or("bin");
                Ok(NewFile::inline(&format!("audio.{ending}"), &audio.data))
            }
            ("input_audio", _) => Err("a part of type input_audio needs data"),
            _ => return None,
        })
    }
}

/// The new part of a request.
pub(crate) struct Conversation {
    pub(crate) session: SessionKey,
    /// Whether the client has named the session, so that later requests can continue it.
    pub(crate) is_named: bool,
    /// Whether only the messages after the last answer are taken.
    pub(super) takes_new: bool,
    /// Whether the message answers a question of another session than one of its own.
    pub(super) answers: bool,
    pub(crate) text: String,
    /// The files of its messages.
    pub(crate) files: Vec<NewFile>,
    /// The number of files of the last message. They are the last of `files`.
    pub(super) new_files: usize,
    pub(crate) history: Vec<HistoryLine>,
    /// The form of the answer.
    pub(crate) form: AnswerForm,
    /// Whether the answer is plain text of the model, without tools.
    pub(crate) text_only: bool,
    /// Whether the answer goes on right behind the last one, as of "Continue Response" in front ends.
    pub(crate) continues: bool,
    /// The level of thinking.
    pub(crate) thinking: Option<Thinking>,
    /// The sampling parameters.
    pub(crate) sampling: Option<Box<Sampling>>,
    /// The tools of the client.
    pub(crate) client_tools: Option<Arc<ClientTools>>,
}

impl ChatRequest {
    /// Whether the answer is streamed.
    pub(crate) fn streams(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// Whether a stream ends with the usage.
    pub(crate) fn wants_usage(&self) -> bool {
        self.stream_options.as_ref().and_then(|options| options.include_usage).unwrap_or(false)
    }

    /// Whether a front end sends this request by itself, and not a person in a chat.
    pub(crate) fn is_background(&self, lines: &[HistoryLine]) -> bool {
        let front_end = background_of(lines, self.streams()).filter(|_| !self.offers_tools());
        if let Some(front_end) = front_end {
            tracing::debug!(front_end, "a background request is answered with plain text");
        }
        front_end.is_some()
    }

    /// The messages as lines.
    ///
    /// # Errors
    /// 400: a field that is not supported, or a message that cannot be used.
    pub(crate) fn lines(&self) -> Result<Vec<HistoryLine>, OpenAiError> {
        self.refuse_unsupported()?;
        let mut tools = ToolLines::default();
        let line = |(at, message): (usize, &ChatMessage)| match tools.line(message, at)? {
            Some(line) => Ok(line),
            None => message.line(at),
        };
        let mut lines: Vec<HistoryLine> =
            self.messages.iter().enumerate().map(line).collect::<Result<_, OpenAiError>>()?;
        results_first(&mut lines);
        if lines.last().is_some_and(|line| line.role == HistoryRole::Result) {
            lines.push(HistoryLine { role: HistoryRole::User, text: CONTINUE_WITH_RESULTS.to_owned() });
        }
        Ok(lines)
    }

    /// The session and its new messages. In a named session these are the messages after the last assistant message.
    /// Without a name, or if the session has none yet, they are all messages.
    pub(super) fn conversation(
        &self,
        lines: Vec<HistoryLine>,
        named: Option<Named>,
    ) -> Result<Conversation, OpenAiError> {
        let last = lines.iter().rfind(|line| line.role != HistoryRole::System);
        let continues = last.is_some_and(|line| line.role == HistoryRole::Assistant);
        let lines = ended(lines);
        let said = match named {
            Some(named) if !named.takes_all => continued(named.session, lines),
            Some(named) => Conversation { session: named.session, is_named: true, ..fresh(lines) },
            None => fresh(lines),
        };
        let takes_new = said.takes_new;
        let files = self.files(takes_new)?;
        let new_files = if takes_new { files.len() } else { self.last_of_user().map_or(0, ChatMessage::files) };
        let text = match said.text.trim().is_empty() && !files.is_empty() {
            true => NO_TEXT.to_owned(),
            false => said.text,
        };
        let said = Conversation { text, ..said };
        let form = AnswerForm::read(self.response_format.as_ref())?;
        let sampling = self.sampling.read()?.map(Box::new);
        let (thinking, client_tools) = (self.thinking(), self.tools()?);
        let conversation = Conversation { form, files, new_files, continues, thinking, sampling, client_tools, ..said };
        check_text(&conversation.text).map_err(unusable)?;
        Ok(conversation)
    }

    /// Refuses a request that cannot be answered, whatever its messages are.
    pub(super) fn refuse_unsupported(&self) -> Result<(), OpenAiError> {
        if self.n.is_some_and(|n| n != 1) {
            return Err(OpenAiError::invalid("n", "unsupported_value", "only one answer can be asked for"));
        }
        self.refused.check()?;
        if self.messages.is_empty() {
            return Err(OpenAiError::invalid("messages", "missing_required_parameter", "messages must not be empty"));
        }
        Ok(())
    }

    /// The level of thinking that is nearest to the reasoning effort. A word that nobody knows sets none.
    fn thinking(&self) -> Option<Thinking> {
        match self.reasoning_effort.as_ref()?.as_str()?.to_lowercase().as_str() {
            "none" | "off" | "disabled" => Some(Thinking::Off),
            "minimal" | "low" => Some(Thinking::Low),
            "medium" | "default" => Some(Thinking::Medium),
            "high" | "xhigh" | "max" | "maximum" | "highest" => Some(Thinking::High),
            other => {
                tracing::debug!(effort = other, "an unknown reasoning effort is ignored");
                None
            }
        }
    }

    /// The files of the new messages: those after the last assistant message if only new ones are taken, and all otherwise.
    pub(super) fn files(&self, takes_new: bool) -> Result<Vec<NewFile>, OpenAiError> {
        let is_answer = |message: &ChatMessage| message.role == "assistant";
        let known = self.messages.iter().rposition(is_answer).filter(|_| takes_new).map_or(0, |at| at + 1);
        let mut files = Vec::new();
        for (at, message) in self.messages.iter().enumerate().skip(known) {
            let Some(Content::Parts(parts)) = &message.content else { continue };
            for file in parts.iter().filter_map(Part::file) {
                let refused = |why: &'static str| {
                    OpenAiError::invalid(format!("messages[{at}].content"), "unsupported_content", why)
                };
                files.push(file.map_err(refused)?);
            }
        }
        Ok(files)
    }

    /// The tools that the client offers.
    pub(super) fn tools(&self) -> Result<Option<Arc<ClientTools>>, OpenAiError> {
        self.tool_fields.read(self.tools.as_deref())
    }

    /// Whether the client has tools of its own, called or not.
    fn offers_tools(&self) -> bool {
        self.tools.as_deref().is_some_and(|tools| list(tools).map_or(true, |tools| !tools.is_empty()))
    }

    /// The form of the answer.
    pub(super) fn form(&self) -> Result<AnswerForm, OpenAiError> {
        AnswerForm::read(self.response_format.as_ref())
    }

    /// The results behind the last answer, with the ids of their calls, and what the user has written there.
    pub(super) fn last_results(&self) -> Result<LastResults, OpenAiError> {
        let from = self.messages.iter().rposition(|message| message.role == "assistant").map_or(0, |at| at + 1);
        let (mut results, mut said, mut files) = (Vec::new(), Vec::new(), 0);
        for (at, message) in self.messages.iter().enumerate().skip(from) {
            match message.result(at)? {
                Some(text) => results.extend(message.tool_call_id.clone().map(|id| (id, text))),
                None if message.role == "user" => {
                    said.push(message.line(at)?.text);
                    files += message.files();
                }
                None => {}
            }
        }
        if results.is_empty() {
            return Ok(LastResults::default());
        }
        if files > 0 {
            said.push(format!("[{files} file(s) that came with the results of the tools are not shown]"));
        }
        said.retain(|text| !text.trim().is_empty());
        let said = said.join("\n\n");
        if !said.is_empty() {
            check_text(&said).map_err(unusable)?;
        }
        Ok(LastResults { results, said })
    }

    /// The id of a call of the last answer.
    pub(super) fn unanswered_call(&self) -> Option<String> {
        let last = self.messages.iter().rfind(|message| message.role == "assistant")?;
        Some(last.calls().first()?.id.to_string())
    }

    /// The ids of all calls that the messages show.
    pub(super) fn shown_calls(&self) -> HashSet<String> {
        self.messages.iter().flat_map(ChatMessage::calls).map(|call| call.id.to_string()).collect()
    }

    /// The last message of the user, unless it has an answer.
    fn last_of_user(&self) -> Option<&ChatMessage> {
        self.messages.iter().rev().take_while(|message| message.role != "assistant").find(|one| one.role == "user")
    }
}

fn unusable(why: String) -> OpenAiError {
    OpenAiError::invalid("messages", "invalid_value", format!("the user's text {why}"))
}

/// Results behind the last answer of a request.
#[derive(Default)]
pub(super) struct LastResults {
    /// The results, with the ids of their calls.
    pub(super) results: Vec<(String, String)>,
    /// The user's words beside them, in order; empty: nothing.
    pub(super) said: String,
}

impl Conversation {
    /// Keeps the newest `most` files. Of a history that the client sends again, the older files are named in the first
    /// line. The files of the last message stay, even if they are more.
    pub(crate) fn name_older_files(&mut self, most: usize) {
        let excess = self.files.len().saturating_sub(most).min(self.files.len() - self.new_files);
        if excess == 0 || most == 0 {
            return;
        }
        let names: Vec<String> = self.files.drain(..excess).take(OLDER_NAMED).map(|file| file.shown_name()).collect();
        let more = if excess > names.len() { ", and others" } else { "" };
        let text = format!(
            "[{excess} older file(s) of this conversation are not shown (attachments.max_count is {most}): {}{more}]",
            names.join(", ")
        );
        self.history.insert(0, HistoryLine { role: HistoryRole::User, text });
    }
}

impl ChatMessage {
    /// The number of its files.
    fn files(&self) -> usize {
        match &self.content {
            Some(Content::Parts(parts)) => parts.iter().filter(|part| part.file().is_some()).count(),
            _ => 0,
        }
    }

    pub(super) fn line(&self, at: usize) -> Result<HistoryLine, OpenAiError> {
        let role = match self.role.as_str() {
            "system" | "developer" => HistoryRole::System,
            "user" => HistoryRole::User,
            "assistant" => HistoryRole::Assistant,
            other => {
                let other = shown(other);
                let message =
                    format!("the role \"{other}\" is not supported; system, developer, user, assistant and tool are");
                return Err(OpenAiError::invalid(format!("messages[{at}].role"), "invalid_value", message));
            }
        };
        let param = || format!("messages[{at}].content");
        let text = match &self.content {
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => parts
                .iter()
                .map(|part| match (part.kind.as_str(), part.text.as_ref().or(part.refusal.as_ref())) {
                    ("text", Some(text)) => Ok(text.as_str()),
                    ("refusal", Some(text)) if role == HistoryRole::Assistant => Ok(text.as_str()),
                    // They are taken apart from the text.
                    ("image_url" | "file" | "input_audio", _) if role == HistoryRole::User => Ok(""),
                    (kind, _) => {
                        let kind = shown(kind);
                        let message = format!(
                            "parts of type \"{kind}\" are not supported; text parts are, and in messages of the user image_url, file and input_audio"
                        );
                        Err(OpenAiError::invalid(param(), "unsupported_content", message))
                    }
                })
                .collect::<Result<Vec<_>, _>>()
                .map(|texts| joined(&texts))?,
            None if role == HistoryRole::Assistant => self.refusal.clone().unwrap_or_default(),
            None | Some(Content::Other(_)) => {
                let message = "the content must be a text or a list of parts";
                return Err(OpenAiError::invalid(param(), "invalid_type", message));
            }
        };
        Ok(HistoryLine { role, text })
    }
}

/// Joins the texts of the parts of a message, each on a line of its own: clients send files and notes as further parts. A
/// text that ends or begins with a line break gets no second one.
fn joined(texts: &[&str]) -> String {
    let mut whole = String::new();
    for text in texts.iter().filter(|text| !text.is_empty()) {
        if !whole.is_empty() && !whole.ends_with('\n') && !text.starts_with('\n') {
            whole.push('\n');
        }
        whole.push_str(text);
    }
    whole
}

/// Lets the results of calls follow these, as providers demand. What else stands among them comes behind, in its order.
fn results_first(lines: &mut [HistoryLine]) {
    let is_answer = |line: &HistoryLine| matches!(line.role, HistoryRole::Assistant | HistoryRole::Calls);
    let begins: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].role == HistoryRole::Calls).collect();
    for begin in begins {
        let behind = &mut lines[begin + 1..];
        let end = behind.iter().position(is_answer).unwrap_or(behind.len());
        behind[..end].sort_by_key(|line| line.role != HistoryRole::Result); // stable
    }
}

/// Lets the lines end with what the user wants now: instructions after the user's message come before it, and a history
/// without a new message goes on.
fn ended(mut lines: Vec<HistoryLine>) -> Vec<HistoryLine> {
    match lines.iter().rposition(|line| line.role != HistoryRole::System) {
        Some(at) if lines[at].role == HistoryRole::User => lines[at..].rotate_left(1),
        _ => lines.push(HistoryLine { role: HistoryRole::User, text: CONTINUE.to_owned() }),
    }
    lines
}

/// A named session: the store has the earlier messages.
fn continued(session: SessionKey, mut lines: Vec<HistoryLine>) -> Conversation {
    let is_answer = |line: &HistoryLine| matches!(line.role, HistoryRole::Assistant | HistoryRole::Calls);
    let known = lines.iter().rposition(is_answer).map_or(0, |at| at + 1);
    // The store has the calls of results, which have other results there. The agent takes these as data.
    let is_history = |line: &HistoryLine| matches!(line.role, HistoryRole::System | HistoryRole::Result);
    let (history, said): (Vec<_>, Vec<_>) = lines.drain(known..).partition(is_history);
    let text = said.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n\n");
    Conversation {
        session,
        is_named: true,
        takes_new: true,
        answers: false,
        text,
        files: Vec::new(),
        new_files: 0,
        history,
        form: AnswerForm::Text,
        text_only: false,
        continues: false,
        thinking: None,
        sampling: None,
        client_tools: None,
    }
}

/// A new session under an unused key.
fn fresh(mut history: Vec<HistoryLine>) -> Conversation {
    let text = history.pop().map(|line| line.text).unwrap_or_default();
    history.retain(|line| !line.text.is_empty());
    hide_secrets(&mut history);
    let session = SessionKey::new(format!("openai:{}", RunId::new()));
    Conversation {
        session,
        is_named: false,
        takes_new: false,
        answers: false,
        text,
        files: Vec::new(),
        new_files: 0,
        history,
        form: AnswerForm::Text,
        text_only: false,
        continues: false,
        thinking: None,
        sampling: None,
        client_tools: None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use serde_json::json;

    fn read(body: Value, header: Option<&'static str>) -> Result<Conversation, String> {
        let request: ChatRequest = serde_json::from_value(body).unwrap();
        let headers = header.map(|key| (crate::routes::openai::SESSION_HEADER, HeaderValue::from_static(key)));
        let named = Named::of(&request, &headers.into_iter().collect());
        let read = named.and_then(|named| request.conversation(request.lines()?, named));
        read.map_err(|error| error.body()["error"]["param"].to_string())
    }

    fn talk() -> Value {
        json!([
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "1"},
            {"role": "developer", "content": "in French"},
            {"role": "user", "content": "two"},
            {"role": "user", "content": [{"type": "text", "text": "thr"}, {"type": "text", "text": "ee"}]},
        ])
    }

    #[test]
    fn files_are_taken_from_the_new_messages_of_the_user() {
        let picture = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
        let file = json!({"type": "file", "file": {"filename": "a.csv", "file_data": "data:text/csv;base64,YQ=="}});
        let upload = json!({"type": "file", "file": {"file_id": "id-7"}});
        let audio = json!({"type": "input_audio", "input_audio": {"data": "YQ==", "format": "wav"}});
        let messages = json!([
            {"role": "user", "content": [picture("data:image/png;base64,old")]},
            {"role": "assistant", "content": "seen"},
            {"role": "user", "content": [picture("data:image/png;base64,new"), file, upload, audio]},
        ]);
        let names = |conversation: &Conversation| -> Vec<String> {
            conversation.files.iter().map(|file| file.name.clone().or(file.file.clone()).unwrap_or_default()).collect()
        };
        let named = read(json!({"messages": messages, "conversation": "ada"}), None).unwrap();
        assert_eq!(names(&named), ["picture", "a.csv", "id-7", "audio.wav"]);
        assert_eq!(named.text, NO_TEXT);
        let fresh = read(json!({"messages": messages}), None).unwrap();
        assert_eq!(names(&fresh).len(), 5);
        for part in
            [picture("https://example.com/a.png"), json!({"type": "file", "file": {}}), json!({"type": "video"})]
        {
            let body = json!({"messages": [{"role": "user", "content": [part]}]});
            assert_eq!(read(body.clone(), None).err(), Some("\"messages[0].content\"".to_owned()), "{body}");
        }
        let system =
            json!({"messages": [{"role": "system", "content": [picture("data:,")]}, {"role": "user", "content": "x"}]});
        assert_eq!(read(system, None).err(), Some("\"messages[0].content\"".to_owned()));
    }

    #[test]
    fn older_files_of_a_history_are_named_and_those_of_the_last_message_stay() {
        let file = |name: &str| json!({"type": "file", "file": {"filename": name, "file_data": "YQ=="}});
        let old =
            json!({"role": "user", "content": [{"type": "text", "text": "old"}, file("a\n]"), file("b"), file("c")]});
        let answer = json!({"role": "assistant", "content": "seen"});
        let last = |names: &[&str]| {
            let parts: Vec<Value> = names.iter().map(|name| file(name)).collect();
            json!({"role": "user", "content": parts})
        };
        for (new, most, left, older) in [
            (&["d"][..], 4, "a\n] b c d", None),
            (
                &["d"],
                2,
                "c d",
                Some("2 older file(s) of this conversation are not shown (attachments.max_count is 2): a], b]"),
            ),
            (&["d", "e", "f"], 2, "d e f", Some("3 older")), // refused by its number later
            (&["d"], 0, "a\n] b c d", None),
        ] {
            let mut found = read(json!({"messages": [old, answer, last(new)]}), None).unwrap();
            found.name_older_files(most);
            let names: Vec<_> = found.files.iter().filter_map(|file| file.name.clone()).collect();
            assert_eq!(names.join(" "), left, "{new:?} {most}");
            let first = &found.history[0].text;
            assert_eq!(first.starts_with('['), older.is_some(), "{first}");
            assert!(older.is_none_or(|older| first.contains(older)), "{first}");
        }
    }

    fn show(conversation: &Conversation) -> String {
        let lines: Vec<_> = conversation.history.iter().map(|l| format!("{:?}:{}", l.role, l.text)).collect();
        format!("{} <- {}", conversation.text, lines.join("|"))
    }

    #[test]
    fn a_named_session_takes_only_what_is_new_and_a_fresh_one_takes_all() {
        let named = read(json!({"messages": talk(), "conversation": "ada"}), None).unwrap();
        assert_eq!((named.session.as_str(), show(&named).as_str()), ("ada", "two\n\nthr\nee <- System:in French"));
        let header = read(json!({"messages": talk(), "conversation": "ada"}), Some("eve")).unwrap();
        assert_eq!(header.session.as_str(), "eve");
        let fresh = read(json!({"messages": talk()}), None).unwrap();
        assert!(fresh.session.as_str().starts_with("openai:"));
        assert_eq!(show(&fresh), "thr\nee <- System:be brief|User:one|Assistant:1|System:in French|User:two");
        assert_ne!(read(json!({"messages": talk()}), None).unwrap().session, fresh.session);
    }

    #[test]
    fn what_the_user_writes_before_results_comes_behind_them() {
        let call = json!({"id": "1", "type": "function", "function": {"name": "a", "arguments": "{}"}});
        let said = |text: &str| json!({"role": "user", "content": text});
        let result = json!({"role": "tool", "tool_call_id": "1", "content": "rain"});
        let calls = json!({"role": "assistant", "content": null, "tool_calls": [call]});
        let read = read(json!({"messages": [said("hi"), calls, said("in Oslo"), result]}), None).unwrap();
        let roles: Vec<_> = read.history.iter().map(|line| line.role).collect();
        assert_eq!(roles, [HistoryRole::User, HistoryRole::Calls, HistoryRole::Result]);
        assert_eq!(read.text, "in Oslo");
    }

    #[test]
    fn parts_are_joined_by_a_line_break_and_a_single_one_stays_as_it_is() {
        for (parts, expected) in [
            (&["one"][..], "one"),
            (&["what is it?", "-----BEGIN FILE-----"], "what is it?\n-----BEGIN FILE-----"),
            (&["a\n", "b", "", "\nc"], "a\nb\nc"),
            (&[" a "], " a "),
        ] {
            assert_eq!(joined(parts), expected, "{parts:?}");
        }
    }

    #[test]
    fn small_differences_of_clients_cost_no_request() {
        let user = json!({"role": "user", "content": "hi"});
        let refused = json!({"role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]});
        let refusal = json!({"role": "assistant", "content": null, "refusal": "I cannot."});
        for message in [refused, refusal] {
            let read = read(json!({"messages": [user, message, user]}), None).unwrap();
            assert_eq!(show(&read), "hi <- User:hi|Assistant:I cannot.");
        }
        for more in [
            json!({"max_tokens": 0, "frequency_penalty": 0.5, "presence_penalty": -1, "stop": null, "n": null}),
            json!({"max_completion_tokens": -1, "user": {"id": 7}, "seed": null, "reasoning_effort": "heroic"}),
        ] {
            let mut body = json!({"messages": [user]});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let read = read(body, None).unwrap();
            assert!(read.sampling.is_none() && read.thinking.is_none(), "{more}");
        }
        let max = read(json!({"messages": [user], "reasoning_effort": "max"}), None).unwrap();
        assert_eq!(max.thinking, Some(Thinking::High));
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_name() {
        let user = json!([{"role": "user", "content": "hi"}]);
        for (body, param) in [
            (json!({}), "messages"),
            (json!({"messages": []}), "messages"),
            (json!({"messages": [{"role": "user", "content": "  "}]}), "messages"),
            (json!({"messages": [{"role": "user", "content": []}]}), "messages"),
            (json!({"messages": [{"role": "user", "content": null}]}), "messages[0].content"),
            (json!({"messages": [{"role": "user", "content": 7}]}), "messages[0].content"),
            (
                json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
                "messages[0].content",
            ),
            (json!({"messages": [{"role": "tool", "content": 7, "tool_call_id": "1"}]}), "messages[0].content"),
            (json!({"messages": user, "tools": [{"type": "function"}]}), "tools[0].function.name"),
            (json!({"messages": user, "tools": {"a": 1}}), "tools"),
            (json!({"messages": user, "functions": {"a": 1}}), "functions"),
            (json!({"messages": user, "n": 2}), "n"),
            (json!({"messages": user, "response_format": {"type": "grammar"}}), "response_format.type"),
            (json!({"messages": user, "conversation": "x".repeat(300)}), "conversation"),
            (json!({"messages": user, "temperature": 2.5}), "temperature"),
            (json!({"messages": user, "logit_bias": {"7": 1}}), "logit_bias"),
        ] {
            assert_eq!(read(body.clone(), None).err(), Some(format!("{param:?}")), "{body}");
        }
        for body in [
            json!({"messages": user, "tools": [], "functions": null, "n": 1, "temperature": 0.2, "seed": 7}),
            json!({"messages": [{"role": "assistant", "content": null}, user[0]]}),
        ] {
            assert!(read(body.clone(), None).is_ok(), "{body}");
        }
    }
}
