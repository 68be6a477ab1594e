//! Shows texts one at a time, on a thread that may block.

use std::io::{self, Write};
use std::thread;

use belay_protocol::{ApprovalId, RunId};
use tokio::sync::{mpsc, oneshot};

/// Capacity of the queue of texts to show. When it is full, deliveries wait.
const QUEUE: usize = 16;

/// Shows texts in order. Cheap to clone.
#[derive(Clone)]
pub(super) struct Printer {
    jobs: mpsc::Sender<Job>,
}

struct Job {
    shown: Shown,
    done: oneshot::Sender<io::Result<()>>,
}

/// A text to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) text: String,
    pub(super) kind: Kind,
    /// The run that it belongs to.
    pub(super) run: Option<RunId>,
}

/// The kind of a text, for a sink that can format it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An answer, in Markdown.
    Message,
    /// A line of the channel itself, as it is.
    Notice,
    /// An approval request, which should stand out.
    Question(ApprovalId),
}

/// An output that shows texts.
pub(super) trait Sink: Send + 'static {
    /// Shows a text and ends its line.
    fn show(&mut self, shown: &Shown) -> io::Result<()>;
}

/// Any writer. Each text is one write with its newline, then a flush.
pub(super) struct Plain<W>(pub(super) W);

impl<W: Write + Send + 'static> Sink for Plain<W> {
    fn show(&mut self, shown: &Shown) -> io::Result<()> {
        self.write(&shown.text)
    }
}

impl<W: Write> Plain<W> {
    /// Writes a text and ends its line.
    pub(super) fn write(&mut self, text: &str) -> io::Result<()> {
        let line = if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") };
        self.0.write_all(line.as_bytes())?;
        self.0.flush()
    }
}

impl Printer {
    /// Starts the thread. It ends when the last printer is dropped and the queue is empty. Nobody joins it, because a
    /// stalled reader of the output would block the join for ever. Nothing is lost by that: a delivery counts only
    /// after its text has been written.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(super) fn start(mut sink: impl Sink) -> io::Result<Self> {
        let (jobs, mut queue) = mpsc::channel::<Job>(QUEUE);
        thread::Builder::new().name("stdin-replies".into()).spawn(move || {
            while let Some(job) = queue.blocking_recv() {
                // The caller may have been cancelled: the text is shown all the same.
                let _ = job.done.send(sink.show(&job.shown));
            }
        })?;
        Ok(Self { jobs })
    }

    /// Shows a line of the channel itself. Otherwise as [`show`](Self::show).
    pub(super) async fn notify(&self, text: &str) -> io::Result<()> {
        self.show(Shown { text: text.to_owned(), kind: Kind::Notice, run: None }).await
    }

    /// Shows a text and waits until it has been written.
    ///
    /// # Errors
    /// The writer's own, `BrokenPipe` when nobody reads any more.
    ///
    /// # Cancel safety
    /// If dropped midway, the text may still be shown.
    pub(super) async fn show(&self, shown: Shown) -> io::Result<()> {
        let (done, written) = oneshot::channel();
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.jobs.send(Job { shown, done }).await.map_err(|_| gone())?;
        written.await.map_err(|_| gone())?
    }
}

/// Escapes characters that control a terminal: model output must not move the cursor, change the title, or hide text.
pub(super) fn escaped(text: &str) -> String {
    belay_text::escaped(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Writes(Arc<Mutex<Vec<String>>>);

    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").push(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn each_reply_is_one_write_that_ends_its_line() {
        let writes = Writes::default();
        let printer = Printer::start(Plain(writes.clone())).expect("a thread");
        for text in ["one", "two\nlines\n", "three"] {
            printer.notify(text).await.expect("written");
        }
        assert_eq!(*writes.0.lock().expect("not poisoned"), ["one\n", "two\nlines\n", "three\n"]);
    }

    #[test]
    fn escape_sequences_do_not_reach_a_terminal() {
        assert_eq!(escaped("txt.\u{202e}exe\u{ad}\u{e0041}"), r"txt.\u{202e}exe\u{ad}\u{e0041}");
        assert_eq!(
            escaped("a\x1b[2J\x07b\tc\nd\u{9b}31m\r"),
            r"a\u{1b}[2J\u{7}b".to_owned() + "\tc\nd" + r"\u{9b}31m\u{d}"
        );
    }
}
