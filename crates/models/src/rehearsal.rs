//! The rehearsal: a deterministic stand-in for a model. It is used before a model is configured, and for tests,
//! screenshots and the documentation.
//!
//! It turns plain requests ("calculate 17*23", "read note.txt") into real tool calls and answers from their results. At
//! the start of each conversation it says that it is not a model. On request it misbehaves in every way that a
//! guardrail of the loop detects (`rehearse loop`, `rehearse stall`, …), so that each guardrail can be tried without a
//! key or cost. `misbehaviours.toml` contains the scripts. It also makes plans, executes their steps, summarises them,
//! and submits the result of a job.
//!
//! Two parts: `plan` decides, as a pure function of the messages of the request and of the offered tools; [`Rehearsal`]
//! plays the resulting script. Reading order: `turn` → `request` → `answer` → `outputs` → `misbehave` → `plan` →
//! `planning` → `job`.

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

use self::plan::{Ending, Script, Segment, plan};

/// The first line of a conversation's first answer.
pub const LABEL: &str = "[rehearsal: this is Belay's built-in stand-in, not a model]";

/// The context size that it reports, in tokens: like that of a small model, so that compaction can be rehearsed too.
const CONTEXT_TOKENS: u64 = 32_768;

/// Words that are streamed between two points at which the call can be cancelled.
const WORDS_PER_YIELD: usize = 256;

/// The stand-in as a provider. Ignores `max_tokens`, `max_attempts` and the model's name.
#[derive(Debug)]
pub struct Rehearsal {
    info: ModelInfo,
}

impl Rehearsal {
    /// Makes the stand-in.
    pub fn new() -> Self {
        Self {
            info: ModelInfo {
                provider: "rehearsal".to_owned(),
                model: "rehearsal-1".to_owned(),
                context_tokens: CONTEXT_TOKENS,
                price: None,
                rehearsal: true,
                // It describes the pictures that the model of a conversation would see.
                vision: true,
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

    /// Plays the script for this request. It waits only where the script contains a pause. If the future is dropped
    /// there, the answer is lost.
    async fn call(&self, request: ModelRequest<'_>, sink: &mut dyn DeltaSink) -> Result<ModelReply, ModelError> {
        let Script { segments, ending } = planning::script(&request)
            .or_else(|| job::script(&request))
            .unwrap_or_else(|| plan(request.messages, request.tools));
        let played = play(segments, sink).await;
        let (tool_calls, finish) = match ending {
            Ending::Stop => (Vec::new(), FinishReason::Stop),
            Ending::Calls(calls) => (calls, FinishReason::ToolCalls),
            Ending::Cut(calls) => (calls, FinishReason::Length),
            Ending::Fail(kind) => {
                let abandoned = u32::from(!played.text.is_empty());
                return Err(ModelError {
                    abandoned,
                    heard: played.heard,
                    ..ModelError::new(kind, "rehearsed on request")
                });
            }
        };
        let usage = Some(usage(&request, &played.text, &tool_calls));
        Ok(ModelReply { text: played.text, tool_calls, finish, usage, attempts: 1, ..ModelReply::default() })
    }
}

#[derive(Default)]
struct Played {
    text: String,
    heard: bool,
}

/// Plays text word by word, and pauses, in order.
async fn play(segments: Vec<Segment>, sink: &mut dyn DeltaSink) -> Played {
    let mut played = Played::default();
    for segment in segments {
        match segment {
            Segment::Wait(time) => tokio::time::sleep(time).await,
            Segment::Say(text) => {
                for (at, word) in text.split_inclusive([' ', '\n']).enumerate() {
                    if at % WORDS_PER_YIELD == WORDS_PER_YIELD - 1 {
                        tokio::task::yield_now().await;
                    }
                    played.heard |= sink.text(word) == Heard::Somebody;
                }
                played.text.push_str(&text);
            }
        }
    }
    played
}

/// Estimates the usage as for any message, so that budgets behave as with a model.
fn usage(request: &ModelRequest<'_>, text: &str, calls: &[ToolCall]) -> Usage {
    let prompt = request.prompt.text.len() as u64 / 4;
    let messages: u64 = request.messages.iter().map(|message| message.estimated_tokens()).sum();
    let output = Message::assistant_calls(text, calls.to_vec()).estimated_tokens();
    Usage { input: prompt + messages, cached_input: 0, output }
}
