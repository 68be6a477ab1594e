//! Channels in any language: an adapter is a program that speaks to a platform, and to Belay over a WebSocket.
//!
//! **For**: one channel for each section `[channels.adapters.NAME]`. The adapter connects to `/adapters/NAME`, brings
//! the messages of people, gets one acknowledgement for each, and delivers the replies.
//! `docs/develop/writing-an-adapter.md` describes the frames.
//!
//! **Does not know** the platform, the agent, the store, or any listening socket: the route is a router that the daemon
//! mounts.
//!
//! Reading order: [`config`] → `frames` (the frames on the wire) → `access` (who may talk) → `arrival` (a message of
//! a person) → `link` (the connection as `deliver` sees it) → `progress` (which cursor may be kept) →
//! `connection` → `deliver` → `route` → [`channel`].

#[cfg(feature = "adapters")]
mod access;
#[cfg(feature = "adapters")]
mod arrival;
#[cfg(feature = "adapters")]
pub mod channel;
pub mod config;
#[cfg(feature = "adapters")]
mod connection;
#[cfg(feature = "adapters")]
mod deliver;
#[cfg(feature = "adapters")]
mod frames;
#[cfg(feature = "adapters")]
mod link;
#[cfg(feature = "adapters")]
mod progress;
#[cfg(feature = "adapters")]
mod route;

#[cfg(feature = "adapters")]
pub use access::AdapterAccess;
#[cfg(feature = "adapters")]
/// The type of [`Adapter::router`].
pub use axum::Router;
#[cfg(feature = "adapters")]
pub use channel::Adapter;
pub use config::{AdapterConfig, TextUnit};
