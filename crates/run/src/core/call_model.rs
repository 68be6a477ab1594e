//! One logical call of the model: under the run's deadline, dropped at once when nobody wants its answer any more.

use std::time::Duration;

use belay_agent_loop::policies::Observation;
use belay_agent_loop::policies::chanting::Chanting;
use belay_agent_loop::{LlmTurn, LoopContext, LoopError, Reasoning, normalise};
use belay_protocol::{ModelError, ModelReply, ModelRequest, RunEnd, StopReason, Thinking};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{CLOSING_MAX_BYTES, CLOSING_MAX_TOKENS, RunCore, seen};
use crate::cost_guard::most_of;
use crate::model_stream::sink::{LiveSink, Streamed, Watch};
use crate::model_stream::thoughts;
use crate::untrusted;

/// What one call may take.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// Requests.
    pub attempts: u32,
    /// What it is for.
    pub purpose: CallPurpose,
}

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPurpose {
    /// A step of the run.
    Step,
    /// The closing turn: it may use the reserve, and only the time it is given.
    Closing(Duration),
    /// A question about the run, whose answer is nobody's message.
    Deferral,
}

impl CallPurpose {
    pub(super) fn closing(self) -> Option<Duration> {
        match self {
            Self::Closing(time) => Some(time),
            Self::Step | Self::Deferral => None,
        }
    }
}

/// What became of a logical call.
pub enum Asked {
    /// A whole answer.
    Reply(ModelReply),
    /// No answer; retries are behind us.
    Failed(ModelError),
    /// It was dropped, or not made: the run is told to end, or a limit is reached.
    Ended(RunEnd),
    /// It was dropped, since the text repeated itself, or was too long for a closing turn; what had been said.
    Chanted(String),
}

/// Why a call was dropped.
pub(super) enum Dropped {
    Stopped,
    Chanted,
    Late,
}

impl Dropped {
    /// The outcome as metrics name it.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Chanted => "chanting",
            Self::Late => "late",
        }
    }
}

