//! One connection to the mailbox: the login, and what the server can do.

use std::time::Duration;

use async_imap::Session;
use async_imap::types::Mailbox;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::timeout;

use super::error::ImapError;
use super::tls::{Socket, Tls, connect};
use crate::server::Server;

/// Deadline of a command that returns little.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// The account at the IMAP server.
pub(crate) struct Account {
    pub(crate) server: Server,
    pub(crate) tls: Option<Tls>,
    pub(crate) user: String,
    pub(crate) password: SecretString,
}

/// The abilities of a server, as its capabilities name them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Abilities {
    pub(crate) idle: bool,
    pub(crate) condstore: bool,
    pub(crate) moves: bool,
    pub(crate) uidplus: bool,
    pub(crate) special_use: bool,
}

/// One connection, logged in.
pub(crate) struct Imap {
    pub(super) session: Session<Box<dyn Socket>>,
    pub(crate) abilities: Abilities,
    /// Whether the server has announced new mails since the last search began.
    pub(super) has_news: bool,
}

impl Imap {
    /// Connects and logs in.
    pub(crate) async fn log_in(account: &Account) -> Result<Self, ImapError> {
        let client = connect(&account.server, account.tls.as_ref()).await?;
        let login = timeout(DEADLINE, client.login(&account.user, account.password.expose_secret())).await;
        let session = match login.map_err(|_elapsed| ImapError::Silent)? {
            Ok(session) => session,
            Err((error, _client)) => {
                return Err(match ImapError::from(error) {
                    ImapError::Refused(reason) if is_final(&reason) => ImapError::Login(reason),
                    ImapError::Refused(reason) => ImapError::Lost(format!("the login is refused for now: {reason}")),
                    error => error,
                });
            }
        };
        let mut imap = Self { session, abilities: Abilities::default(), has_news: false };
        let known = timeout(DEADLINE, imap.session.capabilities()).await.map_err(|_elapsed| ImapError::Silent)??;
        let has = |name| known.has_str(name);
        imap.abilities = Abilities {
            idle: has("IDLE"),
            condstore: has("CONDSTORE") || has("QRESYNC"),
            moves: has("MOVE"),
            uidplus: has("UIDPLUS"),
            special_use: has("SPECIAL-USE"),
        };
        Ok(imap)
    }

    /// Opens a folder for reading and for keywords.
    pub(crate) async fn select(&mut self, folder: &str) -> Result<Mailbox, ImapError> {
        let has_modseq = self.abilities.condstore;
        let selected = async {
            match has_modseq {
                true => self.session.select_condstore(folder).await,
                false => self.session.select(folder).await,
            }
        };
        Ok(timeout(DEADLINE, selected).await.map_err(|_elapsed| ImapError::Silent)??)
    }

    /// Adds a mail to a folder, as one that was read.
    pub(crate) async fn append(&mut self, folder: &str, mail: &[u8], limit: Duration) -> Result<(), ImapError> {
        let appended = timeout(limit, self.session.append(folder, Some("(\\Seen)"), None, mail)).await;
        Ok(appended.map_err(|_elapsed| ImapError::Silent)??)
    }
}

/// Whether a login is refused until somebody changes the settings (RFC 5530). Other refusals, such as too many
/// connections or a server that is not ready, pass.
fn is_final(reason: &str) -> bool {
    let reason = reason.to_ascii_uppercase();
    ["[AUTHENTICATIONFAILED]", "[AUTHORIZATIONFAILED]", "[EXPIRED]"].iter().any(|code| reason.contains(code))
}
