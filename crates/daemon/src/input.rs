//! The message of `ask` and `send`: from the command line, or from standard input.

use std::io::Read;

use crate::exit::{Exit, Failure};

/// Longest message in bytes. 1 MiB: the daemon's default limit for a body.
const MESSAGE_MAX_BYTES: u64 = 1024 * 1024;

/// Returns the message; `-` reads standard input to its end.
///
/// # Errors
/// 65: it is empty, too long, or not UTF-8.
pub(crate) fn message(argument: &str) -> Result<String, Failure> {
    match argument {
        "-" => read(std::io::stdin().lock()),
        text => check(text.to_owned()),
    }
}

fn read(source: impl Read) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let unreadable = |error| Failure::new(Exit::UnusableInput, format!("standard input cannot be read: {error}"));
    source.take(MESSAGE_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::new(Exit::UnusableInput, format!("the message is not UTF-8 (after {at} bytes)"))
    })?;
    check(text)
}

fn check(text: String) -> Result<String, Failure> {
    let refuse = |what: &str| Err(Failure::new(Exit::UnusableInput, what));
    match text.trim_end_matches(['\r', '\n']) {
        _ if text.len() as u64 > MESSAGE_MAX_BYTES => refuse("the message is longer than 1 MiB"),
        text if text.trim().is_empty() => refuse("the message is empty"),
        text => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_bounded_utf8_without_the_last_line_break() {
        let long = vec![b'a'; 1024 * 1024 + 1];
        for (bytes, expected) in [
            (&b"hello\r\n"[..], Ok("hello")),
            (b"a\nb\n", Ok("a\nb")),
            (b" \n", Err("the message is empty")),
            (b"ab\xff", Err("the message is not UTF-8 (after 2 bytes)")),
            (&long, Err("the message is longer than 1 MiB")),
        ] {
            let read = read(bytes);
            match expected {
                Ok(text) => assert_eq!(read.as_deref(), Ok(text)),
                Err(what) => assert_eq!(read, Err(Failure::new(Exit::UnusableInput, what))),
            }
        }
    }
}
