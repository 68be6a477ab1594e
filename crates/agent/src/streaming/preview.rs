//! A preview: one message on the platform that shows an answer while it comes. Best effort: what goes wrong costs the preview
//! and nothing else, and nothing of the run waits for it.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{DeliverError, Partial, Preview, ReasoningShown, ReplyRoute};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use belay_run::live::LiveRun;

/// Characters of an answer before which nothing is shown. 30: a first line that can be read; what is shorter is usually the
/// whole answer.
const FIRST_CHARS: usize = 30;
/// How long the platform gets, once the answer is there, to take the change that is under way, and to take a message away.
/// 1 s: a platform that is well answers within a tenth of it, and the end of the run waits no longer for one that is not.
const GRACE: Duration = Duration::from_secs(1);
/// Characters of reasoning that are shown: its end.
const REASONING_CHARS: usize = 600;

/// What is left of a preview at the end of its turn.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    /// The platform's name of the message.
    pub(super) message: Option<Arc<str>>,
    /// What it shows is not known: a change of it may still be under way. It cannot become the answer.
    pub(super) unsure: bool,
}

/// Shows what a run says.
pub(super) struct Previewer<'a> {
    pub(super) run: &'a LiveRun,
    pub(super) preview: &'a dyn Preview,
    pub(super) route: &'a ReplyRoute,
    /// Shortest time between two changes.
    pub(super) pace: Duration,
    pub(super) reasoning: ReasoningShown,
}

impl Previewer<'_> {
    /// Shows what the run says until told to finish.
    pub(super) async fn show(&self, finish: &CancellationToken) -> Left {
        let mut left = Left::default();
        let mut shown = String::new();
        // An answer that is there within a moment is sent once, and not sent and edited.
        let mut not_before: Option<Instant> = None;
        while !finish.is_cancelled() && !left.unsure {
            let call = self.run.output.call_shown(); // before the text: it is of this call, or of a later one
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

    /// What there is to show now, as much as a message shows.
    fn text(&self) -> Option<String> {
        let text = text_of(&self.run.output.partial(), self.reasoning)?;
        Some(text.chars().take(self.preview.max_chars()).collect())
    }

    /// Takes the message away.
    pub(super) async fn discard(&self, message: &str) {
        if timeout(GRACE, self.preview.discard(self.route, message)).await.is_err() {
            tracing::debug!(run = %self.run.id, "a preview could not be taken away");
        }
    }
}

/// What the platform answers; `None`: nothing within the grace after the end of the turn.
async fn answer<T>(asked: impl Future<Output = T>, finish: &CancellationToken) -> Option<T> {
    tokio::pin!(asked);
    tokio::select! {
        biased; // what has been answered is known, also at the end
        answered = &mut asked => Some(answered),
        () = finish.cancelled() => timeout(GRACE, asked).await.ok(),
    }
}

/// What is shown of an answer on its way: its text, and before there is any the end of the reasoning, where that is asked
/// for.
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
