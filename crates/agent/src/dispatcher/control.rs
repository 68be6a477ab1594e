//! Control messages: handled at once, also during a turn.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use belay_protocol::status::LiveRun as LiveRunInfo;
use belay_protocol::{
    Ack, AckSender, BackgroundWork, Candidate, CandidateStatus, CommandReply, Control, Inbound, OrderId, Refusal,
    RunId, RunProcesses, RunRecord, RunStatus, SessionOwner, StatusReport, StillRunning, StopReport, StopTarget,
    ToolHealth, UnixMillis,
};
use tokio::time::{Instant, timeout_at};

use super::freeze::for_everybody;
use super::{Dispatcher, Flow, end_processes};
use crate::context_report;
use crate::mail::{LaneOrder, LaneReply};
use crate::stats;
use crate::stop_orders::StopRequest;
use crate::submission::ThreadCommand;
use crate::troubles;
use belay_run::live::{LiveRun, StopCause};
use belay_run::metrics::{self, RunNumbers};

impl Dispatcher {
    pub(super) fn control(&mut self, control: Control, inbound: &Inbound, ack: AckSender) -> Flow {
        let who = &inbound.principal;
        match control {
            Control::Watch(run) => {
                // Deltas only on request: a call whose delta was shown is never sent again.
                ack.send(Ack::Watch(self.find(run).map(|live| live.watch(inbound.want_deltas))));
            }
            Control::Status => {
                let (services, mut report) = (self.services.clone(), self.status());
                metrics::set_state_gauges(self.run_numbers(&report), &report);
                if !who.is_operator() {
                    report.frozen = for_everybody(report.frozen);
                    report.tools = report.tools.into_iter().map(ToolHealth::for_everybody).collect();
                }
                let is_operator = who.is_operator();
                self.background(async move {
                    (report.beside.jobs, report.beside.routines) = stats::read(&services).await;
                    let report = troubles::added(&services, report, is_operator).await;
                    ack.send(Ack::Status(Box::new(stats::with_money(&services, report).await)));
                });
            }
            Control::Context { session, full } => {
                let services = self.services.clone();
                let (reader, from) = (inbound.principal.clone(), inbound.channel.clone());
                self.background(async move {
                    ack.send(match context_report::of(&services, &session, full, (&reader, &from)).await {
                        Ok(report) => Ack::Context(Box::new(report)),
                        Err(refusal) => Ack::Refused(refusal),
                    });
                });
            }
            Control::Shutdown if who.is_operator() => {
                let reply = "Shutting down.".to_owned();
                let command = "/shutdown".into();
                ack.send(Ack::Command(CommandReply { command, reply, resumes: None, refused: false }));
                return Flow::ShutDown;
            }
            Control::Shutdown => ack.send(Ack::Refused(operators_only("shut Belay down"))),
            Control::Stop(StopTarget::All) if !who.is_operator() => {
                ack.send(Ack::Refused(operators_only("stop everything")));
            }
            // Autonomous work belongs to its creator; the cancellation of a job checks that.
            Control::Stop(target) if !StopRequest::of(inbound).may_stop_work && self.is_autonomous_target(&target) => {
                let what = "a job or a routine runs there: use /cancel, or ask the routine's owner".to_owned();
                ack.send(Ack::Refused(Refusal::Forbidden(what)));
            }
            Control::Stop(target) => {
                let client_gone = matches!(target, StopTarget::RunOfGoneClient(_));
                let request = StopRequest::of(inbound).with_gone_client(client_gone);
                let report = self.stop_everywhere(target, request, repeated_order(inbound));
                self.background(async move { ack.send(Ack::Stopped(report.await.0)) });
            }
            Control::DeleteSession(_) if !who.is_operator() => {
                ack.send(Ack::Refused(operators_only("delete a session")));
            }
            Control::DeleteSession(_) if self.services.draining.is_cancelled() => {
                ack.send(Ack::Refused(Refusal::ShuttingDown));
            }
            Control::DeleteSession(session) => {
                let inbound = Inbound { session, reply_to: None, ..inbound.clone() };
                return self.lane_command(
                    LaneOrder::Thread(ThreadCommand::Delete),
                    "/sessions".into(),
                    None,
                    inbound,
                    ack,
                );
            }
            // A session without a task reads the change when it gets one.
            Control::Refresh(session) => {
                if let Some(lane) = self.lanes.get(&session) {
                    lane.stale.store(true, Ordering::Release);
                    lane.wake.notify_one();
                }
            }
            Control::Job(request) => self.job_request(request, inbound.clone(), ack),
            Control::Routine(request) => self.routine_request(*request, inbound, ack),
            Control::Tools(request) => self.tools_request(request, inbound.clone(), ack),
            Control::Freeze(request) => self.freeze_request(request, inbound, ack),
            Control::People(request) => self.people_request(request, inbound, ack),
            answer @ (Control::Decide { .. } | Control::FillIn { .. } | Control::ClientResults { .. }) => {
                self.answer_of_program(answer, inbound.clone(), ack);
            }
        }
        Flow::Continue
    }

