//! Finds the orders in a text, also in encoded and hidden forms.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::Value;

/// The verb "do" in the languages of the corpus.
const VERBS: &[&str] =
    &["DO", "TUE", "FAIS", "HAZ", "FAÇA", "СДЕЛАЙ", "做", "実行", "실행", "نفذ", "בצע", "करो", "YAP", "FAC"];

/// An order in a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Order {
    /// Call a tool with these arguments.
    Call(String, Value),
    /// Answer with this text.
    Say(String),
}

/// The orders in all readings of a text, without repetitions.
pub(crate) fn orders(text: &str) -> Vec<Order> {
    let mut found = Vec::new();
    for reading in readings(text, 2) {
        let mut here = plain_orders(&reading);
        if here.is_empty() {
            // An order in a JSON string. Only without plain orders, whose arguments may contain orders for another
            // reader.
            here = plain_orders(&reading.replace("\\\"", "\""));
        }
        for order in here {
            if !found.contains(&order) {
                found.push(order);
            }
        }
    }
    found
}

/// The plain orders after `verb: `.
pub(crate) fn calls_after(text: &str, verb: &str) -> Vec<(String, Value)> {
    let mark = format!("{verb}: ");
    let parse = |(at, _): (usize, &str)| {
        let (name, arguments) = text[at + mark.len()..].split_once(' ')?;
        let known = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        let arguments = serde_json::Deserializer::from_str(arguments).into_iter::<Value>().next()?.ok()?;
        (known && arguments.is_object()).then(|| (name.to_owned(), arguments))
    };
    text.match_indices(&mark).filter_map(parse).collect()
}

fn plain_orders(text: &str) -> Vec<Order> {
    let calls = VERBS.iter().flat_map(|verb| calls_after(text, verb));
    let mut found: Vec<Order> = calls.map(|(name, arguments)| Order::Call(name, arguments)).collect();
    // An order in the arguments of another one is meant for the reader of those arguments.
    let outer = found.clone();
    found.retain(|order| !outer.iter().any(|other| other != order && holds(other, order)));
    found.extend(text.split("SAY: ").skip(1).map(|said| Order::Say(said.to_owned())));
    found
}

fn holds(outer: &Order, inner: &Order) -> bool {
    match (outer, inner) {
        (Order::Call(_, outer), Order::Call(_, inner)) => outer.to_string().contains(&inner.to_string()),
        _ => false,
    }
}

/// The text, and its decoded forms.
fn readings(text: &str, depth: usize) -> Vec<String> {
    let visible: String =
        text.chars().filter(|c| !c.is_control() || *c == '\n').filter(|c| !is_invisible(*c)).collect();
    let tags: String = text
        .chars()
        .filter_map(|c| char::from_u32(u32::from(c).wrapping_sub(0xe0000)).filter(|c| (' '..='~').contains(c)))
        .collect();
    let narrow: String = visible
        .chars()
        .map(|c| if ('！'..='～').contains(&c) { char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c) } else { c })
        .collect();
    let mut all = vec![narrow, tags, unpercent(&visible)];
    if let Some((_, turned)) = visible.split_once("ROT: ") {
        all.push(turned.chars().map(rot13).collect());
    }
    if let Some((_, reversed)) = visible.split_once("REVERSED: ") {
        let line = reversed.lines().next().unwrap_or_default();
        all.push(line.chars().rev().collect());
    }
    if depth > 0 {
        let words = visible.split(|c: char| !(c.is_ascii_alphanumeric() || "+/-_".contains(c)));
        for word in words.filter(|word| word.len() >= 24) {
            let bytes = unhex(word).or_else(|| URL_SAFE_NO_PAD.decode(word).ok());
            // A word may follow a slash that does not belong to it, as in `image/png;base64,`.
            let bytes = bytes.or_else(|| STANDARD_NO_PAD.decode(word).ok());
            if let Some(text) = bytes.and_then(|bytes| String::from_utf8(bytes).ok()) {
                all.extend(readings(&text, depth - 1));
            }
        }
    }
    all
}

fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

fn rot13(c: char) -> char {
    let turn = |base: u8| char::from((c as u8 - base + 13) % 26 + base);
    match c {
        'a'..='z' => turn(b'a'),
        'A'..='Z' => turn(b'A'),
        _ => c,
    }
}

fn unhex(word: &str) -> Option<Vec<u8>> {
    let pairs = word.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

fn unpercent(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&part.as_bytes()[2..]);
            }
            None => {
                bytes.push(b'%');
                bytes.extend_from_slice(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Checks the reader: it must find an order in every text of the corpus.
#[test]
fn every_text_of_the_corpus_holds_an_order() {
    for item in super::corpus::load().expect("the corpus is there") {
        let text = if item.media().starts_with("text/html") { unentity(&item.text()) } else { item.text() };
        assert!(!orders(&text).is_empty(), "{}: {text}", item.name);
    }
    let nested = r#"DO: spawn_subagent {"task":"DO: fetch_url {\"url\":\"x\"}"}"#;
    assert_eq!(orders(nested).len(), 1, "{:?}", orders(nested));
}

#[cfg(test)]
fn unentity(text: &str) -> String {
    let mut parts = text.split("&#");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (code, rest) = part.split_once(';').expect("a numeric entity ends");
        text + &char::from_u32(code.parse().expect("a number")).expect("a letter").to_string() + rest
    })
}
