//! The failure counts of all runs, and the disabled tools and servers: a state machine with every transition. Pure,
//! apart from the instants in its arguments.
//!
//! | state | event | next state |
//! |---|---|---|
//! | ok | the failures reach a threshold for reports | failing; reported, and again once a day |
//! | ok, failing | the failures reach the threshold of a rule that disables | disabled |
//! | ok, failing | a success | ok; the failure count is 0 |
//! | disabled | its time is over | trial: one call is admitted |
//! | trial | the call succeeds | ok |
//! | trial | the call fails | disabled, for twice as long, at most a day |
//! | trial | the call ends without a result | trial: another call is admitted |
//! | any | a person disables it, or enables it | disabled, without an end; ok |
//!
//! Time spans use a monotonic clock; dates are for people and for the store.

use std::collections::HashMap;
use std::time::Duration;

use belay_protocol::tool_health::{BY_RULE, LONGEST_OFF_S, SERVER_PREFIX};
use belay_protocol::{RunId, ToolFault, ToolHealth, ToolOff, ToolState, ToolSwitch, UnixMillis};
use tokio::time::Instant;

use super::evidence::{Fault, ToolSignal};
use super::rules::Rules;
use super::streak::Streak;

/// Time after which a subject that still fails is reported again.
const REPORT_AGAIN: Duration = Duration::from_secs(24 * 60 * 60);

/// Maximum number of subjects with failure counts. 512: more than a daemon offers. Beyond it, the subject whose last
/// failure is oldest is evicted.
const MAX_COUNTED: usize = 512;

/// Minimum number of failures of one run, without a success since, for naming a tool as the cause.
const BLAMED_FROM: usize = 3;

/// The current time of both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) date: UnixMillis,
    pub(super) instant: Instant,
}

/// The state of all subjects: tools and MCP servers.
#[derive(Debug)]
pub(super) struct Book {
    rules: Rules,
    streaks: HashMap<String, Streak>,
    /// The calls of each subject since the start, at most [`MAX_COUNTED`] subjects.
    calls: HashMap<String, Calls>,
    switches: HashMap<String, Switch>,
    /// The highest revision assigned to a change.
    revision: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    all: u64,
    failed: u64,
}

#[derive(Debug)]
struct Switch {
    revision: u64,
    off: Option<Off>,
}

impl Switch {
    /// Whether it is the result of this change.
    fn is(&self, change: &ToolSwitch) -> bool {
        self.revision == change.revision && self.off.as_ref().map(|off| &off.record) == change.off.as_ref()
    }
}

#[derive(Debug)]
struct Off {
    record: ToolOff,
    /// Time from which one trial call is admitted; `None`: only a person enables it.
    ends: Option<Instant>,
    /// Whether a trial call is in progress.
    tried: bool,
}

/// State of a subject at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    On,
    Off,
    /// The time is over: the next call is admitted as a trial.
    Due,
    /// A trial call is in progress.
    Tried,
}

/// A trial call: admitted although its subject is disabled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trial {
    subject: String,
    /// Revision of the change that disabled the subject. The trial does not affect a newer change.
    revision: u64,
}

/// A change that the caller stores and reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The subject fails repeatedly.
    Failing { name: String, failures: u32, runs: u32, since: UnixMillis, fault: ToolFault },
    /// The subject was disabled or enabled.
    Switched { switch: ToolSwitch, by: String },
}

/// Actor of a change that a trial call caused.
const BY_TRIAL: &str = "trial";

impl Book {
    /// A book with the stored changes.
    pub(super) fn new(rules: Rules, switches: Vec<ToolSwitch>, now: Now) -> Self {
        let revision = switches.iter().map(|switch| switch.revision).max().unwrap_or_default();
        let mut book =
            Self { rules, streaks: HashMap::new(), calls: HashMap::new(), switches: HashMap::new(), revision };
        for switch in switches {
            book.apply(switch, now);
        }
        book
    }

    /// Whether no subject is disabled.
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

    /// The reason why a call of these subjects is refused, for a model; `None`: it is not refused.
    pub(super) fn refusal(&self, subjects: &[String], now: Now) -> Option<String> {
        let closed = |subject: &&String| matches!(self.stand(subject, now), Stand::Off | Stand::Tried);
        let subject = subjects.iter().find(closed)?;
        self.off(subject).map(|off| refused(subject, off))
    }

