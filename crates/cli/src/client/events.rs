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
