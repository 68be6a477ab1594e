//! One model or several behind one port: a failed request is sent again, or to the next candidate, within the one budget
//! of requests that a logical call has.
//!
//! With several candidates each has a circuit ([`circuit`](crate::circuit)): one that fails for a reason of its own is
//! left alone for a while, and no other for its sake. With one there is nobody to go to, so it is always asked: not asking
//! would only hide that it is back.
//!
//! A request that is refused for what it is, a context that is too long and an answer of which somebody has heard a piece
//! are never taken to another candidate.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{
    Candidate, Cooling, DeltaSink, FellBack, ModelError, ModelErrorKind, ModelInfo, ModelProvider, ModelReply,
    ModelRequest, Price, Retry,
};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::backend::Backend;
use crate::choice::{Choice, Facts, Plan};
use crate::circuit::{Availability, Circuit, Ticket};
use crate::listening::Listening;
use crate::price_list::PriceList;
use crate::retry_budget::RetryBudget;

/// Candidates in the order of preference, and what became of their last requests.
pub(crate) struct Fallback {
    backends: Vec<Backend>,
    facts: Vec<Facts>,
    /// One for each candidate, in memory alone; none where there is only one. Held for a few instructions and never across
    /// an await.
    circuits: Mutex<Vec<Circuit>>,
    /// What the candidates cost now.
    prices: PriceList,
}

/// What to do next in a call.
enum Next {
    Ask(usize, Option<Ticket>),
    Wait(Duration),
    GiveUp(ModelError),
}

/// One logical call.
struct Call<'a> {
    plan: Plan<'a>,
    patience: RetryBudget,
    /// Whether circuits learn from it: not when a name was asked for that is no candidate's, since its failures are its own.
    counts: bool,
    attempts: u32,
    abandoned: u32,
    last: Option<ModelError>,
    /// That the conversation is too long for a candidate smaller than the preferred one. Where no larger one answers, it
    /// is what the caller can do something about.
    overflow: Option<ModelError>,
    /// Why the preferred candidate did not answer.
    why: Option<ModelErrorKind>,
}

impl Fallback {
    /// Asks the first of these, the next one when that cannot answer, and so on. `prices` are those of
    /// the candidates, and may change.
    ///
    /// # Panics
    /// Without any.
    pub(crate) fn new(backends: Vec<Backend>, prices: PriceList) -> Self {
        assert!(!backends.is_empty(), "the configured model is a candidate");
        let facts =
            |backend: &Backend| Facts { place: backend.place, context_tokens: backend.provider.info().context_tokens };
        let circuits = if backends.len() > 1 { backends.iter().map(|_| Circuit::default()).collect() } else { vec![] };
        Self { facts: backends.iter().map(facts).collect(), circuits: Mutex::new(circuits), backends, prices }
    }

    fn circuits(&self) -> MutexGuard<'_, Vec<Circuit>> {
        self.circuits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_alone(&self) -> bool {
        self.backends.len() == 1
    }

