//! TLS of the connection, by rustls.
//!
//! The login is not bound to the TLS channel (SCRAM-SHA-256-PLUS): the certificate and the name of the server are always
//! verified, which is what the binding would add for servers with such a certificate.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use super::fault::{Cause, Ended, PgError};
use super::url::Tls;

/// Makes TLS connections, or none.
#[derive(Clone)]
pub(super) struct Connector(Option<Arc<ClientConfig>>);

impl Connector {
    /// A connector that offers no TLS.
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Reads the roots.
    ///
    /// # Errors
    /// The file of the additional root cannot be read, or no root was found.
    pub(super) fn new(tls: &Tls) -> Result<Self, PgError> {
        let Tls::VerifyFull(file) = tls else { return Ok(Self::none()) };
        let roots = roots(file.as_deref()).map_err(|detail| PgError::new(Cause::Tls, Ended::Connection, detail))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| PgError::new(Cause::Tls, Ended::Connection, error.to_string()))?;
        Ok(Self(Some(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))))
    }
}

/// The roots of the system, and those of the file.
fn roots(file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    if let Some(path) = file {
        let shown = path.display();
        let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let found = found.map_err(|error| format!("sslrootcert {shown}: {error}"))?;
        if found.is_empty() {
            return Err(format!("sslrootcert {shown} contains no certificate"));
        }
        for root in found {
            roots.add(root).map_err(|error| format!("sslrootcert {shown}: {error}"))?;
        }
    }
    match system.errors.first() {
        Some(error) if roots.is_empty() => Err(format!("the root certificates of the system cannot be read: {error}")),
        None if roots.is_empty() => Err("the system has no root certificates: name one with sslrootcert=/PATH".into()),
        _ => Ok(roots),
    }
}

impl MakeTlsConnect<Socket> for Connector {
    type Stream = Stream;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        Ok(Handshake { config: self.0.clone(), host: host.to_owned() })
    }
}

/// The handshake with one server.
pub(super) struct Handshake {
    config: Option<Arc<ClientConfig>>,
    host: String,
}

impl TlsConnect<Socket> for Handshake {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let config = self.config.ok_or_else(|| io::Error::other("TLS is disabled"))?;
            let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
            Ok(Stream(TlsConnector::from(config).connect(name, socket).await?))
        })
    }
}

/// An encrypted connection.
pub(super) struct Stream(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
