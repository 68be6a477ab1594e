//! Compaction: replaces older messages of a context that is too long by a summary.
//!
//! **For**: runs (before a call that would not fit, and after one that did not) and `/compact`. A rule in [`cut`]
//! selects the messages to remove. A separate model call writes the summary in a form that is checked; if no model can,
//! a rule writes it. Before that the model may save notes. The originals stay in the store.
//!
//! **Does not know**: when a turn ends, who asked for `/compact`, or how anything is stored.
//!
//! The system prompt is not part of the context; a pinned summary is its first message. These are never removed: the
//! user's messages of the running turn, open calls and whatever waits for an answer, instructions that a client has
//! sent, and the mark of untrusted content.
//!
//! Reading order: [`cut`] → [`account`] → [`identifiers`] and [`transcript`] → [`summary`] → `ask` → `flush` →
//! `shorten` → `shortener`, and [`oversized`] as the last resort.

pub mod account;
mod ask;
pub mod cut;
mod flush;
pub mod identifiers;
pub mod oversized;
mod shorten;
mod shortener;
pub mod summary;
pub mod transcript;

pub use account::context_of;
pub use account::{instruction_line, is_pinned, pinned};
pub use cut::{Compacted, Cut};
pub use shorten::{How, Shortened, shorten, summarize};
pub use shortener::Shortener;
