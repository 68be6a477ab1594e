//! The cookie of a sign-in.

use axum::http::header::{COOKIE, ORIGIN};
use axum::http::{HeaderMap, HeaderValue};

/// The name over HTTP. Without TLS there is no prefix that browsers accept.
const NAME: &str = "belay_console";
/// The name over TLS. Browsers accept it only with `Secure`, for this host, and for all paths.
/// Source: RFC 6265bis, section 4.1.3.2.
const SECURE_NAME: &str = "__Host-belay_console";

/// Length of a secret in bytes.
pub(crate) const SECRET_BYTES: usize = 64;

/// The secret in the cookies of a request. `None`: there is none that could be one. With two, the one over TLS counts.
pub(crate) fn secret(headers: &HeaderMap) -> Option<&str> {
    let secret = named(headers, SECURE_NAME).or_else(|| named(headers, NAME))?;
    let is_secret = secret.len() == SECRET_BYTES && secret.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_secret.then_some(secret)
}

/// The value of the first cookie of this name.
fn named<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok()).flat_map(|all| all.split(';'));
    let mut pairs = all.filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// The header that sets the cookie for this many seconds; 0 deletes it. The origin of the request, or the cookie that it
/// has, tells whether the browser sees TLS, also behind a proxy.
pub(crate) fn set(headers: &HeaderMap, secret: &str, max_age_s: i64) -> Option<HeaderValue> {
    let tls = headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
    let tls = tls || named(headers, SECURE_NAME).is_some();
    let (name, secure) = if tls { (SECURE_NAME, "; Secure") } else { (NAME, "") };
    let cookie = format!("{name}={secret}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{secure}");
    let mut value = HeaderValue::from_str(&cookie).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (name.parse().expect("a name"), value.parse().expect("a value"))).collect()
    }

    #[test]
    fn a_secret_is_found_among_other_cookies() {
        let (one, two) = ("a1".repeat(32), "b2".repeat(32));
        for (cookies, expected) in [
            (vec![], None),
            (vec![format!("belay_console={one}")], Some(&one)),
            (vec![format!("theme=dark; belay_console={one}; x=y")], Some(&one)),
            (vec!["theme=dark".to_owned(), format!("belay_console={one}")], Some(&one)),
            (vec![format!("belay_console={one}; __Host-belay_console={two}")], Some(&two)),
            (vec![format!("my_belay_console={one}")], None),
            (vec![format!("belay_console={one}0")], None),
            (vec!["belay_console=".to_owned()], None),
            (vec![format!("belay_console={}", "z".repeat(64))], None),
        ] {
            let cookies: Vec<_> = cookies.iter().map(String::as_str).collect();
            assert_eq!(secret(&headers("cookie", &cookies)), expected.map(String::as_str), "{cookies:?}");
        }
    }

    #[test]
    fn the_cookie_is_secure_where_the_browser_sees_tls() {
        let over = |origin: &str| set(&headers("origin", &[origin]), "s", 60);
        let text = |value: Option<HeaderValue>| value.and_then(|value| value.to_str().map(str::to_owned).ok());
        let plain = "belay_console=s; Path=/; Max-Age=60; HttpOnly; SameSite=Strict";
        assert_eq!(text(over("http://localhost:8787")).as_deref(), Some(plain));
        let secure = "__Host-belay_console=s; Path=/; Max-Age=60; HttpOnly; SameSite=Strict; Secure";
        assert_eq!(text(over("https://belay.example")).as_deref(), Some(secure));
        let kept = set(&headers("cookie", &["__Host-belay_console=s"]), "s", 60);
        assert_eq!(text(kept).as_deref(), Some(secure), "a GET of the same origin has no Origin");
        assert!(over("http://localhost").is_some_and(|value| value.is_sensitive()));
    }
}
