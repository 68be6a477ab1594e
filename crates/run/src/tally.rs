//! Usage of a run and everything that it started: one account for the whole tree, so that no limit grows with the
//! number of subagents. Children charge it directly.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use belay_agent_loop::Shortage;
use belay_agent_loop::policies::{RunLimits, Totals};
use belay_protocol::{Finding, RunUsage, StopReason, Usage};

/// The account of a run tree. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Mutex<Figures>>);

#[derive(Debug, Default)]
struct Figures {
    usage: RunUsage,
    cost_micro_usd: u64,
    /// Cost of the session's other runs.
    session_before_micro_usd: u64,
    /// Money and requests of calls in progress.
    reserved_micro_usd: u64,
    reserved_calls: u64,
    /// Money reserved for the closing turn of the root.
    closing_micro_usd: u64,
    output_bytes: u64,
    /// Number of begun calls of the tools that have a limit of their own.
    calls_of: BTreeMap<String, u64>,
    /// The refusal of the day's cost guard for a call of the tree.
    day_refused: Option<Shortage>,
    /// Whether untrusted content is in the conversation of some run of the tree.
    untrusted: bool,
    /// The model that answered the last step of a run of the tree.
    model: Option<Arc<str>>,
}

/// Money and requests reserved in the account for a call, until [`Tally::settle`]. If it is dropped unsettled, with the
/// future that holds it, it counts as one request at the full cost, because the real charge is unknown.
#[derive(Debug)]
pub struct Hold {
    /// Number of requests that the call may send.
    pub attempts: u32,
    micro_usd: u64,
    account: Option<Tally>,
}

/// The charge of a model call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Charge {
    /// Number of requests sent.
    pub requests: u32,
    /// Their usage.
    pub usage: Usage,
    /// Number of requests whose usage is estimated, because the provider did not report it.
    pub estimated: u32,
    /// Their cost, in millionths of a US dollar.
    pub micro_usd: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(account) = self.account.take() {
            let charge = Charge { requests: 1, estimated: 1, micro_usd: self.micro_usd, ..Charge::default() };
            account.close(self.attempts, self.micro_usd, charge);
        }
    }
}

impl Tally {
    /// An account that continues the usage of earlier attempts.
    pub fn new(usage: RunUsage, cost_micro_usd: u64, session_before_micro_usd: u64) -> Self {
        let figures = Figures { usage, cost_micro_usd, session_before_micro_usd, ..Figures::default() };
        Self(Arc::new(Mutex::new(figures)))
    }

    // Held for a few instructions, and never across an await.
    fn with<R>(&self, f: impl FnOnce(&mut Figures) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the cost of the session's other runs.
    pub fn open_session(&self, before_micro_usd: u64) {
        self.with(|figures| figures.session_before_micro_usd = before_micro_usd);
    }

    /// Sets the output to that of earlier attempts, in bytes, unless it is larger already.
    pub fn open_output(&self, bytes: u64) {
        self.with(|figures| figures.output_bytes = figures.output_bytes.max(bytes));
    }

    /// Reserves money for the closing turn of the root. Only that turn may use it.
    pub fn hold_back(&self, micro_usd: u64) {
        self.with(|figures| figures.closing_micro_usd = micro_usd);
    }

    /// Records that the day's cost guard refused a call. The tree makes no other call.
    pub fn refuse_day(&self, shortage: Shortage) {
        self.with(|figures| figures.day_refused = Some(shortage));
    }

    /// The refusal of the day's cost guard, if it refused a call of the tree.
    pub fn day_refused(&self) -> Option<Shortage> {
        self.with(|figures| figures.day_refused)
    }

    /// Records that a run of the tree has read untrusted content.
    pub fn note_untrusted(&self) {
        self.with(|figures| figures.untrusted = true);
    }

    /// Whether a run of the tree has read untrusted content.
    pub fn untrusted(&self) -> bool {
        self.with(|figures| figures.untrusted)
    }

    /// Counts a tool call that is about to begin. If a limit forbids the call, returns the limit instead.
    pub fn admit_tool(&self, limits: &RunLimits, tool: &str) -> Option<u64> {
        self.with(|figures| {
            let begun = u64::from(figures.usage.tool_calls);
            if let Some(limit) = limits.tool_calls.filter(|limit| begun >= *limit) {
                return Some(limit);
            }
            if let Some(limit) = limits.tool_calls_of.get(tool) {
                let of = figures.calls_of.entry(tool.to_owned()).or_default();
                if *of >= *limit {
                    return Some(*limit);
                }
                *of += 1;
            }
            figures.usage.tool_calls = figures.usage.tool_calls.saturating_add(1);
            None
        })
    }

    /// Subtracts calls that were admitted and did not begin.
    pub fn give_back_tools(&self, calls: usize) {
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        self.with(|figures| figures.usage.tool_calls = figures.usage.tool_calls.saturating_sub(calls));
    }

    /// Reserves a call of at most `wanted` requests that cost at most `each`. The money for the closing turn stays
    /// reserved, unless `closing` is set. Checking and reserving is one step, so parallel children cannot exceed a
    /// limit together.
    ///
    /// # Errors
    /// The limit that does not allow even one request.
    pub fn admit(&self, limits: &RunLimits, wanted: u32, each: u64, closing: bool) -> Result<Hold, Box<Finding>> {
        self.with(|figures| {
            let mut attempts = wanted.max(1);
            let reserve = if closing { 0 } else { figures.closing_micro_usd };
            if let Some(limit) = limits.model_calls {
                let used = u64::from(figures.usage.model_calls).saturating_add(figures.reserved_calls);
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
            figures.reserved_calls = figures.reserved_calls.saturating_add(u64::from(attempts));
            Ok(Hold { attempts, micro_usd, account: Some(self.clone()) })
        })
    }

    /// Settles a reservation with the real charge.
    pub fn settle(&self, mut hold: Hold, charge: Charge) {
        hold.account = None; // settled here, so `drop` must not settle it
        self.close(hold.attempts, hold.micro_usd, charge);
    }

    fn close(&self, held: u32, held_micro_usd: u64, charge: Charge) {
        self.with(|figures| {
            figures.reserved_micro_usd = figures.reserved_micro_usd.saturating_sub(held_micro_usd);
            figures.reserved_calls = figures.reserved_calls.saturating_sub(u64::from(held));
            figures.cost_micro_usd = figures.cost_micro_usd.saturating_add(charge.micro_usd);
            figures.usage.add_call(charge.requests, &charge.usage, charge.estimated);
        });
    }

    /// Counts text of the model or of a tool, in bytes.
    pub fn add_output(&self, bytes: usize) {
        self.with(|figures| figures.output_bytes = figures.output_bytes.saturating_add(bytes as u64));
    }

    /// Usage and cost for the store.
    pub fn spent(&self) -> (RunUsage, u64) {
        self.with(|figures| (figures.usage, figures.cost_micro_usd))
    }

    /// Records the model that answered a step of a run of the tree.
    pub fn note_model(&self, model: &str) {
        self.with(|figures| {
            if figures.model.as_deref() != Some(model) {
                figures.model = Some(model.into());
            }
        });
    }

    /// The model that answered the last step of a run of the tree; `None`: none has since the account was opened.
    pub fn model(&self) -> Option<Arc<str>> {
        self.with(|figures| figures.model.clone())
    }

    /// Totals for the stop rules.
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
            tally.hold_back(reserve);
            let admitted = tally.admit(&limits, 3, each, false).map(|hold| hold.attempts);
            assert_eq!(admitted.map_err(|finding| finding.reason), expected, "{name}");
        }
    }

