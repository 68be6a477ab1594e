//! A build without the feature `mail` has no e-mail channel: settings that name an address are refused.

use std::sync::Arc;

use belay_protocol::{Channel, ChannelError};

use crate::NAME;
use crate::config::{MailConfig, MailSecrets};
pub use crate::parts::MailParts;

/// Why there is no channel.
const ABSENT: &str = "this build of Belay has no e-mail channel (feature mail)";

/// Opens no channel.
///
/// # Errors
/// Always.
pub fn open(_config: &MailConfig, _secrets: MailSecrets, _parts: MailParts) -> Result<Arc<dyn Channel>, ChannelError> {
    Err(ChannelError { channel: NAME.into(), detail: ABSENT.to_owned() })
}

/// Asks nobody.
///
/// # Errors
/// Always.
pub async fn log_in(_: &MailConfig, _: MailSecrets) -> Result<String, (bool, String)> {
    Err((true, ABSENT.to_owned()))
}
