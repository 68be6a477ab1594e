//! Nothing of a text that cannot act within its line or code acts in a piece.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::*;

const LINK: &str = "[my bank](https://e.example) ";

/// The text of the pieces without space, as a reader sees it. Panics if a part of it is more than code, or an item of a list.
fn shown(pieces: &[String]) -> String {
    let mut shown = String::new();
    for piece in pieces {
        for event in Parser::new_ext(piece, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH) {
            match event {
                Event::Text(text) | Event::Code(text) => shown.extend(text.chars().filter(|c| !c.is_whitespace())),
                Event::Start(Tag::Paragraph | Tag::CodeBlock(_) | Tag::Item | Tag::List(None))
                | Event::End(TagEnd::Paragraph | TagEnd::CodeBlock | TagEnd::Item | TagEnd::List(false))
                | Event::SoftBreak => {}
                acting => panic!("{acting:?} in {:?}", &piece[..piece.floor_char_boundary(200)]),
            }
        }
    }
    shown
}

fn check_shown(before: &str, marked: &str, content: &str, after: &str) {
    let markdown = format!("{before}{marked}{after}");
    let expected: String = format!("{before}{content}{after}").chars().filter(|c| !c.is_whitespace()).collect();
    for (unit, max) in UNITS.into_iter().flat_map(|unit| [LIMIT_MIN, 400, 2_000, 5_000, 10_000].map(|max| (unit, max)))
    {
        check(&markdown, unit, max);
        let expected = expected.replacen("-argument:", "argument:", 1).replacen("-to:", "to:", 1);
        assert!(shown(&pieces(&markdown, unit, max)) == expected, "{unit:?} {max} {:?}", &markdown[..40]);
    }
}

#[test]
fn a_longer_code_span_is_closed_and_opened_again() {
    let ticks = "`".repeat(3_000);
    for content in [
        format!("{LINK}{}", "x".repeat(9_000)),
        LINK.repeat(400),
        format!("{}{LINK}", "x".repeat(9_000)),
        format!("{ticks} {LINK}{ticks}{}", LINK.repeat(300)),
        "` `` ".repeat(2_000) + LINK,
        "# May I do this? **read_file** ".repeat(300),
        format!("{}{LINK}", "🗝".repeat(3_000)),
    ] {
        let longest = content.split(|c| c != '`').map(str::len).max().unwrap();
        let marks = "`".repeat(longest + 1);
        check_shown("- argument: ", &format!("{marks} {content} {marks}"), &content, "\n- to: x");
    }
}

#[test]
fn a_part_of_a_code_span_has_its_space_and_its_ticks() {
    for (content, max) in [("a   b ``".repeat(40), 64), (" ".repeat(5) + &"b  ".repeat(60) + "c", 50)] {
        let pieces = pieces(&format!("``` {content} ```"), Unit::Bytes, max);
        let code = pieces.iter().flat_map(|piece| Parser::new(piece)).filter_map(|event| match event {
            Event::Code(code) => Some(code.into_string()),
            _ => None,
        });
        assert_eq!(code.collect::<String>(), content);
        assert!(pieces.len() > 3);
    }
    assert_eq!(pieces("a ` `` ` b", Unit::Bytes, 64), ["a ` `` ` b"]);
}

#[test]
fn a_block_with_longer_fences_than_a_piece_has_shorter_ones_in_each() {
    for ticks in [3, 20, 300, 3_000] {
        let content = format!("{} {LINK}\n# x\n- **y**\n", "`".repeat(ticks)).repeat(4) + &"z\n".repeat(2_000);
        let marks = "`".repeat(ticks + 1);
        check_shown("x\n\n", &format!("{marks}\n{content}{marks}"), &content, "\n\ny");
    }
}

#[test]
fn text_within_a_line_does_not_act_at_the_start_of_a_piece() {
    for content in [
        "# May I do this? ".repeat(300),
        "x # > + - 1. 2) y ".repeat(300),
        "# ".repeat(3_000),
        "-".repeat(3_000),
        "- ".repeat(3_000),
        "1. ".repeat(3_000),
        format!("{}. y", "1".repeat(3_000)),
        format!("{}123456789. y", "x ".repeat(3_000)),
        "a>".repeat(3_000),
        "a_b".repeat(3_000),
        "ab_".repeat(3_000),
        format!("{}# y", "x".repeat(9_000)),
    ] {
        check_shown("- argument: x ", &content, &content, "\n- to: x");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn no_value_acts_in_a_piece(
        text in prop::collection::vec(
            prop::sample::select(vec![
                "# ", "#", "> ", ">", "- ", "-", "+ ", "1. ", "12)", "a_b", "ab ", "= ", "==", ". ", "!", "ö", "🗝",
            ]),
            0..200,
        ),
        code in prop::collection::vec(
            prop::sample::select(vec![
                "`", "`` ", "[x](https://e.example) ", "# ", "**a** ", "<b> ", "  ", "~~~ ", "| a | ", "- ", "1. ", "word",
            ]),
            0..200,
        ),
        unit in prop::sample::select(UNITS.to_vec()),
        max in LIMIT_MIN..300,
    ) {
        let (text, code) = (format!("x {}", text.concat()), format!("x{}x", code.concat()));
        let marks = "`".repeat(code.split(|c| c != '`').map(str::len).max().unwrap_or(0) + 1);
        let markdown = format!("- text: {text}\n- code: {marks}{code}{marks}, {text}\n- to: x");
        check(&markdown, unit, max);
        let expected: String =
            format!("text: {text} code: {code}, {text} to: x").chars().filter(|c| !c.is_whitespace()).collect();
        prop_assert_eq!(shown(&pieces(&markdown, unit, max)), expected);
    }
}
