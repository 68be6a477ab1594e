//! The gateway over real sockets: a scripted agent behind the channel, readers in memory, requests by a real client, and
//! by hand where a real client would not send such a thing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

mod anthropic;
mod approvals;
mod archive;
mod client_calls;
mod console;
mod cors;
mod drain;
mod embeddings;
mod faces;
mod front_ends;
mod harness;
mod hooks;
mod jobs;
mod logins;
mod mcp;
mod memory;
mod messages;
mod nodes;
mod openai;
mod other_nodes;
mod pages;
mod reads;
mod refusals;
mod responses;
mod retries;
mod routines;
mod sent_files;
mod shown;
mod socket;
mod streams;
mod tools;
mod visible;
mod webhook;
mod websocket;
mod work;
mod worker_link;
