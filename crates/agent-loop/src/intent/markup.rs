//! Finds a tool call that a model has written into its text instead of calling the tool.
//!
//! Servers turn the markup of a model into calls. If they fail to, or the model writes it wrongly, it stays in the text.
//! Only markup at the beginning of a line counts, outside of code and quotations, with a call in it and nothing but markup
//! behind it: so texts about such markup stay answers.

use std::cell::OnceCell;

use serde_json::Value;

use super::prose::{closes, opens};

/// The markup of one family of models.
struct Markup {
    /// The beginning of a call.
    open: &'static str,
    /// The end of a call; empty if it has none. Text behind the last end is an explanation.
    close: &'static str,
}

impl Markup {
    /// Whether it begins with a token of its own, which no prose has.
    fn is_token(&self) -> bool {
        self.open.starts_with("<|") || self.open.starts_with("<｜")
    }
}

const fn row(open: &'static str, close: &'static str) -> Markup {
    Markup { open, close }
}

/// Sources: the chat templates of the models, as published with them. `docs/reference/model-servers.md` names them.
const MARKUPS: &[Markup] = &[
    // Hermes, Qwen, GLM.
    row("<tool_call>", "</tool_call>"),
    row("<tool_calls>", "</tool_calls>"),
    // Llama 3, Qwen3-Coder.
    row("<function=", "</function>"),
    // Anthropic's older format, and models trained on it.
    row("<function_calls>", "</function_calls>"),
    row("<invoke name=", "</invoke>"),
    // Mistral.
    row("[TOOL_CALLS]", ""),
    // Llama 3.
    row("<|python_tag|>", ""),
    // Kimi K2.
    row("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    row("<|tool_call_begin|>", "<|tool_call_end|>"),
    // DeepSeek, which writes full-width bars.
    row("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    // gpt-oss.
    row("<|channel|>commentary to=functions.", "<|call|>"),
];

/// Whether the text ends in a tool call, or is nothing but the JSON of a call of a tool.
///
/// Linear in the length of the text.
pub fn leaves_call(text: &str, is_tool: &dyn Fn(&str) -> bool) -> bool {
    start_of_calls(text).is_some() || is_bare_call(text, is_tool)
}

/// The text without the calls at its end.
///
/// Linear in the length of the text.
pub fn without_left_calls(text: &str) -> &str {
    start_of_calls(text).map_or(text, |at| text[..at].trim_end())
}

/// Marks a text that is nothing but the JSON of a call, so that [`without_left_calls`] removes it, which knows no tools.
pub(crate) fn marked(text: String, is_tool: &dyn Fn(&str) -> bool) -> String {
    if is_bare_call(&text, is_tool) { format!("<tool_call>\n{text}\n</tool_call>") } else { text }
}

fn start_of_calls(text: &str) -> Option<usize> {
    let text = text.trim_end();
    // Each is a search of the whole text, and done for the first line of its markup alone.
    let ends: [OnceCell<Option<End>>; MARKUPS.len()] = Default::default();
    let is_to_the_end = |at: usize| {
        let line = text[at..].trim_start_matches(' ');
        MARKUPS.iter().zip(&ends).any(|(markup, end)| {
            let Some(call) = line.strip_prefix(markup.open) else { return false };
            let end = end.get_or_init(|| End::last_in(text, markup)).as_ref().filter(|end| end.at >= at);
            end.is_none_or(|end| end.is_last) && (markup.is_token() || is_call_next(call))
        })
    };
    let (mut fence, mut at) = (None, 0);
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        if let Some(open) = fence {
            fence = Some(open).filter(|open| !closes(line, *open));
            continue;
        }
        fence = opens(line);
        let indented = line.starts_with("    ") || line.starts_with('\t');
        if fence.is_none() && !indented && is_to_the_end(start) {
            return Some(start);
        }
    }
    None
}

/// The last end of a call in a text.
struct End {
    at: usize,
    /// Whether nothing but markup follows it.
    is_last: bool,
}

impl End {
    fn last_in(text: &str, markup: &Markup) -> Option<Self> {
        let at = text.rfind(markup.close).filter(|_| !markup.close.is_empty())?;
        // Closing tags around the calls are markup too: `</function></tool_call>`, `<|im_end|>`.
        let mut behind = text[at + markup.close.len()..].split_whitespace();
        Some(Self { at, is_last: behind.all(|word| word.starts_with('<') && word.ends_with('>')) })
    }
}

/// Whether a call follows the beginning of its markup: a value in brackets, another tag, or a name before these. Prose goes
/// on with words.
fn is_call_next(call: &str) -> bool {
    let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '"' | '\'');
    let behind = call.trim_start().trim_start_matches(name);
    let behind = behind.strip_prefix('>').unwrap_or(behind).trim_start_matches(' ');
    matches!(behind.chars().next(), None | Some('\n' | '\r' | '{' | '[' | '(' | '<'))
}

/// The content of a text that is nothing but one code fence; another text as it is.
pub(crate) fn unfenced(text: &str) -> &str {
    let whole = text.trim();
    let inner = ["```", "~~~"].iter().find_map(|fence| whole.strip_prefix(fence)?.strip_suffix(fence));
    let Some(inner) = inner else { return text };
    let inner = inner.trim_matches(['`', '~']);
    inner.trim_start_matches(|c: char| c.is_ascii_alphanumeric()).trim()
}

