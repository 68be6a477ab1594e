//! One turn: from its place in the queue to its outcome. Runs in a task of its own, owned by its lane, and gives back
//! everything it was lent; a panic in here costs the lane a reload and the run its answer, nothing else.

use std::sync::Arc;

use belay_agent_loop::policies::{Observation, StopRules};
use belay_agent_loop::{
    AdmittedCall, AgenticLoopConfig, LoopContext, LoopDelegate, LoopError, LoopOutcome, LoopState, run_agentic_loop,
};
use belay_protocol::{
    EventKind, HookPoint, JoinedRun, Lease, Message, MessageBody, ModelErrorKind, ReplyRoute, RunEnd, RunId,
    RunOptions, RunUsage, StopLayer, StopReason, StoreError, Together, ToolCall, ToolStatus, UnixMillis,
};
use tokio::sync::OwnedSemaphorePermit;

use crate::approvals::{Answer, Answers};
use crate::bootstrap::{self, Beginning};
use crate::chat::ChatDelegate;
use crate::closing::{self, closing_turn};
use crate::compaction::{self, Calibration, Shortener};
use crate::core::{RunClock, RunCore};
use crate::effect_gate::{Asking, put_changed};
use crate::house::House;
use crate::joining::Joining;
use crate::journal::{Remainder, RunJournal};
use crate::live::LiveRun;
use crate::metrics;
use crate::plan::run_plan;
use crate::post::Post;
use crate::prompt::{About, Briefing};
use crate::queue::one_text;
use crate::sending;
use crate::streaming::screen::Screen;
use crate::subagent::{Goal, Nest, last_chance, spawned};
use crate::submission::{self, Submission};
use crate::tally::Tally;
use crate::telling;
use crate::terminate;
use crate::waiting::Delivery;

/// What a turn is lent.
pub(crate) struct TurnJob {
    pub(crate) house: Arc<House>,
    pub(crate) run: Arc<LiveRun>,
    pub(crate) lease: Lease,
    /// The conversation before this turn, a pinned summary first.
    pub(crate) history: Vec<Arc<Message>>,
    /// The run's own messages: the user's, and whatever earlier attempts have added.
    pub(crate) own: Vec<Arc<Message>>,
    /// The loop's state at the last checkpoint.
    pub(crate) state: LoopState,
    pub(crate) usage: RunUsage,
    pub(crate) cost_micro_usd: u64,
    pub(crate) reply_to: Option<ReplyRoute>,
    /// A place in the global lane, where one was free at once.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// When the store was told that this attempt begins; `None`: it is told once there is a place.
    pub(crate) begun_at: Option<UnixMillis>,
    /// What people have answered about its calls.
    pub(crate) answers: Answers,
    /// Whether its message was relayed from a place where nobody can be asked.
    pub(crate) relayed: bool,
    /// Whether whom it works for may have it write to other conversations.
    pub(crate) elsewhere: bool,
    /// What its message and its session ask of it.
    pub(crate) options: Arc<RunOptions>,
    /// What it is answered together with, until it begins.
    pub(crate) gathered: Option<Gathered>,
    /// What may become part of it while it runs.
    pub(crate) joining: Arc<Joining>,
    /// What the session knows of the provider's way of counting.
    pub(crate) calibration: Calibration,
}

/// Messages that one turn begins with.
pub(crate) struct Gathered {
    /// What the message of the turn itself says.
    pub(crate) own: String,
    /// The others: lines of a digest, then what was collected.
    pub(crate) others: Vec<Beside>,
}

/// A message that is answered together with another.
pub(crate) struct Beside {
    pub(crate) run: Arc<LiveRun>,
    pub(crate) text: String,
    pub(crate) joined: JoinedRun,
}

