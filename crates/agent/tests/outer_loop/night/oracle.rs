//! Looks at everything that the night has left, and says what is wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

use belay_protocol::{
    Ack, EventKind, EventLog, EventQuery, Held, JobFilter, JobId, JobReader, JobRecord, JobState, MessageBody, Purpose,
    RoutineAnswer, RoutineReader, RoutineRecord, RoutineRunFilter, RoutineRunRecord, RoutineRunStatus, RunFilter,
    RunReader, Seq, SessionKey, SpendLedger, Spent, ToolStatus, UnixMillis, job_session, routine_run_session,
};

use super::cast::{Act, Cast, Deed, JobKind, MOST_FAILURES, Nature, job_tag};
use super::ledger::Ledger;
use super::model::NightModel;
use super::world::{Life, World};
use super::{Answers, Crashes};

/// A time that is later counts as missed: the grace of routines.
const GRACE_MS: i64 = 60_000;

/// How many of a hundred are done at least, where nothing but chance is against it: a model that errs in five calls of a
/// hundred, and a crash every ten minutes.
const MOSTLY: u64 = 70;

/// How many of a hundred times of a routine of this kind are done at least.
fn least_done(kind: &str) -> u64 {
    match kind {
        "cron, broken" => 0,
        "cron, cooled down" => 20, // of three times the guardrail holds back two
        "cron, overlapping" => 30, // the routine run before is at work at one of two
        _ => MOSTLY,
    }
}

/// How many of a hundred jobs of this kind are submitted at least.
fn least_submitted(kind: JobKind) -> u64 {
    match kind {
        JobKind::Plain | JobKind::WithPlan | JobKind::SilentOnce | JobKind::TalkedTo => 60, // there are four of some
        // What is at work for hours may be given up after crashes; the rest is cancelled, or cannot be done.
        JobKind::Long | JobKind::Cancelled | JobKind::SilentForEver | JobKind::Poison | JobKind::GivesUp => 0,
    }
}

struct Oracle<'a> {
    world: &'a World,
    life: &'a Life,
    ledger: Ledger,
    wrong: Vec<String>,
    /// What whoever made something should have been told, how often.
    told: BTreeMap<String, usize>,
    runs_cost: u64,
}

/// Checks everything.
pub(super) async fn check(
    world: &World,
    life: &Life,
    cast: &[Cast],
    jobs: &[JobId],
    answers: &Answers,
    crashes: Crashes,
    dawn_at: UnixMillis,
) -> (Ledger, Vec<String>) {
    let ledger = Ledger { seed: world.dice.0, crashes, ..Ledger::default() };
    let mut oracle = Oracle { world, life, ledger, wrong: Vec::new(), told: BTreeMap::new(), runs_cost: 0 };
    let mut sessions = Vec::new();
    for (n, cast) in (0..).zip(cast) {
        let routine_runs = oracle.routine(cast, dawn_at).await;
        oracle.set_off(n, cast, &routine_runs, answers);
        sessions.extend(routine_runs.iter().map(|routine_run| routine_run_session(routine_run.routine_run_id)));
    }
    sessions.extend(oracle.jobs(jobs, cast).await);
    oracle.sessions(&sessions).await;
    oracle.events().await;
    oracle.post();
    oracle.money().await;
    oracle.model();
    oracle.enough();
    (oracle.ledger, oracle.wrong)
}

