//! Jobs and routines in memory: what is read is read from here, and what is asked for is done at once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use belay_gateway::{RoutineTest, RoutineTime, RoutineTimes};
use belay_protocol::*;

use crate::harness::{FakeStore, NOW, older};

/// Keeps jobs, routines and routine runs.
#[derive(Default)]
pub(crate) struct FakeWork {
    pub(crate) jobs: Mutex<Vec<JobRecord>>,
    pub(crate) routines: Mutex<Vec<RoutineRecord>>,
    pub(crate) routine_runs: Mutex<Vec<RoutineRunRecord>>,
    /// Where the events of runs are.
    pub(crate) store: Option<Arc<FakeStore>>,
}

impl FakeWork {
    /// Changes a job that is there.
    pub(crate) fn change(&self, id: JobId, change: impl FnOnce(&mut JobRecord)) {
        change(self.jobs.lock().unwrap().iter_mut().find(|job| job.job_id == id).unwrap());
    }

    /// What is asked about jobs; the task `too many` is one too many.
    pub(crate) fn job(&self, request: JobRequest, inbound: &Inbound) -> Ack {
        let mut jobs = self.jobs.lock().unwrap();
        let known = |jobs: &[JobRecord], id: JobId| jobs.iter().position(|job| job.job_id == id);
        let (id, to) = match request {
            JobRequest::Create(order) if order.task == "too many" => {
                let retry_after = Duration::from_secs(30);
                return Ack::Refused(Refusal::Busy { what: "20 jobs are open".into(), retry_after });
            }
            JobRequest::Create(order) => {
                let id = order.job_id.unwrap_or_default();
                if known(&jobs, id).is_none() {
                    jobs.push(job_of(id, order, inbound));
                }
                return Ack::Job(Box::new(jobs[known(&jobs, id).unwrap()].clone()));
            }
            JobRequest::Cancel(id) => (id, JobState::Cancelled),
            JobRequest::Accept(id) => (id, JobState::Accepted),
            JobRequest::Revoke(id, grant) => {
                let Some(at) = known(&jobs, id).filter(|at| (1..=jobs[*at].grants.len()).contains(&grant)) else {
                    return Ack::Refused(Refusal::Unknown(format!("There is no grant {grant}.")));
                };
                jobs[at].grants[grant - 1].revoked = true;
                return Ack::Job(Box::new(jobs[at].clone()));
            }
        };
        let Some(at) = known(&jobs, id) else {
            return Ack::Refused(Refusal::Unknown(format!("There is no job {id}.")));
        };
        if !jobs[at].state.may_become(to) {
            return Ack::Refused(Refusal::Decided(format!("The job is {}.", jobs[at].state.word())));
        }
        jobs[at].state = to;
        Ack::Job(Box::new(jobs[at].clone()))
    }

    /// What is asked about routines; the payload `too soon` is held back by a guardrail.
    pub(crate) fn routine(&self, request: RoutineRequest, inbound: &Inbound) -> Ack {
        let mut routines = self.routines.lock().unwrap();
        let at = |routines: &[RoutineRecord], name: &str| routines.iter().position(|routine| routine.spec.name == name);
        let unknown = |name: &str| Ack::Refused(Refusal::Unknown(format!("There is no routine {name}.")));
        let one = |routine: &RoutineRecord| Ack::Routine(RoutineAnswer::Routine(Box::new(routine.clone())));
        match request {
            RoutineRequest::Put { spec, fresh } => {
                let old = at(&routines, &spec.name);
                if old.is_some() && fresh {
                    return Ack::Refused(Refusal::Invalid(format!("there is a routine named {}", spec.name)));
                }
                let mut new = routine_of(spec, inbound);
                match old {
                    Some(old) => {
                        new.routine_id = routines[old].routine_id;
                        routines[old] = new.clone();
                    }
                    None => routines.push(new.clone()),
                }
                routines.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
                one(&new)
            }
            RoutineRequest::Enable { name, on } => match at(&routines, &name) {
                Some(at) => {
                    routines[at].enabled = on;
                    one(&routines[at])
                }
                None => unknown(&name),
            },
            RoutineRequest::Revoke { name, grant } => match at(&routines, &name) {
                Some(at) => match grant.checked_sub(1).and_then(|grant| routines[at].spec.allow.get_mut(grant)) {
                    Some(grant) => {
                        grant.revoked = true;
                        one(&routines[at])
                    }
                    None => unknown(&name),
                },
                None => unknown(&name),
            },
            RoutineRequest::Delete(name) => match at(&routines, &name) {
                Some(at) => {
                    routines.remove(at);
                    Ack::Routine(RoutineAnswer::Deleted(name))
                }
                None => unknown(&name),
            },
            RoutineRequest::Fire { name, payload } => match at(&routines, &name) {
                Some(at) => {
                    let key = inbound.key.as_ref().map(|key| format!("{}/{}", key.account, key.message_id));
                    self.fired(
                        &[(&routines[at], "manual", key.unwrap_or_else(|| RoutineRunId::new().to_string()))],
                        payload,
                    )
                }
                None => unknown(&name),
            },
            RoutineRequest::Webhook { name, delivery, payload } => match at(&routines, &name).map(|at| &routines[at]) {
                Some(routine) if !routine.enabled => Ack::Refused(Refusal::Decided("it is switched off".into())),
                Some(_) if payload == "too soon" => {
                    let retry_after = Duration::from_millis(89_500);
                    Ack::Refused(Refusal::Busy { what: "the routine fired a moment ago".into(), retry_after })
                }
                Some(routine) => {
                    let key = delivery.unwrap_or_else(|| format!("body {payload}"));
                    self.fired(&[(routine, "webhook", key)], Some(payload))
                }
                None => unknown(&name),
            },
            RoutineRequest::Heartbeat => Ack::Routine(RoutineAnswer::Heartbeat(Box::new(HeartbeatReport {
                enabled: true,
                when: "every 30m".into(),
                zone: "UTC".into(),
                quiet_hours: String::new(),
                file: "HEARTBEAT.md".into(),
                deliver_to: None,
                next_at: None,
                would_skip: Some(SkipReason::Idle),
                would: "Skip the beat.".into(),
                failures: 0,
                last: Vec::new(),
            }))),
            RoutineRequest::Emit { source, event, key, payload } => {
                let key = key.unwrap_or_else(|| RoutineRunId::new().to_string());
                let waits = |routine: &&RoutineRecord| matches!(&routine.spec.trigger, Trigger::System { source: s, event: e, .. } if *s == source && *e == event);
                let causes: Vec<_> =
                    routines.iter().filter(waits).map(|routine| (routine, "system", key.clone())).collect();
                self.fired(&causes, Some(payload.to_string()))
            }
        }
    }