    /// A plan for this request, and the name to ask for where it is no candidate's.
    fn plan<'r>(&self, request: &ModelRequest<'r>) -> (Call<'_>, Option<&'r str>) {
        let all = 0..self.backends.len();
        let named = |name: &str| {
            let (chosen, others): (Vec<_>, Vec<_>) = all.clone().partition(|at| self.backends[*at].model == name);
            (!chosen.is_empty()).then(|| chosen.into_iter().chain(others).collect())
        };
        let (order, model) = match request.model.map(|name| (name, named(name))) {
            None => (all.collect(), None),
            Some((_, Some(order))) => (order, None),
            // The first server may have it all the same, under each of its keys.
            Some((name, None)) => {
                let (first, backends) = (&self.backends[0], &self.backends);
                let first = |at: &usize| backends[*at].place == first.place && backends[*at].model == first.model;
                (all.filter(first).collect(), Some(name))
            }
        };
        let plan = Plan::new(&self.facts, order);
        let patience = RetryBudget::new();
        let counts = model.is_none();
        (Call { plan, patience, counts, attempts: 0, abandoned: 0, last: None, overflow: None, why: None }, model)
    }

    /// Decides and, where somebody is to be asked, begins: one step, so that of several calls only one is the trial.
    fn next(&self, call: &mut Call<'_>) -> Next {
        let now = Instant::now();
        let mut circuits = self.circuits();
        let availability = |at: usize| circuits.get(at).map_or(Availability::Now, |circuit| circuit.availability(now));
        match call.plan.next(now, availability) {
            Choice::Ask(at) => {
                let ticket = circuits.get_mut(at).filter(|_| call.counts).map(Circuit::begin);
                let preferred = call.plan.preferred();
                if at != preferred
                    && call.why.is_none()
                    && let Some(cooling) = circuits.get(preferred).and_then(|circuit| circuit.cooling(now))
                {
                    call.why = Some(cooling.why);
                }
                Next::Ask(at, ticket)
            }
            Choice::Wait(at, when, asked_for) => {
                let rest = when.saturating_duration_since(now);
                match call.patience.pause(rest, asked_for, call.attempts > 0) {
                    Some(pause) => Next::Wait(pause),
                    None => {
                        let cooling = circuits.get(at).and_then(|circuit| circuit.cooling(now));
                        drop(circuits);
                        Next::GiveUp(self.out_of_patience(call, at, rest, cooling))
                    }
                }
            }
            Choice::Nobody => Next::GiveUp(call.end()),
        }
    }

    /// The error of a call whose candidates all rest, this one for the shortest time.
    fn out_of_patience(&self, call: &mut Call<'_>, at: usize, rest: Duration, cooling: Option<Cooling>) -> ModelError {
        let Some(cooling) = cooling.filter(|_| call.overflow.is_none()) else { return call.end() };
        let left = Some(rest.max(cooling.left));
        let kind = match cooling.why {
            ModelErrorKind::RateLimited { .. } => ModelErrorKind::RateLimited { retry_after: left },
            ModelErrorKind::Overloaded { .. } | ModelErrorKind::Network => {
                ModelErrorKind::Overloaded { retry_after: left }
            }
            other => other,
        };
        let said = call.last.take().map(|error| format!("; {}", error.detail)).unwrap_or_default();
        let detail = format!(
            "no model can be asked now; the first one again is {}, in {} s ({}){said}",
            self.backends[at].name,
            cooling.left.as_secs().max(1),
            cooling.why.word(),
        );
        warn!(kind = kind.word(), attempts = call.attempts, %detail, "model call failed");
        let error = ModelError::new(kind, detail);
        ModelError { attempts: call.attempts, abandoned: call.abandoned, ..error }
    }

    /// Takes note of an answer.
    fn answered(&self, call: &Call<'_>, at: usize, trial: Trial<'_>, mut reply: ModelReply) -> ModelReply {
        if trial.answered() {
            info!(model = %self.backends[at].name, "the model answers again");
        }
        reply.attempts = call.attempts.saturating_add(reply.attempts.max(1));
        reply.abandoned = reply.abandoned.saturating_add(call.abandoned);
        if !self.is_alone() {
            let preferred = call.plan.preferred();
            reply.answered_by = Some(self.backends[at].name.clone());
            reply.price = Some(self.prices.get(&self.backends[at].name).unwrap_or(Price::FREE));
            if let Some(why) = call.why.filter(|_| at != preferred).map(ModelErrorKind::word) {
                let (from, to) = (&self.backends[preferred].name, &self.backends[at].name);
                info!(%from, %to, why, "another model has answered");
                reply.fell_back = Some(FellBack { from: from.clone(), why: why.to_owned() });
            }
        }
        reply
    }

    /// Takes note of a failure; gives it back where it ends the call.
    fn failed(
        &self,
        call: &mut Call<'_>,
        at: usize,
        trial: Trial<'_>,
        mut error: ModelError,
        most: u32,
    ) -> Option<ModelError> {
        let name = &self.backends[at].name;
        if let Some(rest) = trial.failed(error.kind) {
            let (why, rest_s) = (error.kind.word(), rest.as_secs());
            warn!(model = %name, why, rest_s, detail = %error.detail, "the model is left alone for a while");
        }
        call.plan.failed(at, error.kind, Instant::now());
        if at == call.plan.preferred() {
            call.why = Some(error.kind);
        }
        call.attempts = call.attempts.saturating_add(error.attempts.max(1));
        call.abandoned = call.abandoned.saturating_add(error.abandoned);
        if !self.is_alone() {
            error.detail = format!("{name}: {}", error.detail);
        }
        let ends = match error.kind {
            _ if error.heard || call.attempts >= most => true,
            ModelErrorKind::ContextTooLong => !call.plan.is_smaller(at),
            // One key that is refused says nothing about the next one.
            ModelErrorKind::Auth => false,
            _ => error.retry() == Retry::No,
        };
        let (kind, attempts, heard) = (error.kind.word(), call.attempts, error.heard);
        debug!(model = %name, kind, attempts, heard, detail = %error.detail, "a request to a model failed");
        match error.kind {
            ModelErrorKind::ContextTooLong if !error.heard => call.overflow = Some(error),
            _ => call.last = Some(error),
        }
        ends.then(|| call.end())
    }
}

