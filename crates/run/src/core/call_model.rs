//! One model call: under the run's deadline, and dropped as soon as its answer is not needed any more.

use std::sync::Arc;
use std::time::Duration;

use belay_agent_loop::policies::Observation;
use belay_agent_loop::{LlmTurn, LoopContext, LoopError, Reasoning, normalise};
use belay_crash_point::crash_point;
use belay_protocol::{ModelError, ModelReply, ModelRequest, Moment, RunEnd, StopReason, Thinking, ToolSet};
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::account::Called;
use super::{CLOSING_MAX_BYTES, CLOSING_MAX_TOKENS, RunCore, seen};
use crate::cost_guard::most_of;
use crate::metrics;
use crate::model_stream::sink::{LiveSink, Streamed, Watch};
use crate::model_stream::thoughts;
use crate::request::RunRequest;
use crate::untrusted;

/// The limits of one model call.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// Maximum number of requests.
    pub attempts: u32,
    /// The purpose of the call.
    pub purpose: CallPurpose,
}

/// The purpose of a model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPurpose {
    /// A step of the run.
    Step,
    /// The closing turn, with its time. It may use the money that is reserved for it.
    Closing(Duration),
    /// A side question about the run. Its answer is not a message of the conversation.
    SideQuestion(SideQuestion),
}

/// The side questions about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideQuestion {
    /// Whether it is in a loop.
    Judge,
    /// Whether its goal is reached.
    Goal,
    /// Whether its answer meets the request.
    Completion,
    /// A summary of old messages.
    Summary,
    /// Notes before old messages are removed.
    Notes,
    /// A title of the conversation.
    Title,
}

impl CallPurpose {
    pub(super) fn closing(self) -> Option<Duration> {
        match self {
            Self::Closing(time) => Some(time),
            Self::Step | Self::SideQuestion(_) => None,
        }
    }

    pub(super) fn is_side_question(self) -> bool {
        matches!(self, Self::SideQuestion(_))
    }

    /// The word in the events; empty for a step.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Step => "",
            Self::Closing(_) => "closing",
            Self::SideQuestion(SideQuestion::Judge) => "judge",
            Self::SideQuestion(SideQuestion::Goal) => "goal",
            Self::SideQuestion(SideQuestion::Completion) => "completion",
            Self::SideQuestion(SideQuestion::Summary) => "summary",
            Self::SideQuestion(SideQuestion::Notes) => "notes",
            Self::SideQuestion(SideQuestion::Title) => "title",
        }
    }
}

/// The result of a model call.
pub enum Asked {
    /// A complete answer.
    Reply(ModelReply),
    /// No answer. All retries have failed.
    Failed(ModelError),
    /// The call was dropped or not made, because the run has to end or a limit is reached.
    Ended(RunEnd),
    /// The call was dropped, because the text repeated itself or was too long for a closing turn. Holds the text so
    /// far.
    Chanted(String),
}

/// Why a call was dropped.
pub(super) enum Dropped {
    Stopped,
    Chanted,
    Late,
}

impl Dropped {
    /// The outcome, as the metrics name it.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Chanted => "chanting",
            Self::Late => "late",
        }
    }
}

