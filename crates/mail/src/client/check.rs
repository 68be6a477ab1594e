//! Logs in to both servers, for `belay check`.

use std::time::Duration;

use tokio::time::timeout;

use super::error::ImapError;
use super::imap::{Abilities, Imap};
use super::servers::servers;
use super::smtp::SmtpError;
use crate::config::{MailConfig, MailSecrets};

/// Longest wait for both servers.
const LIMIT: Duration = Duration::from_secs(20);

/// Logs in to both servers, and returns what the IMAP server can do.
///
/// # Errors
/// The reason, without the password; `true`: a login is refused, or the settings are.
pub async fn log_in(config: &MailConfig, secrets: MailSecrets) -> Result<String, (bool, String)> {
    let (account, smtp) = servers(config, secrets).map_err(|why| (true, why))?;
    let checked = async {
        let imap = Imap::log_in(&account)
            .await
            .map_err(|error| (matches!(error, ImapError::Login(_)), format!("IMAP: {error}")))?;
        let connected = smtp.log_in().await;
        connected.map_err(|error| (matches!(error, SmtpError::Login(_)), format!("SMTP: {error}")))?;
        Ok(shown(imap.abilities))
    };
    timeout(LIMIT, checked).await.unwrap_or_else(|_elapsed| Err((false, "no answer in time".to_owned())))
}

fn shown(abilities: Abilities) -> String {
    let Abilities { idle, condstore, moves, uidplus, special_use } = abilities;
    let all =
        [("IDLE", idle), ("CONDSTORE", condstore), ("MOVE", moves), ("UIDPLUS", uidplus), ("SPECIAL-USE", special_use)];
    let of = |has: bool| all.iter().filter(|one| one.1 == has).map(|one| one.0).collect::<Vec<_>>().join(", ");
    let note = match (idle, condstore) {
        (_, false) => "; without CONDSTORE, let one daemon alone read this mailbox",
        (false, true) => "; without IDLE, new mail is found once a minute",
        (true, true) => "",
    };
    match (of(true), of(false)) {
        (has, lacks) if lacks.is_empty() => format!("it has {has}{note}"),
        (has, lacks) if has.is_empty() => format!("it lacks {lacks}{note}"),
        (has, lacks) => format!("it has {has}, and lacks {lacks}{note}"),
    }
}
