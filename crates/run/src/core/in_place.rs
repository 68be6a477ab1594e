//! Questions of runs that other runs have started: the run waits for the answer in its place, while the runs beside it
//! go on.

use std::sync::Arc;

use belay_agent_loop::AdmittedCall;
use belay_protocol::{AskedIn, CallId, StoreError, ToolCall};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::RunCore;
use crate::approvals::Wanted;
use crate::child_asker::{ChildAnswer, ChildCall};
use crate::effect_gate::{Asking, BatchPeople};

/// The answer of a person who is asked whether a run may go on.
pub type WaitsForYes = BoxFuture<'static, Result<ChildAnswer, StoreError>>;

/// Why a run that is told to stop cannot ask a person.
const STOPPED: &str = "this run was stopped";
/// The name of a call on a display while its run waits for the answer.
const WAITING: &str = "waiting for approval";

impl RunCore {
    /// Asks a person about a call and waits for the answer. Returns the calls that have no result yet: the next pass of
    /// the gate uses the answer.
    ///
    /// # Errors
    /// The store does not answer.
    ///
    /// # Cancel safety
    /// Cancel the token instead of dropping the future. If it is dropped, nobody waits for the answer any more.
    pub(super) async fn ask_in_place(
        &mut self,
        asking: Asking,
        cancel: &CancellationToken,
    ) -> Result<Vec<AdmittedCall>, StoreError> {
        let Asking { call, deferred, wanted } = asking;
        let shown = CallId::from(format!("asks-{}", call.id).as_str());
        let tool = Map::from_iter([("tool".to_owned(), Value::from(call.name.as_str()))]);
        self.live.display.call_begins(&shown, WAITING, &tool, &[]);
        let answered = self.journal.wait().until_stored(|| async {
            let _wait = self.waits.begin();
            let question = ChildCall {
                lease: self.journal.lease(),
                request: &self.request,
                live: &self.live,
                place: self.asked_in(),
                call: &call,
                wanted: wanted.clone(),
                holds_slot: self.tree.depth() > 0,
                cancel,
            };
            // It returns this error only if it has not asked yet: it repeats the write of the question itself.
            self.services.child_asker.ask(question).await
        });
        let answered = answered.await;
        self.live.display.call_ended(&shown, None);
        let answer = self.answers.entry(call.id.clone()).or_default();
        match answered? {
            ChildAnswer::Decided(approval) => answer.add(*approval),
            ChildAnswer::Refused(text) => answer.denied = Some(text),
            ChildAnswer::Cancelled => self.may_ask = Err(STOPPED),
        }
        Ok(left(call, deferred))
    }

    /// Whether a routine run may pause for this question. The error has the calls without a result: the next pass of the
    /// gate denies the first of them.
    ///
    /// # Errors
    /// Too many routine runs wait.
    pub fn admit_pause(&mut self, asking: Asking) -> Result<Asking, Vec<AdmittedCall>> {
        match self.services.child_asker.admit_pause(self.request.run, &asking.call, &asking.wanted) {
            Ok(()) => Ok(asking),
            Err(text) => {
                self.answers.entry(asking.call.id.clone()).or_default().denied = Some(text);
                Err(left(asking.call, asking.deferred))
            }
        }
    }

    /// Asks a person whether the run may go on with something that is no call of a tool, and waits for the answer until
    /// `cancel`. `work` names it in the question. The wait counts for no limit of the run.
    ///
    /// # Errors
    /// Why nobody can be asked, as the end of a sentence.
    pub fn ask_to_go_on(
        &self,
        work: &str,
        call: ToolCall,
        wanted: Wanted,
        cancel: CancellationToken,
    ) -> Result<WaitsForYes, &'static str> {
        self.request.parts_may_ask(self.may_ask)?;
        let wait = self.waits.begin();
        let (services, live, request) = (self.services.clone(), self.live.clone(), self.request.clone());
        let (lease, stored) = (self.journal.lease().clone(), self.journal.wait().clone());
        let (place, holds_slot) = (AskedIn { work: work.to_owned(), ..self.asked_in() }, self.tree.depth() > 0);
        Ok(Box::pin(async move {
            let _wait = wait;
            let ask = || async {
                let question = ChildCall {
                    lease: &lease,
                    request: &request,
                    live: &live,
                    place: place.clone(),
                    call: &call,
                    wanted: wanted.clone(),
                    holds_slot,
                    cancel: &cancel,
                };
                services.child_asker.ask(question).await
            };
            stored.until_stored(ask).await
        }))
    }

    /// How calls of this run ask a person.
    pub(super) fn batch_people(&self) -> BatchPeople {
        BatchPeople {
            asker: self.services.child_asker.clone(),
            lease: self.journal.lease().clone(),
            stored: self.journal.wait().clone(),
            request: self.request.clone(),
            live: self.live.clone(),
            place: self.asked_in(),
            waits: self.waits.clone(),
            may_ask: if self.closing.is_some() { Err(STOPPED) } else { self.may_ask },
            holds_slot: self.tree.depth() > 0,
            turn: Arc::default(),
        }
    }

    /// The conversation in which the run asks: that of the autonomous work, or that of the turn.
    fn asked_in(&self) -> AskedIn {
        let own = || AskedIn {
            work: String::new(),
            session: self.request.session.clone(),
            route: self.request.conversation(),
            asker: self.request.asker.clone(),
            in_place: true,
        };
        let place = self.asks_in.as_ref().map_or_else(own, |place| AskedIn::clone(place));
        let work = match place.work.as_str() {
            "" => self.called.to_string(),
            work => format!("{} of {work}", self.called),
        };
        AskedIn { work, in_place: true, ..place }
    }
}

/// The calls without a result.
fn left(call: ToolCall, deferred: Vec<ToolCall>) -> Vec<AdmittedCall> {
    std::iter::once(call).chain(deferred).map(|call| AdmittedCall { call, refused: None }).collect()
}
