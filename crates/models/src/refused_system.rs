//! Recognises servers that accept system messages only at the beginning of a conversation.

use belay_protocol::{Message, MessageBody, ModelError, ModelRequest};

/// Words of chat templates and servers that refuse a system message behind others, or in general. Sources:
/// `docs/reference/model-servers.md`.
const ABOUT_THE_ROLE: [&str; 9] = [
    "system message must be at the beginning",
    "system message must be first",
    "only one system message",
    "unexpected role \'system\'",
    "unexpected role \"system\"",
    "system role not supported",
    "invalid message role",
    "conversation roles must alternate",
    "roles are supported, got system",
];

/// Parts of the names of models whose own chat template leaves a later system message out, moves it to the front, or replaces the
/// prompt by it, all without an error; and of Gemini, whose compatible interface replaces the prompt. Measured with the templates of llama.cpp: `docs/reference/model-servers.md`.
const LOSING: [&str; 12] = [
    "bielik-11b-v3",
    "deepseek",
    "gemini",
    "gpt-oss",
    "minimax-m",
    "nemotron-nano",
    "reka-edge",
    "rwkv",
    "smollm3",
    "solar-open",
    "tencent-hy3",
    "hy3-",
];

/// Whether a model is known to lose system messages behind others. It gets them as notices from the beginning.
pub(crate) fn loses_later_system(model: &str) -> bool {
    let model = model.to_lowercase();
    LOSING.iter().any(|part| model.contains(part))
}

/// Whether the request has a system message behind other messages.
pub(crate) fn has_later_system(request: &ModelRequest<'_>) -> bool {
    let is_system = |message: &Message| matches!(message.body, MessageBody::System { .. }) && !message.is_notice();
    request.later_system && request.messages.iter().skip_while(|it| is_system(it)).any(|it| is_system(it))
}

/// Whether an error refuses a system message by its words. Its status does not count: llama.cpp answers 500.
pub(crate) fn is_about_system(error: &ModelError) -> bool {
    let said = error.detail.to_lowercase();
    ABOUT_THE_ROLE.iter().any(|words| said.contains(words))
}
