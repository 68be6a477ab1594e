//! The queue rules for messages of a busy session: how they wait, which of them are removed when there are too many,
//! and the text that the model reads if several get one turn. Pure.
//!
//! **Does not know** lanes, turns, time or the store: the lane applies the results.

mod capacity;
mod config;
mod rules;
mod texts;

pub(crate) use capacity::{Capacity, Position, room};
pub use config::QueueConfig;
pub(crate) use config::{Bounds, MAX_CAP, MAX_DEBOUNCE_MS};
pub(crate) use rules::QueueRules;
pub(crate) use texts::{fits_in, line, notice, one_text};

use std::time::Duration;

/// Maximum length of a message's text in bytes, whatever its channel allows.
pub(crate) const MAX_TEXT_BYTES: usize = 100_000;

/// Retry delay reported with a "busy" refusal.
pub(crate) const BUSY_RETRY: Duration = Duration::from_secs(2);
