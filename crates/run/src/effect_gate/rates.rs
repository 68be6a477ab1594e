//! Limits how often a tool may be called in one conversation.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use belay_protocol::{SessionKey, ToolSet};
use governor::clock::{Clock, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};

type Limiter = RateLimiter<
    SessionKey,
    HashMapStateStore<SessionKey>,
    MonotonicClock,
    NoOpMiddleware<<MonotonicClock as Clock>::Instant>,
>;

/// Number of conversations that a limiter remembers. Above it, conversations with a full quota are removed.
const REMEMBERED: usize = 1024;

/// The rate limiters of all tools that declare a rate.
pub(crate) struct Rates {
    limiters: HashMap<String, Limiter>,
}

impl Rates {
    /// Limiters for these tools.
    pub(super) fn of(tools: &ToolSet) -> Self {
        let limited = tools.iter().filter_map(|tool| Some((tool.spec().name.clone(), tool.spec().rate?)));
        let limiters = limited.filter_map(|(name, rate)| {
            let calls = NonZeroU32::new(rate.calls)?;
            // A burst may use the whole quota at once. After that, one call per `rate.per / calls`.
            let quota = Quota::with_period(rate.per / calls.get())?.allow_burst(calls);
            Some((name, RateLimiter::new(quota, HashMapStateStore::default(), MonotonicClock)))
        });
        Self { limiters: limiters.collect() }
    }

    /// Counts a call that is about to begin.
    ///
    /// # Errors
    /// The time until the next call is allowed.
    pub(super) fn admit(&self, tool: &str, session: &SessionKey) -> Result<(), Duration> {
        let Some(limiter) = self.limiters.get(tool) else { return Ok(()) };
        if limiter.len() > REMEMBERED {
            limiter.retain_recent();
        }
        limiter.check_key(session).map_err(|until| until.wait_time_from(MonotonicClock.now()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use belay_protocol::{Rate, Tool, ToolContext, ToolOutput, ToolSpec};
    use serde_json::{Map, Value, json};

    use super::*;

    struct Bell(ToolSpec);

    #[async_trait]
    impl Tool for Bell {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        async fn call(&self, _: &Map<String, Value>, _: &ToolContext) -> ToolOutput {
            Ok("rang".into())
        }
    }

    #[test]
    fn each_conversation_has_its_own_calls_in_the_span() {
        let rate = Some(Rate { calls: 2, per: Duration::from_secs(3600) });
        let bell = Bell(ToolSpec { rate, ..ToolSpec::new("bell", "rings", json!({})) });
        let rates = Rates::of(&ToolSet::new(vec![Arc::new(bell)]));
        let (here, there) = (SessionKey::new("here"), SessionKey::new("there"));
        assert_eq!(rates.admit("bell", &here), Ok(()));
        assert_eq!(rates.admit("bell", &here), Ok(()));
        let wait = rates.admit("bell", &here).expect_err("both calls are used");
        assert!(wait > Duration::from_secs(600) && wait <= Duration::from_secs(1800), "{wait:?}");
        assert_eq!(rates.admit("bell", &there), Ok(()));
        assert_eq!(rates.admit("whistle", &here), Ok(()), "no rate, no limit");
    }
}
