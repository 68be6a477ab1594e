//! Trees of real processes, started and ended.
#![allow(clippy::unwrap_used)]

mod starting;
mod support;
