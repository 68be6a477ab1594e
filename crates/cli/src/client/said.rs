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
    /// The last answer. Its text may differ from what was told of it.
    answer: String,
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
    ///
    /// An answer is a cleaned text: white space around it, lines that echo calls, and what no person should read at its end are
    /// gone, and a note may follow it.
    pub fn answers(&mut self, whole: &str) -> Option<(u32, String)> {
        if whole == self.answer {
            return None;
        }
        whole.clone_into(&mut self.answer);
        match behind(&self.text, whole) {
            // The told text stays as it came, so that it is recognised when it comes again.
            Some(piece) => {
                self.texts += u32::from(self.text.is_empty()); // nothing was told, or it is forgotten
                self.text.push_str(piece);
                (!piece.is_empty()).then(|| (self.texts, piece.to_owned()))
            }
            None => self.says(self.step, whole),
        }
    }

    /// Forgets the present text: the next one does not continue it.
    pub fn forget(&mut self) {
        (self.step, self.text) = (0, String::new());
    }
}

/// The part of an answer that is not in the told text. `None`: it is another text.
fn behind<'a>(told: &str, answer: &'a str) -> Option<&'a str> {
    let told = told.trim_start();
    let cleaned = without_echoes(told);
    let cleaned = cleaned.trim();
    if cleaned.starts_with(answer.trim()) {
        return Some("");
    }
    answer.strip_prefix(told).or_else(|| answer.strip_prefix(cleaned))
}

/// The lines that can be in an answer: outside of code, the daemon removes lines such as `[called tool x]`.
fn without_echoes(text: &str) -> String {
    let mut is_code = false;
    let mut is_kept = |line: &&str| {
        let line = line.trim();
        is_code ^= line.starts_with("```") || line.starts_with("~~~");
        let inner = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or_default().to_lowercase();
        is_code || !(inner.starts_with("called tool ") || (inner.starts_with("tool ") && inner.contains(" returned:")))
    };
    text.lines().filter(|line| is_kept(line)).collect::<Vec<_>>().join("\n")
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

    #[test]
    fn an_answer_is_compared_as_it_is_cleaned() {
        for (told, answer, expected) in [
            ("\n\nIt is noon.\n", "It is noon.", None),
            ("\n\nIt is", "It is noon.", Some((1, " noon."))),
            ("It is ", "It is noon.", Some((1, "noon."))),
            ("It is noon. \n", "It is noon.\n\n[cut off]", Some((1, "\n\n[cut off]"))),
            ("It is noon.\n\nNO_REPLY", "It is noon.", None),
            ("It\n[called tool clock with {}]\nis noon.", "It\nis noon.", None),
            ("```\n[called tool x]\n```\nSo", "```\n[called tool x]\n```\nSo it is.", Some((1, " it is."))),
            ("It is noon.", "The run was stopped.", Some((2, "The run was stopped."))),
            ("It is noon.", "", None),
        ] {
            let mut said = Said::default();
            said.says(1, told);
            let piece = said.answers(answer);
            assert_eq!(
                piece.as_ref().map(|(number, piece)| (*number, piece.as_str())),
                expected,
                "{told:?} {answer:?}"
            );
            assert_eq!(said.answers(answer), None, "{told:?} {answer:?}");
            if expected.is_none_or(|(number, _)| number == 1) {
                assert_eq!(said.says(1, told), None, "it comes again over the next connection: {told:?} {answer:?}");
            }
        }
        assert_eq!(Said::default().answers("No answer."), Some((1, "No answer.".to_owned())), "nothing was told");
    }
}
