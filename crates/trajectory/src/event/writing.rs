//! Serialises an event.

use belay_agent_loop::policies::CallOutcome;
use belay_protocol::Arguments;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::outcome::word_of_outcome;
use super::{CallArguments, TrajectoryEvent, outcome_of};

impl Serialize for TrajectoryEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Tool { id, name, args } => map.serialize_entry("tool", &Call { name, args, id: id.as_deref() }),
            Self::ToolResult { id, name, outcome, text } => {
                let ok = *outcome == CallOutcome::Success;
                let is_told = outcome_of(ok, text) == *outcome;
                let outcome = (!is_told).then(|| word_of_outcome(*outcome));
                map.serialize_entry("tool_result", &Answer { name, ok, text, outcome, id: id.as_deref() })
            }
            Self::Text(text) => map.serialize_entry("text", text),
            Self::Assistant(text) => map.serialize_entry("assistant", text),
            Self::User(text) => map.serialize_entry("user", text),
            Self::Turn => map.serialize_entry("turn", &true),
            Self::Usage { input, output } => map.serialize_entry("usage", &Tokens { input: *input, output: *output }),
            Self::Clock(ms) => map.serialize_entry("clock_ms", ms),
            Self::Other(text) => map.serialize_entry("other", text),
            Self::Reset => map.serialize_entry("reset", &true),
            Self::Recover => map.serialize_entry("recover", &true),
            Self::Compacted { before, after } => {
                map.serialize_entry("other", "compacted")?; // for readers that do not know the next key
                map.serialize_entry("compacted", &Lengths { before: *before, after: *after })
            }
            Self::Disable => map.serialize_entry("disable", &true),
        }?;
        map.end()
    }
}

#[derive(Serialize)]
struct Call<'a> {
    name: &'a str,
    #[serde(serialize_with = "arguments")]
    args: &'a CallArguments,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
}

#[derive(Serialize)]
struct Answer<'a> {
    name: &'a str,
    ok: bool,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
}

#[derive(Serialize)]
struct Tokens {
    input: u64,
    output: u64,
}

#[derive(Serialize)]
struct Lengths {
    before: u64,
    after: u64,
}

/// Serialises an object as it was written, and anything else as the string that the model wrote.
fn arguments<S: Serializer>(args: &CallArguments, serializer: S) -> Result<S::Ok, S::Error> {
    match (args.arguments(), RawValue::from_string(args.written().to_owned())) {
        (Arguments::Object(_), Ok(raw)) => raw.serialize(serializer),
        _ => args.written().serialize(serializer),
    }
}
