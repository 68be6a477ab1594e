//! The connection to the server, and waiting for its answers.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio_postgres::{AsyncMessage, Connection, Notification, Socket};
use tracing::debug;

use super::fault::{Cause, Ended, PgError};
use super::tls::Stream;

/// The maximum number of notifications that nobody has taken. Further ones are dropped: they are hints, and rows are the
/// truth.
const HEARD_MAX: usize = 1024;

/// The connection. It makes progress only while somebody waits for an answer.
pub(super) struct Wire {
    /// `None`: it is lost.
    connection: Option<Connection<Socket, Stream>>,
    /// Why it is lost, if the server or the system has said so.
    lost: Option<PgError>,
    /// Notifications of the channels that the session listens to, until they are taken.
    heard: Vec<Notification>,
}

impl Wire {
    pub(super) fn new(connection: Connection<Socket, Stream>) -> Self {
        Self { connection: Some(connection), lost: None, heard: Vec::new() }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.connection.is_none()
    }

    /// The reason of the loss, instead of the answer "closed" that each waiting statement gets.
    pub(super) fn reason(&self, error: PgError) -> PgError {
        match &self.lost {
            Some(lost) if error.ended() == Ended::Connection && error.code().is_none() => lost.clone(),
            _ => error,
        }
    }

    /// Closes the connection. All waiting statements fail.
    pub(super) fn close(&mut self, reason: PgError) {
        self.connection = None;
        self.lost.get_or_insert(reason);
    }

    /// Waits for an answer.
    ///
    /// # Errors
    /// There is no answer within the limit. The connection is closed then: an answer that comes later must not be taken for
    /// that of another statement.
    pub(super) async fn answer<T>(
        &mut self,
        mut future: Pin<&mut (dyn Future<Output = T> + Send)>,
        limit: Duration,
    ) -> Result<T, PgError> {
        let answer = poll_fn(|cx| {
            if let Poll::Ready(done) = future.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            self.progress(cx);
            // What has arrived wakes the future, which is polled again then.
            if self.is_broken() { future.as_mut().poll(cx) } else { Poll::Pending }
        });
        match tokio::time::timeout(limit, answer).await {
            Ok(done) => Ok(done),
            Err(_) => {
                let silent =
                    PgError::new(Cause::Silent, Ended::Connection, format!("no answer for {} s", limit.as_secs()));
                self.close(silent.clone());
                Err(silent)
            }
        }
    }

    /// Waits for notifications, and takes them.
    ///
    /// # Errors
    /// The connection is lost.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn heard(&mut self) -> Result<Vec<Notification>, PgError> {
        poll_fn(|cx| {
            self.progress(cx);
            if !self.heard.is_empty() {
                return Poll::Ready(Ok(std::mem::take(&mut self.heard)));
            }
            match (&self.connection, &self.lost) {
                (Some(_), _) => Poll::Pending,
                (None, Some(lost)) => Poll::Ready(Err(lost.clone())),
                (None, None) => Poll::Ready(Err(PgError::new(Cause::Lost, Ended::Connection, ""))),
            }
        })
        .await
    }

    /// Sends and receives what is possible without waiting.
    pub(super) fn progress(&mut self, cx: &mut Context<'_>) {
        while let Some(connection) = &mut self.connection {
            match connection.poll_message(cx) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => {
                    debug!(notice = notice.message(), "the database server sent a notice");
                }
                Poll::Ready(Some(Ok(AsyncMessage::Notification(notification)))) => {
                    if self.heard.len() < HEARD_MAX {
                        self.heard.push(notification);
                    }
                }
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => {
                    let mut lost = PgError::from_client(&error);
                    lost.lose();
                    self.close(lost);
                }
                Poll::Ready(None) => {
                    self.close(PgError::new(Cause::Lost, Ended::Connection, "the server closed the connection"));
                }
            }
        }
    }
}
