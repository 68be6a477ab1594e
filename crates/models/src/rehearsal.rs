//! The rehearsal: a deterministic stand-in for a model, for the time before one is configured, and for tests,
//! screenshots and the docs.
//!
//! It turns plain requests ("calculate 17*23", "read note.txt") into real tool calls, answers from their results, and
//! says at the start of each conversation that it is no model. On request it misbehaves in every way that the
//! guardrails of the loop know (`rehearse loop`, `rehearse stall`, …), so that each can be seen working without a key or
//! cost: `misbehaviours.toml` holds the scripts. It makes plans, works as the executor of their steps, and sums them up;
//! of a job it hands over the result.
//!
//! Two parts: `plan` decides, a pure function of the request's messages and of the tools that are offered;
//! [`Rehearsal`] plays the script it gets. Reading order: `turn` → `request` → `answer` → `outputs` → `misbehave` →
//! `plan` → `planning` → `job`.

mod answer;
mod job;
mod misbehave;
mod outputs;
mod plan;
mod planning;
mod request;
#[cfg(test)]
mod tests;
mod turn;

use async_trait::async_trait;
use belay_protocol::{
    DeltaSink, FinishReason, Heard, Message, ModelError, ModelInfo, ModelProvider, ModelReply, ModelRequest, ToolCall,
    Usage,
};

use self::plan::{Beat, Ending, Script, plan};

/// The line that a conversation's first answer begins with.
pub const LABEL: &str = "[rehearsal: this is Belay's built-in stand-in, not a model]";

/// Size of the context it claims, in tokens: like a small model's, so that compaction can be rehearsed too.
const CONTEXT_TOKENS: u64 = 32_768;

/// Words streamed between two moments at which the call can be cancelled.
const WORDS_PER_YIELD: usize = 256;

/// The stand-in as a provider. Ignores `max_tokens`, `max_attempts` and the model's name: it answers what is asked.
#[derive(Debug)]
pub struct Rehearsal {
    info: ModelInfo,
}

impl Rehearsal {
    /// The stand-in.
    pub fn new() -> Self {
        Self {
            info: ModelInfo {
                provider: "rehearsal".to_owned(),
                model: "rehearsal-1".to_owned(),
                context_tokens: CONTEXT_TOKENS,
                price: None,
                rehearsal: true,
                vision: false,
                sampling: belay_protocol::SamplingSupport::ALL,
            },
        }
    }
}

impl Default for Rehearsal {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl ModelProvider for Rehearsal {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Plays the script for this request. Waits only where the script rehearses waiting; dropped there, it is gone.
    async fn call(&self, request: ModelRequest<'_>, sink: &mut dyn DeltaSink) -> Result<ModelReply, ModelError> {
        let Script { beats, ending } = planning::script(&request)
            .or_else(|| job::script(&request))
            .unwrap_or_else(|| plan(request.messages, request.tools));
        let said = play(beats, sink).await;
        let (tool_calls, finish) = match ending {
            Ending::Stop => (Vec::new(), FinishReason::Stop),
            Ending::Calls(calls) => (calls, FinishReason::ToolCalls),
            Ending::Cut(calls) => (calls, FinishReason::Length),
            Ending::Fail(kind) => {
                let abandoned = u32::from(!said.text.is_empty());
                return Err(ModelError {
                    abandoned,
                    heard: said.heard,
                    ..ModelError::new(kind, "rehearsed on request")
                });
            }
        };
        let usage = Some(usage(&request, &said.text, &tool_calls));
        Ok(ModelReply { text: said.text, tool_calls, finish, usage, attempts: 1, ..ModelReply::default() })
    }
}

#[derive(Default)]
struct Said {
    text: String,
    heard: bool,
}

/// Says and waits in order, word by word.
async fn play(beats: Vec<Beat>, sink: &mut dyn DeltaSink) -> Said {
    let mut said = Said::default();
    for beat in beats {
        match beat {
            Beat::Wait(time) => tokio::time::sleep(time).await,
            Beat::Say(text) => {
                for (at, word) in text.split_inclusive([' ', '\n']).enumerate() {
                    if at % WORDS_PER_YIELD == WORDS_PER_YIELD - 1 {
                        tokio::task::yield_now().await;
                    }
                    said.heard |= sink.text(word) == Heard::Somebody;
                }
                said.text.push_str(&text);
            }
        }
    }
    said
}

/// Estimated as for any message, so that budgets move as they would with a model.
fn usage(request: &ModelRequest<'_>, text: &str, calls: &[ToolCall]) -> Usage {
    let prompt = request.prompt.text.len() as u64 / 4;
    let messages: u64 = request.messages.iter().map(|message| message.estimated_tokens()).sum();
    let output = Message::assistant_calls(text, calls.to_vec()).estimated_tokens();
    Usage { input: prompt + messages, cached_input: 0, output }
}
