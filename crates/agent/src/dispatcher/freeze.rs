//! Freezes: an operator stops all work, or a part of it, and nothing of it begins until the thaw. Messages are accepted
//! and kept meanwhile.
//!
//! The freeze takes effect in memory first: lanes and turns read it before they begin, and the dispatcher stops the
//! runs that have begun. It is answered after it is durable.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::store::EventQuery;
use belay_protocol::{
    Ack, AckSender, CommandReply, EventKind, Freeze, FreezeId, FreezeReceipt, FreezeRequest, FreezeScope, Inbound,
    Refusal, ReplyRoute, RunId, StillRunning, ToolStatus, Work,
};
use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::Dispatcher;
use super::control::{operators_only, report};
use super::guards::{Arrival, Guarded};
use crate::agent_services::AgentServices;
use crate::mail::LaneNote;
use belay_run::freeze::cause;
use belay_run::live::{LiveRun, RunOrigin};

/// How long the receipt of a freeze waits for the last processes. Each is told to end after 2 s and again after 10 s.
const TREES_LIMIT: Duration = Duration::from_secs(30);

/// Most stopped runs whose events are read for calls with an unknown outcome.
const MAX_READ_RUNS: usize = 100;

/// Most events of a run that are read.
const MAX_READ_EVENTS: u32 = 4096;

/// The answer to a request about freezes: the freezes in force.
type Answer = Result<Vec<Freeze>, Refusal>;

impl Dispatcher {
    /// Handles a request of a program.
    pub(super) fn freeze_request(&mut self, request: FreezeRequest, inbound: &Inbound, ack: AckSender) {
        self.freeze(request, inbound, |answer| {
            ack.send(match answer {
                Ok(in_force) => Ack::Freezes(in_force),
                Err(refusal) => Ack::Refused(refusal),
            });
        });
    }

    /// Handles `/freeze` and `/thaw`.
    pub(super) fn freeze_command(&mut self, request: FreezeRequest, word: String, inbound: &Inbound, ack: AckSender) {
        let (notifier, route) = (self.notifier.clone(), inbound.reply_to.clone());
        self.freeze(request, inbound, move |answer| {
            let refused = answer.is_err();
            let reply = answer.map_or_else(|refusal| refusal.to_string(), |in_force| text(&in_force));
            ack.send(Ack::Command(CommandReply { command: word, reply: reply.clone(), resumes: None, refused }));
            notifier.say(route, reply);
        });
    }

    /// Begins, ends or lists freezes, and answers once that is durable.
    fn freeze(&mut self, request: FreezeRequest, by: &Inbound, answer: impl FnOnce(Answer) + Send + 'static) {
        let services = self.services.clone();
        let freezer = &services.run.freezer;
        match request {
            _ if !by.principal.is_operator() => answer(Err(operators_only("freeze or thaw"))),
            FreezeRequest::List => answer(Ok(freezer.in_force().to_vec())),
            FreezeRequest::Freeze { scope, detail } => {
                let begun = Instant::now();
                let new = Freeze {
                    id: FreezeId::new(),
                    scope,
                    detail: detail.filter(|detail| !detail.trim().is_empty()),
                    actor: by.principal.id.to_string(),
                    source: by.channel.clone(),
                    at: services.clock.now(),
                    receipt: None,
                };
                let freeze = freezer.hold(new);
                let runs = self.covered(&freeze.scope);
                self.stop(&runs, |_| cause(freeze.id));
                tracing::warn!(freeze = %freeze.id, scope = %freeze.scope, runs = runs.len(), "frozen");
                let of_routines = self.of_routines(&freeze.scope);
                let notes = self.notes.clone();
                self.background(async move {
                    let more = stop_routine(&services, &notes, &freeze, of_routines).await;
                    settle(&services, freeze, [runs, more].concat(), begun, answer).await;
                });
            }
            FreezeRequest::Thaw(scope) => {
                let Some(freeze) = freezer.release(&scope) else {
                    return answer(Err(Refusal::Unknown(not_frozen(&scope, &freezer.in_force()))));
                };
                tracing::warn!(freeze = %freeze.id, %scope, "thawed");
                self.told_frozen.clear();
                self.lanes.values().for_each(|lane| lane.wake.notify_one());
                services.jobs.bell.ring();
                services.routines.registry.ring();
                self.background(async move {
                    let at = services.clock.now();
                    let ended = services.run.freezer.end(freeze, at).await;
                    answer(match ended {
                        Ok(()) => Ok(services.run.freezer.in_force().to_vec()),
                        Err(error) => Err(Refusal::Store(format!("the thaw lasts until a restart only: {error}"))),
                    });
                });
            }
        }
    }

