//! Masks possible secrets in values that are shown. Settings contain none by design, but free tables (`llm.extra_body`,
//! `env`), commands and URLs can contain anything. In free tables every text is hidden, except under names that are
//! known to be harmless. Elsewhere the name decides whether a value is hidden.

use serde_json::Value as Json;
use url::Url;

use super::variable_name::is_variable_name;

/// The replacement of a possible secret.
pub(super) const MASK: &str = "***";

/// Words of names whose values may be secrets; the plural of each as well.
const SECRET_WORDS: &[&str] = &[
    "apikey",
    "auth",
    "authorization",
    "bearer",
    "cookie",
    "credential",
    "jwt",
    "key",
    "pass",
    "passcode",
    "passphrase",
    "passwd",
    "password",
    "pat",
    "private",
    "pwd",
    "secret",
    "sig",
    "signature",
    "token",
];

/// Endings of words of names whose values may be secrets: `accesstoken`, `GITHUBTOKEN`.
const SECRET_ENDS: &[&str] = &["jwt", "key", "passcode", "passphrase", "passwd", "password", "secret", "token"];

/// One-letter options whose next word may be a secret. In many programs `-k` is the key and `-p` the password.
const SECRET_OPTIONS: &[&str] = &["-k", "-p"];

/// The scheme words before a secret in the header `Authorization`.
///
/// Source: RFC 9110, section 11.6.2; some providers use `Token` and `ApiKey`.
const SCHEMES: &[&str] = &["ApiKey ", "Basic ", "Bearer ", "Digest ", "Token "];

/// URL parameters whose values are no secrets. All others are hidden: `?code=`, `?k=` and `?sig=` are keys, too.
const PLAIN_PARAMETERS: &[&str] = &[
    "alt",
    "api-version",
    "api_version",
    "beta",
    "format",
    "lang",
    "location",
    "mode",
    "model",
    "region",
    "stream",
    "version",
];

/// Tables with foreign keys. In other tables a name may be chosen by the operator, such as the name of an MCP server.
const FREE_TABLES: &[&str] = &["extra_body", "env", "environment", "headers"];

/// Lower-case names in free tables whose texts are no secrets; all other texts there are hidden.
const PLAIN_ENTRIES: &[&str] = &[
    "accept",
    "accept-language",
    "anthropic-beta",
    "anthropic-version",
    "content-type",
    "effort",
    "format",
    "home",
    "lang",
    "language",
    "lc_all",
    "log_level",
    "mode",
    "model",
    "node_env",
    "openai-beta",
    "path",
    "reasoning_effort",
    "region",
    "role",
    "rust_log",
    "service_tier",
    "type",
    "tz",
    "user-agent",
    "verbosity",
];

/// Masks a value. `name` is the last part of its key.
pub(super) fn masked(name: &str, value: &Json) -> Json {
    match (words(name).last().map(String::as_str), value) {
        // The name of a variable or a file is meant to be shown.
        (Some("env" | "envs"), Json::String(_) | Json::Array(_)) => variable(value),
        (Some("file" | "files"), Json::String(_) | Json::Array(_)) => plain(value),
        _ if FREE_TABLES.contains(&name) => free(name, value),
        (_, Json::Object(_)) => plain(value),
        _ if is_secret(name, value) => hidden(value),
        _ => plain(value),
    }
}

/// Masks a value in a free table, or the table itself.
fn free(name: &str, value: &Json) -> Json {
    match value {
        Json::Object(table) if !is_secret_name(name) => {
            table.iter().map(|(name, value)| (name.clone(), free(name, value))).collect()
        }
        Json::Array(items) if !is_secret_name(name) => items.iter().map(|item| free(name, item)).collect(),
        Json::String(text) if PLAIN_ENTRIES.contains(&name.to_lowercase().as_str()) => masked_text(text).into(),
        Json::Number(_) if !is_secret(name, value) => value.clone(),
        _ => hidden(value),
    }
}

/// Masks names of variables that are probably secrets.
fn variable(value: &Json) -> Json {
    match value {
        Json::String(text) if !looks_like_a_name(text) => MASK.into(),
        Json::Array(items) => items.iter().map(variable).collect(),
        other => other.clone(),
    }
}

