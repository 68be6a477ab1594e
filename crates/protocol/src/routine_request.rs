//! Requests about routines, and their results.

use crate::heartbeat::HeartbeatReport;
use crate::routine::{RoutineRecord, RoutineSpec};
use crate::routine_run::RoutineRunRecord;

/// A request about routines. The message of the request has the principal, the session and the destination of notices.
#[derive(Clone, Debug, PartialEq)]
pub enum RoutineRequest {
    /// Create a routine, or change the one of that name. With `fresh`, an existing one is refused.
    Put {
        /// The specification.
        spec: RoutineSpec,
        /// Whether the routine must not exist yet.
        fresh: bool,
    },
    /// Enable or disable a routine.
    Enable {
        /// Its name.
        name: String,
        /// Whether to enable it.
        on: bool,
    },
    /// Delete the routine of this name.
    Delete(String),
    /// Revoke a grant of a routine. The next call asks.
    Revoke {
        /// Its name.
        name: String,
        /// The number of the grant, from 1.
        grant: usize,
    },
    /// Run a routine by hand.
    Fire {
        /// Its name.
        name: String,
        /// The data for the run, as untrusted content.
        payload: Option<String>,
    },
    /// Run the routine of a webhook. The caller has compared the secret.
    Webhook {
        /// The routine's name.
        name: String,
        /// The id of the delivery, which recognises a redelivery; `None`: the payload recognises it, for
        /// [`WEBHOOK_ECHO_MS`](crate::routine::WEBHOOK_ECHO_MS).
        delivery: Option<String>,
        /// The data for the run, as untrusted content.
        payload: String,
    },
    /// Report an event: run all routines with a matching trigger.
    Emit {
        /// The source of the event.
        source: String,
        /// The name of the event.
        event: String,
        /// The key that recognises a repeated report; `None`: each report counts.
        key: Option<String>,
        /// The data of the event: an object.
        payload: serde_json::Value,
    },
    /// Report the state of the heartbeat; operators only.
    Heartbeat,
}

/// The result of a request about routines.
#[derive(Clone, Debug, PartialEq)]
pub enum RoutineAnswer {
    /// The routine in its present state.
    Routine(Box<RoutineRecord>),
    /// The routine of this name is deleted.
    Deleted(String),
    /// The routine runs that were started now or by an earlier delivery; empty if no routine matches.
    Fired(Vec<RoutineRunRecord>),
    /// The state of the heartbeat.
    Heartbeat(Box<HeartbeatReport>),
}
