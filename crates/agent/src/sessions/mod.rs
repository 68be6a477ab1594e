//! Sessions over days: when a new conversation begins automatically, and how long data is kept.
//!
//! **Does not know** how a lane begins a new conversation, or what deletes old data.

mod config;
mod policy;

pub use config::{ChannelReset, ResetMode, SessionsConfig};
pub(crate) use policy::Resets;