    fn fired(&self, causes: &[(&RoutineRecord, &str, String)], payload: Option<String>) -> Ack {
        let mut routine_runs = self.routine_runs.lock().unwrap();
        let mut fired = Vec::new();
        for (routine, by, key) in causes {
            let known = routine_runs
                .iter()
                .find(|routine_run| routine_run.routine_id == routine.routine_id && routine_run.key == *key)
                .cloned();
            let routine_run = known.unwrap_or_else(|| routine_run_of(routine, by, key, payload.clone()));
            if !routine_runs.iter().any(|other| other.routine_run_id == routine_run.routine_run_id) {
                routine_runs.push(routine_run.clone());
            }
            fired.push(routine_run);
        }
        Ack::Routine(RoutineAnswer::Fired(fired))
    }

    /// What the newest routine run was told.
    pub(crate) fn told(&self) -> Option<String> {
        self.routine_runs.lock().unwrap().last()?.payload.clone()
    }
}

fn job_of(id: JobId, order: JobOrder, inbound: &Inbound) -> JobRecord {
    JobRecord {
        job_id: id,
        title: order.title.unwrap_or_else(|| order.task.clone()),
        task: order.task,
        state: JobState::Pending,
        detail: String::new(),
        plan: order.plan,
        runs_in: order.runs_in,
        budget: order.budget,
        grants: order.allow,
        session: job_session(id),
        creator: asker(inbound),
        channel: inbound.channel.clone(),
        asked_in: inbound.session.clone(),
        reply_to: None,
        parent: None,
        routine_run: None,
        attempt: 0,
        crashes: 0,
        run_id: None,
        result: None,
        created_at: UnixMillis(NOW),
        started_at: None,
        changed_at: UnixMillis(NOW),
        ended_at: None,
    }
}

fn asker(inbound: &Inbound) -> Asker {
    Asker { principal: inbound.principal.id.to_string(), authority: inbound.principal.role.into(), relayed: false }
}

fn routine_of(spec: RoutineSpec, inbound: &Inbound) -> RoutineRecord {
    let scheduled = matches!(spec.trigger, Trigger::Schedule { .. });
    RoutineRecord {
        routine_id: RoutineId::new(),
        next_at: scheduled.then_some(UnixMillis(NOW + spec.name.len() as i64)),
        spec,
        creator: asker(inbound),
        channel: inbound.channel.clone(),
        made_in: inbound.session.clone(),
        reply_to: None,
        origin: RoutineOrigin::Made,
        enabled: true,
        disabled_detail: String::new(),
        revision: 1,
        claimed_to: None,
        fired_at: None,
        set_off_at: None,
        routine_runs: 0,
        failures: 0,
        created_at: UnixMillis(NOW),
        changed_at: UnixMillis(NOW),
    }
}

