//! The parts that a gateway is built from.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use belay_protocol::{
    ApprovalRequest, ApprovalStore, Archive, AttachmentIntake, Clock, EventLog, Janitor, JobReader, Message, ModelInfo,
    RoutineReader, RoutineSpec, RunReader, SecretVault, SessionReader, StoreHealth, UnixMillis,
};
use tokio::sync::watch;

use crate::config::{GatewayConfig, GatewaySecrets};

/// The parts that a gateway is built from.
pub struct GatewayParts {
    /// The settings.
    pub config: GatewayConfig,
    /// The secrets of these settings.
    pub secrets: GatewaySecrets,
    /// Reads runs.
    pub runs: Arc<dyn RunReader>,
    /// Reads sessions and their history.
    pub sessions: Arc<dyn SessionReader>,
    /// Tells whether the store works, for `/readyz`.
    pub health: Arc<dyn StoreHealth>,
    /// Reads events.
    pub events: Arc<dyn EventLog>,
    /// Reads approval requests.
    pub approvals: Arc<dyn ApprovalStore>,
    /// Searches, exports and deletes the messages of sessions.
    pub archive: Arc<dyn Archive>,
    /// Deletes secrets.
    pub vault: Arc<dyn SecretVault>,
    /// Takes files of messages.
    pub attachments: Arc<dyn AttachmentIntake>,
    /// Deletes expired data.
    pub janitor: Arc<dyn Janitor>,
    /// Reads jobs.
    pub jobs: Arc<dyn JobReader>,
    /// Reads routines and their routine runs.
    pub routines: Arc<dyn RoutineReader>,
    /// Computes the times at which routines trigger.
    pub times: Arc<dyn RoutineTimes>,
    /// The clock for dates.
    pub clock: Arc<dyn Clock>,
    /// The configured model, for `/v1/models`.
    pub model: ModelInfo,
    /// The program's version, shown by `/livez`.
    pub version: String,
    /// Renders the metrics in the text format of Prometheus.
    pub metrics: Metrics,
    /// Formats the messages of a run as a recorded trajectory.
    pub trajectory: Trajectory,
    /// Formats the text of an approval request.
    pub question: QuestionWords,
    /// Other routers, such as the one of the Telegram webhook. They authenticate their callers themselves.
    pub extra: Vec<Router>,
    /// Path of the control socket; `None`: there is none.
    pub control_socket: Option<PathBuf>,
    /// Whether the agent accepts messages.
    pub ready: watch::Receiver<bool>,
}

/// Renders the current metrics.
pub type Metrics = Arc<dyn Fn() -> String + Send + Sync>;

/// Formats messages as a recorded trajectory: one JSON object per line. The gateway does not know the format.
pub type Trajectory = Arc<dyn Fn(&[Arc<Message>]) -> String + Send + Sync>;

/// Formats an approval request in Markdown, as of that date. The other channels use the same text.
pub type QuestionWords = Arc<dyn Fn(&ApprovalRequest, UnixMillis) -> String + Send + Sync>;

/// Computes the times at which routines trigger. The gateway does not parse schedules.
pub trait RoutineTimes: Send + Sync {
    /// Tests whether the routine would trigger at that date. The date is text: with an offset, or in local time of the
    /// routine's zone.
    ///
    /// # Errors
    /// The problem with the date or the routine, for people.
    fn test(&self, spec: &RoutineSpec, at: &str) -> Result<serde_json::Value, String>;

    /// The next times after `from` at which the routine would trigger, at most `count`, each as an object. Empty
    /// without a schedule.
    ///
    /// # Errors
    /// The problem with the routine.
    fn next(
        &self,
        spec: &RoutineSpec,
        from: UnixMillis,
        count: usize,
    ) -> Result<Vec<(UnixMillis, serde_json::Value)>, String>;
}
