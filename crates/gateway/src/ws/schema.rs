//! The JSON Schema of the frames, and its comparison with the committed file.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::frames::{RpcError, TEXT_MAX_BYTES};
use super::handshake::Connect;
use super::methods::Method;
use crate::openapi::Schemas;
use crate::streams::{AgentEvent, ChatEvent, EVENTS};

const INTRODUCTION: &str = "The text frames of the WebSocket RPC of Belay, GET /ws. docs/reference/websocket.md \
explains the methods and events, and has the payloads of responses.";

/// The whole document.
fn document() -> Value {
    let mut schemas = Schemas::new();
    let connect = schemas.input::<Connect>();
    let mut requests = vec![request("connect", &connect)];
    for name in Method::names() {
        let method = Method::from_name(name).expect("it is a method");
        requests.push(request(name, &method.params(&mut schemas)));
    }
    let events: Vec<_> = EVENTS.iter().map(|name| event(name, &payload(name, &mut schemas))).collect();
    let error = schemas.output::<RpcError>();
    let mut document = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Frame",
        "description": INTRODUCTION,
        "anyOf": [{ "$ref": "#/$defs/ClientFrame" }, { "$ref": "#/$defs/ServerFrame" }],
        "$defs": {
            "ClientFrame": { "description": "A request.", "oneOf": requests },
            "ServerFrame": {
                "description": "A response or an event.",
                "oneOf": [{ "$ref": "#/$defs/Response" }, { "$ref": "#/$defs/ErrorResponse" }, { "$ref": "#/$defs/Event" }],
            },
            "Response": response(true, "payload", &json!({})),
            "ErrorResponse": response(false, "error", &error),
            "Event": { "oneOf": events },
        },
    });
    let definitions = schemas.finish(&mut document);
    document["$defs"].as_object_mut().expect("it is an object").extend(definitions);
    let text = document.to_string().replace("#/components/schemas/", "#/$defs/");
    serde_json::from_str(&text).expect("it is JSON")
}

/// The schema of an object with exactly these fields, of which those in `optional` may be missing.
fn object(fields: Value, optional: &[&str]) -> Value {
    let names = fields.as_object().expect("it is an object").keys();
    let required: Vec<_> = names.filter(|name| !optional.contains(&name.as_str())).cloned().collect();
    json!({ "type": "object", "properties": fields, "required": required, "additionalProperties": false })
}

fn id() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": TEXT_MAX_BYTES })
}

/// Absent parameters are an empty object. So they are optional, although the method may need some.
fn request(method: &str, params: &Value) -> Value {
    let traceparent = json!({ "type": ["string", "null"], "maxLength": TEXT_MAX_BYTES });
    let fields = json!({
        "type": { "const": "req" }, "id": id(), "method": { "const": method }, "params": params, "traceparent": traceparent,
    });
    object(fields, &["params", "traceparent"])
}

fn response(ok: bool, field: &str, schema: &Value) -> Value {
    object(json!({ "type": { "const": "res" }, "id": id(), "ok": { "const": ok }, field: schema }), &[])
}

fn event(name: &str, payload: &Value) -> Value {
    object(json!({ "type": { "const": "event" }, "event": { "const": name }, "payload": payload }), &[])
}

/// The schema of the payload of an event.
fn payload(event: &str, schemas: &mut Schemas) -> Value {
    let date = json!({ "type": "integer", "description": "Milliseconds since 1970." });
    match event {
        "connect.challenge" => object(json!({ "nonce": { "type": "string" }, "ts": date }), &[]),
        "agent" => schemas.output::<AgentEvent>(),
        "chat" => schemas.output::<ChatEvent>(),
        "tick" => object(json!({ "ts": date }), &[]),
        "shutdown" => object(json!({ "reason": { "type": "string" } }), &[]),
        other => panic!("what is the payload of {other}?"),
    }
}

#[test]
fn the_websocket_schema_is_the_committed_file() {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/websocket.schema.json"));
    let text = format!("{}\n", serde_json::to_string_pretty(&document()).expect("it is JSON"));
    if std::env::var("BELAY_UPDATE_GOLDEN").is_ok_and(|value| value == "1") {
        std::fs::write(&path, &text).expect("the file can be written");
    }
    let committed = std::fs::read_to_string(&path).expect("the file is there");
    assert!(
        committed == text,
        "docs/reference/websocket.schema.json is not what the types say; \
         `BELAY_UPDATE_GOLDEN=1 cargo test --locked --workspace --lib websocket_schema` writes it. Then read the difference"
    );
}
