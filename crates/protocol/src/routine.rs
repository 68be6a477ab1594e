//! Routines: rules that start work by time or event. What they are made of, what becomes of a firing, and the port that keeps
//! both.
//!
//! A firing is a claimed row before anything is done for it: of two daemons on one store, one has it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::approval::Asker;
use crate::ids::{BootId, ChannelId, FiringId, JobId, RunId, SessionKey};
use crate::inbound::ReplyRoute;
use crate::job::{JobBudget, JobRoom};
use crate::outbound::Outbound;
use crate::run::RunUsage;
use crate::store::StoreError;
use crate::time::UnixMillis;

/// What a routine says when there is nothing to say.
pub const ROUTINE_OK: &str = "ROUTINE_OK";
/// Longest name of a routine, in bytes: letters, digits, `-` and `_`, the first a letter.
pub const ROUTINE_NAME_MAX_BYTES: usize = 64;
/// Longest text of a routine, in bytes.
pub const ROUTINE_TEXT_MAX_BYTES: usize = 64 * 1024;
/// Longest detail of a firing, in characters.
pub const FIRING_DETAIL_MAX_CHARS: usize = 200;

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
        /// SHA-256 of the secret, in hex. The secret itself is kept nowhere.
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
    /// A job, which the firing is linked to until it ends.
    FullJob {
        /// What it is to do.
        task: String,
        /// Whether a plan is made first.
        #[serde(default)]
        plan: bool,
        /// Where it works.
        #[serde(default)]
        room: JobRoom,
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
    /// Seconds between two firings that were not asked for by hand. 0: none.
    pub cooldown_s: u64,
    /// Firings of it at work at the same time; at least 1.
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
}

/// A routine to commit.
#[derive(Clone, Debug, PartialEq)]
pub struct NewRoutine {
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
    /// What it is.
    #[serde(flatten)]
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
    pub disabled_why: String,
    /// Raised by one with each change of what it is.
    pub revision: u32,
    /// Its next scheduled time; `None`: it has none, or cannot fire.
    pub next_at: Option<UnixMillis>,
    /// The newest scheduled time that was claimed or missed: none up to it is ever claimed again. Before the first, the date
    /// since which it has this schedule and is on; `None`: it has no schedule.
    pub claimed_to: Option<UnixMillis>,
    /// When it fired last.
    pub fired_at: Option<UnixMillis>,
    /// How often it has fired.
    pub firings: u64,
    /// Failures in a row.
    pub failures: u32,
    /// When it was made.
    pub created_at: UnixMillis,
    /// When it was changed last.
    pub changed_at: UnixMillis,
}

/// What became of a routine that was to be committed.
#[derive(Clone, Debug, PartialEq)]
pub enum RoutinePut {
    /// It is there.
    Done(Box<RoutineRecord>),
    /// Another one has its name, or its webhook's path, or there are too many; the words say which.
    Refused(String),
}

/// Where a firing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FiringStatus {
    /// Claimed, and at work.
    Running,
    /// Done, with nothing to say.
    Ok,
    /// Done, with something to say.
    Attention,
    /// Not done.
    Failed,
    /// Its time passed while nobody could fire it.
    Missed,
}

impl FiringStatus {
    /// The word in the store and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Ok => "ok",
            Self::Attention => "attention",
            Self::Failed => "failed",
            Self::Missed => "missed",
        }
    }

    /// The status of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Running, Self::Ok, Self::Attention, Self::Failed, Self::Missed]
            .into_iter()
            .find(|status| status.word() == word)
    }
}

