//! Requests about routines, and what became of them.

use crate::heartbeat::HeartbeatReport;
use crate::routine::{RoutineRecord, RoutineSpec};
use crate::routine_run::RoutineRunRecord;

/// What may be asked about routines. Who asks, from where, and who is told, stand in the message that asks.
#[derive(Clone, Debug, PartialEq)]
pub enum RoutineRequest {
    /// Make one, or change the one of that name. With `fresh`, one that is there is refused.
    Put {
        /// What it is.
        spec: RoutineSpec,
        /// Whether it must be new.
        fresh: bool,
    },
    /// Switch one on or off.
    Enable {
        /// Its name.
        name: String,
        /// On.
        on: bool,
    },
    /// Delete one.
    Delete(String),
    /// Fire one by hand.
    Fire {
        /// Its name.
        name: String,
        /// Told to it, as data of the outside.
        payload: Option<String>,
    },
    /// Fire the one of this webhook. Whoever asks has compared the secret.
    Webhook {
        /// The routine's name.
        name: String,
        /// What makes a second delivery recognisable; `None`: its payload does, for [`WEBHOOK_ECHO_MS`](crate::routine::WEBHOOK_ECHO_MS).
        delivery: Option<String>,
        /// Told to it, as data of the outside.
        payload: String,
    },
    /// Something has happened: fire all that wait for it.
    Emit {
        /// Who says so.
        source: String,
        /// What.
        event: String,
        /// What makes a second telling recognisable; `None`: each is one of its own.
        key: Option<String>,
        /// More about it: an object.
        payload: serde_json::Value,
    },
    /// How the heartbeat stands; operators only.
    Heartbeat,
}

/// What became of a request about routines.
#[derive(Clone, Debug, PartialEq)]
pub enum RoutineAnswer {
    /// The routine as it stands now.
    Routine(Box<RoutineRecord>),
    /// It is gone.
    Deleted(String),
    /// What was fired, or was before; none where nothing waits for it.
    Fired(Vec<RoutineRunRecord>),
    /// How the heartbeat stands.
    Heartbeat(Box<HeartbeatReport>),
}
