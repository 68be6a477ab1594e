//! Cuts long values into parts, each of which is a row.

use bytes::BytesMut;

/// The length of each part but the last one, in bytes. 256 KiB: the memory that a file needs while it is written or read.
pub(crate) const PART_BYTES: usize = 256 * 1024;

/// Bytes that are not stored yet: less than a part.
#[derive(Debug, Default)]
pub(crate) struct PartBuffer(BytesMut);

impl PartBuffer {
    /// Appends bytes from the beginning of the piece, and returns the part that they complete. `None`: the buffer holds
    /// the whole piece.
    pub(crate) fn fill(&mut self, piece: &mut &[u8]) -> Option<Vec<u8>> {
        let fitting = piece.len().min(PART_BYTES - self.0.len());
        self.0.extend_from_slice(&piece[..fitting]);
        *piece = &piece[fitting..];
        (self.0.len() == PART_BYTES).then(|| self.take())
    }

    /// The bytes that are not stored yet.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let rest = self.0.to_vec();
        self.0.clear();
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_length_are_cut_into_whole_parts_and_a_rest() {
        for (pieces, parts, rest) in [
            (vec![0], 0, 0),
            (vec![PART_BYTES], 1, 0),
            (vec![PART_BYTES - 1, 2], 1, 1),
            (vec![3 * PART_BYTES + 5], 3, 5),
            (vec![1; 9], 0, 9),
        ] {
            let (mut buffer, mut full) = (PartBuffer::default(), 0);
            for piece in &pieces {
                let bytes = vec![7; *piece];
                let mut piece = bytes.as_slice();
                while let Some(part) = buffer.fill(&mut piece) {
                    assert_eq!(part.len(), PART_BYTES);
                    full += 1;
                }
                assert!(piece.is_empty());
            }
            assert_eq!((full, buffer.take().len(), buffer.take().len()), (parts, rest, 0), "{pieces:?}");
        }
    }
}
