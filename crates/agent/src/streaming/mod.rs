//! Shows an answer in its conversation while it streams.
//!
//! **For**: channels that can show an answer early. They get it as several messages, which [`block_sender`] commits as
//! [`belay_run::chunking`] cuts them, or as one message that is edited ([`preview`]), or piece by piece with the state of the run
//! ([`live`]). [`screen`] is the interface for a
//! turn.
//!
//! **Does not know**: how a channel shows anything, and what the answer will be. The final answer goes through the
//! outbox with the end of its run, whatever was shown before.

mod block_sender;
mod live;
pub(crate) mod payload;
mod preview;
pub(crate) mod screen;
