//! A summary by a model: a separate request for a bounded time, charged to the run's account.

use std::sync::Arc;

use belay_agent_loop::{LoopContext, Reasoning};
use belay_protocol::{FinishReason, Message, Prompt};

use super::account::Account;
use super::summary;
use crate::config::CompactionConfig;
use crate::core::{Allowance, Asked, CallPurpose, RunCore, SideQuestion};
use crate::estimate::Calibration;

/// Attempts to get a usable summary.
const ATTEMPTS: u32 = 2;
/// Maximum length of a summary, in tokens: about four pages.
const MAX_TOKENS: u64 = 2_048;
/// Minimum conversation that is worth a summary by a model, in characters. Only a very small context leaves less.
const FEWEST_CHARS: u64 = 400;

/// The budget for a summary in a context of a given size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SummaryBudget {
    /// Maximum length of the summary, in tokens.
    tokens: u32,
    /// Maximum length of the conversation that the model reads, in characters.
    chars: usize,
}

impl SummaryBudget {
    /// `None`: the context is too small.
    fn of(context_tokens: u64, prompt: &str, calibration: Calibration) -> Option<Self> {
        let tokens = (context_tokens / 8).min(MAX_TOKENS);
        let used = tokens + calibration.counted(prompt.len() as u64 / 4);
        // A quarter stays free for the error of the estimate.
        let chars = calibration.estimated((context_tokens * 3 / 4).saturating_sub(used)).saturating_mul(4);
        let chars = usize::try_from(chars).unwrap_or(usize::MAX);
        (chars as u64 >= FEWEST_CHARS).then_some(Self { tokens: tokens as u32, chars })
    }
}

/// Asks a model for a summary. `None`: no usable summary, for any reason.
///
/// # Cancel safety
/// If the future is dropped, nothing was published.
pub(super) async fn account(
    core: &mut RunCore,
    config: &CompactionConfig,
    account: &Account<'_>,
    calibration: Calibration,
    wish: Option<&str>,
    step: u32,
) -> Option<String> {
    let context_tokens = core.services.model.info().context_tokens;
    let words = (context_tokens / 8).min(MAX_TOKENS) / 2;
    let prompt = summary::prompt(words as u32, config.identifiers);
    let room = SummaryBudget::of(context_tokens, &prompt, calibration)?;
    let question = summary::request(account, room.chars, wish);
    let system = || Prompt::new(prompt.clone());
    let reasoning =
        Reasoning::new(system(), system(), Arc::default(), room.tokens, ATTEMPTS).with_model(config.model.clone());
    let mut told = String::new();
    for attempt in 1..=ATTEMPTS {
        let text = ask(core, &reasoning, format!("{question}{told}"), step).await?;
        let faults = match text {
            Ok(ref text) => summary::faults(account, text, config.identifiers),
            Err(fault) => summary::Faults { fatal: vec![fault.to_owned()], missing: Vec::new() },
        };
        tracing::debug!(run = %core.live.id, attempt, ?faults, "an account was written");
        match text {
            Ok(text) if faults.is_empty() => return Some(text),
            // Identifiers that the model did not copy are appended here.
            Ok(text) if attempt == ATTEMPTS && faults.fatal.is_empty() => {
                return Some(summary::with_identifiers(&text, &faults.missing));
            }
            _ => told = faults.told(),
        }
    }
    None
}

/// Sends one request. `None`: it was impossible or not allowed. Otherwise the text, or what is wrong with the reply as
/// a whole.
async fn ask(
    core: &mut RunCore,
    reasoning: &Reasoning,
    question: String,
    step: u32,
) -> Option<Result<String, &'static str>> {
    // A separate context: the question does not enter the conversation.
    let mut aside = LoopContext::new(vec![Arc::new(Message::user(question))]);
    let allowance = Allowance { attempts: ATTEMPTS, purpose: CallPurpose::SideQuestion(SideQuestion::Summary) };
    match core.ask(reasoning, &mut aside, step, allowance).await {
        Ok(Asked::Reply(reply)) => Some(match reply.finish {
            FinishReason::Stop => Ok(reply.text),
            FinishReason::Unsaid => Err("Its end may be missing."),
            FinishReason::Length => Err("It exceeded the length limit: write less."),
            FinishReason::ToolCalls | FinishReason::ContentFilter => Err("It was not text."),
        }),
        Ok(Asked::Chanted(_)) => Some(Err("It repeated itself.")),
        Ok(Asked::Ended(_)) => None,
        Ok(Asked::Failed(error)) => {
            tracing::warn!(run = %core.live.id, detail = %error, "no model could write the summary");
            None
        }
        Err(error) => {
            crate::log_failure!(warn, error, run = %core.live.id, detail = %error, "no model was asked for an account");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_scales_with_the_context_and_a_tiny_one_has_none() {
        let prompt = "x".repeat(1600);
        let sure = Calibration::default();
        assert_eq!(
            SummaryBudget::of(200_000, &prompt, sure),
            Some(SummaryBudget { tokens: 2048, chars: (150_000 - 2448) * 4 })
        );
        assert_eq!(
            SummaryBudget::of(2_000, &prompt, sure),
            Some(SummaryBudget { tokens: 250, chars: (1_500 - 650) * 4 })
        );
        assert_eq!(SummaryBudget::of(600, &prompt, sure), None);
    }
}
