//! Whoever sits at the terminal of `belay ask`: shows them questions and reads their answers. Where nobody sits, the answer
//! is no.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use belay_protocol::{Decision, GateId, Question};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::environment::Environment;
use crate::output;

/// Who answers questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Person {
    /// Somebody at a terminal.
    Present {
        /// Whether questions are coloured.
        colour: bool,
    },
    /// Nobody.
    Absent,
}

/// An answer.
pub(super) enum Said {
    /// To that question.
    Decision(GateId, Decision),
    /// A secret, which is the next message.
    Secret(String),
}

impl Person {
    /// Whether somebody can be asked: standard input and error are a terminal, and the message did not come from there.
    pub(super) fn find(is_input_used: bool, env: &Environment) -> Self {
        if is_input_used || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Self::Absent;
        }
        Self::Present { colour: env.raw("NO_COLOR").is_none() }
    }

    /// Shows a question and returns the answer to it.
    ///
    /// # Cancel safety
    /// Dropped midway the terminal is as it was, and a line that is typed afterwards is lost.
    pub(super) async fn answer(self, question: Question, text: String) -> Said {
        match self {
            Self::Absent => {
                output::ask(&text, false);
                output::note("denied: there is no terminal to ask at");
                Said::Decision(question.gate, Decision::Deny)
            }
            Self::Present { colour } => {
                output::ask(&text, colour);
                ask(&question).await
            }
        }
    }
}

async fn ask(question: &Question) -> Said {
    let deny = Said::Decision(question.gate, Decision::Deny);
    if question.decidable {
        show(if question.offers_always { "y (yes), a (always) or N (no): " } else { "y (yes) or N (no): " });
        return line()
            .await
            .map_or(deny, |line| Said::Decision(question.gate, decision(&line, question.offers_always)));
    }
    show("the secret, which is not shown (nothing: no): ");
    let _hidden = Hidden::begin(io::stdin());
    match line().await {
        Some(secret) if !secret.trim().is_empty() => Said::Secret(secret.trim().to_owned()),
        _ => deny,
    }
}

/// What a typed line means. Whatever is not clearly a yes is a no.
fn decision(line: &str, offers_always: bool) -> Decision {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Decision::Approve,
        "a" | "always" if offers_always => Decision::Always,
        _ => Decision::Deny,
    }
}

fn show(prompt: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(prompt.as_bytes()).and_then(|()| stderr.flush()); // the question was shown already
}

/// The next line of standard input; `None` at its end. The thread that reads cannot be interrupted: the end of the process
/// ends it.
async fn line() -> Option<String> {
    let read = || {
        let mut line = String::new();
        let bytes = io::stdin().read_line(&mut line).ok()?;
        (bytes > 0).then_some(line)
    };
    tokio::task::spawn_blocking(read).await.ok().flatten()
}

/// A terminal that does not show what is typed, until this is dropped.
struct Hidden<T: AsFd> {
    terminal: T,
    /// `None`: it is no terminal, and shows nothing anyway.
    before: Option<Termios>,
}

impl<T: AsFd> Hidden<T> {
    fn begin(terminal: T) -> Self {
        let before = tcgetattr(&terminal).ok();
        if let Some(before) = &before {
            let mut silent = before.clone();
            silent.local_modes.remove(LocalModes::ECHO);
            let _ = tcsetattr(&terminal, OptionalActions::Flush, &silent); // shown, then: the person sees it
        }
        Self { terminal, before }
    }
}

impl<T: AsFd> Drop for Hidden<T> {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(&self.terminal, OptionalActions::Now, before); // nothing more can be done about it here
            output::complain(""); // the line break that was not shown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_not_clearly_a_yes_is_a_no() {
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