impl Gathered {
    /// The user message that says what all of them say.
    pub(crate) fn text(&self) -> String {
        let of = |how| self.others.iter().filter(move |other| other.joined.how == how).map(|other| other.text.as_str());
        let whole: Vec<&str> = std::iter::once(self.own.as_str()).chain(of(COLLECT)).collect();
        one_text(&of(SUMMARIZE).collect::<Vec<_>>(), &whole)
    }

    /// The runs of the others.
    pub(crate) fn joined(&self) -> Vec<JoinedRun> {
        self.others.iter().map(|other| other.joined.clone()).collect()
    }

    /// Leaves out those that were stopped meanwhile, and says which.
    fn leave_stopped(&mut self) -> Vec<RunId> {
        let (stopped, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.others).into_iter().partition(|other| other.run.cancel.is_cancelled());
        self.others = others;
        stopped.into_iter().map(|other| other.run.id).collect()
    }
}

/// How a message becomes part of another's turn: as a line of a digest.
pub(crate) const SUMMARIZE: &str = "summarize";
/// The same: whole, behind it.
pub(crate) const COLLECT: &str = "collect";

/// Behind what the model had said when its run was stopped, for the model and for people.
pub(crate) const CUT_SHORT: &str = "\n\n[cut off: the run was stopped here]";

/// Why a run whose message was relayed asks nobody.
const RELAYED: &str = "this message was relayed from a group, where nobody can be asked; the person may write directly";

/// What comes back.
pub(crate) struct TurnEnd {
    /// The whole context.
    pub(crate) messages: Vec<Arc<Message>>,
    /// Where the turn's user message stands in it.
    pub(crate) turn_start: usize,
    /// Messages and facts that are not stored yet.
    pub(crate) unstored: Remainder,
    pub(crate) end: RunEnd,
    /// The model's answer; `None` where it gave none.
    pub(crate) reply: Option<String>,
    pub(crate) silent: bool,
    /// What the conversation is told.
    pub(crate) delivery: Delivery,
    /// When this attempt began; `None`: it did not.
    pub(crate) begun_at: Option<UnixMillis>,
    pub(crate) usage: RunUsage,
    pub(crate) cost_micro_usd: u64,
    /// Another owner has the lane: nothing may be written any more.
    pub(crate) lease_lost: bool,
    /// The drain came before a place was free: the run has not begun and stays in the store for the next start.
    pub(crate) parked: bool,
    /// What it has learnt of the provider's way of counting.
    pub(crate) calibration: Calibration,
    /// The question that it rests on, and the loop's state to go on from.
    pub(crate) rest: Option<(Asking, LoopState)>,
}

