#![allow(clippy::unwrap_used)]

mod acting;

use proptest::prelude::*;

use super::*;

const UNITS: [Unit; 3] = [Unit::Utf16, Unit::CodePoints, Unit::Bytes];

/// The text without space and without the marks that a piece may repeat or add.
fn core(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace() && !"`~>\\".contains(*c)).collect()
}

fn check(markdown: &str, unit: Unit, max: usize) {
    let pieces = pieces(markdown, unit, max);
    for piece in &pieces {
        assert!(unit.count(piece) <= max, "{} {unit:?} of {max}: {piece:?}", unit.count(piece));
        assert!(!piece.trim().is_empty());
    }
    assert_eq!(core(&pieces.concat()), core(markdown), "{unit:?} {max}: nothing but space is lost at the cuts");
}

#[test]
fn a_short_text_is_one_piece_as_it_was_written_and_an_empty_one_is_none() {
    for text in [
        "**hi** `x`",
        "a\n\n```rust\nlet x;\n```\n\nb",
        "> ```\n> x\n> ```",
        "- ```py\n  x\n  ```\n- b",
        "| a |\n|---|\n| 1 |",
    ] {
        for unit in UNITS {
            assert_eq!(pieces(text, unit, 100), [text]);
        }
    }
    assert_eq!(pieces(" \n\n ", Unit::Bytes, 100), Vec::<String>::new());
}

#[test]
fn each_unit_counts_in_its_own_way() {
    for (text, lengths) in [("🗝".repeat(100), [2, 1, 4]), ("ß".repeat(100), [1, 1, 2]), ("x".repeat(100), [1, 1, 1])]
    {
        for (unit, length) in UNITS.into_iter().zip(lengths) {
            assert_eq!(unit.count(&text), 100 * length);
            assert_eq!(pieces(&text, unit, 40).len(), (100 * length).div_ceil(40), "{unit:?}");
        }
    }
    let family = "👨‍👩‍👧‍👦";
    for unit in UNITS {
        let whole = pieces(&family.repeat(100), unit, 60).iter().all(|piece| piece.replace(family, "").is_empty());
        assert!(whole, "{unit:?}: a family is not torn apart");
    }
}

#[test]
fn a_longer_code_block_is_closed_and_opened_again_with_its_language() {
    let code: String = (0..40).map(|n| format!("    line {n}\n")).collect();
    for (before, later) in [("", ""), ("> ", "> "), ("- ", "  ")] {
        let body: String = code.lines().map(|line| format!("{later}{line}\n")).collect();
        let all = pieces(&format!("{before}```py\n{body}{later}```\n\nThat is all."), Unit::CodePoints, 120);
        assert!(all.len() > 3, "{all:?}");
        for (number, piece) in all[..all.len() - 1].iter().enumerate() {
            let open = if number == 0 { before } else { later };
            assert!(piece.starts_with(&format!("{open}```py\n{later}    line ")), "{piece}");
            assert!(piece.contains(&format!("\n{later}```")), "{piece}");
        }
        assert!(all.last().unwrap().ends_with("That is all."));
        all.iter().for_each(|piece| assert_eq!(piece.matches("```").count() % 2, 0, "{piece}"));
    }
}

#[test]
fn a_code_block_that_fits_is_never_cut() {
    let code = "let x = 1;\n".repeat(8);
    let block = format!("```rust\n{code}```");
    let all = pieces(&format!("Here it is:\n\n{block}\n\nThat is all."), Unit::CodePoints, 100);
    assert_eq!(all, ["Here it is:", block.as_str(), "That is all."]);
}

#[test]
fn a_span_with_marks_stays_whole_where_that_is_possible() {
    let text = format!("{} **bold words that stay together** after", "word ".repeat(12).trim_end());
    let all = pieces(&text, Unit::CodePoints, 80);
    assert!(all.iter().all(|piece| piece.matches("**").count() % 2 == 0), "{all:?}");
}

#[test]
fn odd_texts_keep_the_rules() {
    for text in [
        "\u{301}".repeat(1000),
        format!("```\n{}\n```", " ".repeat(900)),
        "> ".repeat(300),
        format!("- {}", "- ".repeat(200)),
        "```".to_owned(),
        "```\n```".to_owned(),
        "~~~~\nx\n~~~".to_owned(),
        format!("```{}\nx\n```", "l".repeat(200)),
        format!("> ```\n{}", "> x\n".repeat(100)),
        "\r\n".repeat(500) + "x",
    ] {
        UNITS.into_iter().for_each(|unit| check(&text, unit, 64));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn any_text_gives_pieces_that_fit_and_lose_nothing(
        parts in prop::collection::vec(
            prop_oneof![
                Just("```\n".to_owned()), Just("\n```\n".to_owned()), Just("\n\n".to_owned()), Just("\n".to_owned()),
                Just("**".to_owned()), Just("`code` ".to_owned()), Just("> ".to_owned()), Just("- ".to_owned()), Just("~~~\n".to_owned()),
                Just("🗝".to_owned()), Just("👨‍👩‍👧".to_owned()), Just("| a | b |\n|---|---|\n| 1 | 2 |\n".to_owned()),
                Just("[x](https://e.org/?a&b)".to_owned()), Just("# ".to_owned()), Just("<b>&amp;".to_owned()),
                "\\PC{0,40}", "[a-z .\n]{0,100}", (1usize..300).prop_map(|n| "x".repeat(n)),
            ],
            0..40,
        ),
        unit in prop::sample::select(UNITS.to_vec()),
        max in LIMIT_MIN..400,
    ) {
        check(&parts.concat(), unit, max);
    }
}
