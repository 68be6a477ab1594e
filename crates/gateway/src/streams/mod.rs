//! What goes on in runs, as whoever follows them hears it: events of one form, over WebSocket and as server-sent events.
//!
//! [`source`] brings facts and fragments in their order, the fragments by [`live`] and as [`order`] says; [`agent`] and
//! [`chat`] turn them into events and are pure, facts as [`told`] has it; [`terminal`] says what became of a run; [`feed`] is
//! the stream of server-sent events. WebSocket is in `ws`.

mod agent;
mod chat;
mod feed;
mod live;
mod order;
mod source;
mod terminal;
mod told;

pub(crate) use agent::AgentMapper;
pub(crate) use chat::{ChatEvent, ChatMapper};
pub(crate) use feed::events;
pub(crate) use live::Live;
pub(crate) use order::Order;
pub(crate) use source::{News, Source, Target};
pub(crate) use terminal::{Terminal, Verdict};

/// The names of all events that a connection may be sent.
pub(crate) const EVENTS: &[&str] = &["connect.challenge", "agent", "chat", "tick", "shutdown"];