    #[test]
    fn what_is_under_way_is_not_admitted_twice() {
        let tally = Tally::new(RunUsage::default(), 0, 0);
        let limits = limits(Some(0.000_010), None, None);
        let first = tally.admit(&limits, 1, 10, false).expect("fits");
        assert!(tally.admit(&limits, 1, 10, false).is_err(), "the first may still need it");
        tally.settle(first, Charge { requests: 1, micro_usd: 4, ..Charge::default() });
        assert!(tally.admit(&limits, 1, 6, false).is_ok(), "it did not");
    }

    #[test]
    fn requests_that_are_under_way_are_not_admitted_twice() {
        let tally = Tally::new(RunUsage { model_calls: 1, ..RunUsage::default() }, 0, 0);
        let limits = limits(None, None, Some(4));
        let first = tally.admit(&limits, 2, 0, false).expect("three are left");
        let second = tally.admit(&limits, 3, 0, false).expect("one is left");
        assert_eq!((first.attempts, second.attempts), (2, 1));
        assert!(tally.admit(&limits, 1, 0, false).is_err());
        tally.settle(first, Charge { requests: 1, ..Charge::default() });
        assert!(tally.admit(&limits, 1, 0, false).is_ok(), "the first needed one of its two");
    }

    #[test]
    fn a_call_that_is_dropped_counts_as_one_that_cost_all_it_could() {
        let tally = Tally::new(RunUsage::default(), 0, 0);
        drop(tally.admit(&limits(None, None, None), 3, 10, false).expect("fits"));
        let (usage, cost) = tally.spent();
        assert_eq!((usage.model_calls, cost), (1, 30));
        assert!(tally.admit(&limits(Some(0.000_040), None, None), 1, 10, false).is_ok(), "nothing stays reserved");
    }

    #[test]
    fn the_model_of_the_last_step_counts_for_the_whole_tree() {
        let tally = Tally::new(RunUsage::default(), 0, 0);
        assert_eq!(tally.model(), None);
        let child = tally.clone();
        tally.note_model("large");
        child.note_model("small");
        assert_eq!(tally.model().as_deref(), Some("small"));
    }

    #[test]
    fn the_closing_turn_alone_may_use_what_is_held_back() {
        let tally = Tally::new(RunUsage::default(), 0, 0);
        tally.hold_back(10);
        let limits = limits(Some(0.000_015), None, None);
        assert!(tally.admit(&limits, 1, 10, false).is_err());
        assert!(tally.admit(&limits, 1, 10, true).is_ok());
    }

    #[test]
    fn tool_calls_are_admitted_one_by_one_up_to_their_limits() {
        let limits = RunLimits { tool_calls: Some(3), tool_calls_of: [("a".into(), 1)].into(), ..RunLimits::default() };
        let tally = Tally::new(RunUsage::default(), 0, 0);
        let asked = ["a", "a", "b", "b", "b"].map(|tool| tally.admit_tool(&limits, tool));
        assert_eq!(asked, [None, Some(1), None, None, Some(3)]);
        assert_eq!(tally.spent().0.tool_calls, 3);
    }
}
