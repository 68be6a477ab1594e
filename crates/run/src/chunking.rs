//! Splits an answer into messages while it streams. Pure.
//!
//! Reading order: [`config`] → [`chunker`] (where to cut a text) → [`blocks`] (which pieces of a step are ready).

pub mod blocks;
pub(crate) mod chunker;
mod config;

pub use blocks::{Blocks, Next};
pub use config::{Break, SendAt, StreamingConfig};