/// Waits for a place in the global lane, then runs the loop to its outcome.
pub(crate) async fn run_turn(mut job: TurnJob) -> TurnEnd {
    let house = job.house.clone();
    let run = job.run.clone();
    let permit = job.permit.take();
    let turn_start = job.history.len();
    let goal = Goal::of(&job.state, &job.own);
    let stored = turn_start + job.own.len();
    let mut delegate = ChatDelegate::new(core_of(&job, stored), turn_start);
    delegate.post = Some(Post {
        house: house.clone(),
        session: run.session.clone(),
        run: run.id,
        here: job.reply_to.clone(),
        elsewhere: job.elsewhere,
        saying: delegate.core.journal.saying(),
    });
    delegate.shortener = Shortener::of(&job.state, job.calibration);
    let mut messages = std::mem::take(&mut job.history);
    messages.append(&mut job.own);
    let mut context = LoopContext { messages, state: std::mem::take(&mut job.state) };
    put_changed(&mut context);

    let mut parked = false;
    let mut screen = None;
    let outcome = match enter(&mut job, permit).await {
        Ok(permit) => {
            run.begin();
            if let (Some(gathered), Some(message)) = (&job.gathered, context.messages.get_mut(turn_start)) {
                *message = Arc::new(Message::user(gathered.text())); // without those that were stopped meanwhile
            }
            joined_at_start(&mut job, &mut delegate.core);
            delegate.core.clock = RunClock::starting(house.clock.now());
            let journal = || delegate.core.journal.seed().grow();
            screen = Screen::open(&house, &run, job.reply_to.as_ref(), &job.options, journal).await;
            let outcome = match goal {
                Ok(goal) => {
                    if goal.is_some() {
                        delegate.core.joining = None; // what it must come up with was declared at its beginning
                    }
                    delegate.pursue(goal);
                    work(&mut delegate, &mut context, &job).await
                }
                Err(problem) => {
                    tracing::error!(run = %run.id, problem, "declared outputs can no longer be used");
                    Ok(LoopOutcome::Stopped(RunEnd::of(StopReason::Internal).with("cause", "outputs")))
                }
            };
            drop(permit);
            outcome
        }
        Err(NotBegun::Stopped(reason)) => Ok(LoopOutcome::Stopped(reason.into())),
        Err(NotBegun::Store(error)) => Err(LoopError::Store(error)),
        Err(NotBegun::Draining) => {
            parked = true;
            Ok(LoopOutcome::Stopped(StopReason::Shutdown.into()))
        }
    };

    if job.begun_at.is_some() && !parked && !matches!(outcome, Ok(LoopOutcome::NeedApproval(_))) {
        // Where a resumed batch failed before it began, its calls have no results yet.
        context.answer_open_calls(ToolStatus::NotExecuted, "not executed: the run ended first");
    }
    let lease_lost = matches!(&outcome, Err(LoopError::Store(StoreError::LeaseLost(_))));
    let (mut end, mut reply) = ending(&delegate, outcome);
    (end, reply) = telling::instead_of_nothing(&mut delegate, &context, (end, reply));
    if !lease_lost {
        let (start, channel) = (delegate.turn_start, job.reply_to.as_ref().map(|route| &route.channel));
        (end, reply) = sending::agree(&mut delegate.core, &mut context, start, channel, (end, reply)).await;
    }
    // Where hooks look at what is said, nothing enters the conversation that they have not agreed to.
    let unseen = house.hooks.is_bound(HookPoint::MessageSending);
    if let Some(said) = delegate.core.cut_short.take().filter(|_| !lease_lost && !unseen) {
        context.push(Message::assistant(format!("{said}{CUT_SHORT}")));
    }
    let unstored = delegate.core.journal.remainder(&context.messages);
    let (usage, cost_micro_usd) = delegate.core.tally.spent();
    let told = match lease_lost || parked || delegate.asking.is_some() {
        true => None,
        false => telling::told(&delegate, &context, &end, reply.clone()),
    };
    let delivery = telling::deliver(&run, screen, told).await;
    let rest = delegate.asking.take().map(|asking| (asking, context.state));
    if rest.is_none() && !lease_lost && delegate.core.stopped().is_none() {
        end_processes(&house, run.id).await;
    }
    TurnEnd {
        rest,
        calibration: delegate.shortener.calibration,
        turn_start: delegate.turn_start,
        silent: delegate.silent,
        delivery,
        usage,
        cost_micro_usd,
        messages: context.messages,
        unstored,
        end,
        reply,
        begun_at: job.begun_at,
        lease_lost,
        parked,
    }
}

enum NotBegun {
    Stopped(StopReason),
    Store(StoreError),
    Draining,
}