impl RunCore {
    /// What a call may take now: in the closing turn one request, and what is left of that turn's time.
    pub fn allowance(&self, attempts: u32) -> Allowance {
        match self.closing {
            None => Allowance { attempts, purpose: CallPurpose::Step },
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                Allowance { attempts: 1, purpose: CallPurpose::Closing(left) }
            }
        }
    }

    /// How hard the model is to think: not at all harder than by itself where it only has to close or to judge, for which
    /// there are few tokens.
    fn thinking(&self, purpose: CallPurpose) -> Option<Thinking> {
        match purpose {
            CallPurpose::Step => self.request.options.thinking.or(self.services.config.thinking),
            CallPurpose::Closing(_) | CallPurpose::Deferral => None,
        }
    }

    /// One logical call: guarded, metered, under the run's deadline, and dropped at once when the run is told to stop or
    /// the text goes in circles.
    ///
    /// # Cancel safety
    /// Dropped midway, the day's reservation stands and the account counts a request that cost all it could: both look
    /// more spent, never less.
    pub async fn ask(
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
        if let Some(shortage) = self.tally.day_refused() {
            return Err(shortage.into());
        }
        context.state.stops.detection_off = self.live.control.loops_off();
        // The tracker of the stream is lent to the sink; dropped with this future, the run is over as well.
        let mut chanting = std::mem::take(&mut context.state.stops.measures.chanting);
        // Whatever a crash or an edit has left in it: one bad message would have every later request refused.
        let messages = seen::by_model(normalise(&context.messages));
        let request = reasoning.request(context);
        // What is switched off at this moment is not offered; a model that calls it all the same is told why.
        let offered = request.tools.and_then(|tools| self.services.health.offered(tools));
        let tools = offered.as_ref().or(request.tools).filter(|tools| !tools.is_empty());
        let request = ModelRequest { messages: &messages, tools, ..self.within(allowance, request) };
        let (hold, reservation) = match self.reserve(&request, allowance).await? {
            Ok(held) => held,
            Err(end) => {
                context.state.stops.measures.chanting = chanting;
                return Ok(Asked::Ended(end));
            }
        };
        let request = ModelRequest { max_attempts: hold.attempts.min(reservation.attempts()), ..request };
        let most = most_of(&request);
        let cut = CancellationToken::new();
        let watched = self.rules.cuts_streams(&context.state.stops);
        // The closing turn is judged by itself: the run may have ended because it chanted.
        let mut of_closing = allowance.purpose.closing().map(|_| Box::<Chanting>::default());
        let watch = match allowance.purpose {
            CallPurpose::Step => watched.then_some(Watch { chanting: Some(&mut chanting), max_bytes: None, cut: &cut }),
            CallPurpose::Closing(_) => {
                let chanting = of_closing.as_deref_mut().filter(|_| watched);
                Some(Watch { chanting, max_bytes: Some(CLOSING_MAX_BYTES), cut: &cut })
            }
            CallPurpose::Deferral => None,
        };
        let mut sink = LiveSink::new(&self.live, step, watch);
        match self.child || allowance.purpose == CallPurpose::Deferral {
            true => sink.silent(),
            false => sink.shown(),
        }
        self.live.activity.touch();
        let result = tokio::select! {
            biased; // a stop that has arrived is never answered by one more word of the model
            () = self.cancel.cancelled() => Err(Dropped::Stopped),
            () = cut.cancelled() => Err(Dropped::Chanted),
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => Err(Dropped::Late),
            result = self.services.model.call(request, &mut sink) => Ok(result),
        };
        let result = result.map(|answer| {
            answer.map(|reply| {
                sink.finish();
                untrusted::forget_markers(ModelReply { text: thoughts::without(&reply.text), ..reply })
            })
        });
        let Streamed { text: said, bytes, meter } = sink.end();
        self.live.activity.touch();
        context.state.stops.measures.chanting = chanting;
        self.tally.add_output(bytes);
        match result {
            Ok(result) => Ok(self.settle((hold, reservation), result, meter, &most, step).await),
            Err(dropped) => {
                self.settle_dropped((hold, reservation), &dropped, meter, &most, step).await;
                if matches!(dropped, Dropped::Stopped | Dropped::Late) && self.shows(allowance, &said) {
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

    /// The request within what the call may take, for the model that the run asks.
    fn within<'a>(&'a self, allowance: Allowance, request: ModelRequest<'a>) -> ModelRequest<'a> {
        // What a client asks for is about the answer it waits for: not for what Belay asks models beside it.
        let sampling = self.request.options.sampling.as_deref().filter(|_| allowance.purpose == CallPurpose::Step);
        ModelRequest {
            max_attempts: allowance.attempts,
            max_tokens: match (allowance.purpose.closing(), sampling.and_then(|sampling| sampling.max_tokens)) {
                (Some(_), _) => request.max_tokens.min(CLOSING_MAX_TOKENS),
                (None, Some(wanted)) => request.max_tokens.min(wanted),
                (None, None) => request.max_tokens,
            },
            sampling,
            model: request.model.or(self.request.options.model.as_deref()),
            thinking: self.thinking(allowance.purpose),
            ..request
        }
    }

    /// Whether this was said in the conversation, and not in a child run or aside.
    fn shows(&self, allowance: Allowance, said: &str) -> bool {
        !self.child && allowance.purpose != CallPurpose::Deferral && !said.trim().is_empty()
    }

    /// One logical call as a step of the loop: chanting becomes a verdict.
    pub fn turn_of(&self, asked: Asked, context: &mut LoopContext) -> Result<LlmTurn, LoopError> {
        match asked {
            Asked::Reply(reply) => Ok(LlmTurn::Reply(reply)),
            Asked::Failed(error) => Err(error.into()),
            Asked::Ended(end) => Ok(LlmTurn::Stopped(end)),
            Asked::Chanted(text) => match context.state.stops.observe(&self.rules, Observation::Text("")) {
                Some(verdict) => Ok(LlmTurn::Cut { text, verdict }),
                // The stream was cut for a rule that says nothing any more: what was said is no whole answer all the same.
                // A closing turn that is cut off has no verdict of a rule: it is the end of the run in any case.
                None if self.closing.is_some() => Ok(LlmTurn::Stopped(StopReason::Chanting.into())),
                None => {
                    tracing::error!(run = %self.live.id, said = text.len(), "a stream was cut without a verdict");
                    Ok(LlmTurn::Stopped(StopReason::Chanting.into()))
                }
            },
        }
    }
}
