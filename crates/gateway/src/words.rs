//! Query parameters that name one or more words of a closed list: `status=running,paused`.

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, Deserializer};
use serde::{Deserialize, de};

/// The words of a comma list, each once and in the order in which they are named; at least one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Words<T>(pub(crate) Vec<T>);

impl<'de, T: DeserializeOwned + PartialEq> Deserialize<'de> for Words<T> {
    /// The error for a wrong word names the valid ones.
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        let text = String::deserialize(text)?;
        let mut words = Vec::new();
        for word in text.split(',') {
            let word = T::deserialize(StrDeserializer::<de::value::Error>::new(word.trim()));
            let word = word.map_err(de::Error::custom)?;
            if !words.contains(&word) {
                words.push(word);
            }
        }
        Ok(Self(words))
    }
}

impl<T> Words<T> {
    /// The words of a parameter; none, if it is absent.
    pub(crate) fn of(parameter: Option<Self>) -> Vec<T> {
        parameter.map(|Self(words)| words).unwrap_or_default()
    }
}

#[cfg(test)]
impl<T: schemars::JsonSchema> schemars::JsonSchema for Words<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("{}Words", T::schema_name()).into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "array", "items": generator.subschema_for::<T>(), "minItems": 1 })
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::RunStatus;
    use belay_protocol::RunStatus::{Paused, Queued, Running};

    use super::*;

    fn parsed(text: &str) -> Result<Vec<RunStatus>, String> {
        let text = StrDeserializer::<de::value::Error>::new(text);
        Words::deserialize(text).map(|Words(words)| words).map_err(|error| error.to_string())
    }

    #[test]
    fn a_comma_list_has_each_word_once() {
        for (text, expected) in [
            ("running", vec![Running]),
            ("running,paused,queued", vec![Running, Paused, Queued]),
            ("queued, running,queued", vec![Queued, Running]),
        ] {
            assert_eq!(parsed(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_wrong_word_names_the_valid_ones() {
        for (text, wrong) in [("", "``"), ("running,", "``"), ("running,gone", "`gone`"), ("Running", "`Running`")] {
            let error = parsed(text).expect_err(text);
            assert!(
                error.starts_with(&format!("unknown variant {wrong}, expected one of `accepted`, `queued`")),
                "{error}"
            );
        }
    }
}
