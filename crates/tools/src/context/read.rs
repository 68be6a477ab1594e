//! Reading a small text of a workspace: bounded, and only what is text.

use std::fs::File;
use std::io::Read;

use belay_protocol::ToolFailure;

use crate::workspace::Stamp;

/// Reads a file of at most `max_bytes` as text: without a byte order mark, with plain line ends, without control
/// characters but line feed and tab. Blocks.
///
/// # Errors
/// Plain words: it is too large, is no text, or cannot be read.
pub(super) fn text(file: File, stamp: &Stamp, max_bytes: u64) -> Result<String, String> {
    if stamp.size > max_bytes {
        return Err(format!("it has {} bytes; at most {max_bytes} are read", stamp.size));
    }
    let mut bytes = Vec::new();
    // It may grow while it is read.
    file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(|error| format!("it cannot be read: {error}"))?;
    if bytes.len() as u64 > max_bytes {
        return Err(format!("it has more than {max_bytes} bytes, which is the most that is read"));
    }
    plain(bytes)
}

/// Reads the beginning of a file as text, at most `max_bytes` of it, and says whether there is more. Blocks.
///
/// # Errors
/// Plain words: it is no text, or cannot be read.
pub(super) fn start(file: File, max_bytes: u64) -> Result<(String, bool), String> {
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(|error| format!("it cannot be read: {error}"))?;
    let cut = bytes.len() as u64 > max_bytes;
    if cut {
        bytes.truncate(usize::try_from(max_bytes).unwrap_or(usize::MAX));
        // The cut may go through a character.
        if let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
        {
            bytes.truncate(error.valid_up_to());
        }
    }
    Ok((plain(bytes)?, cut))
}

fn plain(bytes: Vec<u8>) -> Result<String, String> {
    if bytes.contains(&0) {
        return Err("it is not text: it has zero bytes".to_owned());
    }
    let text = String::from_utf8(bytes)
        .map_err(|error| format!("it is not UTF-8 (byte {}); save it as UTF-8", error.utf8_error().valid_up_to()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    Ok(belay_text::removed(text).into_owned())
}

/// The words of a failure to open something.
pub(super) fn why(failure: ToolFailure) -> String {
    match failure {
        ToolFailure::Failed(text) | ToolFailure::Denied(text) | ToolFailure::CredentialRefused(text) => text,
        ToolFailure::Cancelled => "it was not looked at".to_owned(),
    }
}
