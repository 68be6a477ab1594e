//! The accounting of a model call. Each call is charged to two accounts: the run tree's
//! ([`Tally`](crate::tally::Tally)) and the day's ([`CostGuard`](crate::cost_guard::CostGuard)). Money is reserved
//! before the call and settled after it.

use std::time::Duration;

use belay_agent_loop::LoopError;
use belay_protocol::{ContextUse, EventKind, ModelError, ModelReply, ModelRequest, RunEnd, Usage};

use super::call_model::Dropped;
use super::{Allowance, Asked, CLOSING_MAX_TOKENS, CallPurpose, RunCore};
use crate::cost_guard::{Refused, Reservation};
use crate::metrics;
use crate::model_stream::meter::{Estimate, Meter};
use crate::tally::{Charge, Hold};

/// The facts of a model call that has ended.
#[derive(Clone, Copy)]
pub(super) struct Called<'a> {
    /// Its step.
    pub(super) step: u32,
    /// Its purpose.
    pub(super) purpose: CallPurpose,
    /// The requested model.
    pub(super) model: &'a str,
    /// Its duration.
    pub(super) took: Duration,
    /// The maximum usage of one request.
    pub(super) most: &'a Usage,
}

impl Called<'_> {
    /// The event of this call. `answered_by`: the model that answered, if it is not the requested one. `error`: empty, or
    /// why there is no answer.
    fn fact(
        self,
        attempts: u32,
        (input, output): (Option<u64>, Option<u64>),
        answered_by: Option<&str>,
        error: &str,
    ) -> EventKind {
        let took_ms = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX);
        let (model, error) = (answered_by.unwrap_or(self.model).to_owned(), error.to_owned());
        let purpose = self.purpose.word().to_owned();
        EventKind::ModelCalled { step: self.step, attempts, input, output, model, took_ms, error, purpose }
    }
}

impl RunCore {
    /// Reserves the money of a call in the tree's account and in the day's.
    pub(super) async fn reserve(
        &self,
        request: &ModelRequest<'_>,
        allowance: Allowance,
    ) -> Result<Result<(Hold, Reservation), RunEnd>, LoopError> {
        let each = self.services.cost.estimate(request);
        // Only the root has money reserved for its closing turn. The closing turn of a child is charged like any other
        // call.
        let closing = allowance.purpose.closing().is_some() && !self.child;
        if !self.child && allowance.purpose == CallPurpose::Step && self.rules.closing_turn().is_some() {
            let last = ModelRequest { max_tokens: CLOSING_MAX_TOKENS, thinking: None, ..*request };
            self.tally.hold_back(self.services.cost.estimate(&last));
        }
        let mut limits = self.rules.limits().clone();
        if closing {
            limits.model_calls = None; // the closing turn is one call beyond the limit
        }
        let hold = match self.tally.admit(&limits, allowance.attempts, each, closing) {
            Ok(hold) => hold,
            Err(finding) => return Ok(Err((*finding).into())),
        };
        let request = ModelRequest { max_attempts: hold.attempts, ..*request };
        let model = request.model.unwrap_or(&self.services.model.info().model);
        let reserved = self.journal.wait().until_stored(|| async {
            match self.services.cost.reserve(self.live.id, self.purpose, model, &request).await {
                Err(Refused::Store(error)) => Err(error),
                Err(Refused::Limit(shortage)) => Ok(Err(shortage)),
                Ok(reservation) => Ok(Ok(reservation)),
            }
        });
        // If the answer to a commit was lost, its money stays reserved too: the day's account is too high, never too low.
        match reserved.await {
            Ok(Ok(reservation)) => match self.stopped() {
                None => Ok(Ok((hold, reservation))),
                Some(reason) => {
                    self.services.cost.release(reservation).await; // no request was sent
                    self.tally.settle(hold, Charge::default());
                    Ok(Err(reason.into()))
                }
            },
            Ok(Err(shortage)) => {
                self.tally.settle(hold, Charge::default());
                // The refusal of a side question is not recorded for the tree: its next call is checked on its own.
                if !allowance.purpose.is_side_question() {
                    self.tally.refuse_day(shortage);
                }
                Err(shortage.into())
            }
            Err(error) => {
                self.tally.settle(hold, Charge::default());
                Err(error.into())
            }
        }
    }

