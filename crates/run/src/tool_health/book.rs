//! The tally over all runs, and what is switched off: every transition. Pure but for the instants that it is handed.
//!
//! ```text
//!            a success                         a failure, and a rule says so
//!          ┌───────────┐                  ┌──────────────────────────────────┐
//!          ▼           │                  │                                  ▼
//!   on ── failing (reported once) ────────┘         off ── its time is up ── one call is let through
//!   ▲                                                ▲                          │            │
//!   └──── by hand ──── by hand ──────────────────────┤◀── it fails: twice as long            │
//!   ▲                                                                                        │
//!   └──────────────────────────────── it succeeds ───────────────────────────────────────────┘
//! ```
//!
//! Spans are measured by a clock that nobody sets; dates are for people and for the store.

use std::collections::HashMap;
use std::time::Duration;

use belay_protocol::tool_health::{BY_RULE, LONGEST_OFF_S, SERVER_PREFIX};
use belay_protocol::{RunId, ToolFault, ToolHealth, ToolOff, ToolState, ToolSwitch, UnixMillis};
use tokio::time::Instant;

use super::evidence::{Fault, ToolSignal};
use super::rules::Rules;
use super::streak::Streak;

/// After what time something that still fails is reported again.
const REPORT_AGAIN: Duration = Duration::from_secs(24 * 60 * 60);

/// Subjects whose failures are counted. 512: more than a daemon offers; beyond, the one that failed longest ago is forgotten.
const MAX_COUNTED: usize = 512;

/// Failures of one run, without a success since, from which on a tool is named as what it failed by.
const BLAMED_FROM: usize = 3;

/// This very moment, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) date: UnixMillis,
    pub(super) instant: Instant,
}

/// All that is known.
#[derive(Debug)]
pub(super) struct Book {
    rules: Rules,
    streaks: HashMap<String, Streak>,
    switches: HashMap<String, Switch>,
    /// The highest one that was given to a change.
    revision: u64,
}

#[derive(Debug)]
struct Switch {
    revision: u64,
    off: Option<Off>,
}

#[derive(Debug)]
struct Off {
    record: ToolOff,
    /// From when on one call is let through; `None`: never by itself.
    ends: Option<Instant>,
    /// Whether that call is under way.
    tried: bool,
}

/// How a subject is switched at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    On,
    Off,
    /// Its time is up: the next call is let through.
    Due,
    /// A call that was let through is under way.
    Tried,
}

/// A call that is let through although its subject is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trial {
    subject: String,
    /// Of the switch that it is about: what was switched meanwhile is not settled by it.
    revision: u64,
}

/// What is to be stored and told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It fails again and again.
    Failing { name: String, failures: u32, runs: u32, since: UnixMillis, fault: ToolFault },
    /// It was switched.
    Switched { switch: ToolSwitch, by: String },
}

/// Who switches: the call that was let through.
const BY_TRIAL: &str = "trial";

impl Book {
    /// A book with what is switched off already.
    pub(super) fn new(rules: Rules, switches: Vec<ToolSwitch>, now: Now) -> Self {
        let revision = switches.iter().map(|switch| switch.revision).max().unwrap_or_default();
        let mut book = Self { rules, streaks: HashMap::new(), switches: HashMap::new(), revision };
        for switch in switches {
            book.apply(switch, now);
        }
        book
    }

    /// Whether anything at all may be off.
    pub(super) fn all_on(&self) -> bool {
        self.switches.values().all(|switch| switch.off.is_none())
    }

    fn off(&self, subject: &str) -> Option<&Off> {
        self.switches.get(subject)?.off.as_ref()
    }

    fn stand(&self, subject: &str, now: Now) -> Stand {
        match self.off(subject) {
            None => Stand::On,
            Some(Off { tried: true, .. }) => Stand::Tried,
            Some(Off { ends: Some(ends), .. }) if *ends <= now.instant => Stand::Due,
            Some(_) => Stand::Off,
        }
    }

    /// Whether a call of these subjects is refused, and why, for a model.
    pub(super) fn refusal(&self, subjects: &[String], now: Now) -> Option<String> {
        let closed = |subject: &&String| matches!(self.stand(subject, now), Stand::Off | Stand::Tried);
        let subject = subjects.iter().find(closed)?;
        self.off(subject).map(|off| refused(subject, off))
    }

    /// Lets a call begin; the trials that it is go back with [`Book::ended`] or [`Book::give_back`].
    ///
    /// # Errors
    /// Why it may not, for a model.
    pub(super) fn admit(&mut self, subjects: &[String], now: Now) -> Result<Vec<Trial>, String> {
        if self.switches.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(refusal) = self.refusal(subjects, now) {
            return Err(refusal);
        }
        let mut trials = Vec::new();
        for subject in subjects {
            if let Some(switch) = self.switches.get_mut(subject)
                && let Some(off) = &mut switch.off
            {
                off.tried = true; // it is due: everything else was refused
                trials.push(Trial { subject: subject.clone(), revision: switch.revision });
            }
        }
        Ok(trials)
    }

