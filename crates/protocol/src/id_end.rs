//! The end of an identifier, by which people name a question: its beginning is a time that neighbours share.

use uuid::Uuid;

/// The last characters of an identifier: at least [`IdEnd::MIN_CHARS`], case-insensitive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdEnd(String);

impl IdEnd {
    /// The minimum length in characters, and the length that is shown. 4: of a hundred open questions, two share an end
    /// in one of fourteen cases, and such an answer is refused.
    pub const MIN_CHARS: usize = 4;

    /// Parses an end; `None`: no identifier ends so.
    pub fn parse(text: &str) -> Option<Self> {
        let is_id = text.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        (is_id && text.len() >= Self::MIN_CHARS).then(|| Self(text.to_ascii_lowercase()))
    }

    /// The end of an identifier as it is shown.
    pub fn of(id: Uuid) -> String {
        let mut text = id.to_string();
        text.split_off(text.len() - Self::MIN_CHARS)
    }

    /// Whether an identifier ends so.
    pub fn ends(&self, id: Uuid) -> bool {
        id.to_string().ends_with(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_of_four_characters_names_an_id_whatever_their_case() {
        let id: Uuid = "0199e3a0-7b1c-7000-8000-00000000Ab1f".parse().expect("an id");
        assert_eq!(IdEnd::of(id), "ab1f");
        for (text, ends) in
            [("ab1f", Some(true)), ("AB1F", Some(true)), ("0ab1f", Some(true)), ("ab1e", Some(false)), ("1f", None)]
        {
            assert_eq!(IdEnd::parse(text).map(|end| end.ends(id)), ends, "{text}");
        }
        assert!(IdEnd::parse("8000-00000000ab1f").is_some_and(|end| end.ends(id)));
        assert_eq!(IdEnd::parse("yes please"), None);
    }
}
