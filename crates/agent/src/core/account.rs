//! What a model call costs, in the two accounts it is charged to: the run's (the [`Tally`](crate::tally::Tally) of its
//! tree) and the day's (the [`CostGuard`](crate::cost_guard::CostGuard)). Reserved before it is made, settled behind it.

use belay_agent_loop::LoopError;
use belay_protocol::{EventKind, ModelError, ModelReply, ModelRequest, RunEnd, Usage};

use super::call_model::Dropped;
use super::{Allowance, Asked, CLOSING_MAX_TOKENS, CallPurpose, RunCore};
use crate::cost_guard::{Refused, Reservation};
use crate::metrics;
use crate::tally::Hold;

impl RunCore {
    /// Reserves the money of a call in the run's account and in the day's.
    pub(super) async fn reserve(
        &self,
        request: &ModelRequest<'_>,
        allowance: Allowance,
    ) -> Result<Result<(Hold, Reservation), RunEnd>, LoopError> {
        let each = self.house.cost.estimate(request);
        // The closing turn that is held back for is the root's; a child's is paid like any other call.
        let closing = allowance.purpose.closing().is_some() && !self.child;
        if !self.child && allowance.purpose == CallPurpose::Step && self.rules.closing_turn().is_some() {
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
        match self.house.cost.reserve(self.live.id, self.purpose, &request).await {
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
                    Refused::Limit(shortage) => {
                        // What does not fit aside says nothing about the work: its next call is looked at by itself.
                        if allowance.purpose != CallPurpose::Aside {
                            self.tally.refuse_day(shortage);
                        }
                        shortage.into()
                    }
                    Refused::Store(error) => error.into(),
                })
            }
        }
    }

    /// Settles a call that has come to its end, in both accounts, and notes it.
    pub(super) async fn settle(
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
                metrics::model_called(reply.attempts, None, usage.as_ref());
                metrics::charged(self.purpose, charged);
                let (input, output) = usage.map_or((None, None), |u| (Some(u.input), Some(u.output)));
                self.journal.note(EventKind::ModelCalled { step, attempts: reply.attempts, input, output });
                self.note_stand_in(&reply);
                Asked::Reply(reply)
            }
            Err(error) => {
                self.journal.note(EventKind::ModelCalled { step, attempts: error.attempts, input: None, output: None });
                let charged = self.house.cost.settle(reservation, error.abandoned, None).await;
                self.tally.settle(hold, error.attempts, None, charged);
                metrics::model_called(error.attempts, Some(&error.kind), None);
                metrics::charged(self.purpose, charged);
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
    pub(super) async fn settle_dropped(
        &self,
        hold: Hold,
        reservation: Reservation,
        dropped: &Dropped,
        estimate: &Usage,
    ) {
        let charged = self.house.cost.settle(reservation, 1, None).await;
        self.tally.settle(hold, 1, Some(estimate), charged);
        metrics::model_dropped(dropped.word());
        metrics::charged(self.purpose, charged);
    }
}
