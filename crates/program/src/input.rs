//! The message of `ask` and `send`: from the command line, or from standard input.

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;

use crate::exit::{Exit, Failure};

/// Longest message in bytes. 1 MiB: the daemon's default limit for a body.
const MESSAGE_MAX_BYTES: u64 = 1024 * 1024;

/// The refusal of a longer one.
const TOO_LONG: &str = "the message is longer than 1 MiB";

/// Returns the message; `-` reads standard input to its end.
///
/// # Errors
/// 65: it is empty, too long, or not UTF-8.
pub fn message(argument: &str) -> Result<String, Failure> {
    match argument {
        "-" => read(std::io::stdin().lock()),
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
    let piped = bounded(std::io::stdin().lock())?;
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

fn read(source: impl Read) -> Result<String, Failure> {
    check(bounded(source)?)
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
            let read = read(bytes);
            match expected {
                Ok(text) => assert_eq!(read.as_deref(), Ok(text)),
                Err(what) => assert_eq!(read, Err(Failure::new(Exit::UnusableInput, what))),
            }
        }
    }
}
