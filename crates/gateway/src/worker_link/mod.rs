//! The link between a worker and its host, both ends: HTTP over a Unix socket of its own.
//!
//! **For**: [`WorkerLinkServer`] answers the requests of jobs by handing them to the desk that opened the link;
//! [`LinkClient`] is the worker's end. Each request proves by a token that it is of the job in its path.
//!
//! **Does not know**: what a job is about, who runs it, or what its answers mean.
//!
//! | request | answer |
//! |---|---|
//! | `GET /worker/{job}/task` | the task |
//! | `POST /worker/{job}/model` | the model's answer |
//! | `POST /worker/{job}/batch` | the results of a batch of calls |
//! | `GET /worker/{job}/order?after=N` | the next order, or 204 when there was none for a while |
//! | `POST /worker/{job}/done` | 204; the answer of an order |
//! | `POST /worker/{job}/finish` | 204; the job is over |
//!
//! A missing, wrong, foreign or revoked token is 401, and the answer is always the same; a path that names no job is 400.

mod client;
mod jobs;
mod server;

pub use client::LinkClient;
pub use server::WorkerLinkServer;
