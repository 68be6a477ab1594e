//! The hook chain: selects the hooks of a point, calls them in order, and combines their answers.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{
    BoundHook, Clock, EventKind, HookAnswer, HookEvent, HookFailure, HookKind, HookPoint, RunId, SessionKey,
};
use futures_util::FutureExt;
use globset::{Glob, GlobSet, GlobSetBuilder};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::change;
use crate::metrics;

/// Maximum number of observing hooks that run at the same time. Further ones are skipped, with a warning and a count.
const MAX_LOOKING_ON: usize = 256;

/// The subject of an event, besides its data.
#[derive(Clone, Copy, Debug, Default)]
pub struct About<'a> {
    /// The session, if any.
    pub session: Option<&'a SessionKey>,
    /// The run, if any.
    pub run: Option<RunId>,
    /// The tool, at the points of tool calls.
    pub tool: Option<&'a str>,
}

/// Result of hooks that may refuse.
#[derive(Clone, Debug, PartialEq)]
pub enum HookDecision {
    /// Continue, with the data as the hooks changed it.
    Go(Value),
    /// Refused by a hook.
    Refused(HookRefusal),
}

/// A refusal, formatted for the sender: "refused by the hook guard: it is night".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookRefusal {
    /// The hook's name in the configuration.
    pub by: String,
    /// The hook's text, or that it failed.
    pub why: String,
}

impl fmt::Display for HookRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused by the hook {}: {}", self.by, self.why)
    }
}

/// The hooks by point. Owns the tasks of observing hooks; [`HookChain::drain`] ends them.
pub struct HookChain {
    points: HashMap<HookPoint, Vec<Arc<Bound>>>,
    clock: Arc<dyn Clock>,
    room: Arc<Semaphore>,
    looking_on: TaskTracker,
    /// Cancelled when observing hooks are no longer waited for.
    over: CancellationToken,
}

impl HookChain {
    /// A chain of these hooks: higher priorities first, and equal priorities in the given order.
    ///
    /// # Errors
    /// A pattern of tool names is invalid.
    pub fn new(hooks: Vec<BoundHook>, clock: Arc<dyn Clock>) -> Result<Self, globset::Error> {
        let mut points: HashMap<HookPoint, Vec<Arc<Bound>>> = HashMap::new();
        for hook in hooks {
            points.entry(hook.point).or_default().push(Arc::new(Bound::new(hook)?));
        }
        points.values_mut().for_each(|hooks| hooks.sort_by_key(|bound| Reverse(bound.hook.priority)));
        Ok(Self {
            points,
            clock,
            room: Arc::new(Semaphore::new(MAX_LOOKING_ON)),
            looking_on: TaskTracker::new(),
            over: CancellationToken::new(),
        })
    }

    /// Whether a hook is bound to this point. Callers check it before they collect data.
    pub fn is_bound(&self, point: HookPoint) -> bool {
        self.points.contains_key(&point)
    }

    /// Calls the observing hooks of a point without waiting for them. `data` is called only if there are any.
    pub fn observe(&self, point: HookPoint, about: About<'_>, data: impl FnOnce() -> Value) {
        debug_assert_eq!(point.kind(), HookKind::Observe);
        let mut asked = self.asked(point, about.tool).peekable();
        if asked.peek().is_none() {
            return;
        }
        let event = Arc::new(self.event(point, about, data()));
        for bound in asked {
            let Ok(permit) = self.room.clone().try_acquire_owned() else {
                tracing::warn!(
                    hook = bound.name(),
                    point = point.word(),
                    "too many hooks are running; this one is \
                                                                           skipped"
                );
                metrics::hook_called(point, "dropped");
                continue;
            };
            let (bound, event, over) = (bound.clone(), event.clone(), self.over.clone());
            let look_on = async move {
                tokio::select! {
                    biased; // a hook that ended in time is not reported as late
                    _ = bound.ask(point, &event, bound.hook.timeout) => {} // an observing hook changes nothing; `ask` logs a failure
                    () = over.cancelled() => {
                        tracing::warn!(hook = bound.name(), point = point.word(), "a hook did not finish before shutdown");
                        metrics::hook_called(point, "dropped");
                    }
                }
                drop(permit);
            };
            self.looking_on.spawn(look_on.in_current_span());
        }
    }

    /// Lets the hooks of a point change data, each the result of the previous one. Adds their actions to `facts`.
    ///
    /// # Cancel safety
    /// If the future is dropped, the current hook call is dropped, and nothing has changed.
    pub async fn change(&self, point: HookPoint, about: About<'_>, data: Value, facts: &mut Vec<EventKind>) -> Value {
        debug_assert_eq!(point.kind(), HookKind::Change);
        let mut event = self.event(point, about, data);
        for bound in self.asked(point, about.tool) {
            if let Verdict::Refuse(_) = bound.judge(point, &mut event, None, facts).await {
                tracing::warn!(hook = bound.name(), point = point.word(), "this point allows no refusal; ignored");
            }
        }
        event.data
    }

