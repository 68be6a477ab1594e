//! What the kinds of background run do differently from a conversation's turn.
//!
//! [`job`] goes on until its task is done, in this process or, by [`job_worker`], in a worker. [`lightweight`] is the small loop
//! of routine runs, which is not the shared one.

pub(crate) mod job;
mod job_worker;
pub(crate) mod lightweight;
