#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

fn plain(markdown: &str) -> Vec<String> {
    pieces(markdown).into_iter().map(|piece| piece.plain).collect()
}

/// The text that Telegram shows for this HTML. Panics where Telegram would answer "can't parse entities".
fn shown(html: &str) -> String {
    let (mut text, mut open, mut rest) = (String::new(), Vec::new(), html);
    while let Some(c) = rest.chars().next() {
        if c == '<' {
            let end = rest.find('>').expect("a tag ends");
            let tag = &rest[1..end];
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop().as_deref(), Some(name), "{html}");
            } else {
                let name = tag.split(' ').next().unwrap();
                assert!(["b", "i", "s", "code", "pre", "a", "blockquote"].contains(&name), "{html}");
                assert!(!open.contains(&name.to_owned()), "nested: {html}");
                open.push(name.to_owned());
            }
            rest = &rest[end + 1..];
        } else if c == '&' {
            let (name, c) = [("&amp;", '&'), ("&lt;", '<'), ("&gt;", '>'), ("&quot;", '"')]
                .into_iter()
                .find(|(name, _)| rest.starts_with(name))
                .expect("a known entity");
            text.push(c);
            rest = &rest[name.len()..];
        } else {
            assert_ne!(c, '>', "{html}");
            text.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    assert!(open.is_empty(), "{open:?} in {html}");
    text
}

fn without_space(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// Checks the invariants of the pieces of any text.
fn check(markdown: &str) {
    let pieces = pieces(markdown);
    for piece in &pieces {
        assert!(units(&piece.plain) <= PIECE_MAX_UNITS, "{} units", units(&piece.plain));
        assert!(!piece.plain.trim().is_empty());
        assert_eq!(shown(&piece.html), piece.plain);
    }
    let joined: String = pieces.iter().map(|piece| without_space(&piece.plain)).collect();
    assert_eq!(joined, without_space(styled(markdown).text()), "nothing but space is lost at the cuts");
    if !without_space(markdown).is_empty() {
        assert!(!joined.is_empty(), "no answer is swallowed");
    }
}

#[test]
fn a_short_answer_is_one_piece_and_an_empty_one_is_none() {
    assert_eq!(pieces("**hi**"), [Piece { html: "<b>hi</b>".into(), plain: "hi".into() }]);
    assert_eq!(pieces(" \n\n "), []);
}

#[test]
fn the_limit_counts_utf16_units() {
    for (text, lengths) in [
        ("x".repeat(4096), vec![4096]),
        ("x".repeat(4097), vec![4096, 1]),
        ("🗝".repeat(2048), vec![4096]),
        (format!("x{}", "🗝".repeat(2048)), vec![4095, 2]),
        ("ß".repeat(4097), vec![4096, 1]),
        ("&".repeat(4096), vec![4096]),
    ] {
        assert_eq!(plain(&text).iter().map(|piece| units(piece)).collect::<Vec<_>>(), lengths);
    }
}

#[test]
fn cuts_prefer_blocks_then_lines_then_sentences_then_words() {
    let (long, longer) = ("a".repeat(2500), "b".repeat(3000));
    assert_eq!(plain(&format!("{long}\n\n{longer}")), [long.clone(), longer.clone()]);
    assert_eq!(plain(&format!("{long}\n{longer}")), [long.clone(), longer.clone()]);
    assert_eq!(plain(&format!("{long} x. {longer}")), [format!("{long} x."), longer.clone()]);
    assert_eq!(plain(&format!("{long} {longer}")), [long.clone(), longer.clone()]);
}

#[test]
fn a_code_block_that_fits_is_never_cut() {
    let code = "let x = 1;\n".repeat(372); // 4092 units
    let all = pieces(&format!("Here:\n\n```rust\n{code}```\n\nThat is all."));
    assert_eq!(
        all.iter().map(|piece| piece.plain.as_str()).collect::<Vec<_>>(),
        ["Here:", code.trim_end(), "That is all."]
    );
    assert!(all[1].html.starts_with("<pre><code class=\"language-rust\">"));
}

#[test]
fn a_longer_code_block_is_closed_and_opened_again_with_its_language_between_lines() {
    let code: String = (0..1000).map(|n| format!("    line {n}\n")).collect();
    let all = pieces(&format!("```py\n{code}```"));
    assert!(all.len() > 2);
    for piece in &all {
        assert!(piece.html.starts_with("<pre><code class=\"language-py\">    line "), "{}", &piece.html[..60]);
        assert!(piece.html.ends_with("</code></pre>"));
    }
    let joined: Vec<_> = all.iter().map(|piece| piece.plain.as_str()).collect();
    assert_eq!(joined.join("\n"), code.trim_end());
}

#[test]
fn styles_continue_in_the_next_piece() {
    let all = pieces(&format!("**{}**", "word ".repeat(1000).trim_end()));
    assert!(
        all.len() == 2 && all.iter().all(|piece| piece.html.starts_with("<b>word") && piece.html.ends_with("</b>"))
    );
}

#[test]
fn a_family_is_not_torn_apart() {
    let family = "👨‍👩‍👧‍👦"; // eleven units in seven characters
    for piece in plain(&family.repeat(1000)) {
        assert_eq!(piece.replace(family, ""), "");
    }
}

#[test]
fn odd_texts_keep_the_rules() {
    for text in [
        "\u{301}".repeat(10_000),
        format!("```\n{}\n```", " ".repeat(9000)),
        "> ".repeat(3000),
        format!("- {}", "- ".repeat(2000)),
        format!("|a|b|\n|-|-|\n{}", "|x|y|\n".repeat(1500)),
        format!("[{}](https://e.org)", "x".repeat(9000)),
        "\r\n".repeat(5000) + "x",
        "\u{0}\u{7}x".repeat(2000),
    ] {
        check(&text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_text_gives_pieces_that_fit_and_lose_nothing(
        parts in prop::collection::vec(
            prop_oneof![
                Just("```rust\n".to_owned()), Just("\n```\n".to_owned()), Just("\n\n".to_owned()), Just("\n".to_owned()),
                Just("**".to_owned()), Just("`".to_owned()), Just("> ".to_owned()), Just("- ".to_owned()),
                Just("🗝".to_owned()), Just("👨‍👩‍👧".to_owned()), Just("| a | b |\n|---|---|\n| 1 | 2 |\n".to_owned()),
                Just("[x](https://e.org/?a&b)".to_owned()), Just("# ".to_owned()), Just("<b>&amp;".to_owned()),
                "\\PC{0,40}", "[a-z .\n]{0,400}", (1usize..5000).prop_map(|n| "x".repeat(n)),
            ],
            0..60,
        )
    ) {
        check(&parts.concat());
    }
}
