//! The output of a command: its beginning and end for the model, the complete output on disk.

use belay_protocol::{CallId, Kept, RunId};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::outputs::{KeptOutputs, Writing};

/// Bytes of the beginning and of the end of a long output that the model sees. The end often has errors and totals.
const HEAD_BYTES: usize = 48 * 1024;
const TAIL_BYTES: usize = 16 * 1024;

/// Bytes per read: the capacity of a pipe.
const READ_BYTES: usize = 64 * 1024;

/// Collects the output of a command. It accepts any amount and uses bounded memory.
#[derive(Debug)]
pub(super) struct Capture {
    outputs: KeptOutputs,
    run: RunId,
    call: CallId,
    /// The whole output while it is short enough to be shown; then its beginning.
    head: Vec<u8>,
    /// The end of an output that is too long; up to twice as much as is shown.
    tail: Vec<u8>,
    total: u64,
    whole: Whole,
}

/// Where the complete output is.
#[derive(Debug)]
enum Whole {
    /// In memory; all of it is shown.
    Shown,
    /// In a file that is being written.
    Writing(Writing),
    /// Not stored, with the reason in plain words.
    Lost(String),
}

/// The output as the model sees it.
#[derive(Debug)]
pub(super) struct Printed {
    pub(super) text: String,
    pub(super) kept: Option<Kept>,
}

impl Capture {
    pub(super) fn new(outputs: KeptOutputs, run: RunId, call: CallId) -> Self {
        Self { outputs, run, call, head: Vec::new(), tail: Vec::new(), total: 0, whole: Whole::Shown }
    }

    /// Reads both outputs to their end. Mixes them in the order of arrival, as far as two pipes reveal it.
    ///
    /// # Cancel safety
    /// If the future is dropped, at most the last read bytes are missing.
    pub(super) async fn drain(&mut self, mut out: impl AsyncRead + Unpin, mut err: impl AsyncRead + Unpin) {
        let (mut from_out, mut from_err) = (vec![0; READ_BYTES], vec![0; READ_BYTES]);
        let (mut out_open, mut err_open) = (true, true);
        while out_open || err_open {
            // A pipe with a read error counts as ended.
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

    /// Starts to store the output on disk, because it has become too long to be shown in full.
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

    /// Drops all but the last bytes of the end. Moves bytes only after twice that many have arrived.
    fn trim_tail(&mut self) {
        if self.tail.len() > 2 * TAIL_BYTES {
            self.tail.drain(..self.tail.len() - TAIL_BYTES);
        }
    }

    /// Finishes the capture and returns the output as the model sees it.
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
    async fn an_output_beyond_the_limit_reports_the_readable_part() {
        let dir = tempfile::tempdir().unwrap();
        let most: u64 = 64 * 1024; // the smallest allowed value
        let config = OutputsConfig { max_bytes: most, ..OutputsConfig::default() };
        let outputs = KeptOutputs::open(dir.path(), &config).unwrap();
        // One byte beyond the limit, and sizes where the stored file with its note is about as long as the output.
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
    async fn an_output_that_cannot_be_stored_is_shown_with_a_note() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = KeptOutputs::open(&dir.path().join("outputs"), &OutputsConfig::default()).unwrap();
        // A file replaces the directory, so nothing can be created in it, not even by root.
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
