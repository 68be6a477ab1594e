//! The channel Matrix: rooms without encryption, by the client-server API.
//!
//! **For**: making [`belay_protocol::Inbound`] messages of the events of rooms, and sending [`belay_protocol::Outbound`]
//! messages as events. The rules of the platform are here: who may talk, which rooms are served, how much one event holds,
//! and that a repeated request with the same transaction id is the same event.
//!
//! **Does not know** the agent, the store, or the key of any encrypted room. It reads neither the environment nor settings
//! files.
//!
//! Reading order: [`config`] → [`people`] (who may talk, and where) → `wire` (what the server sends) → `api`, `calls` (what
//! it is asked) → `intake` (what an event says) → `room`, `membership`, `question` (what becomes of it) → `gaps`, `lines`, `sync` (the order, and how
//! far it was read) → `html`, `content`, `deliver`, `preview` (how an answer is sent) → `files` → `channel`.

#[cfg(feature = "client")]
mod api;
#[cfg(feature = "client")]
mod calls;
#[cfg_attr(not(feature = "client"), path = "no_channel.rs")]
mod channel;
pub mod config;
#[cfg(feature = "client")]
mod content;
#[cfg(feature = "client")]
mod deliver;
#[cfg(feature = "client")]
mod files;
#[cfg(feature = "client")]
mod gaps;
#[cfg(feature = "client")]
mod html;
#[cfg(feature = "client")]
mod intake;
#[cfg(feature = "client")]
mod lines;
#[cfg(feature = "client")]
mod membership;
mod parts;
pub mod people;
#[cfg(feature = "client")]
mod preview;
#[cfg(feature = "client")]
mod question;
#[cfg(feature = "client")]
mod room;
#[cfg(feature = "client")]
mod sync;
#[cfg(feature = "client")]
mod wire;

pub use channel::{MatrixParts, open, who_am_i};
pub use config::{MatrixConfig, MatrixSecrets, TOKEN_ENV, is_room};
pub use people::MatrixPeople;

/// The channel's id, and the prefix of its session keys.
const NAME: &str = "matrix";