    /// Settles a completed call in both accounts and records it.
    pub(super) async fn settle(
        &mut self,
        (hold, reservation): (Hold, Reservation),
        result: Result<ModelReply, ModelError>,
        mut meter: Meter,
        call: Called<'_>,
    ) -> Asked {
        let Called { most, .. } = call;
        match result {
            Ok(reply) => {
                self.cut_short = None; // the closing turn gave an answer instead
                self.services.model_answered();
                let used = reply.usage.unwrap_or_else(|| meter.answered(bytes_of(&reply), most));
                let broken = meter.broken(reply.abandoned, most);
                let answer = Some((&used, reply.price.as_ref()));
                let model = reply.answered_by.as_deref();
                let charged =
                    self.services.cost.settle(reservation, answer, &broken.usage, model, reply.attempts).await;
                let estimated = broken.requests.saturating_add(u32::from(reply.usage.is_none()));
                let usage = used.plus(&broken.usage);
                self.note_step(call, model, &used);
                self.charge(hold, Charge { requests: reply.attempts, usage, estimated, micro_usd: charged });
                metrics::model_called(reply.attempts, None, reply.usage.as_ref());
                let (input, output) = reply.usage.map_or((None, None), |u| (Some(u.input), Some(u.output)));
                self.journal.note(call.fact(reply.attempts, (input, output), model, ""));
                self.note_stand_in(&reply);
                Asked::Reply(reply)
            }
            Err(error) => {
                self.journal.note(call.fact(error.attempts, (None, None), None, error.kind.word()));
                meter.fail();
                let Estimate { usage, requests: estimated } = meter.broken(error.abandoned, most);
                let charged = self.services.cost.settle(reservation, None, &usage, None, error.attempts).await;
                self.charge(hold, Charge { requests: error.attempts, usage, estimated, micro_usd: charged });
                metrics::model_called(error.attempts, Some(&error.kind), None);
                self.services.model_failed(&error);
                Asked::Failed(error)
            }
        }
    }

    /// Notes the model that answered a step, and shows how full the context of the run is. Child runs have contexts of
    /// their own.
    fn note_step(&self, call: Called<'_>, answered_by: Option<&str>, used: &Usage) {
        if call.purpose != CallPurpose::Step {
            return;
        }
        self.tally.note_model(answered_by.unwrap_or(call.model));
        if !self.child {
            let (used_tokens, info) = (used.input.saturating_add(used.output), self.services.model.info());
            self.live.display.filled(ContextUse { used_tokens, context_tokens: info.context_tokens });
        }
    }

    fn charge(&self, hold: Hold, charge: Charge) {
        metrics::charged(self.purpose, charge.micro_usd);
        self.tally.settle(hold, charge);
        self.live.display.spent(|| {
            let (usage, cost_micro_usd) = self.tally.spent();
            (usage.input.saturating_add(usage.output), cost_micro_usd)
        });
    }

    /// Records that a fallback model answered: once for each change of the model, not for each call.
    fn note_stand_in(&mut self, reply: &ModelReply) {
        let Some(fell_back) = &reply.fell_back else {
            self.stand_in = None;
            return;
        };
        metrics::model_fell_back(&fell_back.why);
        let to = reply.answered_by.clone().unwrap_or_default();
        if self.stand_in.as_ref() != Some(&to) {
            let (from, why) = (fell_back.from.clone(), fell_back.why.clone());
            self.journal.note(EventKind::ModelFallback { from, to: to.clone(), reason: why });
            self.stand_in = Some(to);
        }
    }

    /// Settles a dropped call and records it. Readers of the events wait for the end of each step's call before they
    /// show the next step.
    ///
    /// The provider does not report the cost of a dropped request, so an estimate is charged: the whole input and the
    /// streamed output. A call that is dropped in the pause between two requests has no open request, and nothing is
    /// charged for it.
    pub(super) async fn settle_dropped(
        &mut self,
        (hold, reservation): (Hold, Reservation),
        dropped: &Dropped,
        mut meter: Meter,
        call: Called<'_>,
    ) {
        meter.stop();
        let Estimate { usage, requests: estimated } = meter.broken(0, call.most);
        // Requests that failed before an answer began were sent as well. They cost nothing.
        let requests = meter.requests().max(estimated);
        self.journal.note(call.fact(requests, (None, None), None, dropped.word()));
        let charged = self.services.cost.settle(reservation, None, &usage, None, requests).await;
        self.charge(hold, Charge { requests, usage, estimated, micro_usd: charged });
        metrics::model_dropped(dropped.word());
    }
}

/// Number of bytes that the model generated for a reply, as far as the reply contains them.
fn bytes_of(reply: &ModelReply) -> usize {
    let calls = reply.tool_calls.iter().map(|call| call.name.len() + call.arguments.approx_bytes());
    reply.text.len() + calls.sum::<usize>()
}
