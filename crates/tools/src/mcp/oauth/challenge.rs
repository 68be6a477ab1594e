//! Reads the header with which a server asks for a token.

/// Longest header that is read, in bytes.
const MAX_HEADER: usize = 8 * 1024;

/// Most scopes, and most bytes of all of them.
const MAX_SCOPES: (usize, usize) = (100, 4096);

/// The answer of a server that refuses a token, or asks for one.
///
/// Source: RFC 6750, section 3; RFC 9728, section 5.1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Challenge {
    /// The address of the metadata of the resource.
    pub(super) resource_metadata: Option<String>,
    /// The scopes that the request needs.
    pub(super) scopes: Vec<String>,
    error: Option<String>,
}

impl Challenge {
    /// Reads a header `WWW-Authenticate`. What is not of the scheme `Bearer` is ignored.
    pub(super) fn read(header: &str) -> Self {
        let mut challenge = Self::default();
        if header.len() > MAX_HEADER {
            return challenge;
        }
        let mut is_bearer = false;
        for part in parts(header) {
            let (before, value) = part.split_once('=').unwrap_or((part, ""));
            let mut words = before.split_whitespace();
            let (first, second) = (words.next().unwrap_or_default(), words.next());
            if second.is_some() || !part.contains('=') {
                is_bearer = first.eq_ignore_ascii_case("bearer");
            }
            if !is_bearer {
                continue;
            }
            let value = unquoted(value);
            match second.unwrap_or(first).to_ascii_lowercase().as_str() {
                "resource_metadata" => challenge.resource_metadata = Some(value),
                "scope" => challenge.scopes = scopes(&value),
                "error" => challenge.error = Some(value),
                _ => {}
            }
        }
        challenge
    }

    /// Whether the token is good, and lacks a scope.
    pub(super) fn wants_scope(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }
}

/// The scopes of a text, without those that cannot be one.
///
/// Source: RFC 6749, section 3.3.
pub(super) fn scopes(text: &str) -> Vec<String> {
    let fits = |scope: &&str| scope.chars().all(|c| matches!(c, '!' | '#'..='[' | ']'..='~'));
    let (mut scopes, mut length) = (Vec::<String>::new(), 0);
    for scope in text.split_whitespace().filter(fits) {
        length += scope.len();
        if scopes.len() == MAX_SCOPES.0 || length > MAX_SCOPES.1 {
            break;
        }
        if !scopes.iter().any(|known| known == scope) {
            scopes.push(scope.to_owned());
        }
    }
    scopes
}

/// The parts of a header between its commas, except for commas in quotes.
fn parts(header: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, c) in header.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ',' if !quoted => {
                parts.push(header[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(header[begin..].trim());
    parts
}

fn unquoted(value: &str) -> String {
    let value = value.trim();
    let Some(inner) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return value.to_owned() };
    let (mut text, mut escaped) = (String::new(), false);
    for c in inner.chars() {
        match c {
            '\\' if !escaped => escaped = true,
            c => {
                text.push(c);
                escaped = false;
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_servers_write_them() {
        let full = r#"Bearer error="insufficient_scope", scope="a:b c", resource_metadata="https://h/x,y""#;
        let challenge = Challenge::read(full);
        assert_eq!((challenge.wants_scope(), &*challenge.scopes), (true, &["a:b".to_owned(), "c".to_owned()][..]));
        assert_eq!(challenge.resource_metadata.as_deref(), Some("https://h/x,y"));
        for (header, scopes) in [
            ("Bearer", vec![]),
            ("bearer scope=a", vec!["a"]),
            (r#"Basic realm="x, Bearer", BEARER realm="y",Scope = "a""#, vec!["a"]),
            (r#"Bearer realm="x", Basic scope="no""#, vec![]),
            (r#"Digest scope="no""#, vec![]),
            (r#"Bearer scope="a a \"b\" c\d é""#, vec!["a", "cd"]),
            ("", vec![]),
            (",,==,\"", vec![]),
        ] {
            assert_eq!(Challenge::read(header).scopes, scopes, "{header}");
        }
        let long = format!("Bearer scope=\"{}\"", "a ".repeat(MAX_HEADER));
        assert_eq!(Challenge::read(&long), Challenge::default());
    }

    #[test]
    fn scopes_have_a_bound() {
        let many: String = (0..1000).map(|number| format!("s{number} ")).collect();
        assert_eq!(scopes(&many).len(), MAX_SCOPES.0);
        assert!(scopes(&"a".repeat(MAX_SCOPES.1 + 1)).is_empty());
    }
}
