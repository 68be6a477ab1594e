//! Who is there in the night: two hundred routines, fifty jobs, and what is done to them.

use std::collections::BTreeMap;

use belay_protocol::{
    Guardrails, JobId, JobOrder, JobRequest, Misfire, Notify, RoutineAction, RoutineRequest, RoutineSpec, Trigger,
};
use serde_json::json;

use super::dice::Dice;
use super::times::When;

pub(super) const ROUTINES: u64 = 200;
pub(super) const JOBS: u64 = 50;

/// What becomes of the work of a routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Nature {
    /// A few model calls.
    Ordinary,
    /// Its model refuses every request: it is switched off after three.
    Broken,
    /// It is at work for longer than there is between its times.
    Slow,
    /// A job does it.
    FullJob,
}

/// A routine of the night.
pub(super) struct Cast {
    pub(super) spec: RoutineSpec,
    pub(super) when: When,
    pub(super) nature: Nature,
    /// What it is counted under in the ledger.
    pub(super) kind: &'static str,
}

const ZONES: [&str; 6] =
    ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland", "Europe/London"];
const MISFIRES: [Misfire; 4] = [Misfire::Skip, Misfire::Once, Misfire::Once, Misfire::All(3)];

/// Failures in a row after which the broken ones are switched off.
pub(super) const MOST_FAILURES: u32 = 3;

fn guard() -> Guardrails {
    Guardrails { cooldown_s: 0, max_concurrent: 1, dedup_window_s: 0, max_failures: 0 }
}

/// The nature of the routine of that number.
pub(super) fn nature(n: u64) -> Nature {
    match n {
        141..143 => Nature::Slow,
        143..145 => Nature::Broken,
        192.. => Nature::FullJob,
        _ => Nature::Ordinary,
    }
}

/// The routine of that number, in a night of so many seconds.
pub(super) fn routine(dice: Dice, n: u64, dusk: i64, night_s: u64) -> Cast {
    let name = format!("r{n:03}");
    let minute = i8::try_from(dice.roll("minute", n, 60)).expect("an hour");
    let zone = dice.pick("zone", n, &ZONES);
    let (nature, mut guard) = (nature(n), guard());
    let any: Option<Vec<i8>> = None;
    let (kind, when) = match n {
        0..40 => ("cron, hourly", When::clock(zone, vec![minute], any, true)),
        40..60 => ("cron, top of the hour", When::clock(zone, vec![0], any, true)),
        60..68 => ("cron, each quarter", When::clock(zone, (0..60).step_by(15).collect(), any, true)),
        68..108 => {
            let first = i8::try_from(dice.roll("hour", n, 20)).expect("a day");
            ("cron, fixed times", When::clock(zone, vec![minute], Some(vec![first, first + 2, first + 3]), false))
        }
        108..123 => ("every", When::Every { seconds: 1000 + dice.roll("every", n, 6000) }),
        123..138 => {
            let ms = i64::try_from(60 + dice.roll("at", n, night_s - 120)).expect("a night") * 1000;
            ("at", When::At(dusk + ms))
        }
        138..141 => {
            guard.cooldown_s = 1500;
            ("cron, cooled down", When::clock(zone, (0..60).step_by(10).collect(), any, true))
        }
        141..143 => ("cron, overlapping", When::clock("UTC", (0..60).step_by(5).collect(), any, true)),
        143..145 => {
            guard.max_failures = MOST_FAILURES;
            ("cron, broken", When::clock(zone, vec![minute], any, true))
        }
        145..160 => ("message", When::Message),
        160..175 => ("webhook", When::Webhook),
        175..187 => ("system event", When::Event),
        187..192 => ("by hand", When::Hand),
        _ => {
            let every_three = (0..24).step_by(3).collect();
            ("full job", When::clock("UTC", vec![minute], Some(every_three), true))
        }
    };
    if kind != "cron, overlapping" && !matches!(when, When::Clock { .. } | When::Every { .. } | When::At(_)) {
        guard.max_concurrent = 5;
    }
    let action = match nature {
        Nature::FullJob => RoutineAction::FullJob {
            task: format!("[{name}] tidy up"),
            plan: false,
            runs_in: Default::default(),
            budget: Default::default(),
        },
        _ => RoutineAction::Lightweight {
            prompt: format!("[{name}] look after it"),
            files: Vec::new(),
            use_tools: n.is_multiple_of(2) && nature == Nature::Ordinary,
            max_tool_rounds: 3,
        },
    };
    let trigger = match &when {
        When::Clock { .. } | When::Every { .. } | When::At(_) => {
            let (when, zone) = when.text();
            Trigger::Schedule { when, zone, misfire: dice.pick("misfire", n, &MISFIRES) }
        }
        When::Message => Trigger::Event { pattern: format!("\\b{name}\\b"), channel: None },
        When::Webhook => Trigger::Webhook { path: name.clone(), secret_sha256: "0".repeat(64) },
        When::Event => Trigger::System { source: "ci".into(), event: name.clone(), filters: BTreeMap::new() },
        When::Hand => Trigger::Manual,
    };
    let spec = RoutineSpec {
        name,
        description: String::new(),
        trigger,
        action,
        guard,
        notify: Notify::default(),
        allow: Vec::new(),
    };
    Cast { spec, when, nature, kind }
}

