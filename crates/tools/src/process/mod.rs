//! Processes that tools start.
//!
//! **For**: saying what is to be started, before anybody starts it: the sandbox turns one [`Launch`] into another.
//!
//! **Does not know**: who asks for a process, or whether it may run.

mod launch;

pub use launch::{Launch, Stdin};
