//! Reads a recording, event by event, in constant memory.

use std::io::BufRead;

use serde_json::Value;
use thiserror::Error;

use crate::event::{Fault, TrajectoryEvent};

/// Longest line, in bytes. 16 MiB: a tool result may be a whole file. A file with a longer line is not a recording.
pub const LINE_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Why a recording cannot be read, and the position.
#[derive(Debug, Error)]
#[error("line {line}{}: {problem}", column.map(|column| format!(", column {column}")).unwrap_or_default())]
pub struct ReadError {
    /// The line, from 1; blank lines count.
    pub line: u64,
    /// The position in the line, in bytes from 1, if there is one.
    pub column: Option<u64>,
    /// The problem.
    #[source]
    pub problem: Problem,
}

/// The problem of a recording.
#[derive(Debug, Error)]
pub enum Problem {
    /// Reading the source failed. The caller that opened it knows more.
    #[error("cannot be read: {0}")]
    Io(#[source] std::io::Error),
    /// A line is longer than [`LINE_MAX_BYTES`].
    #[error("longer than {} MiB", LINE_MAX_BYTES / 1024 / 1024)]
    TooLong,
    /// A line is not UTF-8 text.
    #[error("not UTF-8")]
    NotUtf8,
    /// A line contains no event, or more than one.
    #[error("{0}")]
    Event(String),
}

/// Reads events from a source, one line after the other. It keeps one line in memory.
///
/// Blank lines are skipped, and so are a byte order mark at the beginning and carriage returns. After an error nothing
/// more is read.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    line: u64,
    buffer: Vec<u8>,
    header: Option<Value>,
    /// Whether a line that is not blank was read. Until then, the header may still come.
    begun: bool,
    ended: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads from the beginning of a source.
    pub fn new(source: R) -> Self {
        Self { source, line: 0, buffer: Vec::new(), header: None, begun: false, ended: false }
    }

    /// The value of `label` in the first line, available when an event or the end has been read. It is not an event and
    /// has no index.
    pub fn header(&self) -> Option<&Value> {
        self.header.as_ref()
    }

    /// The number of the last line that was read, from 1; 0 before the first.
    pub fn line(&self) -> u64 {
        self.line
    }

    fn event(&mut self) -> Result<Option<TrajectoryEvent>, ReadError> {
        loop {
            if !self.read_line()? {
                return Ok(None);
            }
            let error = |column, problem| ReadError { line: self.line, column, problem };
            let text = std::str::from_utf8(&self.buffer)
                .map_err(|broken| error(Some(broken.valid_up_to() as u64 + 1), Problem::NotUtf8))?;
            let text = if self.line == 1 { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text };
            if text.trim().is_empty() {
                continue;
            }
            let first = !std::mem::replace(&mut self.begun, true);
            match TrajectoryEvent::parse(text) {
                Ok(event) => return Ok(Some(event)),
                Err(wrong) => {
                    if first
                        && matches!(&wrong.fault, Fault::UnknownEvent { .. })
                        && let Some(label) = label_of(text)
                    {
                        self.header = Some(label);
                        continue;
                    }
                    return Err(error(wrong.column, Problem::Event(wrong.fault.to_string())));
                }
            }
        }
    }

