use super::*;
use crate::{rendered, width};

fn plain(text: &str, width: usize) -> Vec<String> {
    rendered(text, Look { width, colour: false })
}

fn coloured(text: &str) -> String {
    rendered(text, Look { width: 40, colour: true }).join("\n")
}

#[test]
fn markdown_is_shown_without_its_marks() {
    for (text, expected) in [
        ("", vec![]),
        ("Hello *you* and **me**.", vec!["Hello you and me."]),
        ("one\ntwo", vec!["one", "two"]),
        ("one  \ntwo", vec!["one", "two"]),
        ("one\n\ntwo", vec!["one", "", "two"]),
        ("# Title\ntext", vec!["# Title", "", "text"]),
        ("run `ls -l`", vec!["run `ls -l`"]),
        ("- a\n- b\n  - c\n- d", vec!["• a", "• b", "  • c", "• d"]),
        ("- a\n\n- b", vec!["• a", "• b"]),
        ("- a\n\n  more\n- b", vec!["• a", "", "  more", "• b"]),
        ("9. a\n10. b", vec!["9. a", "10. b"]),
        ("- [x] done\n- [ ] open", vec!["• [x] done", "• [ ] open"]),
        ("-\n- b", vec!["•", "• b"]),
        ("> quoted\n> text\n\nmine", vec!["│ quoted", "│ text", "", "mine"]),
        ("> a\n>\n> b", vec!["│ a", "│", "│ b"]),
        ("```rust\nfn a() {\n\n}\n```", vec!["  fn a() {", "", "  }"]),
        ("- a\n  ```\n  x\n  ```", vec!["• a", "", "    x"]),
        ("a\n\n---\n\nb", vec!["a", "", "────────────────────────────────────────", "", "b"]),
        ("~~no~~ <b>yes</b>", vec!["no <b>yes</b>"]),
        ("[docs](https://a.b/c)", vec!["docs (https://a.b/c)"]),
        ("<https://a.b/c>", vec!["https://a.b/c"]),
        ("[me](mailto:me@a.b)", vec!["me (mailto:me@a.b)"]),
        ("![a cat](cat.png)", vec!["a cat (cat.png)"]),
        ("see [1]\n\n[1]: https://a.b", vec!["see [1]", "", "[1]: https://a.b"]),
        ("- [1]: https://a.b", vec!["• [1]: https://a.b"]),
    ] {
        assert_eq!(plain(text, 60), expected, "{text:?}");
    }
}

#[test]
fn tables_are_aligned_wrapped_or_shown_row_by_row() {
    let table = "| name | n |\n|---|--:|\n| apples | 12 |\n| 漢字 | 3 |\n";
    assert_eq!(plain(table, 40), ["name   │  n", "───────┼───", "apples │ 12", "漢字   │  3"]);
    let long = "| a | b |\n|---|---|\n| one two three | x |\n";
    assert_eq!(plain(long, 12), ["a        │ b", "─────────┼──", "one two  │ x", "three    │"]);
    assert_eq!(plain(long, 5), ["a:", "one", "two", "three", "b: x"]);
    assert_eq!(plain("| a | b |\n|---|---|\n", 5), ["a", "b"]);
}

#[test]
fn a_narrow_terminal_drops_indentation_before_text() {
    assert_eq!(plain("> - abc", 3), ["abc"]);
    assert_eq!(plain("- ab cd", 5), ["• ab", "  cd"]);
    assert_eq!(plain("# a b", 1), ["#", "a", "b"]);
    assert_eq!(plain("```\nabc\n```", 2), ["ab", "c"]);
    assert_eq!(plain("漢", 1), ["漢"]);
}

