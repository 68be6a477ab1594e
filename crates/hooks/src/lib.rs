//! Concrete hooks: the operator's programs, web services, and two built-in ones.
//!
//! **For**: [`HooksConfig`] is the content of the settings (`[[hooks]]`), and [`HookSet::build`] makes hooks from it
//! that are bound to their points. A hook is a command ([`CommandHook`]: JSON on its standard input, JSON on its
//! standard output), an address ([`HttpHook`]: the same by `POST`), [`Redact`], or [`Audit`]. Every process that a hook
//! starts is ended. The set owns every task, and [`HookSet::close`] waits for them.
//!
//! **Does not know**: when a point is reached, in which order hooks are asked, how long each may take, or what its
//! failure means. The hook chain in the crate `run` decides that.
//!
//! Reading order: [`config`] → [`build`] → [`answer`] → [`command`] and its [`process`] → [`http`] → [`redact`] →
//! [`audit`].

mod answer;
mod audit;
mod build;
mod command;
mod config;
mod error;
mod http;
mod process;
mod redact;

pub use audit::{Audit, AuditConfig};
pub use build::HookSet;
pub use command::CommandHook;
pub use config::{HookConfig, HooksConfig, Points};
pub use error::HooksError;
pub use http::HttpHook;
pub use redact::{Redact, RedactConfig};
