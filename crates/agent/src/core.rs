//! What every kind of run shares: asking the model, running a batch, and the clock. A delegate has one and adds what
//! makes its kind of run different.

use std::sync::Arc;
use std::time::Duration;

use belay_agent_loop::policies::{Action, Observation, StopRules};
use belay_agent_loop::{AdmittedCall, BrakeAction, Fired, LlmTurn, LoopContext, LoopError, Meter, Reasoning};
use belay_protocol::{
    EventKind, Finding, ModelError, ModelReply, ModelRequest, Progress, RunEnd, RunOptions, StopReason, Thinking, Tool,
    ToolSet, UnixMillis, Usage, normalise,
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::approvals::Answers;
use crate::cost_guard::{Refused, Reservation};
use crate::effect_gate::{Asking, Caller};
use crate::house::House;
use crate::joining::Joining;
use crate::journal::{JournalSeed, RunJournal};
use crate::live::LiveRun;
use crate::metrics;
use crate::prompt::Briefing;
use crate::streaming::sink::{LiveSink, Streamed};
use crate::streaming::thoughts;
use crate::subagent::Nest;
use crate::tally::{Hold, Tally};
use crate::terminate::{self, Terminated};

/// Most tokens of a closing turn: what is held back for it. 1024: a page of text.
pub(crate) const CLOSING_MAX_TOKENS: u32 = 1024;

/// The shared part of a run.
pub(crate) struct RunCore {
    pub(crate) house: Arc<House>,
    /// The run that a person can stop: this one, or the one that started it.
    pub(crate) live: Arc<LiveRun>,
    /// Says stop to this run and to everything it starts.
    pub(crate) cancel: CancellationToken,
    /// Whether another run started this one.
    pub(crate) child: bool,
    pub(crate) journal: RunJournal,
    /// The account of the whole tree.
    pub(crate) tally: Tally,
    pub(crate) rules: Arc<StopRules>,
    pub(crate) clock: RunClock,
    /// What the run that started this one has left.
    pub(crate) deadline: Option<Instant>,
    /// A limit of its own besides those of its rules.
    pub(crate) own: Option<OwnTime>,
    /// While it has its closing turn: until when.
    pub(crate) closing: Option<Instant>,
    /// Where it stands in the tree of runs.
    pub(crate) nest: Nest,
    /// What people have answered about calls of this run.
    pub(crate) answers: Answers,
    /// Whether a person can be asked; else why nobody can, as the end of a sentence.
    pub(crate) may_ask: Result<(), &'static str>,
    /// What its message, its session and the configuration ask of it.
    pub(crate) options: Arc<RunOptions>,
    /// What it is told of its surroundings; a run that another one started knows what that one was told.
    pub(crate) briefing: Arc<Briefing>,
    /// Messages of the person that may become part of it; `None`: none may.
    pub(crate) joining: Option<Arc<Joining>>,
    /// What the model had said when the run was stopped or its time was up, unless it has answered since.
    pub(crate) cut_short: Option<String>,
    /// Which model has answered last, where there are several and it was not the one that was to.
    pub(crate) stand_in: Option<String>,
}

/// Why a run that another one started asks nobody.
const NOBODY: &str = "a run that another one has started has nobody to ask; hand back what is missing";

/// Why a run in its last turn asks nobody.
const ENDING: &str = "this run is ending; hand over what there is";

/// What a batch has come to.
#[derive(Default)]
pub(crate) struct Executed {
    /// How the model ended the run in it.
    pub(crate) ended: Option<Terminated>,
    /// The question that it stopped at.
    pub(crate) asking: Option<Asking>,
}

/// The time that a run was given by whoever started it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnTime {
    pub(crate) until: Instant,
    pub(crate) time: Duration,
}

/// Dates that never run backwards: the date of the beginning, and the time since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunClock {
    began: UnixMillis,
    since: Instant,
}

impl RunClock {
    /// A clock that begins at this date, now.
    pub(crate) fn starting(began: UnixMillis) -> Self {
        Self { began, since: Instant::now() }
    }