    /// Lets the hooks of a point change data or refuse. The first refusal decides. Adds their actions to `facts`.
    /// `limit`: time limit of all hooks together; `None`: each has its own limit. A late hook counts as failed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the current hook call is dropped, and nothing has been decided.
    pub async fn decide(
        &self,
        point: HookPoint,
        about: About<'_>,
        data: Value,
        limit: Option<Duration>,
        facts: &mut Vec<EventKind>,
    ) -> HookDecision {
        debug_assert_eq!(point.kind(), HookKind::Decide);
        let mut event = self.event(point, about, data);
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        for bound in self.asked(point, about.tool) {
            if let Verdict::Refuse(why) = bound.judge(point, &mut event, until, facts).await {
                facts.push(bound.fact(point, "refused"));
                tracing::info!(hook = bound.name(), point = point.word(), "a hook refuses");
                return HookDecision::Refused(HookRefusal { by: bound.name().to_owned(), why });
            }
        }
        HookDecision::Go(event.data)
    }

    /// Waits for the observing hooks, for at most `limit`, and then drops the ones that still run.
    pub async fn drain(&self, limit: Duration) {
        self.looking_on.close();
        if timeout(limit, self.looking_on.wait()).await.is_err() {
            self.over.cancel();
            self.looking_on.wait().await; // each ends at its next await
        }
    }

    fn asked(&self, point: HookPoint, tool: Option<&str>) -> impl Iterator<Item = &Arc<Bound>> {
        self.points.get(&point).into_iter().flatten().filter(move |bound| bound.is_for(tool))
    }

    fn event(&self, point: HookPoint, about: About<'_>, data: Value) -> HookEvent {
        let session = about.session.cloned();
        HookEvent { hook: point.word(), at: self.clock.now(), session, run_id: about.run, data }
    }
}

/// Answer of one hook.
enum Verdict {
    Go,
    Refuse(String),
}

/// A hook with the patterns of its tools.
struct Bound {
    hook: BoundHook,
    tools: GlobSet,
}

impl Bound {
    fn new(hook: BoundHook) -> Result<Self, globset::Error> {
        let mut tools = GlobSetBuilder::new();
        for pattern in &hook.tools {
            tools.add(Glob::new(pattern)?);
        }
        Ok(Self { tools: tools.build()?, hook })
    }

    fn name(&self) -> &str {
        self.hook.hook.name()
    }

    fn is_for(&self, tool: Option<&str>) -> bool {
        self.tools.is_empty() || tool.is_some_and(|tool| self.tools.is_match(tool))
    }

    /// Calls the hook and applies its changes. `until`: when it counts as late, if that is before its own limit.
    async fn judge(
        &self,
        point: HookPoint,
        event: &mut HookEvent,
        until: Option<Instant>,
        facts: &mut Vec<EventKind>,
    ) -> Verdict {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        match self.ask(point, event, left.unwrap_or(self.hook.timeout).min(self.hook.timeout)).await {
            Some(HookAnswer::Continue) => Verdict::Go,
            Some(HookAnswer::Refuse(why)) => Verdict::Refuse(why),
            Some(HookAnswer::Change(fields)) => {
                let named = fields.len();
                let left_out = change::apply(point, fields, &mut event.data);
                if left_out.len() < named {
                    facts.push(self.fact(point, "changed"));
                }
                for why in left_out {
                    tracing::warn!(hook = self.name(), point = point.word(), why, "a change is ignored");
                }
                Verdict::Go
            }
            None => {
                facts.push(self.fact(point, "failed"));
                match self.hook.on_failure {
                    HookFailure::Open => Verdict::Go,
                    HookFailure::Closed => {
                        Verdict::Refuse("it failed, and nothing may go past it while it does".into())
                    }
                }
            }
        }
    }

    fn fact(&self, point: HookPoint, outcome: &str) -> EventKind {
        EventKind::Hook { point: point.word().into(), name: self.name().to_owned(), outcome: outcome.into() }
    }

    /// Calls the hook within a time limit. `None`: it failed, timed out or panicked, as the log says.
    async fn ask(&self, point: HookPoint, event: &HookEvent, limit: Duration) -> Option<HookAnswer> {
        let call = AssertUnwindSafe(async { self.hook.hook.call(event).await }).catch_unwind();
        let (outcome, why) = match timeout(limit, call).await {
            Ok(Ok(Ok(answer))) => {
                metrics::hook_called(point, word(&answer));
                return Some(answer);
            }
            Ok(Ok(Err(why))) => ("failed", why),
            Ok(Err(_panic)) => ("crashed", "it panicked".to_owned()),
            Err(_elapsed) => ("timeout", format!("no answer within {limit:?}")),
        };
        tracing::warn!(hook = self.name(), point = point.word(), detail = why, "a hook failed");
        metrics::hook_called(point, outcome);
        None
    }
}

fn word(answer: &HookAnswer) -> &'static str {
    match answer {
        HookAnswer::Continue => "continue",
        HookAnswer::Change(_) => "change",
        HookAnswer::Refuse(_) => "refuse",
    }
}
