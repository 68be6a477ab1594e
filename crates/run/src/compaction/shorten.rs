//! One compaction, from the selected cut to the shortened context: first notes, then the summary. This module stores
//! nothing: the caller stores the result or drops it.

use belay_agent_loop::LoopContext;
use belay_protocol::{Durability, EventKind};

use super::account::Account;
use super::cut::{Compacted, Cut, tokens};
use super::{ask, flush};
use crate::core::RunCore;
use crate::estimate::Calibration;

/// Limits of a summary by rule, in characters. Its length is half the number of the context's tokens, about an eighth
/// of the context, within these limits.
const RULE_CHARS: (u64, u64) = (400, 4_000);

/// Options of a compaction.
#[derive(Clone, Copy, Debug)]
pub struct How<'a> {
    /// Factor between the local estimate and the provider's token count.
    pub calibration: Calibration,
    /// Whether a model may be asked.
    pub by_model: bool,
    /// Whether notes may be saved first.
    pub notes: bool,
    /// A person's request about what the summary should keep.
    pub wish: Option<&'a str>,
}

/// Author of a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummarySource {
    /// A model.
    Model,
    /// A rule, because no model could write it or should be asked.
    Rule,
}

impl SummarySource {
    /// The word in events.
    pub fn word(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Rule => "extract",
        }
    }
}

/// A shortened context, with its size before and after.
pub struct Shortened {
    /// The new context.
    pub context: Compacted,
    /// Author of the summary.
    pub by: SummarySource,
    /// Tokens before, as the provider would count them.
    pub before: u64,
    /// Tokens after, as the provider would count them.
    pub after: u64,
    gains: bool,
}

impl Shortened {
    fn new(cut: &Cut, context: Compacted, by: SummarySource, calibration: Calibration) -> Self {
        let [before, after] = [cut.messages(), &context.messages].map(|messages| calibration.counted(tokens(messages)));
        Self { gains: context.gains(cut), context, by, before, after }
    }

    /// Whether the context is shorter than before.
    pub fn gains(&self) -> bool {
        self.gains
    }

    /// The event that the shortened context replaces the longer one.
    pub fn fact(&self, will_retry: bool) -> EventKind {
        let Self { context, by, before, after, .. } = self;
        let (by, messages) = (by.word().into(), context.dropped);
        EventKind::Compacted { messages, before: *before, after: *after, source: by, will_retry }
    }
}

/// Why the turn that saves notes before a compaction cannot ask a person.
const NO_PERSON: &str = "a compaction waits for nobody";

/// Carries out a cut. It always produces a summary: if no model gives a usable one, a rule does.
///
/// # Cancel safety
/// If the future is dropped or stopped, the context is unchanged. Some notes may have been saved.
pub async fn shorten(core: &RunCore, context: &LoopContext, cut: &Cut, how: How<'_>) -> Shortened {
    let (config, info) = (&core.services.compaction, core.services.model.info());
    let account = if core.child { cut.account().of_child() } else { cut.account() };
    if how.by_model && !info.rehearsal {
        if how.notes && config.memory_flush {
            let mut noting = core.seed(context).grow(config.timeout());
            noting.may_ask = Err(NO_PERSON);
            flush::notes(noting, &account, cut.whole_turns(), how.calibration, context.state.iteration).await;
        }
        if let Some(text) = written(core, context, &account, how).await {
            let shorter = cut.close(account.by_model(&text));
            if shorter.gains(cut) {
                return Shortened::new(cut, shorter, SummarySource::Model, how.calibration);
            }
        }
    }
    let most = (info.context_tokens / 2).clamp(RULE_CHARS.0, RULE_CHARS.1);
    Shortened::new(cut, cut.close(account.by_rule(most as usize)), SummarySource::Rule, how.calibration)
}

/// A summary of the selected messages by a model, for a person. It replaces nothing. `None`: no model gave a usable one.
///
/// # Cancel safety
/// If the future is dropped, nothing has changed.
pub async fn summarize(core: &RunCore, context: &LoopContext, cut: &Cut, calibration: Calibration) -> Option<String> {
    let how = How { calibration, by_model: true, notes: false, wish: None };
    written(core, context, &cut.account(), how).await
}

/// A summary by a model. `None`: it gave no usable one. It is a child run: it has its own time limit, and none of its
/// messages enters the conversation.
async fn written(core: &RunCore, context: &LoopContext, account: &Account<'_>, how: How<'_>) -> Option<String> {
    let config = &core.services.compaction;
    let mut asking = core.seed(context).grow(config.timeout());
    let text = ask::account(&mut asking, config, account, how.calibration, how.wish, context.state.iteration).await;
    if let Err(error) = asking.journal.write(context, Durability::Relaxed).await {
        crate::log_failure!(warn, error, %error, run = %core.live.id, "the events of the summary call were not stored");
    }
    text
}
