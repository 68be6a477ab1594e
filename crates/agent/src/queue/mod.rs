//! How messages wait that meet a busy session: by which rules, which of them give way when there are too many, and what
//! the model reads of several that get one turn. Pure.
//!
//! **Does not know** lanes, turns, time or the store: the lane asks, and carries out.

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

/// Longest text of a message in bytes, whatever its channel allows.
pub(crate) const MAX_TEXT_BYTES: usize = 100_000;

/// What a refused message is told to wait.
pub(crate) const BUSY_RETRY: Duration = Duration::from_secs(2);