impl RunCore {
    /// The limits of a call that begins now. In the closing turn: one request, within the rest of that turn's time.
    pub fn allowance(&self, attempts: u32) -> Allowance {
        match self.closing {
            None => Allowance { attempts, purpose: CallPurpose::Step },
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                Allowance { attempts: 1, purpose: CallPurpose::Closing(left) }
            }
        }
    }

    /// The thinking level of a call. Closing turns and side questions use the model's default, because they have few
    /// tokens.
    fn thinking(&self, purpose: CallPurpose) -> Option<Thinking> {
        match purpose {
            CallPurpose::Step => self.request.options.thinking.or(self.services.config.thinking),
            CallPurpose::Closing(_) | CallPurpose::SideQuestion(_) => None,
        }
    }

    /// Makes one model call. The call is charged to both accounts and ends at the run's deadline. It is dropped as soon
    /// as the run is told to stop or the text repeats itself.
    ///
    /// # Cancel safety
    /// If the future is dropped midway, the day's reservation stays, and the account counts one request at the whole
    /// reserved cost. Both can only be too high, never too low.
    pub fn ask<'a>(
        &'a mut self,
        reasoning: &'a Reasoning,
        context: &'a mut LoopContext,
        step: u32,
        allowance: Allowance,
    ) -> BoxFuture<'a, Result<Asked, LoopError>> {
        // Boxed: otherwise every caller's future contains this one, and its crate compiles the proof that it is `Send`.
        Box::pin(self.call_model(reasoning, context, step, allowance))
    }

    /// The tools that a request of the run offers now, if they are not all.
    fn offered(&self, tools: &ToolSet, context: &LoopContext) -> Option<Arc<ToolSet>> {
        let RunRequest { session, run, .. } = &*self.request;
        self.services.offered(tools, Moment { session, run: *run, messages: &context.messages })
    }

    async fn call_model(
        &mut self,
        reasoning: &Reasoning,
        context: &mut LoopContext,
        step: u32,
        allowance: Allowance,
    ) -> Result<Asked, LoopError> {
        let deadlines = self.deadlines(context, allowance.purpose);
        self.journal.set_deadlines(deadlines.clone());
        if deadlines.is_past() {
            return Ok(Asked::Ended(self.late(context))); // too late for a call
        }
        // After the day's cost guard has refused one call of the tree, every call is refused, even a cheaper one.
        if let Some(shortage) = self.tally.day_refused() {
            return Err(shortage.into());
        }
        context.state.stops.detection_off = self.live.control.loops_off();
        // The sink borrows the stream detector. If this future is dropped, the run is over, so losing the detector does
        // no harm.
        let mut chanting = std::mem::take(&mut context.state.stops.measures.chanting);
        // Repairs what a crash or an edit left in the context: one invalid message would fail every later request.
        let messages = seen::by_model(normalise(&context.messages));
        let messages = self.services.pictures.shown(messages).await;
        let messages = match &self.client {
            Some(client) => client.names.shown(messages),
            None => messages,
        };
        let calls =
            self.client.as_ref().filter(|_| allowance.purpose == CallPurpose::Step).and_then(|client| client.rules());
        let request = reasoning.request(context);
        let offered = request.tools.and_then(|tools| self.offered(tools, context));
        let tools = offered.as_deref().or(request.tools).filter(|tools| !tools.is_empty());
        let renamed = tools.and_then(|tools| self.client.as_ref()?.names.renamed(tools));
        let tools = renamed.as_ref().or(tools);
        let request = ModelRequest { messages: &messages, tools, calls, ..self.within(allowance, request) };
        let (hold, reservation) = match self.reserve(&request, allowance).await? {
            Ok(held) => held,
            Err(end) => {
                context.state.stops.measures.chanting = chanting;
                return Ok(Asked::Ended(end));
            }
        };
        let request = ModelRequest { max_attempts: hold.attempts.min(reservation.attempts()), ..request };
        let most = most_of(&request);
        let model = request.model.unwrap_or(&self.services.model.info().model).to_owned();
        let cut = CancellationToken::new();
        let watched = self.rules.cuts_streams(&context.state.stops);
        // The closing turn has its own detector, because chanting may be the reason why the run ended.
        let mut of_closing = allowance.purpose.closing().map(|_| Box::new(chanting.for_another_text()));
        let watch = match allowance.purpose {
            CallPurpose::Step => watched.then_some(Watch { chanting: Some(&mut chanting), max_bytes: None, cut: &cut }),
            CallPurpose::Closing(_) => {
                let chanting = of_closing.as_deref_mut().filter(|_| watched);
                Some(Watch { chanting, max_bytes: Some(CLOSING_MAX_BYTES), cut: &cut })
            }
            CallPurpose::SideQuestion(_) => None,
        };
        let mut sink = LiveSink::new(&self.live, step, watch);
        match self.child || allowance.purpose.is_side_question() {
            true => sink.silent(),
            false => sink.shown(),
        }
        self.live.activity.touch();
        crash_point!("model.before-send");
        let begun = Instant::now();
        let result = tokio::select! {
            biased; // a stop wins over a reply that arrives at the same time
            () = self.cancel.cancelled() => Err(Dropped::Stopped),
            () = cut.cancelled() => Err(Dropped::Chanted),
            () = deadlines.passed() => Err(Dropped::Late),
            result = self.services.model.call(request, &mut sink) => Ok(result),
        };
        crash_point!("model.last-byte");
        let result = result.map(|answer| {
            answer.map(|reply| {
                sink.finish();
                untrusted::forget_markers(ModelReply { text: thoughts::without(&reply.text), ..reply })
            })
        });
        let Streamed { text: said, bytes, meter, first } = sink.end();
        let outcome = match &result {
            Ok(Ok(_)) => "ok",
            Ok(Err(error)) => error.kind.word(),
            Err(dropped) => dropped.word(),
        };
        let took = begun.elapsed();
        metrics::model_took(outcome, first.map(|first| first.duration_since(begun)), took);
        let call = Called { step, purpose: allowance.purpose, model: &model, took, most: &most };
        self.live.activity.touch();
        context.state.stops.measures.chanting = chanting;
        self.tally.add_output(bytes);
        match result {
            Ok(result) => {
                let result = self.own_names(result, allowance.purpose);
                let asked = self.settle((hold, reservation), result, meter, call).await;
                crash_point!("model.before-journal");
                Ok(asked)
            }
            Err(dropped) => {
                self.settle_dropped((hold, reservation), &dropped, meter, call).await;
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

    /// A reply in which the tools have the names of the run. It also ends the client's demand for a call.
    fn own_names(
        &mut self,
        result: Result<ModelReply, ModelError>,
        purpose: CallPurpose,
    ) -> Result<ModelReply, ModelError> {
        let Some(client) = self.client.as_mut().filter(|_| purpose == CallPurpose::Step) else { return result };
        let mut reply = result?;
        client.has_replied = true;
        reply.tool_calls.iter_mut().for_each(|call| client.names.take_back(call));
        Ok(reply)
    }

    /// Applies the limits of the call and the model of the run to a request.
    fn within<'a>(&'a self, allowance: Allowance, request: ModelRequest<'a>) -> ModelRequest<'a> {
        // The client's sampling options are for the answer to the client, not for Belay's own questions.
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

    /// Whether the conversation shows this text. The text of child runs and of side questions is not shown.
    fn shows(&self, allowance: Allowance, said: &str) -> bool {
        !self.child && !allowance.purpose.is_side_question() && !said.trim().is_empty()
    }

    /// Converts the result of a model call into a step of the loop. Chanting becomes a verdict of the stop rules.
    pub fn turn_of(&self, asked: Asked, context: &mut LoopContext) -> Result<LlmTurn, LoopError> {
        match asked {
            Asked::Reply(reply) => Ok(LlmTurn::Reply(reply)),
            Asked::Failed(error) => Err(error.into()),
            Asked::Ended(end) => Ok(LlmTurn::Stopped(end)),
            Asked::Chanted(text) => match context.state.stops.observe(&self.rules, Observation::Text("")) {
                Some(verdict) => Ok(LlmTurn::Cut { text, verdict }),
                // The stream was cut, but the rule gives no verdict now. The text is incomplete all the same. A cut
                // closing turn has no verdict either, and ends the run in any case.
                None if self.closing.is_some() => Ok(LlmTurn::Stopped(StopReason::Chanting.into())),
                None => {
                    tracing::error!(run = %self.live.id, said = text.len(), "a stream was cut without a verdict");
                    Ok(LlmTurn::Stopped(StopReason::Chanting.into()))
                }
            },
        }
    }
}