    /// Milliseconds since 1970, as far as this run is concerned.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.began.0).unwrap_or(0).saturating_add(millis(self.since.elapsed()))
    }

    fn instant_of(&self, at_ms: u64) -> Instant {
        let since_began = at_ms.saturating_sub(u64::try_from(self.began.0).unwrap_or(0));
        // A deadline beyond the reach of the clock is as good as a year from now.
        self.since.checked_add(Duration::from_millis(since_began)).unwrap_or_else(|| self.since + YEAR)
    }
}

const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What became of a logical call.
pub(crate) enum Asked {
    /// A whole answer.
    Reply(ModelReply),
    /// No answer; retries are behind us.
    Failed(ModelError),
    /// It was dropped, or not made: the run is told to end, or a limit is reached.
    Ended(RunEnd),
    /// It was dropped, since the text repeated itself; what had been said.
    Chanted(String),
}

/// What a run hands to the runs that it starts. Clones share the account and the stop.
#[derive(Clone)]
pub(crate) struct Seed {
    house: Arc<House>,
    live: Arc<LiveRun>,
    cancel: CancellationToken,
    journal: JournalSeed,
    tally: Tally,
    clock: RunClock,
    /// When the run that hands it out must have ended.
    deadline: Option<Instant>,
    nest: Nest,
    options: Arc<RunOptions>,
    briefing: Arc<Briefing>,
}

impl Seed {
    /// The daemon's shared part.
    pub(crate) fn house(&self) -> &Arc<House> {
        &self.house
    }

    /// The run that a person can stop.
    pub(crate) fn live(&self) -> &LiveRun {
        &self.live
    }

    /// Where the run that hands it out stands in the tree.
    pub(crate) fn nest(&self) -> &Nest {
        &self.nest
    }

    /// What the run that hands it out was told of its surroundings.
    pub(crate) fn briefing(&self) -> &Briefing {
        &self.briefing
    }

    /// A child that is judged by `rules` of its own besides the root's limits, and has at most `time`, never more than its
    /// parent has left. It is charged to the account of the tree and stops with its parent.
    pub(crate) fn grow(&self, rules: Arc<StopRules>, time: Duration) -> RunCore {
        RunCore {
            house: self.house.clone(),
            live: self.live.clone(),
            cancel: self.cancel.child_token(),
            child: true,
            journal: self.journal.grow(),
            tally: self.tally.clone(),
            rules,
            clock: self.clock,
            deadline: self.deadline,
            own: Instant::now().checked_add(time).map(|until| OwnTime { until, time }),
            closing: None,
            nest: self.nest.clone(),
            answers: Answers::new(),
            may_ask: Err(NOBODY),
            options: self.options.clone(),
            briefing: self.briefing.clone(),
            joining: None,
            cut_short: None,
            stand_in: None,
        }
    }
}

/// What one call may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// Requests.
    pub(crate) attempts: u32,
    /// What it is for.
    pub(crate) purpose: Purpose,
}

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A step of the run.
    Step,
    /// The closing turn: it may use the reserve, and only the time it is given.
    Closing(Duration),
    /// A question about the run, whose answer is nobody's message.
    Aside,
}

impl Purpose {
    fn closing(self) -> Option<Duration> {
        match self {
            Self::Closing(time) => Some(time),
            Self::Step | Self::Aside => None,
        }
    }
}

impl RunCore {
    /// Why the run was told to stop.
    pub(crate) fn stopped(&self) -> Option<StopReason> {
        let reason = self.live.stopped_by().map(|cause| cause.reason);
        match self.child {
            true => self.cancel.is_cancelled().then_some(StopReason::ParentStopped),
            false => reason,
        }
    }

    /// What the person says may become part of the run now: not in its last turn.
    pub(crate) fn joining(&self) -> Option<&Arc<Joining>> {
        self.joining.as_ref().filter(|_| self.closing.is_none())
    }

