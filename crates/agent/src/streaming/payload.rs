//! Texts besides the answer: a line for each tool call, the reasoning, and a line about a failed tool if the model gave
//! no text. Pure.

use std::sync::Arc;

use belay_protocol::{Arguments, Message, MessageBody, ToolCall, ToolResult, ToolSet, ToolStatus};

use belay_run::live::arguments_line;

/// Maximum length of a call's arguments in its line, in characters.
const ARGUMENTS_CHARS: usize = 80;
/// Maximum length of an error in its line, in characters.
const ERROR_CHARS: usize = 200;
/// Maximum number of lines of calls before an answer; of more, the last ones are shown.
const LINES_MAX: usize = 50;
/// Maximum length of the reasoning before an answer, in characters: about two pages.
const REASONING_CHARS: usize = 4000;

/// Joins tool lines, reasoning and answer, as far as they exist.
pub(crate) fn compose(lines: &[String], reasoning: Option<&str>, answer: Option<&str>) -> Option<String> {
    let skipped = lines.len().saturating_sub(LINES_MAX);
    let mut shown: Vec<&str> = lines.iter().skip(skipped).map(String::as_str).collect();
    let earlier = format!("… and {skipped} calls before");
    if skipped > 0 {
        shown.insert(0, &earlier);
    }
    let lines = (!shown.is_empty()).then(|| shown.join("\n"));
    let reasoning = reasoning.map(|text| quoted(&first_chars(text, REASONING_CHARS)));
    let parts: Vec<String> = [lines, reasoning, answer.map(str::to_owned)].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

/// Marks and quotes reasoning, so that nobody takes it for the answer.
pub(crate) fn quoted(reasoning: &str) -> String {
    let lines: Vec<String> = reasoning.trim().lines().map(|line| format!("> {line}").trim_end().to_owned()).collect();
    format!("> 💭 *Reasoning*\n>\n{}", lines.join("\n"))
}

/// A line for each call that has a result.
pub(crate) fn tool_lines(own: &[Arc<Message>], tools: &ToolSet) -> Vec<String> {
    let calls =
        own.iter().enumerate().flat_map(|(at, message)| message.tool_calls().iter().map(move |call| (at, call)));
    calls.filter_map(|(at, call)| Some(tool_line(call, result_of(&own[at..], call)?, tools))).collect()
}

fn tool_line(call: &ToolCall, result: &ToolResult, tools: &ToolSet) -> String {
    let mark = if result.status == ToolStatus::Success { "✓" } else { "✗" };
    let arguments = match &call.arguments {
        Arguments::Object(arguments) if !arguments.is_empty() => {
            let sensitive = tools.get(&call.name).map(|tool| tool.spec().sensitive.as_slice()).unwrap_or_default();
            let line = arguments_line(arguments, sensitive).replace('`', "'");
            format!(" `{}`", first_chars(&line, ARGUMENTS_CHARS))
        }
        _ => String::new(),
    };
    format!("{mark} {}{arguments}", call.name)
}

fn result_of<'m>(behind: &'m [Arc<Message>], call: &ToolCall) -> Option<&'m ToolResult> {
    behind.iter().find_map(|message| match &message.body {
        MessageBody::Tool(result) if result.call_id == call.id => Some(result),
        _ => None,
    })
}

/// The line for a person if the last event of the run is a tool's failure that no text mentions.
pub(crate) fn failure_line(own: &[Arc<Message>]) -> Option<String> {
    let batch = own.iter().rposition(|message| !message.tool_calls().is_empty())?;
    let failed = own[batch..].iter().rev().find_map(|message| match &message.body {
        MessageBody::Tool(result) if result.status != ToolStatus::Success => Some(result),
        _ => None,
    })?;
    let first = failed.text.trim().lines().next().unwrap_or("no reason given");
    Some(format!("⚠ {} failed: {}", failed.name, first_chars(first.trim(), ERROR_CHARS)))
}

fn first_chars(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", text[..at].trim_end()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(results: &[(&str, ToolStatus, &str)]) -> Vec<Arc<Message>> {
        let call = |(at, (name, ..)): (usize, &(&str, ToolStatus, &str))| ToolCall {
            id: format!("c{at}").as_str().into(),
            name: (*name).to_owned(),
            arguments: Arguments::parse(r#"{"n": 3, "path": "a\n`b`"}"#),
        };
        let calls = results.iter().enumerate().map(call).collect();
        let result = |(at, (name, status, text)): (usize, &(&str, ToolStatus, &str))| {
            Message::tool(ToolResult {
                call_id: format!("c{at}").as_str().into(),
                name: (*name).to_owned(),
                status: *status,
                text: (*text).to_owned(),
            })
        };
        let mut own = vec![Message::user("go"), Message::assistant_calls("", calls)];
        own.extend(results.iter().enumerate().map(result));
        own.into_iter().map(Arc::new).collect()
    }

    #[test]
    fn a_call_has_a_line_with_its_arguments_and_how_it_went() {
        let own = turn(&[("read", ToolStatus::Success, "x"), ("write", ToolStatus::Error, "no such file\nat all")]);
        let lines = tool_lines(&own, &ToolSet::default());
        assert_eq!(lines, ["✓ read `n: 3, path: a 'b'`", "✗ write `n: 3, path: a 'b'`"]);
        assert_eq!(failure_line(&own).as_deref(), Some("⚠ write failed: no such file"));
        assert_eq!(failure_line(&turn(&[("read", ToolStatus::Success, "x")])), None);
        assert_eq!(failure_line(&[]), None);
    }

    #[test]
    fn what_is_shown_stands_before_the_answer() {
        let lines = ["✓ read".to_owned()];
        let all = compose(&lines, Some("hm\n\nyes"), Some("42"));
        assert_eq!(all.as_deref(), Some("✓ read\n\n> 💭 *Reasoning*\n>\n> hm\n>\n> yes\n\n42"));
        assert_eq!(compose(&[], None, Some("42")).as_deref(), Some("42"));
        assert_eq!(compose(&[], None, None), None);
        let many: Vec<String> = (0..60).map(|n| format!("✓ t{n}")).collect();
        let text = compose(&many, None, None).unwrap_or_default();
        assert!(text.starts_with("… and 10 calls before\n✓ t10\n") && text.ends_with("✓ t59"), "{text}");
    }
}