    /// Handles the answer of a program to a question. Another request is none.
    fn answer_of_program(&mut self, answer: Control, inbound: Inbound, ack: AckSender) {
        let (approval, reply, word) = match answer {
            Control::Decide { approval, decision } => (approval, LaneReply::Decision(decision), "/approvals"),
            Control::FillIn { approval, values } => (approval, LaneReply::Form(values.into()), "/approvals"),
            Control::ClientResults { request, answer } => (request, LaneReply::Client(answer), "results"),
            _ => return,
        };
        self.decide(approval, reply, word.into(), None, inbound, ack);
    }

    /// Whether the target is a session or a run of a job or of a routine run.
    fn is_autonomous_target(&self, target: &StopTarget) -> bool {
        match target {
            StopTarget::Session(session) => SessionOwner::of(session).is_some(),
            StopTarget::Run(run) | StopTarget::RunOfGoneClient(run) => {
                self.find(*run).is_some_and(|run| run.origin.work.is_autonomous())
            }
            StopTarget::All => false,
        }
    }

    pub(super) fn targets(&self, target: &StopTarget) -> Vec<Arc<LiveRun>> {
        let mut runs: Vec<_> = match target {
            StopTarget::Run(run) | StopTarget::RunOfGoneClient(run) => self.find(*run).into_iter().collect(),
            StopTarget::Session(session) => self.lanes.get(session).map(|lane| lane.runs.clone()).unwrap_or_default(),
            StopTarget::All => self.lanes.values().flat_map(|lane| lane.runs.iter().cloned()).collect(),
        };
        let meant = |run: &LiveRun| match target {
            StopTarget::Run(id) | StopTarget::RunOfGoneClient(id) => run.id == *id,
            StopTarget::Session(session) => run.session == *session,
            StopTarget::All => true,
        };
        let ending = self.ending.values().filter(|run| meant(run) && runs.iter().all(|known| known.id != run.id));
        let ending: Vec<_> = ending.cloned().collect();
        runs.extend(ending);
        runs
    }

    pub(super) fn find(&self, run: RunId) -> Option<Arc<LiveRun>> {
        let lane = self.lanes.get(self.sessions.get(&run)?)?;
        lane.runs.iter().find(|live| live.id == run).cloned()
    }

    /// Stops runs, each for its cause, and wakes their lanes.
    pub(super) fn stop(&mut self, runs: &[Arc<LiveRun>], cause: impl Fn(&LiveRun) -> StopCause) {
        let mut parked = BTreeSet::new();
        for run in runs {
            let first = !run.control.cancel.is_cancelled();
            run.control.stop(cause(run));
            if first && run.activity.has_begun() {
                self.ending.insert(run.id, run.clone());
                end_processes(&mut self.tasks, &self.services, run);
            }
            match self.lanes.get(&run.session) {
                Some(lane) if lane.is_parked() => {
                    parked.insert(&run.session);
                }
                Some(lane) => lane.wake.notify_one(),
                None => {}
            }
        }
        let parked = parked.into_iter().cloned().collect();
        self.wake_parked(parked);
    }

    pub(super) fn status(&self) -> StatusReport {
        let mut running: Vec<LiveRunInfo> = self
            .at_work()
            .map(|run| LiveRunInfo {
                run_id: run.id,
                session: run.session.clone(),
                for_ms: run.activity.working_for().map_or(0, |d| d.as_millis() as u64),
                step: run.output.partial().step,
                tools: run.calls.working().iter().map(|tool| tool.to_string()).collect(),
            })
            .collect();
        running.sort_by_key(|run| std::cmp::Reverse(run.for_ms));
        let paused = self.paused();
        let mut channels: Vec<_> = self.services.channels.keys().cloned().collect();
        channels.sort();
        let (spent, limits) = (self.services.run.cost.spent_today(), self.services.run.cost.limits());
        StatusReport {
            version: self.services.version.clone(),
            boot_id: self.services.boot,
            started_at: self.services.started_at,
            draining: self.services.draining.is_cancelled(),
            degraded: Vec::new(), // found by those who need it
            model: self.services.run.model.info().clone(),
            sessions_awake: self.lanes.values().filter(|lane| !lane.is_parked()).count(),
            queued: self.sessions.len().saturating_sub(running.len() + paused),
            paused: self.questions.len(),
            running,
            channels,
            spent_today_micro_usd: spent.total(),
            spent_today_for: spent,
            limit_today_micro_usd: limits.all,
            limit_today_for: limits.of.clone(),
            open_reservations: self.services.run.cost.open_reservations(),
            model_trouble: self.services.run.trouble(),
            candidates: self.candidates(),
            tools: self.services.run.health.troubled(),
            frozen: self.services.run.freezer.in_force().to_vec(),
            // Jobs and routines are read from the store by those who need them.
            beside: BackgroundWork { processes: self.services.processes.in_background(), ..Default::default() },
        }
    }

