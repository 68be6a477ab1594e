//! Reads lines of bounded length from any reader.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::thread;
use std::time::Duration;

/// Longest line, in bytes without its line end. 100 000: far more than anyone types, and little enough memory for
/// several lines.
pub(super) const LINE_MAX_BYTES: usize = 100_000;

/// Pause before the next read if standard input is non-blocking and has no data. Another process can make it
/// non-blocking.
const NOT_READY_PAUSE: Duration = Duration::from_millis(50);

/// One line that was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The text without the line end.
    Text(String),
    /// The line cannot be a message; this text tells the person why. The next line is read as usual.
    Unusable(String),
}

/// Reads lines. Holds at most [`LINE_MAX_BYTES`] and one buffer.
pub(super) struct LineReader<R> {
    input: BufReader<R>,
    number: u64,
}

impl<R: Read> LineReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input: BufReader::new(input), number: 0 }
    }

    /// Returns the next line, or `None` at the end of input. A last line without a line end counts. Blocks.
    ///
    /// # Errors
    /// The reader's error, except "interrupted" and "would block": those are retried.
    pub(super) fn next(&mut self) -> io::Result<Option<Line>> {
        let mut line = Vec::new();
        let mut length = 0;
        loop {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    thread::sleep(NOT_READY_PAUSE);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if chunk.is_empty() && length == 0 {
                return Ok(None);
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            let (used, whole) = (part.len() + usize::from(end.is_some()), end.is_some() || chunk.is_empty());
            length += used;
            if line.len() + part.len() <= LINE_MAX_BYTES + 1 {
                line.extend_from_slice(part);
            } else {
                line.resize(LINE_MAX_BYTES + 2, 0); // marks the line as too long, whatever follows
            }
            self.input.consume(used);
            if whole {
                self.number += 1;
                return Ok(Some(usable(line, self.number)));
            }
        }
    }
}

/// Classifies the bytes of a line: text, or unusable with the reason.
fn usable(mut line: Vec<u8>, number: u64) -> Line {
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    if line.len() > LINE_MAX_BYTES {
        return Line::Unusable(format!("Line {number} was skipped: it is longer than {LINE_MAX_BYTES} bytes."));
    }
    match String::from_utf8(line) {
        Ok(text) => Line::Text(text),
        Err(error) => Line::Unusable(format!(
            "Line {number} was skipped: it is not UTF-8 (first wrong byte at position {}).",
            error.utf8_error().valid_up_to() + 1
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::VecDeque;

    /// Returns one chunk or error per read.
    struct Chunks(VecDeque<io::Result<Vec<u8>>>);

    impl Read for Chunks {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.pop_front() {
                None => Ok(0),
                Some(Err(error)) => Err(error),
                Some(Ok(mut chunk)) => {
                    let n = chunk.len().min(buffer.len());
                    buffer[..n].copy_from_slice(&chunk[..n]);
                    if n < chunk.len() {
                        self.0.push_front(Ok(chunk.split_off(n)));
                    }
                    Ok(n)
                }
            }
        }
    }

    fn all(input: impl Read) -> Vec<Line> {
        let mut reader = LineReader::new(input);
        std::iter::from_fn(|| reader.next().unwrap()).collect()
    }

    fn text(line: &str) -> Line {
        Line::Text(line.into())
    }

    #[test]
    fn lines_end_at_newlines_and_at_the_end_of_input() {
        for (input, expected) in [
            ("", vec![]),
            ("a", vec![text("a")]),
            ("a\n", vec![text("a")]),
            ("a\r\nb", vec![text("a"), text("b")]),
            ("\n\nx\n", vec![text(""), text(""), text("x")]),
            ("ключ 🗝\n", vec![text("ключ 🗝")]),
        ] {
            assert_eq!(all(input.as_bytes()), expected, "{input:?}");
        }
    }

    #[test]
    fn a_line_may_arrive_in_any_pieces_with_pauses_between() {
        let pause = || Err(ErrorKind::WouldBlock.into());
        let interrupted = || Err(ErrorKind::Interrupted.into());
        let input = "каша\nb\n".as_bytes();
        let mut chunks: VecDeque<io::Result<Vec<u8>>> = input.iter().map(|byte| Ok(vec![*byte])).collect();
        chunks.insert(1, interrupted());
        chunks.insert(5, pause());
        assert_eq!(all(Chunks(chunks)), [text("каша"), text("b")]);
    }

    #[test]
    fn a_line_beyond_the_limit_is_named_and_skipped_to_its_end() {
        let fits = "x".repeat(LINE_MAX_BYTES);
        for (long, end, ok) in [
            (LINE_MAX_BYTES, "\n", true),
            (LINE_MAX_BYTES, "\r\n", true),
            (LINE_MAX_BYTES + 1, "\n", false),
            (5_000_000, "\n", false),
        ] {
            let input = format!("{}{end}after\n", "x".repeat(long));
            let lines = all(input.as_bytes());
            assert_eq!(lines.len(), 2);
            assert_eq!(lines[0] == text(&fits), ok, "{long} {end:?}");
            assert_eq!(matches!(&lines[0], Line::Unusable(why) if why.starts_with("Line 1 ")), !ok);
            assert_eq!(lines[1], text("after"));
        }
    }

    #[test]
    fn a_line_that_is_not_utf8_is_refused_and_the_next_one_is_read() {
        let lines = all(&b"ok\nab\xff\xfe\nnext\n"[..]);
        assert_eq!(
            lines,
            [
                text("ok"),
                Line::Unusable("Line 2 was skipped: it is not UTF-8 (first wrong byte at position 3).".into()),
                text("next")
            ]
        );
    }
}
