//! One look at a task: what its server says, and what that means for the call.

use belay_protocol::ToolContext;
use rmcp::model::{CustomResult, ErrorCode, ServerResult};
use serde_json::{Value, json};

use super::follow::{Follow, Line};
use super::inputs::{Inputs, Unanswered};
use super::pace::Pace;
use super::requests::{Trouble, Wait, ask, is_about_task};
use super::state::{Status, TaskState, about};
use crate::mcp::answer::Answer;
use crate::mcp::server_error::ServerError;
use crate::mcp::troubles::MAX_ERROR;

/// What is known of the task so far.
#[derive(Default)]
pub(super) struct Seen {
    inputs: Inputs,
    words: String,
    pub(super) pace: Pace,
}

/// How a look at the task ended.
pub(super) enum Look {
    Ended(Answer),
    /// The task goes on.
    Open,
}

/// Why a look at the task failed.
pub(super) enum Missed {
    /// The task has ended without a result, or nothing more can be learned.
    Ended(ServerError),
    /// The call ends, and the task is to be cancelled.
    Refused(ServerError),
    /// Another look may help.
    Again(Trouble),
}

impl From<Trouble> for Missed {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Server(trouble @ (ServerError::Stopped | ServerError::LostTask(_))) => Self::Ended(trouble),
            trouble if trouble.is_final() => Self::Ended(ServerError::LostTask(trouble.words())),
            trouble => Self::Again(trouble),
        }
    }
}

impl Seen {
    /// Shows new words of the server.
    fn tell(&mut self, words: &str, context: &ToolContext) {
        if !words.is_empty() && words != self.words {
            context.progress.say(&context.call_id, words);
            words.clone_into(&mut self.words);
        }
    }
}

impl Follow<'_> {
    /// Asks how the task stands.
    pub(super) async fn look(&self, line: &Line, seen: &mut Seen) -> Result<Look, Missed> {
        let connection = line.lease.connection();
        let answer = ask(connection, "tasks/get", self.params(), Wait::Short).await?;
        match TaskState::read(&answer) {
            Some(state) if state.id == self.handle.id => self.take(state, line, seen).await,
            Some(_) => Err(again("its answer is about another task")),
            None => Err(again("its answer is not about a task")),
        }
    }

    /// Does what the state of the task wants.
    pub(super) async fn take(&self, state: TaskState, line: &Line, seen: &mut Seen) -> Result<Look, Missed> {
        seen.pace.every = state.every.or(seen.pace.every);
        seen.tell(&state.words, self.context);
        let connection = line.lease.connection();
        match state.status {
            Status::Working => Ok(Look::Open),
            // The older protocol asks while the client waits for the end. In the newer one they are answered already.
            Status::InputRequired if state.requests.is_empty() => match connection.has_initialize() {
                true => self.fetch(line, Wait::UntilEnd).await,
                false => Ok(Look::Open),
            },
            Status::InputRequired => {
                let answered = seen.inputs.answer(&state.requests, &self.handle.id, connection, self.elicitor).await;
                match answered {
                    Ok(()) => Ok(Look::Open),
                    Err(Unanswered::Asks(trouble)) => Err(Missed::Refused(trouble)),
                    Err(Unanswered::Unsent(trouble)) => Err(trouble.into()),
                }
            }
            Status::Completed if state.result.is_object() => self.result(state.result),
            Status::Failed if !state.error.is_null() => Err(Missed::Ended(self.failed(&state.error))),
            Status::Completed => self.fetch(line, Wait::Short).await,
            Status::Failed => match self.fetch(line, Wait::Short).await {
                Err(Missed::Ended(ServerError::LostTask(_))) => Err(Missed::Ended(self.failed(&state.words.into()))),
                fetched => fetched,
            },
            Status::Cancelled => {
                let words = if state.words.is_empty() { String::new() } else { format!(": {}", state.words) };
                Err(Missed::Ended(ServerError::TaskCancelled(words)))
            }
        }
    }

    /// Fetches the end in the protocol of 2025-11-25. Meanwhile the server may ask the person of the call.
    async fn fetch(&self, line: &Line, wait: Wait) -> Result<Look, Missed> {
        match ask(line.lease.connection(), "tasks/result", self.params(), wait).await {
            Ok(ServerResult::CustomResult(CustomResult(value))) => self.result(value),
            Ok(result) => self.result(serde_json::to_value(result).unwrap_or_default()),
            // A task that has ended is known, so this is the error of the call.
            Err(Trouble::Refused(error)) if wait == Wait::Short && !is_about_task(&error) => {
                Err(Missed::Ended(self.failed(&error.message.into_owned().into())))
            }
            // It may be the error of the call, whose words may be about any task: the state says whether it has ended.
            Err(Trouble::Refused(error)) if wait == Wait::UntilEnd && error.code != ErrorCode::METHOD_NOT_FOUND => {
                Err(Missed::Again(Trouble::Refused(error)))
            }
            Err(trouble) => Err(trouble.into()),
        }
    }

    fn result(&self, result: Value) -> Result<Look, Missed> {
        let of = &result["_meta"]["io.modelcontextprotocol/related-task"]["taskId"];
        if of.as_str().is_some_and(|id| id != self.handle.id) {
            return Err(again("it gave the result of another task"));
        }
        match Answer::read(ServerResult::CustomResult(CustomResult(result))) {
            Some(answer) => Ok(Look::Ended(answer)),
            None => Err(Missed::Ended(ServerError::LostTask("its result is not the result of a tool".into()))),
        }
    }

    fn params(&self) -> Value {
        json!({ "taskId": self.handle.id })
    }

    /// The failure of the call.
    fn failed(&self, error: &Value) -> ServerError {
        let words = error["message"].as_str().or(error.as_str()).map_or_else(|| error.to_string(), str::to_owned);
        let words = about(&words, &self.handle.id, MAX_ERROR);
        ServerError::Error(if words.is_empty() { "its task has failed, and it does not say why".into() } else { words })
    }
}

fn again(why: &str) -> Missed {
    Missed::Again(Trouble::Server(ServerError::NotMcp(why.into())))
}
