//! Client for every format without a client of our own, through the library `genai`: Gemini, Ollama's own format,
//! OpenAI's Responses API.
//!
//! We use only the formats of the library: neither its retries nor its search for keys and addresses in the
//! environment. It rebuilds each request as a tree and does not bound the size of an event. That is why the main
//! formats have their own clients. The output of the library is bounded here.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{
    Arguments, DeltaSink, FinishReason, Message, MessageBody, ModelError, ModelInfo, ModelProvider, ModelReply,
    ModelRequest, Usage,
};
use futures_util::StreamExt;
use genai::adapter::AdapterKind;
use genai::chat::{
    ChatMessage, ChatOptions, ChatRequest, ChatStreamEvent, ContentPart, MessageContent, StopReason, StreamEnd, Tool,
    ToolCall, ToolResponse,
};
use genai::resolver::{AuthData, Endpoint};
use genai::{ModelIden, ServiceTarget};
use reqwest::Client;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::Url;

use crate::collect::{Collector, Reported};
use crate::config::LlmConfig;
use crate::error::ModelsError;
use crate::failure::{self, network, refuse_unsupported};
use crate::vision::{NO_VISION, text_instead};
use crate::wire::tool_name;

/// A provider that is called through the library.
struct Genai {
    info: ModelInfo,
    client: genai::Client,
    kind: AdapterKind,
    endpoint: Endpoint,
    key: Option<SecretString>,
    options: ChatOptions,
}

/// Makes a provider of this kind at this base address.
///
/// # Errors
/// [`ModelsError::Library`].
pub(crate) fn provider(
    info: ModelInfo,
    config: &LlmConfig,
    kind: AdapterKind,
    base: &Url,
    http: Client,
    key: Option<&SecretString>,
) -> Result<Arc<dyn ModelProvider>, ModelsError> {
    Ok(Arc::new(Genai::new(info, config, kind, base, http, key)?))
}

impl Genai {
    fn new(
        info: ModelInfo,
        config: &LlmConfig,
        kind: AdapterKind,
        base: &Url,
        http: Client,
        key: Option<&SecretString>,
    ) -> Result<Self, ModelsError> {
        let client = genai::Client::builder()
            .with_reqwest(http)
            .build()
            .map_err(|error| ModelsError::Library(error.to_string()))?;
        let mut base = base.clone();
        // The path of Ollama's own format has no version, but `parse_base_url` adds one to a bare address.
        if kind == AdapterKind::Ollama {
            base.set_path("/");
        }
        let options = ChatOptions {
            temperature: config.temperature,
            capture_usage: Some(true),
            capture_tool_calls: Some(true),
            stream_header_timeout: Some(config.connect() + config.idle()),
            stream_read_timeout: Some(config.idle()),
            extra_body: (!config.extra_body.is_empty()).then(|| Value::Object(config.extra_body.clone())),
            ..ChatOptions::default()
        };
        // The library appends paths to a base that ends in a slash.
        let endpoint = Endpoint::from_owned(format!("{}/", base.as_str().trim_end_matches('/')));
        Ok(Self { info, client, kind, endpoint, key: key.cloned(), options })
    }

    fn target(&self, model: &str) -> ServiceTarget {
        let auth = match &self.key {
            Some(key) => AuthData::from_single(key.expose_secret().trim()),
            None => AuthData::None,
        };
        ServiceTarget { endpoint: self.endpoint.clone(), auth, model: ModelIden::new(self.kind, model) }
    }

