//! Whether an error says that the conversation is longer than the context of the model. There is no common code for it, so
//! the codes and the words of each server are listed.
//!
//! `docs/reference/model-servers.md` shows this table to readers, with what happens after such an error.

use belay_protocol::{ModelError, ModelErrorKind, ModelReply};
use tracing::debug;

/// One wording. An error has it if its code or its message contains all parts, in this order, in any case.
pub(crate) struct Wording {
    /// Who sends it.
    pub(crate) server: &'static str,
    pub(crate) parts: &'static [&'static str],
    /// A public place that quotes it.
    pub(crate) source: &'static str,
}

const fn row(server: &'static str, parts: &'static [&'static str], source: &'static str) -> Wording {
    Wording { server, parts, source }
}

/// The wordings of servers.
pub(crate) const WORDINGS: &[Wording] = &[
    row("OpenAI, vLLM, DeepSeek, OpenRouter", &["maximum context length"], "vllm-project/vllm#20409"),
    row("OpenAI, Groq", &["context_length_exceeded"], "thepersonalaicompany/amurex-backend#51"),
    row("Groq, vLLM", &["reduce the length of the messages"], "thepersonalaicompany/amurex-backend#51"),
    row("vLLM", &["longer than the maximum model length"], "Gabesarch/grounded-rl#16"),
    row("SGLang, Together", &["longer than the model's context length"], "sgl-project/sglang#8096"),
    row("Together, text-generation-inference", &["inputs` tokens + `max_new_tokens"], "huggingface/chat-ui#327"),
    row("Anthropic", &["prompt is too long"], "Anthropic API reference, Errors"),
    row("Anthropic", &["exceed context limit"], "stackblitz/bolt.new#7422"),
    row("Anthropic", &["request_too_large"], "Anthropic API reference, Errors"),
    row("Bedrock", &["input is too long"], "AWS, Amazon Bedrock, Troubleshooting error codes"),
    row("Gemini", &["input token count", "exceeds"], "google-gemini/gemini-cli#6678"),
    row("xAI", &["maximum prompt length is"], "cline/cline#3120"),
    row("Kimi, Moonshot", &["exceeded model token limit"], "Moonshot AI, Error codes"),
    row("Moonshot", &["model max length exceeded"], "MoonshotAI/MoonshotAI-Cookbook#18"),
    row("GLM", &["prompt exceeds max length"], "zeroclaw-labs/zeroclaw#4124"),
    row("GLM", &["prompt too long"], "earendil-works/pi#9805"),
    row("GLM", &["tokens in request more than max tokens allowed"], "NousResearch/hermes-agent#61728"),
    row("GLM", &["exceeds the maximum allowed input length"], "NVIDIA-NeMo/Switchyard#314"),
    row("GitHub Copilot", &["prompt token count", "exceeds the limit"], "GitHub Copilot, chat completions"),
    row("GitHub Copilot", &["model_max_prompt_tokens_exceeded"], "GitHub Copilot, chat completions"),
    row("Cohere", &["too many tokens"], "cohere-ai/sandbox-topically#4"),
    row("Mistral", &["too large for model with", "maximum context length"], "Mistral AI, chat completions"),
    row("llama.cpp", &["exceeds the available context size"], "ggml-org/llama.cpp, tools/server"),
    row("llama.cpp", &["exceed_context_size"], "ggml-org/llama.cpp, tools/server"),
    row("Ollama", &["exceeded max context length"], "ollama/ollama, server"),
    row("Ollama", &["exceeds the context length"], "ollama/ollama, server"),
    row("LM Studio", &["when context the overflows"], "lmstudio-ai/lmstudio-bug-tracker#546"),
    row("LM Studio", &["greater than the context length"], "lmstudio-ai/lmstudio-bug-tracker"),
    row("LM Studio", &["exceeds context length"], "lmstudio-ai/examples#29"),
    row("LM Studio", &["context size has been exceeded"], "lmstudio-ai/lmstudio-bug-tracker#2339"),
    row("LM Studio", &["reached context length of"], "lmstudio-ai/lmstudio-bug-tracker#1251"),
    row("MiniMax", &["context window exceeds limit"], "MiniMax, Error codes"),
    row("DashScope", &["range of input length should be"], "Alibaba Cloud Model Studio, Error messages"),
    row("proxies", &["context_window_exceeded"], "BerriAI/litellm, exceptions"),
    row("others", &["context length exceeded"], "general"),
    row("others", &["exceeds the context"], "general"),
    row("others", &["context window"], "general"),
];

/// Whether the code or the message of an error, both in lower case, has one of the wordings.
pub(crate) fn has_wording(code: &str, message: &str) -> bool {
    let found = WORDINGS.iter().find(|wording| contains(code, wording.parts) || contains(message, wording.parts));
    if let Some(Wording { server, source, .. }) = found {
        debug!(server, source, "an error has the wording of a full context");
    }
    found.is_some()
}

fn contains(text: &str, parts: &[&str]) -> bool {
    parts.iter().try_fold(text, |rest, part| rest.split_once(part).map(|(_, rest)| rest)).is_some()
}

/// The largest number that is taken for a count of tokens: more than any request has. Dates and numbers of requests are larger.
const COUNTED_MAX: u64 = 100_000_000;

/// Counts a refusal in unknown words as a full context if it speaks of tokens and names a number above the known context.
pub(crate) fn by_numbers(error: ModelError, context_tokens: Option<u64>) -> ModelError {
    const ABOUT: [&str; 4] = ["token", "context", "length", "too long"];
    let said = error.refusal.as_ref().map_or(&error.detail, |refusal| &refusal.message).to_lowercase();
    let is_refusal = matches!(error.kind, ModelErrorKind::BadRequest);
    let is_about = ABOUT.iter().any(|word| said.contains(word));
    match context_tokens.filter(|_| is_refusal && is_about) {
        Some(most) if numbers(&said).any(|number| number > most && number <= COUNTED_MAX) => overflow(error),
        _ => error,
    }
}

/// The size of a request, in bytes, from which on it is big in any case. 256 KiB: about 64,000 tokens.
const BIG_BYTES: usize = 256 * 1024;
/// Bytes that are taken for one token.
const BYTES_A_TOKEN: u64 = 4;

/// Decides about a 413 in unknown words, which servers send for a long conversation, and proxies for a large body of any
/// kind. It is a full context if the request was big: then a shorter conversation helps in both cases. Otherwise the error says
/// that the limit is another one.
pub(crate) fn by_size(mut error: ModelError, sent: usize, context_tokens: Option<u64>) -> ModelError {
    let is_413 = error.refusal.as_ref().is_some_and(|refusal| refusal.status == Some(413));
    if !is_413 || !matches!(error.kind, ModelErrorKind::BadRequest) {
        return error;
    }
    let fills_half = |most: u64| sent as u64 / BYTES_A_TOKEN >= most / 2;
    if sent >= BIG_BYTES || context_tokens.is_some_and(fills_half) {
        return overflow(error);
    }
    let why = format!("the request had {sent} bytes; a server or a proxy on the way takes no larger ones");
    error.detail = format!("{}: {why}", error.detail);
    if let Some(refusal) = &mut error.refusal {
        refusal.message = if refusal.message.is_empty() { why } else { format!("{}: {why}", refusal.message) };
    }
    error
}

fn overflow(mut error: ModelError) -> ModelError {
    error.kind = ModelErrorKind::ContextTooLong;
    if let Some(refusal) = &mut error.refusal {
        refusal.fault = belay_protocol::ProviderFault::ContextTooLong;
    }
    error
}

/// The whole numbers of a text, with or without separators of thousands.
fn numbers(text: &str) -> impl Iterator<Item = u64> {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, ',' | '_' | '\'');
    text.split(move |c| !is_part(c))
        .filter_map(|word| word.chars().filter(char::is_ascii_digit).collect::<String>().parse().ok())
}

/// Whether a model has generated nothing because the conversation filled its context. LM Studio answers so, with 200
/// (lmstudio-ai/lmstudio-bug-tracker#2339).
pub(crate) fn is_full(reply: &ModelReply, context_tokens: Option<u64>) -> bool {
    let fills =
        |usage: belay_protocol::Usage| context_tokens.is_some_and(|most| usage.input >= most) && usage.output == 0;
    reply.text.is_empty() && reply.tool_calls.is_empty() && reply.usage.is_some_and(fills)
}

#[cfg(test)]
mod tests;
