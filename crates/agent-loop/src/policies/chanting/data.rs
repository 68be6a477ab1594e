//! Tells data from language: numbers, sequences of a few letters, and records, from sentences and markup.

/// Most different letters of a sequence: the bases of a gene, and one for an unknown one.
const ALPHABET: usize = 5;

/// Least letters of a sequence without a break.
const UNBROKEN: usize = 10;

/// Words that are values.
const VALUES: [&str; 8] = ["true", "false", "null", "none", "nil", "nan", "inf", "na"];

/// Whether a repeated text is data.
pub(super) fn is_data(text: &str) -> bool {
    if is_markup(text) {
        return false;
    }
    let solid = text.chars().filter(|c| !c.is_whitespace()).count();
    let digits = text.chars().filter(|c| c.is_numeric()).count();
    let letters = text.chars().filter(|c| c.is_alphabetic()).count();
    let marks = text.chars().all(|c| c.is_ascii_punctuation() || c.is_whitespace());
    marks || digits > letters || is_sequence(text, solid) || are_values(text) || is_record(text)
}

fn is_markup(text: &str) -> bool {
    text.match_indices('<').any(|(at, _)| text[at + 1..].starts_with(|c: char| c == '/' || c.is_alphabetic()))
}

fn is_sequence(text: &str, solid: usize) -> bool {
    let mut seen = [false; 26];
    let mut letters = 0;
    for c in text.bytes().filter(u8::is_ascii_alphabetic) {
        seen[usize::from(c.to_ascii_lowercase() - b'a')] = true;
        letters += 1;
    }
    let unbroken = text.split(|c: char| !c.is_ascii_alphabetic()).map(str::len).max().unwrap_or(0);
    letters * 5 >= solid * 4 && unbroken >= UNBROKEN && seen.iter().filter(|seen| **seen).count() <= ALPHABET
}

/// Whether all its words are values. The first and the last may be cut.
fn are_values(text: &str) -> bool {
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let inner = words.get(1..words.len().saturating_sub(1)).unwrap_or_default();
    !inner.is_empty() && inner.iter().all(|word| VALUES.iter().any(|value| word.eq_ignore_ascii_case(value)))
}

/// Whether it has the marks of a record: a level in upper case, or signs that sentences do not have; and no sentence.
fn is_record(text: &str) -> bool {
    let ends = |c: char| matches!(c, '.' | '!' | '?' | '。' | '！' | '？' | '…');
    let mut before = [' '; 2];
    for c in text.chars().chain([' ']) {
        if c.is_whitespace() && ends(before[1]) && before[0].is_alphabetic() || matches!(c, '。' | '！' | '？') {
            return false;
        }
        before = [before[1], c];
    }
    let level = |word: &str| word.len() >= 3 && word.chars().all(|c| c.is_ascii_uppercase());
    let words = || text.split(|c: char| !c.is_alphanumeric());
    let leveled = words().any(level) && words().any(|word| word.len() >= 3 && word.chars().all(char::is_lowercase));
    let columns = text.as_bytes().windows(2).filter(|pair| pair[0] == b',' && !pair[1].is_ascii_whitespace()).count();
    leveled || columns > 1 || text.contains(['=', '[', ']', '{', '}', '|', '\\', ';'])
}

#[cfg(test)]
mod tests {
    use super::is_data;

    #[test]
    fn numbers_sequences_and_records_are_data() {
        for (text, expected) in [
            ("0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ", true),
            ("0x00, 0x00, 0x00, ", true),
            ("GATTACAGATTACAGATTACA", true),
            ("ny ny ny ny ny", false),
            ("AAAAAAAAAAAAAAAAAAAAAAAAA", true),
            ("false, false, false, false, fal", true),
            ("2026-03-14 09:26:53 INFO heartbeat ok ", true),
            ("INFO heartbeat ok ", true),
            ("{\"name\": \"value\", \"status\": \"active\"}, ", true),
            ("* * * * ", true),
            ("level=info msg=ok ", true),
            ("pump-3,idle,0.00,none ", true),
            ("依据，8 判决，人民法院 人民法院，其 依据，3 依据848 ", false),
            ("I am going to look at the configuration once more ", false),
            ("Step 1 is done. ", false),
            ("[INFO] I will look. I will look once more. ", false),
            ("<lo><ruso><lo>e</lo></ruso></lo>", false),
            ("and and and and and", false),
            ("哈哈哈哈哈哈哈哈哈哈哈哈", false),
            ("我先看一下配置文件。", false),
            ("NO NO NO NO NO", false),
        ] {
            assert_eq!(is_data(text), expected, "{text}");
        }
    }
}
