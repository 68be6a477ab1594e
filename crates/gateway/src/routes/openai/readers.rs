//! Clients that wait for the answer of a run, and what becomes of the run when the last of them goes away.
//!
//! The client of a stream can stop its run only by closing the stream, so that the run ends at once. A client without a
//! stream may have given up and be about to send the request again: the run ends after `gateway.openai_client_gone_s`,
//! unless a retry has joined it by then.

use std::time::Duration;

use belay_protocol::{Control, Principal, RunId, StopTarget};

use super::retries::Attempt;
use crate::app::{AbandonedRequest, App, Shared};
use crate::first_attempts::Waiting;

/// How the client reads the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// It waits for the whole answer.
    Whole,
    /// It reads a stream, and ends the run by closing it.
    Streamed,
    /// It comes back for the answer, so that the run goes on without it.
    #[cfg_attr(not(feature = "responses"), expect(dead_code, reason = "a build without an API of this kind"))]
    Later {
        /// Whether it reads a stream until it goes.
        streams: bool,
    },
}

impl Reading {
    pub(super) fn streams(self) -> bool {
        matches!(self, Self::Streamed | Self::Later { streams: true })
    }

    pub(super) fn is_later(self) -> bool {
        matches!(self, Self::Later { .. })
    }
}

/// A client that waits. Ends its run when it is dropped before [`Reader::served`] and no other client waits.
pub(super) struct Reader {
    pub(super) app: Shared,
    pub(super) principal: Principal,
    pub(super) run: RunId,
    streams: bool,
    /// Whether the run does not end with this client.
    pub(super) is_served: bool,
    /// Held while the client waits.
    client: Option<Waiting>,
}

impl Reader {
    pub(super) fn new(app: Shared, principal: Principal, run: RunId, streams: bool) -> Self {
        app.readers.add(run);
        Self { app, principal, run, streams, is_served: false, client: None }
    }

    /// Lets the request be known as one that is answered, for its retries.
    pub(super) fn of_attempt(mut self, attempt: Option<Attempt>) -> Self {
        self.client = attempt.map(|attempt| attempt.client);
        self
    }

    /// A client that reads the answer later has what it asks for now.
    pub(super) fn of_reading(mut self, reading: Reading) -> Self {
        if reading.is_later() {
            self.served();
        }
        self
    }

    /// The client has its answer.
    pub(super) fn served(&mut self) {
        self.is_served = true;
        if let Some(client) = &self.client {
            client.served();
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !self.app.readers.remove(self.run) || self.is_served {
            return;
        }
        tracing::debug!(run_id = %self.run, streams = self.streams, "the client of a completion went away");
        match (self.streams, grace(&self.app)) {
            (true, _) => {
                let stop = Control::Stop(StopTarget::RunOfGoneClient(self.run));
                self.app.send_control(self.principal.clone(), stop);
            }
            (false, Some(grace)) => {
                self.app.abandon(AbandonedRequest::of_run(self.principal.clone(), self.run, grace));
            }
            (false, None) => {}
        }
    }
}

/// How long the run of a client without a stream goes on after the client has gone; `None`: to its end.
pub(super) fn grace(app: &App) -> Option<Duration> {
    let seconds = app.config.openai_client_gone_s;
    (seconds > 0).then(|| Duration::from_secs(seconds))
}