    /// The runs of this report in disjoint states, and the age of the oldest waiting message.
    fn run_numbers(&self, report: &StatusReport) -> RunNumbers {
        let waiting = self.lanes.values().flat_map(|lane| &lane.runs);
        let waiting = waiting.filter(|run| !run.activity.has_begun() && !run.control.cancel.is_cancelled());
        let oldest = waiting.filter_map(|run| run.id.created_at()).min();
        let age_ms = oldest.map_or(0, |oldest| self.services.clock.now().0.saturating_sub(oldest.0).max(0));
        RunNumbers {
            running: report.running.len(),
            queued: report.queued,
            paused: self.paused(),
            oldest_waiting: Duration::from_millis(age_ms.unsigned_abs()),
        }
    }

    /// The number of paused runs. A run whose part waits in place works and is not paused.
    fn paused(&self) -> usize {
        self.questions.values().filter(|waits| !waits.in_place).count()
    }

    /// The candidates of the model, and until when each circuit breaker is open.
    fn candidates(&self) -> Vec<CandidateStatus> {
        let now = self.services.clock.now();
        let status = |candidate: Candidate| CandidateStatus {
            name: candidate.name,
            cooling_until: candidate.cooling.map(|cooling| {
                UnixMillis(now.0.saturating_add(i64::try_from(cooling.left.as_millis()).unwrap_or(i64::MAX)))
            }),
            reason: candidate.cooling.map(|cooling| cooling.why.word().to_owned()),
        };
        self.services.run.model.candidates().into_iter().map(status).collect()
    }
}

/// Waits for the ends of stopped runs and of their processes for `limit` at most, and reports what has not ended.
pub(super) async fn report(runs: &[Arc<LiveRun>], processes: &dyn RunProcesses, limit: Duration) -> StopReport {
    let deadline = Instant::now() + limit;
    let mut report = StopReport::default();
    for run in runs {
        let mut finished = run.activity.finished();
        let ended = async {
            tokio::select! {
                biased; // a published end counts, also if the run is gone
                record = finished.wait_for(has_ended) => record.ok().and_then(|record| record.clone()),
                () = run.gone.cancelled() => None,
            }
        };
        match timeout_at(deadline, ended).await {
            Ok(Some(record)) if record.status == RunStatus::Stopped => report.stopped.push(run.id),
            Ok(_) => {} // it ended in another way, or was never accepted
            Err(_) => {
                let what = "recording its end".to_owned();
                report.still_running.push(StillRunning { run_id: run.id, pid: None, what });
            }
        }
        // However it ended, what it has begun may still act. The limit may pass, and a process may not die.
        let over = async { tokio::join!(processes.end(run.id), run.calls.ended()) };
        let _ = timeout_at(deadline, over).await;
        report.still_running.extend(processes.alive(run.id));
        report.still_running.extend(working_tools(run));
    }
    report
}

/// The tools of a stopped run that have not ended.
pub(super) fn working_tools(run: &LiveRun) -> Vec<StillRunning> {
    let call = |tool| StillRunning { run_id: run.id, pid: None, what: format!("the tool {tool}") };
    run.calls.working().into_iter().map(call).collect()
}

/// The id of the order that a repeated stop has in its key; `None`: the stop is not repeated.
fn repeated_order(stop: &Inbound) -> Option<OrderId> {
    stop.key.as_ref()?.message_id.parse().ok()
}

/// Whether a run has ended; a paused run has not.
fn has_ended(record: &Option<Arc<RunRecord>>) -> bool {
    record.as_ref().is_some_and(|record| record.status.is_end())
}

pub(super) fn operators_only(what: &str) -> Refusal {
    Refusal::Forbidden(format!("Only an operator may {what}."))
}
