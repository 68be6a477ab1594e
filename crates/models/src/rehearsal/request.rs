//! Parses the requests of a person in plain English, case-insensitively.

use serde_json::{Map, Value, json};

/// Most requests that are parsed from one message.
pub(super) const MAX_ASKS: usize = 32;

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ask {
    /// A tool call.
    Call {
        /// The tool.
        tool: String,
        /// The arguments.
        arguments: Map<String, Value>,
    },
    /// A greeting, or a question about the abilities.
    Help,
    /// A question about earlier messages of the conversation.
    Earlier,
    /// A question about the result of background work.
    Found,
    /// Anything else, verbatim.
    Other(String),
}

/// Parses all requests, in order. Several requests are on separate lines or joined by "and".
pub(super) fn read(text: &str) -> Vec<Ask> {
    let mut asks: Vec<Ask> = text.lines().filter(|line| !line.trim().is_empty()).flat_map(line).collect();
    if asks.iter().all(|ask| matches!(ask, Ask::Other(_))) {
        return vec![Ask::Other(text.trim().to_owned())];
    }
    if asks.len() > MAX_ASKS {
        let left = asks.len() - MAX_ASKS;
        asks.truncate(MAX_ASKS);
        asks.push(Ask::Other(format!("({left} more requests, left out)")));
    }
    asks
}

/// Parses a line. It is split at "and" only if each part is a request: "remember pets: cats and dogs" is one request.
fn line(line: &str) -> Vec<Ask> {
    let parts = split_and(line);
    let asks: Vec<Ask> = parts.iter().filter_map(|part| one(part)).collect();
    if asks.len() == parts.len() {
        return asks;
    }
    vec![one(line).unwrap_or_else(|| Ask::Other(line.trim().to_owned()))]
}

fn split_and(line: &str) -> Vec<&str> {
    let lower = line.to_ascii_lowercase();
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, joint) in lower.match_indices(" and ") {
        parts.push(&line[start..at]);
        start = at + joint.len();
    }
    parts.push(&line[start..]);
    parts
}

fn one(part: &str) -> Option<Ask> {
    let mut text = part.trim();
    while let Some(rest) = after_any(text, &["please", "then", "can you", "could you", "now"]) {
        text = rest;
    }
    if let Some(explicit) = explicit_call(text) {
        return Some(explicit);
    }
    let bare = text.trim_end_matches(['?', '.', '!', ' ']);
    let readers = [earlier, found, help, clock, recall, remember, list, file];
    readers.iter().find_map(|reader| reader(bare)).or_else(|| arithmetic(text.trim_end_matches(['?', '.', ' '])))
}

/// `call TOOL {…}`: calls the tool with these arguments, whether it exists or not.
fn explicit_call(text: &str) -> Option<Ask> {
    let (tool, arguments) = after_any(text, &["call"])?.split_once(char::is_whitespace)?;
    let arguments = serde_json::from_str(arguments.trim()).ok()?;
    Some(Ask::Call { tool: tool.to_owned(), arguments })
}

fn earlier(text: &str) -> Option<Ask> {
    let asked = ["what did i say", "what did i just say", "what have i said", "do you remember what i said"];
    after_any(text, &asked).map(|_| Ask::Earlier)
}

fn found(text: &str) -> Option<Ask> {
    let asked = ["what did it find", "what did it find out", "what did the job find", "what did the job find out"];
    after_any(text, &asked).filter(|rest| rest.is_empty()).map(|_| Ask::Found)
}

fn help(text: &str) -> Option<Ask> {
    let words = ["hello", "hi", "hey", "hello there", "good morning", "good evening", "help", "help me"];
    let questions = ["what can you do", "who are you", "what are you", "are you a model", "rehearse"];
    words.iter().chain(&questions).any(|known| text.eq_ignore_ascii_case(known)).then_some(Ask::Help)
}

fn clock(text: &str) -> Option<Ask> {
    let questions = [
        "what time is it",
        "what is the time",
        "what's the time",
        "what day is it",
        "what date is it",
        "what is the date",
        "what's the date",
        "tell me the time",
        "time",
        "clock",
    ];
    let rest = after_any(text, &questions)?;
    let rest = after_any(rest, &["now", "today"]).unwrap_or(rest);
    match after_any(rest, &["in"]) {
        Some(zone) if !zone.is_empty() => Some(call("clock", json!({ "timezone": zone }))),
        None if rest.is_empty() => Some(call("clock", json!({}))),
        _ => None,
    }
}

fn recall(text: &str) -> Option<Ask> {
    if let Some(query) = after_any(text, &["recall", "what do you remember about", "do you remember"]) {
        return Some(call("recall", json!({ "query": query })));
    }
    text.eq_ignore_ascii_case("what do you remember").then(|| call("recall", json!({ "query": "" })))
}