impl Call<'_> {
    /// The failure to report, with everything that was sent.
    fn end(&mut self) -> ModelError {
        // Nothing may follow what somebody has heard, a shorter conversation neither.
        let heard = self.last.take_if(|last| last.heard);
        let last = heard.or(self.overflow.take()).or(self.last.take());
        let last = last.unwrap_or_else(|| ModelError::new(ModelErrorKind::Network, "no model could be asked"));
        warn!(kind = last.kind.word(), attempts = self.attempts, heard = last.heard, detail = %last.detail, "model call failed");
        ModelError { attempts: self.attempts, abandoned: self.abandoned, ..last }
    }
}

/// A request that is under way. Dropped with it, a trial may be made by somebody else.
struct Trial<'a> {
    of: Option<(&'a Fallback, usize, Ticket)>,
}

impl Trial<'_> {
    fn answered(mut self) -> bool {
        self.of.take().is_some_and(|(fallback, at, ticket)| fallback.circuits()[at].answered(ticket))
    }

    fn failed(mut self, kind: ModelErrorKind) -> Option<Duration> {
        let (fallback, at, ticket) = self.of.take()?;
        fallback.circuits()[at].failed(ticket, kind, Instant::now())
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if let Some((fallback, at, ticket)) = self.of.take() {
            fallback.circuits()[at].dropped(ticket);
        }
    }
}

#[async_trait]
impl ModelProvider for Fallback {
    /// Of the first candidate.
    fn info(&self) -> &ModelInfo {
        self.backends[0].provider.info()
    }

    fn models(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for backend in &self.backends {
            if !names.contains(&backend.model) {
                names.push(backend.model.clone());
            }
        }
        names
    }

    async fn call(&self, request: ModelRequest<'_>, sink: &mut dyn DeltaSink) -> Result<ModelReply, ModelError> {
        let mut sink = Listening::new(sink);
        let (mut call, model) = self.plan(&request);
        let request = ModelRequest { model, max_attempts: request.max_attempts.max(1), ..request };
        loop {
            let (at, ticket) = match self.next(&mut call) {
                Next::Ask(at, ticket) => (at, ticket),
                Next::Wait(pause) => {
                    debug!(
                        attempts = call.attempts,
                        pause_ms = pause.as_millis() as u64,
                        "waiting to ask a model again"
                    );
                    tokio::time::sleep(pause).await;
                    call.plan.new_round();
                    continue;
                }
                Next::GiveUp(error) => return Err(error),
            };
            let trial = Trial { of: ticket.map(|ticket| (self, at, ticket)) };
            let requests = request.max_attempts.saturating_sub(call.attempts);
            match self.backends[at].ask(request, &mut sink, requests).await {
                Ok(reply) => return Ok(self.answered(&call, at, trial, reply)),
                Err(mut error) => {
                    error.heard |= sink.heard();
                    if let Some(error) = self.failed(&mut call, at, trial, error, request.max_attempts) {
                        return Err(error);
                    }
                    sink.restart();
                }
            }
        }
    }

    fn dearest(&self) -> Option<Price> {
        let prices = self.backends.iter().filter_map(|backend| self.prices.get(&backend.name));
        prices.reduce(|dearest, price| dearest.max(&price))
    }

    fn candidates(&self) -> Vec<Candidate> {
        let now = Instant::now();
        let circuits = self.circuits();
        let state = |(backend, circuit): (&Backend, &Circuit)| Candidate {
            name: backend.name.clone(),
            cooling: circuit.cooling(now),
        };
        self.backends.iter().zip(circuits.iter()).map(state).collect()
    }
}

#[cfg(test)]
mod tests;
