//! The addresses of mail servers, as the settings have them.

use std::net::IpAddr;

use url::Url;

/// A mail server, and how its connections are protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The name or the IP address of the host. Certificates are checked against it.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The protection of a connection.
    pub security: Security,
}

/// The protection of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// TLS from the first byte (RFC 8314).
    Tls,
    /// STARTTLS before the login. A server that does not offer it is not used.
    StartTls,
    /// None. Only for a loopback address.
    Plain,
}

/// A protocol of mail servers, with its default ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `imaps://` (993) and `imap://` (143).
    Imap,
    /// `smtps://` (465) and `smtp://` (587).
    Smtp,
}

impl Server {
    /// Reads an address such as `imaps://mail.example.org` or `smtp://mail.example.org:587`. The scheme with `s` is
    /// TLS; the other one is STARTTLS, and no protection for an IP address of the loopback. `None`: it is no such
    /// address.
    pub fn parse(text: &str, protocol: Protocol) -> Option<Self> {
        let url = Url::parse(text).ok()?;
        let (is_tls, port) = match (protocol, url.scheme()) {
            (Protocol::Imap, "imaps") => (true, 993),
            (Protocol::Imap, "imap") => (false, 143),
            (Protocol::Smtp, "smtps") => (true, 465),
            (Protocol::Smtp, "smtp") => (false, 587),
            _ => return None,
        };
        let has_more = !url.username().is_empty() || url.password().is_some() || url.query().is_some();
        if has_more || !matches!(url.path(), "" | "/") || url.fragment().is_some() {
            return None;
        }
        let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_loopback = host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
        let security = match (is_tls, is_loopback) {
            (true, _) => Security::Tls,
            (false, true) => Security::Plain,
            (false, false) => Security::StartTls,
        };
        (!host.is_empty()).then_some(Self { host, port: url.port().unwrap_or(port), security })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_protection_is_of_the_loopback() {
        let server = |host: &str, port, security| Some(Server { host: host.to_owned(), port, security });
        for (text, protocol, expected) in [
            ("imaps://mail.example.org", Protocol::Imap, server("mail.example.org", 993, Security::Tls)),
            ("imap://mail.example.org", Protocol::Imap, server("mail.example.org", 143, Security::StartTls)),
            ("imap://localhost", Protocol::Imap, server("localhost", 143, Security::StartTls)),
            ("imap://127.0.0.1:1143", Protocol::Imap, server("127.0.0.1", 1143, Security::Plain)),
            ("imap://[::1]:1143/", Protocol::Imap, server("::1", 1143, Security::Plain)),
            ("imaps://127.0.0.1", Protocol::Imap, server("127.0.0.1", 993, Security::Tls)),
            ("smtps://mail.example.org:4650", Protocol::Smtp, server("mail.example.org", 4650, Security::Tls)),
            ("smtp://192.0.2.1", Protocol::Smtp, server("192.0.2.1", 587, Security::StartTls)),
            ("smtp://mail.example.org", Protocol::Imap, None),
            ("https://mail.example.org", Protocol::Imap, None),
            ("mail.example.org", Protocol::Imap, None),
            ("imaps://ann:secret@mail.example.org", Protocol::Imap, None),
            ("imaps://mail.example.org/INBOX", Protocol::Imap, None),
            ("imaps:mail.example.org", Protocol::Imap, None),
        ] {
            assert_eq!(Server::parse(text, protocol), expected, "{text}");
        }
    }
}
