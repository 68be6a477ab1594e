//! The parts that a gateway is built from.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use belay_protocol::{
    ApprovalStore, Archive, AttachmentIntake, BlobStore, BootId, Clock, ClusterStore, Embedder, EndReader, Event,
    EventLog, Hints, Janitor, JobReader, Message, ModelInfo, NoteArchive, RoutineReader, RoutineSpec, RunReader,
    SecretVault, ServerLogins, SessionReader, SignInStore, SpendReader, StopReason, StoreHealth, UnixMillis,
    WorkLeases,
};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::config::{GatewayConfig, GatewaySecrets};
use crate::file_links::SignedLinks;
use crate::texts::AgentTexts;

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
    /// Reads and changes notes.
    pub notes: Arc<dyn NoteArchive>,
    /// The secrets that people have given, and the logins at MCP servers.
    pub kept: KeptSecrets,
    /// Takes files of messages.
    pub attachments: Arc<dyn AttachmentIntake>,
    /// Stores files of messages and sent files.
    pub blobs: Arc<dyn BlobStore>,
    /// Makes and checks links to sent files.
    pub links: Arc<SignedLinks>,
    /// Reads what model calls have cost.
    pub spending: Arc<dyn SpendReader>,
    /// Counts ended runs.
    pub ends: Arc<dyn EndReader>,
    /// Stores the sign-ins of browsers.
    pub sign_ins: Arc<dyn SignInStore>,
    /// Deletes expired data.
    pub janitor: Arc<dyn Janitor>,
    /// Reads jobs.
    pub jobs: Arc<dyn JobReader>,
    /// Reads routines and their routine runs.
    pub routines: Arc<dyn RoutineReader>,
    /// Computes the times at which routines trigger.
    pub times: Arc<dyn RoutineTimes>,
    /// Makes and lists backups.
    pub backups: Arc<dyn Backups>,
    /// The losses of committed transactions that the database has had lately, newest first.
    pub database_losses: Vec<DatabaseLoss>,
    /// The daemons that share the database; `None`: this one uses it alone.
    pub cluster: Option<ClusterView>,
    /// The clock for dates.
    pub clock: Arc<dyn Clock>,
    /// The models that clients may ask.
    pub models: Models,
    /// The program's version, shown by `/livez`.
    pub version: String,
    /// The metrics. `None`: the build has no exporter for Prometheus.
    pub metrics: Option<Metrics>,
    /// Formats the messages of a run as a recorded trajectory.
    pub trajectory: Trajectory,
    /// Judges recorded runs by other stop rules.
    pub judge: JudgeOfRules,
    /// Reads the settings.
    pub settings: SettingsSource,
    /// The texts of the agent.
    pub texts: AgentTexts,
    /// Other routers, such as the one of the Telegram webhook. They authenticate their callers themselves.
    pub extra: Vec<Router>,
    /// Path of the control socket; `None`: there is none.
    pub control_socket: Option<PathBuf>,
    /// Whether the agent accepts messages.
    pub ready: watch::Receiver<bool>,
}

/// The models that clients may ask.
pub struct Models {
    /// The configured model.
    pub chat: ModelInfo,
    /// Makes vectors of texts; `None`: no server for embeddings is configured.
    pub embedder: Option<Arc<dyn Embedder>>,
}

/// The secrets that people have given, and the logins at MCP servers.
#[derive(Clone)]
pub struct KeptSecrets {
    /// Deletes secrets.
    pub(crate) vault: Arc<dyn SecretVault>,
    /// Logs in at MCP servers; `None`: no server can have a login.
    pub(crate) logins: Option<Arc<dyn ServerLogins>>,
}

impl KeptSecrets {
    /// The secrets of `vault`, and the logins; `None`: no server can have one.
    pub fn new(vault: Arc<dyn SecretVault>, logins: Option<Arc<dyn ServerLogins>>) -> Self {
        Self { vault, logins }
    }
}

/// What the gateway of a node reads of its cluster.
#[derive(Clone)]
pub struct ClusterView {
    /// This node.
    pub boot: BootId,
    /// Reads the nodes.
    pub nodes: Arc<dyn ClusterStore>,
    /// Reads the work that one node does at a time.
    pub leases: Arc<dyn WorkLeases>,
    /// Tells of changes that other nodes make.
    pub hints: Arc<dyn Hints>,
}

/// The metrics of this process.
#[derive(Clone)]
pub struct Metrics {
    /// Renders the current ones in the text format of Prometheus.
    pub render: Arc<dyn Fn() -> String + Send + Sync>,
    /// The latencies of the last day.
    pub latencies: Arc<dyn Fn() -> Vec<Latency> + Send + Sync>,
}

/// How long something took, by periods of the last day, oldest first. Periods without a measurement are left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Latency {
    /// `first_token`, `model_call`, `tool_call`, `wait` (until a run begins) or `stop` (until its end).
    pub kind: &'static str,
    /// The periods.
    pub periods: Vec<LatencyPeriod>,
}

/// The latencies of a period, as estimates from a histogram.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LatencyPeriod {
    /// Its begin.
    pub at: UnixMillis,
    /// The number of measurements.
    pub count: u64,
    /// Half of them took at most this time, in milliseconds.
    pub p50_ms: f64,
    /// 95 of 100 took at most this time, in milliseconds.
    pub p95_ms: f64,
}

/// Formats the messages of a run as a recorded trajectory: one JSON object per line. The gateway does not know the format.
/// The facts are the run's compactions, each behind the end of the newest call before it.
pub type Trajectory = Arc<dyn Fn(&[Arc<Message>], &[Event]) -> String + Send + Sync>;

