//! Tries a failed call again, within the one budget of requests that a logical call has.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backon::{BackoffBuilder, ExponentialBuilder};
use belay_protocol::{DeltaSink, Heard, ModelError, ModelInfo, ModelProvider, ModelReply, ModelRequest, Retry};
use tracing::{debug, warn};

/// First pause between two requests, before jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(400);

/// Longest sum of our own pauses. 8 s: what a person waits without asking whether anyone is there.
const PAUSES_SUM_MAX: Duration = Duration::from_secs(8);

/// Longest delay that a provider may ask for. Beyond it, telling the person at once is better than waiting.
const PROVIDER_DELAY_MAX: Duration = Duration::from_secs(60);

/// A provider whose failed calls are sent again, up to [`ModelRequest::max_attempts`] requests in all, with growing
/// pauses; where the provider asks for a longer one, with that. Never again: what [`ModelError::retry`] forbids, and an
/// answer of which somebody has heard a piece.
pub struct Retrying {
    inner: Arc<dyn ModelProvider>,
}

impl Retrying {
    /// Wraps a provider.
    pub fn new(inner: Arc<dyn ModelProvider>) -> Self {
        Self { inner }
    }
}

#[async_trait]
impl ModelProvider for Retrying {
    fn info(&self) -> &ModelInfo {
        self.inner.info()
    }

    fn models(&self) -> Vec<String> {
        self.inner.models()
    }

    async fn call(&self, request: ModelRequest<'_>, sink: &mut dyn DeltaSink) -> Result<ModelReply, ModelError> {
        let mut sink = Listening { inner: sink, heard: false };
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(FIRST_PAUSE)
            .with_total_delay(Some(PAUSES_SUM_MAX))
            .with_jitter()
            .without_max_times()
            .build();
        let mut attempts = 0_u32;
        let mut abandoned = 0_u32;
        loop {
            // One request each: whatever is inside has no budget of its own.
            let once = ModelRequest { max_attempts: 1, ..request };
            let mut error = match self.inner.call(once, &mut sink).await {
                Ok(mut reply) => {
                    reply.attempts = attempts.saturating_add(reply.attempts.max(1));
                    reply.abandoned = reply.abandoned.saturating_add(abandoned);
                    return Ok(reply);
                }
                Err(error) => error,
            };
            attempts = attempts.saturating_add(error.attempts.max(1));
            abandoned = abandoned.saturating_add(error.abandoned);
            error.attempts = attempts;
            error.abandoned = abandoned;
            error.heard |= sink.heard;
            let pause = if attempts < request.max_attempts { pause_before_next(&error, &mut pauses) } else { None };
            let Some(pause) = pause else {
                warn!(kind = ?error.kind, attempts, heard = error.heard, detail = %error.detail, "model call failed");
                return Err(error);
            };
            debug!(kind = ?error.kind, attempts, pause_ms = pause.as_millis() as u64, "model call is tried again");
            tokio::time::sleep(pause).await;
        }
    }
}

/// How long to wait before the next request; `None` when there is to be none.
fn pause_before_next(error: &ModelError, pauses: &mut impl Iterator<Item = Duration>) -> Option<Duration> {
    match error.retry() {
        Retry::No => None,
        Retry::Now => pauses.next(),
        Retry::After(delay) if delay > PROVIDER_DELAY_MAX => None,
        Retry::After(delay) => pauses.next().map(|pause| pause.max(delay)),
    }
}

/// Notes whether anybody received a piece.
struct Listening<'a> {
    inner: &'a mut dyn DeltaSink,
    heard: bool,
}

impl Listening<'_> {
    fn note(&mut self, heard: Heard) -> Heard {
        self.heard |= heard == Heard::Somebody;
        heard
    }
}

