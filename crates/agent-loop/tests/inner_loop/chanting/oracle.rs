//! The rule for windows by its words, slowly, against what finds them quickly.

use belay_agent_loop::policies::chanting::Chanting;
use proptest::prelude::*;

/// The first place at which plain prose chants, in characters, and its spacing and periods: each window is looked for
/// backwards, character by character.
fn by_the_rule(text: &[char]) -> Option<(usize, usize, usize)> {
    (50..=text.len()).find_map(|end| {
        let window = &text[end - 50..end];
        let mut ends = vec![end];
        for at in (50..=end.saturating_sub(50)).rev() {
            if end - at > 2250 || ends.len() == 10 {
                break;
            }
            if ends[ends.len() - 1] - at >= 50 && text[at - 50..at] == *window {
                ends.push(at);
            }
        }
        if ends.len() < 10 {
            return None;
        }
        let mut periods: Vec<_> = ends.windows(2).map(|pair| &text[pair[1]..pair[0]]).collect();
        periods.sort_unstable();
        periods.dedup();
        (periods.len() <= 5).then(|| (end, (end - ends[9]) / 9, periods.len()))
    })
}

fn check(text: &str) {
    let chars: Vec<char> = text.chars().collect();
    let mut chanting = Chanting::default();
    chanting.text(text);
    let fact = |key: &str| chanting.found().and_then(|found| found.facts[key].as_u64()).map(|fact| fact as usize);
    let quick = chanting.found().map(|_| (chanting.position() as usize, fact("spacing"), fact("periods")));
    let rule = by_the_rule(&chars).map(|(end, spacing, periods)| (end, Some(spacing), Some(periods)));
    assert_eq!(quick, rule, "{text:?}");
}

/// Words of few letters, so that windows, grams and hashes meet in every way; no blanks that would collapse.
fn words(letters: &'static str, length: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    let letters: Vec<char> = letters.chars().collect();
    prop::collection::vec(prop::sample::select(letters), length).prop_map(|letters| letters.into_iter().collect())
}

/// A few blocks, put together in an order with repetitions.
fn blocks(letters: &'static str, length: usize) -> impl Strategy<Value = String> {
    (prop::collection::vec(words(letters, 1..length), 1..8), prop::collection::vec(any::<prop::sample::Index>(), 1..60))
        .prop_map(|(blocks, order)| order.iter().map(|at| at.get(&blocks).as_str()).collect())
}

/// One block that comes again with others between: the periods are as many as the others.
fn refrain() -> impl Strategy<Value = String> {
    (words("abcdefgh", 40..70), prop::collection::vec(words("abcdefgh", 0..230), 1..9), 8..25usize)
        .prop_map(|(same, others, times)| (0..times).map(|at| format!("{same}{}", others[at % others.len()])).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn blocks_in_any_order_chant_where_the_rule_says(text in blocks("abcdefghijklmnop", 120)) {
        check(&text);
    }

    #[test]
    fn short_units_chant_where_the_rule_says(text in blocks("aab", 20)) {
        check(&text.repeat(6));
    }

    #[test]
    fn a_refrain_chants_where_the_rule_says(text in refrain()) {
        check(&text);
    }

    #[test]
    fn a_lead_of_one_letter_hides_nothing(lead in 1..300usize, unit in words("abcdef", 1..120), times in 1..40usize) {
        check(&format!("{}{unit}", "x".repeat(lead)).repeat(times));
    }
}

#[test]
fn a_unit_without_gaps_chants_after_the_length_that_the_document_says() {
    for period in 1..=300_usize {
        let unit: String = (0..period).map(|at| char::from_u32(0x4E00 + at as u32).expect("a character")).collect();
        let mut chanting = Chanting::default();
        chanting.text(&unit.repeat(3000 / period + 2));
        let expected = (period <= 250).then(|| 9 * period * 50_usize.div_ceil(period) + 50);
        assert_eq!(chanting.found().map(|_| chanting.position() as usize), expected, "a unit of {period}");
    }
}