/// Masks a value whose name is harmless.
fn plain(value: &Json) -> Json {
    match value {
        Json::String(text) => masked_text(text).into(),
        Json::Array(items) => masked_list(items),
        Json::Object(table) => {
            // `{ name = "Authorization", value = "…" }`
            let names = ["name", "key", "header"].into_iter().filter_map(|name| table.get(name)?.as_str());
            let telling = names.into_iter().any(is_secret_name);
            let of_entry = |name: &str, value: &Json| match name {
                "value" | "values" if telling => hidden(value),
                _ => masked(name, value),
            };
            table.iter().map(|(name, value)| (name.clone(), of_entry(name, value))).collect()
        }
        other => other.clone(),
    }
}

/// Hides every value and keeps the structure.
fn hidden(value: &Json) -> Json {
    match value {
        Json::String(text) if text.is_empty() => value.clone(),
        Json::String(_) | Json::Number(_) => MASK.into(),
        Json::Array(items) => items.iter().map(hidden).collect(),
        Json::Object(table) => table.iter().map(|(name, value)| (name.clone(), hidden(value))).collect(),
        Json::Null | Json::Bool(_) => value.clone(),
    }
}

/// Masks a list of texts that may be a command: a secret may follow the option that names it.
fn masked_list(items: &[Json]) -> Json {
    let mut after_option = false;
    let item = |item: &Json| {
        let Json::String(text) = item else { return plain(item) };
        let follows = std::mem::take(&mut after_option);
        let option = text.trim_start_matches('-');
        let named = option.len() < text.len() && !text.contains(['=', ' ']) && is_secret_name(option);
        after_option = named || SECRET_OPTIONS.contains(&text.as_str());
        if follows && option.len() == text.len() { MASK.into() } else { masked_argument(text).into() }
    };
    items.iter().map(item).collect()
}

/// Masks an argument: `--api-key=SECRET`, `API_KEY=SECRET`, `X-Api-Key: SECRET`, `--header=X-Api-Key:SECRET`.
fn masked_argument(text: &str) -> String {
    let Some(at) = text.find(['=', ':']).filter(|at| !text[*at..].starts_with("://")) else { return masked_text(text) };
    let (before, after) = text.split_at(at + 1);
    match is_secret_name(&text[..at]) {
        true if !after.is_empty() => format!("{before}{MASK}"),
        _ if before.ends_with('=') && !before.contains(char::is_whitespace) => {
            format!("{before}{}", masked_argument(after))
        }
        _ => masked_pairs(&masked_text(text), &['=', ':']),
    }
}

/// Hides secrets in a text: in URLs, after the name of a secret and `=`, and after an authentication scheme.
pub(super) fn masked_text(text: &str) -> String {
    for scheme in SCHEMES {
        if text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)) {
            return format!("{}{MASK}", &text[..scheme.len()]);
        }
    }
    masked_pairs(text, &['=']).split_inclusive(char::is_whitespace).map(masked_piece).collect()
}

/// Hides each value that one of these signs assigns to the name of a secret: `Server=h;Password=SECRET`.
fn masked_pairs(text: &str, signs: &[char]) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(signs) {
        let (before, after) = rest.split_at(at + 1);
        let name = rest[..at].trim_end_matches([' ', '"', '\'']);
        let in_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        let name = &name[name.trim_end_matches(in_name).len()..];
        out.push_str(before);
        rest = after;
        let value = after.trim_start_matches(' ');
        let length = value_length(value);
        if length > 0 && is_secret_name(name) && !value.starts_with("//") {
            out.push_str(&after[..after.len() - value.len()]);
            out.push_str(MASK);
            rest = &value[length..];
        }
    }
    out + rest
}

/// The length in bytes of the value at the start of a text: up to its closing quote, or else up to the next separator.
fn value_length(text: &str) -> usize {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''));
    match quote {
        Some(quote) => text[1..].find(quote).map_or(text.len(), |end| end + 2),
        None => {
            let separates = |c: char| c.is_whitespace() || matches!(c, ';' | '&' | ',' | '"' | '\'' | ')' | ']' | '}');
            text.find(separates).unwrap_or(text.len())
        }
    }
}

