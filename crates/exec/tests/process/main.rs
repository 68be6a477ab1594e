//! Trees of real processes, started and ended.
#![allow(clippy::unwrap_used)]

mod endings;
mod starting;
mod support;
