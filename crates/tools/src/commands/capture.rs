//! What a command prints: the beginning and the end to show, the whole on disk.

use belay_protocol::{CallId, Kept, RunId};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::outputs::{KeptOutputs, Writing};

/// Bytes of the beginning that are shown of a long output, and of its end, where errors and sums are.
const HEAD_BYTES: usize = 48 * 1024;
const TAIL_BYTES: usize = 16 * 1024;

/// Bytes read at once; what a pipe holds.
const READ_BYTES: usize = 64 * 1024;

/// Output on its way. Takes everything; memory does not grow with it.
#[derive(Debug)]
pub(super) struct Capture {
    outputs: KeptOutputs,
    run: RunId,
    call: CallId,
    /// Everything, while it can be shown whole; then its beginning.
    head: Vec<u8>,
    /// The end, once it cannot; up to twice as much as is shown.
    tail: Vec<u8>,
    total: u64,
    whole: Whole,
}

/// Where the whole is.
#[derive(Debug)]
enum Whole {
    /// In memory.
    Shown,
    /// On its way to the disk.
    Writing(Writing),
    /// Nowhere, in plain words.
    Lost(String),
}

/// An output as it is shown.
#[derive(Debug)]
pub(super) struct Printed {
    pub(super) text: String,
    pub(super) kept: Option<Kept>,
}

impl Capture {
    pub(super) fn new(outputs: KeptOutputs, run: RunId, call: CallId) -> Self {
        Self { outputs, run, call, head: Vec::new(), tail: Vec::new(), total: 0, whole: Whole::Shown }
    }

    /// Reads both outputs to their end, and mixes them in the order in which they come, as far as two pipes tell.
    ///
    /// # Cancel safety
    /// Dropped, at most what was read last is missing.
    pub(super) async fn drain(&mut self, mut out: impl AsyncRead + Unpin, mut err: impl AsyncRead + Unpin) {
        let (mut from_out, mut from_err) = (vec![0; READ_BYTES], vec![0; READ_BYTES]);
        let (mut out_open, mut err_open) = (true, true);
        while out_open || err_open {
            // A pipe that cannot be read is one that has ended.
            let (bytes, open) = tokio::select! {
                read = out.read(&mut from_out), if out_open => (&from_out[..read.unwrap_or(0)], &mut out_open),
                read = err.read(&mut from_err), if err_open => (&from_err[..read.unwrap_or(0)], &mut err_open),
            };
            *open = !bytes.is_empty();
            self.push(bytes).await;
        }
    }

