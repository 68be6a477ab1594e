//! The message of `ask` and `send`: from the command line, or from standard input.

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use crate::exit::{Exit, Failure};
use crate::output::note;

/// Longest message in bytes. 1 MiB: the daemon's default limit for a body.
const MESSAGE_MAX_BYTES: u64 = 1024 * 1024;

/// Silence of a pipe after which a person at a terminal reads what is waited for. 2 s: most programs write more often.
const SILENCE: Duration = Duration::from_secs(2);

/// The note at a terminal that is the standard input.
const TYPE_IT: &str = "type the message; Ctrl-D on a line of its own ends it, and Ctrl-C gives up";

/// The note about a silent pipe that is the whole message.
const PIPE_IS_MESSAGE: &str =
    "standard input is open and silent: the message is read from it until it ends; Ctrl-C gives up";

/// The note about a silent pipe that is a part of the message.
const PIPE_IS_PART: &str = "standard input is open and silent: a text in it is read until it ends, and stands below the \
                            question; without one, add `< /dev/null`; Ctrl-C gives up";

/// The refusal of a longer one.
const TOO_LONG: &str = "the message is longer than 1 MiB";

/// Returns the message; `-` reads standard input to its end. If standard error is a terminal, a note there says how
/// the input of a terminal ends, or that a pipe stays silent.
///
/// # Errors
/// 65: it is empty, too long, or not UTF-8.
pub fn message(argument: &str) -> Result<String, Failure> {
    match argument {
        "-" => check(from_stdin(PIPE_IS_MESSAGE)?),
        text => check(text.to_owned()),
    }
}

/// Returns the message of `belay ask`, and whether it used standard input. A text that is piped in stands below the
/// question: `git diff | belay ask "review"`. Without an argument, standard input is the question.
///
/// # Errors
/// As [`message`]. 2: there is no argument, and standard input is a terminal.
pub fn with_piped(argument: Option<&str>) -> Result<(String, bool), Failure> {
    let argument = match argument {
        Some(argument) => argument,
        None if std::io::stdin().is_terminal() => {
            let missing = Failure::new(Exit::WrongUsage, "the message is missing: belay ask TEXT");
            return Err(missing.next("`belay ask -` reads it from this terminal; `belay chat` opens a prompt"));
        }
        None => "-",
    };
    if argument == "-" || !is_piped() {
        return Ok((message(argument)?, argument == "-"));
    }
    let piped = from_stdin(PIPE_IS_PART)?;
    if piped.trim().is_empty() {
        return Ok((message(argument)?, true));
    }
    Ok((check(below(&message(argument)?, &piped))?, true))
}

/// Whether standard input is a pipe or a file. A device, such as `/dev/null`, and a socket are none.
fn is_piped() -> bool {
    let input = std::io::stdin().as_fd().try_clone_to_owned();
    let kind = input.and_then(|input| File::from(input).metadata()).map(|input| input.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_file())
}

/// The question with the piped text below it, in a fence that the text does not contain.
fn below(question: &str, piped: &str) -> String {
    let longest = piped.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{question}\n\nThe input that was piped in:\n{fence}\n{}\n{fence}", piped.trim_end_matches(['\r', '\n']))
}

/// Reads standard input to its end. A person at a terminal learns what is waited for: with `silent`, of a pipe.
fn from_stdin(silent: &str) -> Result<String, Failure> {
    let input = std::io::stdin().lock();
    if !std::io::stderr().is_terminal() {
        return bounded(input);
    }
    if input.is_terminal() {
        note(TYPE_IT);
        return bounded(input);
    }
    awaited(input, SILENCE, || note(silent))
}

