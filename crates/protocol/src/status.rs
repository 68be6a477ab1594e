//! What is going on in the daemon.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::ids::{ChannelId, RunId, SessionKey};
use crate::model::ModelInfo;
use crate::purpose::{Purpose, Spent};
use crate::store::{JobNumbers, RoutineNumbers};
use crate::time::UnixMillis;
use crate::tool_health::ToolHealth;

/// What is going on, for `/status`, `belay status` and the API.
#[derive(Clone, Debug, Serialize)]
pub struct StatusReport {
    /// The program's version.
    pub version: String,
    /// This start of the daemon.
    pub boot_id: crate::ids::BootId,
    /// When it started.
    pub started_at: UnixMillis,
    /// Whether it drains.
    pub draining: bool,
    /// The model in use, and whether it is the rehearsal stand-in.
    pub model: ModelInfo,
    /// Sessions with a lane.
    pub sessions_awake: usize,
    /// Runs at work.
    pub running: Vec<LiveRun>,
    /// Runs that wait for their turn.
    pub queued: usize,
    /// Runs that rest on a question to a person.
    pub paused: usize,
    /// Channels that take messages.
    pub channels: Vec<ChannelId>,
    /// Money spent today, UTC, in millionths of a US dollar.
    pub spent_today_micro_usd: u64,
    /// The same by what it went for.
    pub spent_today_for: Spent,
    /// The day's limit; `null`: none.
    pub limit_today_micro_usd: Option<u64>,
    /// The day's limits of single purposes, in millionths of a US dollar.
    pub limit_today_for: BTreeMap<Purpose, u64>,
    /// What the model fails with, if its last call failed.
    pub model_trouble: Option<ModelTrouble>,
    /// The models and keys that may be asked, in the order of preference; empty where there is only one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<CandidateStatus>,
    /// Tools, and MCP servers, that fail again and again or are switched off. Without descriptions and evidence, which the
    /// list of tools has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolHealth>,
    /// Jobs that are not over; `null`: the store does not answer.
    pub jobs: Option<JobsStatus>,
    /// Routines; `null`: the store does not answer.
    pub routines: Option<RoutineNumbers>,
}

/// Jobs that are not over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JobsStatus {
    /// How many.
    #[serde(flatten)]
    pub numbers: JobNumbers,
    /// How many may be at work at the same time; those that are stuck keep their places.
    pub places: u32,
}

/// How one of several models, or of the keys to one, stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CandidateStatus {
    /// Its name.
    pub name: String,
    /// Until when it is not asked; `null`: it is.
    pub cooling_until: Option<UnixMillis>,
    /// What it failed with: `rate_limited`, `auth`, … `null`: it is asked.
    pub reason: Option<String>,
}

/// A model that does not answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelTrouble {
    /// Since when.
    pub since: UnixMillis,
    /// The kind of its last failure: `rate_limited`, `network`, …
    pub kind: String,
    /// Requests of the last call.
    pub requests: u32,
}

/// A run at work.
#[derive(Clone, Debug, Serialize)]
pub struct LiveRun {
    /// The run.
    pub run_id: RunId,
    /// Its session.
    pub session: SessionKey,
    /// Milliseconds since it was taken up.
    pub for_ms: u64,
}
