//! Asks the person at the terminal, line by line. Nothing is drawn, so that every window, screen reader and
//! `NO_COLOR` is served.

use std::future::Future;
use std::io::{self, IsTerminal};
use std::pin::Pin;

use belay_program::exit::{Exit, Failure};
use belay_program::output;
use belay_program::typed::{Hidden, line, show};
use belay_settings::secrets;
use secrecy::SecretString;

/// Who answers the questions.
pub(super) enum Person {
    /// A person at a terminal.
    Present(Terminal),
    /// Nobody: only flags and defaults count.
    Absent,
}

impl Person {
    /// Detects whether a person can be asked: standard input and error are terminals, and nothing forbids it.
    pub(super) fn find(may_ask: bool) -> Self {
        if may_ask && io::stdin().is_terminal() && io::stderr().is_terminal() {
            Self::Present(Terminal { pending: None })
        } else {
            Self::Absent
        }
    }
}

/// The terminal of a person.
pub(super) struct Terminal {
    /// A read that has begun. It is kept when a wait is dropped, so that no typed line is lost.
    pending: Option<Pin<Box<dyn Future<Output = Option<String>>>>>,
}

impl Terminal {
    /// Shows a line.
    pub(super) fn say(&self, text: &str) {
        output::print_error(text);
    }

    /// Reads the next line, without white space around it.
    ///
    /// # Errors
    /// The input has ended (130).
    ///
    /// # Cancel safety
    /// Safe: the line that is typed afterwards is the result of the next call.
    pub(super) async fn line(&mut self) -> Result<String, Failure> {
        let pending = self.pending.get_or_insert_with(|| Box::pin(line()));
        let typed = pending.as_mut().await;
        self.pending = None;
        let ended = || Failure::new(Exit::Interrupted, "the input has ended; nothing was changed");
        typed.map(|line| line.trim().to_owned()).ok_or_else(ended)
    }

    /// Asks for a text. An empty line means the default; without a default the question is repeated.
    pub(super) async fn text(&mut self, question: &str, default: Option<&str>) -> Result<String, Failure> {
        loop {
            match default {
                Some(default) => show(&shown(&format!("{question} [{default}]: "))),
                None => show(&shown(&format!("{question}: "))),
            }
            match (self.line().await?, default) {
                (typed, _) if !typed.is_empty() => return Ok(typed),
                (_, Some(default)) => return Ok(default.to_owned()),
                (_, None) => {}
            }
        }
    }

    /// Asks for a secret, which is not shown while it is typed. `None`: an empty line.
    pub(super) async fn secret(&mut self, question: &str) -> Result<Option<SecretString>, Failure> {
        loop {
            let typed = {
                let _hidden = Hidden::begin(io::stdin());
                show(&shown(&format!("{question}: ")));
                self.line().await?
            };
            match secrets::of_text(&typed) {
                Ok(secret) => return Ok(secret),
                Err(what) => self.say(&format!("It {what}.")),
            }
        }
    }

    /// Asks for a yes or a no.
    pub(super) async fn yes(&mut self, question: &str, default: bool) -> Result<bool, Failure> {
        loop {
            show(&shown(&format!("{question} {} ", if default { "[Y/n]" } else { "[y/N]" })));
            match self.line().await?.to_ascii_lowercase().as_str() {
                "" => return Ok(default),
                "y" | "yes" => return Ok(true),
                "n" | "no" => return Ok(false),
                _ => {}
            }
        }
    }
}

/// Escapes what a server or a file may have brought into a question.
fn shown(text: &str) -> String {
    belay_text::escaped(text).into_owned()
}
