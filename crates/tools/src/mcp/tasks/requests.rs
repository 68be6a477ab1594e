//! The requests about a task.

use std::time::Duration;

use rmcp::model::{ClientRequest, CustomRequest, ErrorCode, ErrorData, ServerResult};
use rmcp::service::ServiceError;
use serde_json::Value;
use tokio::time::timeout;

use super::state::about;
use crate::mcp::connection::Connection;
use crate::mcp::server_error::ServerError;
use crate::mcp::troubles::MAX_ERROR;

/// How long a server may need to say how a task stands.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Why a request about a task has no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The server refuses it, with cleaned words.
    Refused(ErrorData),
    /// Anything else.
    Server(ServerError),
}

/// How long a request may wait for its answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// [`ANSWER_LIMIT`].
    Short,
    /// Until the task has ended.
    UntilEnd,
}

impl Trouble {
    /// Whether another question cannot help: the server does not know the task, the method, or us.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Refused(error) => error.code == ErrorCode::INVALID_PARAMS || is_about_task(error),
            Self::Server(trouble) => matches!(
                trouble,
                ServerError::TooManyStarts(_)
                    | ServerError::Start(_)
                    | ServerError::Unauthorized(_)
                    | ServerError::Login(_)
                    | ServerError::Version(_)
                    | ServerError::OldTransport
            ),
        }
    }

    /// The words for the model.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Refused(error) => format!("it answered with an error: {}", error.message),
            Self::Server(trouble) => format!("it {trouble}"),
        }
    }
}

/// Whether an error says that the server does not know the task, or no tasks at all.
///
/// Source: MCP 2026-07-28, "Tasks", "Protocol Errors"; the words of @modelcontextprotocol/sdk 1.32.2.
pub(super) fn is_about_task(error: &ErrorData) -> bool {
    let words = error.message.to_lowercase();
    error.code == ErrorCode::METHOD_NOT_FOUND
        || (words.contains("task") && ["not found", "unknown", "expired"].iter().any(|said| words.contains(said)))
}

/// The error without the id of the task, which servers repeat in their words.
fn without_id(trouble: ServerError, id: &str) -> ServerError {
    match trouble {
        ServerError::Unreachable(words) => ServerError::Unreachable(about(&words, id, MAX_ERROR)),
        ServerError::Unauthorized(words) => ServerError::Unauthorized(about(&words, id, MAX_ERROR)),
        other => other,
    }
}

/// Asks a server about a task. Its errors do not name the task.
///
/// # Cancel safety
/// If the future is dropped, the server is told that nobody waits for the answer. The task goes on.
pub(super) async fn ask(
    connection: &Connection,
    method: &'static str,
    params: Value,
    wait: Wait,
) -> Result<ServerResult, Trouble> {
    let id = params["taskId"].as_str().unwrap_or_default().to_owned();
    let asked = connection.calls().ask(ClientRequest::CustomRequest(CustomRequest::new(method, Some(params))));
    let answer = match wait {
        Wait::UntilEnd => asked.await,
        Wait::Short => match timeout(ANSWER_LIMIT, asked).await {
            Ok(answer) => answer,
            Err(_late) => return Err(Trouble::Server(connection.silent(method, ANSWER_LIMIT))),
        },
    };
    match answer {
        Ok(result) => Ok(result),
        Err(ServiceError::McpError(error)) => {
            let message = about(&error.message, &id, MAX_ERROR).into();
            Err(Trouble::Refused(ErrorData { message, ..error }))
        }
        Err(error) => Err(Trouble::Server(without_id(connection.trouble(error).await, &id))),
    }
}
