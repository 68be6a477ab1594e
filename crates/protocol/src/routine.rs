//! Routines: rules that start work by time or event. What they are made of, and what may be asked about them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use crate::approval::Asker;
use crate::ids::{ChannelId, RoutineId, SessionKey};
use crate::job::{JobBudget, RunsIn};
use crate::route::ReplyRoute;
use crate::time::UnixMillis;

/// What a routine says when there is nothing to say.
pub const ROUTINE_OK: &str = "ROUTINE_OK";
/// Longest name of a routine, in bytes: letters, digits, `-` and `_`, the first a letter.
pub const ROUTINE_NAME_MAX_BYTES: usize = 64;
/// Longest text of a routine, in bytes.
pub const ROUTINE_TEXT_MAX_BYTES: usize = 64 * 1024;

/// Most routines in a store.
pub const MAX_ROUTINES: u32 = 20_000;

/// How long the same call of a webhook is the same delivery, where none is named: a minute, longer than a sender waits before it
/// sends again, and shorter than what sends on a schedule does.
pub const WEBHOOK_ECHO_MS: i64 = 60_000;

/// What a routine is, as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutineSpec {
    /// Its name; unique.
    pub name: String,
    /// What it is for, in one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// What sets it off.
    pub trigger: Trigger,
    /// What it does.
    pub action: RoutineAction,
    /// What holds it back.
    #[serde(default)]
    pub guard: Guardrails,
    /// Who is told, and of what.
    #[serde(default)]
    pub notify: Notify,
}

/// What sets a routine off. Every routine can be fired by hand besides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Trigger {
    /// A time.
    Schedule {
        /// A cron line of 5, 6 or 7 fields, `@daily` and its like, `every 15m`, or `at 2026-12-01T09:00`.
        when: String,
        /// An IANA zone.
        #[serde(default = "utc")]
        zone: String,
        /// What becomes of times that passed while nobody could fire it.
        #[serde(default)]
        misfire: Misfire,
    },
    /// A message of its owner.
    Event {
        /// A regular expression that runs in linear time, looked for in the text.
        pattern: String,
        /// Only through this channel, without case; `None`: through any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        channel: Option<String>,
    },
    /// A call of another program.
    Webhook {
        /// The last part of its address; unique.
        path: String,
        /// SHA-256 of the secret, in hex. The secret itself is kept nowhere. It is taken, and shown to nobody; empty in what is
        /// put: the one that is known stays.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        secret_sha256: String,
    },
    /// Something that another part of the system says has happened.
    System {
        /// Who says so, without case.
        source: String,
        /// What, without case.
        event: String,
        /// What top-level fields of its payload must be, compared as text without case.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        filters: BTreeMap<String, String>,
    },
    /// Nothing but a hand.
    Manual,
}

fn utc() -> String {
    "UTC".to_owned()
}

impl Trigger {
    /// The word in the store and on the wire.
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

/// What becomes of scheduled times that passed while nobody could fire them. `"skip"`, `"once"`, or `{ all = 3 }`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Misfire {
    /// They are recorded as missed.
    Skip,
    /// The newest is fired, the others are recorded as missed.
    #[default]
    Once,
    /// So many of the newest are fired, in order; the others are recorded as missed.
    All(u32),
}

/// What a routine does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case", deny_unknown_fields)]
pub enum RoutineAction {
    /// A few model calls with a loop of their own.
    Lightweight {
        /// What it is told.
        prompt: String,
        /// Files of the workspace that it is shown.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        files: Vec<String>,
        /// Whether it may call tools.
        #[serde(default)]
        use_tools: bool,
        /// Rounds of tool calls, 1 to 20; the configuration has a smaller limit.
        #[serde(default = "three")]
        max_tool_rounds: u32,
    },
    /// A job, which the routine run is linked to until it ends.
    FullJob {
        /// What it is to do.
        task: String,
        /// Whether a plan is made first.
        #[serde(default)]
        plan: bool,
        /// Where it works.
        #[serde(default)]
        runs_in: RunsIn,
        /// What it may use.
        #[serde(default)]
        budget: JobBudget,
    },
}

fn three() -> u32 {
    3
}

/// What holds a routine back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Guardrails {
    /// Seconds between two routine runs that were not asked for by hand. 0: none.
    pub cooldown_s: u64,
    /// Routine runs of it at work at the same time; at least 1.
    pub max_concurrent: u32,
    /// Seconds within which the same content does not fire it again. 0: never looked at.
    pub dedup_window_s: u64,
    /// Failures in a row after which it is switched off, and its owner told. 0: never.
    pub max_failures: u32,
}

