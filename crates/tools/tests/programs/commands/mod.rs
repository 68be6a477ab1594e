//! `run_command` and `run_shell` with real programs, real processes and the real sandbox.

mod answers;
mod background;
mod background_ends;
mod background_waits;
mod endings;
mod homes;
mod hostile;
mod questions;
mod sealed;
mod support;
