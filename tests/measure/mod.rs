//! What the programs that measure the daemon share: the daemon as a child process, a minimal HTTP client, and a model
//! server that answers at once.

pub mod daemon;
pub mod http;
pub mod model;
