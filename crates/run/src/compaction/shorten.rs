//! One shortening, from the decision what leaves to the context that is left: notes, then the account. Nothing is changed
//! here: whoever asks for it stores what comes of it, or drops it.

use belay_agent_loop::LoopContext;
use belay_protocol::{Durability, EventKind};

use super::cut::{Compacted, Cut, tokens};
use super::{ask, flush};
use crate::core::RunCore;
use crate::estimate::Calibration;

/// Characters of an account by rule: a half of the context's tokens, which is an eighth of it, between these.
const RULE_CHARS: (u64, u64) = (400, 4_000);

/// How a context is to be shortened.
#[derive(Clone, Copy, Debug)]
pub struct How<'a> {
    /// What is known of the provider's way of counting.
    pub calibration: Calibration,
    /// Whether a model may be asked.
    pub by_model: bool,
    /// Whether notes may be made before.
    pub notes: bool,
    /// What a person wants to be kept in mind.
    pub wish: Option<&'a str>,
}

/// Who has written an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummarySource {
    /// A model.
    Model,
    /// A rule, since no model could, or should.
    Rule,
}

impl SummarySource {
    /// The word in facts.
    pub fn word(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Rule => "extract",
        }
    }
}

/// A context that was shortened, and what that has won.
pub struct Shortened {
    /// What is left.
    pub context: Compacted,
    /// Who tells of what has left.
    pub by: SummarySource,
    /// Its tokens before, as the provider would count them.
    pub before: u64,
    /// And after.
    pub after: u64,
    gains: bool,
}

impl Shortened {
    fn new(cut: &Cut, context: Compacted, by: SummarySource, calibration: Calibration) -> Self {
        let [before, after] = [cut.messages(), &context.messages].map(|messages| calibration.counted(tokens(messages)));
        Self { gains: context.gains(cut), context, by, before, after }
    }

    /// Whether it is shorter than it was.
    pub fn gains(&self) -> bool {
        self.gains
    }

    /// The fact that it has taken the place of the longer one.
    pub fn fact(&self, will_retry: bool) -> EventKind {
        let Self { context, by, before, after, .. } = self;
        let (by, messages) = (by.word().into(), context.dropped);
        EventKind::Compacted { messages, before: *before, after: *after, source: by, will_retry }
    }
}

/// Carries a cut out. Always comes to an account: where no model gives one that can be used, a rule does.
///
/// # Cancel safety
/// Dropped midway, or told to stop, nothing has changed; some notes may have been made.
pub async fn shorten(core: &RunCore, context: &LoopContext, cut: &Cut, how: How<'_>) -> Shortened {
    let (config, info) = (&core.services.compaction, core.services.model.info());
    let account = if core.child { cut.account().of_child() } else { cut.account() };
    let step = context.state.iteration;
    if how.by_model && !info.rehearsal {
        // Runs of their own: they have the time that is set for them, and nothing of theirs enters the conversation.
        let child = || core.seed(context).grow(config.timeout());
        if how.notes && config.memory_flush {
            flush::notes(child(), &account, cut.whole_turns(), how.calibration, step).await;
        }
        let mut asking = child();
        let written = ask::account(&mut asking, config, &account, how.calibration, how.wish, step).await;
        if let Err(error) = asking.journal.write(context, Durability::Relaxed).await {
            tracing::warn!(run = %core.live.id, %error, "the call for an account is not among the facts of the run");
        }
        if let Some(text) = written {
            let shorter = cut.close(account.by_model(&text));
            if shorter.gains(cut) {
                return Shortened::new(cut, shorter, SummarySource::Model, how.calibration);
            }
        }
    }
    let most = (info.context_tokens / 2).clamp(RULE_CHARS.0, RULE_CHARS.1);
    Shortened::new(cut, cut.close(account.by_rule(most as usize)), SummarySource::Rule, how.calibration)
}
