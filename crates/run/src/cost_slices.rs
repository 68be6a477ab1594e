//! Slices of the budgets of a day: the money that this node of a cluster may spend without asking the others.
//!
//! A call is paid from the slices in memory. Only a slice that is too small costs a commit: the node draws more money of
//! the budget, usually for many calls. Drawn money that is not spent counts as spent for the other nodes until it is given
//! back ([`give_back`]), or until the node has ended and its slices are reconciled.

mod give_back;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belay_agent_loop::Shortage;
use belay_protocol::{BootId, BudgetSlices, Draw, Purpose, StoreError};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

/// A slice is enlarged by this part of the limit at least. A 64th: with 16 nodes, at most a quarter of a budget is idle.
const PARTS: u64 = 64;

/// The time without a call after which a slice is given back: a minute. A node that works draws once for many calls, and a
/// node without work keeps no money from the others.
const IDLE: Duration = Duration::from_secs(60);

/// How often a call tries to draw before it is refused. Calls beside it may take what it has drawn.
const TRIES: u32 = 3;

/// The budgets of a node, and where it draws them.
pub struct SliceSource {
    /// Where it draws them.
    pub slices: Arc<dyn BudgetSlices>,
    /// The node.
    pub boot: BootId,
}

/// A call that is to be paid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// The highest cost of one request, in millionths of a US dollar.
    pub(crate) each: u64,
    /// The wanted number of requests, at least 1.
    pub(crate) wanted: u32,
    /// Whether calls have a price. Without one, an empty budget refuses nothing.
    pub(crate) priced: bool,
}

impl Call {
    /// The number of requests that this money pays for.
    fn fitting(&self, money: u64) -> u32 {
        let fitting = match self.each {
            0 if self.priced && money == 0 => 0,
            each => money.checked_div(each).unwrap_or(u64::MAX),
        };
        u32::try_from(fitting).unwrap_or(u32::MAX).min(self.wanted)
    }

    /// The money of so many requests. A free call needs a budget that is not used up.
    fn price(&self, requests: u32) -> u64 {
        self.each.max(u64::from(self.priced)).saturating_mul(u64::from(requests))
    }
}

/// Why a call is not paid.
#[derive(Debug)]
pub(crate) enum Unpaid {
    /// A budget does not suffice.
    Limit(Shortage),
    /// The store failed.
    Store(StoreError),
    /// The day has ended meanwhile.
    Midnight,
}

/// A limited budget: its purpose (`None`: all purposes) and its limit.
pub(crate) type Limited = (Option<Purpose>, u64);

/// The slices of this node.
pub(crate) struct Slices {
    source: SliceSource,
    /// Held for a few instructions, and never across an await.
    day: Mutex<Day>,
    /// Held while a slice is enlarged, so that calls at the same time do not all draw.
    drawing: AsyncMutex<()>,
}

#[derive(Default)]
struct Day {
    utc_day: i64,
    of: BTreeMap<Option<Purpose>, Slice>,
}

#[derive(Clone, Copy, Default)]
struct Slice {
    /// The drawn money.
    granted: u64,
    /// Reserved and settled money. A call that costs more than was reserved may raise it above `granted`.
    used: u64,
    /// The money of the budget that was in no slice, after the last draw, and when that was; `None`: nothing was drawn yet.
    left: Option<(u64, Instant)>,
    /// When a call has last changed it.
    changed: Option<Instant>,
    /// Whether the store may have more money in this slice than `granted`: a request to it has failed, or was dropped.
    unclear: bool,
}

impl Slice {
    fn rest(&self) -> u64 {
        self.granted.saturating_sub(self.used)
    }

    /// The known money of the budget that is in no slice.
    fn left(&self) -> u64 {
        self.left.map_or(0, |(left, _)| left)
    }

    /// The money that lacks for this amount.
    fn lacks(&self, amount: u64) -> u64 {
        self.used.saturating_add(amount).saturating_sub(self.granted)
    }
}

impl Slices {
    pub(crate) fn new(source: SliceSource) -> Self {
        Self { source, day: Mutex::default(), drawing: AsyncMutex::default() }
    }

    /// The node.
    pub(crate) fn boot(&self) -> BootId {
        self.source.boot
    }

