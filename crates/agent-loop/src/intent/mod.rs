//! Whether a text announces that the model is about to use a tool.
//!
//! Only prose counts: code, quotations and block quotes are taken out first. Then each sentence stands alone: it must
//! say, in the first person and about now, that something will be done for which one needs a tool. Explaining, thinking
//! and summarising need none; neither do offers, conditions, questions to the person, refusals, and the past.
//!
//! Judged by word lists, deliberately short: a missed announcement ends a turn early, a false one costs a model call, and
//! both are bounded by the nudge limit.

mod english;
mod languages;
mod prose;
mod words;

#[cfg(test)]
mod tests;

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