    /// The time and what has been used, for the rules.
    pub(crate) fn meter(&self) -> Meter {
        Meter { clock_ms: Some(self.clock.now_ms()), totals: self.tally.totals() }
    }

    /// What this run hands to the runs that it starts now.
    pub(crate) fn seed(&self, context: &LoopContext) -> Seed {
        Seed {
            house: self.house.clone(),
            live: self.live.clone(),
            cancel: self.cancel.clone(),
            journal: self.journal.seed(),
            tally: self.tally.clone(),
            clock: self.clock,
            deadline: self.deadline(context, self.allowance(1).purpose),
            nest: self.nest.clone(),
            options: self.options.clone(),
            briefing: self.briefing.clone(),
        }
    }

    /// What a call may take now: in the closing turn one request, and what is left of that turn's time.
    pub(crate) fn allowance(&self, attempts: u32) -> Allowance {
        match self.closing {
            None => Allowance { attempts, purpose: Purpose::Step },
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                Allowance { attempts: 1, purpose: Purpose::Closing(left) }
            }
        }
    }

    /// How hard the model is to think: not at all harder than by itself where it only has to close or to judge, for which
    /// there are few tokens.
    fn thinking(&self, purpose: Purpose) -> Option<Thinking> {
        match purpose {
            Purpose::Step => self.options.thinking.or(self.house.config.thinking),
            Purpose::Closing(_) | Purpose::Aside => None,
        }
    }

    /// The earliest of the run's own deadlines and what its parent has left.
    fn deadline(&self, context: &LoopContext, purpose: Purpose) -> Option<Instant> {
        let own = match purpose.closing() {
            Some(time) => [Some(Instant::now() + time), None],
            None => {
                let rules = self.rules.deadline_ms(&context.state.stops).map(|at| self.clock.instant_of(at));
                [rules, self.own.map(|own| own.until)]
            }
        };
        own.into_iter().chain([self.deadline]).flatten().min()
    }

    /// Whether the run that started this one has no time left.
    pub(crate) fn parent_is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// One logical call: guarded, metered, under the run's deadline, and dropped at once when the run is told to stop or
    /// the text goes in circles.
    ///
    /// # Cancel safety
    /// Dropped midway, the day's reservation stands and the account counts a request that cost all it could: both look
    /// more spent, never less.
    pub(crate) async fn ask(
        &mut self,
        reasoning: &Reasoning,
        context: &mut LoopContext,
        step: u32,
        allowance: Allowance,
    ) -> Result<Asked, LoopError> {
        let deadline = self.deadline(context, allowance.purpose);
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Ok(Asked::Ended(self.late(context))); // nothing is asked that nobody waits for
        }
        // A day that has refused a call of the tree refuses them all, also a smaller one.
        if let Some([spent_micro_usd, limit_micro_usd, needed_micro_usd]) = self.tally.day_refused() {
            return Err(LoopError::CostRefused { spent_micro_usd, limit_micro_usd, needed_micro_usd });
        }
        context.state.stops.detection_off = self.live.loops_off();
        // The tracker of the stream is lent to the sink; dropped with this future, the run is over as well.
        let mut chanting = std::mem::take(&mut context.state.stops.measures.chanting);
        let max_tokens = |request: ModelRequest<'_>| match allowance.purpose.closing() {
            Some(_) => request.max_tokens.min(CLOSING_MAX_TOKENS),
            None => request.max_tokens,
        };
        // Whatever a crash or an edit has left in it: one bad message would have every later request refused.
        let messages = normalise(&context.messages);
        let request = reasoning.request(context);
        let request = ModelRequest {
            messages: &messages,
            max_attempts: allowance.attempts,
            max_tokens: max_tokens(request),
            model: request.model.or(self.options.model.as_deref()),
            thinking: self.thinking(allowance.purpose),
            ..request
        };
        let (hold, reservation) = match self.reserve(&request, allowance).await? {
            Ok(held) => held,
            Err(end) => {
                context.state.stops.measures.chanting = chanting;
                return Ok(Asked::Ended(end));
            }
        };
        let request = ModelRequest { max_attempts: hold.attempts.min(reservation.attempts()), ..request };
        let cut = CancellationToken::new();
        let watched = self.rules.cuts_streams(&context.state.stops) && allowance.purpose == Purpose::Step;
        let mut sink = LiveSink::new(&self.live, step, watched.then_some((&mut chanting, &cut)));
        match self.child || allowance.purpose == Purpose::Aside {
            true => sink.silent(),
            false => sink.shown(),
        }
        self.live.touch();
        let result = tokio::select! {
            biased; // a stop that has arrived is never answered by one more word of the model
            () = self.cancel.cancelled() => Err(Dropped::Stopped),
            () = cut.cancelled() => Err(Dropped::Chanted),
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => Err(Dropped::Late),
            result = self.house.model.call(request, &mut sink) => Ok(result),
        };
        let result = result.map(|answer| {
            answer.map(|reply| {
                sink.finish();
                ModelReply { text: thoughts::without(&reply.text), ..reply }
            })
        });
        let Streamed { text: said, bytes } = sink.end();
        self.live.touch();
        context.state.stops.measures.chanting = chanting;
        self.tally.add_output(bytes);
        match result {
            Ok(result) => Ok(self.settle(hold, reservation, result, step).await),
            Err(dropped) => {
                let read = context.messages.iter().map(|message| message.estimated_tokens()).sum();
                let estimate = Usage { input: read, cached_input: 0, output: bytes as u64 / 4 };
                self.settle_dropped(hold, reservation, &dropped, &estimate).await;
                let shown = !self.child && allowance.purpose != Purpose::Aside && !said.trim().is_empty();
                if shown && matches!(dropped, Dropped::Stopped | Dropped::Late) {
                    self.cut_short = Some(said.clone());
                }
                Ok(match dropped {
                    Dropped::Stopped => Asked::Ended(self.stopped().unwrap_or(StopReason::UserStop).into()),
                    Dropped::Chanted => Asked::Chanted(said),
                    Dropped::Late => Asked::Ended(self.late(context)),
                })
            }
        }
    }

    /// Settles a call that has come to its end, in both accounts, and notes it.
    async fn settle(
        &mut self,
        hold: Hold,
        reservation: Reservation,
        result: Result<ModelReply, ModelError>,
        step: u32,
    ) -> Asked {
        match result {
            Ok(reply) => {
                self.cut_short = None; // the closing turn has answered in its place
                self.house.model_answered();
                let usage = reply.usage;
                let answer = Some((usage.as_ref(), reply.price.as_ref()));
                let charged = self.house.cost.settle(reservation, reply.abandoned, answer).await;
                self.tally.settle(hold, reply.attempts, usage.as_ref(), charged);
                metrics::model_called(reply.attempts, None, usage.as_ref(), charged);
                let (input, output) = usage.map_or((None, None), |u| (Some(u.input), Some(u.output)));
                self.journal.note(EventKind::ModelCalled { step, attempts: reply.attempts, input, output });
                self.note_stand_in(&reply);
                Asked::Reply(reply)
            }
            Err(error) => {
                self.journal.note(EventKind::ModelCalled { step, attempts: error.attempts, input: None, output: None });
                let charged = self.house.cost.settle(reservation, error.abandoned, None).await;
                self.tally.settle(hold, error.attempts, None, charged);
                metrics::model_called(error.attempts, Some(&error.kind), None, charged);
                self.house.model_failed(&error);
                Asked::Failed(error)
            }
        }
    }

    /// Notes which model answers in the place of another: once for each change, not for each call.
    fn note_stand_in(&mut self, reply: &ModelReply) {
        let Some(fell_back) = &reply.fell_back else {
            self.stand_in = None;
            return;
        };
        metrics::model_fell_back(&fell_back.why);
        let to = reply.answered_by.clone().unwrap_or_default();
        if self.stand_in.as_ref() != Some(&to) {
            let (from, why) = (fell_back.from.clone(), fell_back.why.clone());
            self.journal.note(EventKind::ModelFallback { from, to: to.clone(), why });
            self.stand_in = Some(to);
        }
    }

    /// Settles a call that was dropped. What was generated may be charged to us and nobody will say how much: the estimate is.
    async fn settle_dropped(&self, hold: Hold, reservation: Reservation, dropped: &Dropped, estimate: &Usage) {
        let charged = self.house.cost.settle(reservation, 1, None).await;
        self.tally.settle(hold, 1, Some(estimate), charged);
        metrics::model_dropped(dropped.word(), charged);
    }

    /// Reserves the money of a call in the run's account and in the day's.
    async fn reserve(
        &self,
        request: &ModelRequest<'_>,
        allowance: Allowance,
    ) -> Result<Result<(Hold, Reservation), RunEnd>, LoopError> {
        let each = self.house.cost.estimate(request);
        // The closing turn that is held back for is the root's; a child's is paid like any other call.
        let closing = allowance.purpose.closing().is_some() && !self.child;
        if !self.child && allowance.purpose == Purpose::Step && self.rules.closing_turn().is_some() {
            let last = ModelRequest { max_tokens: CLOSING_MAX_TOKENS, thinking: None, ..*request };
            self.tally.hold_back(self.house.cost.estimate(&last));
        }
        let mut limits = self.rules.limits().clone();
        if closing {
            limits.model_calls = None; // it is the one call beyond
        }
        let hold = match self.tally.admit(&limits, allowance.attempts, each, closing) {
            Ok(hold) => hold,
            Err(finding) => return Ok(Err((*finding).into())),
        };
        let request = ModelRequest { max_attempts: hold.attempts, ..*request };
        match self.house.cost.reserve(self.live.id, &request).await {
            Ok(reservation) => match self.stopped() {
                None => Ok(Ok((hold, reservation))),
                Some(reason) => {
                    self.house.cost.release(reservation).await; // no request was sent
                    self.tally.settle(hold, 0, None, 0);
                    Ok(Err(reason.into()))
                }
            },
            Err(refused) => {
                self.tally.settle(hold, 0, None, 0);
                Err(match refused {
                    Refused::Limit { spent, limit, needed } => {
                        // What does not fit aside says nothing about the work: its next call is looked at by itself.
                        if allowance.purpose != Purpose::Aside {
                            self.tally.refuse_day(spent, limit, needed);
                        }
                        LoopError::CostRefused {
                            spent_micro_usd: spent,
                            limit_micro_usd: limit,
                            needed_micro_usd: needed,
                        }
                    }
                    Refused::Store(error) => error.into(),
                })
            }
        }
    }

    /// The end of a run whose time was up during a call.
    fn late(&self, context: &mut LoopContext) -> RunEnd {
        let verdict = context.state.stops.observe(&self.rules, Observation::Clock(self.clock.now_ms()));
        match verdict.filter(|verdict| verdict.action == Action::Stop) {
            Some(verdict) => verdict.finding.into(),
            None => match self.own.filter(|own| own.until <= Instant::now() && self.closing.is_none()) {
                Some(OwnTime { time, .. }) => {
                    Finding::new(StopReason::ActiveTime, "max_time", time.as_secs(), time.as_secs())
                        .with("unit", "s")
                        .into()
                }
                // Not our own time is up, but that of the run that started us, or of the closing turn.
                None => Finding::new(StopReason::ActiveTime, "deadline", 0, 0).into(),
            },
        }
    }

    /// One logical call as a step of the loop: chanting becomes a verdict.
    pub(crate) fn turn_of(&self, asked: Asked, context: &mut LoopContext) -> Result<LlmTurn, LoopError> {
        match asked {
            Asked::Reply(reply) => Ok(LlmTurn::Reply(reply)),
            Asked::Failed(error) => Err(error.into()),
            Asked::Ended(end) => Ok(LlmTurn::Stopped(end)),
            Asked::Chanted(text) => match context.state.stops.observe(&self.rules, Observation::Text("")) {
                Some(verdict) => Ok(LlmTurn::Cut { text, verdict }),
                // The stream was cut for a rule that says nothing any more: what was said is no whole answer all the same.
                None => {
                    tracing::error!(run = %self.live.id, said = text.len(), "a stream was cut without a verdict");
                    Ok(LlmTurn::Stopped(StopReason::Chanting.into()))
                }
            },
        }
    }

    /// Runs a batch through the effect gate, with the tools that act on this run bound to it. Returns how the model ended
    /// the run in it, and the question that a person has to answer before the rest of it can run.
    pub(crate) async fn execute(
        &mut self,
        mut calls: Vec<AdmittedCall>,
        context: &mut LoopContext,
        tools: &ToolSet,
        bind: Bind<'_>,
    ) -> Result<Executed, LoopError> {
        let unavailable = calls.iter().filter(|admitted| admitted.refused.is_some()).count() as u32;
        terminate::hold_back(&mut calls);
        if unavailable > 0 {
            let force_text = context.state.force_text;
            self.journal.note(EventKind::Brake { brake: "unavailable_tool".into(), count: unavailable, force_text });
        }
        let before = context.messages.len();
        let deadline = self.deadline(context, self.allowance(1).purpose);
        let cancel = self.cancel.child_token();
        let generation = self.live.generation.renewed();
        let caller = Caller {
            session: &self.live.session,
            run: self.live.id,
            tools,
            bind,
            cancel: &cancel,
            generation: &generation,
            answers: &self.answers,
            may_ask: if self.closing.is_some() { Err(ENDING) } else { self.may_ask },
            tally: &self.tally,
            limits: self.rules.limits(),
            journal: &mut self.journal,
            progress: Progress::to(self.live.clone()),
            // Who is not told of skills has no use for their variables.
            variables: if self.child { Arc::default() } else { self.briefing.variables() },
            live: &self.live,
            newer: self.joining.as_deref().filter(|_| self.closing.is_none()),
        };
        let asking = {
            // Tools get no longer than the run has. The gate is not dropped: its token is cancelled, and it returns soon.
            let running = self.house.gate.execute(caller, context, calls);
            tokio::pin!(running);
            tokio::select! {
                asking = &mut running => asking?,
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    cancel.cancel();
                    running.await?
                }
            }
        };
        self.live.touch();
        self.tally.add_output(context.messages[before..].iter().map(|message| message.text().len()).sum());
        Ok(Executed { ended: terminate::ended(&context.messages[before.saturating_sub(1)..]), asking })
    }

    /// Notes what brakes and rules did in this iteration.
    pub(crate) fn note_brakes(&mut self, context: &mut LoopContext) {
        let force_text = context.state.force_text;
        if let Some(BrakeAction { brake, count }) = context.state.braked {
            self.journal.note(EventKind::Brake { brake: brake.word().into(), count, force_text });
        }
        for Fired { rule, count, strike } in std::mem::take(&mut context.state.fired) {
            metrics::rule_fired(&rule, if strike > 0 { "recover" } else { "notice" });
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            self.journal.note(EventKind::Brake { brake: rule, count, force_text });
        }
    }
}

/// Why a call was dropped.
enum Dropped {
    Stopped,
    Chanted,
    Late,
}

impl Dropped {
    /// The outcome as metrics name it.
    fn word(&self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Chanted => "chanting",
            Self::Late => "late",
        }
    }
}

/// Gives a tool that acts on the run itself its hold on that run; `None` for every other tool.
pub(crate) type Bind<'a> = &'a (dyn Fn(&str) -> Option<Arc<dyn Tool>> + Send + Sync);

/// For runs without tools that act on them.
pub(crate) fn unbound(_name: &str) -> Option<Arc<dyn Tool>> {
    None
}