fn routine_run_of(routine: &RoutineRecord, by: &str, key: &str, payload: Option<String>) -> RoutineRunRecord {
    RoutineRunRecord {
        routine_run_id: RoutineRunId::new(),
        routine_id: routine.routine_id,
        routine: routine.spec.name.clone(),
        revision: 1,
        trigger: by.into(),
        key: key.into(),
        scheduled_at: None,
        detail: String::new(),
        payload,
        status: RoutineRunStatus::Running,
        summary: Some("not for who calls".into()),
        run_id: None,
        job_id: None,
        usage: RunUsage::default(),
        cost_micro_usd: 0,
        claimed_at: UnixMillis(NOW),
        ended_at: None,
    }
}

#[async_trait]
impl JobReader for FakeWork {
    async fn job(&self, id: JobId) -> Result<Option<JobRecord>, StoreError> {
        Ok(self.jobs.lock().unwrap().iter().find(|job| job.job_id == id).cloned())
    }
    async fn jobs(&self, filter: JobFilter) -> Result<Vec<JobRecord>, StoreError> {
        let jobs = self.jobs.lock().unwrap();
        let fits = |job: &&JobRecord| {
            (filter.states.is_empty() || filter.states.contains(&job.state))
                && filter.since.is_none_or(|since| job.created_at >= since)
                && filter.asked_in.as_ref().is_none_or(|session| *session == job.asked_in)
                && filter
                    .creator
                    .as_ref()
                    .is_none_or(|(principal, channel)| job.creator.principal == *principal && job.channel == *channel)
        };
        let rows = older(jobs.iter().rev(), filter.before, |job| job.job_id)?;
        Ok(rows.into_iter().filter(fits).take(filter.limit as usize).cloned().collect())
    }
    async fn progress(&self, run: RunId, runs_in: RunsIn) -> Result<JobProgress, StoreError> {
        Ok(self.store.as_ref().map(|store| store.progress(run, runs_in)).unwrap_or_default())
    }
    async fn numbers(&self) -> Result<JobNumbers, StoreError> {
        panic!("the agent counts jobs")
    }
}

#[async_trait]
impl RoutineReader for FakeWork {
    async fn routine(&self, name: &str) -> Result<Option<RoutineRecord>, StoreError> {
        Ok(self.routines.lock().unwrap().iter().find(|routine| routine.spec.name == name).cloned())
    }
    async fn routine_at(&self, path: &str) -> Result<Option<RoutineRecord>, StoreError> {
        let fits = |routine: &&RoutineRecord| matches!(&routine.spec.trigger, Trigger::Webhook { path: own, .. } if own == path);
        Ok(self.routines.lock().unwrap().iter().find(fits).cloned())
    }
    async fn routines(&self) -> Result<Vec<RoutineRecord>, StoreError> {
        Ok(self.routines.lock().unwrap().clone())
    }
    async fn routine_run(&self, id: RoutineRunId) -> Result<Option<RoutineRunRecord>, StoreError> {
        Ok(self.routine_runs.lock().unwrap().iter().find(|routine_run| routine_run.routine_run_id == id).cloned())
    }
    async fn routine_runs(&self, filter: RoutineRunFilter) -> Result<Vec<RoutineRunRecord>, StoreError> {
        let routine_runs = self.routine_runs.lock().unwrap();
        let fits = |routine_run: &&RoutineRunRecord| {
            filter.routine.as_ref().is_none_or(|routine| *routine == routine_run.routine)
                && filter.routine_ids.as_ref().is_none_or(|ids| ids.contains(&routine_run.routine_id))
                && filter.since.is_none_or(|since| routine_run.claimed_at >= since)
                && filter.status.is_none_or(|status| status == routine_run.status)
        };
        let rows = older(routine_runs.iter().rev(), filter.before, |routine_run| routine_run.routine_run_id)?;
        Ok(rows.into_iter().filter(fits).take(filter.limit as usize).cloned().collect())
    }
    async fn numbers(&self) -> Result<RoutineNumbers, StoreError> {
        panic!("the agent counts routines")
    }
}

/// Every routine with a schedule fires each second, on the second; a date is a number of seconds.
pub(crate) struct FakeTimes;

impl RoutineTimes for FakeTimes {
    fn test(&self, spec: &RoutineSpec, at: &str) -> Result<RoutineTest, String> {
        let at: i64 = at.parse().map_err(|_| format!("at: {at:?} is not a date"))?;
        let (routine, at) = (spec.name.clone(), fake_time(UnixMillis(at * 1000)));
        Ok(RoutineTest { routine, schedule: String::new(), fires: true, at, next: None, mode: "lightweight".into() })
    }
    fn next(&self, _: &RoutineSpec, from: UnixMillis, count: usize) -> Result<Vec<RoutineTime>, String> {
        let times = (1..).map(|n| UnixMillis((from.0 / 1000 + n) * 1000));
        Ok(times.take(count).map(fake_time).collect())
    }
}

fn fake_time(at: UnixMillis) -> RoutineTime {
    RoutineTime { at, local: at.to_rfc3339(), zone: "UTC".into() }
}