/// `remember KEY: TEXT`, or `remember [that] TEXT` with a key from its first words.
fn remember(text: &str) -> Option<Ask> {
    let rest = after_any(text, &["remember"])?;
    let rest = after_any(rest, &["that"]).unwrap_or(rest);
    if rest.is_empty() {
        return None;
    }
    if let Some((key, text)) = rest.split_once(": ")
        && !key.trim().is_empty()
        && !text.trim().is_empty()
        && key.len() <= 64
    {
        return Some(call("remember", json!({ "key": key.trim(), "text": text.trim() })));
    }
    let word = |word: &str| word.chars().filter(|c| c.is_alphanumeric()).take(20).collect::<String>().to_lowercase();
    let words: Vec<String> = rest.split_whitespace().map(word).filter(|word| !word.is_empty()).take(5).collect();
    let key = if words.is_empty() { "note".to_owned() } else { words.join("-") };
    Some(call("remember", json!({ "key": key, "text": rest })))
}

fn list(text: &str) -> Option<Ask> {
    let mut rest = after_any(text, &["list", "ls", "what files are there", "show files", "show the files"])?;
    for filler in [&["the", "all", "my"][..], &["files", "everything"], &["in", "of"], &["the"], &["workspace"]] {
        rest = after_any(rest, filler).unwrap_or(rest);
    }
    let path = if rest.is_empty() { "." } else { path(rest)? };
    Some(call("list_files", json!({ "path": path })))
}

fn file(text: &str) -> Option<Ask> {
    let rest = after_any(text, &["read", "cat"])?;
    let rest = after_any(rest, &["the file", "file", "me"]).unwrap_or(rest);
    Some(call("read_file", json!({ "path": path(rest)? })))
}

/// A path: in quotes, a single word, or text with a dot or a slash.
fn path(text: &str) -> Option<&str> {
    let unquoted = text.trim_matches(['"', '\'', '`']);
    let looks_like_one = unquoted.len() < text.len() || !text.contains(' ') || text.contains(['.', '/']);
    (looks_like_one && !unquoted.is_empty()).then_some(unquoted)
}

/// `calculate …` accepts any expression. A question, or a bare expression, must look like arithmetic.
fn arithmetic(text: &str) -> Option<Ask> {
    if let Some(expression) = after_any(text, &["calculate", "compute"]) {
        return (!expression.is_empty()).then(|| call("calculate", json!({ "expression": expression })));
    }
    let expression = after_any(text, &["what is", "what's", "how much is"]).unwrap_or(text);
    looks_like_arithmetic(expression).then(|| call("calculate", json!({ "expression": expression })))
}

fn looks_like_arithmetic(text: &str) -> bool {
    const WORDS: &[&str] = &["sqrt", "sin", "cos", "tan", "ln", "exp", "abs", "min", "max", "round", "pi", "e"];
    let plain = text.chars().all(|c| c.is_alphanumeric() || " +-*/^%().,!×÷−".contains(c));
    let known = |word: &str| word.is_empty() || WORDS.contains(&word.to_ascii_lowercase().as_str());
    plain
        && text.contains(|c: char| c.is_ascii_digit())
        && text.contains(|c: char| "+-*/^%(!×÷−".contains(c))
        && text.split(|c: char| !c.is_alphabetic()).all(known)
}

fn call(tool: &str, arguments: Value) -> Ask {
    let arguments = match arguments {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    Ask::Call { tool: tool.to_owned(), arguments }
}

/// The text after one of these phrases at the beginning of the text, as whole words and case-insensitively. The longest
/// phrase wins.
pub(super) fn after_any<'a>(text: &'a str, phrases: &[&str]) -> Option<&'a str> {
    phrases.iter().filter_map(|phrase| after(text, phrase)).min_by_key(|rest| rest.len())
}

