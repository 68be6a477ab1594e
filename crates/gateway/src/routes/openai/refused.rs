//! Fields of a chat request that ask for what no answer of Belay has. They are refused by name: a client that relies on
//! them would read an answer without that as one with it. A value that asks for nothing is accepted.
//!
//! Source: the type `CompletionCreateParams` of openai 3.57.0 (Python). The guide has a row for each of its fields.

use serde::Deserialize;
use serde_json::Value;

use super::error::OpenAiError;

/// The fields, as a client sends them.
#[derive(Default, Deserialize)]
pub(super) struct RefusedFields {
    modalities: Option<Value>,
    moderation: Option<Value>,
    function_call: Option<Value>,
}

impl RefusedFields {
    /// Refuses the first field that asks for something.
    ///
    /// # Errors
    /// 400 with the name of the field.
    pub(super) fn check(&self) -> Result<(), OpenAiError> {
        let asks =
            |value: Option<&Value>, is_neutral: fn(&Value) -> bool| value.is_some_and(|value| !is_neutral(value));
        let refused = |param, message| Err(OpenAiError::invalid(param, "unsupported_parameter", message));
        if asks(self.modalities.as_ref(), is_text_alone) {
            return refused("modalities", "answers are texts: leave modalities out, or send [\"text\"]");
        }
        if asks(self.moderation.as_ref(), Value::is_null) {
            let message = "moderation is not supported: Belay has no check of this kind; leave it out";
            return refused("moderation", message);
        }
        if asks(self.function_call.as_ref(), forces_no_call) {
            let message = "function_call is not supported; send the functions as tools, with tool_choice";
            return refused("function_call", message);
        }
        Ok(())
    }
}

/// Whether a value of `modalities` asks for texts alone.
fn is_text_alone(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(|kinds| kinds.iter().all(|kind| kind == "text"))
}

/// Whether a value of `function_call` forces no call.
fn forces_no_call(value: &Value) -> bool {
    value.is_null() || value == "none" || value == "auto"
}
