//! What a model call costs, in the two accounts it is charged to: the run's (the [`Tally`](crate::tally::Tally) of its
//! tree) and the day's (the [`CostGuard`](crate::cost_guard::CostGuard)). Reserved before it is made, settled behind it.

use belay_agent_loop::LoopError;
use belay_protocol::{EventKind, ModelError, ModelReply, ModelRequest, Purpose, RunEnd, Usage};

use super::call_model::Dropped;
use super::{Allowance, Asked, CLOSING_MAX_TOKENS, CallPurpose, RunCore};
use crate::cost_guard::{Refused, Reservation};
use crate::metrics;
use crate::model_stream::meter::{Estimate, Meter};
use crate::tally::{Charge, Hold};

impl RunCore {
    /// Reserves the money of a call in the run's account and in the day's.
    pub(super) async fn reserve(
        &self,
        request: &ModelRequest<'_>,
        allowance: Allowance,
    ) -> Result<Result<(Hold, Reservation), RunEnd>, LoopError> {
        let each = self.services.cost.estimate(request);
        // The closing turn that is held back for is the root's; a child's is paid like any other call.
        let closing = allowance.purpose.closing().is_some() && !self.child;
        if !self.child && allowance.purpose == CallPurpose::Step && self.rules.closing_turn().is_some() {
            let last = ModelRequest { max_tokens: CLOSING_MAX_TOKENS, thinking: None, ..*request };
            self.tally.hold_back(self.services.cost.estimate(&last));
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
        let model = request.model.unwrap_or(&self.services.model.info().model);
        match self.services.cost.reserve(self.live.id, self.purpose(), model, &request).await {
            Ok(reservation) => match self.stopped() {
                None => Ok(Ok((hold, reservation))),
                Some(reason) => {
                    self.services.cost.release(reservation).await; // no request was sent
                    self.tally.settle(hold, Charge::default());
                    Ok(Err(reason.into()))
                }
            },
            Err(refused) => {
                self.tally.settle(hold, Charge::default());
                Err(match refused {
                    Refused::Limit(shortage) => {
                        // What does not fit aside says nothing about the work: its next call is looked at by itself.
                        if allowance.purpose != CallPurpose::Deferral {
                            self.tally.refuse_day(shortage);
                        }
                        shortage.into()
                    }
                    Refused::Store(error) => error.into(),
                })
            }
        }
    }

    /// Settles a call that has come to its end, in both accounts, and notes it. `most`: what one request may use.
    pub(super) async fn settle(
        &mut self,
        (hold, reservation): (Hold, Reservation),
        result: Result<ModelReply, ModelError>,
        mut meter: Meter,
        most: &Usage,
        step: u32,
    ) -> Asked {
        match result {
            Ok(reply) => {
                self.cut_short = None; // the closing turn has answered in its place
                self.services.model_answered();
                let used = reply.usage.unwrap_or_else(|| meter.answered(bytes_of(&reply), most));
                let broken = meter.broken(reply.abandoned, most);
                let answer = Some((&used, reply.price.as_ref()));
                let charged =
                    self.services.cost.settle(reservation, answer, &broken.usage, reply.answered_by.as_deref()).await;
                let estimated = broken.requests.saturating_add(u32::from(reply.usage.is_none()));
                let usage = used.plus(&broken.usage);
                self.charge(hold, Charge { requests: reply.attempts, usage, estimated, micro_usd: charged });
                metrics::model_called(reply.attempts, None, reply.usage.as_ref());
                let (input, output) = reply.usage.map_or((None, None), |u| (Some(u.input), Some(u.output)));
                self.journal.note(EventKind::ModelCalled { step, attempts: reply.attempts, input, output });
                self.note_stand_in(&reply);
                Asked::Reply(reply)
            }
            Err(error) => {
                self.journal.note(EventKind::ModelCalled { step, attempts: error.attempts, input: None, output: None });
                meter.fail();
                let Estimate { usage, requests: estimated } = meter.broken(error.abandoned, most);
                let charged = self.services.cost.settle(reservation, None, &usage, None).await;
                self.charge(hold, Charge { requests: error.attempts, usage, estimated, micro_usd: charged });
                metrics::model_called(error.attempts, Some(&error.kind), None);
                self.services.model_failed(&error);
                Asked::Failed(error)
            }
        }
    }

    /// What its tree of runs is for.
    fn purpose(&self) -> Purpose {
        self.request.work.purpose()
    }

    fn charge(&self, hold: Hold, charge: Charge) {
        metrics::charged(self.purpose(), charge.micro_usd);
        self.tally.settle(hold, charge);
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
            self.journal.note(EventKind::ModelFallback { from, to: to.clone(), reason: why });
            self.stand_in = Some(to);
        }
    }

    /// Settles a call that was dropped, and notes it: readers of the course wait for the end of each step's call before
    /// they are shown the next step. The provider will not report what it charges, so the estimate is charged: the input in
    /// full, and what was streamed. Dropped in a pause between two requests, none is under way, and nothing is charged for it.
    pub(super) async fn settle_dropped(
        &mut self,
        (hold, reservation): (Hold, Reservation),
        dropped: &Dropped,
        mut meter: Meter,
        most: &Usage,
        step: u32,
    ) {
        meter.stop();
        let Estimate { usage, requests: estimated } = meter.broken(0, most);
        // Those that had failed before an answer began were sent as well, and cost nothing.
        let requests = meter.requests().max(estimated);
        self.journal.note(EventKind::ModelCalled { step, attempts: requests, input: None, output: None });
        let charged = self.services.cost.settle(reservation, None, &usage, None).await;
        self.charge(hold, Charge { requests, usage, estimated, micro_usd: charged });
        metrics::model_dropped(dropped.word());
    }
}

/// The bytes of an answer that were generated, as far as they are kept.
fn bytes_of(reply: &ModelReply) -> usize {
    let calls = reply.tool_calls.iter().map(|call| call.name.len() + call.arguments.approx_bytes());
    reply.text.len() + calls.sum::<usize>()
}
