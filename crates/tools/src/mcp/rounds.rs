//! Calls that wait for a person between two requests: what they keep, and how they go on after a restart.
//!
//! Only 2026-07-28 allows that. Its server ends a request with what it wants to know, carries out nothing of the call
//! meanwhile, and takes the answers with a new request. In the older revisions a question is a part of the running
//! request, which ends with its connection.

use std::sync::atomic::{AtomicBool, Ordering};

use belay_protocol::HandlePort;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::mcp::input::Input;

/// The handle of a call that asks a person. Only the call that has kept it uses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Round {
    server: String,
    tool: String,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stage {
    /// The person is asked; the server has nothing of the answers.
    Asking(Box<Begun>),
    /// The server may have the answers.
    Sent,
}

/// A round of a call that goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begun {
    /// The number of rounds before it.
    pub(super) before: usize,
    /// The number of questions before it.
    pub(super) asked: u32,
    /// The questions of the server, and its state.
    pub(super) input: Input,
}

impl Round {
    /// The handle that an earlier attempt at a call has kept; `None`: it is none of a call of this tool that asks a
    /// person.
    pub(super) fn found(server: &str, tool: &str, kept: &Value) -> Option<Self> {
        let round: Self = serde_json::from_value(kept.clone()).ok()?;
        (round.server == server && round.tool == tool).then_some(round)
    }

    /// The round that goes on; `None`: its answers may have been sent.
    pub(super) fn begun(self) -> Option<Begun> {
        match self.stage {
            Stage::Asking(begun) => Some(*begun),
            Stage::Sent => None,
        }
    }
}

/// Keeps the rounds of one call.
pub(super) struct Rounds<'a> {
    server: &'a str,
    tool: &'a str,
    handle: &'a HandlePort,
    /// Whether the state of the run may have a round whose answers are not sent.
    is_kept: AtomicBool,
}

impl<'a> Rounds<'a> {
    /// Keeps rounds by this port.
    pub(super) fn new(server: &'a str, tool: &'a str, handle: &'a HandlePort) -> Self {
        Self { server, tool, handle, is_kept: AtomicBool::new(false) }
    }

    /// Keeps a round before its person is asked. One that is too large is not kept, and then a restart ends the call
    /// with an unknown outcome.
    pub(super) async fn asks(&self, begun: Begun) {
        if begun.input.has_questions() {
            let is_kept = self.keep(Stage::Asking(Box::new(begun))).await;
            self.is_kept.store(is_kept, Ordering::SeqCst);
        }
    }

    /// Notes that the answers of the last round are about to be sent: from now on the call is never sent again. If the
    /// store fails at this moment and the daemon then crashes, the server gets the answers twice, with the same state.
    pub(super) async fn sends(&self) {
        if self.is_kept.swap(false, Ordering::SeqCst) {
            self.keep(Stage::Sent).await;
        }
    }

    async fn keep(&self, stage: Stage) -> bool {
        let round = Round { server: self.server.to_owned(), tool: self.tool.to_owned(), stage };
        self.handle.keep(serde_json::to_value(round).unwrap_or_default()).await
    }
}
