//! The channel Matrix: rooms without encryption, by the client-server API.
//!
//! **For**: making [`belay_protocol::Inbound`] messages of the events of rooms, and sending
//! [`belay_protocol::Outbound`] messages as events. The rules of the platform are here: who may talk, which rooms are
//! served, how much one event holds, and that a repeated request with the same transaction id is the same event.
//!
//! **Does not know** the agent, the store, or the key of any encrypted room. It reads neither the environment nor
//! settings files.
//!
//! Reading order: [`config`] → [`people`] (who may talk, and where) → `client`.

#[cfg_attr(not(feature = "client"), path = "no_client.rs")]
mod client;
pub mod config;
mod parts;
pub mod people;

#[cfg(feature = "client")]
pub use client::QUALITY;
pub use client::{MatrixParts, open, who_am_i};
pub use config::{MatrixConfig, MatrixSecrets, TOKEN_ENV, is_room};
pub use people::MatrixPeople;

/// The channel's id, and the prefix of its session keys.
const NAME: &str = "matrix";
