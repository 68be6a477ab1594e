//! The cost guard: money is reserved before each model call and settled after it.
//!
//! A day is a UTC date. Every check compares it, so the guard opens at midnight without a restart. Totals are in memory
//! and in the ledger. At a start the guard reads the ledger, where an unsettled reservation counts as spent in full:
//! the daemon died during that call, so the streamed output is unknown.
//!
//! A purpose may have a budget of its own besides the day's; a call must fit into both. Subagents, plans, summaries and
//! workers are charged to the purpose of their run. Checking and reserving is one step, so parallel calls cannot exceed
//! a limit together. The nodes of a cluster share the budgets by slices ([`cost_slices`](crate::cost_slices)).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use belay_agent_loop::Shortage;
use belay_crash_point::crash_point;
use belay_protocol::{
    CallCharge, Clock, ModelRequest, NewReservation, OpenReservations, Price, Purpose, RunId, SpendLedger, Spent,
    StoreError, Thinking, Usage,
};

use crate::cost_slices::{Call, Limited, SliceSource, Slices, Unpaid};
use crate::estimate::tokens_of;

/// Enforces the budgets of a day.
pub struct CostGuard {
    ledger: Arc<dyn SpendLedger>,
    clock: Arc<dyn Clock>,
    /// Replaced as a whole when the settings are reloaded.
    terms: ArcSwap<Terms>,
    // Held for a few instructions, and never across an await.
    day: Mutex<Day>,
    /// The slices of the budgets; `None`: the daemon is alone.
    slices: Option<Slices>,
}

/// The limits of a day, and the highest price that a call can have.
#[derive(Debug)]
struct Terms {
    limits: DayLimits,
    price: Option<Price>,
}

/// Limits of one UTC day, in millionths of a US dollar.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DayLimits {
    /// Limit of all purposes together; `None`: no limit.
    pub all: Option<u64>,
    /// Limits by purpose; a purpose that is not listed has no limit of its own.
    pub of: BTreeMap<Purpose, u64>,
}

/// Name of the setting of a daily budget, for refusal messages. `None`: the budget of all purposes.
pub fn setting(budget: Option<Purpose>) -> String {
    match budget {
        Some(purpose) => format!("limits.usd_per_day_for.{}", purpose.word()),
        None => "limits.usd_per_day".to_owned(),
    }
}

#[derive(Clone, Debug)]
struct Day {
    utc_day: i64,
    /// Settled and reserved money.
    spent: Spent,
    /// The stored reservations of calls that are not settled, of any day.
    open: OpenReservations,
}

impl Day {
    /// Counts a call of so many requests.
    fn reserve(&mut self, purpose: Purpose, each: u64, attempts: u32) -> Reservation {
        let micro_usd = each.saturating_mul(u64::from(attempts));
        self.spent.add(purpose, micro_usd);
        Reservation { utc_day: self.utc_day, purpose, micro_usd, attempts, row: None, paid: Vec::new() }
    }
}

/// The reserved maximum cost of a call. If it is dropped unsettled, it stays counted in full.
#[derive(Debug)]
pub struct Reservation {
    utc_day: i64,
    purpose: Purpose,
    /// Amount for all requests of the call.
    micro_usd: u64,
    attempts: u32,
    row: Option<u64>,
    /// The budgets whose slices have paid it.
    paid: Vec<Option<Purpose>>,
}

impl Reservation {
    /// Number of requests that the call may send: the wanted number, or fewer if the day's budget allows fewer.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

/// Reason why a call is refused.
#[derive(Debug)]
pub enum Refused {
    /// The day's budget does not suffice.
    Limit(Shortage),
    /// The reservation could not be stored.
    Store(StoreError),
}

impl CostGuard {
    /// A guard with today's totals from the ledger. `price` is the highest price that a call can have.
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
        let day = Mutex::new(Day { utc_day, spent, open: OpenReservations::default() });
        Ok(Self { ledger, clock, terms, day, slices: None })
    }

    /// The same for a node of a cluster, which shares the budgets with other nodes. Then the totals of the day are those of
    /// its start and of this node.
    #[must_use]
    pub fn with_slices(self, source: SliceSource) -> Self {
        Self { slices: Some(Slices::new(source)), ..self }
    }

    /// Gives each slice back to the other nodes after a minute without a call. If the store fails, it tries again after a
    /// pause. Never returns.
    ///
    /// # Cancel safety
    /// If the future is dropped, money may be given back later, by the next call of this function or of
    /// [`CostGuard::give_back`].
    pub async fn return_idle(&self) {
        match &self.slices {
            Some(slices) => slices.return_idle().await,
            None => std::future::pending().await,
        }
    }

    /// Gives unused money of the slices back to the other nodes, such as at a drain. Nothing happens without slices.
    ///
    /// # Errors
    /// The store fails; the money counts as spent until this node has ended.
    pub async fn give_back(&self) -> Result<(), StoreError> {
        match &self.slices {
            Some(slices) => slices.give_back().await,
            None => Ok(()),
        }
    }

