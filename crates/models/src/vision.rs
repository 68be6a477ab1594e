//! Whether a model accepts pictures, and the text that replaces pictures for other models.

use belay_protocol::Message;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::catalog::Format;

/// The setting `llm.vision`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Vision {
    /// By the model's name. An unknown model gets no pictures.
    #[default]
    Auto,
    /// It accepts pictures.
    Yes,
    /// It accepts no pictures, or must not get any.
    No,
}

/// The word for [`Vision::Auto`].
const AUTO: &str = "auto";

impl<'de> Deserialize<'de> for Vision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;
        impl Visitor<'_> for Words {
            type Value = Vision;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("\"auto\", true or false")
            }

            fn visit_bool<E: de::Error>(self, accepts_pictures: bool) -> Result<Vision, E> {
                Ok(if accepts_pictures { Vision::Yes } else { Vision::No })
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Vision, E> {
                if word == AUTO { Ok(Vision::Auto) } else { Err(E::invalid_value(de::Unexpected::Str(word), &self)) }
            }
        }
        deserializer.deserialize_any(Words)
    }
}

impl Serialize for Vision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str(AUTO),
            Self::Yes => serializer.serialize_bool(true),
            Self::No => serializer.serialize_bool(false),
        }
    }
}

/// Beginnings of the names of models that accept pictures, without the vendor's prefix.
///
/// Sources: OpenAI, "Images and vision"; Anthropic, "Vision" (all models from Claude 3 on); Google, "Image understanding";
/// Meta's model cards of Llama 4; Mistral, "Vision".
const VISION_PREFIXES: &[&str] = &[
    "gpt-4o",
    "chatgpt-4o",
    "gpt-4.1",
    "gpt-5",
    "gpt-6",
    "claude-3",
    "claude-opus",
    "claude-sonnet",
    "claude-haiku",
    "claude-fable",
    "gemini-",
    "llama-4",
    "llama4",
    "pixtral",
    "llava",
    "bakllava",
    "moondream",
    "minicpm-v",
];

/// Parts of the names of open models that accept pictures: `qwen2.5vl`, `Qwen3-VL-8B`, `llama3.2-vision`,
/// `deepseek-vl2`.
const VISION_PARTS: &[&str] = &["-vision", "-vl", "2.5vl", "3vl"];

/// Parts of the names of related models for audio, search or image generation.
const OTHER_MODALITIES: &[&str] = &["-audio", "-realtime", "-transcribe", "-tts", "-search", "-image"];

/// Whether pictures are sent to this model. Only the formats with our own clients support them.
pub(crate) fn accepts_pictures(setting: Vision, format: Format, model: &str) -> bool {
    let carried = matches!(format, Format::OpenAi | Format::Anthropic);
    carried
        && match setting {
            Vision::Yes => true,
            Vision::No => false,
            Vision::Auto => is_known_to_see(model),
        }
}

fn is_known_to_see(model: &str) -> bool {
    // Aggregators prefix the name with the vendor: `openai/gpt-4o`.
    let name = model.rsplit('/').next().unwrap_or(model).to_lowercase();
    let seeing = VISION_PREFIXES.iter().any(|beginning| name.starts_with(beginning))
        || VISION_PARTS.iter().any(|part| name.contains(part));
    seeing && !OTHER_MODALITIES.iter().any(|part| name.contains(part))
}

/// The reason why a model gets no pictures.
pub(crate) const NO_VISION: &str = "this model does not accept pictures";

/// The text of a message with pictures, and a line instead of them.
pub(crate) fn text_instead(message: &Message, why: &str) -> String {
    let pictures = message.pictures.len();
    let noun = if pictures == 1 { "picture" } else { "pictures" };
    let text = message.for_model();
    let separator = if text.is_empty() { "" } else { "\n" };
    format!("{text}{separator}[{pictures} {noun} not shown: {why}]")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::adapter::AdapterKind;

    #[test]
    fn a_model_is_known_to_see_by_its_name() {
        for (model, expected) in [
            ("gpt-4o-mini", true),
            ("gpt-4.1-mini-2025-04-14", true),
            ("openai/gpt-6-sol", true),
            ("claude-sonnet-4-6", true),
            ("Claude-Haiku-4-5-20251001", true),
            ("claude-3-5-sonnet-latest", true),
            ("google/gemini-2.5-flash", true),
            ("qwen2.5vl:7b", true),
            ("Qwen/Qwen3-VL-8B-Instruct", true),
            ("llama3.2-vision:11b", true),
            ("llava:13b", true),
            ("pixtral-12b-2409", true),
            ("minicpm-v", true),
            ("gpt-4o-audio-preview", false),
            ("gpt-4o-mini-tts", false),
            ("gpt-3.5-turbo", false),
            ("claude-2.1", false),
            ("claude-instant-1.2", false),
            ("deepseek-chat", false),
            ("llama3.2:3b", false),
            ("qwen3:8b", false),
            ("smollm2", false),
            ("default", false),
            ("", false),
        ] {
            assert_eq!(is_known_to_see(model), expected, "{model}");
        }
    }

    #[test]
    fn a_setting_goes_before_the_name_and_the_format_before_the_setting() {
        let library = Format::Library(AdapterKind::Gemini);
        for (setting, format, model, expected) in [
            (Vision::Auto, Format::OpenAi, "gpt-4o", true),
            (Vision::Auto, Format::Anthropic, "claude-sonnet-4-6", true),
            (Vision::Auto, Format::OpenAi, "unheard-of", false),
            (Vision::Yes, Format::OpenAi, "unheard-of", true),
            (Vision::No, Format::OpenAi, "gpt-4o", false),
            (Vision::Yes, library, "gemini-2.5-flash", false),
            (Vision::Auto, library, "gemini-2.5-flash", false),
            (Vision::Yes, Format::Rehearsal, "rehearsal-1", false),
        ] {
            assert_eq!(accepts_pictures(setting, format, model), expected, "{setting:?} {format:?} {model}");
        }
    }

    #[test]
    fn the_setting_is_a_word_or_a_truth() {
        for (written, read) in [(json!("auto"), Vision::Auto), (json!(true), Vision::Yes), (json!(false), Vision::No)] {
            assert_eq!(serde_json::from_value::<Vision>(written.clone()).ok(), Some(read));
            assert_eq!(serde_json::to_value(read).ok(), Some(written));
        }
        for written in [json!("true"), json!("yes"), json!(1), json!(null), json!({})] {
            let words = serde_json::from_value::<Vision>(written.clone()).expect_err("refused").to_string();
            assert!(words.contains("\"auto\", true or false"), "{written}: {words}");
        }
    }
}