/// What happens with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum JobKind {
    Plain,
    WithPlan,
    Long,
    SilentOnce,
    SilentForEver,
    TalkedTo,
    Cancelled,
    Poison,
    GivesUp,
}

impl JobKind {
    pub(super) fn of(n: u64) -> Self {
        match n {
            0..20 => Self::Plain,
            20..25 => Self::WithPlan,
            25..31 => Self::Long,
            31..36 => Self::SilentOnce,
            36..38 => Self::SilentForEver,
            38..42 => Self::TalkedTo,
            42..46 => Self::Cancelled,
            46..48 => Self::Poison,
            _ => Self::GivesUp,
        }
    }
}

/// The tag of a job, by which its model knows it.
pub(super) fn job_tag(n: u64) -> String {
    format!("j{n:03}")
}

/// Something that somebody does from outside.
#[derive(Clone, Debug)]
pub(super) enum Deed {
    /// Says this.
    Say(String),
    /// Asks this about routines. Sent again it is the same.
    Routine(RoutineRequest),
    /// Asks this about jobs.
    Job(JobRequest),
}

/// A deed, when it is done, and by what it is recognised.
#[derive(Clone, Debug)]
pub(super) struct Act {
    pub(super) after_s: u64,
    pub(super) key: String,
    /// The number of the routine or the job that it is about.
    pub(super) about: u64,
    pub(super) deed: Deed,
}

/// All that is done in a night of so many seconds.
pub(super) fn acts(dice: Dice, jobs: &[JobId], night_s: u64) -> Vec<Act> {
    let mut acts = Vec::new();
    for n in 145..192 {
        for time in 0..4 {
            let name = format!("r{n:03}");
            let key = format!("{name}-{time}");
            let after_s = 60 + dice.roll(&key, 0, night_s - 600);
            let deed = match n {
                145..160 => Deed::Say(format!("please look at {name} once more")),
                160..175 => Deed::Routine(RoutineRequest::Webhook {
                    name,
                    delivery: Some(key.clone()),
                    payload: format!("call {time}"),
                }),
                175..187 => Deed::Routine(RoutineRequest::Emit {
                    source: "ci".into(),
                    event: name,
                    key: Some(key.clone()),
                    payload: json!({"time": time}),
                }),
                _ => Deed::Routine(RoutineRequest::Fire { name, payload: None }),
            };
            // One in three comes twice, as platforms deliver.
            if dice.roll(&key, 1, 3) == 0 {
                let later = after_s + dice.roll(&key, 2, 900);
                acts.push(Act { after_s: later, key: key.clone(), about: n, deed: deed.clone() });
            }
            acts.push(Act { after_s, key, about: n, deed });
        }
    }
    for (n, id) in (0..).zip(jobs) {
        let (tag, kind) = (job_tag(n), JobKind::of(n));
        let within = night_s - if kind == JobKind::Long { 5 * 3600 } else { 3600 };
        let after_s = 30 + dice.roll(&tag, 0, within);
        let order = JobOrder {
            job_id: Some(*id),
            title: Some(tag.clone()),
            task: format!("[{tag}] work"),
            plan: kind == JobKind::WithPlan,
            ..JobOrder::default()
        };
        let mut act = |later: u64, what: &str, deed: Deed| {
            acts.push(Act { after_s: after_s + later, key: format!("{tag}-{what}"), about: n, deed });
        };
        act(0, "make", Deed::Job(JobRequest::Create(order)));
        match kind {
            JobKind::TalkedTo => {
                for said in 1..=3 {
                    act(said * 120, &format!("say-{said}"), Deed::Say(format!("/job {id} remark {said}")));
                }
            }
            JobKind::Cancelled => act(300, "cancel", Deed::Job(JobRequest::Cancel(*id))),
            _ => {}
        }
    }
    acts
}
