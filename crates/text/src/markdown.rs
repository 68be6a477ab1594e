//! Puts a text into Markdown so that a reader sees exactly this text: no part of it acts as markup, and no part hides.
//!
//! The text must not contain hidden characters any more, see [`escaped`](crate::escaped).

/// The text as a code block, which the text cannot close.
pub fn block(text: &str) -> String {
    block_of("", text)
}

/// As [`block`], in a language: a word of letters and digits.
pub fn block_of(language: &str, text: &str) -> String {
    let ticks = "`".repeat(longest_ticks(text).max(2) + 1);
    format!("{ticks}{language}\n{text}\n{ticks}\n")
}

/// A text of one line as a part of a line of prose. It is a code span if a part of it could act as markup.
pub fn inline(text: &str) -> String {
    if !may_act(text) {
        return text.to_owned();
    }
    let ticks = "`".repeat(longest_ticks(text) + 1);
    // A renderer removes one space at each side, and a tick beside the ticks would lengthen them.
    let pad = if text.starts_with([' ', '`']) || text.ends_with([' ', '`']) { " " } else { "" };
    format!("{ticks}{pad}{text}{pad}{ticks}")
}

/// The text that [`inline`] has put into a line, at the end of that line.
pub fn inlined(line: &str) -> &str {
    let ticks = line.len() - line.trim_start_matches('`').len();
    let (open, inner) = line.split_at(ticks);
    let Some(inner) = inner.strip_suffix(open).filter(|_| ticks > 0) else { return line };
    inner.strip_prefix(' ').and_then(|inner| inner.strip_suffix(' ')).unwrap_or(inner)
}

fn longest_ticks(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

/// Whether a part of the text could act as markup within a line: emphasis, code, a link, HTML, an entity, an escape, a
/// formula, or a cell of a table.
fn may_act(text: &str) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    text.starts_with([' ', '[', '#', '>', '+', '-', '='])
        || text.ends_with(' ')
        || crate::with_neighbours(text).any(|(c, (before, after))| match c {
            '`' | '*' | '~' | '<' | '&' | '\\' | '|' | '$' => true,
            '_' => !(is_word(before) && is_word(after)),
            ']' => matches!(after, Some('(' | '[' | ':')),
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_leave_its_block() {
        assert_eq!(block("uname -s"), "```\nuname -s\n```\n");
        assert_eq!(block("a ``` b"), "````\na ``` b\n````\n");
    }

    #[test]
    fn a_text_that_could_act_as_markup_is_a_code_span() {
        for (text, expected) in [
            ("/usr/bin/uname", "/usr/bin/uname"),
            ("workspace_write, no network", "workspace_write, no network"),
            ("approvals.rules[0] says so (again)", "approvals.rules[0] says so (again)"),
            ("Job “tidy up” (01ab)", "Job “tidy up” (01ab)"),
            ("https://example.com/a?b=c", "https://example.com/a?b=c"),
            ("[my bank](https://example.com)", "`[my bank](https://example.com)`"),
            ("see [my bank](https://example.com)", "`see [my bank](https://example.com)`"),
            ("see [my bank][1]", "`see [my bank][1]`"),
            ("<a href=\"https://example.com\">my bank</a>", "`<a href=\"https://example.com\">my bank</a>`"),
            ("__init__.py", "`__init__.py`"),
            ("a&lt;b", "`a&lt;b`"),
            (r"a\*b", r"`a\*b`"),
            ("2*3*4", "`2*3*4`"),
            ("a ` b", "``a ` b``"),
            ("`ls`", "`` `ls` ``"),
            ("# no heading", "`# no heading`"),
            (" spaces ", "`  spaces  `"),
            ("", ""),
        ] {
            assert_eq!(inline(text), expected);
            assert_eq!(inlined(&inline(text)), text);
        }
    }
}
