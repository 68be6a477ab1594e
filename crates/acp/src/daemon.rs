//! Requests to the daemon, and the errors that an editor gets for them.

use std::time::Duration;

use agent_client_protocol::{Error, ErrorCode};
use belay_cli::client::{Client, Events, Method, text};
use belay_program::exit::{Exit, Failure};
use serde_json::{Value as Json, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Pause before a request or a stream is tried again. 500 ms: a daemon starts within it.
pub(crate) const AGAIN: Duration = Duration::from_millis(500);

/// How often a request is sent whose effect is unknown. 20: ten seconds without a daemon.
const ATTEMPTS: u32 = 20;

/// How long the daemon waits for the last process of a stopped run before it answers.
const STOP_WAIT_MS: &str = "2000";

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// No daemon answers.
    Away(Failure),
    /// It refuses the request.
    Refused {
        /// The status of HTTP.
        status: u16,
        /// The daemon's words.
        message: String,
    },
}

impl Trouble {
    /// Whether there is no such thing.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }

    /// The error for the editor: what happened, and the next step.
    pub(crate) fn error(&self) -> Error {
        match self {
            Self::Away(failure) => Error::new(ErrorCode::INTERNAL_ERROR, words(failure)),
            Self::Refused { status: 401, message } => {
                let next =
                    "set BELAY_TOKEN or BELAY_OPERATOR_TOKEN in the environment that the editor gives to `belay acp`";
                Error::new(ErrorCode::AUTH_REQUIRED, format!("{message}; {next}"))
            }
            Self::Refused { status: 400 | 409 | 413 | 415 | 422, message } => {
                Error::new(ErrorCode::INVALID_PARAMS, message.as_str())
            }
            Self::Refused { message, .. } => Error::new(ErrorCode::INTERNAL_ERROR, message.as_str()),
        }
    }
}

/// A failure in one line.
fn words(failure: &Failure) -> String {
    match &failure.next {
        Some(next) => format!("{}; {next}", failure.what),
        None => failure.what.clone(),
    }
}

/// What became of a message.
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

    /// Stores a file, and returns its id.
    pub(crate) async fn upload(&self, name: &str, bytes: Vec<u8>) -> Result<String, Trouble> {
        understood(self.0.upload(name, bytes).await).map(|file| text(&file, "/file").to_owned())
    }

    /// Sends a message. While it is unknown whether the daemon has it, it is sent again with the same key, until `stop`.
    pub(crate) async fn send(&self, message: &Json, stop: &CancellationToken) -> Result<Sent, Trouble> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let answer = self.call(Method::POST, &["api", "v1", "messages"], &[], Some(message)).await;
            let is_unknown = matches!(&answer, Err(Trouble::Away(_) | Trouble::Refused { status: 503, .. }));
            if !is_unknown || attempt >= ATTEMPTS || stop.is_cancelled() {
                return answer.map(|answer| sent(&answer));
            }
            sleep(AGAIN).await;
        }
    }

    /// Stops a run. A failure is the run's: its end says what became of it.
    pub(crate) async fn stop(&self, run: &str) {
        let _ = self.persist(&["api", "v1", "runs", run, "stop"], &[("wait_ms", STOP_WAIT_MS)], None).await;
    }

    /// Stops the work of a session. No such session is no failure.
    pub(crate) async fn stop_session(&self, session: &str) -> Result<(), Trouble> {
        let path = ["api", "v1", "sessions", session, "stop"];
        match self.persist(&path, &[("wait_ms", STOP_WAIT_MS)], None).await {
            Err(trouble) if !trouble.is_missing() => Err(trouble),
            _ => Ok(()),
        }
    }

    /// Answers a question. The first answer counts, so it may be sent again.
    pub(crate) async fn decide(&self, question: &str, decision: &str) -> Result<Json, Trouble> {
        let body = json!({ "decision": decision });
        self.persist(&["api", "v1", "approvals", question], &[], Some(&body)).await
    }

    /// Sends a request that may be carried out twice, again while no daemon answers.
    async fn persist(&self, path: &[&str], query: &[(&str, &str)], body: Option<&Json>) -> Result<Json, Trouble> {
        for _ in 1..ATTEMPTS {
            match self.call(Method::POST, path, query, body).await {
                Err(Trouble::Away(_)) => sleep(AGAIN).await,
                answer => return answer,
            }
        }
        self.call(Method::POST, path, query, body).await
    }

    /// Opens the events of a run after the fact with this number.
    pub(crate) async fn events(&self, run: &str, since: Option<u64>) -> Result<Events, Trouble> {
        self.0.run_events(run, since).await.map_err(|failure| match failure.exit {
            Exit::OutOfReach | Exit::Busy => Trouble::Away(failure),
            _ => Trouble::Refused { status: 500, message: words(&failure) },
        })
    }
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
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do_next() {
        let refused = |status| Trouble::Refused { status, message: "why".into() }.error();
        for (status, code) in [(401, -32000), (404, -32603), (409, -32602), (422, -32602), (429, -32603), (503, -32603)]
        {
            assert_eq!(i32::from(refused(status).code), code, "{status}");
        }
        assert!(refused(401).message.starts_with("why; set BELAY_TOKEN"), "{}", refused(401).message);
        let away = Trouble::Away(Failure::new(Exit::OutOfReach, "no daemon").next("start one"));
        assert_eq!(away.error().message, "no daemon; start one");
    }

    #[test]
    fn a_message_has_a_run_or_was_a_command() {
        let run = json!({"run_id": "r", "status": "queued", "frozen": "frozen by me"});
        assert_eq!(sent(&run), Sent::Run("r".into(), Some("frozen by me".into())));
        let command = json!({"status": "command", "command": "approve", "reply": "Approved.", "resumes": "r"});
        assert_eq!(sent(&command), Sent::Command("Approved.".into(), Some("r".into())));
    }
}
