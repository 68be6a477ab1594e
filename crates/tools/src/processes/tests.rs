//! The output and the search in it; whole processes are in `tests/programs/background`.
#![allow(clippy::unwrap_used)]

use super::output::{MAX_PIECE_BYTES, Output, Part};

const KEPT: u64 = 100_000;

fn output() -> (Output, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let output = Output::create(dir.path(), KEPT).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "its file has no name");
    (output, dir)
}

/// The byte that a test prints at this offset.
fn byte(at: u64) -> u8 {
    (at % 251) as u8
}

fn bytes(from: u64, to: u64) -> Vec<u8> {
    (from..to).map(byte).collect()
}

#[test]
fn what_is_kept_is_read_by_its_offset_and_what_is_gone_is_known() {
    let (output, _dir) = output();
    assert_eq!(output.part(0, 10).unwrap(), Part { from: 0, bytes: Vec::new(), printed: 0 });
    let mut printed = 0;
    // Pieces of all sizes, past the end of the ring several times.
    for size in [1, 99, 1000, MAX_PIECE_BYTES as u64, 50_000, 7, MAX_PIECE_BYTES as u64, 60_001, 1] {
        assert_eq!(output.append(&bytes(printed, printed + size)).unwrap(), printed + size);
        printed += size;
        let first = printed.saturating_sub(KEPT);
        for (asked, most) in [(0, 10), (first, usize::MAX), (first + 5, 17), (printed - 1, 5), (printed, 5)] {
            let part = output.part(asked, most).unwrap();
            let from = asked.max(first);
            let to = printed.min(from.saturating_add(most as u64));
            assert_eq!(part, Part { from, bytes: bytes(from, to), printed }, "{asked} {most} of {printed}");
        }
    }
}

#[test]
fn a_reader_beside_a_writer_sees_only_whole_bytes() {
    let (output, _dir) = output();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut at = 0;
            while at < 5_000_000 {
                at = output.append(&bytes(at, at + 40_000)).unwrap();
            }
        });
        while !writer.is_finished() {
            let part = output.part(0, 30_000).unwrap();
            assert_eq!(part.bytes, bytes(part.from, part.next()));
        }
    });
}
