//! The chanting tracker: any text, cut anyhow.
#![no_main]

#[path = "../../../crates/agent-loop/tests/inner_loop/chanting/target.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::chanting_target(data));