    /// The runs that a freeze stops: those that work. Paused runs and waiting messages stay as they are.
    fn covered(&self, scope: &FreezeScope) -> Vec<Arc<LiveRun>> {
        let covers = |origin: &RunOrigin| scope.covers(origin.work, &origin.channel, &origin.principal);
        self.at_work().filter(|run| covers(&run.origin)).cloned().collect()
    }

    /// All runs of routines, if a routine is frozen: only the store knows which routine a run belongs to.
    fn of_routines(&self, scope: &FreezeScope) -> Vec<Arc<LiveRun>> {
        if !matches!(scope, FreezeScope::Routine { .. }) {
            return Vec::new();
        }
        let is_routine =
            |run: &&Arc<LiveRun>| matches!(run.origin.work, Work::RoutineRun { .. } | Work::Heartbeat { .. });
        self.lanes.values().flat_map(|lane| &lane.runs).filter(is_routine).cloned().collect()
    }

    /// Stops a run of an earlier start that a freeze should have stopped.
    pub(super) fn stop_if_frozen(&mut self, runs: &[Arc<LiveRun>]) {
        for run in runs {
            if let Some(freeze) = self.services.run.freezer.holds(&run.origin) {
                self.stop(std::slice::from_ref(run), |_| cause(freeze.id));
            }
        }
    }

    /// Tells a conversation once that its messages wait for the thaw.
    pub(super) fn say_frozen(&mut self, run: RunId, route: ReplyRoute) {
        let Some(session) = self.sessions.get(&run) else { return };
        if self.told_frozen.insert(session.clone()) {
            let detail = self.find(run).and_then(|run| self.services.run.freezer.holds(&run.origin)?.detail);
            let why = detail.map_or_else(String::new, |detail| format!(": {detail}"));
            let line = format!(
                "An operator has frozen Belay{why}. Your message is kept, and it is answered after the freeze."
            );
            self.notifier.say(Some(route), line);
        }
    }

    /// Whether a freeze keeps the work of this message from beginning.
    pub(super) fn is_frozen(&self, inbound: &Inbound) -> bool {
        self.services.run.freezer.holds(&RunOrigin::of(inbound)).is_some()
    }

    /// Guard: refuses a message that cannot wait for the thaw.
    pub(super) fn refuse_while_frozen(&mut self, message: Arrival) -> Guarded {
        let can_wait = !message.inbound.only_now || !message.submission.is_input();
        match self.services.run.freezer.holds(&RunOrigin::of(&message.inbound)) {
            Some(freeze) if !can_wait => self.refused(message, Refusal::Frozen(line(&freeze))),
            _ => Guarded::Continue(message),
        }
    }
}

/// Stops the runs of a frozen routine. Returns them.
async fn stop_routine(
    services: &AgentServices,
    notes: &mpsc::Sender<LaneNote>,
    freeze: &Freeze,
    runs: Vec<Arc<LiveRun>>,
) -> Vec<Arc<LiveRun>> {
    let FreezeScope::Routine { name } = &freeze.scope else { return Vec::new() };
    let mut stopped = Vec::new();
    for run in runs {
        let (Work::RoutineRun { id } | Work::Heartbeat { id }) = run.origin.work else { continue };
        match services.store.routines.routine_run(id).await {
            Ok(Some(routine_run)) if routine_run.routine == *name => {
                // Fails only when the agent has ended.
                let _ = notes.send(LaneNote::Stop { run: run.clone(), cause: cause(freeze.id) }).await;
                stopped.push(run);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%error, run = %run.id, "whether a run belongs to a frozen routine is not known")
            }
        }
    }
    stopped
}