    async fn stream(
        &self,
        request: ModelRequest<'_>,
        collected: &mut Collector,
        sink: &mut dyn DeltaSink,
    ) -> Result<(), ModelError> {
        let target = self.target(request.model.unwrap_or(&self.info.model));
        let mut options = ChatOptions { max_tokens: Some(request.max_tokens), ..self.options.clone() };
        if let Some(sampling) = request.sampling {
            options.temperature = sampling.temperature().or(options.temperature);
            options.top_p = sampling.top_p().or(options.top_p);
            options.seed = sampling.seed.map(i64::unsigned_abs).or(options.seed); // never negative here
            options.stop_sequences.extend(sampling.stop.iter().cloned());
        }
        let mut stream = self
            .client
            .exec_chat_stream(target, chat_request(&request), Some(&options))
            .await
            .map_err(from_library)?
            .stream;
        while let Some(event) = stream.next().await {
            match event.map_err(from_library)? {
                ChatStreamEvent::Chunk(chunk) => collected.text(&chunk.content, sink)?,
                ChatStreamEvent::ReasoningChunk(chunk) => collected.reasoning(&chunk.content, sink)?,
                ChatStreamEvent::End(end) => return finish(end, collected, sink),
                // Calls come complete with the end.
                _ => {}
            }
        }
        Err(network("the stream ended before its terminal event"))
    }

    /// Removes the key from an error, in case the library or the server has quoted it.
    fn redact(&self, mut error: ModelError) -> ModelError {
        if let Some(key) = self.key.as_ref().map(|key| key.expose_secret().trim()).filter(|key| key.len() >= 4) {
            error.detail = error.detail.replace(key, "[key]");
            if let Some(refusal) = &mut error.refusal {
                refusal.message = refusal.message.replace(key, "[key]");
                refusal.code = refusal.code.replace(key, "[key]");
            }
        }
        error
    }
}

#[async_trait]
impl ModelProvider for Genai {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn call(&self, request: ModelRequest<'_>, sink: &mut dyn DeltaSink) -> Result<ModelReply, ModelError> {
        refuse_unsupported(&self.info, &request)?;
        let mut collected = Collector::default();
        match Box::pin(self.stream(request, &mut collected, sink)).await {
            Ok(()) => Ok(collected.into_reply()),
            Err(mut error) => {
                error.abandoned = u32::from(collected.begun);
                Err(self.redact(error))
            }
        }
    }
}

/// Processes the end of a stream. The library reports an end for every end of a connection, so the stop reason must be
/// present too.
fn finish(end: StreamEnd, collected: &mut Collector, sink: &mut dyn DeltaSink) -> Result<(), ModelError> {
    let Some(reason) = end.captured_stop_reason else {
        return Err(network("the stream ended without a reason to stop"));
    };
    collected.stop(match reason {
        StopReason::MaxTokens(_) => FinishReason::Length,
        StopReason::ToolCall(_) => FinishReason::ToolCalls,
        StopReason::ContentFilter(_) => FinishReason::ContentFilter,
        _ => FinishReason::Stop,
    });
    if let Some(usage) = end.captured_usage {
        report(usage, collected, sink);
    }
    let calls = end.captured_content.map(MessageContent::into_tool_calls).unwrap_or_default();
    for (key, call) in (0..).zip(calls) {
        let arguments = match call.fn_arguments {
            Value::Null => String::new(),
            // Truncated JSON arrives as a string with the raw text.
            Value::String(raw) => raw,
            value => value.to_string(),
        };
        let at = collected.open_call(key, &call.call_id, &call.fn_name, sink)?;
        collected.arguments(at, &arguments, sink)?;
    }
    Ok(())
}

/// Reports the usage. Counts that the library could not read, or that are negative, count as missing.
fn report(usage: genai::chat::Usage, collected: &mut Collector, sink: &mut dyn DeltaSink) {
    let count = |tokens: Option<i32>| tokens.and_then(|n| u64::try_from(n).ok());
    let cached = usage.prompt_tokens_details.and_then(|details| details.cached_tokens);
    let (input, output) = (count(usage.prompt_tokens), count(usage.completion_tokens));
    let reported = match (input, output) {
        (None, None) => return,
        (Some(_), Some(_)) => Reported::All,
        _ => Reported::Part,
    };
    let usage = Usage {
        input: input.unwrap_or_default(),
        cached_input: count(cached).unwrap_or_default(),
        output: output.unwrap_or_default(),
    };
    collected.report(usage, reported, sink);
}

