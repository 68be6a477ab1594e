//! Retries and fallback behind one port: a failed request is sent again, or to the next candidate, within the budget of
//! requests of one logical call.
//!
//! With several candidates, each has a circuit breaker ([`circuit`](crate::circuit)). A candidate that fails for a
//! reason of its own is not asked for a while; the other candidates are not affected. A single candidate has no circuit
//! breaker and is always asked: there is no alternative, and not asking would only delay its recovery.
//!
//! Three kinds of requests are never sent to another candidate: one that was refused for its content, one whose context
//! is too long (unless only for a candidate with a smaller context than the preferred one), and one with an answer of
//! which a reader has received a piece.

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
use crate::price_list::PriceList;
use crate::retry_budget::RetryBudget;
use crate::tracking_sink::TrackingSink;

/// Candidates in the order of preference, with the results of their recent requests.
pub(crate) struct Fallback {
    backends: Vec<Backend>,
    facts: Vec<Facts>,
    /// One for each candidate, only in memory; empty if there is only one candidate. Locked for a few instructions,
    /// never across an await.
    circuits: Mutex<Vec<Circuit>>,
    /// The current prices of the candidates.
    prices: PriceList,
}

/// The next action of a call.
enum Next {
    Ask(usize, Option<Ticket>),
    Wait(Duration),
    GiveUp(ModelError),
}

/// The state of one logical call.
struct Call<'a> {
    plan: Plan<'a>,
    retry_budget: RetryBudget,
    /// Whether the circuits learn from this call. They do not if the requested model is not that of any candidate,
    /// because its failures say nothing about the candidates.
    counts: bool,
    attempts: u32,
    abandoned: u32,
    last: Option<ModelError>,
    /// The error that the conversation is too long for a candidate with a smaller context than the preferred one. It is
    /// reported if no larger candidate answers, because the caller can shorten the conversation.
    overflow: Option<ModelError>,
    /// Why the preferred candidate did not answer.
    why: Option<ModelErrorKind>,
}

impl Fallback {
    /// Asks the first of these candidates, the next one if that cannot answer, and so on. `prices` are the prices of
    /// the candidates, and may change.
    ///
    /// # Panics
    /// If `backends` is empty.
    pub(crate) fn new(backends: Vec<Backend>, prices: PriceList) -> Self {
        assert!(!backends.is_empty(), "the configured model is a candidate");
        let facts = |backend: &Backend| Facts {
            server: backend.server,
            context_tokens: backend.provider.info().context_tokens,
        };
        let circuits = if backends.len() > 1 { backends.iter().map(|_| Circuit::default()).collect() } else { vec![] };
        Self { facts: backends.iter().map(facts).collect(), circuits: Mutex::new(circuits), backends, prices }
    }

    fn circuits(&self) -> MutexGuard<'_, Vec<Circuit>> {
        self.circuits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_alone(&self) -> bool {
        self.backends.len() == 1
    }

    /// Makes a plan for this request. Also returns the requested model name if no candidate has that model.
    fn plan<'r>(&self, request: &ModelRequest<'r>) -> (Call<'_>, Option<&'r str>) {
        let all = 0..self.backends.len();
        let named = |name: &str| {
            let (chosen, others): (Vec<_>, Vec<_>) = all.clone().partition(|at| self.backends[*at].model == name);
            (!chosen.is_empty()).then(|| chosen.into_iter().chain(others).collect())
        };
        let (order, model) = match request.model.map(|name| (name, named(name))) {
            None => (all.collect(), None),
            Some((_, Some(order))) => (order, None),
            // The first server may still have the model, with each of its keys.
            Some((name, None)) => {
                let (first, backends) = (&self.backends[0], &self.backends);
                let first = |at: &usize| backends[*at].server == first.server && backends[*at].model == first.model;
                (all.filter(first).collect(), Some(name))
            }
        };
        let plan = Plan::new(&self.facts, order);
        let retry_budget = RetryBudget::new();
        let counts = model.is_none();
        (Call { plan, retry_budget, counts, attempts: 0, abandoned: 0, last: None, overflow: None, why: None }, model)
    }

    /// Decides the next action. If a candidate is to be asked, the request begins in the same step, so that only one of
    /// several calls is the trial.
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
                let delay = when.saturating_duration_since(now);
                match call.retry_budget.pause(delay, asked_for, call.attempts > 0) {
                    Some(pause) => Next::Wait(pause),
                    None => {
                        let cooling = circuits.get(at).and_then(|circuit| circuit.cooling(now));
                        drop(circuits);
                        Next::GiveUp(self.budget_exceeded(call, at, delay, cooling))
                    }
                }
            }
            Choice::NoneLeft => Next::GiveUp(call.end()),
        }
    }

    /// The error of a call while all candidates have open circuits; this candidate is available first.
    fn budget_exceeded(&self, call: &mut Call<'_>, at: usize, delay: Duration, cooling: Option<Cooling>) -> ModelError {
        let Some(cooling) = cooling.filter(|_| call.overflow.is_none()) else { return call.end() };
        let left = Some(delay.max(cooling.left));
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

    /// Records an answer.
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

    /// Records a failure. Returns it if it ends the call.
    fn failed(
        &self,
        call: &mut Call<'_>,
        at: usize,
        trial: Trial<'_>,
        mut error: ModelError,
        most: u32,
    ) -> Option<ModelError> {
        let name = &self.backends[at].name;
        if let Some(delay) = trial.failed(error.kind) {
            let (why, retry_after_s) = (error.kind.word(), delay.as_secs());
            warn!(model = %name, why, retry_after_s, detail = %error.detail, "the circuit of the model is open");
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
            // A refused key says nothing about the next key.
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
    /// The failure to report, with the number of all requests.
    fn end(&mut self) -> ModelError {
        // After a reader has received a piece of the answer, nothing may be sent again, not even a shorter
        // conversation.
        let heard = self.last.take_if(|last| last.heard);
        let last = heard.or(self.overflow.take()).or(self.last.take());
        let last = last.unwrap_or_else(|| ModelError::new(ModelErrorKind::Network, "no model could be asked"));
        warn!(kind = last.kind.word(), attempts = self.attempts, heard = last.heard, detail = %last.detail, "model call failed");
        ModelError { attempts: self.attempts, abandoned: self.abandoned, ..last }
    }
}

/// A request in progress. If it is dropped, another request may be the trial.
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
    /// The info of the first candidate.
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
        let mut sink = TrackingSink::new(sink);
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