    /// Admits a call. The caller returns the trials with [`Book::ended`] or [`Book::give_back`].
    ///
    /// # Errors
    /// The reason for the refusal, for a model.
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
                off.tried = true; // a trial is due, since other disabled subjects were refused above
                trials.push(Trial { subject: subject.clone(), revision: switch.revision });
            }
        }
        Ok(trials)
    }

    /// Returns trials without a result, so that the next call may be the trial.
    pub(super) fn give_back(&mut self, trials: &[Trial]) {
        for trial in trials {
            if let Some(off) = self.tried(trial) {
                off.tried = false;
            }
        }
    }

    /// The disabled state that a trial belongs to, unless it has changed meanwhile.
    fn tried(&mut self, trial: &Trial) -> Option<&mut Off> {
        let switch = self.switches.get_mut(&trial.subject)?;
        if switch.revision == trial.revision { switch.off.as_mut() } else { None }
    }

    /// Evaluates the end of a call.
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
            self.count(subject, says);
            let trial = trials.iter().find(|trial| trial.subject == *subject);
            let tried = trial.is_some_and(|trial| self.tried(trial).is_some());
            match (self.off(subject).is_some(), says) {
                (_, ToolSignal::Nothing) => {}
                (false, ToolSignal::Works) => drop(self.streaks.remove(subject)),
                (false, ToolSignal::Fails(fault)) => news.extend(self.failed(subject, run, fault, now)),
                (true, ToolSignal::Works) if tried => news.push(self.switched(subject, None, BY_TRIAL, now)),
                (true, ToolSignal::Fails(fault)) if tried => news.push(self.failed_again(subject, run, fault, now)),
                // The call began before its subject was disabled, so it shows nothing new.
                (true, ToolSignal::Works | ToolSignal::Fails(_)) => {}
            }
        }
        news
    }

    /// Counts a call that has ended.
    fn count(&mut self, subject: &str, says: &ToolSignal) {
        if *says == ToolSignal::Nothing {
            return;
        }
        if !self.calls.contains_key(subject) {
            if self.calls.len() == MAX_COUNTED {
                return;
            }
            self.calls.insert(subject.to_owned(), Calls::default());
        }
        if let Some(calls) = self.calls.get_mut(subject) {
            calls.all += 1;
            calls.failed += u64::from(matches!(says, ToolSignal::Fails(_)));
        }
    }

    /// Handles a failure of an enabled subject.
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

    /// Handles a failed trial call: disables the subject for twice as long, at most a day.
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

    /// Changes the state of a subject at once.
    fn switched(&mut self, subject: &str, off: Option<ToolOff>, by: &str, now: Now) -> News {
        let switch = self.switch(subject, off, now);
        self.apply(switch.clone(), now);
        News::Switched { switch, by: by.to_owned() }
    }

    /// Makes a change with the current date, without applying it.
    pub(super) fn switch(&mut self, subject: &str, off: Option<ToolOff>, now: Now) -> ToolSwitch {
        self.revision += 1;
        let until = |for_s: u64| UnixMillis(now.date.0.saturating_add_unsigned(for_s.saturating_mul(1000)));
        let off = off.map(|off| ToolOff { until: (off.for_s > 0).then(|| until(off.for_s)), ..off });
        ToolSwitch { name: subject.to_owned(), revision: self.revision, off }
    }

    /// Applies the stored changes that the book does not have. Of two changes with one revision, the stored one counts:
    /// another daemon has written it first.
    pub(super) fn reload(&mut self, stored: Vec<ToolSwitch>, now: Now) {
        for switch in stored {
            self.revision = self.revision.max(switch.revision);
            let known = self.switches.get(&switch.name);
            if known.is_some_and(|known| known.revision == switch.revision && !known.is(&switch)) {
                self.switches.remove(&switch.name);
            }
            self.apply(switch, now);
        }
    }

    /// Applies a change. Returns `false` if a newer change was applied meanwhile.
    pub(super) fn apply(&mut self, switch: ToolSwitch, now: Now) -> bool {
        if let Some(known) = self.switches.get(&switch.name)
            && known.revision >= switch.revision
        {
            return known.is(&switch); // a reload may have applied it
        }
        let ToolSwitch { name, revision, off } = switch;
        if off.is_none() {
            self.streaks.remove(&name);
        }
        let off = off.map(|record| {
            // If the system clock was changed meanwhile, the time is still no longer than planned.
            let left = |until: UnixMillis| u64::try_from(until.0.saturating_sub(now.date.0)).unwrap_or(0);
            let left = record.until.map(|until| left(until).min(record.for_s.saturating_mul(1000)));
            Off { ends: left.map(|ms| now.instant + Duration::from_millis(ms)), record, tried: false }
        });
        self.switches.insert(name, Switch { revision, off });
        true
    }

    /// The health of a subject, without its description.
    pub(super) fn health(&self, subject: &str, now: Now) -> ToolHealth {
        let Calls { all: calls, failed } = self.calls.get(subject).copied().unwrap_or_default();
        ToolHealth { calls, failed, ..self.condition(subject, now) }
    }

    /// The health of a subject without its description and its calls.
    fn condition(&self, subject: &str, now: Now) -> ToolHealth {
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
                ToolHealth {
                    name,
                    state,
                    failures,
                    runs,
                    since: Some(since),
                    until,
                    actor: by,
                    detail: why,
                    last,
                    ..ToolHealth::default()
                }
            }
            (None, Some(streak)) => {
                let (failures, runs, since) = (streak.failures, streak.runs(), Some(streak.since));
                ToolHealth { name, state, failures, runs, since, last, ..ToolHealth::default() }
            }
            (None, None) => ToolHealth { name, ..ToolHealth::default() },
        }
    }

    /// The number of failing enabled subjects, and of disabled ones.
    pub(super) fn counts(&self) -> (usize, usize) {
        let off = self.switches.values().filter(|switch| switch.off.is_some()).count();
        let failing = |(subject, streak): &(&String, &Streak)| streak.reported.is_some() && self.off(subject).is_none();
        (self.streaks.iter().filter(failing).count(), off)
    }

    /// The tool with the most failures in this run since its last success, and their number.
    pub(super) fn blamed(&self, run: RunId) -> Option<(String, usize)> {
        let tools = self.streaks.iter().filter(|(subject, _)| !subject.starts_with(SERVER_PREFIX));
        let of_run = tools.map(|(subject, streak)| (streak.of_run(run), subject));
        let (times, tool) = of_run.max()?;
        (times >= BLAMED_FROM).then(|| (tool.clone(), times))
    }
}

/// The reason for a refusal, for a model. It contains no text of the tool, which may be untrusted content or belong to
/// another conversation.
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
