//! The link between a worker and its host, both ends. It is HTTP over a Unix socket of its own.
//!
//! **For**: [`WorkerLinkServer`] passes the requests of a job to the worker host that opened the link; [`LinkClient`]
//! is the worker's end. Each request has a token that proves that it belongs to the job in its path.
//!
//! **Does not know**: what a job is about, who runs it, or what its answers mean.
//!
//! | request | answer |
//! |---|---|
//! | `GET /worker/{job}/task` | the task |
//! | `POST /worker/{job}/model` | the model's answer |
//! | `POST /worker/{job}/batch` | the results of a batch of calls |
//! | `GET /worker/{job}/order?after=N` | the next order, or 204 after a while without one |
//! | `POST /worker/{job}/done` | 204; the answer of an order |
//! | `POST /worker/{job}/finish` | 204; the job has ended |
//!
//! A missing, wrong, foreign or revoked token is 401, always with the same answer. A path without a job is 400.

mod client;
mod jobs;
mod server;

pub use client::LinkClient;
pub use server::WorkerLinkServer;
