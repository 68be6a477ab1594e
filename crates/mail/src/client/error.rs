//! Why a mail server has not done what it was asked for.

use std::fmt::Display;

/// Longest reason of a server, in characters.
const WORDS_MAX_CHARS: usize = 300;

/// Why an IMAP server has not done what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImapError {
    /// It was not reached, or the connection was lost.
    #[error("no connection: {0}")]
    Lost(String),
    /// It refuses the user or the password for good.
    #[error("the login is refused: {0}")]
    Login(String),
    /// It refuses the command.
    #[error("refused: {0}")]
    Refused(String),
    /// It does not answer in time.
    #[error("no answer in time")]
    Silent,
}

impl From<std::io::Error> for ImapError {
    fn from(error: std::io::Error) -> Self {
        // A failed parse brings the bytes of the answer along, and with them texts of mails.
        match error.kind() {
            std::io::ErrorKind::Other => Self::Lost("an answer of the server cannot be read".to_owned()),
            _ => Self::Lost(words(error)),
        }
    }
}

impl From<async_imap::error::Error> for ImapError {
    fn from(error: async_imap::error::Error) -> Self {
        match error {
            async_imap::error::Error::Io(error) => error.into(),
            async_imap::error::Error::No(reason) | async_imap::error::Error::Bad(reason) => {
                Self::Refused(words(reason))
            }
            error => Self::Lost(words(error)),
        }
    }
}

/// A reason on one line, for the log.
pub(crate) fn words(reason: impl Display) -> String {
    belay_text::escaped_line(&reason.to_string()).chars().take(WORDS_MAX_CHARS).collect()
}
