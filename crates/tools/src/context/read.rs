//! Reads small text files of a workspace, with a size limit.

use std::fs::File;
use std::io::Read;

use belay_protocol::Unusable;

use crate::workspace::Stamp;

/// Reads a file of at most `max_bytes` as text. Removes a byte order mark and all hidden characters, such as carriage
/// returns; line feeds and tabs stay. Blocks.
///
/// # Errors
/// A text in plain words: the file is too large, is not text, or cannot be read.
pub(super) fn text(file: File, stamp: &Stamp, max_bytes: u64) -> Result<String, Unusable> {
    if stamp.size > max_bytes {
        return Err(format!("it has {} bytes; at most {max_bytes} are read", stamp.size).into());
    }
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(|error| unread(&error))?;
    if bytes.len() as u64 > max_bytes {
        return Err(format!("it has more than {max_bytes} bytes, which is the most that is read").into());
    }
    Ok(plain(bytes)?)
}

/// Reads at most the first `max_bytes` of a file as text; returns whether the file is longer. Blocks.
///
/// # Errors
/// A text in plain words: the file is not text, or cannot be read.
pub(super) fn start(file: File, max_bytes: u64) -> Result<(String, bool), Unusable> {
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(|error| unread(&error))?;
    let cut = bytes.len() as u64 > max_bytes;
    if cut {
        bytes.truncate(usize::try_from(max_bytes).unwrap_or(usize::MAX));
        // The cut may split a character.
        if let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
        {
            bytes.truncate(error.valid_up_to());
        }
    }
    Ok((plain(bytes)?, cut))
}

fn unread(error: &std::io::Error) -> Unusable {
    Unusable::not_now(format!("it cannot be read: {error}"))
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
