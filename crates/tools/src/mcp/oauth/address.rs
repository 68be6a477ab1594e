//! Checks the addresses that servers name.

use std::net::Ipv4Addr;

use url::{Host, Url};

use crate::mcp::config::is_loopback;
use crate::mcp::untrusted::line;

/// Longest address, in bytes.
const MAX_ADDRESS: usize = 2048;

/// Checks an address that a server names: https, or on this machine if the server itself is. Otherwise a server elsewhere
/// could have this daemon ask the programs of this machine, or send secrets unencrypted. `what` names the address in the
/// error: "the token endpoint".
///
/// # Errors
/// A sentence.
pub(super) fn checked(text: &str, what: &str, server: &Url) -> Result<Url, String> {
    let shown = line(text, 200);
    let url = Url::parse(text).map_err(|_| format!("{what} is no address: {shown}"))?;
    let has_user = !url.username().is_empty() || url.password().is_some();
    if text.len() > MAX_ADDRESS || has_user || !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(format!("{what} cannot be used: {shown}"));
    }
    if is_here(&url) {
        if is_loopback(server) {
            return Ok(url);
        }
        return Err(format!("{what} is on this machine, and the server is not: {shown}"));
    }
    if url.scheme() == "https" { Ok(url) } else { Err(format!("{what} is not https: {shown}")) }
}

/// Whether an address is one of this machine, also by a name that only the system takes for it.
fn is_here(url: &Url) -> bool {
    let is_own = |ip: Ipv4Addr| ip.is_loopback() || ip.is_unspecified();
    is_loopback(url)
        || match url.host() {
            Some(Host::Ipv4(ip)) => is_own(ip),
            Some(Host::Ipv6(ip)) => ip.is_unspecified() || ip.to_ipv4_mapped().is_some_and(is_own),
            _ => false,
        }
}

/// The well-known addresses of a document about `of`, in the order in which they are asked: with the path of `of`, and without.
///
/// Source: RFC 9728, section 3.1.
pub(super) fn resource_documents(of: &Url) -> Vec<Url> {
    let path = of.path().trim_end_matches('/');
    let mut documents = Vec::new();
    for path in [path, ""] {
        let document = at(of, &format!("/.well-known/oauth-protected-resource{path}"));
        if !documents.contains(&document) {
            documents.push(document);
        }
    }
    documents
}

/// The addresses of the metadata of an authorization server, in the order in which they are asked.
///
/// Source: MCP 2025-11-25, "Authorization", "Authorization Server Metadata Discovery".
pub(super) fn issuer_documents(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let mut documents = vec![
        at(issuer, &format!("/.well-known/oauth-authorization-server{path}")),
        at(issuer, &format!("/.well-known/openid-configuration{path}")),
    ];
    if !path.is_empty() {
        documents.push(at(issuer, &format!("{path}/.well-known/openid-configuration")));
    }
    documents
}

/// The address of a path at the origin of another one.
fn at(origin: &Url, path: &str) -> Url {
    let mut url = origin.clone();
    url.set_path(path);
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// Whether a resource covers a server: the same origin, and the path of the server or a beginning of it.
pub(super) fn covers(resource: &Url, server: &Url) -> bool {
    let (path, of_server) = (resource.path().trim_end_matches('/'), server.path().trim_end_matches('/'));
    let rest = of_server.strip_prefix(path);
    resource.fragment().is_none()
        && resource.origin() == server.origin()
        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn only_https_is_used_unless_both_are_on_this_machine() {
        for (server, text, is_fine) in [
            ("https://h/mcp", "https://as.example/token", true),
            ("https://h/mcp", "http://as.example/token", false),
            ("https://h/mcp", "http://127.0.0.1/token", false),
            ("https://h/mcp", "https://localhost/token", false),
            ("https://h/mcp", "https://0.0.0.0/token", false),
            ("https://h/mcp", "https://[::]/token", false),
            ("https://h/mcp", "https://[::ffff:127.0.0.1]/token", false),
            ("https://h/mcp", "https://[::ffff:0.0.0.0]/token", false),
            ("http://127.0.0.1:1/mcp", "http://localhost:2/token", true),
            ("http://127.0.0.1:1/mcp", "https://as.example/token", true),
            ("http://127.0.0.1:1/mcp", "http://as.example/token", false),
            ("https://h/mcp", "https://me@as.example/token", false),
            ("https://h/mcp", "javascript:alert(1)", false),
            ("https://h/mcp", "file:///etc/passwd", false),
            ("https://h/mcp", "/token", false),
        ] {
            assert_eq!(checked(text, "it", &url(server)).is_ok(), is_fine, "{server} {text}");
        }
        let long = format!("https://h/{}", "a".repeat(MAX_ADDRESS));
        assert!(checked(&long, "it", &url("https://h/")).unwrap_err().len() < 300);
    }

    #[test]
    fn documents_are_asked_for_with_the_path_first() {
        let texts = |urls: Vec<Url>| urls.into_iter().map(String::from).collect::<Vec<_>>();
        assert_eq!(
            texts(resource_documents(&url("https://h/a/mcp?x=1"))),
            ["https://h/.well-known/oauth-protected-resource/a/mcp", "https://h/.well-known/oauth-protected-resource"]
        );
        assert_eq!(texts(resource_documents(&url("https://h/"))), ["https://h/.well-known/oauth-protected-resource"]);
        assert_eq!(
            texts(issuer_documents(&url("https://h/t"))),
            [
                "https://h/.well-known/oauth-authorization-server/t",
                "https://h/.well-known/openid-configuration/t",
                "https://h/t/.well-known/openid-configuration",
            ]
        );
        assert_eq!(issuer_documents(&url("https://h")).len(), 2);
    }

    #[test]
    fn a_resource_covers_its_server_and_what_is_below() {
        for (resource, covered) in [
            ("https://h/mcp", true),
            ("https://h/mcp/", true),
            ("https://h/", true),
            ("https://h", true),
            ("https://h/mc", false),
            ("https://h/mcp/x", false),
            ("https://h:1/mcp", false),
            ("http://h/mcp", false),
            ("https://other/mcp", false),
            ("https://h/mcp#x", false),
        ] {
            assert_eq!(covers(&url(resource), &url("https://h/mcp")), covered, "{resource}");
        }
    }
}
