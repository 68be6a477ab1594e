//! The fuzz target, as a plain function: any bytes are a text and the way it is cut into pieces.

use belay_agent_loop::policies::chanting::Chanting;
use belay_protocol::Finding;
use proptest::prelude::*;

/// Feeds a text whole, character by character, and in pieces of lengths that the data gives; the verdicts and all that
/// is remembered are the same. What is remembered has a bound by its type; the verdict has one here.
///
/// The first byte says how many bytes of the data are lengths of pieces, in characters; the rest is the text. Bytes that
/// are no text are replaced.
pub(crate) fn chanting_target(data: &[u8]) {
    let (&lengths, rest) = data.split_first().unwrap_or((&0, &[]));
    let (lengths, text) = rest.split_at(usize::from(lengths).min(rest.len()));
    let text = String::from_utf8_lossy(text);
    let whole = fed([&*text]);
    let singly = fed(text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]));
    assert_eq!(whole, singly, "character by character");
    let sliced = fed(pieces(&text, lengths));
    assert_eq!(whole, sliced, "in pieces of {lengths:?}");
    assert!(whole.position() <= text.chars().count() as u64);
    if let Some(finding) = whole.found() {
        check_finding(finding);
    } else {
        assert_eq!(whole.position(), text.chars().count() as u64, "without a verdict everything is read");
    }
}

/// A fresh state that was fed with these pieces; each call says what stands after it.
pub(crate) fn fed<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Chanting {
    let mut chanting = Chanting::default();
    for piece in pieces {
        let chants = chanting.text(piece);
        assert_eq!(chants, chanting.found().is_some());
    }
    chanting
}

/// The text in pieces of these lengths, in turn; a length of 0 is an empty piece.
pub(crate) fn pieces<'a>(text: &'a str, lengths: &'a [u8]) -> impl Iterator<Item = &'a str> {
    let mut rest = text;
    let mut lengths = lengths.iter().cycle();
    let mut empty = 0;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut length = lengths.next().map_or(usize::MAX, |length| usize::from(*length));
        empty = if length == 0 { empty + 1 } else { 0 };
        if empty > 3 {
            length = 1;
        }
        let at = rest.char_indices().nth(length).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(at);
        rest = after;
        Some(piece)
    })
}

fn check_finding(finding: &Finding) {
    assert_eq!((finding.rule.as_str(), finding.count), ("CHANTING_IDENTICAL_SENTENCES", finding.threshold));
    let quote = finding.quote.as_deref().expect("a quote").chars().count();
    assert!((1..=50).contains(&quote), "{finding:?}");
    assert!(matches!(finding.facts["layer"].as_str(), Some("window" | "lines")), "{finding:?}");
    if finding.facts["layer"] == "window" {
        let (spacing, periods) = (finding.facts["spacing"].as_u64(), finding.facts["periods"].as_u64());
        assert!(spacing.is_some_and(|spacing| (50..=250).contains(&spacing)), "{finding:?}");
        assert!(periods.is_some_and(|periods| (1..=5).contains(&periods)), "{finding:?}");
    }
}

/// Pieces of Markdown that meet each other in every order, and long repetitions of some.
fn markdown() -> impl Strategy<Value = String> {
    let bits = prop::sample::select(vec![
        "```",
        "``",
        "`",
        "~~~",
        "~~~~~",
        "\n",
        "\n\n",
        "\r\n",
        "    ",
        "   ",
        " ",
        "\t",
        "# ",
        "####### ",
        "> ",
        "- ",
        "* ",
        "+ ",
        "• ",
        "12. ",
        "3) ",
        "1234567890. ",
        "| a | b |",
        "--- | ---",
        "+---+",
        "═══",
        "===",
        "---",
        "- - -",
        "***",
        "rust",
        "No. ",
        "The same words come again, and nobody asked for them. ",
        "哈",
        "😀",
        "e\u{301}",
        "שלום ",
        "{",
        "\"key\": 1,",
        "\u{3000}",
        "\u{200d}",
        "....",
        "!!!!!!!!",
        "17",
        "x",
    ]);
    let times = prop_oneof![8 => 1..4usize, 1 => 10..70usize, 1 => 400..700usize];
    let part = (prop::collection::vec(bits, 1..5), times).prop_map(|(bits, times)| bits.concat().repeat(times));
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_markdown_in_any_pieces_has_one_verdict_at_one_place(
        text in markdown(),
        lengths in prop::collection::vec(0..40u8, 1..12),
    ) {
        let mut data = vec![lengths.len() as u8];
        data.extend(&lengths);
        data.extend(text.as_bytes());
        chanting_target(&data);
    }

    #[test]
    fn any_bytes_are_a_text_in_pieces(data in prop::collection::vec(any::<u8>(), 0..2000)) {
        chanting_target(&data);
    }

    #[test]
    fn what_was_cleared_leaves_nothing_behind(before in markdown(), after in markdown()) {
        let after = format!("{after}.");
        let mut chanting = fed([&*before]);
        chanting.clear();
        chanting.text(&after);
        prop_assert_eq!(chanting, fed([&*after]));
    }
}
