//! The items of earlier responses that an input names instead of sending them.

use std::collections::HashMap;

use belay_protocol::{ApprovalKind, Principal};
use serde_json::{Value, json};

use super::forms::shape_of;
use super::id::MESSAGE;
use super::items::{self, CALL};
use super::stored::find;
use crate::app::App;
use crate::error::ApiError;
use crate::routes::openai::OpenAiError;
use crate::routes::openai::client_results::request_of;
use crate::routes::openai::part::Part;
use crate::routes::openai::tool_calls::ToolCallBody;

/// Most references that are replaced; beyond it the older ones are ignored.
const REFERENCES_MAX: usize = 200;

/// Replaces the references to items of earlier responses in the input by these items. Unknown ones stay as they are, and
/// are ignored later.
///
/// # Errors
/// 413: the items are longer than a body may be.
pub(super) async fn resolve(app: &App, principal: &Principal, input: &mut Option<Value>) -> Result<(), OpenAiError> {
    let all = input.as_mut().and_then(Value::as_array_mut).into_iter().flatten();
    let mut references: Vec<&mut Value> = all.filter(|item| item["type"] == "item_reference").collect();
    let older = references.len().saturating_sub(REFERENCES_MAX);
    let (mut known, mut bytes): (HashMap<String, Option<Value>>, usize) = (HashMap::new(), 0);
    for item in references.drain(older..) {
        let id = item["id"].as_str().unwrap_or_default().to_owned();
        let found = match known.get(&id) {
            Some(found) => found.clone(),
            None => {
                let found = named(app, principal, &id).await?;
                known.entry(id).or_insert(found).clone()
            }
        };
        if let Some(found) = found {
            bytes += length(&found);
            if bytes > app.config.max_body_bytes {
                return Err(ApiError::too_large(app.config.max_body_bytes).into());
            }
            *item = found;
        }
    }
    Ok(())
}

/// The bytes of the text of an item, or of the arguments of a call.
fn length(item: &Value) -> usize {
    [&item["content"], &item["arguments"]].iter().filter_map(|text| text.as_str()).map(str::len).sum()
}

/// The item with this id.
async fn named(app: &App, principal: &Principal, id: &str) -> Result<Option<Value>, OpenAiError> {
    match id.strip_prefix(CALL) {
        Some(call) => called(app, principal, &format!("call_{call}")).await,
        None => said(app, principal, id).await,
    }
}

/// The text of a response.
async fn said(app: &App, principal: &Principal, id: &str) -> Result<Option<Value>, OpenAiError> {
    let Some((id, run)) = find(app, principal, MESSAGE, id).await? else { return Ok(None) };
    let shape = shape_of(app, principal, id, &run);
    let part = Part::read(app, &shape.head, run.into(), id.after).await?;
    Ok(Some(json!({"type": "message", "role": "assistant", "content": part.text(&shape.head)})))
}

/// A call of a response.
async fn called(app: &App, principal: &Principal, id: &str) -> Result<Option<Value>, OpenAiError> {
    let Some(request) = request_of(app, principal, id).await? else { return Ok(None) };
    let ApprovalKind::ClientCalls { calls, .. } = &request.kind else { return Ok(None) };
    let calls = ToolCallBody::of_request(request.id, calls);
    Ok(calls.iter().find(|call| call.parts().0 == id).map(|call| items::call(call, "completed")))
}
