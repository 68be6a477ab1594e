//! An answer while it comes: what of it may be read, and how it gets to a conversation before it is whole.
//!
//! **For**: [`speech`] makes of a model's fragments what people may read: no reasoning in the text ([`thoughts`]), no part
//! of the silent token ([`silence`]). Every reader gets the same. A channel that can gets it at once: as messages of their
//! own ([`blocks`], cut by [`chunker`]), or as one message that is changed ([`preview`]). [`screen`] is what a turn has of
//! both.
//!
//! **Does not know**: how a channel shows anything, and what the answer will be. The answer itself goes by the outbox with
//! the end of its run, whatever was shown before.

pub(crate) mod blocks;
pub(crate) mod chunker;
mod config;
pub(crate) mod meter;
pub(crate) mod payload;
mod preview;
pub(crate) mod screen;
pub(crate) mod silence;
pub(crate) mod sink;
pub(crate) mod speech;
pub(crate) mod thoughts;

pub use config::{Break, SendAt, StreamingConfig};
