//! Reads server-sent events.

use std::time::Duration;

use serde_json::Value as Json;
use tokio::time::timeout;

/// Longest silence of a stream before it counts as broken. 60 s: the daemon sends a comment every 15.
const SILENCE: Duration = Duration::from_secs(60);

/// Longest event, in bytes.
const EVENT_MAX_BYTES: usize = 4 * 1024 * 1024;

/// A stream of events whose data is JSON.
pub struct Events {
    response: reqwest::Response,
    text: Vec<u8>,
}

impl Events {
    /// Reads the events of this response.
    pub(super) fn new(response: reqwest::Response) -> Self {
        Self { response, text: Vec::new() }
    }

    /// Returns the data of the next event; `None` at the end, also when the stream breaks.
    ///
    /// # Cancel safety
    /// No event is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Json> {
        loop {
            while let Some(at) = self.text.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.text.drain(..at + 2).collect();
                if let Some(data) = data_of(&block) {
                    return Some(data);
                }
            }
            if self.text.len() > EVENT_MAX_BYTES {
                return None;
            }
            let chunk = timeout(SILENCE, self.response.chunk()).await.ok()?.ok()??;
            self.text.extend_from_slice(&chunk);
        }
    }
}

/// The place in a stream of numbered events: what the next connection continues after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    at: Option<u64>,
}

impl Place {
    /// The number after which the next connection continues; `None`: no numbered event was taken.
    pub fn cursor(self) -> Option<u64> {
        self.at
    }

    /// Whether the event is new: an event that a further connection repeats is not, and one that only tells the newest number
    /// of a store that an older copy has replaced is none.
    pub fn takes(&mut self, event: &Json) -> bool {
        let number = |key: &str| event.get(key).and_then(Json::as_u64);
        if let Some(newest) = number("newest") {
            self.at = Some(newest);
            return false;
        }
        let cursor = number("cursor");
        let is_new = cursor.is_none() || cursor > self.at;
        if is_new {
            self.at = cursor.or(self.at);
        }
        is_new
    }
}

/// The data of a block of lines; `None` for a comment or a block without JSON data.
fn data_of(block: &[u8]) -> Option<Json> {
    let text = std::str::from_utf8(block).ok()?;
    let lines: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim_start).collect();
    serde_json::from_str(&lines.join("\n")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_event_is_not_taken_and_a_replaced_store_begins_at_its_newest_number() {
        let mut place = Place::default();
        let cursor = |at: u64| serde_json::json!({ "cursor": at });
        for (event, is_new, at) in [
            (serde_json::json!({ "stream": "assistant" }), true, None),
            (cursor(7), true, Some(7)),
            (cursor(7), false, Some(7)),
            (cursor(6), false, Some(7)),
            (serde_json::json!({}), true, Some(7)),
            (serde_json::json!({ "newest": 3 }), false, Some(3)),
            (cursor(4), true, Some(4)),
        ] {
            assert_eq!((place.takes(&event), place.cursor()), (is_new, at), "{event}");
        }
    }

    #[test]
    fn data_is_taken_from_its_lines_and_comments_are_passed_over() {
        for (block, expected) in [
            ("id: 1\nevent: agent\ndata: {\"a\":1}\n\n", Some(serde_json::json!({ "a": 1 }))),
            ("data:[1,\ndata: 2]\n\n", Some(serde_json::json!([1, 2]))),
            (":\n\n", None),
            ("event: x\n\n", None),
            ("data: hello\n\n", None),
        ] {
            assert_eq!(data_of(block.as_bytes()), expected, "{block}");
        }
    }
}
