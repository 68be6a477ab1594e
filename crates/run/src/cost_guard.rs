//! The cost guard: money is reserved before each model call and settled after it.
//!
//! The day is the UTC date, looked at in every check, so that midnight opens the guard without a restart. Totals live in
//! memory and in the ledger: a start reads the ledger, where a reservation that nobody settled counts as spent in full. The
//! daemon died during that call, so that nobody knows what had been streamed, and the reservation is all that is known. What a run is for has a budget of its own besides the day's, where the settings give it one:
//! both must suffice, and what a run's subagents, plans, summaries and workers cost is for what the run is for. Parallel calls
//! cannot pass together what only one may: checking and reserving is one step.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use belay_agent_loop::Shortage;
use belay_protocol::{
    Clock, ModelRequest, NewReservation, Price, Purpose, RunId, SpendLedger, Spent, StoreError, Thinking, Usage,
};

use crate::estimate::tokens_of;

/// Guards the day's money.
pub struct CostGuard {
    ledger: Arc<dyn SpendLedger>,
    clock: Arc<dyn Clock>,
    /// Swapped as a whole when the settings are reloaded.
    terms: ArcSwap<Terms>,
    // Held for a few instructions and never across an await.
    day: Mutex<Day>,
}

/// What a day may cost, and the highest price that a call can have.
#[derive(Debug)]
struct Terms {
    limits: DayLimits,
    price: Option<Price>,
}

/// What one UTC day may cost, in millionths of a US dollar.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DayLimits {
    /// All together; `None`: any amount.
    pub all: Option<u64>,
    /// What it goes for; one that is not named has no limit of its own.
    pub of: BTreeMap<Purpose, u64>,
}

/// The setting of a day's budget, for those who read why a call was refused. `None`: that of all.
pub fn setting(budget: Option<Purpose>) -> String {
    match budget {
        Some(purpose) => format!("limits.usd_per_day_for.{}", purpose.word()),
        None => "limits.usd_per_day".to_owned(),
    }
}

#[derive(Clone, Debug)]
struct Day {
    utc_day: i64,
    /// Settled and reserved.
    spent: Spent,
}

/// A reservation: what a call may cost at most. Dropped unsettled, it stays counted in full.
#[derive(Debug)]
pub struct Reservation {
    utc_day: i64,
    purpose: Purpose,
    /// For all the requests it may take.
    micro_usd: u64,
    attempts: u32,
    row: Option<u64>,
}

impl Reservation {
    /// How many requests the call may send: all it wants, or as many as the day's money allows.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

/// Why a call may not be made.
#[derive(Debug)]
pub enum Refused {
    /// The day's money does not suffice.
    Limit(Shortage),
    /// The reservation could not be stored.
    Store(StoreError),
}

impl CostGuard {
    /// A guard that knows what the ledger has for today. `price` is the highest that a call can have.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub async fn load(
        ledger: Arc<dyn SpendLedger>,
        clock: Arc<dyn Clock>,
        limits: DayLimits,
        price: Option<Price>,
    ) -> Result<Self, StoreError> {
        let utc_day = clock.now().utc_day();
        let spent = ledger.spent(utc_day).await?;
        let terms = ArcSwap::from_pointee(Terms { limits, price });
        Ok(Self { ledger, clock, terms, day: Mutex::new(Day { utc_day, spent }) })
    }

    /// What a day may cost.
    pub fn limits(&self) -> DayLimits {
        self.terms.load().limits.clone()
    }

    /// Counts by these limits and this price from the next call on. What was reserved before is settled by its own estimate
    /// where the provider reports nothing.
    pub fn adopt(&self, limits: DayLimits, price: Option<Price>) {
        self.terms.store(Arc::new(Terms { limits, price }));
    }

    fn price(&self) -> Option<Price> {
        self.terms.load().price
    }

    /// What today has cost, reservations included.
    pub fn spent_today(&self) -> Spent {
        self.with_today(|day| day.spent.clone())
    }

    /// Whether the day has any money left for this. What is left may still be too little for a call.
    pub fn has_room(&self, purpose: Purpose) -> bool {
        self.with_today(|day| self.fitting(&day.spent, purpose, 0, 1).is_ok())
    }

    /// The most that one request of this call can cost, in millionths of a US dollar; 0 without a price.
    pub fn estimate(&self, request: &ModelRequest<'_>) -> u64 {
        // What is free needs no estimate, whatever it reads.
        let price = self.price().filter(|price| price.input > 0 || price.output > 0);
        price.map_or(0, |price| price.cost_micro_usd(&most_of(request)))
    }