/// The shared part of a turn's run.
fn core_of(job: &TurnJob, stored: usize) -> RunCore {
    let (house, live) = (job.house.clone(), job.run.clone());
    let tally = Tally::new(job.usage, job.cost_micro_usd, 0);
    if job.history.iter().chain(&job.own).any(|message| message.outside) {
        tally.see_outside();
    }
    let (threads, clock) = (house.store.threads.clone(), house.clock.clone());
    let journal = RunJournal::new(threads, clock, job.lease.clone(), live.id, tally.clone(), stored);
    RunCore {
        cancel: live.cancel.clone(),
        clock: RunClock::starting(house.clock.now()),
        rules: rules_of(&house.rules, &job.options),
        child: false,
        deadline: None,
        own: None,
        closing: None,
        answers: job.answers.clone(),
        may_ask: if job.relayed { Err(RELAYED) } else { Ok(()) },
        nest: Nest::root(&house.config.subagents, spawned(&job.own)),
        options: job.options.clone(),
        briefing: Arc::default(), // before it asks anybody it is told more
        joining: Some(job.joining.clone()),
        cut_short: None,
        stand_in: None,
        journal,
        tally,
        live,
        house,
    }
}

/// The rules of a run: everybody's, but for the time that its message asks for.
fn rules_of(rules: &Arc<StopRules>, options: &RunOptions) -> Arc<StopRules> {
    match options.timeout_ms {
        Some(ms) => Arc::new(rules.with_active_s(ms.div_ceil(1000))),
        None => rules.clone(),
    }
}

/// Ends what a run has left behind. A run that was stopped has others do this, at once.
pub(crate) async fn end_processes(house: &House, run: RunId) {
    let left = house.processes.alive(run);
    if !left.is_empty() {
        tracing::debug!(%run, processes = left.len(), "a run has ended; its processes are ended now");
        house.processes.end(run).await;
    }
}

/// Takes a place in the global lane and notes the beginning in the store.
async fn enter(
    job: &mut TurnJob,
    permit: Option<OwnedSemaphorePermit>,
) -> Result<Option<OwnedSemaphorePermit>, NotBegun> {
    let stopped =
        |run: &LiveRun| NotBegun::Stopped(run.stopped_by().map_or(StopReason::UserStop, |cause| cause.reason));
    let permit = match permit {
        Some(permit) => Some(permit),
        None => tokio::select! {
            biased; // a run that was stopped while it waited never begins
            () = job.run.cancel.cancelled() => return Err(stopped(&job.run)),
            () = job.house.draining.cancelled() => return Err(NotBegun::Draining),
            // The semaphore is never closed; without a permit the turn would still be right, only wider.
            permit = job.house.permits.clone().acquire_owned() => permit.ok(),
        },
    };
    if job.begun_at.is_none() {
        let (now, threads) = (job.house.clock.now(), &job.house.store.threads);
        if let Some(gathered) = &mut job.gathered {
            // The last moment: whoever is stopped from now on has joined, and whoever was before has not.
            job.joining.give_back(&gathered.leave_stopped());
        }
        let begun = match job.gathered.as_ref().filter(|gathered| !gathered.others.is_empty()) {
            None => threads.start_run(&job.lease, job.run.id, now).await,
            Some(gathered) => {
                let (run, text, joined) = (job.run.id, gathered.text(), gathered.joined());
                threads.start_together(&job.lease, Together { run, text, joined, at: now }).await
            }
        };
        begun.map_err(NotBegun::Store)?;
        job.begun_at = Some(now);
    }
    Ok(permit)
}

/// Tells the lane and the log of the messages that the turn has begun with.
fn joined_at_start(job: &mut TurnJob, core: &mut RunCore) {
    let Some(joined) = job.gathered.take().map(|gathered| gathered.joined()) else { return };
    for how in [SUMMARIZE, COLLECT] {
        let runs: Vec<RunId> = joined.iter().filter(|joined| joined.how == how).map(|joined| joined.run).collect();
        if !runs.is_empty() {
            core.journal.note(EventKind::Joined { runs, how: how.into() });
        }
    }
    job.joining.committed(&joined);
}

/// What the session's other runs have cost, where that matters.
async fn session_before(job: &TurnJob) -> Result<u64, LoopError> {
    let house = &job.house;
    if !house.rules.counts_session_money() {
        return Ok(0);
    }
    let spent = house.store.spend.session_spent(&job.run.session).await?;
    Ok(spent.saturating_sub(job.cost_micro_usd)) // this run's earlier attempts are in its own account
}

