//! Requests to the daemon.

use std::time::Duration;

use belay_cli::client::{Client, Events, Method, text};
use belay_program::exit::{Exit, Failure};
use serde_json::{Value as Json, json};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

pub(crate) use crate::trouble::Trouble;
use crate::trouble::words;

/// Pause before a request or a stream is tried again. 500 ms: a daemon starts within it.
pub(crate) const AGAIN: Duration = Duration::from_millis(500);

/// How long a daemon may be away before a request or a prompt is answered with an error. 60 s: a restart takes a few seconds.
pub(crate) const AWAY_LIMIT: Duration = Duration::from_secs(60);

/// How long a message is sent on after its prompt was cancelled, if the daemon may have it. 8 s: a daemon restarts within it.
const CANCELLED_LIMIT: Duration = Duration::from_secs(8);

/// How long the daemon waits for the last process of a stopped run before it answers.
const STOP_WAIT_MS: &str = "2000";

/// The result of sending a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It has a run. The line, if there is one, says why the run does not begin now.
    Run(String, Option<String>),
    /// It was a command, or the answer to a question: the reply, and the run that continues.
    Command(String, Option<String>),
}

/// The running daemon.
pub(crate) struct Daemon(pub(crate) Client);

impl Daemon {
    /// Sends a request.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<&Json>,
    ) -> Result<Json, Trouble> {
        understood(self.0.exchange(method, path, query, body, Duration::ZERO).await)
    }

    pub(crate) async fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Json, Trouble> {
        self.call(Method::GET, path, query, None).await
    }

    /// Stores a file, and returns its id. A file that is stored twice does no harm.
    ///
    /// # Errors
    /// The daemon refuses it, stays away for a minute, or is away when `stop` comes.
    pub(crate) async fn upload(&self, name: &str, bytes: &[u8], stop: &CancellationToken) -> Result<String, Trouble> {
        let deadline = Instant::now() + AWAY_LIMIT;
        loop {
            let answer = understood(self.0.upload(name, bytes.to_vec()).await);
            if !is_to_be_repeated(&answer, deadline) {
                return answer.map(|file| text(&file, "/file").to_owned());
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return answer.map(|_| String::new()),
                () = sleep(AGAIN) => {}
            }
        }
    }

    /// Sends a message. While it is unknown whether the daemon has it, it is sent again with the same key, for up to a minute. After
    /// `stop` it is sent again only if the daemon may have it, since its run has to be found to be stopped.
    ///
    /// # Errors
    /// The daemon refuses it, or stays away.
    pub(crate) async fn send(&self, message: &Json, stop: &CancellationToken) -> Result<Sent, Trouble> {
        let given_up = async {
            stop.cancelled().await;
            sleep(CANCELLED_LIMIT).await;
        };
        tokio::select! {
            biased;
            answer = self.deliver(message, stop) => answer.map(|answer| sent(&answer)),
            () = given_up => {
                Err(Trouble::Away(Failure::new(Exit::OutOfReach, "it is not known whether the daemon has the message")))
            }
        }
    }

    async fn deliver(&self, message: &Json, stop: &CancellationToken) -> Result<Json, Trouble> {
        let (deadline, mut may_have_arrived) = (Instant::now() + AWAY_LIMIT, false);
        loop {
            let answer = self.call(Method::POST, &["api", "v1", "messages"], &[], Some(message)).await;
            if !is_to_be_repeated(&answer, deadline) {
                return answer;
            }
            may_have_arrived |= answer.as_ref().is_err_and(Trouble::may_have_arrived);
            tokio::select! {
                biased;
                () = stop.cancelled(), if !may_have_arrived => return answer,
                () = sleep(AGAIN) => {}
            }
        }
    }

    /// Asks to stop a run, until `deadline`. A failure is the run's: its end says what became of it.
    pub(crate) async fn stop(&self, run: &str, deadline: Instant) {
        let path = ["api", "v1", "runs", run, "stop"];
        let _ = timeout_at(deadline, self.persist(Method::POST, &path, &[("wait_ms", STOP_WAIT_MS)], None)).await;
    }

    /// Stops the work of a session. No such session is no failure.
    pub(crate) async fn stop_session(&self, session: &str) -> Result<(), Trouble> {
        let path = ["api", "v1", "sessions", session, "stop"];
        match self.persist(Method::POST, &path, &[("wait_ms", STOP_WAIT_MS)], None).await {
            Err(trouble) if !trouble.is_missing() => Err(trouble),
            _ => Ok(()),
        }
    }

    /// Reads a question.
    pub(crate) async fn question(&self, question: &str) -> Result<Json, Trouble> {
        self.persist(Method::GET, &["api", "v1", "approvals", question], &[], None).await
    }

    /// Answers a question. The first answer counts, so it may be sent again.
    pub(crate) async fn decide(&self, question: &str, decision: &str) -> Result<Json, Trouble> {
        let body = json!({ "decision": decision });
        self.persist(Method::POST, &["api", "v1", "approvals", question], &[], Some(&body)).await
    }

    /// Sends a request that may be carried out twice, again while no daemon answers.
    async fn persist(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<&Json>,
    ) -> Result<Json, Trouble> {
        let deadline = Instant::now() + AWAY_LIMIT;
        loop {
            let answer = self.call(method.clone(), path, query, body).await;
            if !is_to_be_repeated(&answer, deadline) {
                return answer;
            }
            sleep(AGAIN).await;
        }
    }

    /// Opens the events of a run after the fact with this number.
    pub(crate) async fn events(&self, run: &str, since: Option<u64>) -> Result<Events, Trouble> {
        self.0.run_events(run, since).await.map_err(|failure| match failure.exit {
            Exit::OutOfReach | Exit::Busy => Trouble::Away(failure),
            _ => Trouble::Refused { status: 500, message: words(&failure) },
        })
    }
}

fn is_to_be_repeated(answer: &Result<Json, Trouble>, deadline: Instant) -> bool {
    answer.as_ref().is_err_and(Trouble::is_passing) && Instant::now() < deadline
}

fn understood(answer: Result<(u16, Json), Failure>) -> Result<Json, Trouble> {
    match answer {
        Ok((200..=299, answer)) => Ok(answer),
        Ok((status, answer)) => Err(Trouble::Refused { status, message: text(&answer, "/error/message").to_owned() }),
        Err(failure) => Err(Trouble::Away(failure)),
    }
}

fn sent(answer: &Json) -> Sent {
    let some = |place: &str| Some(text(answer, place).to_owned()).filter(|text| !text.is_empty());
    match some("/run_id") {
        Some(run) => Sent::Run(run, some("/frozen")),
        None => Sent::Command(text(answer, "/reply").to_owned(), some("/resumes")),
    }
}

#[cfg(test)]
mod tests;
