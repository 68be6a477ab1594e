//! The inner loop from outside: what the model sees, what holds in any order of events, and chanting in whole texts.
#![allow(clippy::unwrap_used)]

mod chanting;
mod properties;
mod support;
mod transcripts;
