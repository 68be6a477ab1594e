//! The belay binary.
fn main() {}