/// Runs the loop, showing on the channel that work goes on.
async fn work(delegate: &mut ChatDelegate, context: &mut LoopContext, job: &TurnJob) -> Result<LoopOutcome, LoopError> {
    let house = job.house.clone();
    delegate.core.tally.open_session(session_before(job).await?);
    let indicator = job.run.cancel.child_token();
    context.state.stops.detection_off = job.run.loops_off();
    if let Some(last) = context.state.stops.measures.time.newest() {
        // Taken up again: while nobody was there, the run was not at work.
        let away = delegate.core.clock.now_ms().saturating_sub(last);
        let verdict = context.state.stops.observe(&delegate.core.rules, Observation::Paused(away));
        if let Some(end) = context.heed(verdict) {
            return Ok(LoopOutcome::Stopped(end));
        }
    }
    // The earlier attempt died between its ending and the commit of it.
    if let Some(finding) = context.state.stops.latched.clone() {
        return Ok(LoopOutcome::Stopped(finding.into()));
    }
    delegate.core.tally.open_output(context.state.stops.measures.output_bytes.count());
    let looping = async {
        let message = context.messages.get(delegate.turn_start).map(|message| message.text().to_owned());
        let briefing = briefing_of(job).await;
        match bootstrap::begin(&mut delegate.core, context, &briefing, &message.unwrap_or_default()).await? {
            Beginning::Go(told) => delegate.brief(told.over(briefing)),
            Beginning::Over(end, words) => {
                delegate.summary = words;
                return Ok(LoopOutcome::Stopped(end));
            }
        }
        if let Some(request) = plan_request(delegate, context) {
            delegate.core.joining = None; // a plan is made of the one message
            let (start, core) = (delegate.turn_start, &mut delegate.core);
            let (end, said) = Box::pin(run_plan(core, context, start, &request)).await?;
            delegate.summary = said;
            return Ok(LoopOutcome::Stopped(end));
        }
        let resumed = resume(delegate, context).await?;
        let reasoning = delegate.reasoning.clone();
        // The last step of a turn without outputs has no tools; one with outputs has its closing turn instead.
        let last = u32::from(delegate.goal.is_none());
        let config = AgenticLoopConfig {
            max_iterations: house.config.max_tool_iterations.saturating_add(last),
            rules: delegate.core.rules.clone(),
            ..AgenticLoopConfig::default()
        };
        let mut outcome = match resumed {
            Some(outcome) => outcome,
            None => run_agentic_loop(delegate, &reasoning, context, &config).await?,
        };
        if delegate.goal.is_some() {
            return Ok(close_with_outputs(delegate, context, outcome).await);
        }
        if let LoopOutcome::Stopped(end) = &mut outcome
            && closing::deserves_one(end)
        {
            delegate.summary = closing_turn(&mut delegate.core, &reasoning, context, end).await;
            // Somebody's stop comes before every limit, also in the last turn.
            if let Some(reason) = delegate.core.stopped() {
                delegate.summary = None;
                *end = RunEnd::of(reason);
            }
        }
        Ok(outcome)
    };
    let route = job.reply_to.as_ref();
    let Some((route, channel)) = route.and_then(|route| Some((route, house.channels.get(&route.channel)?))) else {
        return looping.await;
    };
    let working = channel.working(route, indicator.clone());
    tokio::pin!(looping, working);
    let outcome = tokio::select! {
        outcome = &mut looping => outcome,
        () = &mut working => looping.await,
    };
    indicator.cancel();
    outcome
}

/// What a turn is told of its surroundings. A turn that is stopped meanwhile is told nothing, and asks nobody.
async fn briefing_of(job: &TurnJob) -> Briefing {
    let about = About {
        session: &job.run.session,
        channel: job.reply_to.as_ref().map(|route| &route.channel),
        relayed: job.relayed,
        options: &job.options,
    };
    tokio::select! {
        biased; // a stop waits for no disk
        () = job.run.cancel.cancelled() => Briefing::default(),
        briefing = Briefing::of_run(&job.house, about) => briefing,
    }
}

