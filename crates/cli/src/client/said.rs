//! The text of a run, step by step, as its events tell it. Pure.

/// How much of a text is known. Each event has the whole text of its step, so a text that came before is recognised, also over
/// several connections.
#[derive(Debug, Default)]
pub struct Said {
    /// The step of the present text, and the text.
    step: u64,
    text: String,
    /// The number of texts so far, which grows with each text that does not continue the one before it.
    texts: u32,
}

impl Said {
    /// Takes the whole text of a step. Returns the number of the text and its new part; `None`: nothing is new.
    pub fn says(&mut self, step: u64, whole: &str) -> Option<(u32, String)> {
        let known = (self.step == step).then_some(self.text.as_str());
        let piece = match known.and_then(|known| whole.strip_prefix(known)) {
            Some(piece) => piece.to_owned(),
            None if known.is_some_and(|known| known.starts_with(whole)) => return None,
            None => {
                self.texts += 1;
                whole.to_owned()
            }
        };
        (self.step, self.text) = (step, whole.to_owned());
        (!piece.is_empty()).then_some((self.texts, piece))
    }

    /// Takes the whole answer of the run, whose step is unknown. Returns the number of the text and its new part.
    pub fn answers(&mut self, whole: &str) -> Option<(u32, String)> {
        self.says(self.step, whole)
    }

    /// Forgets the present text: the next one does not continue it.
    pub fn forget(&mut self) {
        (self.step, self.text) = (0, String::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_told_once_and_a_text_that_does_not_continue_is_a_new_one() {
        let mut said = Said::default();
        for (step, whole, expected) in [
            (1, "one", Some((1, "one"))),
            (1, "one", None),
            (1, "on", None),
            (1, "one two", Some((1, " two"))),
            (1, "anew", Some((2, "anew"))),
            (2, "anew", Some((3, "anew"))),
        ] {
            let told = said.says(step, whole);
            assert_eq!(told.as_ref().map(|(number, piece)| (*number, piece.as_str())), expected, "{step} {whole}");
        }
        assert_eq!(said.answers("anew!"), Some((3, "!".to_owned())));
        assert_eq!(said.answers("anew!"), None);
        said.forget();
        assert_eq!(said.says(2, "anew!"), Some((4, "anew!".to_owned())));
    }
}
