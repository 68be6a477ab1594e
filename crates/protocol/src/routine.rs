//! Routines: rules that start work by time or event. Their specifications and records.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use crate::approval::Asker;
use crate::grant::WorkGrant;
use crate::ids::{ChannelId, RoutineId, SessionKey};
use crate::job::{JobBudget, RunsIn};
use crate::route::ReplyRoute;
use crate::time::UnixMillis;

/// The answer of a routine's model when there is nothing to report.
pub const ROUTINE_OK: &str = "ROUTINE_OK";
/// The maximum length of a routine's name, in bytes. Names consist of letters, digits, `-` and `_`, and begin with a
/// letter.
pub const ROUTINE_NAME_MAX_BYTES: usize = 64;
/// The maximum length of a routine's text, in bytes.
pub const ROUTINE_TEXT_MAX_BYTES: usize = 64 * 1024;

/// The maximum number of routines in a store.
pub const MAX_ROUTINES: u32 = 20_000;

/// The time for which an equal call of a webhook counts as the same delivery if it names no delivery, in milliseconds.
/// A minute: longer than the retry delay of a sender, shorter than the period of a scheduled sender.
pub const WEBHOOK_ECHO_MS: i64 = 60_000;

/// The specification of a routine, as its author writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RoutineSpec {
    /// Its name; unique.
    pub name: String,
    /// Its purpose, in one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Its trigger.
    pub trigger: Trigger,
    /// Its action.
    pub action: RoutineAction,
    /// Its guardrails.
    #[serde(default)]
    pub guard: Guardrails,
    /// Its notifications.
    #[serde(default)]
    pub notify: Notify,
    /// The calls that its runs may make without an approval. A change by a model removes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<WorkGrant>,
}

/// The trigger of a routine. Every routine can also be run by hand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Trigger {
    /// A schedule.
    Schedule {
        /// A cron line of 5, 6 or 7 fields, `@daily` and its like, `every 15m`, or `at 2026-12-01T09:00`.
        when: String,
        /// An IANA zone.
        #[serde(default = "utc")]
        zone: String,
        /// The handling of missed times.
        #[serde(default)]
        misfire: Misfire,
    },
    /// A message of its owner.
    Event {
        /// A regular expression that is searched in the text; its matching time is linear.
        pattern: String,
        /// The channel of the message, case-insensitive; `None`: any channel.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        channel: Option<String>,
    },
    /// A call of another program.
    Webhook {
        /// The last part of its address; unique.
        path: String,
        /// SHA-256 of the secret, in hex. The secret itself is not stored, and the digest is never shown. Empty in a
        /// changed specification: the stored digest stays.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        secret_sha256: String,
    },
    /// An event that another part of the system reports.
    System {
        /// The source of the event, case-insensitive.
        source: String,
        /// The name of the event, case-insensitive.
        event: String,
        /// The required values of top-level fields of the payload, compared as text, case-insensitive.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        filters: BTreeMap<String, String>,
    },
    /// No automatic trigger: the routine is only run by hand.
    Manual,
}

fn utc() -> String {
    "UTC".to_owned()
}

impl Trigger {
    /// The name in the store and on the wire.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Schedule { .. } => "schedule",
            Self::Event { .. } => "event",
            Self::Webhook { .. } => "webhook",
            Self::System { .. } => "system",
            Self::Manual => "manual",
        }
    }
}

/// The handling of scheduled times that passed without a routine run. `"skip"`, `"once"`, or `{ all = 3 }`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Misfire {
    /// All are recorded as missed.
    Skip,
    /// The newest one is run, the others are recorded as missed.
    #[default]
    Once,
    /// This many of the newest are run, in order; the others are recorded as missed.
    All(u32),
}

/// The action of a routine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "mode", rename_all = "snake_case", deny_unknown_fields)]
pub enum RoutineAction {
    /// A few model calls with a loop of their own.
    Lightweight {
        /// The prompt.
        prompt: String,
        /// The files of the workspace that the prompt contains.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        files: Vec<String>,
        /// Whether it may call tools.
        #[serde(default)]
        use_tools: bool,
        /// The maximum number of rounds of tool calls, 1 to 20; the configuration may set a lower limit.
        #[serde(default = "three")]
        max_tool_rounds: u32,
    },
    /// A job. The routine run lasts until the job ends.
    FullJob {
        /// The task of the job.
        task: String,
        /// Whether the run makes a plan first.
        #[serde(default)]
        plan: bool,
        /// The place where the job runs.
        #[serde(default)]
        runs_in: RunsIn,
        /// The limits of the job.
        #[serde(default)]
        budget: JobBudget,
    },
}

fn three() -> u32 {
    3
}

/// The guardrails of a routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Guardrails {
    /// The minimum time in seconds between two routine runs that were not started by hand. 0: none.
    pub cooldown_s: u64,
    /// The maximum number of its concurrent routine runs; at least 1.
    pub max_concurrent: u32,
    /// The time in seconds for which the same content does not start it again. 0: no deduplication.
    pub dedup_window_s: u64,
    /// The failures in a row after which it is disabled and its owner gets a notice. 0: never.
    pub max_failures: u32,
}

