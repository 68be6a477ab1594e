//! Sends a mail, in steps.
//!
//! The library's own `send` reports a connection that was lost before the text as it does one that was lost behind it
//! (its kind is `Response` for both). So the steps are taken one by one: before the text nothing is sent, and behind it
//! nobody knows without an answer.

use std::time::Duration;

use lettre::Address;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::ClientId;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::timeout;

use super::error::words;
use crate::server::{Security, Server};

/// Longest time of all steps before the text.
const BEGIN_LIMIT: Duration = Duration::from_secs(40);

/// Longest wait for the goodbye, which changes nothing.
const QUIT_LIMIT: Duration = Duration::from_secs(2);

/// The ways to log in, the preferred first.
const MECHANISMS: [Mechanism; 2] = [Mechanism::Plain, Mechanism::Login];

/// Why a mail was not sent, or may have been.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SmtpError {
    /// Nothing was sent; it may work later.
    #[error("not sent: {0}")]
    NotSent(String),
    /// The server refuses the user or the password.
    #[error("the login is refused: {0}")]
    Login(String),
    /// The server will never take it.
    #[error("refused: {0}")]
    Refused(String),
    /// The text was sent, and no answer came.
    #[error("no answer: {0}")]
    Unknown(String),
}

/// The account at the SMTP server.
pub(crate) struct Smtp {
    server: Server,
    tls: Option<TlsParameters>,
    user: String,
    password: SecretString,
    hello: ClientId,
}

impl Smtp {
    /// # Errors
    /// TLS is not available.
    pub(crate) fn new(server: Server, user: &str, password: SecretString, domain: &str) -> Result<Self, String> {
        let tls = match server.security {
            Security::Plain => None,
            Security::Tls | Security::StartTls => {
                Some(TlsParameters::builder(server.host.clone()).build_rustls().map_err(|error| error.to_string())?)
            }
        };
        Ok(Self { server, tls, user: user.to_owned(), password, hello: ClientId::Domain(domain.to_owned()) })
    }

    /// Connects and logs in. A server of the loopback may have no login.
    pub(crate) async fn log_in(&self) -> Result<AsyncSmtpConnection, SmtpError> {
        let not_sent = |error: Error| SmtpError::NotSent(words_of(&error));
        let address = (self.server.host.as_str(), self.server.port);
        let implicit = self.tls.clone().filter(|_| self.server.security == Security::Tls);
        let connected = AsyncSmtpConnection::connect_tokio1(address, Some(BEGIN_LIMIT), &self.hello, implicit, None);
        let mut connection = connected.await.map_err(not_sent)?;
        if let (Security::StartTls, Some(tls)) = (self.server.security, self.tls.clone()) {
            connection.starttls(tls, &self.hello).await.map_err(not_sent)?;
        }
        let has_login = MECHANISMS.iter().any(|one| connection.server_info().supports_auth_mechanism(*one));
        if !has_login && self.server.security == Security::Plain {
            return Ok(connection);
        }
        let credentials = Credentials::new(self.user.clone(), self.password.expose_secret().to_owned());
        match connection.auth(&MECHANISMS, &credentials).await {
            Ok(_) => Ok(connection),
            Err(error) if error.is_permanent() => Err(SmtpError::Login(words_of(&error))),
            Err(error) => Err(not_sent(error)),
        }
    }

    /// Sends one mail to one recipient. `limit`: of the text and its answer.
    ///
    /// # Cancel safety
    /// If dropped midway, the server may have the mail.
    pub(crate) async fn send(&self, from: Address, to: Address, mail: &[u8], limit: Duration) -> Result<(), SmtpError> {
        let begun = timeout(BEGIN_LIMIT, self.begin(from, to)).await;
        let mut connection = begun.map_err(|_elapsed| SmtpError::NotSent("no answer in time".to_owned()))??;
        let answer = timeout(limit, connection.message(mail)).await;
        match answer {
            Ok(Ok(_)) => {
                let _ = timeout(QUIT_LIMIT, connection.quit()).await; // the server has the mail
                Ok(())
            }
            Ok(Err(error)) => Err(match refusal(&error) {
                Some(refusal) => refusal,
                None => SmtpError::Unknown(words_of(&error)),
            }),
            Err(_elapsed) => Err(SmtpError::Unknown("no answer in time".to_owned())),
        }
    }

    /// All steps before the text.
    async fn begin(&self, from: Address, to: Address) -> Result<AsyncSmtpConnection, SmtpError> {
        let mut connection = self.log_in().await?;
        let refused = |error: Error| refusal(&error).unwrap_or_else(|| SmtpError::NotSent(words_of(&error)));
        connection.command(Mail::new(Some(from), Vec::new())).await.map_err(refused)?;
        connection.command(Rcpt::new(to, Vec::new())).await.map_err(refused)?;
        connection.command(Data).await.map_err(refused)?;
        Ok(connection)
    }
}

/// The refusal that an answer of the server is; `None`: it is no answer.
fn refusal(error: &Error) -> Option<SmtpError> {
    match (error.is_permanent(), error.is_transient()) {
        (true, _) => Some(SmtpError::Refused(words_of(error))),
        (_, true) => Some(SmtpError::NotSent(words_of(error))),
        _ => None,
    }
}

fn words_of(error: &Error) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |error| error.source());
    words(std::iter::once(error.to_string()).chain(causes.map(ToString::to_string)).collect::<Vec<_>>().join(": "))
}
