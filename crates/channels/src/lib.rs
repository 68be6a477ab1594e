//! Message platforms: standard input and Telegram.
//!
//! **For**: turning what a person types, or what Telegram delivers, into [`belay_protocol::Inbound`] messages, and
//! showing [`belay_protocol::Outbound`] messages where the person is. Each platform's own rules live here: who may talk,
//! how long a message may be, when to try again.
//!
//! **Does not know** the agent, the store, or any socket that listens: Telegram's webhook is a router that the daemon
//! mounts. It reads neither the environment nor configuration files, and does not parse commands beyond what a platform
//! itself demands.
//!
//! Reading order: [`config`] → [`stdin`] → [`telegram`].

mod commands;
pub mod config;
pub mod stdin;
pub mod telegram;

pub use config::{Enabled, GroupAnswer, GroupsConfig, StdinConfig, Stream, TelegramConfig, TelegramMode};
pub use stdin::{Operators, StdinChannel};
pub use telegram::{AllowLists, Telegram, TelegramSecrets};