impl Default for Guardrails {
    fn default() -> Self {
        Self { cooldown_s: 300, max_concurrent: 1, dedup_window_s: 0, max_failures: 5 }
    }
}

/// Who is told of a routine, and of what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Notify {
    /// Where; `None`: the conversation that made it, and nobody where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<ReplyRoute>,
    /// What it has to say.
    pub on_attention: bool,
    /// That it failed.
    pub on_failure: bool,
    /// That there was nothing to say.
    pub on_success: bool,
}

impl Default for Notify {
    fn default() -> Self {
        Self { to: None, on_attention: true, on_failure: true, on_success: false }
    }
}

/// Where a routine comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoutineOrigin {
    /// A person or a program made it.
    #[default]
    Made,
    /// The configuration says so: it is changed there.
    Config,
    /// It is the heartbeat, which is built in: its settings are a part of the configuration of their own.
    Heartbeat,
}

/// A routine to commit.
#[derive(Clone, Debug, PartialEq)]
pub struct NewRoutine {
    /// Its id, if it is new; one that is there keeps its own.
    pub id: RoutineId,
    /// What it is.
    pub spec: RoutineSpec,
    /// For whom it works: with their rights as they were then.
    pub creator: Asker,
    /// The channel that the creator spoke through.
    pub channel: ChannelId,
    /// The session that it was made in.
    pub made_in: SessionKey,
    /// Where that session is answered.
    pub reply_to: Option<ReplyRoute>,
    /// Where it comes from.
    pub origin: RoutineOrigin,
    /// Its next scheduled time.
    pub next_at: Option<UnixMillis>,
    /// When.
    pub at: UnixMillis,
}

/// A routine as the outside sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoutineRecord {
    /// Its id, which changes do not change. One that is made under the name of a deleted one is another one.
    pub routine_id: RoutineId,
    /// What it is. Shown without its secret's digest.
    #[serde(flatten, serialize_with = "without_secret")]
    pub spec: RoutineSpec,
    /// For whom it works.
    pub creator: Asker,
    /// The channel that they spoke through.
    pub channel: ChannelId,
    /// The session that it was made in.
    pub made_in: SessionKey,
    /// Where that session is answered.
    #[serde(skip)]
    pub reply_to: Option<ReplyRoute>,
    /// Where it comes from.
    pub origin: RoutineOrigin,
    /// Whether it can fire.
    pub enabled: bool,
    /// Why it cannot, in words; empty where it can.
    pub disabled_detail: String,
    /// Raised by one with each change of what it is.
    pub revision: u32,
    /// Its next scheduled time; `None`: it has none, or cannot fire.
    pub next_at: Option<UnixMillis>,
    /// The newest scheduled time that was claimed or missed: none up to it is ever claimed again. Before the first, the date
    /// since which it has this schedule and is on; `None`: it has no schedule.
    pub claimed_to: Option<UnixMillis>,
    /// When it fired last.
    pub fired_at: Option<UnixMillis>,
    /// When it fired last other than by hand: since then it cools down.
    pub set_off_at: Option<UnixMillis>,
    /// How often it has fired.
    pub routine_runs: u64,
    /// Failures in a row.
    pub failures: u32,
    /// When it was made.
    pub created_at: UnixMillis,
    /// When it was changed last.
    pub changed_at: UnixMillis,
}

/// What a routine may be put by; looked at where it is written, so that of two who want a name one has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutRule {
    /// Whether it must be new.
    pub fresh: bool,
    /// By whom.
    pub by: PutBy,
}

/// Who puts a routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutBy {
    /// The configuration: one that is there is the configuration's from then on.
    Config,
    /// An operator: changes anybody's but the configuration's. It stays its owner's, with the owner's rights, and is answered
    /// where the owner is.
    Operator,
    /// [`NewRoutine::creator`], through [`NewRoutine::channel`]: changes their own, and makes no more than so many.
    Owner {
        /// Routines that they may have; those of the configuration do not count.
        most: u32,
    },
}

/// From a digest a short secret can be guessed.
fn without_secret<S: Serializer>(spec: &RoutineSpec, serializer: S) -> Result<S::Ok, S::Error> {
    let mut shown = spec.clone();
    if let Trigger::Webhook { secret_sha256, .. } = &mut shown.trigger {
        secret_sha256.clear();
    }
    shown.serialize(serializer)
}

/// What became of a routine that was to be committed.
#[derive(Clone, Debug, PartialEq)]
pub enum RoutinePut {
    /// It is there.
    Done(Box<RoutineRecord>),
    /// The one of that name is not theirs to change; the words say why.
    Forbidden(String),
    /// Another one has its name, or its webhook's path, or there are too many; the words say which.
    Refused(String),
}
