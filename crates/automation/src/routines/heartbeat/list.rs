//! Whether a list of what is to be watched has anything in it. Pure.

/// Whether there is something to do: anything but blank lines, headings, comments, rules, marks of code, and items and
/// checkboxes without words.
pub(super) fn has_tasks(text: &str) -> bool {
    without_comments(text).lines().any(|line| !is_empty(line))
}

/// The text without its comments. One that is not closed is none.
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
    // A quote is as empty as what it quotes.
    let line = line.trim_start_matches(|c: char| c.is_whitespace() || c == '>').trim_end();
    is_heading(line) || is_rule(line) || is_fence(line) || without_item(line).is_empty()
}

fn is_heading(line: &str) -> bool {
    let words = line.trim_start_matches('#');
    let marks = line.len() - words.len();
    (1..=6).contains(&marks) && (words.is_empty() || words.starts_with(char::is_whitespace))
}

/// A line across the page, or under a heading.
fn is_rule(line: &str) -> bool {
    let mut marks = line.chars().filter(|c| !c.is_whitespace());
    let Some(first) = marks.next().filter(|mark| matches!(mark, '-' | '*' | '_' | '=')) else { return false };
    marks.clone().count() >= 2 && marks.all(|mark| mark == first)
}

/// The mark before or behind code, whose content counts for itself.
fn is_fence(line: &str) -> bool {
    ["```", "~~~"].iter().any(|mark| line.strip_prefix(mark).is_some_and(|rest| !rest.contains(char::is_whitespace)))
}

/// The words of an item, without its mark and its checkbox.
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
            ("2026.", false), // an item of a list, and as empty as any
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
            ("[ ]", true), // a checkbox outside of a list is text
        ] {
            assert_eq!(has_tasks(text), expected, "{text:?}");
        }
    }
}
