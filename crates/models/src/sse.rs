//! A parser of server-sent events. It is our own for three reasons. It bounds the length of a line and an event, which
//! library parsers do not. It allocates nothing for each event. It ignores lines that the standard says to ignore,
//! where libraries report an error.
//!
//! Source: WHATWG HTML, 9.2.6 "Interpreting an event stream". Not implemented: `id` and `retry`, because a call is
//! never resumed. Added: a field `error`, with which older versions of llama.cpp report a failure, is an event of that
//! name.

use crate::bounds::EVENT_MAX_BYTES;

/// One event, borrowed from the parser until the next call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Event<'a> {
    /// Its name, reduced to the names that a decoder distinguishes.
    pub(crate) name: EventName,
    /// Its data. Lines are joined by line feeds.
    pub(crate) data: &'a [u8],
}

/// The name of an event, as far as decoders use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventName {
    /// `error`.
    Error,
    /// Any other name, or none.
    Other,
}

/// A line or an event longer than [`EVENT_MAX_BYTES`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Parses a stream of bytes into events.
#[derive(Default)]
pub(crate) struct SseReader {
    /// Bytes that have arrived. Those before `at` are processed.
    buffer: Vec<u8>,
    at: usize,
    /// Bytes from `at` that contain no end of line, so that a long line is searched only once.
    searched: usize,
    /// Data of the event that is being read.
    data: Vec<u8>,
    has_data: bool,
    is_error: bool,
    /// The last event was returned, and its data must be dropped.
    handed_out: bool,
    /// The last line ended in CR. An LF that follows belongs to it.
    after_cr: bool,
    /// Whether the first line is past. It may begin with a byte order mark.
    past_start: bool,
    lines: u64,
}

impl SseReader {
    /// Adds the next bytes of the stream.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Lines read so far, including comments. Only a complete line counts as a sign of life: a server that sends one
    /// byte each second could otherwise keep a call open for weeks.
    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }

    /// The next complete event, if the bytes so far contain one. An event that the end of the stream cuts off is never
    /// returned.
    pub(crate) fn next(&mut self) -> Result<Option<Event<'_>>, TooLong> {
        if std::mem::take(&mut self.handed_out) {
            self.data.clear();
            self.has_data = false;
            self.is_error = false;
        }
        while let Some((start, end)) = self.next_line()? {
            if start == end {
                if !std::mem::take(&mut self.has_data) {
                    self.is_error = false;
                    continue;
                }
                self.handed_out = true;
                let name = if self.is_error { EventName::Error } else { EventName::Other };
                return Ok(Some(Event { name, data: &self.data }));
            }
            self.field(start, end)?;
        }
        Ok(None)
    }

    /// Bounds of the next complete line in the buffer, without its end.
    fn next_line(&mut self) -> Result<Option<(usize, usize)>, TooLong> {
        if self.after_cr && self.at < self.buffer.len() {
            self.after_cr = false;
            if self.buffer[self.at] == b'\n' {
                self.at += 1;
                self.searched = 0;
            }
        }
        let rest = &self.buffer[self.at..];
        let Some(length) = rest[self.searched..].iter().position(|b| matches!(b, b'\n' | b'\r')) else {
            self.searched = rest.len();
            return if rest.len() > EVENT_MAX_BYTES { Err(TooLong) } else { Ok(None) };
        };
        let length = self.searched + length;
        if length > EVENT_MAX_BYTES {
            return Err(TooLong);
        }
        let mut start = self.at;
        let end = start + length;
        self.after_cr = self.buffer[end] == b'\r';
        self.at = end + 1;
        self.searched = 0;
        self.lines += 1;
        if !std::mem::replace(&mut self.past_start, true) && self.buffer[start..end].starts_with(b"\xEF\xBB\xBF") {
            start += 3;
        }
        Ok(Some((start, end)))
    }

    fn field(&mut self, start: usize, end: usize) -> Result<(), TooLong> {
        let line = &self.buffer[start..end];
        let (field, value) = match line.iter().position(|b| *b == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" | b"error" => {
                if self.data.len() + value.len() > EVENT_MAX_BYTES {
                    return Err(TooLong);
                }
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
                self.is_error |= field == b"error";
            }
            b"event" => self.is_error = value == b"error",
            // Comments (an empty field name), `id`, `retry`, and future fields.
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(chunks: &[&[u8]]) -> Result<Vec<(EventName, String)>, TooLong> {
        let mut reader = SseReader::default();
        let mut events = Vec::new();
        for chunk in chunks {
            reader.push(chunk);
            while let Some(event) = reader.next()? {
                events.push((event.name, String::from_utf8_lossy(event.data).into_owned()));
            }
        }
        Ok(events)
    }

    fn data(text: &str) -> Vec<String> {
        read(&[text.as_bytes()]).expect("short").into_iter().map(|(_, data)| data).collect()
    }

    #[test]
    fn events_are_read_as_the_standard_says() {
        for (stream, events) in [
            ("data: a\n\ndata: b\n\n", vec!["a", "b"]),
            ("data: a\r\n\r\ndata: b\r\r", vec!["a", "b"]),
            ("data:a\ndata: b\ndata\n\n", vec!["a\nb\n"]),
            ("\u{FEFF}data: a\n\n", vec!["a"]),
            (": comment\n\n\n\ndata: a\nid: 7\nretry: 1\nnonsense\n\n", vec!["a"]),
            ("event: ping\n\ndata: a\n\n", vec!["a"]),
            ("data:  two spaces\n\n", vec![" two spaces"]),
            ("data: cut off", vec![]),
            ("data: cut off\n", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(data(stream), events, "{stream:?}");
        }
    }

    #[test]
    fn an_error_is_an_event_or_a_field_of_that_name() {
        use EventName::*;
        let events = read(&[b"event: error\ndata: 1\n\nerror: 2\n\ndata: 3\n\nevent: error\n\ndata: 4\n\n"]);
        let expected = [(Error, "1"), (Error, "2"), (Other, "3"), (Other, "4")];
        assert_eq!(events, Ok(expected.map(|(name, data)| (name, data.to_owned())).to_vec()));
    }

    #[test]
    fn a_line_or_an_event_without_end_is_an_error() {
        let piece = vec![b'x'; EVENT_MAX_BYTES / 2];
        assert_eq!(read(&[&piece, &piece, b"x"]), Err(TooLong));
        let mut line = b"data: ".to_vec();
        line.extend_from_slice(&piece);
        line.push(b'\n');
        assert_eq!(read(&[&line, &line, b"\n"]).map(|events| events.len()), Ok(1));
        assert_eq!(read(&[&line, &line, b"data: x\n"]), Err(TooLong));
    }

    proptest! {
        #[test]
        fn any_slicing_gives_the_same_events(
            stream in "(data: ?[a-c\r\n]{0,4}|event: error|:|error: x|\r|\n|\r\n){0,12}",
            cuts in proptest::collection::vec(0usize..64, 0..8),
        ) {
            let bytes = stream.as_bytes();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).chain([0, bytes.len()]).collect();
            cuts.sort_unstable();
            let chunks: Vec<_> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&chunks), read(&[bytes]));
        }
    }
}