/// Reads a source to its end. At its first silence of this length, `remark` is called.
fn awaited(source: impl Read, silence: Duration, remark: impl FnOnce() + Send) -> Result<String, Failure> {
    let (heard, hears) = sync_channel(1);
    thread::scope(|scope| {
        scope.spawn(move || {
            loop {
                match hears.recv_timeout(silence) {
                    Ok(()) => {}
                    Err(RecvTimeoutError::Timeout) => return remark(),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        bounded(Heard { source, heard }) // drops the sender, and the thread ends
    })
}

/// A source whose pieces are reported as they come.
struct Heard<R> {
    source: R,
    heard: SyncSender<()>,
}

impl<R: Read> Read for Heard<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let piece = self.source.read(buffer);
        let _ = self.heard.try_send(()); // full: an earlier report is still unread; closed: the remark has been made
        piece
    }
}

fn bounded(source: impl Read) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let unreadable = |error| Failure::new(Exit::UnusableInput, format!("standard input cannot be read: {error}"));
    source.take(MESSAGE_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MESSAGE_MAX_BYTES {
        return Err(Failure::new(Exit::UnusableInput, TOO_LONG)); // the limit may have cut a character
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::new(Exit::UnusableInput, format!("the message is not UTF-8 (after {at} bytes)"))
    })
}

fn check(text: String) -> Result<String, Failure> {
    let refuse = |what: &str| Err(Failure::new(Exit::UnusableInput, what));
    match text.trim_end_matches(['\r', '\n']) {
        _ if text.len() as u64 > MESSAGE_MAX_BYTES => refuse(TOO_LONG),
        text if text.trim().is_empty() => refuse("the message is empty"),
        text => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use super::*;

    #[test]
    fn piped_text_stands_below_the_question_in_a_fence_of_its_own() {
        for (piped, expected) in [
            ("+a\n", "review\n\nThe input that was piped in:\n```\n+a\n```"),
            ("```\nx\n```", "review\n\nThe input that was piped in:\n````\n```\nx\n```\n````"),
        ] {
            assert_eq!(below("review", piped), expected);
        }
    }

    /// A reader that gives these pieces at once, and then says nothing before somebody has remarked on it.
    struct Silent {
        first: &'static [&'static str],
        remarks: Receiver<()>,
    }

    impl Read for Silent {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if let Some((piece, rest)) = self.first.split_first() {
                self.first = rest;
                return piece.as_bytes().read(buffer);
            }
            match self.remarks.recv_timeout(Duration::from_secs(60)) {
                Ok(()) => (&b"late"[..]).read(buffer),
                Err(RecvTimeoutError::Disconnected) => Ok(0),
                Err(RecvTimeoutError::Timeout) => panic!("nobody has remarked on the silence"),
            }
        }
    }

    #[test]
    fn a_silent_input_is_remarked_on_once_and_read_all_the_same() {
        for (first, expected) in [(&[][..], "late"), (&["one line\n", "another\n"], "one line\nanother\nlate")] {
            let (remark, remarks) = std::sync::mpsc::channel();
            let read = awaited(Silent { first, remarks }, Duration::from_millis(20), move || {
                remark.send(()).expect("it is read");
            });
            assert_eq!(read.as_deref(), Ok(expected));
        }
        let hour = Duration::from_secs(3600);
        let read = awaited(&b"at once"[..], hour, || panic!("it was not silent"));
        assert_eq!(read.as_deref(), Ok("at once"), "and nobody waits for the hour to pass");
    }

    #[test]
    fn a_message_is_bounded_utf8_without_the_last_line_break() {
        let long = vec![b'a'; 1024 * 1024 + 1];
        // The limit lies within a character.
        let cut = "é".repeat(1024 * 1024).into_bytes();
        for (bytes, expected) in [
            (&b"hello\r\n"[..], Ok("hello")),
            (b"a\nb\n", Ok("a\nb")),
            (b" \n", Err("the message is empty")),
            (b"ab\xff", Err("the message is not UTF-8 (after 2 bytes)")),
            (&long, Err("the message is longer than 1 MiB")),
            (&cut, Err("the message is longer than 1 MiB")),
        ] {
            let read = bounded(bytes).and_then(check);
            match expected {
                Ok(text) => assert_eq!(read.as_deref(), Ok(text)),
                Err(what) => assert_eq!(read, Err(Failure::new(Exit::UnusableInput, what))),
            }
        }
    }
}
