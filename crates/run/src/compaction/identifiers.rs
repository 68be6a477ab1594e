//! Identifiers that nobody can guess once they are lost: ids, hashes, hosts, ports, addresses, paths, file names. Pure.

use belay_protocol::{Message, MessageBody};

/// Maximum number of identifiers that a summary must contain.
pub const MOST: usize = 12;

/// Lengths in bytes. Shorter words are ordinary words, longer ones are data.
const LENGTHS: std::ops::RangeInclusive<usize> = 4..=200;

/// Minimum number of digits in a number that counts. 5: shorter ones are years, amounts and counts, which are frequent
/// in texts.
const LONG_NUMBER: usize = 5;

/// The identifiers of a conversation, at most [`MOST`], each once. Those from messages come before those from tool
/// results, and newer ones first.
pub fn of<'a>(messages: &[&'a Message]) -> Vec<&'a str> {
    let said = |message: &&&Message| !matches!(message.body, MessageBody::Tool(_));
    let (spoken, results): (Vec<&&Message>, Vec<&&Message>) = messages.iter().partition(said);
    let mut found: Vec<&str> = Vec::new();
    for message in spoken.iter().rev().chain(results.iter().rev()) {
        for word in words(message.text()).filter(|word| is_identifier(word)) {
            if found.len() == MOST {
                return found;
            }
            if !found.contains(&word) {
                found.push(word);
            }
        }
    }
    found
}

/// The words of a text, without punctuation around them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let apart = |c: char| {
        c.is_whitespace()
            || matches!(c, '"' | '\'' | '`' | '<' | '>' | '(' | ')' | '[' | ']' | '{' | '}' | '|' | ',' | ';')
    };
    text.split(apart).map(|word| word.trim_matches(['.', ':', '!', '?', '*', '=', '&', '…']))
}

fn is_identifier(word: &str) -> bool {
    LENGTHS.contains(&word.len()) && (is_address(word) || is_path(word) || is_host(word) || is_code(word))
}

fn is_address(word: &str) -> bool {
    word.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric()) && !rest.is_empty()
    }) || word.split_once('@').is_some_and(|(name, host)| !name.is_empty() && is_host(host))
}

/// At least two names with a separator, or one after a root. `and/or` is two words and no path.
fn is_path(word: &str) -> bool {
    let rooted = ["/", "~/", "./", "../"].iter().any(|root| word.starts_with(root)) || word.get(1..3) == Some(":\\");
    let names = word.split(['/', '\\']).filter(|name| !name.is_empty()).count();
    let telling = word.contains(['.', '_', '-']) || word.chars().any(|c| c.is_ascii_digit());
    (rooted && names >= 1) || (names >= 2 && word.contains(['/', '\\']) && (names >= 3 || telling))
}

/// A host, with or without a port; also a file name, which looks the same.
fn is_host(word: &str) -> bool {
    let (host, port) = word.rsplit_once(':').map_or((word, None), |(host, port)| (host, Some(port)));
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return false;
    }
    let labels: Vec<&str> = host.split('.').collect();
    let fits =
        |label: &&str| !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    let named =
        labels.last().is_some_and(|last| last.len() >= 2 && last.starts_with(|c: char| c.is_ascii_alphabetic()));
    let numbers = labels.len() == 4 && labels.iter().all(|label| label.parse::<u8>().is_ok());
    let alone = labels.len() == 1 && port.is_some() && named;
    labels.iter().all(fits) && (alone || numbers || (labels.len() >= 2 && named && labels[0].len() >= 2))
}

/// Letters and digits mixed, as in a ticket, a hash or a key; or a long number.
fn is_code(word: &str) -> bool {
    let digits = word.chars().filter(char::is_ascii_digit).count();
    let letters = word.chars().filter(char::is_ascii_alphabetic).count();
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '#' | ':' | '+' | '.'));
    let joined = word.contains(['-', '_', '#']);
    plain && ((digits >= LONG_NUMBER && letters == 0) || (digits >= 1 && letters >= 1 && (joined || word.len() >= 7)))
}

#[cfg(test)]
mod tests {
    use belay_protocol::{ToolResult, ToolStatus};

    use super::*;

    #[test]
    fn what_cannot_be_guessed_is_found_and_words_are_not() {
        for (text, found) in [
            ("see https://example.org/a?b=1, please.", vec!["https://example.org/a?b=1"]),
            ("the file `src/main.rs` and ~/notes.txt; /etc/hosts", vec!["src/main.rs", "~/notes.txt", "/etc/hosts"]),
            ("C:\\Users\\me is a path", vec!["C:\\Users\\me"]),
            ("db.internal:5432 or 10.0.0.7 or localhost:8080", vec!["db.internal:5432", "10.0.0.7", "localhost:8080"]),
            ("write to alice@example.org!", vec!["alice@example.org"]),
            ("ticket ABC-123 (order_42), #4711x", vec!["ABC-123", "order_42", "#4711x"]),
            (
                "commit 4c4537a, id 0199aa11-22bb-7cc3-8dd4-55ee66ff7788",
                vec!["4c4537a", "0199aa11-22bb-7cc3-8dd4-55ee66ff7788"],
            ),
            ("call 0301234567", vec!["0301234567"]),
            ("and/or either way, e.g. in 2024 it cost 12.50: fine... i.e. well-known things", vec![]),
            ("半分の時間", vec![]),
        ] {
            let message = Message::user(text);
            assert_eq!(of(&[&message]), found, "{text}");
        }
    }

    #[test]
    fn the_newest_that_people_said_come_first_and_twelve_are_enough() {
        let result = |text: &str| {
            let (name, status) = ("t".into(), ToolStatus::Success);
            Message::tool(ToolResult { call_id: "c".into(), name, status, text: text.into() })
        };
        let messages = [Message::user("old-1 x"), result("tool-1 tool-2"), Message::assistant("new-1 old-1")];
        assert_eq!(of(&messages.iter().collect::<Vec<_>>()), ["new-1", "old-1", "tool-1", "tool-2"]);
        let many = result(&(0..40).map(|n| format!("id-{n} ")).collect::<String>());
        assert_eq!(of(&[&many]).len(), MOST);
    }
}
