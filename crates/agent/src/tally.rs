//! What a run and everything it started have used: one account for the whole tree, so that no limit multiplies with the
//! number of subagents. Children charge it directly.

use std::sync::{Arc, Mutex, PoisonError};

use belay_agent_loop::policies::{RunLimits, Totals};
use belay_protocol::{Finding, RunUsage, StopReason, Usage};

/// The account of a run's tree. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Mutex<Figures>>);

#[derive(Debug, Default)]
struct Figures {
    usage: RunUsage,
    cost_micro_usd: u64,
    /// What the session's other runs have cost.
    session_before_micro_usd: u64,
    /// Money of calls that are under way.
    reserved_micro_usd: u64,
    output_bytes: u64,
}

/// What may be spent on a call, held in the account until [`Tally::settle`].
#[derive(Debug)]
pub struct Hold {
    /// Requests that the call may send.
    pub attempts: u32,
    micro_usd: u64,
}

impl Tally {
    /// An account that goes on from what earlier attempts have used.
    pub fn new(usage: RunUsage, cost_micro_usd: u64, session_before_micro_usd: u64) -> Self {
        let figures = Figures { usage, cost_micro_usd, session_before_micro_usd, ..Figures::default() };
        Self(Arc::new(Mutex::new(figures)))
    }

    // Held for a few instructions and never across an await.
    fn with<R>(&self, f: impl FnOnce(&mut Figures) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes what the session's other runs have cost.
    pub fn open_session(&self, before_micro_usd: u64) {
        self.with(|figures| figures.session_before_micro_usd = before_micro_usd);
    }

    /// Allows a call of at most `wanted` requests that cost at most `each`, or says which limit forbids it. `reserve` is
    /// held back for a closing turn. Checking and holding is one step: parallel children cannot pass together what only
    /// one may.
    ///
    /// # Errors
    /// The limit that not one request would keep.
    pub fn admit(&self, limits: &RunLimits, wanted: u32, each: u64, reserve: u64) -> Result<Hold, Box<Finding>> {
        self.with(|figures| {
            let mut attempts = wanted.max(1);
            if let Some(limit) = limits.model_calls {
                let used = u64::from(figures.usage.model_calls);
                let left = u32::try_from(limit.saturating_sub(used)).unwrap_or(u32::MAX);
                if left == 0 {
                    return Err(Box::new(Finding::new(StopReason::ModelCalls, "model_calls", used, limit)));
                }
                attempts = attempts.min(left);
            }
            let run = figures.cost_micro_usd.saturating_add(figures.reserved_micro_usd);
            let session = run.saturating_add(figures.session_before_micro_usd);
            for (reason, rule, spent, limit) in [
                (StopReason::RunCost, "run_usd", run, limits.micro_usd_per_run()),
                (StopReason::SessionCost, "session_usd", session, limits.micro_usd_per_session()),
            ] {
                let Some(limit) = limit else { continue };
                let left = limit.saturating_sub(spent).saturating_sub(reserve);
                let fitting = left.checked_div(each).unwrap_or(if spent < limit { u64::MAX } else { 0 });
                if fitting == 0 {
                    let finding = Finding::new(reason, rule, spent, limit);
                    return Err(Box::new(finding.with("reserve_micro_usd", reserve).with("needed_micro_usd", each)));
                }
                attempts = attempts.min(u32::try_from(fitting).unwrap_or(u32::MAX));
            }
            let micro_usd = each.saturating_mul(u64::from(attempts));
            figures.reserved_micro_usd = figures.reserved_micro_usd.saturating_add(micro_usd);
            Ok(Hold { attempts, micro_usd })
        })
    }

    /// Ends a hold: `requests` were sent, `usage` was told, `charged` is what they cost.
    pub fn settle(&self, hold: Hold, requests: u32, usage: Option<&Usage>, charged: u64) {
        self.with(|figures| {
            figures.reserved_micro_usd = figures.reserved_micro_usd.saturating_sub(hold.micro_usd);
            figures.cost_micro_usd = figures.cost_micro_usd.saturating_add(charged);
            figures.usage.add_call(requests, usage);
        });
    }

    /// Counts tool calls that were begun.
    pub fn add_tool_calls(&self, begun: u32) {
        self.with(|figures| figures.usage.tool_calls = figures.usage.tool_calls.saturating_add(begun));
    }

    /// Counts text that the model said or a tool returned.
    pub fn add_output(&self, bytes: usize) {
        self.with(|figures| figures.output_bytes = figures.output_bytes.saturating_add(bytes as u64));
    }

    /// Usage and cost, as they are stored.
    pub fn spent(&self) -> (RunUsage, u64) {
        self.with(|figures| (figures.usage, figures.cost_micro_usd))
    }

    /// What the stop rules are shown.
    pub fn totals(&self) -> Totals {
        self.with(|figures| Totals {
            model_calls: u64::from(figures.usage.model_calls),
            tool_calls: u64::from(figures.usage.tool_calls),
            tokens_in: figures.usage.input,
            tokens_out: figures.usage.output,
            run_micro_usd: figures.cost_micro_usd,
            session_micro_usd: figures.session_before_micro_usd.saturating_add(figures.cost_micro_usd),
            output_bytes: figures.output_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(run: Option<f64>, session: Option<f64>, calls: Option<u64>) -> RunLimits {
        RunLimits { usd_per_run: run, usd_per_session: session, model_calls: calls, ..RunLimits::default() }
    }

    #[test]
    fn a_call_is_admitted_as_far_as_every_limit_allows() {
        let spent = RunUsage { model_calls: 2, ..RunUsage::default() };
        for (name, limits, each, reserve, expected) in [
            ("no limit", limits(None, None, None), 10, 10, Ok(3)),
            ("as many calls as are left", limits(None, None, Some(4)), 10, 0, Ok(2)),
            ("no call is left", limits(None, None, Some(2)), 10, 0, Err(StopReason::ModelCalls)),
            ("money for two requests", limits(Some(0.000_130), None, None), 10, 5, Ok(2)),
            ("the reserve is not spent", limits(Some(0.000_130), None, None), 10, 25, Err(StopReason::RunCost)),
            (
                "the session has spent more",
                limits(Some(1.0), Some(0.000_205), None),
                10,
                0,
                Err(StopReason::SessionCost),
            ),
            ("what is free always fits", limits(Some(0.000_101), None, None), 0, 0, Ok(3)),
            ("but not when all is spent", limits(Some(0.000_100), None, None), 0, 0, Err(StopReason::RunCost)),
        ] {
            let tally = Tally::new(spent, 100, 100);
            let admitted = tally.admit(&limits, 3, each, reserve).map(|hold| hold.attempts);
            assert_eq!(admitted.map_err(|finding| finding.reason), expected, "{name}");
        }
    }

    #[test]
    fn what_is_under_way_is_not_admitted_twice() {
        let tally = Tally::new(RunUsage::default(), 0, 0);
        let limits = limits(Some(0.000_010), None, None);
        let first = tally.admit(&limits, 1, 10, 0).expect("fits");
        assert!(tally.admit(&limits, 1, 10, 0).is_err(), "the first may still need it");
        tally.settle(first, 1, None, 4);
        assert!(tally.admit(&limits, 1, 6, 0).is_ok(), "it did not");
        assert_eq!(tally.spent().1, 4);
    }
}
