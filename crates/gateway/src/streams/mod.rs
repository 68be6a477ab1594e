//! Event streams of runs, in one form for WebSocket and server-sent events.
//!
//! [`source`] reads facts and deltas in their order: [`live`] receives the deltas, and [`order`] decides when they may
//! be shown. [`agent`] and [`chat`] convert them to events and are pure; [`agent_data`] converts facts for [`agent`].
//! [`terminal`] describes the end of a run. [`feed`] is the stream of server-sent events. WebSocket is in `ws`.

mod agent;
mod agent_data;
mod chat;
mod feed;
mod live;
mod order;
mod source;
mod terminal;

#[cfg(test)]
pub(crate) use agent::AgentEvent;
pub(crate) use agent::AgentMapper;
pub(crate) use chat::{ChatEvent, ChatMapper};
pub(crate) use feed::events;
pub(crate) use live::Live;
pub(crate) use order::Order;
pub(crate) use source::{News, Source, Target, commit};
pub(crate) use terminal::{Terminal, Verdict};
#[cfg(test)]
pub(crate) use terminal::{run_error, waited_reason};

/// The names of all events that a connection may receive.
pub(crate) const EVENTS: &[&str] = &["connect.challenge", "agent", "chat", "tick", "shutdown"];
