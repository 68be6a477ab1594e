//! The chain: who is asked at a point, in which order, and what comes of it.

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
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::change;
use crate::metrics;

/// Hooks that look on at the same time. Then: the next are not told, with a warning and a count.
const MAX_LOOKING_ON: usize = 256;

/// What an event is about, besides its data.
#[derive(Clone, Copy, Debug, Default)]
pub struct About<'a> {
    /// The session, where there is one.
    pub session: Option<&'a SessionKey>,
    /// The run, where there is one.
    pub run: Option<RunId>,
    /// The tool, at the points of tool calls.
    pub tool: Option<&'a str>,
}

/// What hooks that may refuse have decided.
#[derive(Clone, Debug, PartialEq)]
pub enum HookDecision {
    /// Go on, with the data as they have left it.
    Go(Value),
    /// Do not.
    Refused(HookRefusal),
}

/// A refusal, in words for whoever asked: "refused by the hook guard: it is night".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookRefusal {
    /// The hook's name in the configuration.
    pub by: String,
    /// Its own words, or that it failed.
    pub why: String,
}

impl fmt::Display for HookRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused by the hook {}: {}", self.by, self.why)
    }
}

/// The hooks at their points. Owns the tasks of those that look on; [`HookChain::drain`] ends them.
pub struct HookChain {
    points: HashMap<HookPoint, Vec<Arc<Bound>>>,
    clock: Arc<dyn Clock>,
    room: Arc<Semaphore>,
    looking_on: TaskTracker,
    /// Cancelled when nobody waits for those any more.
    over: CancellationToken,
}

impl HookChain {
    /// A chain of these hooks: higher priorities first, and among equals the order in which they are given.
    ///
    /// # Errors
    /// A pattern of tool names cannot be read.
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

    /// Whether any hook is bound to a point: whoever has to gather data for it looks here first.
    pub fn is_bound(&self, point: HookPoint) -> bool {
        self.points.contains_key(&point)
    }

    /// Tells the hooks that look on at a point, and waits for none of them. The data is made only if there are any.
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
                    biased; // what has ended before the limit is not called late
                    _ = bound.ask(point, &event) => {} // nothing can be changed here; a failure is in the log
                    () = over.cancelled() => {
                        tracing::warn!(hook = bound.name(), point = point.word(), "a hook was not done in time");
                        metrics::hook_called(point, "dropped");
                    }
                }
                drop(permit);
            };
            self.looking_on.spawn(look_on.in_current_span());
        }
    }

    /// Has the hooks of a point change data, each what the one before has made of it. Adds what they did to `facts`.
    ///
    /// # Cancel safety
    /// Dropped, the hook at work is dropped, and nothing has changed.
    pub async fn change(&self, point: HookPoint, about: About<'_>, data: Value, facts: &mut Vec<EventKind>) -> Value {
        debug_assert_eq!(point.kind(), HookKind::Change);
        let mut event = self.event(point, about, data);
        for bound in self.asked(point, about.tool) {
            if let Verdict::Refuse(_) = bound.judge(point, &mut event, facts).await {
                tracing::warn!(hook = bound.name(), point = point.word(), "nothing can be refused here; it goes on");
            }
        }
        event.data
    }

    /// Has the hooks of a point change data or refuse. The first refusal is the last word. Adds what they did to `facts`.
    ///
    /// # Cancel safety
    /// Dropped, the hook at work is dropped, and nothing has been decided.
    pub async fn decide(
        &self,
        point: HookPoint,
        about: About<'_>,
        data: Value,
        facts: &mut Vec<EventKind>,
    ) -> HookDecision {
        debug_assert_eq!(point.kind(), HookKind::Decide);
        let mut event = self.event(point, about, data);
        for bound in self.asked(point, about.tool) {
            if let Verdict::Refuse(why) = bound.judge(point, &mut event, facts).await {
                facts.push(bound.fact(point, "refused"));
                tracing::info!(hook = bound.name(), point = point.word(), "a hook refuses");
                return HookDecision::Refused(HookRefusal { by: bound.name().to_owned(), why });
            }
        }
        HookDecision::Go(event.data)
    }

    /// Waits for the hooks that look on, for at most this long; what is at work then is dropped.
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

/// What comes of asking one hook.
enum Verdict {
    Go,
    Refuse(String),
}

/// A hook with its tools.
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

    /// Asks, and makes the changes it asks for.
    async fn judge(&self, point: HookPoint, event: &mut HookEvent, facts: &mut Vec<EventKind>) -> Verdict {
        match self.ask(point, event).await {
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

    /// Asks within the hook's time. `None`: it failed, took too long or panicked; the log says which.
    async fn ask(&self, point: HookPoint, event: &HookEvent) -> Option<HookAnswer> {
        let call = AssertUnwindSafe(async { self.hook.hook.call(event).await }).catch_unwind();
        let (outcome, why) = match timeout(self.hook.timeout, call).await {
            Ok(Ok(Ok(answer))) => {
                metrics::hook_called(point, word(&answer));
                return Some(answer);
            }
            Ok(Ok(Err(why))) => ("failed", why),
            Ok(Err(_panic)) => ("crashed", "it panicked".to_owned()),
            Err(_elapsed) => ("timeout", format!("no answer within {:?}", self.hook.timeout)),
        };
        tracing::warn!(hook = self.name(), point = point.word(), why, "a hook failed");
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
