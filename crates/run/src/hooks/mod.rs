//! Hooks: the operator's own programs, called at named points.
//!
//! **For**: [`HookChain`] calls the hooks of a point, in order, within their time limits, and returns the result. A
//! hook can change its data or refuse, if the point allows it, and nothing else: it cannot crash, stall or outlive the
//! daemon.
//!
//! **Does not know**: what a hook is (a command, an address), or its settings.
//!
//! Reading order: [`points`] (the data of each point) → [`chain`] (which hooks are called, and the result) →
//! [`change`].

mod chain;
mod change;
mod points;
#[cfg(test)]
mod tests;

use chain::HookDecision;
pub use chain::{About, HookChain, HookRefusal};
pub(crate) use points::CallAbout;
pub use points::{HookContext, Sending};
