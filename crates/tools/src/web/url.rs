//! Checks the URLs to fetch: their form and their target. Pure.

use std::net::IpAddr;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use url::{Host, Url};

use super::address;
use super::allow_private::AllowPrivate;
use super::config::WebConfig;

/// Longest URL, in bytes. Servers commonly accept 8 KiB of headers in all. A longer URL usually smuggles data out.
const MAX_URL_BYTES: usize = 4096;

/// Names of this machine or its local network, whatever a name server answers. RFC 6761, 6762, 7686, 8375, 9476;
/// `internal` is reserved by ICANN.
const LOCAL_NAMES: &[&str] =
    &["localhost", "localdomain", "local", "internal", "intranet", "lan", "home.arpa", "onion", "alt", "invalid"];

/// The rules of the configuration.
#[derive(Debug)]
pub(super) struct Rules {
    ports: Vec<u16>,
    allow_private: Vec<AllowPrivate>,
    /// `None`: all hosts are allowed.
    allow: Option<GlobSet>,
    deny: GlobSet,
}

/// A URL that may be fetched, as far as this is known before its host name is resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The URL without fragment, user and password.
    pub(super) url: Url,
    /// The port to connect to.
    pub(super) port: u16,
    /// Whether an exception of the operator names this host and port.
    opened: bool,
}

impl Target {
    /// The host of the URL.
    pub(super) fn host(&self) -> Host<&str> {
        self.url.host().expect("an address without a host is no target")
    }

    /// Scheme, host and port: `https://example.com`.
    pub(super) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }
}

impl Rules {
    /// The rules of a valid configuration.
    ///
    /// # Errors
    /// The first problem that [`WebConfig::validate`] returns.
    pub(super) fn new(config: &WebConfig) -> Result<Self, String> {
        if let Some(problem) = config.validate().into_iter().next() {
            return Err(problem);
        }
        Ok(Self {
            ports: config.ports.clone(),
            allow_private: config.allow_private.iter().map(|entry| entry.parse()).collect::<Result<_, _>>()?,
            allow: if config.allow_hosts.is_empty() { None } else { Some(globs(&config.allow_hosts)?) },
            deny: globs(&config.deny_hosts)?,
        })
    }

    /// Parses a URL in the same way as browsers, after refusing unusual spellings that hide the target.
    ///
    /// # Errors
    /// The problem with the URL, for the model.
    pub(super) fn target(&self, text: &str) -> Result<Target, String> {
        let text = text.trim_matches(' ');
        plain(text)?;
        let url = Url::parse(text).map_err(|error| {
            format!("This is no address that can be fetched: {error}. Write it like https://example.com/page.")
        })?;
        self.admit(url)
    }

    /// Resolves and checks the target of a redirect.
    ///
    /// # Errors
    /// Why the redirect is not followed, for the model.
    pub(super) fn redirected(&self, from: &Target, location: &str) -> Result<Target, String> {
        let refused = |why: String| format!("{} redirects to an address that is not fetched. {why}", from.origin());
        plain(location).map_err(refused)?;
        let url = from.url.join(location).map_err(|error| refused(format!("It cannot be read: {error}.")))?;
        if from.url.scheme() == "https" && url.scheme() == "http" {
            return Err(refused("It leads from https to http, where everybody on the way could change it.".into()));
        }
        self.admit(url).map_err(refused)
    }

    /// Checks whether a connection to this address of the target is allowed.
    ///
    /// # Errors
    /// Why it is not allowed, for the model.
    pub(super) fn check_address(&self, target: &Target, address: IpAddr) -> Result<(), String> {
        let effective = address::effective(address);
        if target.opened || self.allow_private.iter().any(|entry| entry.covers_address(effective)) {
            return Ok(());
        }
        let host = target.host().to_string();
        address::check(address).map_err(|why| {
            // The private address of a name is not repeated, because that would reveal the internal network to readers
            // of the conversation.
            let leads = if matches!(target.host(), Host::Domain(_)) { "leads to" } else { "is" };
            format!(
                "{host} {leads} {why}. Only public addresses are fetched; the operator can open others in \
                 tools.web.allow_private."
            )
        })
    }

    fn admit(&self, mut url: Url) -> Result<Target, String> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("Addresses of the kind {}: are not fetched; only http and https are.", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("An address with a user or password (the part before @) is not fetched. Leave it away.".into());
        }
        url.set_fragment(None);
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err("This address names no host. Write it like https://example.com/page.".into());
        };
        let opened = self.allow_private.iter().any(|entry| entry.covers_host(&host, port));
        self.check_host(&host, opened)?;
        if !opened && !self.ports.contains(&port) {
            let ports: Vec<_> = self.ports.iter().map(u16::to_string).collect();
            return Err(format!(
                "Port {port} is not fetched from; the ports {} are. The operator can open others in tools.web.ports.",
                ports.join(", ")
            ));
        }
        let literal = match host {
            Host::Ipv4(ip) => Some(IpAddr::V4(ip)),
            Host::Ipv6(ip) => Some(IpAddr::V6(ip)),
            Host::Domain(_) => None,
        };
        let target = Target { url, port, opened };
        match literal {
            Some(address) => self.check_address(&target, address).map(|()| target),
            None => Ok(target),
        }
    }

    /// Applies the operator's lists of hosts, and refuses names that are never public.
    fn check_host(&self, host: &Host<&str>, opened: bool) -> Result<(), String> {
        let text = host.to_string();
        let name = text.trim_end_matches('.');
        if self.deny.is_match(name) || self.allow.as_ref().is_some_and(|allow| !allow.is_match(name)) {
            return Err(format!(
                "The operator's settings do not let {name} be fetched (tools.web.deny_hosts, allow_hosts)."
            ));
        }
        let Host::Domain(_) = host else { return Ok(()) };
        let local = LOCAL_NAMES
            .iter()
            .any(|local| name.strip_suffix(local).is_some_and(|before| before.is_empty() || before.ends_with('.')));
        if !opened && (local || !name.contains('.')) {
            return Err(format!(
                "{name} is a name of this machine or its own network. Only public addresses are fetched; the operator \
                 can open others in tools.web.allow_private."
            ));
        }
        Ok(())
    }
}

