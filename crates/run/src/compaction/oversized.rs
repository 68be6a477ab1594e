//! Shortens tool results that are too large, as the last resort for a context that does not fit. Pure.

use std::sync::Arc;

use belay_protocol::{Message, MessageBody};

use super::transcript::middle_left_out;

/// Maximum length of a result, in characters, and the maximum part (1/16) of the context for one result.
const MOST_CHARS: u64 = 4_000;
const SHARE: u64 = 16;
/// Excess in characters that is tolerated: the notice of an earlier truncation is shorter.
const SLACK_CHARS: usize = 64;

/// Cuts the middle out of results that are too large for a context of this size, and removes their pictures. This
/// changes only this context: the originals stay in the store. Returns the number of shortened results.
pub fn truncate(messages: &mut [Arc<Message>], context_tokens: u64) -> usize {
    let most = (context_tokens.saturating_mul(4) / SHARE).min(MOST_CHARS) as usize;
    let mut truncated = 0;
    for message in messages {
        let MessageBody::Tool(result) = &message.body else { continue };
        let pictures = message.pictures.len();
        if pictures == 0 && result.text.chars().count() <= most + SLACK_CHARS {
            continue;
        }
        let mut text = middle_left_out(&result.text, most);
        if pictures > 0 {
            text.push_str(&format!("\n[{pictures} pictures are left out]"));
        }
        let mut shorter = Message::clone(message).with_pictures(Vec::new());
        if let MessageBody::Tool(result) = &mut shorter.body {
            result.text = text;
        }
        *message = Arc::new(shorter);
        truncated += 1;
    }
    truncated
}

#[cfg(test)]
mod tests {
    use belay_protocol::{Picture, ToolResult, ToolStatus};

    use super::*;

    #[test]
    fn only_what_is_too_large_is_touched_and_only_once() {
        let result = |text: &str| {
            let (name, status) = ("t".into(), ToolStatus::Success);
            Message::tool(ToolResult { call_id: "c".into(), name, status, text: text.into() })
        };
        let picture = Picture { media_type: "image/png".into(), base64: "UE5H".into() };
        let mut messages: Vec<Arc<Message>> = [
            Message::user("u".repeat(9_000)),
            result("short"),
            result(&format!("begin {} end", "é".repeat(9_000))).with_untrusted(true),
            result("seen").with_pictures(vec![picture]),
        ]
        .into_iter()
        .map(Arc::new)
        .collect();
        let before = messages.clone();
        assert_eq!(truncate(&mut messages, 1_000_000), 2);
        assert!(Arc::ptr_eq(&before[0], &messages[0]) && Arc::ptr_eq(&before[1], &messages[1]));
        let long = &messages[2];
        assert!(long.untrusted && long.text().starts_with("begin é") && long.text().ends_with("é end"));
        assert!(long.text().chars().count() < 4_100, "{}", long.text().chars().count());
        assert_eq!((messages[3].text(), messages[3].pictures.len()), ("seen\n[1 pictures are left out]", 0));
        assert_eq!(truncate(&mut messages, 1_000_000), 0);
        assert_eq!(truncate(&mut messages, 1_000), 1, "a smaller context takes less");
    }
}