#[test]
fn emphasis_and_links_are_escape_sequences() {
    for (text, expected) in [
        ("**b** *i*", "\x1b[1mb\x1b[0m \x1b[3mi\x1b[0m"),
        ("`x`", "\x1b[33mx\x1b[0m"),
        ("# T", "\x1b[1;36mT\x1b[0m"),
        ("<https://a.b>", "\x1b]8;;https://a.b\x1b\\\x1b[4mhttps://a.b\x1b[0m\x1b]8;;\x1b\\"),
        ("[x](https://a.b)", "\x1b]8;;https://a.b\x1b\\\x1b[4mx\x1b[0m\x1b]8;;\x1b\\\x1b[2m (https://a.b)\x1b[0m"),
        ("[x](javascript:alert)", "\x1b[4mx\x1b[0m\x1b[2m (javascript:alert)\x1b[0m"),
    ] {
        assert_eq!(coloured(text), expected, "{text}");
    }
}

#[test]
fn what_a_model_writes_cannot_command_the_terminal() {
    for text in [
        "a\x1b[2Jb",
        "&#27;[2J",
        "`\x1b]0;title\x07`",
        "```\n\x1b[1A\n```",
        "```\x1b[1A\nx\n```",
        "[x](https://a.b/\u{1b}]8;;)",
        "[x](<https://a.b/\u{9b}31m>)",
        "[x\x1b](https://a.b/&#7;)",
        "| a\x1b |\n|---|\n| \u{202e}b |",
        "<b \x1b[2J>",
        "# \x1b[2J\r",
    ] {
        for line in rendered(text, Look { width: 30, colour: false }) {
            assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{text:?}: {line:?}");
        }
        let shown = coloured(text);
        let own = shown.replace("\x1b]8;;", "").replace("\x1b\\", "").replace('\n', "");
        let own = own.split("\x1b[").map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';'));
        let rest: String = own.collect();
        assert!(!rest.chars().any(|c| c.is_control() || c == '\u{202e}'), "{text:?}: {rest:?}");
    }
}

#[test]
fn a_block_is_final_once_the_next_one_has_begun() {
    let mut answer = Answer::new(Look { width: 40, colour: false });
    answer.push("one **two");
    assert_eq!((answer.finished(), answer.unfinished()), (vec![], vec!["one **two".into()]));
    answer.push("** three\n\n");
    assert_eq!(answer.finished(), Vec::<String>::new());
    answer.push("- a");
    assert_eq!(answer.finished(), Vec::<String>::new(), "the line has not ended");
    answer.push("\n");
    assert_eq!(answer.finished(), ["one two three"]);
    assert_eq!(answer.unfinished(), ["", "• a"]);
    answer.push("- b");
    assert_eq!(answer.finish(), ["", "• a", "• b"]);
    assert_eq!(answer.finish(), Vec::<String>::new());
}

/// Pieces of Markdown that may change the meaning of what stands around them.
const PIECES: &[&str] = &[
    "a",
    " ",
    "\n",
    "\n",
    "\n\n",
    "# ",
    "- ",
    "* ",
    "1. ",
    "> ",
    "```",
    "```rust\n",
    "~~~",
    "---\n",
    "===\n",
    "|",
    "|---|",
    "    ",
    "  ",
    "**",
    "*",
    "_",
    "`",
    "[x]",
    "(http://a)",
    "[x]: u\n",
    "[",
    "]:",
    "<b>",
    "<!--",
    "-->",
    "\\",
    "&#27;",
    "漢",
    "\t",
    "\"t",
];

proptest::proptest! {
    #[test]
    fn the_lines_do_not_depend_on_the_pieces(
        picks in proptest::collection::vec(0..PIECES.len(), 0..40),
        cuts in proptest::collection::vec(0usize..200, 0..12),
        width in 1usize..30,
    ) {
        let text: String = picks.into_iter().map(|at| PIECES[at]).collect();
        let look = Look { width, colour: false };
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|at| *at <= text.len() && text.is_char_boundary(*at)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let (mut answer, mut lines) = (Answer::new(look), Vec::new());
        for piece in cuts.windows(2) {
            answer.push(&text[piece[0]..piece[1]]);
            lines.extend(answer.finished());
            let _ = answer.unfinished();
        }
        lines.extend(answer.finish());
        assert_eq!(lines, rendered(&text, look), "{text:?}");
        for line in &lines {
            assert!(!line.chars().any(char::is_control), "{line:?}");
            assert!(super::tests::width(line) <= width.max(2), "{line:?}");
        }
    }
}
