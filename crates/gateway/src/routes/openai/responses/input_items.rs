//! `GET /v1/responses/{id}/input_items`: what the request of a response has brought.

use axum::Json;
use axum::extract::State;
use belay_protocol::{ApprovalKind, MessageBody, RunRecord};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::id::ResponseId;
use super::stored::OwnResponse;
use crate::app::{App, Shared};
use crate::error::ApiError;
use crate::extract::Params;
use crate::routes::openai::OpenAiError;

/// Items of a page by default, and at most. Source: the OpenAI API reference, "List input items".
const LIMIT: (usize, usize) = (20, 100);

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ItemParams {
    /// The length of a page.
    #[cfg_attr(test, schemars(range(min = 1, max = 100)))]
    limit: Option<usize>,
    /// `asc` or `desc`; by default the newest item is the first.
    order: Option<String>,
    /// The id of the last item of the page before.
    after: Option<String>,
}

/// A page of items.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ItemList {
    #[cfg_attr(test, schemars(extend("enum" = ["list"])))]
    object: &'static str,
    /// Items of the types `message` and `function_call_output`.
    #[cfg_attr(test, schemars(with = "Vec<serde_json::Map<String, Value>>"))]
    data: Vec<Value>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

/// Lists the items.
pub(crate) async fn input_items(
    State(app): State<Shared>,
    OwnResponse { id, run, .. }: OwnResponse,
    params: Result<Params<ItemParams>, ApiError>,
) -> Result<Json<ItemList>, OpenAiError> {
    let Params(ItemParams { limit, order, after }) = params?;
    let limit = limit.unwrap_or(LIMIT.0);
    if !(1..=LIMIT.1).contains(&limit) {
        return Err(OpenAiError::invalid("limit", "invalid_value", format!("must be 1 to {}", LIMIT.1)));
    }
    let mut items = items_of(&app, id, &run).await?;
    if order.as_deref() != Some("asc") {
        items.reverse();
    }
    if let Some(after) = after {
        let known = items.iter().position(|item| item["id"] == *after);
        let Some(at) = known else {
            return Err(OpenAiError::invalid("after", "invalid_value", "there is no such item"));
        };
        items.drain(..=at);
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    let named = |item: Option<&Value>| item.and_then(|item| item["id"].as_str()).map(str::to_owned);
    let (first_id, last_id) = (named(items.first()), named(items.last()));
    Ok(Json(ItemList { object: "list", data: items, first_id, last_id, has_more }))
}

/// The messages before the model's first one, or the results of the calls that the response goes on from.
async fn items_of(app: &App, id: ResponseId, run: &RunRecord) -> Result<Vec<Value>, ApiError> {
    let own = run.run_id.as_uuid().simple();
    let message = |role: &str, text: &str, at: usize| {
        let part = json!({"type": "input_text", "text": text});
        json!({"type": "message", "id": format!("msg_in_{own}_{at}"), "role": role, "status": "completed", "content": [part]})
    };
    if let Some(after) = id.after {
        let Some(asked) = app.approvals.approval(after).await? else { return Ok(Vec::new()) };
        let ApprovalKind::ClientCalls { results, .. } = asked.kind else { return Ok(Vec::new()) };
        let mut items: Vec<Value> = Vec::with_capacity(results.len());
        for (at, result) in results.iter().enumerate() {
            let call = belay_protocol::client_call_id(after, at);
            items.push(json!({"type": "function_call_output", "id": format!("fco_{own}_{at}"), "call_id": call,
                "output": result.text, "status": "completed"}));
            if !result.said.is_empty() {
                items.push(message("user", &result.said, at));
            }
        }
        return Ok(items);
    }
    let messages = app.runs.run_messages(run.run_id).await?;
    let own = messages.iter().take_while(|message| !matches!(message.body, MessageBody::Assistant { .. }));
    let said = own.filter(|message| message.scope.is_thread()).enumerate();
    Ok(said
        .filter_map(|(at, one)| match &one.body {
            MessageBody::User { text } => Some(message("user", text, at)),
            _ => None,
        })
        .collect())
}
