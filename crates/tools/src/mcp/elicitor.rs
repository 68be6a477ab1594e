//! Asks the person of a call what its server wants to know. No model answers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use belay_protocol::{FormAnswer, PersonPort};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::debug;

use crate::mcp::elicitation;

/// Most questions of one call. 10: more is a server that asks without an end.
const MAX_QUESTIONS: u32 = 10;

/// The person behind one call.
pub(super) struct Elicitor {
    server: String,
    pub(super) tool: String,
    person: PersonPort,
    /// Cancelled when the call is over.
    cancel: CancellationToken,
    asked: AtomicU32,
    waits: Mutex<Waits>,
    /// Why a question of the server was not asked.
    unasked: Mutex<Option<String>>,
}

/// The time in which the call waits for its person.
#[derive(Default)]
struct Waits {
    open: u32,
    since: Option<Instant>,
    over: Duration,
}

/// A wait. Dropping it ends the wait.
struct OpenWait<'a>(&'a Elicitor);

impl Elicitor {
    pub(super) fn new(server: &str, tool: &str, person: PersonPort, cancel: CancellationToken) -> Self {
        let (asked, waits, unasked) = (AtomicU32::new(0), Mutex::default(), Mutex::default());
        // The call may be over before its run is cancelled.
        let cancel = cancel.child_token();
        Self { server: server.to_owned(), tool: tool.to_owned(), person, cancel, asked, waits, unasked }
    }

    /// The same of a call that has asked so many questions before a restart.
    pub(super) fn having_asked(self, asked: u32) -> Self {
        Self { asked: AtomicU32::new(asked), ..self }
    }

    /// The number of questions so far.
    pub(super) fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }

    /// The call is over when the value is dropped: its open questions are withdrawn, and it asks no more.
    pub(super) fn until_dropped(&self) -> DropGuard {
        self.cancel.clone().drop_guard()
    }

    /// Whether the call is over.
    pub(super) fn is_over(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Whether a question of the call waits for its person.
    pub(super) fn is_asking(&self) -> bool {
        self.waits().open > 0
    }

    /// Asks for what the parameters of `elicitation/create` describe. Returns the result for the server. `stop` ends the
    /// question, and so does the end of the call.
    ///
    /// # Errors
    /// Why it was not asked, as the end of a sentence.
    ///
    /// # Cancel safety
    /// If the future is dropped, the question is withdrawn.
    pub(super) async fn answer(&self, params: &Value, stop: &CancellationToken) -> Result<Value, String> {
        let nth = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        if nth > MAX_QUESTIONS {
            return Err(self.note(format!("it has asked {MAX_QUESTIONS} questions in this call, which is the limit")));
        }
        let form = elicitation::form(&self.server, params).map_err(|why| self.note(why))?;
        let is_url = form.url.is_some();
        let answer = {
            let _wait = self.wait();
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => FormAnswer::Stopped,
                answer = self.person.fill_in(form, nth, stop) => answer,
            }
        };
        debug!(server = self.server, tool = self.tool, nth, "a person was asked for an mcp server");
        match answer {
            FormAnswer::Given(_) if is_url => Ok(json!({ "action": "accept" })),
            FormAnswer::Given(values) => Ok(json!({ "action": "accept", "content": values })),
            FormAnswer::Declined => Ok(json!({ "action": "decline" })),
            FormAnswer::Expired | FormAnswer::Stopped => Ok(json!({ "action": "cancel" })),
            FormAnswer::Unasked(why) => Err(self.note(why)),
        }
    }

    /// Why the last question that was not asked was not.
    pub(super) fn unasked(&self) -> Option<String> {
        self.unasked.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Returns after this time, in which waits for the person do not count.
    pub(super) async fn passed(&self, limit: Duration) {
        let begun = Instant::now();
        loop {
            let (waited, is_open) = {
                let waits = self.waits();
                (waits.over + waits.since.map_or(Duration::ZERO, |since| since.elapsed()), waits.open > 0)
            };
            let left = (limit + waited).saturating_sub(begun.elapsed());
            if left.is_zero() && !is_open {
                return;
            }
            // A wait may begin at any time, and then this looks once more.
            sleep(left.max(Duration::from_millis(if is_open { 200 } else { 1 }))).await;
        }
    }

    fn note(&self, why: String) -> String {
        *self.unasked.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(why.clone());
        why
    }

    fn wait(&self) -> OpenWait<'_> {
        let mut waits = self.waits();
        waits.since.get_or_insert_with(Instant::now);
        waits.open += 1;
        drop(waits);
        OpenWait(self)
    }

    fn waits(&self) -> std::sync::MutexGuard<'_, Waits> {
        // Plain numbers: a panic leaves at worst a wrong time.
        self.waits.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for OpenWait<'_> {
    fn drop(&mut self) {
        let mut waits = self.0.waits();
        waits.open -= 1;
        if waits.open == 0 {
            let waited = waits.since.take().map_or(Duration::ZERO, |since| since.elapsed());
            waits.over += waited;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use async_trait::async_trait;
    use belay_protocol::{AskPerson, Form};
    use tokio::sync::Notify;

    use super::*;

    /// A person who never answers.
    struct Silent(Arc<Notify>);

    #[async_trait]
    impl AskPerson for Silent {
        async fn fill_in(&self, _: Form, _: u32, _: &CancellationToken) -> FormAnswer {
            self.0.notify_one();
            std::future::pending().await
        }
    }

    #[tokio::test]
    async fn the_end_of_a_call_withdraws_its_question() {
        let asked = Arc::new(Notify::new());
        let run = CancellationToken::new();
        let elicitor = Elicitor::new("s", "t", PersonPort::to(Arc::new(Silent(asked.clone()))), run.clone());
        let (call, stop) = (elicitor.until_dropped(), CancellationToken::new());
        let params = json!({ "message": "Go?", "requestedSchema": { "type": "object", "properties": {} } });
        let end = async {
            asked.notified().await;
            assert!(!elicitor.is_over());
            drop(call);
        };
        let (answer, ()) = tokio::join!(elicitor.answer(&params, &stop), end);
        assert_eq!(answer.unwrap(), json!({ "action": "cancel" }));
        assert!(elicitor.is_over() && !run.is_cancelled(), "the run goes on");
    }
}
