//! Freezes: an operator stops all work, or a part of it, and nothing of it begins until the thaw. Messages are accepted
//! and kept meanwhile.
//!
//! The freeze takes effect in memory first: lanes and turns read it before they begin, and the dispatcher stops the
//! runs that have begun. It is answered after it is durable.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::cluster::{OrderTarget, Topic};
use belay_protocol::store::EventQuery;
use belay_protocol::{
    Ack, AckSender, CommandReply, EventKind, Freeze, FreezeId, FreezeReceipt, FreezeRequest, FreezeScope, Inbound,
    ProcessesOf, Refusal, ReplyRoute, RunId, StillRunning, StoreError, ToolStatus,
};
use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::Dispatcher;
use super::control::{operators_only, report};
use super::guards::{Arrival, Guarded};
use super::orders::{add_ending, background_ended};
use crate::agent_services::AgentServices;
use crate::mail::LaneNote;
use crate::stop_orders::{self, Answers, NodeReport, OrderCause};
use belay_run::freeze::{Adopted, cause};
use belay_run::live::{LiveRun, RunOrigin};
use belay_run::rights;
use belay_text::near::{did_you_mean, nearest_names};

/// How long the receipt of a freeze waits for the last processes. Each is told to end after 2 s and again after 10 s.
pub(super) const TREES_LIMIT: Duration = Duration::from_secs(30);

