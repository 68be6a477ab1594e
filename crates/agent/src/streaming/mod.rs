//! An answer while it comes: what of it may be read, and how it gets to a conversation before it is whole.
//!
//! **For**: a channel that can show an answer early gets it at once: as messages of their own, which [`block_sender`] commits as
//! [`belay_run::chunking`] cuts them, or as one message that is edited ([`preview`]). [`screen`] is what a turn has of both.
//!
//! **Does not know**: how a channel shows anything, and what the answer will be. The answer itself goes by the outbox with
//! the end of its run, whatever was shown before.

mod block_sender;
pub(crate) mod payload;
mod preview;
pub(crate) mod screen;