/// Whether the text is the JSON of one call or of a list of calls.
pub(crate) fn is_bare_call(text: &str, is_tool: &dyn Fn(&str) -> bool) -> bool {
    let text = text.trim();
    if !text.starts_with(['{', '[']) {
        return false;
    }
    match serde_json::from_str(text) {
        Ok(Value::Array(calls)) => !calls.is_empty() && calls.iter().all(|call| is_call(call, is_tool)),
        Ok(call) => is_call(&call, is_tool),
        Err(_) => false,
    }
}

fn is_call(call: &Value, is_tool: &dyn Fn(&str) -> bool) -> bool {
    let call = call.get("function").filter(|function| function.is_object()).unwrap_or(call);
    let name = ["name", "tool", "tool_name", "function"].iter().find_map(|key| call.get(key)?.as_str());
    let has_arguments = ["arguments", "parameters", "args", "input"].iter().any(|key| call.get(key).is_some());
    has_arguments && name.is_some_and(is_tool)
}

#[cfg(test)]
mod tests {
    use belay_testkit::clock::processor_time;

    use super::*;

    fn is_tool(name: &str) -> bool {
        name == "clock"
    }

    #[test]
    fn calls_that_are_left_in_the_text_are_found() {
        for (text, kept) in [
            ("<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>", ""),
            ("Let me see.\n<tool_call>{\"name\":\"clock\"}</tool_call>", "Let me see."),
            ("<tool_call>\n{\"name\": \"clock\"", ""),
            ("<tool_call>{}</tool_call>\n<tool_call>{}</tool_call><|im_end|>", ""),
            ("<tool_call>\n<function=clock>\n<parameter=zone>\nUTC\n</parameter>\n</function>\n</tool_call>", ""),
            ("<function=clock>{\"zone\": \"UTC\"}</function>", ""),
            ("One moment.\n\n[TOOL_CALLS][{\"name\": \"clock\", \"arguments\": {}}]", "One moment."),
            ("[TOOL_CALLS]clock{\"zone\": \"UTC\"}", ""),
            ("<tool_call>clock\n<arg_key>zone</arg_key>\n<arg_value>UTC</arg_value>\n</tool_call>", ""),
            ("<|python_tag|>clock.call(zone=\"UTC\")", ""),
            ("<|python_tag|>{\"name\": \"clock\", \"parameters\": {}}", ""),
            ("<function_calls>\n<invoke name=\"clock\">\n</invoke>\n</function_calls>", ""),
            ("<|tool_calls_section_begin|><|tool_call_begin|>functions.clock:0<|tool_calls_section_end|>", ""),
            ("<｜tool▁calls▁begin｜>clock<｜tool▁calls▁end｜>", ""),
            ("<|channel|>commentary to=functions.clock <|message|>{}<|call|>", ""),
            ("```\ncode\n```\n<tool_call>{}</tool_call>", "```\ncode\n```"),
        ] {
            assert!(leaves_call(text, &is_tool), "{text}");
            assert_eq!(without_left_calls(text), kept, "{text}");
        }
        for text in [
            "{\"name\": \"clock\", \"arguments\": {\"zone\": \"UTC\"}}",
            " [{\"name\": \"clock\", \"parameters\": {}}]\n",
            "{\"type\": \"function\", \"function\": {\"name\": \"clock\", \"arguments\": \"{}\"}}",
            "{\"tool\": \"clock\", \"args\": {}}",
        ] {
            assert!(leaves_call(text, &is_tool), "{text}");
            assert_eq!(without_left_calls(&marked(text.to_owned(), &is_tool)), "", "{text}");
        }
    }

    #[test]
    fn texts_about_such_markup_are_answers() {
        for text in [
            "",
            "It is noon.",
            "Models write `<tool_call>` around a call.",
            "The tag <tool_call> begins a call, and </tool_call> ends it.",
            "<tool_call> is the tag with which Qwen begins a call, and </tool_call> ends it.",
            "<tool_call> is the tag with which Qwen begins a call.",
            "<tool_call>\nThis tag begins a call.",
            "<tool_call> \u{662f}\u{8c03}\u{7528}\u{5de5}\u{5177}\u{7684}\u{6807}\u{8bb0}",
            "<function=clock> is how Llama writes a call of clock.",
            "Marks:\n[TOOL_CALLS] begins the calls of Mistral.\nOthers write tags.",
            "For example:\n\n```\n<tool_call>\n{\"name\": \"clock\"}\n</tool_call>\n```",
            "For example:\n\n```xml\n<tool_call>{}</tool_call>\n```\n\nThe server parses it.",
            "For example:\n\n    <tool_call>{}</tool_call>\n",
            "> <tool_call>{}</tool_call>",
            "<tool_call>\n{\"name\": \"clock\"}\n</tool_call>\nThe server turns this into a call.",
            "Mistral writes [TOOL_CALLS] before a list of calls.",
            "- <function=clock> is Llama's way",
            "{\"name\": \"Ada\", \"arguments\": []}",
            "{\"name\": \"clock\", \"price\": 3}",
            "[1, 2]",
            "[]",
            "{\"name\": \"clock\", \"arguments\": {}} is a call.",
            "```json\n{\"name\": \"clock\", \"arguments\": {}}\n```",
        ] {
            assert!(!leaves_call(text, &is_tool), "{text}");
            assert_eq!(marked(text.to_owned(), &is_tool), text);
            assert_eq!(without_left_calls(text), text);
        }
    }

    #[test]
    fn a_long_text_of_beginnings_takes_linear_time() {
        let text = "<tool_call>{}\n".repeat(40_000) + "</tool_call>\n" + &"word ".repeat(120_000);
        let before = processor_time();
        assert!(!leaves_call(&text, &is_tool));
        let used = processor_time() - before;
        assert!(used.as_secs() < 5, "{used:?}");
    }
}