    /// The limits of a day.
    pub fn limits(&self) -> DayLimits {
        self.terms.load().limits.clone()
    }

    /// Applies new limits and a new price from the next call on. An earlier reservation is still settled by its own
    /// estimate if the provider reports no usage.
    pub fn adopt(&self, limits: DayLimits, price: Option<Price>) {
        self.terms.store(Arc::new(Terms { limits, price }));
    }

    /// Whether the price of the model is known, so that limits of money have an effect.
    pub fn has_price(&self) -> bool {
        self.price().is_some()
    }

    fn price(&self) -> Option<Price> {
        self.terms.load().price
    }

    /// Money spent today, reservations included. In a cluster that of all nodes before the start of this one, and of this one
    /// since then.
    pub fn spent_today(&self) -> Spent {
        self.with_today(|day| day.spent.clone())
    }

    /// Whether other nodes may spend from the same budgets.
    pub fn is_shared(&self) -> bool {
        self.slices.is_some()
    }

    /// Money that all nodes of a cluster have spent today, reservations included. One read of the ledger; a daemon alone
    /// reads nothing.
    ///
    /// # Errors
    /// The ledger cannot be read.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn spent_today_by_all(&self) -> Result<Spent, StoreError> {
        match &self.slices {
            None => Ok(self.spent_today()),
            Some(_) => self.ledger.spent(self.with_today(|day| day.utc_day)).await,
        }
    }

    /// The money that is reserved for calls in progress. A call whose task panicked stays counted.
    pub fn open_reservations(&self) -> OpenReservations {
        self.with_today(|day| day.open)
    }

    /// Whether the day's budget for this purpose is not used up. The rest may still be too small for a call.
    pub fn has_room(&self, purpose: Purpose) -> bool {
        match &self.slices {
            None => self.with_today(|day| self.fitting(&day.spent, purpose, 0, 1).is_ok()),
            Some(slices) => {
                let utc_day = self.with_today(|day| day.utc_day);
                self.limited(purpose).iter().all(|(budget, _)| slices.has_room(utc_day, *budget))
            }
        }
    }

    /// Maximum cost of one request of this call, in millionths of a US dollar; 0 without a price.
    pub fn estimate(&self, request: &ModelRequest<'_>) -> u64 {
        // A free model needs no estimate, whatever its input.
        let price = self.price().filter(|price| price.input > 0 || price.output > 0);
        price.map_or(0, |price| price.cost_micro_usd(&most_of(request)))
    }

    /// Reserves the maximum cost of a call: its estimated input and its whole output, for each request that it may
    /// send. If the day's budget allows fewer requests, it reserves for those. `model`: the requested one.
    ///
    /// # Errors
    /// The call would exceed a limit of the day, or the reservation could not be stored. In both cases the call must
    /// not be made.
    ///
    /// # Cancel safety
    /// If the future is dropped while the row is written, the amount stays counted for today, which is the safe side.
    pub async fn reserve(
        &self,
        run: RunId,
        purpose: Purpose,
        model: &str,
        request: &ModelRequest<'_>,
    ) -> Result<Reservation, Refused> {
        let each = self.estimate(request);
        let wanted = request.max_attempts.max(1);
        let mut reservation = match &self.slices {
            None => self.with_today(|day| {
                let attempts = self.fitting(&day.spent, purpose, each, wanted).map_err(Refused::Limit)?;
                Ok(day.reserve(purpose, each, attempts))
            })?,
            // Boxed: a daemon alone does not need the room in each run.
            Some(slices) => Box::pin(self.pay(slices, purpose, each, wanted)).await?,
        };
        let Reservation { utc_day, micro_usd, .. } = reservation;
        if micro_usd > 0 {
            let node = self.slices.as_ref().filter(|_| !reservation.paid.is_empty()).map(Slices::boot);
            let new = NewReservation { run, purpose, model: model.to_owned(), utc_day, micro_usd, node };
            crash_point!("money.before-reservation");
            match self.ledger.reserve(new).await {
                Ok(row) => {
                    crash_point!("money.reserved");
                    reservation.row = Some(row);
                    self.with_today(|day| day.open.add(micro_usd));
                }
                Err(error) => {
                    self.replace(&reservation, 0);
                    return Err(Refused::Store(error));
                }
            }
        }
        Ok(reservation)
    }

    /// Pays a call from the slices.
    async fn pay(&self, slices: &Slices, purpose: Purpose, each: u64, wanted: u32) -> Result<Reservation, Refused> {
        let call = Call { each, wanted, priced: self.has_price() };
        loop {
            let budgets = self.limited(purpose);
            let utc_day = self.with_today(|day| day.utc_day);
            let attempts = match slices.pay(utc_day, &budgets, call).await {
                Ok(attempts) => attempts,
                Err(Unpaid::Midnight) => continue, // the next day has budgets of its own
                Err(Unpaid::Limit(shortage)) => return Err(Refused::Limit(shortage)),
                Err(Unpaid::Store(error)) => return Err(Refused::Store(error)),
            };
            let paid = budgets.into_iter().map(|(budget, _)| budget).collect();
            let micro_usd = each.saturating_mul(u64::from(attempts));
            self.with_today(|day| {
                if day.utc_day == utc_day {
                    day.spent.add(purpose, micro_usd);
                }
            });
            return Ok(Reservation { utc_day, purpose, micro_usd, attempts, row: None, paid });
        }
    }

    /// The limited budgets that pay for this purpose.
    fn limited(&self, purpose: Purpose) -> Vec<Limited> {
        let limits = &self.terms.load().limits;
        let own = limits.of.get(&purpose).map(|limit| (Some(purpose), *limit));
        limits.all.map(|limit| (None, limit)).into_iter().chain(own).collect()
    }

    /// The number of the `wanted` requests that fit into each budget that they are charged to.
    fn fitting(&self, spent: &Spent, purpose: Purpose, each: u64, wanted: u32) -> Result<u32, Shortage> {
        let mut attempts = wanted;
        let terms = self.terms.load();
        for (budget, limit, spent) in [
            (None, terms.limits.all, spent.total()),
            (Some(purpose), terms.limits.of.get(&purpose).copied(), spent.of(purpose)),
        ] {
            let Some(limit) = limit else { continue };
            let room = limit.saturating_sub(spent);
            // A free call always fits, until the day is used up.
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

    /// Settles a call and returns the charged amount.
    ///
    /// - `answer`: the usage of the answer, and the price of the model that gave it, if it is not the guard's price.
    ///   `None`: no answer.
    /// - `broken`: the usage of the requests that failed midway or were stopped. It is charged at the guard's price,
    ///   because their model is unknown.
    /// - `model`: the model that answered, if it is not the requested one.
    /// - `requests`: the number of requests that were sent.
    pub async fn settle(
        &self,
        reservation: Reservation,
        answer: Option<(&Usage, Option<&Price>)>,
        broken: &Usage,
        model: Option<&str>,
        requests: u32,
    ) -> u64 {
        let cost = |price: Option<Price>, usage: &Usage| price.map_or(0, |price| price.cost_micro_usd(usage));
        let answered = answer.map_or(0, |(usage, price)| cost(price.copied().or(self.price()), usage));
        let micro_usd = answered.saturating_add(cost(self.price(), broken));
        let usage = answer.map_or(*broken, |(usage, _)| usage.plus(broken));
        self.close(reservation, CallCharge { model: model.map(str::to_owned), micro_usd, usage, requests }).await;
        micro_usd
    }

    /// Releases a reservation for which no request was sent.
    pub async fn release(&self, reservation: Reservation) {
        self.close(reservation, CallCharge::default()).await;
    }

    async fn close(&self, reservation: Reservation, charge: CallCharge) {
        self.replace(&reservation, charge.micro_usd);
        let Some(row) = reservation.row else { return };
        self.with_today(|day| day.open.take_back(reservation.micro_usd));
        crash_point!("money.before-settlement");
        if let Err(error) = self.ledger.settle(row, charge).await {
            // The ledger keeps the reservation: after a restart the day's total may be too high, never too low.
            tracing::warn!(%error, "a settlement was not stored");
        }
        crash_point!("money.settled");
    }

    fn replace(&self, reservation: &Reservation, charged: u64) {
        if let Some(slices) = &self.slices {
            slices.replace(reservation.utc_day, &reservation.paid, reservation.micro_usd, charged);
        }
        self.with_today(|day| {
            if day.utc_day == reservation.utc_day {
                day.spent.take_back(reservation.purpose, reservation.micro_usd);
                day.spent.add(reservation.purpose, charged);
            }
        });
    }

    /// Calls `f` with the totals of today.
    fn with_today<R>(&self, f: impl FnOnce(&mut Day) -> R) -> R {
        let today = self.clock.now().utc_day();
        let mut day = self.day.lock().unwrap_or_else(PoisonError::into_inner);
        if today > day.utc_day {
            *day = Day { utc_day: today, spent: Spent::default(), open: day.open };
        }
        f(&mut day)
    }
}

/// Maximum usage of a request: a third more input than estimated, since estimates run low for code and for scripts
/// other than Latin, and all the output and thinking that it allows.
pub(crate) fn most_of(request: &ModelRequest<'_>) -> Usage {
    let thoughts = request.thinking.map_or(0, Thinking::budget_tokens);
    let output = u64::from(request.max_tokens) + u64::from(thoughts);
    Usage { input: tokens_of(request) * 4 / 3, cached_input: 0, output }
}
