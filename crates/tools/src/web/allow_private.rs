//! Exceptions of the operator for addresses that are not public: a network, or one port of one host.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use url::Host;

use super::net::Net;

/// One entry of `tools.web.allow_private`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AllowPrivate {
    /// These addresses, at the allowed ports.
    Net(Net),
    /// This host (a name or an address) at this port, with any address that the name resolves to.
    HostPort(Host, u16),
}

impl AllowPrivate {
    /// Whether the exception covers this port of this host.
    pub(super) fn covers_host(&self, host: &Host<&str>, port: u16) -> bool {
        matches!(self, Self::HostPort(open, at) if *at == port && same(open, host))
    }

    /// Whether the exception covers this address.
    pub(super) fn covers_address(&self, address: IpAddr) -> bool {
        matches!(self, Self::Net(net) if net.contains(address))
    }
}

fn same(open: &Host, host: &Host<&str>) -> bool {
    match (open, host) {
        (Host::Domain(open), Host::Domain(host)) => open == host.trim_end_matches('.'),
        (Host::Ipv4(open), Host::Ipv4(host)) => open == host,
        (Host::Ipv6(open), Host::Ipv6(host)) => open == host,
        _ => false,
    }
}

impl FromStr for AllowPrivate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(net) = text.parse() {
            return Ok(Self::Net(net));
        }
        let wrong = || {
            format!("{text:?} is neither a network such as \"10.0.0.0/8\" nor a host with a port such as \"wiki:8080\"")
        };
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let host = Host::parse(host).map_err(|_| wrong())?;
        match port.parse() {
            Ok(port) if port > 0 => Ok(Self::HostPort(host, port)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for AllowPrivate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(net) => net.fmt(f),
            Self::HostPort(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_exception_is_a_network_or_a_host_with_a_port() {
        for (text, read) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("fd00::/8", "fd00::/8"),
            ("127.0.0.1", "127.0.0.1/32"),
            ("::1", "::1/128"),
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("[::1]:8080", "[::1]:8080"),
            ("Wiki.Example:443", "wiki.example:443"),
        ] {
            assert_eq!(text.parse::<AllowPrivate>().unwrap().to_string(), read);
        }
        for text in ["", "wiki", "wiki:", "wiki:0", "wiki:70000", "http://wiki:80", "10.0.0.0/0", "a b:80", ":80"] {
            assert!(text.parse::<AllowPrivate>().unwrap_err().contains("is neither"), "{text}");
        }
    }

    #[test]
    fn a_host_exception_covers_only_its_own_port() {
        let allow_private: AllowPrivate = "wiki.example:8080".parse().unwrap();
        assert!(allow_private.covers_host(&Host::Domain("wiki.example"), 8080));
        assert!(allow_private.covers_host(&Host::Domain("wiki.example."), 8080));
        assert!(!allow_private.covers_host(&Host::Domain("wiki.example"), 8081));
        assert!(!allow_private.covers_host(&Host::Domain("a.wiki.example"), 8080));
    }
}
