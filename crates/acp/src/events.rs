//! The events of one run, over restarts of the daemon.

use std::sync::Arc;

use belay_cli::client::Events;
use belay_program::exit::Failure;
use serde_json::Value as Json;
use tokio::time::{Instant, sleep};

use crate::daemon::{AGAIN, AWAY_LIMIT, Daemon, Trouble};

/// A reader of the events.
pub(crate) struct RunEvents {
    daemon: Arc<Daemon>,
    run: String,
    stream: Option<Events>,
    /// Since when no daemon answers.
    away_since: Option<Instant>,
}

impl RunEvents {
    pub(crate) fn new(daemon: Arc<Daemon>, run: String) -> Self {
        Self { daemon, run, stream: None, away_since: None }
    }

    /// Waits for the next event; a new connection continues after the fact with the number `cursor`.
    ///
    /// # Errors
    /// The daemon stays away, or does not know the run any more. The run may go on.
    ///
    /// # Cancel safety
    /// No event is lost if the future is dropped.
    pub(crate) async fn next(&mut self, cursor: Option<u64>) -> Result<Json, Trouble> {
        loop {
            if let Some(stream) = &mut self.stream {
                if let Some(event) = stream.next().await {
                    return Ok(event);
                }
                self.stream = None;
                sleep(AGAIN).await;
            }
            match self.daemon.events(&self.run, cursor).await {
                Ok(stream) => (self.stream, self.away_since) = (Some(stream), None),
                Err(Trouble::Away(failure)) => {
                    if self.away_since.get_or_insert_with(Instant::now).elapsed() >= AWAY_LIMIT {
                        return Err(Trouble::Away(stays_away(failure)));
                    }
                    sleep(AGAIN).await;
                }
                Err(trouble) => return Err(trouble),
            }
        }
    }
}

fn stays_away(failure: Failure) -> Failure {
    Failure::new(failure.exit, failure.what)
        .next("the run goes on with the daemon; load this conversation again to see its end")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use belay_cli::args::ClientArgs;
    use belay_cli::client::Client;
    use belay_program::environment::Environment;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_stays_away_is_an_error_after_a_minute() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", free.local_addr().unwrap());
        drop(free);
        let client = Client::find(&ClientArgs { url: Some(url), json: false }, &Environment::default()).unwrap();
        let begin = Instant::now();
        let error = RunEvents::new(Arc::new(Daemon(client)), "r".into()).next(None).await.unwrap_err().error();
        assert!(begin.elapsed() >= AWAY_LIMIT);
        assert!(error.message.ends_with("load this conversation again to see its end"), "{}", error.message);
    }
}