impl Default for Guardrails {
    fn default() -> Self {
        Self { cooldown_s: 300, max_concurrent: 1, dedup_window_s: 0, max_failures: 5 }
    }
}

/// The notifications of a routine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Notify {
    /// The destination; `None`: the conversation in which it was created, and nobody if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<ReplyRoute>,
    /// Whether its reports are sent.
    pub on_attention: bool,
    /// Whether failures are sent.
    pub on_failure: bool,
    /// Whether a success without a report is sent.
    pub on_success: bool,
}

impl Default for Notify {
    fn default() -> Self {
        Self { to: None, on_attention: true, on_failure: true, on_success: false }
    }
}

/// The origin of a routine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RoutineOrigin {
    /// A person or a program has created it.
    #[default]
    Made,
    /// The configuration defines it, and it is changed only there.
    Config,
    /// It is the built-in heartbeat, which has a section of its own in the configuration.
    Heartbeat,
}

/// A routine to store.
#[derive(Clone, Debug, PartialEq)]
pub struct NewRoutine {
    /// Its id if it is new. An existing routine keeps its id.
    pub id: RoutineId,
    /// Its specification.
    pub spec: RoutineSpec,
    /// Its creator, with the authority at that time.
    pub creator: Asker,
    /// The channel of the creator.
    pub channel: ChannelId,
    /// The session in which it was created.
    pub made_in: SessionKey,
    /// The destination of replies of that session.
    pub reply_to: Option<ReplyRoute>,
    /// Its origin.
    pub origin: RoutineOrigin,
    /// Its next scheduled time.
    pub next_at: Option<UnixMillis>,
    /// The time.
    pub at: UnixMillis,
}

/// A routine, as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoutineRecord {
    /// Its id. Changes keep it. A routine with the name of a deleted one gets a new id.
    pub routine_id: RoutineId,
    /// Its specification. The wire form omits the digest of its secret.
    #[serde(flatten, serialize_with = "without_secret")]
    #[cfg_attr(feature = "schema", schemars(with = "RoutineSpec"))]
    pub spec: RoutineSpec,
    /// Its creator.
    pub creator: Asker,
    /// The channel of the creator.
    pub channel: ChannelId,
    /// The session in which it was created.
    pub made_in: SessionKey,
    /// The destination of replies of that session.
    #[serde(skip)]
    pub reply_to: Option<ReplyRoute>,
    /// Its origin.
    pub origin: RoutineOrigin,
    /// Whether it is enabled.
    pub enabled: bool,
    /// The reason for which it is disabled, for people; empty if it is enabled.
    pub disabled_detail: String,
    /// Its revision: raised by one with each change of the specification.
    pub revision: u32,
    /// Its next scheduled time; `None`: it has none, or is disabled.
    pub next_at: Option<UnixMillis>,
    /// The newest scheduled time that was claimed or missed. No time up to it is claimed again. Before the first one,
    /// it is the date since which the routine has this schedule and is enabled; `None`: it has no schedule.
    pub claimed_to: Option<UnixMillis>,
    /// The time of its newest routine run.
    pub fired_at: Option<UnixMillis>,
    /// The time of its newest routine run that was not started by hand. The cooldown begins at it.
    pub set_off_at: Option<UnixMillis>,
    /// The number of its routine runs.
    pub routine_runs: u64,
    /// Failures in a row.
    pub failures: u32,
    /// The time of its creation.
    pub created_at: UnixMillis,
    /// The time of its last change.
    pub changed_at: UnixMillis,
}

/// The conditions for storing a routine. The store checks them in the transaction of the write, so that of two
/// concurrent requests for a name one succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutRule {
    /// Whether the routine must not exist yet.
    pub fresh: bool,
    /// The author of the change.
    pub by: PutBy,
}

/// The author of a change of a routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutBy {
    /// The configuration. It takes over an existing routine of that name.
    Config,
    /// An operator, who may change all routines except those of the configuration. The routine keeps its owner, the
    /// owner's authority and destination.
    Operator,
    /// [`NewRoutine::creator`] through [`NewRoutine::channel`], who may change only their own routines.
    Owner {
        /// The maximum number of their routines, without those of the configuration.
        most: u32,
    },
}

/// A short secret can be guessed from its digest.
fn without_secret<S: Serializer>(spec: &RoutineSpec, serializer: S) -> Result<S::Ok, S::Error> {
    let mut shown = spec.clone();
    if let Trigger::Webhook { secret_sha256, .. } = &mut shown.trigger {
        secret_sha256.clear();
    }
    shown.serialize(serializer)
}

/// The result of storing a routine.
#[derive(Clone, Debug, PartialEq)]
pub enum RoutinePut {
    /// It is stored.
    Done(Box<RoutineRecord>),
    /// The author may not change the routine of that name; the text is the reason.
    Forbidden(String),
    /// Another routine has the name or the path of the webhook, or there are too many routines; the text is the reason.
    Refused(String),
}
