//! The trajectory reader: any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| belay_trajectory::trajectory_target(data));
