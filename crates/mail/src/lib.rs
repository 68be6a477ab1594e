//! The channel e-mail: one mailbox by IMAP, and answers by SMTP.
//!
//! **For**: making [`belay_protocol::Inbound`] messages of the mails of a mailbox, and sending
//! [`belay_protocol::Outbound`] messages as mails. The rules of mail are here: who may write, which mails are
//! answered, which part of a mail its sender has written, and how it is known whether an answer was sent.
//!
//! **Does not know** the agent or the store. It reads neither the environment nor settings files, and it never
//! deletes or moves a mail.
//!
//! Reading order: [`server`] → [`config`] → [`people`] (who may write) → `client`.

#[cfg_attr(not(feature = "client"), path = "no_client.rs")]
mod client;
pub mod config;
mod parts;
pub mod people;
pub mod server;

#[cfg(feature = "client")]
pub use client::QUALITY;
pub use client::{MailParts, log_in, open};
pub use config::{MailConfig, MailSecrets, PASSWORD_ENV};
pub use people::{MailPeople, is_conversation};

/// The channel's id, and the prefix of its session keys.
const NAME: &str = "mail";
