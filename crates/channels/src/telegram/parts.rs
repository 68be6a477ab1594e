//! The parts of a bot that the daemon makes.

use std::sync::Arc;

use belay_protocol::{AttachmentIntake, CommandInfo, MoveStore, PairingCodes, TextChecker};
use secrecy::SecretString;

use super::AllowLists;

/// Secrets, which must not be in a configuration file.
pub struct TelegramSecrets {
    /// The bot's token from BotFather: `<bot id>:<secret>`.
    pub token: SecretString,
    /// The secret token that Telegram sends with each webhook call. Required in webhook mode.
    pub webhook_secret: Option<SecretString>,
}

/// The parts of a bot that the daemon makes.
pub struct TelegramParts {
    /// The people who may talk to the bot. The daemon may replace them while the bot runs.
    pub lists: AllowLists,
    /// Issues pairing codes to strangers; `None`: strangers get none.
    pub codes: Option<Arc<dyn PairingCodes>>,
    /// The commands for the menu.
    pub commands: Vec<CommandInfo>,
    /// Takes the files of messages.
    pub attachments: Arc<dyn AttachmentIntake>,
    /// Lets hooks check the channel's own lines.
    pub texts: Arc<dyn TextChecker>,
    /// Keeps the groups that have become supergroups.
    pub moves: Arc<dyn MoveStore>,
}
