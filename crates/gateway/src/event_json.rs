//! JSON as the data of server-sent events.

/// JSON that is one line for each client. Only LF and CR end a line of an event stream, but `iter_lines` of httpx, and other
/// readers of text, also end one at these characters, which JSON may contain as they are. JSON has them only within strings.
pub(crate) fn one_line(json: String) -> String {
    const ENDS: [(char, &str); 3] = [('\u{85}', "\\u0085"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];
    if !json.contains(ENDS.map(|(end, _)| end)) {
        return json;
    }
    ENDS.into_iter().fold(json, |json, (end, escape)| json.replace(end, escape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_of_an_event_has_no_character_that_a_reader_of_text_takes_for_the_end_of_a_line() {
        let text = "a\u{85}b\u{2028}c\u{2029}d\u{b}e\u{c}f\u{1c}g\r\nh é";
        let json = one_line(serde_json::to_string(text).expect("a text"));
        assert!(json.chars().all(|c| c >= ' ' && !matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}')), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).expect("the same text"), text);
        assert_eq!(one_line("{\"é\":1}".into()), "{\"é\":1}");
    }
}