    async fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        if matches!(self.whole, Whole::Shown) {
            self.head.extend_from_slice(bytes);
            if self.head.len() > HEAD_BYTES + TAIL_BYTES {
                self.spill().await;
            }
            return;
        }
        self.write(bytes).await;
        self.tail.extend_from_slice(bytes);
        self.trim_tail();
    }

    /// It has become too long to be shown whole: from here on it goes to the disk.
    async fn spill(&mut self) {
        self.whole = match self.outputs.begin(self.run, &self.call).await {
            Ok(writing) => Whole::Writing(writing),
            Err(why) => Whole::Lost(why),
        };
        let mut head = std::mem::take(&mut self.head);
        self.write(&head).await;
        self.tail = head.split_off(HEAD_BYTES);
        self.head = head;
        self.trim_tail();
    }

    async fn write(&mut self, bytes: &[u8]) {
        if let Whole::Writing(writing) = &mut self.whole
            && let Err(why) = writing.write(bytes).await
        {
            self.whole = Whole::Lost(why);
        }
    }

    /// Keeps what is shown of the end. Moves bytes only when twice as much has come.
    fn trim_tail(&mut self) {
        if self.tail.len() > 2 * TAIL_BYTES {
            self.tail.drain(..self.tail.len() - TAIL_BYTES);
        }
    }

    /// The output as it is shown.
    pub(super) async fn finish(self) -> Printed {
        let whole = match self.whole {
            Whole::Shown if self.total == 0 => return Printed { text: "[nothing was printed]".to_owned(), kept: None },
            Whole::Shown => return Printed { text: String::from_utf8_lossy(&self.head).into_owned(), kept: None },
            Whole::Writing(writing) => {
                let lost = writing.lost();
                writing.finish().await.map(|kept| (kept, lost))
            }
            Whole::Lost(why) => Err(why),
        };
        let tail = &self.tail[self.tail.len().saturating_sub(TAIL_BYTES)..];
        let hidden = self.total - (self.head.len() + tail.len()) as u64;
        let (where_it_is, kept) = match whole {
            Ok((kept, 0)) => (format!("read_output {:?} shows the whole", kept.name), Some(kept)),
            Ok((kept, lost)) => {
                let first = self.total - lost;
                (format!("read_output {:?} shows the first {first}; the rest was not kept", kept.name), Some(kept))
            }
            Err(why) => (why, None),
        };
        let text = format!(
            "{}\n[{hidden} of {} bytes are not shown here; {where_it_is}]\n{}",
            String::from_utf8_lossy(&self.head),
            self.total,
            String::from_utf8_lossy(tail)
        );
        Printed { text, kept }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::config::OutputsConfig;

    async fn printed(out: &[u8], err: &[u8]) -> (Printed, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let outputs = KeptOutputs::open(dir.path(), &OutputsConfig::default()).unwrap();
        let mut capture = Capture::new(outputs, RunId::new(), "c".into());
        capture.drain(out, err).await;
        (capture.finish().await, dir)
    }

    #[tokio::test]
    async fn a_short_output_is_shown_whole() {
        for (out, err, expected) in [
            (&b""[..], &b""[..], "[nothing was printed]"),
            (b"one\n", b"", "one\n"),
            (b"", b"two", "two"),
            (b"caf\xe9", b"", "caf\u{fffd}"),
        ] {
            let (printed, _) = printed(out, err).await;
            assert_eq!((printed.text.as_str(), printed.kept), (expected, None));
        }
        let exactly = vec![b'x'; HEAD_BYTES + TAIL_BYTES];
        assert_eq!(printed(&exactly, b"").await.0.text.len(), exactly.len());
    }

    #[tokio::test]
    async fn of_a_long_output_both_ends_are_shown_and_the_whole_is_kept() {
        let lines: String = (0..40_000).map(|n| format!("line {n}\n")).collect();
        let (printed, dir) = printed(lines.as_bytes(), b"").await;
        let kept = printed.kept.unwrap();
        assert_eq!(kept.bytes, lines.len() as u64);
        let hidden = lines.len() - HEAD_BYTES - TAIL_BYTES;
        let note = format!(
            "\n[{hidden} of {} bytes are not shown here; read_output {:?} shows the whole]\n",
            lines.len(),
            kept.name
        );
        let (head, tail) = printed.text.split_once(&note).unwrap();
        assert_eq!((head, tail), (&lines[..HEAD_BYTES], &lines[lines.len() - TAIL_BYTES..]));
        assert_eq!(std::fs::read_to_string(dir.path().join(format!("{}.txt", kept.name))).unwrap(), lines);
    }

    #[tokio::test]
    async fn of_an_output_beyond_the_bound_it_is_said_how_much_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let most: u64 = 64 * 1024; // the least that can be set
        let config = OutputsConfig { max_bytes: most, ..OutputsConfig::default() };
        let outputs = KeptOutputs::open(dir.path(), &config).unwrap();
        // One beyond; and as many as make the kept file as long as the output was.
        for lost in [1, 45, 46, 47, 100_000] {
            let mut capture = Capture::new(outputs.clone(), RunId::new(), "c".into());
            let size = most + lost;
            capture.drain(&vec![b'x'; usize::try_from(size).unwrap()][..], &b""[..]).await;
            let printed = capture.finish().await;
            let note = format!("shows the first {most}; the rest was not kept]");
            assert!(printed.text.contains(&note) && !printed.text.contains("shows the whole"), "{lost}");
        }
    }

    #[tokio::test]
    async fn an_output_that_cannot_be_kept_is_shown_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = KeptOutputs::open(&dir.path().join("outputs"), &OutputsConfig::default()).unwrap();
        // A file in the place of the directory: nothing can be made in it, not even by root.
        std::fs::remove_dir(dir.path().join("outputs")).unwrap();
        std::fs::write(dir.path().join("outputs"), "").unwrap();
        let mut capture = Capture::new(outputs, RunId::new(), "c".into());
        capture.drain(&vec![b'x'; 100_000][..], &b""[..]).await;
        let printed = capture.finish().await;
        assert!(
            printed.text.contains("of 100000 bytes are not shown here; the rest could not be kept"),
            "{}",
            printed.text.len()
        );
        assert_eq!(printed.kept, None);
    }
}
