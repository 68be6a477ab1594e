//! Compaction: older messages leave a context that is too long, and a shorter account of them stays in their place.
//!
//! **For**: runs (before a call that would not fit, and after one that did not) and `/compact`. What leaves is decided by
//! a rule, in [`cut`]; the account is written by a model that is asked aside, in a form that is checked, or by a rule where
//! no model can. Before that the model may make notes. The originals stay in the store.
//!
//! **Does not know**: when a turn is at its end, who asked for `/compact`, or how anything is stored.
//!
//! The system prompt is not part of the context; a pinned summary is its first message. What never leaves: what a person
//! has said in the running turn, open calls and what waits for an answer, instructions that a client has brought, and the
//! mark of words of the outside.
//!
//! Reading order: [`cut`] → [`account`] → [`identifiers`] and [`transcript`] → [`summary`] →
//! `ask` → `flush` → `shorten` → `shortener`, and [`oversized`] for what is left when nothing else helps.

pub mod account;
mod ask;
pub mod cut;
mod flush;
pub mod identifiers;
pub mod oversized;
mod shorten;
mod shortener;
pub mod summary;
pub mod transcript;

pub use account::context_of;
pub use account::{instruction_line, is_pinned, pinned};
pub use cut::{Compacted, Cut};
pub use shorten::{How, Shortened, shorten};
pub use shortener::Shortener;
