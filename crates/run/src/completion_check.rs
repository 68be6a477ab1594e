//! Second opinion: a short model call that checks whether an agent's final answer meets the request.

use belay_agent_loop::{LoopContext, LoopError, Reasoning};
use belay_protocol::{Message, Prompt, ToolSet};
use serde_json::Value;

use crate::core::{Allowance, Asked, CallPurpose, RunCore, SideQuestion};

/// Maximum length of an opinion, in tokens: yes or no and half a sentence.
const MAX_TOKENS: u32 = 200;

const PROMPT: &str = "You check the work of an agent. You are given the request and the agent's answer. Decide whether \
the answer meets the request, as far as the answer itself shows. Answer with one JSON object and nothing else: \
{\"met\": true} or {\"met\": false, \"missing\": \"what is missing, in one short sentence\"}.";

/// The reasoning of this model call.
pub fn reasoning() -> Reasoning {
    Reasoning::new(Prompt::new(PROMPT), Prompt::new(PROMPT), ToolSet::default().into(), MAX_TOKENS, 1)
}

/// Returns what is missing. `None`: the answer meets the request, or no opinion was available. A failed check must not
/// keep work from ending.
///
/// # Errors
/// The store does not respond.
pub async fn missing(core: &mut RunCore, request: &str, answer: &str, step: u32) -> Result<Option<String>, LoopError> {
    let question = format!("Request:\n{request}\n\nAnswer of the agent:\n{answer}");
    let mut context = LoopContext::new(vec![Message::user(question).into()]);
    let services = core.services.clone();
    let allowance = Allowance { attempts: 1, purpose: CallPurpose::SideQuestion(SideQuestion::Completion) };
    match core.ask(&services.checker, &mut context, step, allowance).await {
        Ok(Asked::Reply(reply)) => Ok(verdict(&reply.text)),
        Ok(Asked::Failed(_) | Asked::Ended(_) | Asked::Chanted(_)) | Err(LoopError::CostRefused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn verdict(reply: &str) -> Option<String> {
    let object = reply.get(reply.find('{')?..=reply.rfind('}')?)?;
    let object: Value = serde_json::from_str(object).ok()?;
    if object.get("met")?.as_bool()? {
        return None;
    }
    let missing = object.get("missing").and_then(Value::as_str).unwrap_or_default().trim();
    Some(if missing.is_empty() { "no details were given".to_owned() } else { missing.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::verdict;

    #[test]
    fn only_a_clear_no_is_a_no() {
        for (reply, expected) in [
            (r#"{"met": false, "missing": "the sum"}"#, Some("the sum")),
            ("```json\n{\"met\": false}\n```", Some("no details were given")),
            (r#"{"met": true, "missing": "nothing"}"#, None),
            (r#"{"met": "no"}"#, None),
            ("no", None),
            ("} {", None),
            ("", None),
        ] {
            assert_eq!(verdict(reply).as_deref(), expected, "{reply}");
        }
    }
}
