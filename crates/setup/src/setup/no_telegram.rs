//! A build without the feature `telegram` has no bot: nobody is asked for one, and flags that name one are refused.

use belay_channels::TelegramConfig;
use belay_program::exit::{Exit, Failure};
use secrecy::SecretString;

use super::document::Change;
use super::person::Person;

/// The answers that flags have given.
pub(super) struct Given {
    /// The content of `--telegram-token-file`
    pub(super) token: Option<SecretString>,
    /// `--telegram-user`
    pub(super) users: Vec<u64>,
    /// `--telegram-api`
    pub(super) api: Option<String>,
}

/// The answers about Telegram in other builds.
pub(super) struct Answer {
    pub(super) token: Option<SecretString>,
    pub(super) bot: Option<String>,
}

impl Answer {
    /// The changes of the settings: none.
    pub(super) fn changes(&self) -> Vec<Change> {
        Vec::new()
    }
}

/// Asks nobody.
///
/// # Errors
/// A flag names a bot (78).
pub(super) async fn telegram(
    _now: &TelegramConfig,
    _is_mode_set: bool,
    given: Given,
    _asked: bool,
    _person: &mut Person,
) -> Result<Option<Answer>, Failure> {
    if given.token.is_none() && given.users.is_empty() && given.api.is_none() {
        return Ok(None);
    }
    let what = "this build of Belay has no Telegram bot (feature telegram)";
    Err(Failure::new(Exit::Refused, what).next("install the full build; `belay --version --long` names the parts"))
}
