//! Prepares a tool's result for the model: shortens it, removes control characters, and marks untrusted content.

use std::borrow::Cow;

use belay_protocol::{CallId, Kept, OutputKeeper, RunId, ToolReply, ToolSpec};

use crate::untrusted;

/// The share of a shortened output that shows its end: one part in four. Errors usually stand at the end.
const TAIL: usize = 4;

/// Removes control characters (except line feed and tab) and hidden characters.
pub(super) fn printable(text: String) -> String {
    match belay_text::removed(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(clean) => clean,
    }
}

/// Shortens a long text to its beginning and its end. A line between them says how much is missing and where it is
/// stored.
pub(super) fn cut(text: &str, bound: usize, kept: Result<&Kept, &str>) -> String {
    let tail_at = text.len() - bound / TAIL;
    let head_end = floor(text, bound - bound / TAIL);
    let tail_start = ceil(text, tail_at);
    let whole = text.len();
    let rest = match kept {
        Ok(kept) => format!("read_output returns the full text under the name {}", kept.name),
        Err(why) => format!("the rest was not stored: {why}"),
    };
    let left_out = tail_start - head_end;
    format!(
        "{}\n[cut: {left_out} of {whole} bytes are omitted here; {rest}]\n{}",
        &text[..head_end],
        &text[tail_start..]
    )
}

fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn ceil(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

/// Shortens and marks a tool's reply.
pub(super) async fn clean(
    reply: ToolReply,
    spec: &ToolSpec,
    run: RunId,
    call: &CallId,
    keeper: Option<&dyn OutputKeeper>,
) -> ToolReply {
    let ToolReply { text, pictures, kept, untrusted } = reply;
    let mut text = printable(text);
    if text.len() > spec.max_output_bytes {
        let saved = match (kept.as_ref(), keeper) {
            (Some(kept), _) => Ok(kept.clone()),
            (None, Some(keeper)) => keeper.keep(run, call, &text).await,
            (None, None) => Err("outputs are not stored here".to_owned()),
        };
        text = cut(&text, spec.max_output_bytes, saved.as_ref().map_err(String::as_str));
    }
    let untrusted = untrusted || spec.untrusted;
    if untrusted {
        text = untrusted::marked(&spec.name, run.as_uuid().as_bytes(), &text);
    }
    ToolReply { text, pictures, kept, untrusted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_its_beginning_and_its_end() {
        let kept = Kept { name: "abc".into(), bytes: 26 };
        assert_eq!(
            cut("abcdefghijklmnopqrstuvwxyz", 8, Ok(&kept)),
            "abcdef\n[cut: 18 of 26 bytes are omitted here; read_output returns the full text under the name abc]\nyz"
        );
        assert_eq!(
            cut("ääääääää", 8, Err("the disk is full")),
            "äää\n[cut: 8 of 16 bytes are omitted here; the rest was not stored: the disk is full]\nä"
        );
    }

    #[test]
    fn control_characters_leave() {
        assert_eq!(printable("a\u{1b}[31mb\0c\td\n".into()), "a[31mbc\td\n");
        assert_eq!(printable("a\u{202e}b\u{e0041}c\u{ad}".into()), "abc");
    }
}
