//! Reads numbers that are written in words or in Chinese numerals: a few great ones of a few languages.

/// The greatest number that is read.
pub(super) const MOST: u64 = 1_000_000;

/// Words for great numbers. Each may end a compound that begins with a word for a small one.
const GREAT: [(&str, u64); 16] = [
    ("dozen", 12),
    ("hundred", 100),
    ("hundreds", 300),
    ("thousand", 1000),
    ("thousands", 3000),
    ("hundert", 100),
    ("hundertmal", 100),
    ("tausend", 1000),
    ("tausendmal", 1000),
    ("cent", 100),
    ("cents", 100),
    ("mille", 1000),
    ("cien", 100),
    ("cientos", 100),
    ("mil", 1000),
    ("сто", 100),
];

/// Words for small numbers that multiply a great one.
const SMALL: [(&str, u64); 32] = [
    ("two", 2),
    ("three", 3),
    ("four", 4),
    ("five", 5),
    ("six", 6),
    ("seven", 7),
    ("eight", 8),
    ("nine", 9),
    ("ten", 10),
    ("zwei", 2),
    ("drei", 3),
    ("vier", 4),
    ("fünf", 5),
    ("sechs", 6),
    ("sieben", 7),
    ("acht", 8),
    ("neun", 9),
    ("zehn", 10),
    ("deux", 2),
    ("trois", 3),
    ("quatre", 4),
    ("cinq", 5),
    ("sept", 7),
    ("huit", 8),
    ("dix", 10),
    ("dos", 2),
    ("tres", 3),
    ("cuatro", 4),
    ("cinco", 5),
    ("seis", 6),
    ("ocho", 8),
    ("diez", 10),
];

/// A word: its end, and its value if it is a great number.
pub(super) fn in_words(text: &[char], start: usize) -> Option<(usize, Option<u64>)> {
    let numeral = text[start..].iter().take_while(|c| han(**c).is_some()).count();
    if numeral > 0 {
        return Some((start + numeral, han_value(&text[start..start + numeral])));
    }
    let length = text[start..].iter().take_while(|c| c.is_alphabetic() && han(**c).is_none()).count();
    if length == 0 {
        return None;
    }
    let word = |chars: &[char]| chars.iter().collect::<String>().to_lowercase();
    let end = start + length;
    let of = |word: &str, table: &[(&str, u64)]| table.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    let whole = word(&text[start..end]);
    let compound = || GREAT.iter().find_map(|(name, value)| Some(of(whole.strip_suffix(name)?, &SMALL)? * value));
    let Some(value) = of(&whole, &GREAT).or_else(compound) else { return Some((end, None)) };
    let before = text[..start].iter().rev().skip_while(|c| c.is_whitespace()).take_while(|c| c.is_alphabetic()).count();
    let blanks = text[..start].iter().rev().take_while(|c| c.is_whitespace()).count();
    let small = of(&word(&text[start - blanks - before..start - blanks]), &SMALL).unwrap_or(1);
    Some((end, Some(value * small)))
}

/// The value of a Chinese numeral, and whether it is a unit that multiplies.
fn han(c: char) -> Option<(u64, bool)> {
    Some(match c {
        '〇' | '零' => (0, false),
        '一' => (1, false),
        '二' | '两' | '兩' => (2, false),
        '三' => (3, false),
        '四' => (4, false),
        '五' => (5, false),
        '六' => (6, false),
        '七' => (7, false),
        '八' => (8, false),
        '九' => (9, false),
        '十' => (10, true),
        '百' => (100, true),
        '千' => (1000, true),
        '万' | '萬' => (10_000, true),
        _ => return None,
    })
}

/// The value of Chinese numerals. A numeral below ten is no count.
fn han_value(numerals: &[char]) -> Option<u64> {
    let (sum, last) = numerals.iter().filter_map(|c| han(*c)).fold((0_u64, 0_u64), |(sum, last), (value, unit)| {
        if unit { (sum + last.max(1) * value, 0) } else { (sum, value) }
    });
    Some((sum + last).min(MOST)).filter(|value| *value >= 10)
}