/// Most freezes that have ended in a list.
const MAX_PAST: u32 = 100;

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

    /// Handles `/freeze`, `/freezes` and `/thaw`.
    pub(super) fn freeze_command(&mut self, request: FreezeRequest, word: String, inbound: &Inbound, ack: AckSender) {
        let (notifier, route) = (self.notifier.clone(), inbound.reply_to.clone());
        let words = if request == FreezeRequest::ListAll { list_text } else { text };
        self.freeze(request, inbound, move |answer| {
            let refused = answer.is_err();
            let reply = answer.map_or_else(|refusal| refusal.to_string(), |freezes| words(&freezes));
            ack.send(Ack::Command(CommandReply { command: word, reply: reply.clone(), resumes: None, refused }));
            notifier.say(route, reply);
        });
    }

    /// Begins, ends or lists freezes, and answers once that is durable.
    fn freeze(&mut self, request: FreezeRequest, by: &Inbound, answer: impl FnOnce(Answer) + Send + 'static) {
        let services = self.services.clone();
        let freezer = &services.run.freezer;
        match request {
            FreezeRequest::Check => answer(match freezer.holds(&RunOrigin::of(by)) {
                Some(freeze) => Err(Refusal::Frozen(line(&freeze))),
                None => Ok(Vec::new()),
            }),
            _ if !by.principal.is_operator() => answer(Err(operators_only("freeze or thaw"))),
            FreezeRequest::List => answer(Ok(freezer.in_force().to_vec())),
            FreezeRequest::ListAll => self.background(async move {
                let mut all = services.run.freezer.in_force().to_vec();
                answer(match services.store.freezes.past_freezes(MAX_PAST).await {
                    Ok(past) => {
                        all.extend(past);
                        Ok(all)
                    }
                    Err(error) => Err(Refusal::Store(format!("the freezes that have ended cannot be read: {error}"))),
                });
            }),
            FreezeRequest::Freeze { scope, detail } => {
                if let Err(why) = rights::check_scope(&services.jobs.access, &scope) {
                    return answer(Err(Refusal::Invalid(format!("nothing is frozen: {why}"))));
                }
                let begun = Instant::now();
                let new = Freeze {
                    id: FreezeId::new(),
                    scope,
                    detail: detail.filter(|detail| !detail.trim().is_empty()),
                    actor: by.principal.id.to_string(),
                    source: by.channel.clone(),
                    at: services.clock.now(),
                    receipt: None,
                    thawed_at: None,
                };
                let id = new.id;
                let freeze = freezer.hold(new);
                let is_new = freeze.id == id;
                let runs = self.covered(&freeze.scope);
                self.stop(&runs, |_| cause(freeze.id));
                self.end_background(&freeze.scope);
                freezer.note_stopped(freeze.id, &runs.iter().map(|run| run.id).collect::<Vec<_>>());
                tracing::warn!(freeze = %freeze.id, scope = %freeze.scope, runs = runs.len(), "frozen");
                let notes = self.notes.clone();
                self.background(async move {
                    if is_new
                        && runs.is_empty()
                        && let Some(why) = unknown_routine(&services, &freeze.scope).await
                    {
                        // Nothing of it was stopped or held: there is nothing.
                        let _ = services.run.freezer.thaw(&freeze.scope, services.clock.now()).await;
                        answer(Err(Refusal::Invalid(why)));
                        let _ = notes.send(LaneNote::Thawed).await; // fails only when the agent has ended
                        return;
                    }
                    if settle(&services, freeze, runs, begun, answer).await.is_none() {
                        // Thawed meanwhile, perhaps by another daemon. Fails only when the agent has ended.
                        let _ = notes.send(LaneNote::Thawed).await;
                    }
                });
            }
            FreezeRequest::Thaw(scope) => {
                let notes = self.notes.clone();
                self.background(async move {
                    let thawed = services.run.freezer.thaw(&scope, services.clock.now()).await;
                    let in_force = services.run.freezer.in_force().to_vec();
                    answer(match thawed {
                        Ok(Some(freeze)) => {
                            tracing::warn!(freeze = %freeze.id, %scope, "thawed");
                            // Fails only when the agent has ended.
                            let _ = notes.send(LaneNote::Thawed).await;
                            Ok(in_force)
                        }
                        Ok(None) => Err(Refusal::Unknown(not_frozen(&scope, &in_force))),
                        Err(error) => Err(Refusal::Store(format!("it is still frozen; try again: {error}"))),
                    });
                });
            }
        }
    }

    /// Begins to read the freezes of other nodes, if this is a node of a cluster.
    pub(super) fn watch_freezes(&mut self) {
        self.watch("freezes", Topic::Freezes, |services, notes| async move { adopt(&services, &notes).await });
    }

    /// Stops the runs here that a freeze of another node covers, and ends processes in the background as that does. Returns
    /// the runs.
    pub(super) fn stop_as_frozen(&mut self, freeze: FreezeId) -> Vec<Arc<LiveRun>> {
        let freezer = &self.services.run.freezer;
        let Some(freeze) = freezer.in_force().iter().find(|other| other.id == freeze).cloned() else {
            return Vec::new(); // it has ended
        };
        let runs = self.covered(&freeze.scope);
        self.stop(&runs, |_| cause(freeze.id));
        self.end_background(&freeze.scope);
        let ids: Vec<RunId> = runs.iter().map(|run| run.id).collect();
        self.services.run.freezer.note_stopped(freeze.id, &ids);
        runs
    }

    /// Begins the work that waited for a thaw.
    pub(super) fn thawed(&mut self) {
        self.told_frozen.clear();
        self.lanes.values().for_each(|lane| lane.wake.notify_one());
        self.services.jobs.bell.ring();
        self.services.routines.registry.ring();
    }

    /// Begins to end the processes in the background that a freeze covers: of paused runs too, which stay as they are. Who
    /// asked for a process that a conversation keeps is not known, so a freeze of some people ends those of all; a
    /// routine has none.
    fn end_background(&self, scope: &FreezeScope) {
        let processes = &self.services.processes;
        match scope {
            FreezeScope::All => {
                processes.stop_background(&ProcessesOf::Everyone);
            }
            FreezeScope::Person { .. } | FreezeScope::Channel { .. } => {
                processes.stop_background(&ProcessesOf::Sessions);
            }
            FreezeScope::Routine { .. } => {}
        }
        for run in self.lanes.values().flat_map(|lane| &lane.runs).filter(|run| run.origin.is_covered_by(scope)) {
            processes.stop_background(&ProcessesOf::Run(run.id));
        }
    }

    /// The runs that a freeze stops: those that work. Paused runs and waiting messages stay as they are.
    fn covered(&self, scope: &FreezeScope) -> Vec<Arc<LiveRun>> {
        self.at_work().filter(|run| run.origin.is_covered_by(scope)).cloned().collect()
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
    pub(super) fn say_frozen(&mut self, run: RunId, route: ReplyRoute, line: String) {
        let Some(session) = self.sessions.get(&run) else { return };
        if self.told_frozen.insert(session.clone()) {
            self.notifier.notify(Some(route), line);
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

/// Reads the freezes that other nodes have begun and ended.
pub(super) async fn adopt(services: &AgentServices, notes: &mpsc::Sender<LaneNote>) -> Result<(), StoreError> {
    let Adopted { new, some_ended } = services.run.freezer.adopt().await?;
    // Notes fail only when the dispatcher ends.
    if !new.is_empty() {
        let _ = notes.send(LaneNote::Frozen(new)).await;
    }
    if some_ended {
        let _ = notes.send(LaneNote::Thawed).await;
    }
    Ok(())
}

/// Makes the other nodes stop the runs of a freeze, and waits for their answers. A daemon that is alone has none.
async fn order(services: &AgentServices, freeze: FreezeId) -> Answers {
    let Some(cluster) = &services.cluster else { return Answers::default() };
    let id = freeze.as_uuid().into();
    stop_orders::order(services, cluster, id, OrderTarget::All, &OrderCause::Freeze(freeze), |_| true).await
}

/// Waits until the processes that other nodes have stopped for a freeze have ended, at most [`TREES_LIMIT`].
async fn until_ended(services: &AgentServices, freeze: FreezeId) -> Answers {
    let Some(cluster) = &services.cluster else { return Answers::default() };
    let deadline = Instant::now() + TREES_LIMIT;
    let is_done = |reports: &NodeReport| reports.still_running.is_empty();
    stop_orders::answers(cluster, services.boot, freeze.as_uuid().into(), deadline, is_done).await
}

/// The lines about other nodes in a receipt.
fn lines_of(others: &Answers) -> Vec<String> {
    let still = others.reports.still_running.iter().map(ending_line);
    still.chain(others.pending.iter().map(|node| format!("node {node}: no answer yet"))).collect()
}

/// Why this scope is nothing, if it is a routine that does not exist. A store that does not answer is no reason: the freeze
/// holds.
async fn unknown_routine(services: &AgentServices, scope: &FreezeScope) -> Option<String> {
    let FreezeScope::Routine { name } = scope else { return None };
    let routines = services.store.routines.routines().await.ok()?;
    let names: Vec<&str> = routines.iter().map(|routine| routine.spec.name.as_str()).collect();
    let near = did_you_mean(&nearest_names(name, names.iter().copied(), 3));
    let is_known = names.contains(&name.as_str());
    (!is_known).then(|| format!("nothing is frozen: there is no routine {name}; `belay routines` lists them.{near}"))
}

/// Writes a freeze, answers, and completes its receipt. `None`: the freeze has ended meanwhile.
async fn settle(
    services: &AgentServices,
    freeze: Freeze,
    runs: Vec<Arc<LiveRun>>,
    begun: Instant,
    answer: impl FnOnce(Answer) + Send,
) -> Option<()> {
    let freezer = &services.run.freezer;
    let id = match freezer.keep(freeze.id).await {
        Ok(Some(id)) => id,
        Ok(None) => {
            answer(Ok(freezer.in_force().to_vec()));
            return None;
        }
        Err(error) => {
            answer(Err(Refusal::Store(format!("it is frozen until a restart only: {error}"))));
            return Some(());
        }
    };
    let ids: Vec<RunId> = runs.iter().map(|run| run.id).collect();
    if id != freeze.id {
        tracing::info!(freeze = %id, instead_of = %freeze.id, "another daemon has frozen this scope first");
        freezer.note_stopped(id, &ids);
    }
    // A repeated freeze keeps the receipt of the first one, unless it has stopped more runs.
    if freeze.receipt.is_some_and(|receipt| receipt.acknowledged_ms.is_some()) && runs.is_empty() {
        answer(Ok(freezer.in_force().to_vec()));
        return Some(());
    }
    let acknowledged_ms = ms(begun.elapsed());
    freezer.amend(id, |receipt| receipt.acknowledged_ms = receipt.acknowledged_ms.or(Some(acknowledged_ms)));
    let stopped = report(&runs, &*services.processes, stop_orders::STOP_ANSWER);
    let background = background_ended(&*services.processes, Some(&ProcessesOf::Everyone), stop_orders::STOP_ANSWER);
    let (mut stopped, others, background) = tokio::join!(stopped, order(services, id), background);
    add_ending(&mut stopped.still_running, background);
    let mut ending: Vec<String> = stopped.still_running.iter().map(ending_line).collect();
    ending.extend(lines_of(&others));
    freezer.note_stopped(id, &others.reports.stopped);
    let mut kept = complete(services, id, ending.clone(), begun).await;
    answer(Ok(freezer.in_force().to_vec()));
    if !ending.is_empty() && kept.is_some() {
        let here = timeout(TREES_LIMIT, join_all(ids.iter().map(|run| services.processes.end(*run))));
        let background = background_ended(&*services.processes, Some(&ProcessesOf::Everyone), TREES_LIMIT);
        let (ended, others, background) = tokio::join!(here, until_ended(services, id), background);
        let left: Vec<String> = lines_of(&others).into_iter().chain(background.iter().map(ending_line)).collect();
        if ended.is_err() || !left.is_empty() {
            tracing::warn!(freeze = %id, "processes of stopped runs have not ended");
        }
        freezer.note_stopped(id, &others.reports.stopped);
        kept = complete(services, id, left, begun).await;
    }
    kept
}

/// Completes the receipt of a freeze for all runs that it has stopped, and stores it. `ending`: runs and processes that
/// were still ending a moment ago. `None`: the freeze has ended.
async fn complete(services: &AgentServices, freeze: FreezeId, ending: Vec<String>, begun: Instant) -> Option<()> {
    let freezer = &services.run.freezer;
    let FreezeReceipt { stopped, .. } = freezer.amend(freeze, |_| {})?;
    let alive = stopped.iter().flat_map(|run| services.processes.alive(*run)).map(|still| ending_line(&still));
    let mut outside = ending;
    for still in alive {
        if !outside.contains(&still) {
            outside.push(still);
        }
    }
    let trees_empty_ms = outside.is_empty().then(|| ms(begun.elapsed()));
    outside.extend(unknown_outcomes(services, &stopped).await);
    freezer.amend(freeze, |receipt| {
        // A request beside this one may have stopped more runs meanwhile. It completes the receipt again.
        if receipt.stopped == stopped {
            receipt.trees_empty_ms = receipt.trees_empty_ms.or(trees_empty_ms);
            receipt.outside = outside;
        }
    });
    match freezer.keep(freeze).await {
        Ok(in_force) => in_force.map(|_| ()),
        Err(error) => {
            tracing::error!(%error, "the receipt of a freeze could not be stored");
            Some(())
        }
    }
}

/// The calls of these runs whose outcome is unknown.
async fn unknown_outcomes(services: &AgentServices, runs: &[RunId]) -> Vec<String> {
    let mut found = Vec::new();
    for run in runs.iter().take(MAX_READ_RUNS) {
        let query = EventQuery { run: Some(*run), limit: MAX_READ_EVENTS, ..EventQuery::default() };
        let events = services.store.events.read(query).await.unwrap_or_else(|error| {
            found.push(format!("run {run}: its calls are not known ({error})"));
            Vec::new()
        });
        found.extend(events.into_iter().filter_map(|event| match event.kind {
            EventKind::ToolFinished { name, status: ToolStatus::OutcomeUnknown, .. } => {
                Some(format!("run {run}: a call of {name} has an unknown outcome"))
            }
            _ => None,
        }));
    }
    found
}

/// The freezes that concern everybody, without their receipts: the others name people and routines.
pub(super) fn for_everybody(mut in_force: Vec<Freeze>) -> Vec<Freeze> {
    in_force.retain(|freeze| freeze.scope == FreezeScope::All);
    in_force.iter_mut().for_each(|freeze| freeze.receipt = None);
    in_force
}

fn ending_line(still: &StillRunning) -> String {
    format!("run {}: {}", still.run_id, still.what)
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// One line about a freeze.
fn line(freeze: &Freeze) -> String {
    let why = freeze.detail.as_ref().map_or_else(String::new, |detail| format!(" ({detail})"));
    let (since, actor, scope) = (freeze.at.to_rfc3339(), &freeze.actor, &freeze.scope);
    match freeze.thawed_at {
        None => format!("Frozen since {since} by {actor}: {scope}{why}."),
        Some(thawed) => format!("Frozen from {since} to {} by {actor}: {scope}{why}.", thawed.to_rfc3339()),
    }
}

/// The answer to a command.
fn text(in_force: &[Freeze]) -> String {
    if in_force.is_empty() {
        return "Nothing is frozen any more; waiting messages are answered now.".to_owned();
    }
    let lines: Vec<String> = in_force.iter().map(with_receipt).collect();
    format!("{}\nMessages are kept. /thaw ends the freeze of everything, `belay thaw` the others.", lines.join("\n"))
}

/// A freeze with its receipt.
fn with_receipt(freeze: &Freeze) -> String {
    let Some(receipt) = &freeze.receipt else { return line(freeze) };
    let runs = receipt.stopped.len();
    let still = match (receipt.trees_empty_ms, freeze.thawed_at) {
        (Some(_), _) => "",
        (None, None) => " Some processes are still ending.",
        (None, Some(_)) => " Some processes were still ending at the thaw.",
    };
    let outside: String = receipt.outside.iter().map(|what| format!("\n  {what}")).collect();
    format!("{} Stopped {runs} run{}.{still}{outside}", line(freeze), if runs == 1 { "" } else { "s" })
}

/// The answer to `/freezes`.
fn list_text(freezes: &[Freeze]) -> String {
    match freezes {
        [] => "Nothing was ever frozen.".to_owned(),
        freezes => freezes.iter().map(with_receipt).collect::<Vec<_>>().join("\n"),
    }
}

fn not_frozen(scope: &FreezeScope, in_force: &[Freeze]) -> String {
    let others: Vec<String> = in_force.iter().map(|freeze| freeze.scope.to_string()).collect();
    match others.as_slice() {
        [] => "Nothing is frozen.".to_owned(),
        others => format!("There is no freeze of {scope}. Frozen: {}.", others.join(", ")),
    }
}