/// Writes a freeze, answers, and completes its receipt.
async fn settle(
    services: &AgentServices,
    freeze: Freeze,
    runs: Vec<Arc<LiveRun>>,
    begun: Instant,
    answer: impl FnOnce(Answer) + Send,
) {
    let freezer = &services.run.freezer;
    // A repeated freeze keeps the receipt of the first one.
    let again = freeze.receipt.is_some() && runs.is_empty();
    if let Err(error) = freezer.keep(freeze.clone()).await {
        return answer(Err(Refusal::Store(format!("it is frozen until a restart only: {error}"))));
    }
    if again {
        return answer(Ok(freezer.in_force().to_vec()));
    }
    let acknowledged_ms = ms(begun.elapsed());
    let ids: Vec<RunId> = runs.iter().map(|run| run.id).collect();
    // What an earlier request has stopped stays in the receipt.
    let mut before = freeze.receipt.clone().unwrap_or(FreezeReceipt { acknowledged_ms, ..FreezeReceipt::default() });
    before.stopped.extend(&ids);
    let ending = report(runs, &*services.processes).await.still_running;
    let trees_empty_ms = ending.is_empty().then(|| ms(begun.elapsed()));
    keep(services, &freeze, &before, trees_empty_ms, outside(services, &ids, &ending).await).await;
    answer(Ok(freezer.in_force().to_vec()));
    if trees_empty_ms.is_some() {
        return;
    }
    let ended = timeout(TREES_LIMIT, join_all(ids.iter().map(|run| services.processes.end(*run)))).await;
    let trees_empty_ms = ended.is_ok().then(|| ms(begun.elapsed()));
    let ending: Vec<StillRunning> = ids.iter().flat_map(|run| services.processes.alive(*run)).collect();
    keep(services, &freeze, &before, trees_empty_ms, outside(services, &ids, &ending).await).await;
}

/// Stores the receipt: `before`, with the time of the last process and what is outside of Belay.
async fn keep(
    services: &AgentServices,
    freeze: &Freeze,
    before: &FreezeReceipt,
    trees_empty_ms: Option<u64>,
    outside: Vec<String>,
) {
    let outside = [before.outside.clone(), outside].concat();
    let receipt = FreezeReceipt { trees_empty_ms, outside, ..before.clone() };
    if let Err(error) = services.run.freezer.keep(Freeze { receipt: Some(receipt), ..freeze.clone() }).await {
        tracing::error!(%error, "the receipt of a freeze could not be stored");
    }
}

/// Effects that may still happen or have happened outside of Belay.
async fn outside(services: &AgentServices, runs: &[RunId], ending: &[StillRunning]) -> Vec<String> {
    let mut outside: Vec<String> = ending.iter().map(|still| format!("run {}: {}", still.run_id, still.what)).collect();
    for run in runs.iter().take(MAX_READ_RUNS) {
        let query = EventQuery { run: Some(*run), limit: MAX_READ_EVENTS, ..EventQuery::default() };
        let events = services.store.events.read(query).await.unwrap_or_else(|error| {
            outside.push(format!("run {run}: its calls are not known ({error})"));
            Vec::new()
        });
        outside.extend(events.into_iter().filter_map(|event| match event.kind {
            EventKind::ToolFinished { name, status: ToolStatus::OutcomeUnknown, .. } => {
                Some(format!("run {run}: a call of {name} has an unknown outcome"))
            }
            _ => None,
        }));
    }
    outside
}

/// The freezes that concern everybody, without their receipts: the others name people and routines.
pub(super) fn for_everybody(mut in_force: Vec<Freeze>) -> Vec<Freeze> {
    in_force.retain(|freeze| freeze.scope == FreezeScope::All);
    in_force.iter_mut().for_each(|freeze| freeze.receipt = None);
    in_force
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// One line about a freeze.
fn line(freeze: &Freeze) -> String {
    let why = freeze.detail.as_ref().map_or_else(String::new, |detail| format!(" ({detail})"));
    format!("Frozen since {} by {}: {}{why}.", freeze.at.to_rfc3339(), freeze.actor, freeze.scope)
}

/// The answer to a command.
fn text(in_force: &[Freeze]) -> String {
    if in_force.is_empty() {
        return "Nothing is frozen any more; waiting messages are answered now.".to_owned();
    }
    let with_receipt = |freeze: &Freeze| match &freeze.receipt {
        None => line(freeze),
        Some(receipt) => {
            let runs = receipt.stopped.len();
            let still = if receipt.trees_empty_ms.is_none() { " Some processes are still ending." } else { "" };
            let outside: String = receipt.outside.iter().map(|what| format!("\n  {what}")).collect();
            format!("{} Stopped {runs} run{}.{still}{outside}", line(freeze), if runs == 1 { "" } else { "s" })
        }
    };
    let lines: Vec<String> = in_force.iter().map(with_receipt).collect();
    format!("{}\nMessages are kept. /thaw ends the freeze of everything, `belay thaw` the others.", lines.join("\n"))
}

fn not_frozen(scope: &FreezeScope, in_force: &[Freeze]) -> String {
    let others: Vec<String> = in_force.iter().map(|freeze| freeze.scope.to_string()).collect();
    match others.as_slice() {
        [] => "Nothing is frozen.".to_owned(),
        others => format!("There is no freeze of {scope}. Frozen: {}.", others.join(", ")),
    }
}
