//! Why a request to the daemon has no result, and the errors that an editor gets for it. Pure.

use agent_client_protocol::{Error, ErrorCode};
use belay_cli::client::nobody_answers;
use belay_program::exit::Failure;

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

    /// Whether it may pass by itself: the daemon is away, or not ready.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Away(_) | Self::Refused { status: 503, .. })
    }

    /// Whether the daemon may have taken the request all the same.
    pub(crate) fn may_have_arrived(&self) -> bool {
        match self {
            Self::Away(failure) => !nobody_answers(failure),
            Self::Refused { status, .. } => *status == 503,
        }
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
pub(crate) fn words(failure: &Failure) -> String {
    match &failure.next {
        Some(next) => format!("{}; {next}", failure.what),
        None => failure.what.clone(),
    }
}

#[cfg(test)]
mod tests {
    use belay_program::exit::Exit;

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
}