impl Oracle<'_> {
    fn wrong(&mut self, what: String) {
        self.wrong.push(what);
    }

    /// Every time of its schedule has one row, and every row is an honest end.
    async fn routine(&mut self, cast: &Cast, dawn_at: UnixMillis) -> Vec<RoutineRunRecord> {
        let (name, store) = (&cast.spec.name, &self.life.store);
        let routine = store.routine(name).await.expect("readable").expect("there");
        let filter = RoutineRunFilter { routine: Some(name.clone()), limit: 1000, ..RoutineRunFilter::default() };
        let mut routine_runs = store.routine_runs(filter).await.expect("readable");
        routine_runs.reverse();
        let line = self.ledger.kinds.entry(cast.kind).or_default();
        line.routines += 1;
        for routine_run in &routine_runs {
            let held = routine_run.status == RoutineRunStatus::Missed && routine_run.summary.is_some();
            line.count(routine_run, held);
        }
        self.times(cast, &routine, &routine_runs, dawn_at);
        for routine_run in &routine_runs {
            self.routine_run(cast, routine_run).await;
        }
        routine_runs
    }

    fn times(&mut self, cast: &Cast, routine: &RoutineRecord, routine_runs: &[RoutineRunRecord], dawn_at: UnixMillis) {
        let name = &cast.spec.name;
        let mut seen = BTreeMap::new();
        for time in routine_runs.iter().filter_map(|routine_run| routine_run.scheduled_at) {
            *seen.entry(time.0).or_insert(0) += 1;
        }
        let mut expected = cast.when.between(routine.created_at.0, self.world.now().0);
        if cast.nature == Nature::Broken {
            let failed =
                routine_runs.iter().filter(|routine_run| routine_run.status == RoutineRunStatus::Failed).count();
            if failed != MOST_FAILURES as usize || routine.enabled {
                self.wrong(format!("{name}: failed {failed} times in a row and is on: {}", routine.enabled));
            }
            // Nothing is expected of it once it is off.
            let last = seen.keys().next_back().copied().unwrap_or(0);
            expected.retain(|time| *time <= last);
        }
        let line = self.ledger.kinds.entry(cast.kind).or_default();
        line.expected += expected.range(..=dawn_at.0).count();
        for (time, times) in &seen {
            if *times != 1 {
                self.wrong(format!("{name}: {} has {times} routine runs", UnixMillis(*time).to_rfc3339()));
            }
            if !expected.contains(time) {
                self.wrong(format!("{name}: {} is no time of its schedule", UnixMillis(*time).to_rfc3339()));
            }
        }
        for time in expected.range(..=dawn_at.0).filter(|time| !seen.contains_key(time)) {
            let (from, at) = (routine.created_at.to_rfc3339(), UnixMillis(*time).to_rfc3339());
            self.wrong(format!("{name} ({:?}, since {from}): {at} has no routine run", cast.spec.trigger));
        }
    }

    async fn routine_run(&mut self, cast: &Cast, routine_run: &RoutineRunRecord) {
        let (name, id) = (&cast.spec.name, routine_run.routine_run_id);
        let summary = routine_run.summary.as_deref().unwrap_or("");
        match routine_run.status {
            RoutineRunStatus::Running => self.wrong(format!("{name}: {id} has not ended")),
            RoutineRunStatus::Skipped => self.wrong(format!("{name}: {id} was skipped, which only the heartbeat is")),
            RoutineRunStatus::Ok => {}
            RoutineRunStatus::Attention => *self.told.entry(format!("Routine {name}: {summary}")).or_default() += 1,
            RoutineRunStatus::Failed if summary.is_empty() => self.wrong(format!("{name}: {id} failed without a word")),
            RoutineRunStatus::Failed => {
                *self.ledger.whys.entry(format!("routine run: {summary}")).or_default() += 1;
                *self.told.entry(format!("The routine {name} failed: {summary}")).or_default() += 1;
            }
            RoutineRunStatus::Missed => {
                let late = routine_run.scheduled_at.is_some_and(|time| routine_run.claimed_at.0 - time.0 > GRACE_MS);
                if summary.is_empty() && !late {
                    self.wrong(format!("{name}: {id} was missed for no reason: {routine_run:?}"));
                }
                if summary == Held::Global.word() {
                    self.wrong(format!("{name}: {id} was missed, and would have had a place later: {routine_run:?}"));
                }
            }
        }
        if routine_run.ended_at.is_none() || routine_run.status == RoutineRunStatus::Missed {
            return;
        }
        if let Some(run) = routine_run.run_id {
            let run = self.life.store.run(run).await.expect("readable").expect("known");
            let said = run.reply.clone().unwrap_or_default();
            if !run.status.is_end() || (routine_run.status == RoutineRunStatus::Attention && said != summary) {
                self.wrong(format!("{name}: {routine_run:?} is not what its run came to: {run:?}"));
            }
        } else if (cast.nature == Nature::FullJob) != routine_run.job_id.is_some()
            && routine_run.status != RoutineRunStatus::Failed
        {
            self.wrong(format!("{name}: nothing did the work of {routine_run:?}"));
        }
    }

    /// What came from outside has set off one routine run where it was said to, and none where it was not.
    fn set_off(&mut self, n: u64, cast: &Cast, routine_runs: &[RoutineRunRecord], answers: &Answers) {
        let mut asked: BTreeMap<&str, bool> = BTreeMap::new();
        for (act, answer) in answers.iter().filter(|(act, _)| act.about == n && act.key.starts_with('r')) {
            match begun(act, answer) {
                Ok(begun) => *asked.entry(&act.key).or_default() |= begun,
                Err(()) => self.wrong(format!("{}: was answered {}", act.key, short(&format!("{answer:?}")))),
            }
        }
        let called: Vec<&RoutineRunRecord> =
            routine_runs.iter().filter(|routine_run| routine_run.scheduled_at.is_none()).collect();
        for (key, begun) in &asked {
            let times = called.iter().filter(|routine_run| routine_run.key.ends_with(key)).count();
            self.ledger.turned_away += u64::from(!begun && times == 0);
            if times > 1 || (*begun && times == 0) {
                self.wrong(format!("{key}: begun: {begun}, and has {times} routine runs"));
            }
        }
        let unasked = called.iter().filter(|routine_run| !asked.keys().any(|key| routine_run.key.ends_with(key)));
        for routine_run in unasked.cloned().cloned().collect::<Vec<_>>() {
            self.wrong(format!("{}: nobody has asked for {routine_run:?}", cast.spec.name));
        }
        self.ledger.kinds.entry(cast.kind).or_default().expected += asked.len();
    }

    /// Every job is over as its kind may be, and whoever asked is told once. Returns the sessions of all.
    async fn jobs(&mut self, own: &[JobId], cast: &[Cast]) -> Vec<SessionKey> {
        let filter = JobFilter { limit: 1000, ..JobFilter::default() };
        let all = self.life.store.jobs(filter).await.expect("readable");
        for (n, id) in (0..).zip(own) {
            match all.iter().find(|job| job.job_id == *id) {
                Some(job) => self.job(n, job),
                None => self.wrong(format!("the job {} is gone", job_tag(n))),
            }
        }
        for job in all.iter().filter(|job| !own.contains(&job.job_id)) {
            self.ledger.job(None, job.state, job.attempt);
            if job.routine_run.is_none() || !job.state.is_over() {
                self.wrong(format!("nobody has asked for the job {job:?}, or it goes on"));
            }
        }
        let full = cast.iter().filter(|cast| cast.nature == Nature::FullJob).count();
        if all.len() <= own.len() && full > 0 {
            self.wrong("no routine has made a job".into());
        }
        all.iter().map(|job| job_session(job.job_id)).collect()
    }

    fn job(&mut self, n: u64, job: &JobRecord) {
        let (kind, tag, id) = (JobKind::of(n), job_tag(n), job.job_id);
        self.ledger.job(Some(kind), job.state, job.attempt);
        let honest = match (kind, job.state) {
            (JobKind::Cancelled, JobState::Cancelled | JobState::Submitted) => true,
            (JobKind::SilentForEver | JobKind::Poison | JobKind::GivesUp, state) => state == JobState::Failed,
            (_, JobState::Submitted) => job.result.as_ref().is_some_and(|result| result.contains(&tag)),
            (_, JobState::Failed) => !job.detail.is_empty(),
            _ => false,
        };
        if !honest {
            self.wrong(format!("{tag} ({kind:?}) has come to {:?} ({}): {:?}", job.state, job.detail, job.result));
        }
        if kind == JobKind::Poison && !job.detail.contains("crashed 2 times in a row") {
            self.wrong(format!("{tag} kills, and has failed since {}", job.detail));
        }
        if job.state == JobState::Failed {
            *self.ledger.whys.entry(format!("{kind:?}: {}", job.detail)).or_default() += 1;
        }
        let words = match job.state {
            JobState::Submitted => "is done.",
            JobState::Failed => "has failed",
            _ => return,
        };
        *self.told.entry(format!("Job “{tag}” ({id}) {words}")).or_default() += 1;
    }

    /// In the sessions of work every run has ended; effects were had at most once, and what the model knows of was had.
    async fn sessions(&mut self, sessions: &[SessionKey]) {
        let effects = self.world.tools.effects();
        self.ledger.effects = effects.len();
        for ((session, step), times) in effects.iter().filter(|(_, times)| **times > 1) {
            self.wrong(format!("{session}: step {step} was done {times} times"));
        }
        for session in sessions {
            let filter = RunFilter { session: Some(session.clone()), limit: 1000, ..RunFilter::default() };
            let runs = self.life.store.runs(filter).await.expect("readable");
            if runs.len() > 1 && session.as_str().starts_with("routine:") {
                self.wrong(format!("{session}: one routine run has had {} runs", runs.len()));
            }
            for run in runs {
                self.runs_cost += run.cost_micro_usd;
                if !run.status.is_end() {
                    self.wrong(format!("{session}: the run {} goes on", run.run_id));
                }
                for message in self.life.store.run_messages(run.run_id).await.expect("readable") {
                    let MessageBody::Tool(result) = &message.body else { continue };
                    if result.name != "post" || result.status != ToolStatus::Success {
                        continue;
                    }
                    let step = result.text.split(' ').nth(1).and_then(|step| step.parse().ok()).unwrap_or(0);
                    self.ledger.confirmed += 1;
                    if !effects.contains_key(&(session.as_str().to_owned(), step)) {
                        self.wrong(format!("{session}: step {step} is said to be done and was not"));
                    }
                }
            }
        }
    }

    /// So much was done that what has failed or was missed is the exception.
    fn enough(&mut self) {
        let mut wrong = Vec::new();
        for (kind, line) in &self.ledger.kinds {
            let done = line.count_of("ok") + line.count_of("attention");
            if done * 100 < line.expected as u64 * least_done(kind) {
                wrong.push(format!("{kind}: of {} times {done} were done", line.expected));
            }
        }
        let mut jobs: BTreeMap<Option<JobKind>, [u64; 2]> = BTreeMap::new();
        for ((kind, state), count) in &self.ledger.jobs {
            let [all, done] = jobs.entry(*kind).or_default();
            *all += count;
            *done += if *state == JobState::Submitted.word() { *count } else { 0 };
        }
        for (kind, [all, done]) in jobs {
            if done * 100 < all * kind.map_or(MOSTLY, least_submitted) {
                wrong.push(format!("{kind:?}: of {all} jobs {done} were done"));
            }
        }
        self.wrong.append(&mut wrong);
    }

    /// The log tells of one beginning and one end of everything, and of legal changes only.
    async fn events(&mut self) {
        let mut runs: BTreeMap<String, (u32, u32)> = BTreeMap::new();
        let mut routine_runs: BTreeMap<String, (u32, u32)> = BTreeMap::new();
        let mut jobs: BTreeMap<String, JobState> = BTreeMap::new();
        let mut after = Seq(0);
        loop {
            let query = EventQuery { after, limit: 1000, ..EventQuery::default() };
            let page = self.life.store.read(query).await.expect("readable");
            let Some(last) = page.last() else { break };
            after = last.seq;
            for event in page {
                let run = || event.run_id.map(|run| run.to_string()).unwrap_or_default();
                match event.kind {
                    EventKind::RunAccepted => runs.entry(run()).or_default().0 += 1,
                    EventKind::RunEnded { .. } => runs.entry(run()).or_default().1 += 1,
                    EventKind::RoutineRunStarted { routine_run, .. } => {
                        routine_runs.entry(routine_run.to_string()).or_default().0 += 1
                    }
                    EventKind::RoutineRunEnded { routine_run, .. } => {
                        routine_runs.entry(routine_run.to_string()).or_default().1 += 1
                    }
                    EventKind::JobChanged { job, from, to, .. } => {
                        let before = jobs.insert(job.to_string(), to);
                        if before != from || from.is_some_and(|from| !from.may_become(to)) {
                            self.wrong(format!("the job {job} went from {before:?}, said to be {from:?}, to {to:?}"));
                        }
                    }
                    _ => {}
                }
            }
        }
        let unpaired = runs.iter().chain(&routine_runs).filter(|(_, counts)| **counts != (1, 1));
        for what in unpaired.map(|(id, counts)| format!("{id}: begun and ended {counts:?} times")).collect::<Vec<_>>() {
            self.wrong(what);
        }
    }

    /// Everybody was told what there was to tell, once.
    fn post(&mut self) {
        let post = self.world.post.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wrong = Vec::new();
        let mut told: BTreeMap<String, usize> = BTreeMap::new();
        let mut switched_off = BTreeSet::new();
        for (id, message) in &post.committed {
            let shown = post.shown.get(id).copied().unwrap_or(0);
            if shown > 1 || (shown == 0 && !post.ambiguous.contains(id)) {
                wrong.push(format!("shown {shown} times: {}", message.text));
            }
            let text = &message.text;
            let first = text.lines().next().unwrap_or_default();
            if text.starts_with("The routine ") && text.contains(" is disabled: ") {
                if !switched_off.insert(text.clone()) {
                    wrong.push(format!("told twice: {text}"));
                }
            } else if first.starts_with("Job “") {
                let words = if first.ends_with("is done.") { first } else { first.split(": ").next().unwrap_or(first) };
                *told.entry(words.to_owned()).or_default() += 1;
            } else if text.starts_with("Routine r") && text.contains(": ") || text.starts_with("The routine ") {
                *told.entry(text.clone()).or_default() += 1;
            }
        }
        let texts: BTreeSet<&String> = told.keys().chain(self.told.keys()).collect();
        for text in texts {
            let (is, should) = (told.get(text).unwrap_or(&0), self.told.get(text).unwrap_or(&0));
            if is != should {
                wrong.push(format!("told {is} times instead of {should}: {text}"));
            }
        }
        if switched_off.len() != 2 {
            wrong.push(format!("two broken routines, and told of {switched_off:?}"));
        }
        self.ledger.notices = told.values().sum::<usize>() + switched_off.len();
        self.ledger.ambiguous = post.ambiguous.len();
        self.ledger.refused = post.refused;
        drop(post);
        self.wrong.extend(wrong);
    }

    /// What the provider charges was booked, under what it was for; runs account for no more than that.
    async fn money(&mut self) {
        let mut booked = Spent::default();
        let first_day = self.world.now().0.div_euclid(86_400_000) - 2;
        for day in first_day..first_day + 4 {
            let of_day = self.life.store.spent(day).await.expect("readable");
            of_day.each().for_each(|(purpose, micro_usd)| booked.add(purpose, micro_usd));
        }
        let charged =
            |purpose| self.world.model.seen().answers.get(&purpose).copied().unwrap_or(0) * NightModel::cost();
        for purpose in [Purpose::Routine, Purpose::Job] {
            let (booked, charged) = (booked.of(purpose), charged(purpose));
            if booked < charged {
                self.wrong(format!("{purpose:?}: {charged} was charged, and {booked} booked"));
            }
        }
        let charged = charged(Purpose::Routine) + charged(Purpose::Job);
        if self.runs_cost > booked.total() {
            self.wrong(format!("the runs cost {}, and {} was booked", self.runs_cost, booked.total()));
        }
        self.ledger.spent = [booked.total(), charged, self.runs_cost];
    }

    fn model(&mut self) {
        let mut seen = self.world.model.seen();
        self.ledger.calls = seen.answers.values().sum();
        self.ledger.errors = seen.errors.clone();
        self.wrong.append(&mut seen.wrong);
    }
}

/// Whether this answer says that the routine was set off; an error for an answer that there should not be.
fn begun(act: &Act, answer: &Ack) -> Result<bool, ()> {
    match (&act.deed, answer) {
        (Deed::Say(_), Ack::Command(reply)) => Ok(reply.reply.contains("has begun")),
        (Deed::Routine(_), Ack::Routine(RoutineAnswer::Fired(fired))) => Ok(!fired.is_empty()),
        _ => Err(()),
    }
}

/// The beginning of what may be long.
fn short(text: &str) -> String {
    text.chars().take(200).collect()
}
