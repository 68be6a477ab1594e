//! Cuts a long text to the available space of a prompt: its beginning, a line about the missing part, and its end.

/// Percentage of the space for the beginning and for the end. The rest is for the line between them. The beginning has
/// the rules and headings; the end has the latest additions.
const HEAD: usize = 70;
const TAIL: usize = 20;

/// Cuts a text of `whole` characters to at most `max` characters, and returns whether it was cut. `name` appears in the
/// line between. `max` is at least 500, so that this line fits.
pub(super) fn cut(text: &str, whole: usize, max: usize, name: &str) -> (String, bool) {
    if whole <= max {
        return (text.to_owned(), false);
    }
    let (head, tail) = (max * HEAD / 100, max * TAIL / 100);
    let head_end = nth(text, head);
    let tail_start = nth(text, whole - tail);
    let line = format!("[{} of {whole} characters are left out here]", whole - head - tail);
    // With little space, a shorter line is used.
    let lines = [format!("[{name}: {}", &line[1..]), line, format!("[{} characters left out]", whole - head - tail)];
    let max_line_chars = max - head - tail - 2;
    let line = lines.into_iter().find(|line| line.chars().count() <= max_line_chars).unwrap_or_default();
    (format!("{}\n{line}\n{}", &text[..head_end], &text[tail_start..]), true)
}

/// Byte offset of the n-th character.
fn nth(text: &str, n: usize) -> usize {
    text.char_indices().nth(n).map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_text_keeps_its_beginning_and_end_with_a_note() {
        let text = format!("{}{}", "a".repeat(10_000), "z".repeat(10_000));
        let (shown, cut) = cut(&text, 20_000, 1_000, "MEMORY.md");
        assert!(cut);
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[0], "a".repeat(700));
        assert_eq!(lines[1], "[MEMORY.md: 19100 of 20000 characters are left out here]");
        assert_eq!(lines[2], "z".repeat(200));
    }

    #[test]
    fn a_text_that_fits_stays_as_it_is() {
        assert_eq!(cut("ключ", 4, 200, "a"), ("ключ".to_owned(), false));
    }

    proptest! {
        #[test]
        fn a_cut_text_never_exceeds_the_limit(
            text in ".{0,3000}", max in 500usize..2000, name in ".{1,80}",
        ) {
            let whole = text.chars().count();
            let (shown, was_cut) = cut(&text, whole, max, &name);
            prop_assert!(shown.chars().count() <= max);
            prop_assert_eq!(was_cut, whole > max);
            if was_cut {
                let head: String = text.chars().take(max * 70 / 100).collect();
                let tail: String = text.chars().skip(whole - max * 20 / 100).collect();
                prop_assert!(shown.starts_with(&head) && shown.ends_with(&tail));
            }
        }
    }
}
