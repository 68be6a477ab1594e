//! The document, and its comparison with the committed file and with the route table.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::operations;
use super::schemas::Schemas;
use crate::error::{ErrorCode, Wire};
use crate::router::{console_table, open_table, principals_table, sign_in_table};
use crate::routes::openai::OpenAiErrorBody;
use crate::routes::openai::anthropic::AnthropicErrorBody;

const INTRODUCTION: &str = "The HTTP API of Belay. A request needs a token as soon as one is configured, as a bearer token or as `X-Api-Key`; \
without tokens, this machine's loopback may ask. Operations with `x-belay-role: operator` need the operator's token. \
A list answers a page of at most `limit` rows; if more rows follow, its `next` is the `after` of the next page. docs/reference/http-api.md explains what the operations do.";

/// The whole document.
pub(super) fn document() -> Value {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for operation in operations::all() {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method.as_str().to_ascii_lowercase()] = operation.to_value(&mut schemas);
    }
    upgrade(&mut paths["/ws"]["get"]);
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Belay",
            "version": env!("CARGO_PKG_VERSION"),
            "description": INTRODUCTION,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:8787" }],
        "security": [{ "bearer": [] }, { "apiKey": [] }, {}],
        "paths": paths,
        "components": {
            "securitySchemes": security_schemes(),
            "parameters": parameters(),
            "headers": headers(),
            "responses": error_responses(&mut schemas),
        },
    });
    let schemas = schemas.finish(&mut document);
    document["components"]["schemas"] = schemas.into();
    document
}

/// The answer of a WebSocket upgrade has no content.
fn upgrade(operation: &mut Value) {
    operation["responses"]["101"] = json!({ "description": "The connection is a WebSocket now." });
}

fn security_schemes() -> Value {
    json!({
        "bearer": { "type": "http", "scheme": "bearer", "description": "The token, or the operator's token." },
        "apiKey": {
            "type": "apiKey", "in": "header", "name": "X-Api-Key",
            "description": "The same, as clients of Anthropic's API send it. `Authorization` counts if both are there.",
        },
        "webhookSecret": {
            "type": "apiKey", "in": "header", "name": "X-Webhook-Secret",
            "description": "The secret of the routine's webhook.",
        },
        "webhookSignature": {
            "type": "apiKey", "in": "header", "name": "X-Hub-Signature-256",
            "description": "`sha256=` and the HMAC-SHA256 of the raw body, in hex.",
        },
    })
}

fn parameters() -> Value {
    let parameter = |name: &str, schema: Value, description: &str| json!({ "name": name, "in": "header", "schema": schema, "description": description });
    let key = json!({ "type": "string", "minLength": 1, "maxLength": 256 });
    json!({
        "last-event-id": parameter(
            "Last-Event-ID", json!({ "type": "string", "pattern": "^[0-9]+$" }),
            "Continues after the event of this number; wins over `since`.",
        ),
        "idempotency-key": parameter("Idempotency-Key", key.clone(), "The same key again returns the same run or routine run."),
        "x-delivery-id": parameter("X-Delivery-Id", key.clone(), "The same id again returns the same routine run."),
        "x-belay-session": parameter("X-Belay-Session", key, "The session. Absent: `conversation` or `metadata.session`, else a new one."),
    })
}

fn headers() -> Value {
    let header = |schema: Value, description: &str| json!({ "schema": schema, "description": description });
    let text = json!({ "type": "string" });
    json!({
        "x-request-id": header(text.clone(), "The id of this request in the log; that of the request, if it has one."),
        "retry-after": header(json!({ "type": "integer", "minimum": 1 }), "Seconds until the next attempt, if known."),
        "www-authenticate": header(text.clone(), "`Bearer`."),
        "allow": header(text.clone(), "The methods that the route takes."),
        "content-disposition": header(text.clone(), "`attachment` with the name of the file."),
        "request-id": header(text.clone(), "That of `x-request-id`."),
        "x-belay-run": header(json!({ "type": "string", "format": "uuid" }), "The run."),
        "x-belay-session": header(text.clone(), "The session."),
        "x-belay-reason": header(text, "Why the run has ended; absent in a stream."),
    })
}

