//! Calls that their server does not carry out before it knows more.
//!
//! Source: MCP 2026-07-28, "Multi Round-Trip Requests". Such an answer is the end of the request, and nothing of the call
//! has run beyond it, so the call may be sent again with the answers.

use std::collections::BTreeMap;
use std::time::Duration;

use rmcp::model::{CallToolRequestParams, CustomResult, ServerResult};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::mcp::elicitor::Elicitor;
use crate::mcp::server_error::ServerError;

/// The pause before a call is sent again that a server has only put off.
const PAUSE: Duration = Duration::from_secs(1);

/// What a server wants to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Input {
    /// The questions, by the server's names for them.
    requests: BTreeMap<String, Value>,
    /// What the server wants to have back.
    state: Option<String>,
}

impl Input {
    /// Reads an answer, also in a form that the SDK does not read.
    ///
    /// # Errors
    /// The answer, if it is another one.
    pub(super) fn read(result: ServerResult) -> Result<Self, Box<ServerResult>> {
        let value = match &result {
            ServerResult::InputRequiredResult(input) => serde_json::to_value(input).unwrap_or_default(),
            ServerResult::CustomResult(CustomResult(value)) if value["resultType"] == "input_required" => value.clone(),
            _ => return Err(Box::new(result)),
        };
        let requests = value["inputRequests"].as_object().cloned().unwrap_or_default().into_iter().collect();
        Ok(Self { requests, state: value["requestState"].as_str().map(str::to_owned) })
    }

    /// Whether the server asks something; otherwise it has only put the call off.
    pub(super) fn has_questions(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Asks the person of the call, one question after the other. Returns the call with the answers.
    ///
    /// # Errors
    /// The server asks for something else than a person.
    ///
    /// # Cancel safety
    /// If the future is dropped, the question is withdrawn.
    pub(super) async fn answered(
        self,
        mut params: CallToolRequestParams,
        elicitor: &Elicitor,
    ) -> Result<CallToolRequestParams, ServerError> {
        if self.requests.is_empty() {
            sleep(PAUSE).await;
        }
        let mut answers = BTreeMap::new();
        for (name, request) in self.requests {
            answers.insert(name, answer_to(&request, elicitor).await?);
        }
        params.input_responses = Some(answers).filter(|answers| !answers.is_empty());
        params.request_state = self.state;
        Ok(params)
    }
}

/// The answer to one question of a server, which the person of the call gives.
///
/// # Errors
/// The server asks for something else than a person.
///
/// # Cancel safety
/// If the future is dropped, the question is withdrawn.
pub(super) async fn answer_to(request: &Value, elicitor: &Elicitor) -> Result<Value, ServerError> {
    match request["method"].as_str() {
        Some("elicitation/create") => {}
        Some("sampling/createMessage") => return Err(ServerError::Unsupported("a model")),
        Some("roots/list") => return Err(ServerError::Unsupported("directories")),
        _ => return Err(ServerError::Unsupported("something that MCP does not have")),
    }
    let stop = CancellationToken::new();
    let answer = elicitor.answer(&request["params"], &stop).await;
    // This revision has no error for a question that cannot be asked.
    Ok(answer.unwrap_or_else(|_| json!({ "action": "cancel" })))
}
