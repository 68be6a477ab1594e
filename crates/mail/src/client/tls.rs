//! Connections to the IMAP server.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_imap::Client;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::error::{ImapError, words};
use crate::server::{Security, Server};

/// Longest time to connect and to greet.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// A connection, with or without TLS.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Debug + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Debug + Send + Unpin> Socket for S {}

/// Makes TLS connections with the certificates that the system trusts.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Reads the certificates.
    ///
    /// # Errors
    /// The system has none, or they cannot be read.
    pub(crate) fn new() -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        let system = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(system.certs);
        if roots.is_empty() {
            let why = system.errors.first().map(ToString::to_string).unwrap_or_default();
            return Err(format!("the system has no root certificates for TLS {why}"));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| error.to_string())?;
        Ok(Self(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
    }

    async fn over(&self, host: &str, socket: Box<dyn Socket>) -> Result<Box<dyn Socket>, ImapError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|error| ImapError::Lost(words(error)))?;
        let stream = TlsConnector::from(Arc::clone(&self.0)).connect(name, socket).await;
        Ok(Box::new(stream.map_err(|error| ImapError::Lost(format!("TLS: {}", words(error))))?))
    }
}

/// Connects and reads the greeting. `tls` may be absent for a server that is connected without.
pub(crate) async fn connect(server: &Server, tls: Option<&Tls>) -> Result<Client<Box<dyn Socket>>, ImapError> {
    timeout(CONNECT_LIMIT, greeted(server, tls)).await.map_err(|_elapsed| ImapError::Silent)?
}

async fn greeted(server: &Server, tls: Option<&Tls>) -> Result<Client<Box<dyn Socket>>, ImapError> {
    let tcp = TcpStream::connect((server.host.as_str(), server.port)).await?;
    tcp.set_nodelay(true)?;
    let plain: Box<dyn Socket> = Box::new(tcp);
    let tls = || tls.ok_or_else(|| ImapError::Lost("TLS is not available".to_owned()));
    let socket = match server.security {
        Security::Plain => plain,
        Security::Tls => tls()?.over(&server.host, plain).await?,
        Security::StartTls => {
            let mut client = read_greeting(Client::new(plain)).await?;
            client.run_command_and_check_ok("STARTTLS", None).await?;
            // Bytes that came before TLS stay in the client that is dropped here.
            return Ok(Client::new(tls()?.over(&server.host, client.into_inner()).await?));
        }
    };
    read_greeting(Client::new(socket)).await
}

async fn read_greeting(mut client: Client<Box<dyn Socket>>) -> Result<Client<Box<dyn Socket>>, ImapError> {
    match client.read_response().await? {
        Some(_) => Ok(client),
        None => Err(ImapError::Lost("the server has closed the connection".to_owned())),
    }
}