    /// Reserves the most that a call can cost: its estimated input and all of its output, for each request it may take, or
    /// for as many as still fit into the day. `model`: the requested one.
    ///
    /// # Errors
    /// A limit of the day would be passed, or the reservation could not be stored: in both cases no call may be made.
    ///
    /// # Cancel safety
    /// Dropped while the row is written, the amount stays counted for today: the safe side.
    pub async fn reserve(
        &self,
        run: RunId,
        purpose: Purpose,
        model: &str,
        request: &ModelRequest<'_>,
    ) -> Result<Reservation, Refused> {
        let each = self.estimate(request);
        let wanted = request.max_attempts.max(1);
        let (utc_day, attempts) = self.with_today(|day| {
            let attempts = self.fitting(&day.spent, purpose, each, wanted).map_err(Refused::Limit)?;
            day.spent.add(purpose, each.saturating_mul(u64::from(attempts)));
            Ok((day.utc_day, attempts))
        })?;
        let micro_usd = each.saturating_mul(u64::from(attempts));
        let mut reservation = Reservation { utc_day, purpose, micro_usd, attempts, row: None };
        if micro_usd > 0 {
            let new = NewReservation { run, purpose, model: model.to_owned(), utc_day, micro_usd };
            match self.ledger.reserve(new).await {
                Ok(row) => reservation.row = Some(row),
                Err(error) => {
                    self.replace(&reservation, 0);
                    return Err(Refused::Store(error));
                }
            }
        }
        Ok(reservation)
    }

    /// As many of the `wanted` requests as fit into each budget that they are charged to.
    fn fitting(&self, spent: &Spent, purpose: Purpose, each: u64, wanted: u32) -> Result<u32, Shortage> {
        let mut attempts = wanted;
        let terms = self.terms.load();
        for (budget, limit, spent) in [
            (None, terms.limits.all, spent.total()),
            (Some(purpose), terms.limits.of.get(&purpose).copied(), spent.of(purpose)),
        ] {
            let Some(limit) = limit else { continue };
            let room = limit.saturating_sub(spent);
            // What costs nothing always fits, until the day is used up.
            let used_up = room == 0 && terms.price.is_some();
            let fitting = if used_up { 0 } else { room.checked_div(each).unwrap_or(u64::MAX) };
            attempts = attempts.min(u32::try_from(fitting).unwrap_or(u32::MAX));
            if attempts == 0 {
                let [spent_micro_usd, limit_micro_usd, needed_micro_usd] = [spent, limit, each];
                return Err(Shortage { budget, spent_micro_usd, limit_micro_usd, needed_micro_usd });
            }
        }
        Ok(attempts)
    }

    /// Settles a call. `answer` is what the answer used, and the price of the model that gave it where that is not the
    /// guard's; `None` for a call without an answer. `broken` is what the requests used that broke off, or were stopped: at
    /// the guard's price, since nobody knows which model they went to. `model`: the one that answered, where it is not the
    /// requested one. Returns the amount charged.
    pub async fn settle(
        &self,
        reservation: Reservation,
        answer: Option<(&Usage, Option<&Price>)>,
        broken: &Usage,
        model: Option<&str>,
    ) -> u64 {
        let cost = |price: Option<Price>, usage: &Usage| price.map_or(0, |price| price.cost_micro_usd(usage));
        let answered = answer.map_or(0, |(usage, price)| cost(price.copied().or(self.price()), usage));
        let charged = answered.saturating_add(cost(self.price(), broken));
        self.close(reservation, model, charged).await
    }

    /// Gives a reservation back: no request was sent.
    pub async fn release(&self, reservation: Reservation) {
        self.close(reservation, None, 0).await;
    }

    async fn close(&self, reservation: Reservation, model: Option<&str>, charged: u64) -> u64 {
        self.replace(&reservation, charged);
        if let Some(row) = reservation.row
            && let Err(error) = self.ledger.settle(row, model, charged).await
        {
            // The reservation stands in the ledger instead: after a restart the day looks more spent, never less.
            tracing::warn!(%error, "a settlement was not stored");
        }
        charged
    }

    fn replace(&self, reservation: &Reservation, charged: u64) {
        self.with_today(|day| {
            if day.utc_day == reservation.utc_day {
                day.spent.take_back(reservation.purpose, reservation.micro_usd);
                day.spent.add(reservation.purpose, charged);
            }
        });
    }

    /// Runs with the day rolled over to today.
    fn with_today<R>(&self, f: impl FnOnce(&mut Day) -> R) -> R {
        let today = self.clock.now().utc_day();
        let mut day = self.day.lock().unwrap_or_else(PoisonError::into_inner);
        if today > day.utc_day {
            *day = Day { utc_day: today, spent: Spent::default() };
        }
        f(&mut day)
    }
}

/// What a request may use, on the safe side: a third more input than estimated, since estimates run low for code and for
/// scripts other than Latin, and all the output and the thoughts it allows.
pub(crate) fn most_of(request: &ModelRequest<'_>) -> Usage {
    let thoughts = request.thinking.map_or(0, Thinking::budget_tokens);
    let output = u64::from(request.max_tokens) + u64::from(thoughts);
    Usage { input: tokens_of(request) * 4 / 3, cached_input: 0, output }
}
