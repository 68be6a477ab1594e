//! Hooks: the operator's own programs, asked at named points.
//!
//! **For**: [`HookChain`] asks whoever is bound to a point, in order, within their time, and says what became of it. A
//! hook can change what it is asked about where the point allows, refuse where the point allows, and nothing else: it
//! cannot crash, stall or outlive the daemon.
//!
//! **Does not know**: what a hook is (a command, an address), nor what its settings say.
//!
//! Reading order: [`points`] (what each point is about) → [`chain`] (who is asked, and what comes of it) → [`change`].

mod chain;
mod change;
mod points;
#[cfg(test)]
mod tests;

use chain::{About, HookDecision};
pub use chain::{HookChain, HookRefusal};
pub(crate) use points::CallAbout;
pub use points::HookContext;
