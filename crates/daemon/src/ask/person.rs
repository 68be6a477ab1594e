//! The person at the terminal of `belay ask`: shows approval requests and reads the answers. Without a terminal every
//! request is denied.

use std::io::{self, IsTerminal};

use belay_program::environment::Environment;
use belay_program::output;
use belay_program::typed::{Hidden, line, show};
use belay_protocol::{ApprovalId, Decision, Question};

/// The answer that asks for all of a long request.
const VIEW: &str = "v";

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
                output::ask(&text, false, None);
                output::note("denied: there is no terminal to ask at");
                PersonAnswer::Decision(question.approval, Decision::Deny)
            }
            Self::Present { colour } => {
                output::ask(&text, colour, Some(VIEW));
                let hint = if output::is_folded(&text) { "v (view all), " } else { "" };
                loop {
                    match ask(&question, hint).await {
                        Typed::View => output::ask(&text, colour, None),
                        Typed::Answer(answer) => return answer,
                    }
                }
            }
        }
    }
}

/// What a person types below a request.
enum Typed {
    /// All of the request is to be shown.
    View,
    Answer(PersonAnswer),
}

/// Reads a line. `hint`: a further way to answer, with a comma behind it.
async fn ask(question: &Question, hint: &str) -> Typed {
    let deny = PersonAnswer::Decision(question.approval, Decision::Deny);
    if question.decidable {
        let always = if question.offers_always { "y (yes), a (always)" } else { "y (yes)" };
        show(&format!("{hint}{always} or N (no): "));
        return match line().await {
            Some(line) if !hint.is_empty() && line.trim().eq_ignore_ascii_case(VIEW) => Typed::View,
            Some(line) => {
                Typed::Answer(PersonAnswer::Decision(question.approval, decision(&line, question.offers_always)))
            }
            None => Typed::Answer(deny),
        };
    }
    show("the secret, which is not shown (nothing: no): ");
    let _hidden = Hidden::begin(io::stdin());
    match line().await {
        Some(secret) if !secret.trim().is_empty() => Typed::Answer(PersonAnswer::Secret(secret.trim().to_owned())),
        _ => Typed::Answer(deny),
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
}