/// Compiles stop rules from TOML, with the keys of `[stops]` and perhaps a table `[limits]`. The error lists all problems.
/// The gateway knows neither the rules nor the recordings.
pub type JudgeOfRules = Arc<dyn Fn(&str) -> Result<RunJudge, String> + Send + Sync>;

/// Judges the messages of a recorded run by stop rules. It computes and never waits. The facts are those of [`Trajectory`].
pub type RunJudge = Arc<dyn Fn(&[Arc<Message>], &[Event]) -> Judged + Send + Sync>;

/// What stop rules would have done in a recorded run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Judged {
    /// Whether they would have stopped it.
    pub stopped: bool,
    /// The reason of the newest strike; `null`: there was none.
    pub reason: Option<StopReason>,
    /// The rule of that strike.
    pub rule: Option<String>,
    /// The step of the model, from 1, at which the first strike became true.
    pub step: Option<u64>,
    /// The index, from 0, of the event of the recording at which the first strike became true.
    pub at_event: Option<u64>,
    /// The number of strikes.
    pub strikes: u32,
    /// The evidence of the newest strike.
    pub evidence: Map<String, Value>,
}

/// Reads the settings files anew. It blocks: it reads files.
pub type SettingsSource = Arc<dyn Fn() -> SettingsReport + Send + Sync>;

/// The merged settings, with the origin of each, and the problems of the settings files. Possible secrets are masked.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SettingsReport {
    /// The settings by their full key. If the files have problems, those of the start.
    pub settings: BTreeMap<String, SettingValue>,
    /// The keys that differ from the settings of the start.
    pub changed: Vec<String>,
    /// The problems of the settings files as they are now.
    pub problems: Vec<String>,
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SettingValue {
    /// The value, masked if it may be a secret; `null`: it is not set.
    pub value: Value,
    /// Where it comes from: a file, a variable, `--set`, or `built-in`.
    pub origin: String,
    /// What it means, in the words of the built-in settings file; empty for a key below one of its keys.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
}

/// A time at which a routine triggers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RoutineTime {
    /// The time.
    pub at: UnixMillis,
    /// The same in the zone, with the offset: `Mon 2026-11-30 09:00:00 +01:00`.
    pub local: String,
    /// The time zone.
    pub zone: String,
}

/// Whether a routine would trigger at a date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RoutineTest {
    /// The name of the routine.
    pub routine: String,
    /// Its schedule.
    pub schedule: String,
    /// Whether it would trigger, to the second.
    pub fires: bool,
    /// The date.
    pub at: RoutineTime,
    /// The first time after the date; `null`: there is none.
    pub next: Option<RoutineTime>,
    /// The kind of work: `lightweight` or `full_job`.
    #[cfg_attr(test, schemars(extend("enum" = ["lightweight", "full_job"])))]
    pub mode: String,
}

/// Computes the times at which routines trigger. The gateway does not parse schedules.
pub trait RoutineTimes: Send + Sync {
    /// Tests whether the routine would trigger at that date. The date is text: with an offset, or in local time of the
    /// routine's zone.
    ///
    /// # Errors
    /// The problem with the date or the routine, for people.
    fn test(&self, spec: &RoutineSpec, at: &str) -> Result<RoutineTest, String>;

    /// The next times after `from` at which the routine would trigger, at most `count`. Empty without a
    /// schedule.
    ///
    /// # Errors
    /// The problem with the routine.
    fn next(&self, spec: &RoutineSpec, from: UnixMillis, count: usize) -> Result<Vec<RoutineTime>, String>;
}

/// Makes and lists backups. The gateway does not know their format.
#[async_trait]
pub trait Backups: Send + Sync {
    /// Makes a backup and verifies it. Returns its description.
    ///
    /// # Errors
    /// See [`BackupRefusal`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the backup is completed.
    async fn create(&self, request: BackupRequest) -> Result<serde_json::Value, BackupRefusal>;

    /// Lists the backups of the configured directory, newest first, with the schedule.
    ///
    /// # Errors
    /// See [`BackupRefusal`].
    async fn list(&self) -> Result<serde_json::Value, BackupRefusal>;

    /// The state of the backups, without looking at the disk. `None`: the store is in memory.
    fn status(&self) -> Option<BackupStatus>;
}

/// The state of the backups.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BackupStatus {
    /// The date of the last successful backup; `null`: there is none.
    pub last_success_at: Option<UnixMillis>,
    /// The date of the next scheduled backup; `null`: there is no schedule.
    pub next_at: Option<UnixMillis>,
    /// The last failure; `null`: no backup has failed since the last success.
    pub last_failure: Option<BackupFailure>,
}

/// A loss of committed transactions, as by the promotion of a standby that was behind.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatabaseLoss {
    /// When a daemon noticed it, and ended itself.
    pub noticed_at: UnixMillis,
    /// The date of the newest event that the database had left; `null`: there was none.
    pub kept_until: Option<UnixMillis>,
    /// The number of lost transactions of that daemon. 0: only those of other daemons were lost.
    pub transactions: u64,
    /// What is lost and what may come again, for people.
    pub detail: String,
}

/// The failure of a backup.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BackupFailure {
    /// Its date.
    pub at: UnixMillis,
    /// The causes, for people.
    pub detail: String,
}

/// What to back up, and where to.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct BackupRequest {
    /// The absolute path of a new file that ends in `.tar.gz`, or of a directory; absent: the configured directory.
    pub to: Option<PathBuf>,
    /// Whether the backup contains the key of the vault.
    pub with_key: bool,
}

/// The reason for which there is no backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupRefusal {
    /// Another backup is being made.
    Busy,
    /// The request cannot be carried out; for people.
    Invalid(String),
    /// The backup was given up, because the daemon ends.
    ShuttingDown,
    /// The backup failed; for people.
    Failed(String),
}
