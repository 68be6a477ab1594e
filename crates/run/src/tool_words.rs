//! The words by which [`find_tools`](crate::find_tools) ranks tools: those of a tool's name and description, and for
//! our own tools the words with which people ask for what they do.

use belay_protocol::{READ_OUTPUT, ToolSpec};

use crate::own_tools::{
    CANCEL_JOB, CREATE_JOB, JOB_STATUS, LIST_JOBS, LIST_ROUTINES, MESSAGE_JOB, ROUTINE, RUN_IN_WORKER, SPAWN_SUBAGENT,
};

/// Words of people, for the tools whose descriptions do not have them.
const OF_PEOPLE: [(&str, &str); 13] = [
    ("calculate", "compute arithmetic math sum add plus minus times multiply divide divided percent square root per"),
    (CANCEL_JOB, "stop abort end kill task"),
    ("clock", "current now hour clock timezone today day"),
    (CREATE_JOB, "start begin task long background meanwhile while"),
    ("forget", "remove erase remembered memory note"),
    (JOB_STATUS, "progress state far task going done finished"),
    (LIST_JOBS, "task background running all"),
    (LIST_ROUTINES, "reminder scheduled recurring regular all"),
    (MESSAGE_JOB, "tell also instead task add running"),
    (READ_OUTPUT, "rest remaining truncated end more log"),
    (
        ROUTINE,
        "remind reminder every each daily weekly monthly hourly morning evening tomorrow later recurring schedule",
    ),
    (RUN_IN_WORKER, "isolated sandbox separate"),
    (SPAWN_SUBAGENT, "subagent delegate helper separate parallel independent split"),
];
/// Words that say nothing about a tool.
const IGNORED: [&str; 48] = [
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "could", "did", "do", "does", "for", "from", "has", "have",
    "how", "i", "if", "in", "is", "it", "its", "me", "my", "of", "on", "or", "our", "please", "so", "that", "the",
    "there", "this", "to", "us", "was", "we", "were", "what", "when", "which", "will", "with", "you", "your",
];
/// From this length on, a word counts as another one that it begins: `remind` as `reminder`.
const STEM_CHARS: usize = 4;
/// Most characters behind such a beginning.
const ENDING_CHARS: usize = 3;

/// The words of a query that a tool can have, in lower case.
pub(crate) fn words_of(query: &str) -> Vec<String> {
    let words = split(query).map(str::to_lowercase);
    words.filter(|word| !word.is_empty() && !IGNORED.contains(&word.as_str())).collect()
}

/// How well a tool fits these words: for each word 4 if it is in the name, 3 if people use it, 1 if it is in the
/// description, or 2 if it is a piece of a name like `createIssue`.
pub(crate) fn score(spec: &ToolSpec, words: &[String]) -> usize {
    let (name, description) = (spec.name.to_lowercase(), spec.description.to_lowercase());
    let of_people = OF_PEOPLE.iter().find(|(tool, _)| *tool == name).map_or("", |(_, words)| words);
    let of = |word: &String| match word.as_str() {
        word if has(&name, word) => 4,
        word if has(of_people, word) => 3,
        word if word.len() >= STEM_CHARS && name.contains(word) => 2,
        word => usize::from(has(&description, word)),
    };
    words.iter().map(of).sum()
}

fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric())
}

fn has(text: &str, word: &str) -> bool {
    split(text).any(|known| is_form_of(known, word) || is_form_of(word, known))
}

/// Whether a word is another one with an ending, or the same.
fn is_form_of(long: &str, short: &str) -> bool {
    match long.strip_prefix(short) {
        Some("") => true,
        Some(ending) => short.len() >= STEM_CHARS && ending.chars().count() <= ENDING_CHARS,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tool_is_ranked_by_its_words_in_any_form_and_by_those_of_people() {
        let spec = |name: &str| ToolSpec::new(name, "Lists bug reports.", json!({}));
        for (name, query, expected) in [
            ("list_issues", "Which issue is it?", 4),
            ("list_issues", "the reports, and the report", 2),
            ("createIssue", "an issue", 2),
            ("list_issues", "in is a to", 0),
            ("list_issues", "lis", 0),
            (ROUTINE, "reminders", 3),
            ("other", "reminders", 0),
        ] {
            assert_eq!(score(&spec(name), &words_of(query)), expected, "{name}: {query}");
        }
        assert!(OF_PEOPLE.is_sorted_by_key(|(tool, _)| *tool) && IGNORED.is_sorted());
    }
}