/// The end of a turn with outputs: a last chance where some are missing, and what is there as its answer.
async fn close_with_outputs(
    delegate: &mut ChatDelegate,
    context: &mut LoopContext,
    outcome: LoopOutcome,
) -> LoopOutcome {
    let mut end = match outcome {
        LoopOutcome::Stopped(end) => end,
        LoopOutcome::MaxIterations { iterations } => iterations_used(&delegate.core.house, iterations),
        other => return other,
    };
    let late = matches!(end.reason, StopReason::MaxIterations | StopReason::MissingOutputs);
    if late || closing::deserves_one(&end) {
        delegate.core.note_brakes(context);
        end = last_chance(delegate, context, end).await;
    }
    if let Some(goal) = delegate.goal.as_ref().filter(|_| end.reason == StopReason::Goal) {
        let reply = goal.declared.as_json();
        context.push(Message::assistant(&reply));
        delegate.summary = Some(reply);
    }
    LoopOutcome::Stopped(end)
}

fn iterations_used(house: &House, iterations: u32) -> RunEnd {
    RunEnd::of(StopReason::MaxIterations)
        .with("iterations", iterations)
        .with("max_tool_iterations", house.config.max_tool_iterations)
}

/// What a plan is to be made for, where the person's message, which is stored as it was typed, asks for one.
fn plan_request(delegate: &ChatDelegate, context: &LoopContext) -> Option<String> {
    match submission::parse(context.messages.get(delegate.turn_start)?.text()) {
        Submission::Plan(request) => Some(request),
        _ => None,
    }
}

/// Takes up what an earlier attempt left: each call that has no result gets one before the model is asked, unless a
/// person has to be asked first. Returns how the run leaves here, if it does.
async fn resume(delegate: &mut ChatDelegate, context: &mut LoopContext) -> Result<Option<LoopOutcome>, LoopError> {
    let start = delegate.turn_start.min(context.messages.len());
    let open = open_calls(&context.messages[start..]);
    if !open.is_empty() {
        let house = delegate.core.house.clone();
        let tools = delegate.reasoning.tools().clone();
        // A question about the first of them was answered, so none of them had begun: they go the way of every call.
        let answer = open.first().and_then(|call| delegate.core.answers.get(&call.id));
        let answered = answer.is_some_and(Answer::is_open);
        let admit = |call| match answered {
            true => AdmittedCall { call, refused: None },
            false => house.gate.after_restart(&tools, call),
        };
        let calls = open.into_iter().map(admit).collect();
        if let Some(outcome) = delegate.execute_tool_calls(calls, context).await? {
            return Ok(Some(outcome));
        }
        let config = AgenticLoopConfig { rules: delegate.core.rules.clone(), ..AgenticLoopConfig::default() };
        if let Some(end) = context.judge_last_batch(&config, &tools) {
            return Ok(Some(LoopOutcome::Stopped(end)));
        }
        delegate.after_iteration(context.state.iteration, context).await?;
    }
    let ended = terminate::ended(&context.messages[start..]);
    Ok(ended.map(|ended| {
        let end = ended.end(context.state.iteration);
        delegate.summary = ended.summary;
        LoopOutcome::Stopped(end)
    }))
}

/// Calls of the last assistant message that have no result behind them.
pub(crate) fn open_calls(own: &[Arc<Message>]) -> Vec<ToolCall> {
    let Some(at) = own.iter().rposition(|message| !message.tool_calls().is_empty()) else { return Vec::new() };
    let answered = |call: &ToolCall| {
        own[at + 1..].iter().any(|m| matches!(&m.body, MessageBody::Tool(result) if result.call_id == call.id))
    };
    own[at].tool_calls().iter().filter(|call| !answered(call)).cloned().collect()
}

