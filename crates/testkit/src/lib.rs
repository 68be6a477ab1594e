//! Shared parts of tests: a scripted model, golden transcripts, log lines, a faulty store, a manual clock, a PostgreSQL server,
//! a proxy, and suites for ports that two crates implement.
//!
//! **Does not know** any crate but `protocol`.

pub mod channel_suite;
pub mod clock;
pub mod faulty;
pub mod golden;
pub mod log_lines;
pub mod output_suite;
pub mod pin_suite;
pub mod postgres;
pub mod proxy;
pub mod scripted_model;
pub mod seen_request;