impl DeltaSink for Listening<'_> {
    fn text(&mut self, piece: &str) -> Heard {
        let heard = self.inner.text(piece);
        self.note(heard)
    }

    fn reasoning(&mut self, piece: &str) -> Heard {
        let heard = self.inner.reasoning(piece);
        self.note(heard)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use belay_protocol::ModelErrorKind::{self, *};
    use belay_protocol::{ModelErrorKind as Kind, NoSink};
    use tokio::time::Instant;

    use super::*;
    use crate::testing::{Asked, Audience, info};

    /// Says a piece, then fails with each kind in turn, then answers.
    struct Failing {
        info: ModelInfo,
        kinds: Mutex<VecDeque<ModelErrorKind>>,
    }

    #[async_trait]
    impl ModelProvider for Failing {
        fn info(&self) -> &ModelInfo {
            &self.info
        }

        async fn call(&self, request: ModelRequest<'_>, sink: &mut dyn DeltaSink) -> Result<ModelReply, ModelError> {
            assert_eq!(request.max_attempts, 1);
            sink.text("piece");
            match self.kinds.lock().unwrap().pop_front() {
                Some(kind) => Err(ModelError { abandoned: u32::from(kind == Network), ..ModelError::new(kind, "no") }),
                None => Ok(ModelReply { attempts: 1, ..ModelReply::default() }),
            }
        }
    }

    async fn call(kinds: &[Kind], budget: u32, sink: &mut dyn DeltaSink) -> (Result<u32, ModelError>, Duration, usize) {
        let inner = Arc::new(Failing { info: info(), kinds: Mutex::new(kinds.iter().copied().collect()) });
        let asked = Asked::new("", false, vec![]);
        let start = Instant::now();
        let request = ModelRequest { max_attempts: budget, ..asked.request() };
        let result = Retrying::new(inner.clone()).call(request, sink).await.map(|reply| reply.attempts);
        let left = inner.kinds.lock().unwrap().len();
        (result, start.elapsed(), left)
    }

    const BUSY: Kind = Overloaded { retry_after: None };

    fn limited(seconds: u64) -> Kind {
        RateLimited { retry_after: Some(Duration::from_secs(seconds)) }
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_pass_is_tried_again_within_the_budget() {
        for (kinds, budget, attempts) in [
            (vec![], 3, Ok(1)),
            (vec![BUSY, Network], 3, Ok(3)),
            (vec![BUSY, Network, limited(1)], 3, Err((3, limited(1)))),
            (vec![Network], 1, Err((1, Network))),
            (vec![Auth], 3, Err((1, Auth))),
            (vec![Network, BadRequest], 3, Err((2, BadRequest))),
            (vec![ContextTooLong], 3, Err((1, ContextTooLong))),
            (vec![limited(61)], 3, Err((1, limited(61)))),
        ] {
            let (result, took, _) = call(&kinds, budget, &mut NoSink).await;
            assert_eq!(result.map_err(|error| (error.attempts, error.kind)), attempts, "{kinds:?}");
            assert!(took <= Duration::from_secs(4), "{kinds:?} took {took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_tried_again_once_a_piece_was_heard() {
        let (result, _, left) = call(&[Network, Network], 3, &mut Audience::default()).await;
        let error = result.unwrap_err();
        assert_eq!((error.attempts, error.heard, error.abandoned, left), (1, true, 1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_providers_delay_lengthens_a_pause() {
        let (result, took, _) = call(&[limited(60)], 3, &mut NoSink).await;
        assert_eq!((result.unwrap(), took.as_secs()), (2, 60));
        let (result, took, _) = call(&[limited(0)], 3, &mut NoSink).await;
        assert!(result.unwrap() == 2 && took >= FIRST_PAUSE && took <= FIRST_PAUSE * 2, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn our_own_pauses_never_sum_to_more_than_their_bound() {
        for _ in 0..20 {
            let (result, took, _) = call(&[Network; 100], 100, &mut NoSink).await;
            assert!(result.is_err() && took > Duration::from_secs(1) && took <= PAUSES_SUM_MAX, "{took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_attempt_that_had_begun_is_not_forgotten() {
        let (result, ..) = call(&[Network, Auth], 3, &mut NoSink).await;
        assert!(result.unwrap_err().abandoned > 0);
    }
}
