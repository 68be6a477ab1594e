//! What a gateway is made of.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use belay_protocol::{
    Archive, Clock, EventLog, Gate, GateStore, Janitor, JobReader, Message, ModelInfo, RoutineReader, RoutineSpec,
    RunReader, SecretVault, SessionReader, StoreHealth, UnixMillis,
};
use tokio::sync::watch;

use crate::config::{GatewayConfig, GatewaySecrets};

/// What the gateway is made of.
pub struct GatewayParts {
    /// The settings.
    pub config: GatewayConfig,
    /// The secrets that go with them.
    pub secrets: GatewaySecrets,
    /// Reads runs.
    pub runs: Arc<dyn RunReader>,
    /// Reads sessions and their history.
    pub sessions: Arc<dyn SessionReader>,
    /// Tells whether the store works, for `/readyz`.
    pub health: Arc<dyn StoreHealth>,
    /// Reads events.
    pub events: Arc<dyn EventLog>,
    /// Reads questions.
    pub gates: Arc<dyn GateStore>,
    /// Finds, reads out and deletes what sessions have said.
    pub archive: Arc<dyn Archive>,
    /// Forgets secrets.
    pub vault: Arc<dyn SecretVault>,
    /// Deletes what is too old.
    pub janitor: Arc<dyn Janitor>,
    /// Reads jobs.
    pub jobs: Arc<dyn JobReader>,
    /// Reads routines and their routine runs.
    pub routines: Arc<dyn RoutineReader>,
    /// Says when routines would fire.
    pub times: Arc<dyn RoutineTimes>,
    /// Tells the date.
    pub clock: Arc<dyn Clock>,
    /// The configured model, for `/v1/models`.
    pub model: ModelInfo,
    /// The program's version, shown by `/livez`.
    pub version: String,
    /// Renders the metrics in the text format of Prometheus.
    pub metrics: Metrics,
    /// Writes the messages of a run down as a recorded trajectory.
    pub trajectory: Trajectory,
    /// Puts a question into words.
    pub question: QuestionWords,
    /// Routers of others, such as the Telegram webhook's. They check their callers themselves.
    pub extra: Vec<Router>,
    /// Where the control socket is; `None`: there is none.
    pub control_socket: Option<PathBuf>,
    /// Whether the agent takes messages.
    pub ready: watch::Receiver<bool>,
}

/// Renders the metrics as they stand.
pub type Metrics = Arc<dyn Fn() -> String + Send + Sync>;

/// Writes messages down as a recorded trajectory: one JSON object a line. Who knows that form is no business of ours.
pub type Trajectory = Arc<dyn Fn(&[Arc<Message>]) -> String + Send + Sync>;

/// Puts a question into words, in Markdown, as it stands at that date: the same words that people are asked with elsewhere.
pub type QuestionWords = Arc<dyn Fn(&Gate, UnixMillis) -> String + Send + Sync>;

/// Says when routines would fire. Who can read a schedule is no business of ours.
pub trait RoutineTimes: Send + Sync {
    /// Whether the routine would fire at that date, as people write it: with an offset, or as the clock of its zone shows it.
    ///
    /// # Errors
    /// What is wrong with the date or the routine, for people.
    fn test(&self, spec: &RoutineSpec, at: &str) -> Result<serde_json::Value, String>;

    /// The next times after `from` at which the routine would fire, `count` at most, each as an object. None, where it has no
    /// schedule.
    ///
    /// # Errors
    /// What is wrong with the routine.
    fn next(
        &self,
        spec: &RoutineSpec,
        from: UnixMillis,
        count: usize,
    ) -> Result<Vec<(UnixMillis, serde_json::Value)>, String>;
}
