//! Prepares a model's text for people: separates reasoning from it, and removes markers of untrusted content and the
//! silent token.

use belay_text::untrusted::Markers;

use super::thoughts::{Kind, Thoughts};
use crate::reply::silence::Withhold;

/// Filters the text of one model call.
#[derive(Debug, Default)]
pub(crate) struct Speech {
    thoughts: Thoughts,
    readers: Readers,
}

/// The filters of each stream.
#[derive(Debug, Default)]
struct Readers {
    in_text: Markers,
    in_reasoning: Markers,
    withhold: Withhold,
}

/// The visible part of a fragment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    pub text: String,
    pub reasoning: String,
}

impl Speech {
    /// Filters a fragment of the text.
    pub(crate) fn push(&mut self, fragment: &str) -> Heard {
        let mut heard = Heard::default();
        let Self { thoughts, readers } = self;
        thoughts.push(fragment, &mut |kind, piece| heard.take(readers, kind, piece));
        heard
    }

    /// Filters a fragment of reasoning that the provider sends separately.
    pub(crate) fn reasoning(&mut self, fragment: &str) -> Heard {
        Heard { text: String::new(), reasoning: self.readers.in_reasoning.push(fragment) }
    }

    /// Ends a complete text and returns the withheld rest.
    pub(crate) fn finish(&mut self) -> Heard {
        let mut heard = Heard::default();
        let Self { thoughts, readers } = self;
        thoughts.finish(&mut |kind, piece| heard.take(readers, kind, piece));
        let Readers { in_text, in_reasoning, withhold } = readers;
        heard.reasoning.push_str(&in_reasoning.finish());
        heard.text.push_str(&withhold.push(&in_text.finish()));
        heard.text.push_str(&withhold.finish());
        heard
    }
}

impl Heard {
    fn take(&mut self, readers: &mut Readers, kind: Kind, piece: &str) {
        match kind {
            Kind::Text => self.text.push_str(&readers.withhold.push(&readers.in_text.push(piece))),
            Kind::Thought => self.reasoning.push_str(&readers.in_reasoning.push(piece)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thought_before_the_token_is_silence() {
        let mut speech = Speech::default();
        let heard: Vec<Heard> = ["<th", "ink>they talk to each other</think>\n\nNO_", "REPLY"]
            .iter()
            .map(|fragment| speech.push(fragment))
            .collect();
        assert_eq!(heard[0], Heard::default());
        assert_eq!(heard[1].reasoning, "they talk to each other");
        assert_eq!(heard.iter().map(|heard| heard.text.trim()).collect::<String>(), "");
        assert_eq!(speech.finish(), Heard::default());
    }

    #[test]
    fn markers_of_untrusted_content_are_shown_in_no_stream_however_it_is_cut() {
        let quoted = crate::untrusted::marked("page", b"run", "noon");
        let said = format!("<think>{quoted}</think>It says:\n{quoted}\nNO_REPLY");
        for every in [1, 2, 7, 1000] {
            let mut speech = Speech::default();
            let chars: Vec<char> = said.chars().collect();
            let mut heard = Heard::default();
            let mut pieces: Vec<Heard> =
                chars.chunks(every).map(|piece| speech.push(&piece.iter().collect::<String>())).collect();
            pieces.push(speech.finish());
            for next in pieces {
                heard.text.push_str(&next.text);
                heard.reasoning.push_str(&next.reasoning);
            }
            assert_eq!((heard.text.trim_end(), heard.reasoning.trim_end()), ("It says:\nnoon", "noon"), "{every}");
        }
        let mut speech = Speech::default();
        let reasoning: String = quoted.split_inclusive('u').map(|piece| speech.reasoning(piece).reasoning).collect();
        assert_eq!(reasoning.trim_end(), "noon");
    }
}
