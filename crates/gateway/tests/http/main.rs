//! The gateway over real sockets: a scripted agent behind the channel, readers in memory, requests by a real client, and
//! by hand where a real client would not send such a thing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

mod approvals;
mod archive;
mod drain;
mod harness;
mod hooks;
mod jobs;
mod mcp;
mod messages;
mod openai;
mod refusals;
mod routines;
mod shown;
mod socket;
mod streams;
mod tools;
mod visible;
mod webhook;
mod websocket;
mod work;
mod worker_link;
