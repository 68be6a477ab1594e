//! Parses the daemon's answers: one JSON value, or server-sent events that each contain one.

/// Longest event in bytes. 16 MiB: the daemon's own limits are far lower.
pub(super) const EVENT_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Splits a stream of bytes into the data of its events.
///
/// Source: HTML, "9.2.6 Interpreting an event stream"; only the field `data` is used.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    after_cr: bool,
}

/// An event that is longer than [`EVENT_MAX_BYTES`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl Events {
    /// Adds bytes, and returns the data of the events that they complete.
    ///
    /// # Errors
    /// An event is too long.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, TooLong> {
        let mut whole = Vec::new();
        for byte in bytes {
            match byte {
                b'\n' if self.after_cr => self.after_cr = false, // the second half of one line end
                b'\n' | b'\r' => {
                    self.after_cr = *byte == b'\r';
                    whole.extend(self.end_line());
                }
                byte => {
                    self.after_cr = false;
                    self.line.push(*byte);
                }
            }
            if self.line.len() + self.data.len() > EVENT_MAX_BYTES {
                return Err(TooLong);
            }
        }
        Ok(whole)
    }

    /// Ends a line; an empty one ends the event before it.
    fn end_line(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            return (!data.is_empty()).then_some(data);
        }
        if let Some(text) = line.strip_prefix(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(text.strip_prefix(b" ").unwrap_or(text));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_however_the_bytes_are_cut() {
        for (stream, expected) in [
            ("data: a\n\n", &["a"][..]),
            ("id: 1\nretry: 3000\ndata:\n\ndata: {\"x\":1}\n\n", &["{\"x\":1}"]),
            (": comment\n\ndata:a\r\ndata: b\r\n\r\ndata: c\n\n", &["a\nb", "c"]),
            ("data: a\r\rdata: é\n\nevent: x\n\n", &["a", "é"]),
            ("data: never ended\n", &[]),
        ] {
            for cut in 0..=stream.len() {
                let mut events = Events::default();
                let (left, right) = stream.as_bytes().split_at(cut);
                let found = [events.take(left), events.take(right)].map(|found| found.unwrap_or_default()).concat();
                let found: Vec<_> = found.iter().map(|data| String::from_utf8_lossy(data)).collect();
                assert_eq!(found, expected, "{stream:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn an_event_without_an_end_is_given_up() {
        let mut events = Events::default();
        let piece = vec![b'x'; EVENT_MAX_BYTES / 2];
        assert_eq!(events.take(&piece), Ok(vec![]));
        assert_eq!(events.take(&piece), Ok(vec![]));
        assert_eq!(events.take(b"x"), Err(TooLong));
    }
}
