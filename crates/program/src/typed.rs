//! Lines that a person types at a terminal, shown or hidden.

use std::io::{self, Write};
use std::os::fd::AsFd;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::output;

/// Shows a prompt on stderr, without a line end.
pub fn show(prompt: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(prompt.as_bytes()).and_then(|()| stderr.flush()); // if stderr is closed, nobody can be told
}

/// Reads the next line of standard input; `None` at its end. The reading thread cannot be interrupted; it ends with the
/// process.
pub async fn line() -> Option<String> {
    let read = || {
        let mut line = String::new();
        let bytes = io::stdin().read_line(&mut line).ok()?;
        (bytes > 0).then_some(line)
    };
    tokio::task::spawn_blocking(read).await.ok().flatten()
}

/// Turns the echo of a terminal off until it is dropped.
pub struct Hidden<T: AsFd> {
    terminal: T,
    /// `None`: not a terminal, so there is no echo.
    before: Option<Termios>,
}

impl<T: AsFd> Hidden<T> {
    /// Turns the echo off.
    pub fn begin(terminal: T) -> Self {
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
