//! The text of a question about a call, in Markdown that people read: the call as a block, its facts one a line, the content
//! of a file with line numbers, an edit as a diff. Nothing of the call can act as markup or leave its place.

mod marked;
mod shown;

use std::fmt::Write as _;

use self::marked::{Line, bounded_lines};
pub use self::shown::{MAX_SHOWN_CHARS, fence, shown_line, visible};
use crate::markdown;

/// Names of bound values that a question omits: argument vector and script are in the summary, and the environment is a
/// digest.
const UNSHOWN: [&str; 3] = ["argv", "script", "environment"];

/// Names of bound values that contain the content of a file. The digest of the file is bound too, so the question may
/// show the beginning and the end of these values.
const CONTENT: [&str; 3] = ["content", "old", "new"];

/// Names of bound values that are left out if they are digests: the summary says what is written, and whether the file
/// exists.
const UNSAID: [&str; 2] = ["change", "file"];

/// The beginnings of the names of bound values that are digests: of the description of an MCP tool, and of files whose
/// path follows. A digest is shortened. Any other value is shown whole: a model may choose a name that looks like one.
const DIGESTS: [&str; 3] = ["described as", "file ", "settings "];

/// Characters of a digest in hex (blake3, SHA-256), and how many of them are shown.
const DIGEST_CHARS: usize = 64;
const SHOWN_DIGEST_CHARS: usize = 12;

/// Whether a bound value is the content of a file.
pub fn is_content(name: &str) -> bool {
    CONTENT.contains(&name)
}

/// Whether a question shows a bound value.
pub fn is_shown(name: &str) -> bool {
    !UNSHOWN.contains(&name)
}

/// The part of a question that nobody can change: the call, the facts that the answer is bound to, and the reason.
pub fn about_call(tool: &str, summary: &str, bound: &[(String, String)], why: &str) -> String {
    let mut text = format!("May I do this? **{tool}**\n\n{}", fence(summary));
    let facts = bound.iter().filter(|(name, _)| is_shown(name) && !is_content(name));
    for (name, value) in facts {
        if let Some(value) = fact(name, value) {
            let _ = writeln!(text, "- {}: {value}", shown_line(name));
        }
    }
    let value = |of: &str| bound.iter().find(|(name, _)| name == of).map(|(_, value)| value.as_str());
    if let (Some(old), Some(new)) = (value("old"), value("new")) {
        text.push_str(&markdown::block_of("diff", &diff(old, new)));
    } else {
        for (name, value) in bound.iter().filter(|(name, _)| is_content(name)) {
            let _ = write!(text, "- {name}: {}\n{}", size(value), numbered(value, path(bound)));
        }
    }
    let _ = write!(text, "\nWhy I ask: {}.", shown_line(why));
    text
}

/// The value of a fact in a line; `None`: it is a digest that says nothing to people.
fn fact(name: &str, value: &str) -> Option<String> {
    let is_digest = value.len() == DIGEST_CHARS && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    match is_digest {
        true if UNSAID.contains(&name) => None,
        true if DIGESTS.iter().any(|of| name.starts_with(of)) => Some(format!("{}…", &value[..SHOWN_DIGEST_CHARS])),
        _ => Some(shown_line(value)),
    }
}

fn path(bound: &[(String, String)]) -> &str {
    bound.iter().find(|(name, _)| name == "path").map_or("", |(_, path)| path)
}

fn size(content: &str) -> String {
    match (content.lines().count(), content.ends_with('\n')) {
        (0, _) => "nothing".to_owned(),
        (1, true) => "1 line".to_owned(),
        (1, false) => "1 line, without a line end".to_owned(),
        (lines, true) => format!("{lines} lines"),
        (lines, false) => format!("{lines} lines, the last one without a line end"),
    }
}

/// The lines of a file with their numbers, as a block in the language of its name.
fn numbered(content: &str, path: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    let lines = lines(content);
    let width = lines.len().to_string().len();
    let numbered = lines.into_iter().zip(1..).map(|(text, number)| Line { mark: format!("{number:>width$}  "), text });
    let language = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    let is_word = language.len() <= 10 && language.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let numbered: Vec<_> = numbered.collect();
    markdown::block_of(if is_word { language } else { "" }, &bounded_lines(&numbered))
}

/// The removed and the added lines, of which neither takes the room of the other. If only one of both texts ends with a
/// line end, that is shown.
fn diff(old: &str, new: &str) -> String {
    let differ = old.ends_with('\n') != new.ends_with('\n');
    let marked = |mark: char, text: &str| {
        let line = |text| Line { mark: format!("{mark} "), text };
        let mut marked: Vec<_> = lines(text).into_iter().map(line).collect();
        if differ && !text.is_empty() && !text.ends_with('\n') {
            marked.push(Line { mark: r"\ ".to_owned(), text: "without a line end".to_owned() });
        }
        marked
    };
    let sides = [marked('-', old), marked('+', new)];
    let shown = sides.iter().filter(|lines| !lines.is_empty()).map(|lines| bounded_lines(lines));
    shown.collect::<Vec<_>>().join("\n")
}

fn lines(text: &str) -> Vec<String> {
    visible(text).lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
