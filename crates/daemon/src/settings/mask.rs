//! What may be a secret in a value that is shown. Settings hold none by design, but free tables (`llm.extra_body`, `env`),
//! commands and addresses can hold anything, so that values are hidden by their names.

use serde_json::Value as Json;
use url::Url;

/// What stands in place of something that may be a secret.
pub(super) const MASK: &str = "***";

/// Words of a name whose value may be a secret.
const SECRET_WORDS: &[&str] = &[
    "apikey",
    "auth",
    "authorization",
    "bearer",
    "cookie",
    "credential",
    "credentials",
    "key",
    "pass",
    "passphrase",
    "passwd",
    "password",
    "pat",
    "pwd",
    "secret",
    "secrets",
    "sig",
    "signature",
    "token",
];

/// Parameters of an address whose values are no secrets; all others are hidden: `?code=`, `?k=` and `?sig=` are keys, too.
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

/// Tables that others define: whatever is in them under a telling name is hidden, whole tables included. Elsewhere the name of
/// a table may be an operator's, such as that of an MCP server.
const FREE_TABLES: &[&str] = &["extra_body", "env", "environment", "headers"];

/// The value as it may be shown under this name, which is the last part of its key.
pub(super) fn masked(name: &str, value: &Json) -> Json {
    of_name(name, value, false)
}

/// `free`: it is in one of [`FREE_TABLES`].
fn of_name(name: &str, value: &Json, free: bool) -> Json {
    let free = free || FREE_TABLES.contains(&name);
    match (words(name).last().map(String::as_str), value) {
        // What names a variable or a file is meant to be shown.
        (Some("env" | "envs"), Json::String(_) | Json::Array(_)) => variable(value),
        (Some("file" | "files"), Json::String(_) | Json::Array(_)) => plain(value, free),
        (_, Json::Object(_)) if !free => plain(value, free),
        _ if is_secret(name, value) => hidden(value),
        _ => plain(value, free),
    }
}

/// The name of a variable, or names of some.
fn variable(value: &Json) -> Json {
    match value {
        Json::String(text) if !looks_like_a_name(text) => MASK.into(),
        Json::Array(items) => items.iter().map(variable).collect(),
        other => other.clone(),
    }
}

/// The value of something whose name gives nothing away.
fn plain(value: &Json, free: bool) -> Json {
    match value {
        Json::String(text) => masked_text(text).into(),
        Json::Array(items) => masked_list(items, free),
        Json::Object(table) => table.iter().map(|(name, value)| (name.clone(), of_name(name, value, free))).collect(),
        other => other.clone(),
    }
}

/// The same shape with every value hidden.
fn hidden(value: &Json) -> Json {
    match value {
        Json::String(text) if text.is_empty() => value.clone(),
        Json::String(_) | Json::Number(_) => MASK.into(),
        Json::Array(items) => items.iter().map(hidden).collect(),
        Json::Object(table) => table.iter().map(|(name, value)| (name.clone(), hidden(value))).collect(),
        Json::Null | Json::Bool(_) => value.clone(),
    }
}

/// Lists of text may be the words of a command: a secret follows the option that names it.
fn masked_list(items: &[Json], free: bool) -> Json {
    let mut after_option = false;
    let item = |item: &Json| {
        let Json::String(text) = item else { return plain(item, free) };
        let follows = std::mem::take(&mut after_option);
        let option = text.trim_start_matches('-');
        after_option = option.len() < text.len() && !text.contains(['=', ' ']) && is_secret_name(option);
        if follows && option.len() == text.len() { MASK.into() } else { masked_argument(text).into() }
    };
    items.iter().map(item).collect()
}

/// `--api-key=SECRET`, `API_KEY=SECRET`, `X-Api-Key: SECRET`.
fn masked_argument(text: &str) -> String {
    let split = text.find(['=', ':']).filter(|at| is_secret_name(&text[..*at]) && !text[*at..].starts_with("://"));
    match split {
        Some(at) if text.len() > at + 1 => format!("{}{MASK}", &text[..=at]),
        _ => masked_text(text),
    }
}

/// Hides what addresses in a text carry, and what follows the word of a scheme of authentication.
pub(super) fn masked_text(text: &str) -> String {
    for scheme in ["Bearer ", "Basic "] {
        if text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)) {
            return format!("{}{MASK}", &text[..scheme.len()]);
        }
    }
    text.split_inclusive(char::is_whitespace).map(masked_piece).collect()
}

/// A piece of text without spaces within, which may end in an address: `--url=https://…`.
fn masked_piece(piece: &str) -> String {
    let Some(colon) = piece.find("://") else { return piece.to_owned() };
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let start = piece[..colon].rfind(|c| !is_scheme(c)).map_or(0, |at| at + 1);
    let end = start
        + piece[start..].trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | ',')).len();
    match Url::parse(&piece[start..end]).ok().and_then(masked_url) {
        Some(url) => format!("{}{url}{}", &piece[..start], &piece[end..]),
        None => piece.to_owned(),
    }
}

