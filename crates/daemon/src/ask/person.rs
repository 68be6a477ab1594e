//! The person at the terminal of `belay ask`: shows approval requests and reads the answers. Without a terminal every
//! request is denied.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use belay_protocol::{ApprovalId, Decision, Question};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::environment::Environment;
use crate::output;

/// Who answers approval requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Person {
    /// A person at a terminal.
    Present {
        /// Whether requests are coloured.
        colour: bool,
    },
    /// No person.
    Absent,
}

/// An answer.
pub(super) enum PersonAnswer {
    /// The decision on the request with this id.
    Decision(ApprovalId, Decision),
    /// A secret, which is sent as the next message.
    Secret(String),
}

impl Person {
    /// Detects whether a person can be asked: standard input and error are terminals, and the message was not read from
    /// standard input.
    pub(super) fn find(is_input_used: bool, env: &Environment) -> Self {
        if is_input_used || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Self::Absent;
        }
        Self::Present { colour: env.raw("NO_COLOR").is_none() }
    }

    /// Shows an approval request and returns the answer to it.
    ///
    /// # Cancel safety
    /// If dropped midway, the terminal is restored, and a line that is typed afterwards is lost.
    pub(super) async fn answer(self, question: Question, text: String) -> PersonAnswer {
        match self {
            Self::Absent => {
                output::ask(&text, false);
                output::note("denied: there is no terminal to ask at");
                PersonAnswer::Decision(question.approval, Decision::Deny)
            }
            Self::Present { colour } => {
                output::ask(&text, colour);
                ask(&question).await
            }
        }
    }
}

async fn ask(question: &Question) -> PersonAnswer {
    let deny = PersonAnswer::Decision(question.approval, Decision::Deny);
    if question.decidable {
        show(if question.offers_always { "y (yes), a (always) or N (no): " } else { "y (yes) or N (no): " });
        return line()
            .await
            .map_or(deny, |line| PersonAnswer::Decision(question.approval, decision(&line, question.offers_always)));
    }
    show("the secret, which is not shown (nothing: no): ");
    let _hidden = Hidden::begin(io::stdin());
    match line().await {
        Some(secret) if !secret.trim().is_empty() => PersonAnswer::Secret(secret.trim().to_owned()),
        _ => deny,
    }
}

/// Parses a typed line. Anything that is not clearly a yes is a no.
fn decision(line: &str, offers_always: bool) -> Decision {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Decision::Approve,
        "a" | "always" if offers_always => Decision::Always,
        _ => Decision::Deny,
    }
}

fn show(prompt: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(prompt.as_bytes()).and_then(|()| stderr.flush()); // the request was shown already
}

/// Reads the next line of standard input; `None` at its end. The reading thread cannot be interrupted; it ends with the
/// process.
async fn line() -> Option<String> {
    let read = || {
        let mut line = String::new();
        let bytes = io::stdin().read_line(&mut line).ok()?;
        (bytes > 0).then_some(line)
    };
    tokio::task::spawn_blocking(read).await.ok().flatten()
}

/// Turns the echo of a terminal off until it is dropped.
struct Hidden<T: AsFd> {
    terminal: T,
    /// `None`: not a terminal, so there is no echo.
    before: Option<Termios>,
}

impl<T: AsFd> Hidden<T> {
    fn begin(terminal: T) -> Self {
        let before = tcgetattr(&terminal).ok();
        if let Some(before) = &before {
            let mut silent = before.clone();
            silent.local_modes.remove(LocalModes::ECHO);
            // On failure the input is visible, and the person notices.
            let _ = tcsetattr(&terminal, OptionalActions::Flush, &silent);
        }
        Self { terminal, before }
    }
}

impl<T: AsFd> Drop for Hidden<T> {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(&self.terminal, OptionalActions::Now, before); // on failure nothing more can be done here
            output::print_error(""); // the line break that was not echoed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anything_that_is_not_clearly_a_yes_is_a_no() {
        for (line, offers_always, expected) in [
            ("y\n", false, Decision::Approve),
            (" YES \n", true, Decision::Approve),
            ("a\n", true, Decision::Always),
            ("a\n", false, Decision::Deny),
            ("\n", true, Decision::Deny),
            ("yes, but\n", true, Decision::Deny),
        ] {
            assert_eq!(decision(line, offers_always), expected, "{line:?} {offers_always}");
        }
    }

    #[test]
    fn a_secret_is_not_shown_while_it_is_typed_and_everything_is_shown_again_afterwards() {
        use rustix::pty::{OpenptFlags, openpt};
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        let shows = || tcgetattr(&terminal).expect("its modes").local_modes.contains(LocalModes::ECHO);
        assert!(shows());
        let hidden = Hidden::begin(&terminal);
        assert!(!shows());
        drop(hidden);
        assert!(shows());
    }
}
