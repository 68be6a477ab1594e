//! Finding bytes in a stream that comes in pieces.

/// The maximum length of the bytes that are looked for.
const LONGEST: usize = 64;

/// The end of what has passed, so that bytes across two pieces are found.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    tail: Vec<u8>,
}

impl Scanner {
    /// The places of `wanted` in the stream that end in this piece: for each, where it begins and ends in the piece. One
    /// that begins in an earlier piece begins at 0.
    pub(super) fn find(&self, piece: &[u8], wanted: &[u8]) -> Vec<(usize, usize)> {
        assert!((1..=LONGEST).contains(&wanted.len()), "1 to {LONGEST} bytes can be looked for");
        let known = self.tail.len();
        let whole = [&self.tail, piece].concat();
        let starts = whole.windows(wanted.len()).enumerate().filter(|(_, window)| *window == wanted);
        let places = starts.map(|(start, _)| (start.saturating_sub(known), start + wanted.len()));
        places.filter(|(_, end)| *end > known).map(|(start, end)| (start, end - known)).collect()
    }

    /// Goes on after this piece.
    pub(super) fn pass(&mut self, piece: &[u8]) {
        self.tail.extend_from_slice(piece);
        let surplus = self.tail.len().saturating_sub(LONGEST - 1);
        self.tail.drain(..surplus);
    }
}
