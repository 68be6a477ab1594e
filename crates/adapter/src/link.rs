//! The connection of an adapter as the channel sees it: a bounded queue of frames, and the answers that are expected.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::frames::{Delivered, Ready, ToAdapter};

/// The maximum number of frames that wait to be written.
const QUEUE: usize = 64;

/// A frame for the adapter.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) text: String,
    /// The key of the delivery or of the question that it carries.
    pub(crate) key: Option<String>,
}

impl Frame {
    pub(crate) fn of(frame: &ToAdapter) -> Self {
        Self { text: frame.text(), key: None }
    }
}

/// The answer to a frame with a key.
#[derive(Debug)]
pub(crate) enum Answer {
    Delivered(Delivered),
    LookedUp(Option<bool>),
    /// The connection ended before the frame was written.
    NotWritten,
    /// The connection ended after that.
    Lost,
}

/// A frame that waits for its answer. Dropped, it waits no more.
pub(crate) struct Asked<'a> {
    link: &'a Link,
    generation: u64,
    key: String,
    answer: oneshot::Receiver<Answer>,
}

impl Asked<'_> {
    /// The answer; `None`: it did not come in time.
    ///
    /// # Cancel safety
    /// If the future is dropped, the adapter may or may not see the frame.
    pub(crate) async fn answer(mut self, limit: Duration) -> Option<Answer> {
        timeout(limit, &mut self.answer).await.ok().and_then(Result::ok)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.link.forget(self.generation, &self.key);
    }
}

/// The connection of the moment. A newer one takes the place of an older one, which may be half open.
#[derive(Debug, Default)]
pub(crate) struct Link {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Counts connections.
    generation: u64,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    frames: mpsc::Sender<Frame>,
    ready: Ready,
    waiting: HashMap<String, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    to: oneshot::Sender<Answer>,
    written: bool,
}

impl Waiting {
    fn lose(self) {
        let answer = if self.written { Answer::Lost } else { Answer::NotWritten };
        let _ = self.to.send(answer); // nobody waits any more
    }
}

impl Link {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a connection. Returns its number, and the frames to write. The queue of an older connection ends.
    pub(crate) fn open(&self, ready: Ready) -> (u64, mpsc::Receiver<Frame>) {
        let (frames, queue) = mpsc::channel(QUEUE);
        let mut state = self.state();
        state.generation += 1;
        let older = state.open.replace(Open { frames, ready, waiting: HashMap::new() });
        older.into_iter().flat_map(|open| open.waiting.into_values()).for_each(Waiting::lose);
        (state.generation, queue)
    }

    /// The connection with this number has ended.
    pub(crate) fn close(&self, generation: u64) {
        let mut state = self.state();
        if state.generation == generation {
            let open = state.open.take();
            open.into_iter().flat_map(|open| open.waiting.into_values()).for_each(Waiting::lose);
        }
    }

    /// The abilities of the connected adapter; `None`: none is connected.
    pub(crate) fn ready(&self) -> Option<Ready> {
        self.state().open.as_ref().map(|open| open.ready.clone())
    }

    /// Queues a frame that is answered. `None`: no adapter is connected, it does not read, or it has not answered the last
    /// frame with this key; nothing was sent.
    pub(crate) fn ask(&self, key: &str, frame: &ToAdapter) -> Option<Asked<'_>> {
        let mut state = self.state();
        let generation = state.generation;
        let open = state.open.as_mut().filter(|open| !open.waiting.contains_key(key))?;
        let place = open.frames.try_reserve().ok()?;
        place.send(Frame { key: Some(key.to_owned()), ..Frame::of(frame) });
        let (to, answer) = oneshot::channel();
        open.waiting.insert(key.to_owned(), Waiting { to, written: false });
        Some(Asked { link: self, generation, key: key.to_owned(), answer })
    }

    /// Queues a frame that nobody answers, if there is room.
    pub(crate) fn offer(&self, frame: &ToAdapter) {
        if let Some(open) = &self.state().open {
            let _ = open.frames.try_send(Frame::of(frame)); // best effort
        }
    }

    /// The frame with this key is written next, so the adapter may see it.
    pub(crate) fn begin_writing(&self, generation: u64, key: &str) {
        let mut state = self.state();
        if state.generation == generation {
            let waiting = state.open.as_mut().and_then(|open| open.waiting.get_mut(key));
            waiting.into_iter().for_each(|waiting| waiting.written = true);
        }
    }

    /// The adapter's answer to the frame with this key. One that nobody waits for is ignored.
    pub(crate) fn answer(&self, generation: u64, key: &str, answer: Answer) {
        let mut state = self.state();
        if state.generation == generation
            && let Some(waiting) = state.open.as_mut().and_then(|open| open.waiting.remove(key))
        {
            let _ = waiting.to.send(answer); // nobody waits any more
        }
    }

    /// Nobody waits for the answer to the frame with this key any more.
    fn forget(&self, generation: u64, key: &str) {
        let mut state = self.state();
        if state.generation == generation {
            state.open.iter_mut().for_each(|open| drop(open.waiting.remove(key)));
        }
    }
}

#[cfg(test)]
mod tests;
