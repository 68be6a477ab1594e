//! Derives the outcome of a call if the recording contains only a flag, or not even that.
//!
//! Only few words at few positions count: a result that is about errors (a log, a search for "error", a test report)
//! must not be taken for a failed call.

use belay_agent_loop::policies::CallOutcome;

/// The beginning of a text in which the description of the failure is searched for, in bytes. 300: a first line with a
/// long path.
const HEAD_BYTES: usize = 300;

/// The word for each outcome in files.
const WORDS: &[(&str, CallOutcome)] = &[
    ("success", CallOutcome::Success),
    ("failed", CallOutcome::Failed),
    ("unknown_tool", CallOutcome::UnknownTool),
    ("invalid_arguments", CallOutcome::InvalidArguments),
    ("denied", CallOutcome::Denied),
    ("not_executed", CallOutcome::NotExecuted),
];

/// Phrases for a tool that does not exist.
const NO_TOOL: &[&str] = &["unknown tool", "no such tool", "unknown function", "no tool named", "not a valid tool"];

/// Phrases with the same meaning if they are about a tool or a function.
const MISSING_TOOL: &[&str] = &["does not exist", "not found", "is not available", "not registered"];

/// Phrases for refused arguments: of schemas, of Python, and of the usual frameworks.
const REFUSED: &[&str] = &[
    "invalid argument",
    "invalid parameter",
    "invalid params",
    "invalid input",
    "malformed argument",
    "missing required",
    "missing 1 required",
    "unexpected keyword argument",
    "is a required property",
    "field required",
    "arguments do not match",
    "could not parse arguments",
    "failed to parse arguments",
    "schema validation",
];

/// Words that may follow the word "error" at the beginning of an error message.
const AFTER_ERROR: &[&str] = &[
    "executing",
    "calling",
    "running",
    "invoking",
    "reading",
    "writing",
    "fetching",
    "parsing",
    "processing",
    "searching",
    "opening",
    "creating",
    "occurred",
    "while",
    "when",
    "during",
    "in",
    "from",
    "code",
];

/// The outcome with this word.
pub(super) fn outcome_of_word(word: &str) -> Option<CallOutcome> {
    WORDS.iter().find(|(known, _)| *known == word).map(|(_, outcome)| *outcome)
}

/// The word of an outcome.
pub(super) fn word_of_outcome(outcome: CallOutcome) -> &'static str {
    WORDS.iter().find(|(_, known)| *known == outcome).map_or("failed", |(word, _)| word)
}

/// The outcome of a call that succeeded or failed. The text of a failure says whether the tool or its arguments were
/// wrong.
pub(crate) fn outcome_of(ok: bool, text: &str) -> CallOutcome {
    if ok {
        return CallOutcome::Success;
    }
    let head = head(text).to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| head.contains(word));
    // "The tool says that the file was not found" is about a file.
    let of_tool = has(&["tool", "function"]) && !has(&["file", "directory", "path"]);
    if has(NO_TOOL) || (of_tool && has(MISSING_TOOL)) {
        CallOutcome::UnknownTool
    } else if has(REFUSED) {
        CallOutcome::InvalidArguments
    } else {
        CallOutcome::Failed
    }
}

/// Whether a result without a flag reports a failure: by its beginning, or by an exit code other than 0.
pub(crate) fn looks_failed(text: &str) -> bool {
    let text = text.trim();
    let first = head(text.lines().next().unwrap_or_default());
    let last = head(text.lines().next_back().unwrap_or_default());
    match exit_code(first).or_else(|| exit_code(last)) {
        Some(code) => code != 0,
        None => begins_with_failure(first),
    }
}