/// Masks a piece of text without spaces, which may end with a URL: `--url=https://…`.
fn masked_piece(piece: &str) -> String {
    let Some(colon) = piece.find("://") else { return piece.to_owned() };
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let start = piece[..colon].rfind(|c| !is_scheme(c)).map_or(0, |at| at + 1);
    let end = start
        + piece[start..].trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | ',')).len();
    let masked = match Url::parse(&piece[start..end]) {
        Ok(url) => masked_url(url),
        Err(_) => masked_login(&piece[start..end]),
    };
    match masked {
        Some(url) => format!("{}{url}{}", &piece[..start], &piece[end..]),
        None => piece.to_owned(),
    }
}

/// A text like a URL without its user and password; `None`: it has none. Addresses of PostgreSQL with several servers, or
/// with none before the path, are no URLs.
fn masked_login(text: &str) -> Option<String> {
    let (scheme, at) = (text.find("://")? + 3, text.rfind('@')?);
    (scheme < at).then(|| format!("{}{MASK}{}", &text[..scheme], &text[at..]))
}

/// The URL without its secrets; `None`: it has none.
fn masked_url(mut url: Url) -> Option<String> {
    let mut changed = false;
    // An error means that such a URL cannot have one.
    if url.password().is_some() {
        changed |= url.set_password(Some(MASK)).is_ok();
    } else if !url.username().is_empty() {
        changed |= url.set_username(MASK).is_ok();
    }
    if let Some(query) = url.query().map(str::to_owned) {
        let pairs: Vec<String> = query.split('&').map(masked_parameter).collect();
        let masked = pairs.join("&");
        changed |= masked != query;
        url.set_query(Some(&masked));
    }
    // `https://h/p;key=…`
    let segments: Vec<String> = url.path().split('/').map(masked_segment).collect();
    let path = segments.join("/");
    if path != url.path() {
        changed = true;
        url.set_path(&path);
    }
    // A fragment is for the reader of the page: `#access_token=…`.
    if url.fragment().is_some() {
        changed = true;
        url.set_fragment(None);
    }
    changed.then(|| url.into())
}

fn masked_parameter(pair: &str) -> String {
    match pair.split_once('=') {
        Some((name, value)) if !value.is_empty() && !PLAIN_PARAMETERS.contains(&name.to_lowercase().as_str()) => {
            format!("{name}={MASK}")
        }
        // A parameter without a value may be the key itself.
        None if pair.len() >= 16 => MASK.to_owned(),
        _ => pair.to_owned(),
    }
}

/// Masks the parameters in a path segment.
fn masked_segment(segment: &str) -> String {
    let mut parts = segment.split(';');
    let name = parts.next().unwrap_or_default().to_owned();
    parts.fold(name, |segment, part| format!("{segment};{}", masked_parameter(part)))
}

/// Whether a value of this name may be a secret. A number counts only if the name ends with such a word: limits of
/// tokens and times of credentials are no secrets.
fn is_secret(name: &str, value: &Json) -> bool {
    match value {
        Json::Number(_) => words(name).last().is_some_and(|word| SECRET_WORDS.contains(&word.as_str())),
        Json::Bool(_) | Json::Null => false,
        _ => is_secret_name(name),
    }
}

fn is_secret_name(name: &str) -> bool {
    words(name).iter().any(|word| {
        let one = word.strip_suffix('s').unwrap_or(word);
        [word, one].iter().any(|word| SECRET_WORDS.contains(word)) || SECRET_ENDS.iter().any(|end| one.ends_with(end))
    })
}

/// Splits a name into words: `apiKey`, `X-Api-Key` and `MY_API_KEY` have the same last two. Trailing numbers are
/// ignored.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        let starts = !c.is_alphanumeric() || (c.is_uppercase() && before.is_lowercase());
        if starts && !words[words.len() - 1].is_empty() {
            words.push(String::new());
        }
        if c.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| word.chars().any(|c| !c.is_numeric()));
    words.iter_mut().for_each(|word| word.truncate(word.trim_end_matches(|c: char| c.is_ascii_digit()).len()));
    words
}

/// Names of variables are short, or in capitals; a long text in mixed case is more likely a key.
fn looks_like_a_name(text: &str) -> bool {
    is_variable_name(text) && (text.len() <= 24 || !text.chars().any(|c| c.is_ascii_lowercase()))
}

#[cfg(test)]
mod tests;