    /// Reads the next line into the buffer, without its line break. `false`: there is none.
    fn read_line(&mut self) -> Result<bool, ReadError> {
        self.buffer.clear();
        self.line += 1;
        let line = self.line;
        let error = |problem| ReadError { line, column: None, problem };
        loop {
            let chunk = match self.source.fill_buf() {
                Ok(chunk) => chunk,
                Err(broken) if broken.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(broken) => return Err(error(Problem::Io(broken))),
            };
            if chunk.is_empty() {
                return Ok(!self.buffer.is_empty());
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            if self.buffer.len() + part.len() > LINE_MAX_BYTES {
                return Err(error(Problem::TooLong));
            }
            self.buffer.extend_from_slice(part);
            let taken = part.len() + usize::from(end.is_some());
            self.source.consume(taken);
            if end.is_some() {
                return Ok(true);
            }
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<TrajectoryEvent, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.event().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// The value of `label`, if the line is an object that has one.
fn label_of(line: &str) -> Option<Value> {
    match serde_json::from_str(line) {
        Ok(Value::Object(mut object)) => object.remove("label"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Read};

    use super::*;

    fn read(text: &[u8]) -> (Vec<TrajectoryEvent>, Option<String>) {
        let mut events = Vec::new();
        for event in Reader::new(text) {
            match event {
                Ok(event) => events.push(event),
                Err(error) => return (events, Some(error.to_string())),
            }
        }
        (events, None)
    }

    #[test]
    fn lines_are_read_whatever_stands_between_them() {
        use TrajectoryEvent::{Clock, Reset, Turn};
        for (text, expected) in [
            (&b"{\"turn\":true}\n{\"clock_ms\":5}\n"[..], vec![Turn, Clock(5)]),
            (b"\xef\xbb\xbf{\"turn\":true}\r\n\r\n  \n{\"clock_ms\":5}", vec![Turn, Clock(5)]),
            (b"{\"label\":\"healthy\"}\n{\"reset\":true}\n", vec![Reset]),
            (b"\n{\"label\":{\"kind\":\"healthy\"},\"title\":\"x\"}\n{\"reset\":true}\n", vec![Reset]),
            (b"", vec![]),
            (b"\n\n", vec![]),
            (b"{\"label\":1}", vec![]),
        ] {
            assert_eq!(read(text), (expected, None), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn the_label_of_the_first_line_is_kept() {
        let mut reader = Reader::new(&b"{\"label\":{\"kind\":\"pathology\",\"onset\":4}}\n{\"turn\":true}\n"[..]);
        assert!(reader.header().is_none());
        assert!(matches!(reader.next(), Some(Ok(TrajectoryEvent::Turn))));
        assert_eq!(reader.header(), Some(&serde_json::json!({"kind": "pathology", "onset": 4})));
    }

    #[test]
    fn what_cannot_be_read_is_told_with_line_and_column() {
        for (text, expected) in [
            (&b"{\"turn\":true}\n\n{\"tol\":1}\n"[..], "line 3: there is no event `tol`; did you mean `tool`?"),
            (b"{\"turn\":true}\n{\"turn\":tru}\n", "line 2, column 12: not JSON: expected ident"),
            (b"{\"text\":\"a\xff\"}\n", "line 1, column 11: not UTF-8"),
            (b"{\"turn\":true}\n{\"label\":\"healthy\"}\n", "line 2: there is no event `label`; there are tool,"),
            (b"{\"label\":\"a\"}\n{\"label\":\"b\"}\n", "line 2: there is no event `label`; there are tool,"),
        ] {
            let (_, error) = read(text);
            let error = error.unwrap_or_default();
            assert!(error.starts_with(expected), "{}: {error}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn nothing_more_is_read_after_an_error() {
        let mut reader = Reader::new(&b"{\"tol\":1}\n{\"turn\":true}\n"[..]);
        assert!(matches!(reader.next(), Some(Err(_))));
        assert!(reader.next().is_none());
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_is_in_memory() {
        let endless = std::io::repeat(b'x').take(1 << 40);
        let mut source = BufReader::new((&b"{\"turn\":true}\n"[..]).chain(endless));
        let mut reader = Reader::new(&mut source);
        assert!(matches!(reader.next(), Some(Ok(_))));
        let error = reader.next().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "line 2: longer than 16 MiB");
        assert!(reader.buffer.capacity() <= 2 * LINE_MAX_BYTES);
    }

    #[test]
    fn a_long_line_within_the_limit_is_read() {
        let line = format!("{{\"text\":\"{}\"}}", "x".repeat(LINE_MAX_BYTES - 11));
        assert_eq!(line.len(), LINE_MAX_BYTES);
        assert_eq!(read(line.as_bytes()).0.len(), 1);
        assert!(read(format!("{line} ").as_bytes()).1.is_some());
    }

    /// A few lines that are repeated without being in memory together.
    struct Repeated {
        lines: &'static [u8],
        at: usize,
        left: usize,
    }

    impl Read for Repeated {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.left == 0 {
                return Ok(0);
            }
            let part = &self.lines[self.at..];
            let count = part.len().min(buffer.len());
            buffer[..count].copy_from_slice(&part[..count]);
            self.at += count;
            if self.at == self.lines.len() {
                (self.at, self.left) = (0, self.left - 1);
            }
            Ok(count)
        }
    }

    #[test]
    fn a_million_events_stream_through_one_line_of_memory() {
        let lines = b"{\"turn\":true}\n{\"tool\":{\"name\":\"f\",\"args\":{\"a\":1}}}\n{\"tool_result\":{\"name\":\"f\",\"text\":\"ok\"}}\n{\"text\":\"abc\"}\n{\"assistant\":\"abc\"}\n";
        let mut reader = Reader::new(BufReader::new(Repeated { lines, at: 0, left: 200_000 }));
        let mut count = 0;
        for event in &mut reader {
            event.unwrap();
            count += 1;
        }
        assert_eq!(count, 1_000_000);
        assert!(reader.buffer.capacity() < 4096, "{}", reader.buffer.capacity());
    }
}
