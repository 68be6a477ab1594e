//! Loopback addresses, and HTTP clients without certificates to reach them.

use url::{Host, Url};

/// Whether a URL names this machine.
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

/// Whether an address is a plain `http://` URL of this machine.
pub fn is_plain_loopback(address: &str) -> bool {
    Url::parse(address).is_ok_and(|url| url.scheme() == "http" && is_loopback(&url))
}

/// A builder of clients for plain addresses. It reads no root certificates: on many systems they are a directory of 150
/// files. Reading it would take longer than the rest of the start, and 10 MiB.
pub fn plain_client() -> reqwest::ClientBuilder {
    reqwest::Client::builder().tls_certs_only([])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_addresses_of_this_machine_are_recognised() {
        for (address, plain) in [
            ("http://127.0.0.1:8080/v1", true),
            ("http://localhost/", true),
            ("http://[::1]:1", true),
            ("https://127.0.0.1/", false),
            ("http://10.0.0.1/", false),
            ("http://localhost.example.org/", false),
            ("localhost:8080", false),
            ("", false),
        ] {
            assert_eq!(is_plain_loopback(address), plain, "{address}");
        }
    }
}
