//! A model's text on its way to whoever reads along: reasoning goes its own way, and the silent token nowhere.

use super::thoughts::{Kind, Thoughts};
use crate::reply::silence::Withhold;

/// The text of one model call.
#[derive(Debug, Default)]
pub(crate) struct Speech {
    thoughts: Thoughts,
    withhold: Withhold,
}

/// What may be read of a fragment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    pub text: String,
    pub reasoning: String,
}

impl Speech {
    /// Takes a fragment of the text.
    pub(crate) fn push(&mut self, fragment: &str) -> Heard {
        let mut heard = Heard::default();
        let Self { thoughts, withhold } = self;
        thoughts.push(fragment, &mut |kind, piece| heard.take(withhold, kind, piece));
        heard
    }

    /// The text is over, and whole.
    pub(crate) fn finish(&mut self) -> Heard {
        let mut heard = Heard::default();
        let Self { thoughts, withhold } = self;
        thoughts.finish(&mut |kind, piece| heard.take(withhold, kind, piece));
        heard.text.push_str(&withhold.finish());
        heard
    }
}

impl Heard {
    fn take(&mut self, withhold: &mut Withhold, kind: Kind, piece: &str) {
        match kind {
            Kind::Text => self.text.push_str(&withhold.push(piece)),
            Kind::Thought => self.reasoning.push_str(piece),
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
}
