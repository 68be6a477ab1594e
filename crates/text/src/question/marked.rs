//! The lines of a file or of an edit in a question, each with a mark before it.

use super::MAX_SHOWN_CHARS;

/// Maximum length of the first and of the last lines, in characters.
const END_CHARS: usize = MAX_SHOWN_CHARS / 2;

/// A line with its mark: its number, or the sign of an edit.
pub(super) struct Line {
    pub(super) mark: String,
    pub(super) text: String,
}

impl Line {
    fn whole(&self) -> String {
        format!("{}{}", self.mark, self.text)
    }

    /// Its length with its line end.
    fn chars(&self) -> usize {
        self.mark.chars().count() + self.text.chars().count() + 1
    }

    /// The number of characters of its text that fit. Only a line that is longer than an end is cut.
    fn cut(&self, room: usize) -> usize {
        let used = self.mark.chars().count() + "…\n".chars().count();
        if self.chars() > END_CHARS { room.saturating_sub(used) } else { 0 }
    }

    fn head(&self, room: usize) -> &str {
        &self.text[..place(&self.text, self.cut(room))]
    }

    fn tail(&self, room: usize) -> &str {
        let skipped = self.text.chars().count().saturating_sub(self.cut(room));
        &self.text[place(&self.text, skipped)..]
    }
}

/// Joins lines. Beyond [`MAX_SHOWN_CHARS`] these are the first and the last lines with a note between them.
///
/// Each shown line begins with its mark, also the rest of a line that is cut. So no part of a line's text can pass for
/// another line.
pub(super) fn bounded_lines(lines: &[Line]) -> String {
    let whole = |lines: &[Line]| lines.iter().map(Line::whole).collect::<Vec<_>>();
    if lines.iter().map(Line::chars).sum::<usize>() <= MAX_SHOWN_CHARS {
        return whole(lines).join("\n");
    }
    let (first, room_of_head) = fitting(lines.iter());
    let (last, room_of_tail) = fitting(lines.iter().rev());
    // At least one line: both ends together are not longer than the maximum.
    let missing = &lines[first..lines.len() - last];
    let head = missing.first().map_or("", |line| line.head(room_of_head));
    let tail = missing.last().map_or("", |line| line.tail(room_of_tail));
    let hidden = missing.iter().map(|line| line.text.chars().count()).sum::<usize>();
    let hidden = hidden.saturating_sub(head.chars().count() + tail.chars().count());
    let mut shown = whole(&lines[..first]);
    shown.extend(missing.first().filter(|_| !head.is_empty()).map(|line| format!("{}{head}…", line.mark)));
    shown.push(format!("[… {hidden} characters are NOT SHOWN here …]"));
    shown.extend(missing.last().filter(|_| !tail.is_empty()).map(|line| format!("{}…{tail}", line.mark)));
    shown.extend(whole(&lines[lines.len() - last..]));
    shown.join("\n")
}

/// The number of lines that fit in an end, and the rest of its room.
fn fitting<'a>(lines: impl Iterator<Item = &'a Line>) -> (usize, usize) {
    let (mut count, mut room) = (0, END_CHARS);
    for line in lines {
        let Some(rest) = room.checked_sub(line.chars()) else { break };
        (count, room) = (count + 1, rest);
    }
    (count, room)
}

/// The place of the character with this number; behind the last one, the end.
fn place(text: &str, number: usize) -> usize {
    text.char_indices().nth(number).map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: impl Into<String>) -> Line {
        Line { mark: "+ ".to_owned(), text: text.into() }
    }

    #[test]
    fn a_part_of_a_long_line_cannot_pass_for_another_line() {
        let end = format!("- harmless{}", "é".repeat(END_CHARS - 14));
        let shown = bounded_lines(&[line(format!("{}{end}", "x".repeat(20_000)))]);
        let head = "x".repeat(END_CHARS - 4);
        let expected = format!("+ {head}…\n[… 12004 characters are NOT SHOWN here …]\n+ …{end}");
        assert!(shown == expected, "{} characters", shown.chars().count());
    }

    #[test]
    fn only_whole_lines_are_shown_of_both_ends_before_and_behind_the_note() {
        let lines: Vec<_> = (1..=4000).map(|n| line(format!("line {n:04}"))).collect();
        let shown = bounded_lines(&lines);
        let shown: Vec<_> = shown.lines().collect();
        // Each line takes 12 characters with its mark and its end.
        let (half, note) = (END_CHARS / 12, "[… 24012 characters are NOT SHOWN here …]");
        assert_eq!((shown.len(), shown[half]), (2 * half + 1, note));
        assert_eq!((shown[0], shown[half - 1]), ("+ line 0001", "+ line 0666"));
        assert_eq!((shown[half + 1], shown[2 * half]), ("+ line 3335", "+ line 4000"));
    }

    #[test]
    fn everything_is_shown_up_to_the_maximum() {
        let exact = [line("x".repeat(MAX_SHOWN_CHARS - 7)), line("y")];
        assert!(!bounded_lines(&exact).contains("NOT SHOWN"));
        let longer = [line("x".repeat(MAX_SHOWN_CHARS - 6)), line("y")];
        assert!(bounded_lines(&longer).ends_with("x\n+ y"));
        assert_eq!(bounded_lines(&[]), "");
    }
}
