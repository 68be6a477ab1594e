//! Finds out whether a task list is empty. Pure.

/// Returns whether the list contains a task: anything except blank lines, headings, comments, rules, code fences, and
/// items and checkboxes without text.
pub(super) fn has_tasks(text: &str) -> bool {
    without_comments(text).lines().any(|line| !is_empty(line))
}

/// Removes comments. An unclosed comment counts as text.
fn without_comments(text: &str) -> String {
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, behind)) = rest.split_once("<!--") {
        let Some((_, after)) = behind.split_once("-->") else { break };
        kept.push_str(before);
        rest = after;
    }
    kept + rest
}

fn is_empty(line: &str) -> bool {
    // A quotation is empty when its text is.
    let line = line.trim_start_matches(|c: char| c.is_whitespace() || c == '>').trim_end();
    is_heading(line) || is_rule(line) || is_fence(line) || without_item(line).is_empty()
}

fn is_heading(line: &str) -> bool {
    let words = line.trim_start_matches('#');
    let marks = line.len() - words.len();
    (1..=6).contains(&marks) && (words.is_empty() || words.starts_with(char::is_whitespace))
}

/// A horizontal rule, or the underline of a heading.
fn is_rule(line: &str) -> bool {
    let mut marks = line.chars().filter(|c| !c.is_whitespace());
    let Some(first) = marks.next().filter(|mark| matches!(mark, '-' | '*' | '_' | '=')) else { return false };
    marks.clone().count() >= 2 && marks.all(|mark| mark == first)
}

/// The line before or after a code block. The content of the block counts as text.
fn is_fence(line: &str) -> bool {
    ["```", "~~~"].iter().any(|mark| line.strip_prefix(mark).is_some_and(|rest| !rest.contains(char::is_whitespace)))
}

/// The text of a list item, without its marker and its checkbox.
fn without_item(line: &str) -> &str {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let words =
        if number.len() < line.len() { number.strip_prefix(['.', ')']) } else { line.strip_prefix(['-', '*', '+']) };
    let Some(words) = words.filter(|words| words.is_empty() || words.starts_with(char::is_whitespace)) else {
        return line;
    };
    let words = words.trim_start();
    let unchecked = ["[ ]", "[x]", "[X]", "[]"].iter().find_map(|mark| words.strip_prefix(mark));
    unchecked.unwrap_or(words).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_without_words_has_nothing_to_do() {
        for (text, expected) in [
            ("", false),
            (" \n\t\n", false),
            ("# Heartbeat\n\n## Every morning\n######\n", false),
            ("<!-- write here what is to be watched\n- like this -->\n", false),
            ("<!-- one --> <!-- two -->", false),
            ("- \n* \n+\n-\n1.\n2) \n", false),
            ("- [ ]\n- [x]\n- [] \n1. [X]", false),
            ("---\n***\n* * *\n____\n=====\n", false),
            ("```\n```\n~~~sh\n~~~", false),
            (">\n> - [ ]\n>> # Title", false),
            ("look at the inbox", true),
            ("# Heartbeat\n- look at the inbox", true),
            ("- [ ] look at the inbox", true),
            ("- [x] look at the inbox", true),
            ("1. look", true),
            ("2026.", false), // a list item without text
            ("2026", true),
            ("1.5 million?", true),
            ("#inbox", true),
            ("####### seven", true),
            ("-look", true),
            ("--", true),
            ("<!-- not closed\n- look", true),
            ("<!-- a --> look <!-- b -->", true),
            ("```\necho look\n```", true),
            ("> look", true),
            ("[ ]", true), // a checkbox outside a list is text
        ] {
            assert_eq!(has_tasks(text), expected, "{text:?}");
        }
    }
}
