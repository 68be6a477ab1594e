//! What tests of any crate share: a scripted model, golden transcripts, a faulty store, a clock that is moved by hand.
//!
//! **Does not know** any crate but `protocol`.

pub mod clock;
pub mod faulty;
pub mod golden;
pub mod scripted_model;
pub mod seen_request;
