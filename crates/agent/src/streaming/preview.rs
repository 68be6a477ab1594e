//! A preview: one message on the platform that shows an answer while it streams. Best effort: an error costs only the
//! preview, and nothing of the run waits for it.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{DeliverError, Partial, Preview, ReasoningShown, ReplyRoute};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use belay_run::live::LiveRun;

/// Minimum length of an answer for a preview, in characters. 30: a readable first line; a shorter text is usually the
/// whole answer.
const FIRST_CHARS: usize = 30;
/// Time limit at the end of a turn for a pending change of a preview, and for its removal. 1 s: a healthy platform
/// answers within a tenth of it, and the end of the run does not wait longer for another one.
const GRACE: Duration = Duration::from_secs(1);
/// Maximum length of the shown end of the reasoning, in characters.
const REASONING_CHARS: usize = 600;

/// State of a preview at the end of its turn.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    /// The platform's id of the message.
    pub(super) message: Option<Arc<str>>,
    /// Whether its content is unknown, because a change may still be in progress. It then cannot become the answer.
    pub(super) unsure: bool,
}

/// Shows the text of a run in a preview.
pub(super) struct Previewer<'a> {
    pub(super) run: &'a LiveRun,
    pub(super) preview: &'a dyn Preview,
    pub(super) route: &'a ReplyRoute,
    /// Minimum time between two changes.
    pub(super) pace: Duration,
    pub(super) reasoning: ReasoningShown,
}

impl Previewer<'_> {
    /// Shows the text of the run until `finish` is cancelled.
    pub(super) async fn show(&self, finish: &CancellationToken) -> Left {
        let mut left = Left::default();
        let mut shown = String::new();
        // A fast answer is sent once, instead of being sent and edited.
        let mut not_before: Option<Instant> = None;
        while !finish.is_cancelled() && !left.unsure {
            let call = self.run.output.call_shown(); // before the text, which then is of this call or a later one
            let text = self.text();
            if text.is_some() {
                not_before.get_or_insert_with(|| Instant::now() + self.pace);
            }
            let first = left.message.is_none();
            let wanted =
                text.filter(|text| *text != shown).filter(|text| !first || text.chars().count() >= FIRST_CHARS);
            let Some(text) = wanted.as_ref().filter(|_| not_before.is_none_or(|at| at <= Instant::now())) else {
                let until = not_before.filter(|_| wanted.is_some());
                tokio::select! {
                    () = self.run.output.changed() => {}
                    () = finish.cancelled() => {}
                    () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {}
                }
                continue;
            };
            let asked = async {
                match &left.message {
                    None => self.preview.begin(self.route, text).await.map(Some),
                    Some(message) => self.preview.change(self.route, message, text).await.map(|()| None),
                }
            };
            let answered = answer(asked, finish).await;
            let mut pause = self.pace;
            match answered {
                Some(Ok(begun)) => {
                    self.run.output.was_seen(call);
                    shown.clone_from(text);
                    left.message = begun.or(left.message);
                }
                Some(Err(DeliverError::Retry { after, .. })) => {
                    pause = pause.max(after.unwrap_or_default());
                }
                Some(Err(error)) => {
                    tracing::debug!(run = %self.run.id, %error, "the preview is given up");
                    left.unsure = true;
                }
                None => left.unsure = true,
            }
            not_before = Some(Instant::now() + pause);
        }
        left
    }

    /// The present text, cut to the maximum length of a message.
    fn text(&self) -> Option<String> {
        let text = text_of(&self.run.output.partial(), self.reasoning)?;
        Some(text.chars().take(self.preview.max_chars()).collect())
    }

    /// Removes the message.
    pub(super) async fn discard(&self, message: &str) {
        if timeout(GRACE, self.preview.discard(self.route, message)).await.is_err() {
            tracing::debug!(run = %self.run.id, "a preview could not be taken away");
        }
    }
}

/// The platform's answer; `None`: none came within the time limit after the end of the turn.
async fn answer<T>(asked: impl Future<Output = T>, finish: &CancellationToken) -> Option<T> {
    tokio::pin!(asked);
    tokio::select! {
        biased; // an answer that has arrived counts, also at the end
        answered = &mut asked => Some(answered),
        () = finish.cancelled() => timeout(GRACE, asked).await.ok(),
    }
}

/// The shown part of an unfinished answer: its text; or, without text and if requested, the end of the reasoning.
fn text_of(partial: &Partial, reasoning: ReasoningShown) -> Option<String> {
    let text = partial.text.trim();
    if !text.is_empty() {
        return Some(text.to_owned());
    }
    let thought = partial.reasoning.trim();
    if reasoning != ReasoningShown::Stream || thought.is_empty() {
        return None;
    }
    let skip = thought.chars().count().saturating_sub(REASONING_CHARS);
    let end: String = thought.chars().skip(skip).collect();
    Some(super::payload::quoted(&end))
}
