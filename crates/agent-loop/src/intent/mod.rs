//! Detects a text that announces a tool call, or that contains the markup of one.
//!
//! Only prose counts: code, quotations and block quotes are removed first. Then each sentence is judged alone. It must
//! say, in the first person and about now, that the speaker will do something that needs a tool. Explaining, thinking
//! and summarising need no tool. Offers, conditions, questions to the person, refusals and the past are not
//! announcements.
//!
//! The word lists are short on purpose. A missed announcement ends a turn too early, a false one costs a model call,
//! and the nudge limit bounds both.

mod english;
mod languages;
mod markup;
mod prose;
mod words;

#[cfg(test)]
mod tests;

pub(crate) use self::markup::{is_bare_call, marked, unfenced};
pub use self::markup::{leaves_call, without_left_calls};

/// Whether `text` announces a tool call in English, German, French, Spanish, Chinese, Japanese or Russian.
///
/// Linear in the length of the text.
pub fn announces_tool_use(text: &str) -> bool {
    prose::sentences(text).iter().any(|sentence| {
        !sentence.is_question()
            && (english::announces(&sentence.words())
                || languages::announces(&sentence.words())
                || languages::announces_in_characters(&sentence.text))
    })
}
