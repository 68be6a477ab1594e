//! The questions of a task, in the protocol of 2026-07-28: they stand in its state until they are answered.

use std::collections::{BTreeMap, BTreeSet};

use rmcp::model::ServerResult;
use serde_json::{Value, json};

use super::requests::{Trouble, Wait, ask};
use crate::mcp::connection::Connection;
use crate::mcp::elicitor::Elicitor;
use crate::mcp::input::answer_to;
use crate::mcp::server_error::ServerError;

/// Most questions of one task; beyond 10, no person is asked any more.
const MAX_INPUTS: usize = 32;

/// The answers of one task. Each question is asked once, however often the server shows it.
#[derive(Default)]
pub(super) struct Inputs {
    answers: BTreeMap<String, Value>,
    sent: BTreeSet<String>,
}

/// Why questions are not answered.
pub(super) enum Unanswered {
    /// The server asks for what Belay does not offer.
    Asks(ServerError),
    /// The answers did not reach the server; they are kept.
    Unsent(Trouble),
}

impl Inputs {
    /// Asks the person of the call what is new, and sends the answers.
    ///
    /// # Cancel safety
    /// If the future is dropped, the open question is withdrawn. Answers that were not sent are kept.
    pub(super) async fn answer(
        &mut self,
        requests: &BTreeMap<String, Value>,
        task: &str,
        connection: &Connection,
        elicitor: &Elicitor,
    ) -> Result<(), Unanswered> {
        for (name, request) in requests {
            if self.answers.contains_key(name) {
                continue;
            }
            if self.answers.len() == MAX_INPUTS {
                return Err(Unanswered::Asks(ServerError::AsksOn(MAX_INPUTS)));
            }
            let answer = answer_to(request, elicitor).await.map_err(Unanswered::Asks)?;
            self.answers.insert(name.clone(), answer);
        }
        let is_due = |name: &&String| requests.contains_key(*name) && !self.sent.contains(*name);
        let due: BTreeMap<&String, &Value> = self.answers.iter().filter(|(name, _)| is_due(name)).collect();
        if due.is_empty() {
            return Ok(());
        }
        let params = json!({ "taskId": task, "inputResponses": due });
        let _acknowledged: ServerResult =
            ask(connection, "tasks/update", params, Wait::Short).await.map_err(Unanswered::Unsent)?;
        self.sent.extend(requests.keys().cloned());
        Ok(())
    }
}
