//! Shared parts of tests: a scripted model, golden transcripts, a faulty store, a manual clock.
//!
//! **Does not know** any crate but `protocol`.

pub mod clock;
pub mod faulty;
pub mod golden;
pub mod scripted_model;
pub mod seen_request;