/// A firing to claim.
#[derive(Clone, Debug, PartialEq)]
pub struct NewFiring {
    /// Its id.
    pub id: FiringId,
    /// The routine's name.
    pub routine: String,
    /// What set it off: a [`Trigger::word`], or `manual`.
    pub by: &'static str,
    /// What makes a second delivery of the same cause recognisable, within the routine: the scheduled time in milliseconds, a
    /// webhook's delivery, a message's key.
    pub key: String,
    /// The scheduled time, where there is one.
    pub scheduled_at: Option<UnixMillis>,
    /// Whether guardrails of time are passed over: cooldown and content. For a firing by hand.
    pub by_hand: bool,
    /// What it was set off with, in short: at most [`FIRING_DETAIL_MAX_CHARS`].
    pub detail: String,
    /// What it was set off with, for the model, as data of the outside; at most [`ROUTINE_TEXT_MAX_BYTES`].
    pub payload: Option<String>,
    /// blake3 of the content, in hex, for [`Guardrails::dedup_window_s`]; `None`: there is none.
    pub content: Option<String>,
    /// Scheduled times that are recorded as missed in the same commit, oldest first.
    pub missed: Vec<UnixMillis>,
    /// The routine's next scheduled time from here on, where it has a schedule.
    pub next_at: Option<UnixMillis>,
    /// The daemon that claims it.
    pub boot: BootId,
    /// When.
    pub at: UnixMillis,
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    /// This daemon has it, and its place.
    Claimed(Box<FiringRecord>),
    /// It was claimed before: by this daemon or another.
    Known(Box<FiringRecord>),
    /// A guardrail holds it back. A scheduled time is recorded as missed, with the guardrail as its summary.
    Held(Held),
    /// There is no such routine, or it cannot fire.
    Off(String),
}

/// The guardrail that holds a firing back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// It fired a moment ago; so many milliseconds are left.
    Cooldown(u64),
    /// As many of it as may be are at work.
    Concurrent,
    /// As many of all as may be are at work.
    Global,
    /// The same content has fired it a moment ago.
    Content,
}

impl Held {
    /// The word in the store, in metrics and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cooldown(_) => "cooldown",
            Self::Concurrent => "max_concurrent",
            Self::Global => "global_concurrent",
            Self::Content => "same_content",
        }
    }
}

/// A firing as the outside sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FiringRecord {
    /// Its id.
    pub firing_id: FiringId,
    /// The routine's name.
    pub routine: String,
    /// The routine's revision when it was claimed.
    pub revision: u32,
    /// What set it off.
    pub by: String,
    /// What makes the cause recognisable.
    pub key: String,
    /// The scheduled time.
    pub scheduled_at: Option<UnixMillis>,
    /// What it was set off with, in short.
    pub detail: String,
    /// What it was set off with.
    #[serde(skip)]
    pub payload: Option<String>,
    /// Where it stands.
    pub status: FiringStatus,
    /// What there is to say: its text, or why it failed, or what held it back.
    pub summary: Option<String>,
    /// The run that did it, for a lightweight one.
    pub run_id: Option<RunId>,
    /// The job that does it, for a full one.
    pub job_id: Option<JobId>,
    /// What it used.
    pub usage: RunUsage,
    /// What it cost, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// When it was claimed.
    pub claimed_at: UnixMillis,
    /// When it ended.
    pub ended_at: Option<UnixMillis>,
}

/// The end of a firing.
#[derive(Clone, Debug)]
pub struct FiringEnd {
    /// Which.
    pub firing: FiringId,
    /// [`FiringStatus::Ok`], [`FiringStatus::Attention`] or [`FiringStatus::Failed`].
    pub status: FiringStatus,
    /// What there is to say.
    pub summary: Option<String>,
    /// What it used.
    pub usage: RunUsage,
    /// What it cost, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// Told in the same commit, if this is its first end.
    pub notice: Option<Outbound>,
    /// Told besides, in the same commit, if this end switches the routine off.
    pub disabled_notice: Option<Outbound>,
    /// When.
    pub at: UnixMillis,
}

/// What became of an end.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// It has ended now; whether its routine was switched off by it.
    Now {
        /// The firing.
        firing: Box<FiringRecord>,
        /// Whether as many failures in a row as may be were reached.
        disabled: bool,
    },
    /// It had ended before, or never was.
    Before,
}

/// Which firings.
#[derive(Clone, Debug, Default)]
pub struct FiringFilter {
    /// Of this routine only.
    pub routine: Option<String>,
    /// With this status only.
    pub status: Option<FiringStatus>,
    /// At most so many, newest first; 0 means 50.
    pub limit: u32,
}

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
        /// What makes a second delivery recognisable.
        delivery: String,
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
}

/// What became of a request about routines.
#[derive(Clone, Debug, PartialEq)]
pub enum RoutineAnswer {
    /// The routine as it stands now.
    Routine(Box<RoutineRecord>),
    /// It is gone.
    Deleted(String),
    /// What was fired, or was before; none where nothing waits for it.
    Fired(Vec<FiringRecord>),
}