    /// A call that was let through has said nothing: the next one may.
    pub(super) fn give_back(&mut self, trials: &[Trial]) {
        for trial in trials {
            if let Some(off) = self.tried(trial) {
                off.tried = false;
            }
        }
    }

    /// What is off because of the very switch that a trial is about.
    fn tried(&mut self, trial: &Trial) -> Option<&mut Off> {
        let switch = self.switches.get_mut(&trial.subject)?;
        if switch.revision == trial.revision { switch.off.as_mut() } else { None }
    }

    /// A call has ended.
    pub(super) fn ended(
        &mut self,
        trials: &[Trial],
        subjects: &[String],
        run: RunId,
        says: &ToolSignal,
        now: Now,
    ) -> Vec<News> {
        self.give_back(trials);
        let mut news = Vec::new();
        for subject in subjects {
            let trial = trials.iter().find(|trial| trial.subject == *subject);
            let tried = trial.is_some_and(|trial| self.tried(trial).is_some());
            match (self.off(subject).is_some(), says) {
                (_, ToolSignal::Nothing) => {}
                (false, ToolSignal::Works) => drop(self.streaks.remove(subject)),
                (false, ToolSignal::Fails(fault)) => news.extend(self.failed(subject, run, fault, now)),
                (true, ToolSignal::Works) if tried => news.push(self.switched(subject, None, BY_TRIAL, now)),
                (true, ToolSignal::Fails(fault)) if tried => news.push(self.failed_again(subject, run, fault, now)),
                // It began before that was switched off, and says nothing new of it.
                (true, ToolSignal::Works | ToolSignal::Fails(_)) => {}
            }
        }
        news
    }

    /// A failure of what is on.
    fn failed(&mut self, subject: &str, run: RunId, fault: &Fault, now: Now) -> Option<News> {
        let fault = self.note(subject, run, fault, now);
        let streak = self.streaks.get_mut(subject)?;
        let (failures, runs, since) = (streak.failures, streak.runs(), streak.since);
        let off = self.rules.switches_off(subject).find(|(bar, _)| streak.is_over(*bar, now.instant));
        if let Some((_, for_s)) = off {
            streak.reported = Some(now.instant);
            let why = format!(
                "it failed {failures} times in a row, in {runs} runs, since {}; most recently {}",
                since.to_rfc3339(),
                fault.kind.told()
            );
            let off =
                ToolOff { since: now.date, until: None, for_s, actor: BY_RULE.into(), detail: why, failures, runs };
            return Some(self.switched(subject, Some(off), BY_RULE, now));
        }
        let told = streak.reported.is_some_and(|at| now.instant.saturating_duration_since(at) < REPORT_AGAIN);
        let over = !told && self.rules.reports(subject).any(|bar| streak.is_over(bar, now.instant));
        over.then(|| {
            streak.reported = Some(now.instant);
            News::Failing { name: subject.to_owned(), failures, runs, since, fault }
        })
    }

    /// A failure of a call that was let through: off for twice as long, at most a day.
    fn failed_again(&mut self, subject: &str, run: RunId, fault: &Fault, now: Now) -> News {
        let fault = self.note(subject, run, fault, now);
        let off = self.off(subject).map(|off| {
            let failures = off.record.failures.saturating_add(1);
            let for_s = off.record.for_s.saturating_mul(2).min(LONGEST_OFF_S);
            let why = format!(
                "it failed again on a trial call, after {} failures in a row; most recently {}",
                off.record.failures,
                fault.kind.told()
            );
            ToolOff { since: now.date, until: None, for_s, detail: why, failures, ..off.record.clone() }
        });
        self.switched(subject, off, BY_TRIAL, now)
    }

    /// Counts a failure.
    fn note(&mut self, subject: &str, run: RunId, fault: &Fault, now: Now) -> ToolFault {
        let Fault { kind, fingerprint, quote } = fault.clone();
        let fault = ToolFault { at: now.date, run_id: run, kind, fingerprint, quote };
        if !self.streaks.contains_key(subject) && self.streaks.len() == MAX_COUNTED {
            let oldest = self.streaks.iter().min_by_key(|(_, streak)| streak.newest());
            if let Some(oldest) = oldest.map(|(subject, _)| subject.clone()) {
                self.streaks.remove(&oldest);
            }
        }
        let streak = self.streaks.entry(subject.to_owned()).or_insert_with(|| Streak::new(now.date));
        streak.add(fault.clone(), now.instant);
        fault
    }