/// The error responses by status, in Belay's form and in those of OpenAI's and Anthropic's APIs.
fn error_responses(schemas: &mut Schemas) -> Map<String, Value> {
    let (body, openai) = (schemas.output::<Wire<'_>>(), schemas.output::<OpenAiErrorBody<'_>>());
    let words =
        ErrorCode::ALL.iter().flat_map(|(code, statuses)| statuses.iter().map(move |status| (*status, code.word())));
    let words: BTreeSet<(u16, &str)> = words.collect();
    let statuses: BTreeSet<u16> = words.iter().map(|(status, _)| *status).collect();
    let mut responses = Map::new();
    for status in statuses {
        let codes: Vec<&str> = words.iter().filter(|(of, _)| *of == status).map(|(_, word)| *word).collect();
        let description = format!("`{}`.", codes.join("`, `"));
        responses.insert(format!("Error{status}"), error_response(status, &description, &body));
        responses.insert(format!("OpenAiError{status}"), error_response(status, "An error in OpenAI's form.", &openai));
    }
    let anthropic = schemas.output::<AnthropicErrorBody>();
    for status in words.iter().map(|(status, _)| *status).collect::<BTreeSet<_>>() {
        let response = error_response(status, "An error in Anthropic's form.", &anthropic);
        responses.insert(format!("AnthropicError{status}"), response);
    }
    for (form, body) in [("OpenAiError", &openai), ("AnthropicError", &anthropic)] {
        responses.insert(format!("{form}402"), error_response(402, "The money of the model is used up.", body));
        responses.insert(format!("{form}502"), error_response(502, "The run failed at the model's provider.", body));
    }
    responses
}

fn error_response(status: u16, description: &str, schema: &Value) -> Value {
    let more = match status {
        401 => Some("www-authenticate"),
        405 => Some("allow"),
        429 | 503 => Some("retry-after"),
        _ => None,
    };
    let names = ["x-request-id"].into_iter().chain(more);
    let reference = |name: &str| (name.to_owned(), json!({ "$ref": format!("#/components/headers/{name}") }));
    let headers: Map<_, _> = names.map(reference).collect();
    json!({ "description": description, "headers": headers, "content": { "application/json": { "schema": schema } } })
}

#[test]
fn the_document_is_the_committed_file() {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/openapi.json"));
    let text = format!("{}\n", serde_json::to_string_pretty(&document()).expect("it is JSON"));
    if std::env::var("BELAY_UPDATE_GOLDEN").is_ok_and(|value| value == "1") {
        std::fs::write(&path, &text).expect("the file can be written");
    }
    let committed = std::fs::read_to_string(&path).expect("the file is there");
    assert!(
        committed == text,
        "docs/reference/openapi.json is not what the types say; \
         `BELAY_UPDATE_GOLDEN=1 cargo test --locked --workspace --lib openapi` writes it. Then read the difference"
    );
}

#[test]
fn every_route_is_described_and_every_description_has_a_route() {
    let tables = [principals_table(), console_table(), open_table(true), sign_in_table()];
    let routes = tables.iter().flat_map(|table| table.routes());
    let routes: BTreeSet<_> = routes.map(|(method, path)| (*path, method.to_string())).collect();
    let operations = operations::all();
    let described: BTreeSet<_> =
        operations.iter().map(|operation| (operation.path, operation.method.to_string())).collect();
    assert_eq!(routes.difference(&described).collect::<Vec<_>>(), Vec::<&_>::new(), "not described");
    assert_eq!(described.difference(&routes).collect::<Vec<_>>(), Vec::<&_>::new(), "no such route");
    assert_eq!(described.len(), operations.len(), "an operation is described twice");
}

#[test]
fn every_reference_has_its_target_and_every_operation_its_own_id() {
    fn check(value: &Value, document: &Value, ids: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(target)) = fields.get("$ref") {
                    let target = target.strip_prefix('#').expect("a reference in the document");
                    assert!(document.pointer(target).is_some(), "{target} is missing");
                }
                ids.extend(fields.get("operationId").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| check(value, document, ids));
            }
            Value::Array(values) => values.iter().for_each(|value| check(value, document, ids)),
            _ => {}
        }
    }
    let (document, mut ids) = (document(), Vec::new());
    check(&document, &document, &mut ids);
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), all), (operations::all().len(), operations::all().len()));
}
