//! Notices that the file of a socket was deleted, moved or replaced. It costs nothing while nothing happens.

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use tokio::net::unix::pipe::Receiver;
use tokio::time::{Instant, sleep_until};

/// The time after which a file is looked at that cannot be watched: it is not there, or the user has no watch left.
const LOOK_AFTER: Duration = Duration::from_secs(5);

/// A watch over a file and its directory, for one change.
pub(crate) struct SocketWatch {
    notices: Option<Receiver>,
    look_at: Instant,
}

impl SocketWatch {
    /// Watches whatever is at this path now.
    pub(crate) fn of(path: &Path) -> Self {
        let notices = notices(path).inspect_err(|error| tracing::debug!(%error, "the socket's file cannot be watched"));
        Self { notices: notices.ok(), look_at: Instant::now() + LOOK_AFTER }
    }

    /// Waits until something may have happened to the file. Then a new watch is needed.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn changed(&self) {
        match &self.notices {
            Some(notices) if notices.readable().await.is_ok() => {}
            _ => sleep_until(self.look_at).await,
        }
    }
}

/// Source: inotify(7). The removal of a name changes the attributes of its file (`IN_ATTRIB`, the number of links); the file
/// itself lives as long as the socket.
fn notices(path: &Path) -> io::Result<Receiver> {
    let directory = path.parent().ok_or(io::ErrorKind::NotFound)?;
    let notices = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    let of_file = WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::DONT_FOLLOW;
    add_watch(&notices, path, of_file)?;
    add_watch(&notices, directory, WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::ONLYDIR)?;
    // Notices are read like a pipe.
    Receiver::from_owned_fd_unchecked(notices)
}