    /// Switches a subject at once.
    fn switched(&mut self, subject: &str, off: Option<ToolOff>, by: &str, now: Now) -> News {
        let switch = self.switch(subject, off, now);
        self.apply(switch.clone(), now);
        News::Switched { switch, by: by.to_owned() }
    }

    /// A change that is yet to be made, dated now.
    pub(super) fn switch(&mut self, subject: &str, off: Option<ToolOff>, now: Now) -> ToolSwitch {
        self.revision += 1;
        let until = |for_s: u64| UnixMillis(now.date.0.saturating_add_unsigned(for_s.saturating_mul(1000)));
        let off = off.map(|off| ToolOff { until: (off.for_s > 0).then(|| until(off.for_s)), ..off });
        ToolSwitch { name: subject.to_owned(), revision: self.revision, off }
    }

    /// Makes a change, unless a newer one was made meanwhile: `false`.
    pub(super) fn apply(&mut self, switch: ToolSwitch, now: Now) -> bool {
        let ToolSwitch { name, revision, off } = switch;
        if self.switches.get(&name).is_some_and(|switch| switch.revision >= revision) {
            return false;
        }
        if off.is_none() {
            self.streaks.remove(&name);
        }
        let off = off.map(|record| {
            // Whoever has set the clock meanwhile makes it no longer than it was to be.
            let left = |until: UnixMillis| u64::try_from(until.0.saturating_sub(now.date.0)).unwrap_or(0);
            let left = record.until.map(|until| left(until).min(record.for_s.saturating_mul(1000)));
            Off { ends: left.map(|ms| now.instant + Duration::from_millis(ms)), record, tried: false }
        });
        self.switches.insert(name, Switch { revision, off });
        true
    }

    /// How a subject stands; without its description.
    pub(super) fn health(&self, subject: &str, now: Now) -> ToolHealth {
        let streak = self.streaks.get(subject);
        let last = streak.map(|streak| streak.evidence().iter().cloned().collect()).unwrap_or_default();
        let name = subject.to_owned();
        let state = match self.stand(subject, now) {
            Stand::On if streak.is_some_and(|streak| streak.reported.is_some()) => ToolState::Failing,
            Stand::On => ToolState::Ok,
            Stand::Off => ToolState::Off,
            Stand::Due | Stand::Tried => ToolState::Trial,
        };
        match (self.off(subject), streak) {
            (Some(off), _) => {
                let ToolOff { since, until, actor: by, detail: why, failures, runs, .. } = off.record.clone();
                let description = String::new();
                ToolHealth {
                    name,
                    description,
                    state,
                    failures,
                    runs,
                    since: Some(since),
                    until,
                    actor: by,
                    detail: why,
                    last,
                }
            }
            (None, Some(streak)) => {
                let (failures, runs, since) = (streak.failures, streak.runs(), Some(streak.since));
                ToolHealth { name, state, failures, runs, since, last, ..ToolHealth::default() }
            }
            (None, None) => ToolHealth { name, ..ToolHealth::default() },
        }
    }

    /// How many subjects fail, and how many are off.
    pub(super) fn counts(&self) -> (usize, usize) {
        let off = self.switches.values().filter(|switch| switch.off.is_some()).count();
        let failing = |(subject, streak): &(&String, &Streak)| streak.reported.is_some() && self.off(subject).is_none();
        (self.streaks.iter().filter(failing).count(), off)
    }

    /// The tool that has failed a run most often and has not worked since, and how often.
    pub(super) fn blamed(&self, run: RunId) -> Option<(String, usize)> {
        let tools = self.streaks.iter().filter(|(subject, _)| !subject.starts_with(SERVER_PREFIX));
        let of_run = tools.map(|(subject, streak)| (streak.of_run(run), subject));
        let (times, tool) = of_run.max()?;
        (times >= BLAMED_FROM).then(|| (tool.clone(), times))
    }
}

/// Why a call is refused, for a model. Nothing of what the tool itself has said is in it: that may be words of the outside, or
/// of another conversation.
fn refused(subject: &str, off: &Off) -> String {
    let what = match subject.strip_prefix(SERVER_PREFIX) {
        Some(server) => format!("the MCP server {server}, with all its tools,"),
        None => format!("the tool {subject}"),
    };
    let ToolOff { actor: by, detail: why, until, .. } = &off.record;
    let why = if by == BY_RULE { why.clone() } else { format!("an operator says: {why}") };
    let until = match (off.tried, until) {
        (true, _) => " Another call is testing it at this moment.".to_owned(),
        (false, Some(until)) => format!(" It is tried again after {}.", until.to_rfc3339()),
        (false, None) => String::new(),
    };
    format!(
        "denied: {what} is disabled: {why}.{until} Do not call it again; use another approach, or state what is \
         missing."
    )
}