fn after<'a>(text: &'a str, phrase: &str) -> Option<&'a str> {
    let head = text.get(..phrase.len())?;
    let rest = &text[phrase.len()..];
    (head.eq_ignore_ascii_case(phrase) && (rest.is_empty() || rest.starts_with([' ', '\t']))).then(|| rest.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[Ask]) {
        assert_eq!(read(text), expected, "{text:?}");
    }

    #[test]
    fn plain_requests_become_tool_calls() {
        for (text, tool, arguments) in [
            ("calculate 17*23", "calculate", json!({"expression": "17*23"})),
            ("Please CALCULATE (1 + 2) * 3?", "calculate", json!({"expression": "(1 + 2) * 3"})),
            ("what is 2+2?", "calculate", json!({"expression": "2+2"})),
            ("what's sqrt(16)", "calculate", json!({"expression": "sqrt(16)"})),
            ("17*23", "calculate", json!({"expression": "17*23"})),
            ("calculate 5!", "calculate", json!({"expression": "5!"})),
            ("read note.txt", "read_file", json!({"path": "note.txt"})),
            ("Read the file \"my notes.md\".", "read_file", json!({"path": "my notes.md"})),
            ("cat docs/a b.txt", "read_file", json!({"path": "docs/a b.txt"})),
            ("list files", "list_files", json!({"path": "."})),
            ("ls", "list_files", json!({"path": "."})),
            ("list the files in docs/adr", "list_files", json!({"path": "docs/adr"})),
            ("list docs", "list_files", json!({"path": "docs"})),
            ("what time is it?", "clock", json!({})),
            ("What time is it now", "clock", json!({})),
            ("what time is it in Asia/Tokyo?", "clock", json!({"timezone": "Asia/Tokyo"})),
            ("what's the time in New York", "clock", json!({"timezone": "New York"})),
            ("remember cat: black, named Tom.", "remember", json!({"key": "cat", "text": "black, named Tom"})),
            (
                "remember that my cat is called Tom",
                "remember",
                json!({"key": "my-cat-is-called-tom", "text": "my cat is called Tom"}),
            ),
            ("remember pets: cats and dogs", "remember", json!({"key": "pets", "text": "cats and dogs"})),
            (
                "remember https://example.org",
                "remember",
                json!({"key": "httpsexampleorg", "text": "https://example.org"}),
            ),
            ("recall cat", "recall", json!({"query": "cat"})),
            ("what do you remember about my cat?", "recall", json!({"query": "my cat"})),
            ("what do you remember?", "recall", json!({"query": ""})),
        ] {
            check(text, &[call(tool, arguments)]);
        }
    }

    #[test]
    fn any_tool_can_be_called_by_its_name_with_an_object() {
        let argv = json!({"argv": ["ls", "and", "so on"]});
        let all = json!({"query": "cats and dogs?", "deep": {"a": [1, null]}});
        for (text, expected) in [
            (r#"call run_command {"argv":["ls","and","so on"]}"#, vec![call("run_command", argv.clone())]),
            (
                r#"Please call  search {"query": "cats and dogs?", "deep": {"a": [1, null]}} "#,
                vec![call("search", all)],
            ),
            ("call mcp-x.y_z {}", vec![call("mcp-x.y_z", json!({}))]),
            (
                "call a {\"n\":1}\ncall b {\"n\":2}\n\ncall a {\"n\":1}",
                vec![call("a", json!({"n": 1})), call("b", json!({"n": 2})), call("a", json!({"n": 1}))],
            ),
            (r#"call a {"n":1} and call b {}"#, vec![call("a", json!({"n": 1})), call("b", json!({}))]),
        ] {
            check(text, &expected);
        }
        for text in ["call mum", "call a [1]", "call a {\"n\":", "call {}", "call a null", "call a", "calla {}"] {
            assert!(!read(text).contains(&call("a", json!({}))), "{text}");
        }
        check("call a {\"n\":", &[Ask::Other("call a {\"n\":".into())]);
    }

    #[test]
    fn several_requests_in_one_message_are_all_taken() {
        let sum = call("calculate", json!({"expression": "1+1"}));
        let time = call("clock", json!({}));
        check("calculate 1+1 and what time is it?", &[sum.clone(), time.clone()]);
        check("calculate 1+1 AND then what time is it", &[sum.clone(), time.clone()]);
        check(
            "calculate 1+1\n\nwhat time is it\nthe weather is fine",
            &[sum, time, Ask::Other("the weather is fine".into())],
        );
        let asks = read(&"calculate 1+1\n".repeat(40));
        assert_eq!((asks.len(), asks.last()), (33, Some(&Ask::Other("(8 more requests, left out)".into()))));
    }

    #[test]
    fn greetings_questions_and_everything_else_are_told_apart() {
        for text in ["hello", "Hi!", "help", "What can you do?"] {
            check(text, &[Ask::Help]);
        }
        for text in ["what did I say before?", "What did I just say", "do you remember what I said?"] {
            check(text, &[Ask::Earlier]);
        }
        for text in ["what did it find?", "What did the job find out?"] {
            check(text, &[Ask::Found]);
        }
        for text in [
            "the weather is fine",
            "timeless beauty",
            "read me a book about love",
            "list three reasons to live",
            "what is love?",
            "remember",
            "hello world and the moon",
            "a\nb",
            "",
            "é",
        ] {
            check(text, &[Ask::Other(text.into())]);
        }
    }
}
