//! The text that a stream has sent, against the reply with which its run ends.

use std::cmp::Ordering;

/// The text that was sent to the client.
#[derive(Debug, Default)]
pub(super) struct Written {
    step: u32,
    /// The text of the newest step that had any.
    step_text: String,
    /// Whether deltas in between were lost.
    pub(super) lossy: bool,
}

impl Written {
    /// The delta as it is sent: a blank line separates the texts of two steps.
    pub(super) fn piece(&mut self, step: u32, piece: String) -> String {
        if self.step_text.is_empty() || step == self.step {
            self.step = step;
            self.step_text.push_str(&piece);
            return piece;
        }
        self.step = step;
        self.step_text.clone_from(&piece);
        format!("\n\n{piece}")
    }

    /// What was not sent of the whole text of a step; `None`: all of it was, or later steps were.
    pub(super) fn missing(&self, step: u32, whole: String) -> Option<String> {
        match step.cmp(&self.step) {
            Ordering::Less => None,
            Ordering::Equal => {
                let rest = whole.strip_prefix(self.step_text.as_str())?;
                (!rest.is_empty()).then(|| rest.to_owned())
            }
            Ordering::Greater => Some(whole),
        }
    }

    /// The missing part of the reply. The reply may be a cleaned form of the streamed text; then nothing is added.
    pub(super) fn rest(&self, reply: &str) -> String {
        let (sent, reply_trimmed) = (self.step_text.trim(), reply.trim());
        if sent.is_empty() {
            return reply.into();
        }
        if reply_trimmed.is_empty() || (!self.lossy && sent.contains(reply_trimmed)) {
            return String::new();
        }
        match reply_trimmed.strip_prefix(self.step_text.trim_start()).or_else(|| reply_trimmed.strip_prefix(sent)) {
            Some(rest) => rest.into(),
            None => format!("\n\n{reply}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_ends_with_what_is_missing_of_the_reply_and_repeats_nothing() {
        type Row = (&'static [(u32, &'static str)], bool, &'static str, &'static str);
        let rows: &[Row] = &[
            (&[], false, "all of it", "all of it"),
            (&[], false, "", ""),
            (&[(1, "Hel"), (1, "lo")], false, "Hello", "Hello"),
            (&[(1, "Hel")], false, "Hello", "Hello"),
            (&[(1, "Hello ")], false, "Hello you", "Hello you"),
            (&[(1, " Hello\n")], false, "Hello", " Hello\n"),
            (&[(1, "I look."), (2, "Found.")], false, "Found.", "I look.\n\nFound."),
            (&[(1, "I look.")], false, "Found.", "I look.\n\nFound."),
            (&[(1, "Once upon")], false, "Interrupted.", "Once upon\n\nInterrupted."),
            (&[(1, "Sure. [call x] Done.")], false, "Done.", "Sure. [call x] Done."),
            (&[(1, "He")], true, "Hello", "Hello"),
            (&[(1, "Hlo")], true, "Hello", "Hlo\n\nHello"),
            (&[(1, "Hello")], false, "", "Hello"),
        ];
        for (pieces, lossy, reply, expected) in rows {
            let mut written = Written { lossy: *lossy, ..Written::default() };
            let mut sent: String = pieces.iter().map(|(step, text)| written.piece(*step, (*text).into())).collect();
            sent.push_str(&written.rest(reply));
            assert_eq!(sent, *expected, "{pieces:?} then {reply:?}");
        }
    }
}