    /// Pays a call from each of these budgets, and returns the number of its requests: the wanted number, or fewer if the
    /// budgets allow fewer.
    ///
    /// # Errors
    /// See [`Unpaid`]; nothing is paid.
    ///
    /// # Cancel safety
    /// If the future is dropped, money may be drawn that this node does not know. It counts as spent until the slice is given
    /// back.
    pub(crate) async fn pay(&self, utc_day: i64, budgets: &[Limited], call: Call) -> Result<u32, Unpaid> {
        let taken = self.take(utc_day, budgets, call, call.wanted);
        if matches!(taken, Ok(_) | Err(Unpaid::Midnight)) {
            return taken;
        }
        let _drawing = self.drawing.lock().await;
        let mut tries = 1;
        loop {
            for limited in budgets {
                self.draw(utc_day, *limited, call).await.map_err(Unpaid::Store)?;
            }
            match self.take(utc_day, budgets, call, 1) {
                Err(Unpaid::Limit(_)) if tries < TRIES => tries += 1,
                taken => return taken,
            }
        }
    }

    /// Takes the money of at least `least` requests out of the slices.
    fn take(&self, utc_day: i64, budgets: &[Limited], call: Call, least: u32) -> Result<u32, Unpaid> {
        let mut day = self.day(utc_day);
        if day.utc_day != utc_day {
            return Err(Unpaid::Midnight);
        }
        let mut requests = call.wanted;
        for (budget, limit) in budgets {
            let slice = day.of.entry(*budget).or_default();
            requests = requests.min(call.fitting(slice.rest()));
            if requests < least {
                let free = slice.left().saturating_add(slice.rest());
                return Err(Unpaid::Limit(Shortage {
                    budget: *budget,
                    spent_micro_usd: limit.saturating_sub(free),
                    limit_micro_usd: *limit,
                    needed_micro_usd: call.each,
                }));
            }
        }
        for (budget, _) in budgets {
            let slice = day.of.entry(*budget).or_default();
            slice.used = slice.used.saturating_add(call.each.saturating_mul(u64::from(requests)));
            slice.changed = Some(Instant::now());
        }
        Ok(requests)
    }

    /// Enlarges a slice that is too small for a call.
    async fn draw(&self, utc_day: i64, (budget, limit): Limited, call: Call) -> Result<(), StoreError> {
        let slice = self.day(utc_day).of.get(&budget).copied().unwrap_or_default();
        let need = slice.lacks(call.price(call.wanted));
        if need == 0 {
            return Ok(());
        }
        if slice.unclear {
            // Else unknown money of this node would take the place of its call in the budget.
            self.source.slices.give_back(utc_day, budget, self.source.boot, slice.granted).await?;
        }
        let (least, want) = (slice.lacks(call.price(1)), need.max(limit / PARTS));
        let draw = Draw { utc_day, budget, boot: self.source.boot, limit, least, need, want };
        self.change(utc_day, budget, |slice| (slice.unclear, slice.changed) = (true, Some(Instant::now())));
        let drawn = self.source.slices.draw(draw).await?;
        self.change(utc_day, budget, |slice| {
            slice.granted = slice.granted.saturating_add(drawn.granted);
            slice.left = Some((drawn.left, Instant::now()));
            slice.unclear = false;
        });
        Ok(())
    }

    /// Replaces the reserved amount of a call by its cost, in the budgets that have paid it.
    pub(crate) fn replace(&self, utc_day: i64, paid: &[Option<Purpose>], reserved: u64, cost: u64) {
        for budget in paid {
            self.change(utc_day, *budget, |slice| {
                slice.used = slice.used.saturating_sub(reserved).saturating_add(cost);
                slice.changed = Some(Instant::now());
            });
        }
    }

    /// Whether a budget is not used up, as far as this node knows. After [`IDLE`] it does not know any more: others may have
    /// given money back.
    pub(crate) fn has_room(&self, utc_day: i64, budget: Option<Purpose>) -> bool {
        let slice = self.day(utc_day).of.get(&budget).copied().unwrap_or_default();
        slice.rest() > 0 || slice.left.is_none_or(|(left, at)| left > 0 || at.elapsed() >= IDLE)
    }

    /// Changes a slice of a day. Nothing happens after that day.
    fn change(&self, utc_day: i64, budget: Option<Purpose>, change: impl FnOnce(&mut Slice)) {
        let mut day = self.day(utc_day);
        if day.utc_day == utc_day {
            change(day.of.entry(budget).or_default());
        }
    }

    /// The slices of today. Those of an earlier day are forgotten.
    fn day(&self, today: i64) -> MutexGuard<'_, Day> {
        let mut day = self.day.lock().unwrap_or_else(PoisonError::into_inner);
        if today > day.utc_day {
            *day = Day { utc_day: today, of: BTreeMap::new() };
        }
        day
    }
}
