//! The sandbox and the containers of workers.
//!
//! No test here has a registry of processes (see `tests/programs`): it would end what a leak of the sandbox leaves behind.
#![allow(clippy::unwrap_used)]

mod sandbox;
mod worker_container;
