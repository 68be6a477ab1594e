//! Sessions over the days: when a conversation begins anew, and how long what was said is kept.
//!
//! **Does not know** how a conversation begins anew, which its lane does, nor who deletes what is too old.

mod config;
mod policy;

pub use config::{ChannelReset, ResetMode, SessionsConfig};
pub(crate) use policy::Resets;
