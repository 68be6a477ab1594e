//! Texts that people and models read use the words of the field, not the private vocabulary of the early code.

use proc_macro2::{TokenStream, TokenTree};
use syn::{Lit, LitStr};

use super::{documents, read, root, sources};

/// What no text says, in lower case; each stands for whole words, over line breaks too.
const PATTERNS: [&str; 50] = [
    // untrusted content
    "of the outside",
    // services, schedulers and hosts
    "house",
    "desk",
    "errand",
    "errands",
    "clerk",
    "the care for",
    // paused, waiting for approval
    "resting on",
    "rests on",
    "rest on",
    "needs a person's yes",
    "bound to a yes",
    // deferred, resumed, running
    "laid aside",
    "lay aside",
    "taken up again",
    "takes up again",
    "taken up",
    "at work on",
    "are at work",
    "is at work",
    "conversations awake",
    // makes progress
    "gets on",
    "get on",
    "getting on",
    // autonomous, automatic
    "goes on by itself",
    "go on by itself",
    "works by itself",
    "work by itself",
    "begins by itself",
    "begin by itself",
    // disabled, enabled
    "switched off",
    "switches off",
    "switch off",
    "switched on",
    "switches it off",
    "switches it on",
    // sandbox
    "walls",
    "behind the wall",
    // limits
    "its time is up",
    "used up its steps",
    // triggered
    "set off",
    "sets off",
    // nobody in particular
    "whoever",
    "what of it",
    "what becomes of it",
    // routine run
    "firing",
    "firings",
    // slot, capacity
    "no room",
    // submit
    "hands over",
    "hand over now",
];

/// Texts that have to have one of them: the beginning of the path, the pattern, and why.
const ALLOWED: [(&str, &str, &str); 5] = [
    ("docs/develop/writing-a-tool.md", "house", "the example tool rings the bell of a house"),
    ("CHANGELOG.md", "firing", "lists the former names"),
    ("docs/adr/0023", "house", "names the struct that the decision removed"),
    ("crates/models/src/rehearsal", "", "the lines of the built-in stand-in, which plays a model"),
    ("crates/store/src/sqlite", "", "SQL"),
];

/// The first pattern that a text has.
fn found(text: &str) -> Option<&'static str> {
    let words: Vec<String> = text
        .split(|c: char| !(c.is_alphanumeric() || matches!(c, '\'' | '_' | '-' | '/')))
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let text = format!(" {} ", words.join(" "));
    PATTERNS.into_iter().find(|pattern| text.contains(&format!(" {pattern} ")))
}

/// The texts of string literals, with those of doc comments where they are help. Literals of one or two words are names.
fn strings(tokens: TokenStream, with_help: bool, texts: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let mut inner = group.stream().into_iter();
                let is_doc = matches!(inner.next(), Some(TokenTree::Ident(name)) if name == "doc");
                if with_help || !is_doc {
                    strings(group.stream(), with_help, texts);
                }
            }
            TokenTree::Literal(literal) => {
                if let Ok(Lit::Str(text)) = syn::parse_str::<LitStr>(&literal.to_string()).map(Lit::Str)
                    && text.value().split_whitespace().count() > 2
                {
                    texts.push(text.value());
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

#[test]
fn no_text_has_a_word_of_the_private_vocabulary() {
    let mut texts: Vec<(String, String)> = Vec::new();
    for (path, text) in sources() {
        let path = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
        let is_code = path.starts_with("crates/") && path.contains("/src/") && !path.starts_with("crates/testkit");
        if !is_code || path.contains("/tests/") || path.ends_with("tests.rs") {
            continue;
        }
        let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
        let helps =
            ["crates/daemon/src/args", "crates/daemon/src/cli.rs", "crates/cli/src/args", "crates/settings/src/args"];
        let is_help = helps.iter().any(|begins| path.starts_with(begins));
        let tokens = code.parse::<TokenStream>().unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut own = Vec::new();
        strings(tokens, is_help, &mut own);
        texts.extend(own.into_iter().map(|text| (path.clone(), text)));
    }
    assert!(texts.len() > 3_000, "{} texts", texts.len());
    let mut lines = String::new();
    for line in read("config/default.toml").lines() {
        lines.push_str(line.trim_start_matches('#'));
        if !line.starts_with('#') {
            texts.push(("config/default.toml".to_owned(), std::mem::take(&mut lines)));
        }
    }
    for (name, text) in documents() {
        texts.extend(text.split("\n\n").map(|text| (name.clone(), text.to_owned())));
    }
    let allowed = |path: &str, pattern: &str| {
        ALLOWED.iter().any(|(begins, word, _)| path.starts_with(begins) && (word.is_empty() || *word == pattern))
    };
    let wrong: Vec<String> = texts
        .iter()
        .filter_map(|(path, text)| Some((path, found(text)?, text)))
        .filter(|(path, pattern, _)| !allowed(path, pattern))
        .map(|(path, pattern, text)| format!("{path}: `{pattern}` in {:?}", text.chars().take(200).collect::<String>()))
        .collect();
    assert!(wrong.is_empty(), "docs/develop/glossary.md has the words to use:\n{}", wrong.join("\n"));
}

#[test]
fn a_pattern_stands_for_whole_words() {
    for (text, expected) in [
        ("He switched\n  off the tool.", Some("switched off")),
        ("A warehouse in-house", None),
        ("Words of the outside!", Some("of the outside")),
        ("the workspace is /srv/house-keeping", None),
    ] {
        assert_eq!(found(text), expected, "{text}");
    }
}
