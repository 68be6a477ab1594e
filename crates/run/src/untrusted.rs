//! Marks untrusted content for the model, and removes the markers from the model's replies.

use belay_protocol::{Arguments, ModelReply, unmark_value};
use belay_text::untrusted::{self, unmark};

pub use belay_text::untrusted::RULE;

/// Puts a text between markers that its author could not predict: their id is a hash of the text and of `secret`, the
/// id of a run, a job or a routine run. Equal texts get equal markers under one secret, so that loop detection sees
/// them as equal.
pub fn marked(source: &str, secret: &[u8], text: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(secret);
    hasher.update(text.as_bytes());
    let hash = hasher.finalize().to_hex();
    untrusted::marked(source, &hash[..untrusted::ID_DIGITS], text)
}

/// Removes markers that the model has repeated in its text and in the arguments of its calls, which people read in
/// questions, messages and files.
pub(crate) fn forget_markers(mut reply: ModelReply) -> ModelReply {
    unmark(&mut reply.text);
    for call in &mut reply.tool_calls {
        match &mut call.arguments {
            Arguments::Object(arguments) => arguments.values_mut().for_each(unmark_value),
            Arguments::Malformed(text) => unmark(text),
        }
    }
    reply
}

#[cfg(test)]
mod tests {
    use belay_protocol::{FinishReason, ToolCall};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_id_depends_on_the_secret_and_on_the_text() {
        let id = |text: &str| text.lines().next_back().map(str::to_owned);
        let first = marked("page", b"run", "x");
        assert_eq!(first, marked("page", b"run", "x"), "loop detection compares results");
        assert_ne!(id(&first), id(&marked("page", b"another run", "x")));
        assert_ne!(id(&first), id(&marked("page", b"run", &first)), "a text that repeats a marker has another id");
    }

    #[test]
    fn markers_leave_the_text_and_every_argument_of_a_reply() {
        let quoted = marked("page", b"run", "noon");
        let call = |arguments| ToolCall { id: "c".into(), name: "send_message".into(), arguments };
        let Value::Object(arguments) = json!({ "text": quoted, "list": [{ "a": quoted }, 1, null] }) else { panic!() };
        let reply = ModelReply {
            text: format!("It says {quoted}"),
            tool_calls: vec![call(Arguments::Object(arguments)), call(Arguments::Malformed(quoted.clone()))],
            finish: FinishReason::Stop,
            usage: None,
            attempts: 1,
            abandoned: 0,
            answered_by: None,
            price: None,
            fell_back: None,
        };
        let reply = forget_markers(reply);
        assert_eq!(reply.text, "It says \nnoon\n");
        let Arguments::Object(kept) = &reply.tool_calls[0].arguments else { panic!() };
        assert_eq!(json!(kept), json!({ "text": "noon\n", "list": [{ "a": "noon\n" }, 1, null] }));
        assert_eq!(reply.tool_calls[1].arguments, Arguments::Malformed("noon\n".into()));
    }
}
