//! The account at both servers, from the settings.

use super::imap::Account;
use super::smtp::Smtp;
use super::tls::Tls;
use crate::config::{MailConfig, MailSecrets};
use crate::server::{Protocol, Security, Server};

/// The account at both servers, without a connection.
///
/// # Errors
/// The settings are not valid, or the system has no certificates for TLS.
pub(crate) fn servers(config: &MailConfig, secrets: MailSecrets) -> Result<(Account, Smtp), String> {
    let server = |text: &str, protocol| {
        Server::parse(text, protocol).ok_or_else(|| format!("{text:?} is not the address of a mail server"))
    };
    let (imap, smtp) = (server(&config.imap, Protocol::Imap)?, server(&config.smtp, Protocol::Smtp)?);
    let tls = if imap.security == Security::Plain { None } else { Some(Tls::new()?) };
    let address = address(config);
    let domain = address.rsplit_once('@').map_or("", |(_, domain)| domain);
    let smtp = Smtp::new(smtp, config.login(), secrets.password.clone(), domain)?;
    Ok((Account { server: imap, tls, user: config.login().to_owned(), password: secrets.password }, smtp))
}

/// Belay's own address, in lower case.
pub(crate) fn address(config: &MailConfig) -> String {
    config.address.as_deref().unwrap_or_default().to_ascii_lowercase()
}
