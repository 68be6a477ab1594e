//! Tests of the web tools with real servers on this machine.
#![allow(clippy::unwrap_used)]

mod fetch;
mod send;
mod ssrf;
mod support;
