//! Message platforms: standard input and Telegram.
//!
//! **For**: making [`belay_protocol::Inbound`] messages of typed lines and Telegram updates, and showing
//! [`belay_protocol::Outbound`] messages to the person. Each platform's own rules are here: who may talk, how long a
//! message may be, when to retry.
//!
//! **Does not know** the agent, the store, or any listening socket: Telegram's webhook is a router that the daemon
//! mounts. It reads neither the environment nor configuration files. It parses no commands except those that a platform
//! requires.
//!
//! Reading order: [`config`] → [`stdin`] → [`telegram`] → `leased` (one node of a cluster takes a channel's messages).

mod commands;
pub mod config;
mod leased;
mod one_host;
mod plan_rows;
mod short_ids;
pub mod stdin;
#[cfg_attr(not(feature = "telegram"), path = "no_telegram.rs")]
pub mod telegram;
mod tool_rows;

pub use config::{
    Enabled, GroupAnswer, GroupOverrides, GroupsConfig, StdinConfig, Stream, TelegramConfig, TelegramMode,
};
pub use leased::LeasedChannel;
pub use one_host::on_one_host;
pub use plan_rows::plan_rows;
pub use short_ids::with_short_id;
pub use stdin::{Completions, Operators, StdinChannel};
pub use telegram::{AllowLists, Telegram, TelegramParts, TelegramSecrets};
#[cfg(feature = "telegram")]
pub use telegram::{FirstContact, FirstContactError, Sender};
pub use tool_rows::ToolRows;