fn chat_request(request: &ModelRequest<'_>) -> ChatRequest {
    let mut chat = ChatRequest::new(request.messages.iter().map(|message| chat_message(message)).collect());
    if !request.prompt.text.is_empty() {
        chat = chat.with_system(request.prompt.text.as_str());
    }
    if let Some(tools) = request.tools.filter(|tools| !tools.is_empty()) {
        let tool = |spec: &belay_protocol::ToolSpec| {
            let schema = serde_json::from_str(spec.shown_schema().get()).expect("the text was written from a tree");
            Tool::new(spec.name.as_str()).with_description(spec.description.as_str()).with_schema(schema)
        };
        chat.tools = Some(tools.iter().map(|it| tool(it.spec())).collect());
    }
    chat
}

fn chat_message(message: &Message) -> ChatMessage {
    match &message.body {
        // Untrusted content must not be an instruction: Gemini joins all system messages into one.
        MessageBody::System { text } if message.is_notice() => ChatMessage::user(text.as_str()),
        MessageBody::System { text } => ChatMessage::system(text.as_str()),
        MessageBody::User { .. } if !message.pictures.is_empty() => ChatMessage::user(text_instead(message, NO_VISION)),
        MessageBody::User { .. } | MessageBody::Data { .. } => ChatMessage::user(message.for_model().into_owned()),
        MessageBody::Assistant { text, tool_calls } => {
            let text = (!text.is_empty() || tool_calls.is_empty()).then(|| ContentPart::Text(text.clone()));
            let calls = tool_calls.iter().map(|call| {
                ContentPart::ToolCall(ToolCall {
                    call_id: call.id.to_string(),
                    fn_name: tool_name(&call.name),
                    fn_arguments: match &call.arguments {
                        Arguments::Object(map) => Value::Object(map.clone()),
                        malformed @ Arguments::Malformed(_) => malformed.to_wire_object(),
                    },
                    thought_signatures: None,
                })
            });
            ChatMessage::assistant(MessageContent::from_parts(text.into_iter().chain(calls).collect::<Vec<_>>()))
        }
        MessageBody::Tool(result) => ChatMessage::tool(MessageContent::from_tool_responses(vec![
            ToolResponse::new(result.call_id.as_str(), tool_text(message)).with_fn_name(tool_name(&result.name)),
        ])),
    }
}

/// The text of a tool result. The library sends no pictures.
fn tool_text(message: &Message) -> String {
    if message.pictures.is_empty() { message.text().to_owned() } else { text_instead(message, NO_VISION) }
}

fn from_library(error: genai::Error) -> ModelError {
    use genai::Error as E;
    let headers = error.headers().cloned().unwrap_or_default();
    let refused =
        |status: u16, body: &str| failure::from_status(status, failure::retry_after(&headers), body.as_bytes());
    match error {
        E::HttpError { status, body, .. } => refused(status.as_u16(), &body),
        E::WebModelCall { webc_error, .. } | E::WebAdapterCall { webc_error, .. } => match webc_error {
            genai::webc::Error::ResponseFailedStatus { status, body, .. } => refused(status.as_u16(), &body),
            genai::webc::Error::Reqwest(error) => failure::from_client(error),
            other => network(other.to_string()),
        },
        // If the server refuses a stream, the library hides an error of its own in here.
        E::WebStream { error, cause, .. } => match error.downcast::<E>() {
            Ok(inner) => from_library(*inner),
            Err(other) => match other.downcast::<reqwest::Error>() {
                Ok(error) => failure::from_client(*error),
                Err(_) => network(cause),
            },
        },
        E::ChatResponse { body, .. } => failure::from_error_body(body.to_string().as_bytes()),
        E::StreamParse { serde_error, .. } => network(format!("not an event of this format: {serde_error}")),
        E::RequiresApiKey { .. } | E::NoAuthData { .. } | E::NoAuthResolver { .. } => {
            ModelError::new(belay_protocol::ModelErrorKind::Auth, "the provider needs a key")
        }
        other => ModelError::new(belay_protocol::ModelErrorKind::BadRequest, failure::bounded(&other.to_string())),
    }
}
