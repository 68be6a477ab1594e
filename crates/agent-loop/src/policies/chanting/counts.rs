//! Reads how many repetitions a request asks for: its numbers, in digits of any script and in a few words.
//!
//! Only a number that stands alone can be a count. Dates, times, versions, percentages, and numbers with a `#` or
//! letters before them are none.

use serde::{Deserialize, Serialize};

use super::numerals::{MOST, in_words};

/// The counts in a request; 0: there is none.
#[derive(Serialize, Deserialize, Debug, PartialEq, Clone, Copy, Default)]
pub(super) struct Counts {
    /// The greatest number, or product of numbers with a cross between them: `2,000`, `30 x 40`.
    pub(super) items: u64,
    /// The greatest number of cells that the request can mean: the product of its two greatest numbers, as in "30 rows
    /// and 40 columns", or the square of the only one if it is about a matrix. At least `items`.
    pub(super) cells: u64,
    /// The greatest number alone: the rows, if what is repeated is a row of cells.
    pub(super) rows: u64,
}

struct Number {
    value: u64,
    start: usize,
    end: usize,
}

impl Counts {
    /// The greater of each.
    pub(super) fn or(self, other: Self) -> Self {
        let [items, cells, rows] =
            [(self.items, other.items), (self.cells, other.cells), (self.rows, other.rows)].map(|(a, b)| a.max(b));
        Self { items, cells, rows }
    }

    /// Reads a request.
    pub(super) fn of(request: &str) -> Self {
        let text: Vec<char> = request.chars().collect();
        let (mut items, mut most) = (0, 0);
        let mut greatest = [1, 1];
        let mut product: Option<(u64, usize)> = None;
        for Number { value, start, end } in numbers(&text) {
            let crossed =
                product.filter(|(_, before)| has_cross(&text[*before..start])).map_or(1, |(before, _)| before);
            let whole = value.saturating_mul(crossed).min(MOST);
            (items, most) = (items.max(whole), most.max(value));
            product = Some((whole, end));
            if !(1900..2100).contains(&value) {
                let [first, second] = greatest;
                greatest = if value > first { [value, first] } else { [first, second.max(value)] };
            }
        }
        let [rows, columns] = greatest;
        let columns = if columns == 1 && is_about_a_square(request) { rows } else { columns };
        let cells = rows.saturating_mul(columns).min(MOST);
        Self { items, cells: if items == 0 { 0 } else { items.max(cells) }, rows: most }
    }
}

/// Whether a request with one number is about a matrix, which then has as many rows as columns.
fn is_about_a_square(request: &str) -> bool {
    let request = request.to_lowercase();
    ["matri", "матриц", "矩阵", "矩陣", "行列", "행렬", "مصفوفة", "square", "grid"]
        .iter()
        .any(|word| request.contains(word))
}

/// Whether there is nothing but a sign of multiplication between two numbers.
fn has_cross(between: &[char]) -> bool {
    let mut signs = between.iter().filter(|c| !c.is_whitespace());
    matches!((signs.next(), signs.next()), (Some('x' | 'X' | '×' | '✕' | '*' | '·'), None))
}

fn numbers(text: &[char]) -> Vec<Number> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let read = if digit(text[at]).is_some() { in_digits(text, at) } else { in_words(text, at) };
        let (end, value) = read.unwrap_or((at + 1, None));
        found.extend(value.map(|value| Number { value, start: at, end }));
        at = end;
    }
    found
}

/// A number in digits: its end, and its value if it can be a count.
fn in_digits(text: &[char], start: usize) -> Option<(usize, Option<u64>)> {
    let digits = |from: usize| text[from..].iter().map_while(|c| digit(*c)).count();
    let mut end = start + digits(start);
    if end - start <= 3 {
        while text.get(end).is_some_and(|c| matches!(c, ',' | '.' | '\'' | '’' | '_' | ' ' | '\u{a0}' | '\u{202f}'))
            && digits(end + 1) == 3
        {
            end += 4;
        }
    }
    let value =
        text[start..end].iter().filter_map(|c| digit(*c)).fold(0_u64, |sum, digit| (sum * 10 + digit).min(MOST));
    let at = |at: Option<usize>| at.and_then(|at| text.get(at)).copied();
    let (before, further) = (at(start.checked_sub(1)), at(start.checked_sub(2)));
    let belongs = match before {
        Some('#' | ':' | '/' | '_' | '.' | ',' | '$' | '€' | '£') => true,
        Some('-') => further.is_some_and(char::is_alphanumeric),
        Some('x' | 'X') => further.is_none_or(|c| digit(c).is_none()),
        Some(c) => c.is_ascii_alphabetic(),
        None => false,
    };
    let next = at(Some(end));
    let goes_on = match next {
        Some('%') => true,
        Some(':' | '/' | '.' | ',' | '-' | '_') => at(Some(end + 1)).is_some_and(|c| digit(c).is_some()),
        _ => false,
    };
    if belongs || goes_on {
        let rest =
            text[end..].iter().take_while(|c| c.is_alphanumeric() || matches!(c, ':' | '/' | '.' | ',' | '-' | '_'));
        return Some((end + rest.count(), None));
    }
    let thousands = matches!(next, Some('k' | 'K')) && !at(Some(end + 1)).is_some_and(char::is_alphanumeric);
    Some(if thousands { (end + 1, Some((value * 1000).min(MOST))) } else { (end, Some(value)) })
}

/// The value of a digit of the scripts that people write numbers in.
fn digit(c: char) -> Option<u64> {
    let zeros = ['0', '\u{660}', '\u{6F0}', '\u{966}', '\u{9E6}', '\u{E50}', '\u{FF10}'];
    let of = |zero: char| u32::from(c).checked_sub(u32::from(zero)).filter(|value| *value < 10);
    zeros.into_iter().find_map(of).map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn a_count_is_a_number_that_stands_alone() {
        for (request, items, cells) in [
            ("Write 50 zeros.", 50, 50),
            ("A 100 x 100 matrix of zeros", 10_000, 10_000),
            ("a 64×64 matrix", 4096, 4096),
            ("4 * 5 * 6 zeros", 120, 120),
            ("a table of 30 rows and 40 columns", 40, 1200),
            ("the identity matrix for n = 64", 64, 4096),
            ("a sequence of 2,000 bases", 2000, 2000),
            ("2.000 Basen", 2000, 2000),
            ("2 000 bases", 2000, 2000),
            ("a 200-line log", 200, 200),
            ("10k points", 10_000, 10_000),
            ("twice, in two hundred lines", 200, 200),
            ("Schreibe fünfhundertmal nein", 500, 500),
            ("écris cinq cents fois", 500, 500),
            ("写三百行日志", 300, 300),
            ("写200行日志", 200, 200),
            ("أكتب ٣٠٠ مرة", 300, 300),
            ("Fix issue #4523", 0, 0),
            ("since 2026-03-14 at 10:30", 0, 0),
            ("version 1.2.3 of gpt4 by 15 %", 15, 15),
            ("by 15% in build v77", 0, 0),
            ("on port 8080/tcp of 10.0.0.17", 8080, 8080),
            ("50 zeros, since 2026", 2026, 2026),
            ("nothing", 0, 0),
            ("99999999999999999999999", 1_000_000, 1_000_000),
        ] {
            let counts = Counts::of(request);
            assert_eq!((counts.items, counts.cells), (items, cells), "{request}");
        }
    }
}
