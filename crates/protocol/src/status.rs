//! The state of the daemon.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::freeze::Freeze;
use crate::ids::{ChannelId, RunId, SessionKey};
use crate::model::ModelInfo;
use crate::process::BackgroundProcess;
use crate::purpose::{OpenReservations, Purpose, Spent};
use crate::quality::Quality;
use crate::store::{JobNumbers, RoutineNumbers};
use crate::time::UnixMillis;
use crate::tool_health::ToolHealth;
use crate::trouble::Trouble;

/// The state of the daemon, for `/status`, `belay status` and the API.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusReport {
    /// The program's version.
    pub version: String,
    /// This start of the daemon.
    pub boot_id: crate::ids::BootId,
    /// The time of its start.
    pub started_at: UnixMillis,
    /// Whether it is draining.
    pub draining: bool,
    /// The parts that do not work as they should; empty: all do.
    pub degraded: Vec<Trouble>,
    /// The model in use.
    pub model: ModelInfo,
    /// Sessions with a lane.
    pub sessions_awake: usize,
    /// The running runs.
    pub running: Vec<LiveRun>,
    /// The number of queued runs.
    pub queued: usize,
    /// The number of runs that wait for a person.
    pub paused: usize,
    /// The channels that accept messages.
    pub channels: Vec<ChannelId>,
    /// The money that was spent today (UTC), in millionths of a US dollar: in a cluster by all nodes. If the store does not
    /// answer, what this node knows of it.
    pub spent_today_micro_usd: u64,
    /// The same by purpose.
    pub spent_today_for: Spent,
    /// The day's limit; `null`: none.
    pub limit_today_micro_usd: Option<u64>,
    /// The day's limits of single purposes, in millionths of a US dollar.
    pub limit_today_for: BTreeMap<Purpose, u64>,
    /// The money that is reserved for model calls in progress.
    pub open_reservations: OpenReservations,
    /// The failure of the last model call, if it failed.
    pub model_trouble: Option<ModelTrouble>,
    /// The models and keys that may be used, in order of preference; empty if there is only one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<CandidateStatus>,
    /// Tools and MCP servers that fail repeatedly or are disabled, without the descriptions and evidence of the list of
    /// tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolHealth>,
    /// The freezes in force.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frozen: Vec<Freeze>,
    /// The work beside the conversations.
    #[serde(flatten)]
    pub beside: BackgroundWork,
}

/// The work beside the conversations.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BackgroundWork {
    /// Open jobs; `null`: the store does not answer.
    pub jobs: Option<JobsStatus>,
    /// Routines; `null`: the store does not answer.
    pub routines: Option<RoutineNumbers>,
    /// Processes that commands have left in the background, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<BackgroundProcess>,
    /// The channels through which people and programs write, by name.
    pub channel_states: Vec<ChannelStatus>,
}

/// A channel through which people or programs write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChannelStatus {
    /// Its name.
    pub channel: ChannelId,
    /// Whether it takes messages.
    pub state: ChannelState,
    /// Why it does not work as it should, for operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// What it promises about its deliveries.
    #[serde(flatten)]
    pub quality: Quality,
}

/// Whether a channel takes messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChannelState {
    /// Nothing is known to be wrong.
    Ready,
    /// Something is wrong.
    Troubled,
    /// Another node of the cluster serves it.
    Elsewhere,
}

/// Open jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobsStatus {
    /// Their numbers.
    #[serde(flatten)]
    pub numbers: JobNumbers,
    /// The number of slots for running jobs. Stuck jobs keep their slots.
    pub slots: u32,
}

/// The state of one of several models or API keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CandidateStatus {
    /// Its name.
    pub name: String,
    /// The time until which it is not used; `null`: it is used.
    pub cooling_until: Option<UnixMillis>,
    /// Its failure: `rate_limited`, `auth`, … `null`: it is used.
    pub reason: Option<String>,
}

/// The trouble with a model that does not answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelTrouble {
    /// The time of the first failure in a row.
    pub since: UnixMillis,
    /// The kind of its last failure: `rate_limited`, `network`, …
    pub kind: String,
    /// The requests of the last call.
    pub requests: u32,
    /// What is wrong and what to do, with the address or the provider's words: for operators.
    #[serde(skip)]
    pub line: String,
}

/// A running run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveRun {
    /// The run.
    pub run_id: RunId,
    /// Its session.
    pub session: SessionKey,
    /// The milliseconds since it was started or resumed.
    pub for_ms: u64,
    /// Its step; 0: it has not called the model yet.
    pub step: u32,
    /// The tools that work for it at this moment, those of the runs that it has started too.
    pub tools: Vec<String>,
}