/// The address without what it carries; `None`: it carries nothing.
fn masked_url(mut url: Url) -> Option<String> {
    let mut changed = false;
    // An error says that such an address carries none.
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
    changed.then(|| url.into())
}

fn masked_parameter(pair: &str) -> String {
    match pair.split_once('=') {
        Some((name, value)) if !value.is_empty() && !PLAIN_PARAMETERS.contains(&name.to_lowercase().as_str()) => {
            format!("{name}={MASK}")
        }
        // A name alone may be the key itself.
        None if pair.len() >= 16 => MASK.to_owned(),
        _ => pair.to_owned(),
    }
}

/// Whether a value of this name may be a secret. A number is one only where the name ends in such a word: the limits of
/// tokens and the times of credentials are none.
fn is_secret(name: &str, value: &Json) -> bool {
    match value {
        Json::Number(_) => words(name).last().is_some_and(|word| SECRET_WORDS.contains(&word.as_str())),
        Json::Bool(_) | Json::Null => false,
        _ => is_secret_name(name),
    }
}

fn is_secret_name(name: &str) -> bool {
    words(name).iter().any(|word| SECRET_WORDS.contains(&word.as_str()))
}

/// The words of a name: `apiKey`, `X-Api-Key` and `MY_API_KEY` have the same last two. Numbers behind them say nothing.
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

/// Names of variables are short words, mostly in capitals; a long mixture is rather a key.
fn looks_like_a_name(text: &str) -> bool {
    crate::secrets::is_variable_name(text) && (text.len() <= 24 || !text.chars().any(|c| c.is_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_may_be_a_secret_is_hidden_by_its_name_wherever_it_stands() {
        for (name, value, shown) in [
            ("extra_body", json!({"api_key": "hush"}), json!({"api_key": MASK})),
            ("extra_body", json!({"apiKey": "hush", "top_k": 4}), json!({"apiKey": MASK, "top_k": 4})),
            (
                "extra_body",
                json!({"a": [{"b": {"X-Auth-Token": "hush"}}]}),
                json!({"a": [{"b": {"X-Auth-Token": MASK}}]}),
            ),
            ("extra_body", json!({"auth": {"user": "me", "n": 1}}), json!({"auth": {"user": MASK, "n": MASK}})),
            ("extra_body", json!({"pin_token": 1234, "max_tokens": 9}), json!({"pin_token": MASK, "max_tokens": 9})),
            ("env", json!({"API_KEY_2": "hush", "MODE": "strict"}), json!({"API_KEY_2": MASK, "MODE": "strict"})),
            ("headers", json!({"Authorization": ["Bearer hush"]}), json!({"Authorization": [MASK]})),
            ("headers", json!({"x": "bearer hush"}), json!({"x": "bearer ***"})),
            ("mcp", json!({"auth": {"url": "https://h/p"}}), json!({"auth": {"url": "https://h/p"}})),
            ("token", json!("hush"), json!(MASK)),
            ("token", json!(""), json!("")),
            ("keyboard", json!("qwerty"), json!("qwerty")),
            ("token_file", json!("/run/secrets/token"), json!("/run/secrets/token")),
            ("api_key_files", json!(["/run/secrets/key"]), json!(["/run/secrets/key"])),
            ("token_env", json!("BELAY_TOKEN"), json!("BELAY_TOKEN")),
            ("token_env", json!("sk-hush"), json!(MASK)),
            ("url", json!("https://u:hush@h/p"), json!("https://u:***@h/p")),
            ("url", json!("https://hush@h/p"), json!("https://***@h/p")),
            ("url", json!("https://h/p?key=hush&api-version=2"), json!("https://h/p?key=***&api-version=2")),
            ("url", json!("https://h/p?hushhushhushhushhush"), json!("https://h/p?***")),
            ("url", json!("https://h/p?a=&b"), json!("https://h/p?a=&b")),
            ("url", json!("https://h/p"), json!("https://h/p")),
            ("note", json!("see https://u:hush@h/ and x"), json!("see https://u:***@h/ and x")),
            (
                "command",
                json!(["serve", "--api-key", "hush", "--token=hush", "KEY=hush", "--mode", "fast", "X-Api-Key: hush"]),
                json!(["serve", "--api-key", MASK, "--token=***", "KEY=***", "--mode", "fast", "X-Api-Key:***"]),
            ),
            (
                "command",
                json!(["--url=https://h/?k=hush", "--token", "--x"]),
                json!(["--url=https://h/?k=***", "--token", "--x"]),
            ),
        ] {
            let masked = masked(name, &value);
            assert_eq!(masked, shown, "{name} {value}");
            assert!(!masked.to_string().contains("hush"), "{name} {value}");
        }
    }
}
