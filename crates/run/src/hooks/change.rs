//! Which data hooks may change, and how a change is applied.

use std::mem::discriminant;

use belay_protocol::HookPoint;
use serde_json::{Map, Value};

/// The fields of a point's data that hooks may change. All others are read-only.
pub(super) fn changeable(point: HookPoint) -> &'static [&'static str] {
    match point {
        HookPoint::Bootstrap => &["prompt", "files"],
        HookPoint::BeforeAgentStart => &["prompt"],
        HookPoint::BeforeToolCall => &["arguments"],
        HookPoint::ToolResultPersist | HookPoint::MessageReceived | HookPoint::MessageSending => &["text"],
        HookPoint::Command
        | HookPoint::CommandNew
        | HookPoint::CommandReset
        | HookPoint::CommandStop
        | HookPoint::AgentEnd
        | HookPoint::BeforeCompaction
        | HookPoint::AfterCompaction
        | HookPoint::AfterToolCall
        | HookPoint::MessageSent
        | HookPoint::SessionStart
        | HookPoint::SessionEnd
        | HookPoint::GatewayStart
        | HookPoint::GatewayStop => &[],
    }
}

/// Replaces fields of the data by those of an answer. Returns one line for each ignored field: the field may not be
/// changed here, or its type would change.
pub(super) fn apply(point: HookPoint, fields: Map<String, Value>, data: &mut Value) -> Vec<String> {
    let mut left_out = Vec::new();
    for (name, new) in fields {
        let old = data.get_mut(&name).filter(|_| changeable(point).contains(&name.as_str()));
        match old {
            Some(old) if discriminant(old) == discriminant(&new) => *old = new,
            Some(_) => left_out.push(format!("{name} has to keep its type")),
            None => left_out.push(format!("{name} cannot be changed at {}", point.word())),
        }
    }
    left_out
}

#[cfg(test)]
mod tests {
    use belay_protocol::HookKind;
    use serde_json::json;

    use super::*;

    #[test]
    fn where_hooks_may_change_something_there_is_something_to_change() {
        for point in HookPoint::ALL {
            assert_eq!(changeable(*point).is_empty(), point.kind() == HookKind::Observe, "{point:?}");
        }
    }

    #[test]
    fn only_what_may_be_changed_is_and_it_keeps_its_type() {
        let none: [&str; 0] = [];
        for (fields, expected, left_out) in [
            (json!({}), json!({"tool": "a", "arguments": {"n": 1}}), none.as_slice()),
            (json!({"arguments": {"n": 2}}), json!({"tool": "a", "arguments": {"n": 2}}), &none),
            (
                json!({"arguments": "n = 2"}),
                json!({"tool": "a", "arguments": {"n": 1}}),
                &["arguments has to keep its type"],
            ),
            (
                json!({"tool": "b", "arguments": {}}),
                json!({"tool": "a", "arguments": {}}),
                &["tool cannot be changed at before_tool_call"],
            ),
            (
                json!({"text": "b"}),
                json!({"tool": "a", "arguments": {"n": 1}}),
                &["text cannot be changed at before_tool_call"],
            ),
        ] {
            let Value::Object(fields) = fields else { unreachable!("the table has objects") };
            let mut data = json!({"tool": "a", "arguments": {"n": 1}});
            assert_eq!(apply(HookPoint::BeforeToolCall, fields.clone(), &mut data), left_out, "{fields:?}");
            assert_eq!(data, expected, "{fields:?}");
        }
    }
}
