//! The account of a strike: the evidence in one sentence, and one thing to do differently.
//!
//! A finding of a stop rule consists of counts and digests. [`Evidence`] adds the facts that people and models
//! recognise: the tool, the script or file, the number of calls and their steps, and the part of the results that stayed
//! equal. It is read from the conversation when a rule fires, so a run without a strike costs nothing.
//!
//! ```text
//! Finding ──┐
//!           ├─► group (the calls that the finding is about) ─► Evidence ─┬─► for_model: sentence, advice; untrusted text marked
//! messages ─┘                                                            └─► sentence: for people, without markers
//! ```
//!
//! Reading order: [`calls`] → `group` → [`kind`] → `classify` → [`target`] → [`equal`] → `marks` → [`evidence`] → `sentence` →
//! `advice` → `message`.

pub mod calls;
pub mod equal;
pub mod evidence;
pub mod kind;
pub mod target;

mod advice;
mod classify;
mod group;
mod marks;
mod message;
mod sentence;

#[cfg(test)]
mod tests;

pub use calls::SeenCall;
pub use equal::{Differs, Equal};
pub use evidence::Evidence;
pub use kind::LoopKind;
