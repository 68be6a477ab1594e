//! The check of the e-mail channel: a login at both servers, and what the mailbox can do.

use belay_mail::{MailSecrets, log_in};
use belay_settings::Settings;
use belay_settings::secrets::{Secrets, UNSEEN};
use secrecy::ExposeSecret;

use super::{Finding, State};

/// Checks the channel; `None` if it is off. A password that cannot be read from here is not tried.
pub(super) async fn account(settings: &Settings, secrets: &Secrets) -> Option<Finding> {
    let config = &settings.channels.mail;
    let address = config.address.as_deref()?;
    let finding = |state, detail: String| Some(Finding::new("mail", state, detail));
    if config.admits_nobody() {
        return finding(State::Note, "channels.mail.allow and operators are empty: nobody may write to Belay".into());
    }
    let password = secrets.mail.as_ref().map(|secrets| &secrets.password)?;
    if password.expose_secret() == UNSEEN {
        return finding(State::Note, "the password is known to the service manager alone; it was not tried".into());
    }
    match log_in(config, MailSecrets { password: password.clone() }).await {
        Ok(abilities) => finding(State::Ok, format!("both servers know the account of {address}; {abilities}")),
        Err((true, why)) => finding(State::Refused, why),
        Err((false, why)) => finding(State::OutOfReach, why),
    }
}
