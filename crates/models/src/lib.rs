//! Model providers, and retry and metering as wrappers over the same port.

pub mod rehearsal;