/// Refuses spellings that programs parse differently: a check and a connection could disagree on the host.
fn plain(text: &str) -> Result<(), String> {
    if text.len() > MAX_URL_BYTES {
        return Err(format!("The address has {} bytes; at most {MAX_URL_BYTES} are fetched.", text.len()));
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("The address has spaces or control characters in it. Write them as %20 and the like.".into());
    }
    if text.contains('\\') {
        return Err("The address has a backslash in it. Write / between its parts, or %5C for the character.".into());
    }
    Ok(())
}

fn globs(patterns: &[String]) -> Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(GlobBuilder::new(pattern).case_insensitive(true).build().map_err(|error| error.to_string())?);
    }
    set.build().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn rules(change: impl FnOnce(&mut WebConfig)) -> Rules {
        let mut config = WebConfig::default();
        change(&mut config);
        Rules::new(&config).unwrap()
    }

    #[test]
    fn ordinary_addresses_are_read_as_browsers_read_them() {
        for (given, read) in [
            ("https://example.com", "https://example.com/"),
            (" https://Example.COM:443/a?b=c#d ", "https://example.com/a?b=c"),
            ("http://example.com:8080/a%20b", "http://example.com:8080/a%20b"),
            ("https://bücher.example/", "https://xn--bcher-kva.example/"),
            ("https://example.com./", "https://example.com./"),
            ("https://8.8.8.8/", "https://8.8.8.8/"),
            ("https://[2606:4700:4700::1111]/", "https://[2606:4700:4700::1111]/"),
            ("https://notlocalhost.com/", "https://notlocalhost.com/"),
            ("https://localhost.com/", "https://localhost.com/"),
        ] {
            assert_eq!(rules(|_| ()).target(given).unwrap().url.as_str(), read, "{given}");
        }
    }

    #[test]
    fn the_operators_lists_decide_about_hosts() {
        let rules = rules(|config| {
            config.allow_hosts = vec!["*.example.com".into(), "8.8.8.8".into()];
            config.deny_hosts = vec!["bad.*".into()];
        });
        for (url, allowed) in [
            ("https://www.example.com/", true),
            ("https://WWW.EXAMPLE.COM./", true),
            ("https://8.8.8.8/", true),
            ("https://example.org/", false),
            ("https://example.com/", false),
            ("https://bad.example.com/", false),
            ("https://1.1.1.1/", false),
        ] {
            assert_eq!(rules.target(url).is_ok(), allowed, "{url}");
        }
    }

    #[test]
    fn exceptions_allow_exactly_the_listed_addresses() {
        let rules = rules(|config| {
            config.allow_private =
                vec!["127.0.0.1:3000".into(), "wiki:8000".into(), "10.0.0.0/8".into(), "[::1]:3000".into()];
        });
        for (url, allowed) in [
            ("http://127.0.0.1:3000/", true),
            ("http://127.1:3000/", true),
            ("http://127.0.0.1/", false),
            ("http://127.0.0.2:3000/", false),
            ("http://[::1]:3000/", true),
            ("http://wiki:8000/", true),
            ("http://wiki/", false),
            ("http://10.1.2.3/", true),
            ("http://10.1.2.3:9/", false),
            ("http://[::ffff:10.1.2.3]/", true),
            ("http://11.1.2.3/", true),
            ("http://192.168.0.1/", false),
        ] {
            assert_eq!(rules.target(url).is_ok(), allowed, "{url}");
        }
    }

    #[test]
    fn a_redirect_is_held_to_the_same_rules_and_never_leaves_https() {
        let rules = rules(|_| ());
        let from = rules.target("https://example.com/a/b").unwrap();
        for (location, read) in [
            ("c", Some("https://example.com/a/c")),
            ("/c", Some("https://example.com/c")),
            ("//example.org/c", Some("https://example.org/c")),
            ("https://example.org/#x", Some("https://example.org/")),
            ("http://example.org/", None),
            ("file:///etc/passwd", None),
            ("//127.0.0.1/", None),
            ("//localhost/", None),
            ("//me@example.org/", None),
            ("/a\tb", None),
            ("\\\\127.0.0.1\\", None),
            ("https://example.org:22/", None),
        ] {
            let seen = rules.redirected(&from, location);
            assert_eq!(seen.as_ref().ok().map(|target| target.url.as_str()), read, "{location}: {seen:?}");
        }
        let plain = rules.target("http://example.com/").unwrap();
        assert!(rules.redirected(&plain, "https://example.com/").is_ok());
    }
}
