//! Normalises the characters that are compared: Unicode scalar values, each run of white space as one blank.

/// The character that replaces a run of white space.
pub(super) const BLANK: u32 = b' ' as u32;

/// Characters that are normalised at once. 128: they fit in the fastest cache together with the code that reads them.
pub(super) const BLOCK: usize = 128;

/// A block of normalised characters.
pub(super) struct Plain {
    chars: [u32; BLOCK],
    len: usize,
}

impl Plain {
    /// Normalises the beginning of `text`, at most [`BLOCK`] characters, and moves `text` behind the part that was
    /// read. `after_word` says whether the last character before was not a blank. If it is false, a leading blank is
    /// left out.
    pub(super) fn read(text: &mut &str, after_word: &mut bool) -> Self {
        let mut plain = Self { chars: [0; BLOCK], len: 0 };
        let (bytes, mut read) = (text.as_bytes(), 0);
        let ascii = &bytes[..bytes.len().min(BLOCK)];
        if ascii.is_ascii() {
            for byte in ascii {
                let blank = (*byte == b' ') | (byte.wrapping_sub(b'\t') < 5);
                plain.push(u32::from(*byte), blank, after_word);
            }
            read = ascii.len();
        } else {
            for c in text.chars().take(BLOCK) {
                plain.push(u32::from(c), c.is_whitespace(), after_word);
                read += c.len_utf8();
            }
        }
        *text = &text[read..];
        plain
    }

    /// Adds a character. A character is always written, and the next one overwrites a superfluous blank. That is
    /// cheaper than predicting where words end.
    #[inline(always)]
    fn push(&mut self, c: u32, blank: bool, after_word: &mut bool) {
        self.chars[self.len % BLOCK] = if blank { BLANK } else { c };
        self.len += usize::from(!blank | *after_word);
        *after_word = !blank;
    }

    /// The normalised characters.
    pub(super) fn chars(&self) -> &[u32] {
        &self.chars[..self.len]
    }
}

/// The end, in bytes, of the normalised character with this index in `text`. Reads the text again, character by
/// character.
pub(super) fn end_of(text: &str, mut after_word: bool, index: usize) -> usize {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let mut begin = 0;
    let mut plain = ends.filter(|end| {
        let mut one = &text[std::mem::replace(&mut begin, *end)..*end];
        !Plain::read(&mut one, &mut after_word).chars().is_empty()
    });
    plain.nth(index).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_white_space_are_one_blank_in_any_script() {
        for (text, after_word, plain, end_of_second) in [
            ("a  b\t\r c", false, "a b c", 2),
            ("  a b", false, "a b", 4),
            ("  a", true, " a", 3),
            ("哈\u{3000} 哈", false, "哈 哈", 6),
            ("e\u{301} 😀", false, "e\u{301} 😀", 3),
        ] {
            let (mut rest, mut after) = (text, after_word);
            let read = Plain::read(&mut rest, &mut after);
            let read: String = read.chars().iter().filter_map(|c| char::from_u32(*c)).collect();
            assert_eq!((read.as_str(), rest, end_of(text, after_word, 1)), (plain, "", end_of_second), "{text:?}");
        }
    }

    #[test]
    fn a_long_text_is_read_in_blocks() {
        let text = "哈a ".repeat(BLOCK);
        let (mut rest, mut after_word, mut count) = (text.as_str(), false, 0);
        while !rest.is_empty() {
            count += Plain::read(&mut rest, &mut after_word).chars().len();
        }
        assert_eq!(count, 3 * BLOCK);
    }
}
