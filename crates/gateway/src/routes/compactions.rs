//! The compactions of a run, for its recording. Its messages do not tell them.

use belay_protocol::{Event, EventKind, EventLog, EventQuery, RunId, Seq, StoreError};

/// Facts per read.
const PAGE: u32 = 256;

/// Most pages that are read of a run. What comes behind them is not told: 65,536 facts are some ten thousand calls.
const PAGES_MAX: usize = 256;

/// The compactions of a run, each behind the fact of the newest call that had ended, if there was one.
///
/// # Errors
/// The log cannot be read.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub(crate) async fn of_run(log: &dyn EventLog, run: RunId) -> Result<Vec<Event>, StoreError> {
    let (mut found, mut ended, mut after) = (Vec::new(), None, Seq(0));
    for _ in 0..PAGES_MAX {
        let facts = log.read(EventQuery { after, run: Some(run), session: None, limit: PAGE }).await?;
        let Some(last) = facts.last().map(|fact| fact.seq) else { break };
        let is_full = facts.len() >= PAGE as usize;
        for fact in facts {
            match fact.kind {
                EventKind::ToolFinished { .. } => ended = Some(fact),
                EventKind::Compacted { .. } => found.extend(ended.take().into_iter().chain([fact])),
                _ => {}
            }
        }
        after = last;
        if !is_full {
            break;
        }
    }
    Ok(found)
}
