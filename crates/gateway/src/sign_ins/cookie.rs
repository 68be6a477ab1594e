//! The cookie of a sign-in.

use axum::http::header::{COOKIE, ORIGIN, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue};

/// The name over HTTP, before the port. Without TLS there is no prefix that browsers accept.
const NAME: &str = "belay_console";
/// The name over TLS, before the port. Browsers accept it only with `Secure`, for this host, and for all paths.
/// Source: RFC 6265bis, section 4.1.3.2.
const TLS_NAME: &str = "__Host-belay_console";

/// Length of a secret in bytes.
const SECRET_BYTES: usize = 64;

/// Most cookies of one request that are tried. Another service of this host may set one of the same name.
const CANDIDATES: usize = 3;

/// The cookies of one daemon. Cookies do not know ports, so the name has that of the daemon: two of them on one host must
/// not sign each other out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cookies {
    port: u16,
}

/// A secret in a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate<'a> {
    /// The secret.
    pub(crate) secret: &'a str,
    /// Whether it is the cookie over TLS.
    pub(crate) tls: bool,
}

impl Cookies {
    /// Those of a daemon that listens on this port; 0: on none.
    pub(crate) fn new(port: u16) -> Self {
        Self { port }
    }

    fn name(self, tls: bool) -> String {
        format!("{}_{}", if tls { TLS_NAME } else { NAME }, self.port)
    }

    /// The secrets in the cookies of a request, those over TLS first. If the request shows that the browser sees TLS, only
    /// those: a page without TLS could have set the others.
    pub(crate) fn candidates(self, headers: &HeaderMap) -> Vec<Candidate<'_>> {
        let of = |tls: bool| {
            let name = self.name(tls);
            let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
            let pairs = all.flat_map(|all| all.split(';')).filter_map(|pair| pair.trim().split_once('='));
            let named = pairs.filter(move |(known, _)| *known == name).map(|(_, secret)| secret);
            let is_secret =
                |secret: &&str| secret.len() == SECRET_BYTES && secret.bytes().all(|byte| byte.is_ascii_hexdigit());
            named.filter(is_secret).map(move |secret| Candidate { secret, tls })
        };
        let plain = of(false).filter(|_| !sees_tls(headers));
        of(true).chain(plain).take(CANDIDATES).collect()
    }

    /// The headers that set the cookie for this many seconds, and delete the other one.
    pub(crate) fn set(self, headers: &HeaderMap, secret: &str, max_age_s: i64) -> HeaderMap {
        let tls = sees_tls(headers);
        let mut set = HeaderMap::new();
        for value in [self.value(!tls, "", 0), self.value(tls, secret, max_age_s)].into_iter().flatten() {
            set.append(SET_COOKIE, value);
        }
        set
    }

    /// The headers that delete the cookie.
    pub(crate) fn delete(self) -> HeaderMap {
        let mut set = HeaderMap::new();
        for value in [false, true].into_iter().filter_map(|tls| self.value(tls, "", 0)) {
            set.append(SET_COOKIE, value);
        }
        set
    }

    fn value(self, tls: bool, secret: &str, max_age_s: i64) -> Option<HeaderValue> {
        let (name, secure) = (self.name(tls), if tls { "; Secure" } else { "" });
        let cookie = format!("{name}={secret}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{secure}");
        let mut value = HeaderValue::from_str(&cookie).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// Whether the browser sees TLS, also behind a proxy, as far as the request shows it.
pub(crate) fn sees_tls(headers: &HeaderMap) -> bool {
    headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COOKIES: Cookies = Cookies { port: 8787 };

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value"))).collect()
    }

    #[test]
    fn a_secret_is_found_among_other_cookies() {
        let (one, two) = ("a1".repeat(32), "b2".repeat(32));
        let (plain, tls) = (format!("belay_console_8787={one}"), format!("__Host-belay_console_8787={two}"));
        for (cookies, expected) in [
            (vec![], vec![]),
            (vec![plain.clone()], vec![(&one, false)]),
            (vec![format!("theme=dark; {plain}; x=y")], vec![(&one, false)]),
            (vec!["theme=dark".to_owned(), plain.clone()], vec![(&one, false)]),
            (vec![format!("{plain}; {tls}")], vec![(&two, true), (&one, false)]),
            (vec![format!("belay_console_8787={two}; {plain}")], vec![(&two, false), (&one, false)]),
            (vec![format!("belay_console_9999={one}")], vec![]),
            (vec![format!("my_{plain}")], vec![]),
            (vec![format!("{plain}0")], vec![]),
            (vec!["belay_console_8787=".to_owned()], vec![]),
            (vec![format!("belay_console_8787={}", "z".repeat(64))], vec![]),
            (vec![format!("{plain}; {plain}; {plain}; {plain}")], vec![(&one, false); CANDIDATES]),
        ] {
            let all: Vec<_> = cookies.iter().map(|cookie| ("cookie", cookie.as_str())).collect();
            let all = headers(&all);
            let found: Vec<_> = COOKIES.candidates(&all).iter().map(|it| (it.secret, it.tls)).collect();
            let expected: Vec<_> = expected.into_iter().map(|(secret, tls)| (secret.as_str(), tls)).collect();
            assert_eq!(found, expected, "{cookies:?}");
        }
        let over_tls = headers(&[("cookie", &format!("{plain}; {tls}")), ("origin", "https://belay.example")]);
        let found: Vec<_> = COOKIES.candidates(&over_tls).iter().map(|it| it.tls).collect();
        assert_eq!(found, [true], "a page without TLS could have set the other");
    }

    #[test]
    fn the_cookie_is_secure_where_the_browser_sees_tls_and_the_other_one_is_deleted() {
        let set = |origin: &str, secret: &str, age: i64| {
            let all = COOKIES.set(&headers(&[("origin", origin)]), secret, age);
            assert!(all.values().all(HeaderValue::is_sensitive));
            all.get_all(SET_COOKIE).iter().filter_map(|it| it.to_str().map(str::to_owned).ok()).collect::<Vec<_>>()
        };
        let rest = "Path=/; Max-Age=60; HttpOnly; SameSite=Strict";
        let gone = "Path=/; Max-Age=0; HttpOnly; SameSite=Strict";
        assert_eq!(
            set("http://localhost:8787", "s", 60),
            [format!("__Host-belay_console_8787=; {gone}; Secure"), format!("belay_console_8787=s; {rest}")]
        );
        assert_eq!(
            set("https://belay.example", "s", 60),
            [format!("belay_console_8787=; {gone}"), format!("__Host-belay_console_8787=s; {rest}; Secure")]
        );
        assert_eq!(COOKIES.delete().get_all(SET_COOKIE).iter().count(), 2);
    }
}