/// Most routines in a store.
pub const MAX_ROUTINES: u32 = 20_000;

/// How many routines there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RoutineNumbers {
    /// Those that are on.
    pub enabled: u64,
    /// Firings at work.
    pub at_work: u64,
    /// The earliest next scheduled time; `None`: none has one.
    pub next_at: Option<UnixMillis>,
}

/// Keeps routines and their firings. Every write is committed before it answers.
#[async_trait]
pub trait RoutineStore: Send + Sync {
    /// Makes a routine, switched on, or changes the one of that name. Where the spec differs its revision is raised, its times
    /// are new, and its failures are forgotten; where it does not, they stay, so that putting the same at every start forgets
    /// no time that was missed. Whether it is on stays as it is: who has switched it off switches it on. With `fresh`, one that
    /// is there is refused.
    async fn put(&self, routine: NewRoutine, fresh: bool) -> Result<RoutinePut, StoreError>;

    /// Switches it on, with its next scheduled time and without its failures, or off, with the reason. Times that passed while
    /// it was off are not missed. `None`: there is none.
    async fn enable(
        &self,
        name: &str,
        on: bool,
        why: &str,
        next_at: Option<UnixMillis>,
        at: UnixMillis,
    ) -> Result<Option<RoutineRecord>, StoreError>;

    /// Deletes it; its firings stay as they are. Whether it was there.
    async fn delete(&self, name: &str) -> Result<bool, StoreError>;

    /// The routine of that name.
    async fn routine(&self, name: &str) -> Result<Option<RoutineRecord>, StoreError>;

    /// The routine whose webhook has this path. As it stands this looks through the whole list; a store with an index answers
    /// directly.
    async fn routine_at(&self, path: &str) -> Result<Option<RoutineRecord>, StoreError> {
        let fits = |routine: &RoutineRecord| matches!(&routine.spec.trigger, Trigger::Webhook { path: own, .. } if own == path);
        Ok(self.routines().await?.into_iter().find(fits))
    }

    /// The routines, by name.
    async fn routines(&self) -> Result<Vec<RoutineRecord>, StoreError>;

    /// Enabled routines whose next scheduled time has come, the longest overdue first.
    async fn due(&self, now: UnixMillis, limit: u32) -> Result<Vec<RoutineRecord>, StoreError>;

    /// The earliest next scheduled time of all that are enabled.
    async fn next_due(&self) -> Result<Option<UnixMillis>, StoreError>;

    /// Claims a firing: guardrails and cap are looked at, the row is written, and the routine's times go on, in one
    /// transaction. `global`: firings of all routines that may be at work.
    ///
    /// A key that was claimed before is [`Claim::Known`] whatever has become of the routine since. A scheduled time at or
    /// before [`RoutineRecord::claimed_to`] whose row is gone is [`Claim::Off`]. In both cases the routine goes on to the next
    /// time all the same where it still waits for this one; a later time that it waits for already always stays. A firing
    /// without a scheduled time leaves the times alone.
    async fn claim(&self, firing: NewFiring, global: u32) -> Result<Claim, StoreError>;

    /// Records scheduled times as missed and goes on to the next one, where none of them is fired. Nothing where there is no
    /// such routine, or it is off.
    async fn miss(
        &self,
        name: &str,
        missed: Vec<UnixMillis>,
        next_at: Option<UnixMillis>,
        at: UnixMillis,
    ) -> Result<(), StoreError>;

    /// Notes the run, or the job, that does a firing.
    async fn note_work(&self, firing: FiringId, run: Option<RunId>, job: Option<JobId>) -> Result<(), StoreError>;

    /// Ends a firing, once; counts failures, and switches its routine off where there were too many in a row.
    async fn settle(&self, end: FiringEnd) -> Result<Settled, StoreError>;

    /// The firing of that id.
    async fn firing(&self, id: FiringId) -> Result<Option<FiringRecord>, StoreError>;

    /// Firings, newest first.
    async fn firings(&self, filter: FiringFilter) -> Result<Vec<FiringRecord>, StoreError>;

    /// Firings that have not ended, oldest first.
    async fn open_firings(&self) -> Result<Vec<FiringRecord>, StoreError>;

    /// How many routines there are that are on, and how many firings at work. Cheap.
    async fn numbers(&self) -> Result<RoutineNumbers, StoreError>;
}
