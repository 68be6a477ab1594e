//! Scenarios: the real binary, driven from outside as its users drive it. Real time and real sockets on loopback; every
//! wait ends as soon as what it waits for has happened.

mod approvals;
mod attachments;
mod bad_input;
mod brakes;
mod brakes_counts;
mod command_line;
mod compaction;
mod context;
mod conversation;
mod endings;
mod fallback;
mod freeze;
mod heartbeat;
#[path = "../injection/mod.rs"]
mod injection;
mod jobs;
mod keys;
mod lifecycle;
mod mcp;
mod outputs;
mod overload;
mod pains;
mod plan;
mod queueing;
mod readme;
mod routines;
mod sessions;
mod setup;
mod starting;
mod stopping;
mod stops;
mod surviving;
mod telegram;
mod terminal;
mod tool_health;
mod websocket;
mod work;
mod workers;
mod workspace;