/// The one place where an outcome or an error becomes the run's end.
fn ending(delegate: &ChatDelegate, outcome: Result<LoopOutcome, LoopError>) -> (RunEnd, Option<String>) {
    let ChatDelegate { core: RunCore { house, live: run, .. }, silent, cut_off, summary, .. } = delegate;
    let error = match outcome {
        Ok(LoopOutcome::Response(_)) if *silent => {
            return (RunEnd::of(StopReason::FinalText).with("silent", true), None);
        }
        // A cap is never ok: nothing said because of a limit is not "nothing to say".
        Ok(LoopOutcome::Response(text)) if text.is_empty() => {
            return (RunEnd::of(cut_off.unwrap_or(StopReason::EmptyReply)), None);
        }
        Ok(LoopOutcome::Response(text)) => {
            let end = RunEnd::of(StopReason::FinalText);
            let end = match cut_off {
                Some(by) => end.with("cut_off", by.word()),
                None => end,
            };
            return (end, Some(text));
        }
        Ok(LoopOutcome::Stopped(end)) => {
            if let Some(rule) = end.evidence.get("rule").and_then(|rule| rule.as_str()) {
                metrics::rule_fired(rule, "stop");
            }
            let line = end.reason.user_line();
            let reply = summary.as_ref().map(|text| match end.reason.layer() {
                StopLayer::Natural if end.reason != StopReason::PlanBlocked => text.clone(),
                _ => format!("{text}\n\n{line}"), // the best partial answer, and why it is no more
            });
            return (end, reply);
        }
        Ok(LoopOutcome::MaxIterations { iterations }) => {
            return (iterations_used(house, iterations), None);
        }
        // Not an end, unless the question cannot be stored: the lane says so then.
        Ok(LoopOutcome::NeedApproval(pending)) => {
            return (RunEnd::of(StopReason::ApprovalUnavailable).with("tool", pending.call.name), None);
        }
        Err(error) => error,
    };
    tracing::warn!(run = %run.id, session = %run.session, %error, "run failed");
    (failure(error), None)
}

/// The end of a run that could not go on.
pub(crate) fn failure(error: LoopError) -> RunEnd {
    match error {
        LoopError::CostRefused { spent_micro_usd, limit_micro_usd, needed_micro_usd } => {
            RunEnd::of(StopReason::CostRefused)
                .with("needed_micro_usd", needed_micro_usd)
                .with("spent_micro_usd", spent_micro_usd)
                .with("limit_micro_usd", limit_micro_usd)
        }
        LoopError::Store(_) => RunEnd::of(StopReason::Internal).with("cause", "store"),
        LoopError::Model(error) => {
            let reason = match error.kind {
                ModelErrorKind::RateLimited { .. } => StopReason::RateLimited,
                ModelErrorKind::Overloaded { .. } => StopReason::Overloaded,
                ModelErrorKind::Auth => StopReason::ProviderAuth,
                ModelErrorKind::ContextTooLong => StopReason::ContextTooLong,
                ModelErrorKind::BadRequest => StopReason::BadRequest,
                ModelErrorKind::Network => StopReason::Network,
            };
            let end = RunEnd::of(reason).with("requests", error.attempts).with("answers_begun", error.abandoned);
            match error.kind {
                ModelErrorKind::RateLimited { retry_after: Some(left) }
                | ModelErrorKind::Overloaded { retry_after: Some(left) } => {
                    end.with("retry_after_s", left.as_secs().max(1))
                }
                _ => end,
            }
        }
    }
}

/// The context of a conversation: a pinned summary, where there is one, and the messages.
pub(crate) fn context_of(summary: Option<&str>, messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
    match summary {
        Some(summary) => std::iter::once(compaction::pinned(summary)).chain(messages).collect(),
        None => messages,
    }
}