fn begins_with_failure(line: &str) -> bool {
    let lower = line.to_lowercase();
    if lower.starts_with("{\"error\":") {
        return !["null", "false", "\"\"", "{}", "[]"]
            .iter()
            .any(|nothing| lower["{\"error\":".len()..].starts_with(nothing));
    }
    let lower = lower.trim_start_matches(['[', '<', '*', '`', '❌', ' ']);
    let end = lower.find(|c: char| c.is_whitespace() || matches!(c, ':' | ']' | '>' | '*')).unwrap_or(lower.len());
    let (word, rest) = lower.split_at(end);
    let colon = rest.starts_with([':', ']', '>']) || rest.trim_start_matches('*').starts_with(':');
    let next = rest.split_whitespace().next().unwrap_or_default();
    match word {
        "traceback" => lower.starts_with("traceback (most recent call last)"),
        "error" | "exception" => colon || rest.is_empty() || AFTER_ERROR.contains(&next),
        "fatal" | "failed" | "failure" | "panic" => colon || (word == "failed" && next == "to"),
        "command" => matches!(next, "failed" | "not"),
        // FileNotFoundError: …, java.lang.IllegalStateException: …
        _ => rest.starts_with(':') && (word.ends_with("error") || word.ends_with("exception")),
    }
}

/// `exit code 1`, `Exit code: 0`, `"exit_code": 2`, `returncode=3`, `[exit status 1]`.
fn exit_code(line: &str) -> Option<i64> {
    let lower = line.to_lowercase();
    let names = ["exit code", "exit_code", "exit status", "returncode", "return code"];
    let (_, after) = names.iter().find_map(|name| lower.split_once(name))?;
    let after = after.trim_start_matches(['"', '\'', ' ', ':', '=', '(']);
    let end = after.find(|c: char| !(c.is_ascii_digit() || c == '-')).unwrap_or(after.len());
    after[..end].parse().ok()
}

/// The beginning of a text, cut at a character boundary.
fn head(text: &str) -> &str {
    &text[..text.floor_char_boundary(HEAD_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_was_wrong() {
        for (ok, text, expected) in [
            (true, "unknown tool", CallOutcome::Success),
            (false, "no such file", CallOutcome::Failed),
            (false, "", CallOutcome::Failed),
            (false, "Unknown tool: fly", CallOutcome::UnknownTool),
            (false, "Tool 'fly' does not exist. Available tools: clock", CallOutcome::UnknownTool),
            (false, "Error: function fly not found", CallOutcome::UnknownTool),
            (false, "tool read_file: file a.txt not found", CallOutcome::Failed),
            (false, "the record does not exist", CallOutcome::Failed),
            (false, "invalid arguments: path is missing", CallOutcome::InvalidArguments),
            (false, "1 validation error: Field required", CallOutcome::InvalidArguments),
            (false, "run() missing 1 required positional argument: 'x'", CallOutcome::InvalidArguments),
            (false, "an argument about validity", CallOutcome::Failed),
        ] {
            assert_eq!(outcome_of(ok, text), expected, "{ok} {text}");
        }
    }

    #[test]
    fn texts_that_tell_of_a_failure_are_told_from_texts_about_failures() {
        for (text, failed) in [
            ("Error: no such file", true),
            ("ERROR: permission denied", true),
            ("**Error**: permission denied", true),
            ("Error executing tool read_file", true),
            ("error", true),
            ("Errors: 0", false),
            ("Error rate: 2 %", false),
            ("Error handling in Rust is done by values.", false),
            ("Traceback (most recent call last):\n  File", true),
            ("Traceback handling", false),
            ("FileNotFoundError: [Errno 2]", true),
            ("java.lang.IllegalStateException: closed", true),
            ("ValueError is raised when", false),
            ("fatal: not a git repository", true),
            ("Failed to connect", true),
            ("Failed tests: none", false),
            ("{\"error\":\"gone\"}", true),
            ("{\"error\":null,\"rows\":3}", false),
            ("Exit code: 1\nboom", true),
            ("Exit code: 0\nError: in the log", false),
            ("3 failed, 2 passed\n[exit code 1]", true),
            ("Error: shown, and handled\nexit code 0", false),
            ("{\"exit_code\": 2, \"output\": \"\"}", true),
            ("[ERROR] no such table", true),
            ("", false),
            ("12 passed", false),
        ] {
            assert_eq!(looks_failed(text), failed, "{text:?}");
        }
    }
}
