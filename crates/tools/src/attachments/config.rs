//! Settings of attachments: the section `[attachments]`.

use serde::{Deserialize, Serialize};

/// Settings of attachments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AttachmentsConfig {
    /// Largest file in bytes, 1 to [`MAX_BYTES`].
    pub max_bytes: u64,
    /// Most files of one message, at most [`MAX_COUNT`]. 0: messages have no attachments.
    pub max_count: usize,
    /// Most bytes that one person may upload within 24 hours, at least 1.
    pub max_bytes_per_day: u64,
    /// Most bytes of one file's text that the model reads, 1 to [`MAX_TEXT_BYTES`].
    pub max_text_bytes: usize,
    /// Hours for which a link to a sent file is valid.
    #[serde(skip)]
    pub link_hours: u32,
}

/// Upper end of [`AttachmentsConfig::max_bytes`]: 1 GiB. A file that is read is held in memory as a whole; larger files
/// than [`READ_MAX_BYTES`] are stored without being read.
pub const MAX_BYTES: u64 = 1024 * 1024 * 1024;

/// Largest file that is read for the model. 64 MiB, as for files of the workspace.
pub(super) const READ_MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Upper end of [`AttachmentsConfig::max_count`]. 20: the number of attachments that the facts of a message name.
pub const MAX_COUNT: usize = 20;

/// Upper end of [`AttachmentsConfig::max_text_bytes`]: 1 MiB, about 250,000 tokens.
pub const MAX_TEXT_BYTES: usize = 1024 * 1024;

/// Most pages of a PDF that are read. 100: a page has two to four thousand characters, so the text of fewer pages fills
/// what a model reads of a file.
pub(super) const MAX_PDF_PAGES: u32 = 100;

impl Default for AttachmentsConfig {
    /// 24 hours for a link: a person opens a file on the day on which it was sent, and a forwarded link soon ends.
    fn default() -> Self {
        Self {
            max_bytes: 20 * 1024 * 1024,
            max_count: 10,
            max_bytes_per_day: 200 * 1024 * 1024,
            max_text_bytes: 64 * 1024,
            link_hours: 24,
        }
    }
}

impl AttachmentsConfig {
    /// Whether messages may have attachments.
    pub(super) fn enabled(&self) -> bool {
        self.max_count > 0
    }

    /// Lists all problems; each line begins with the full key.
    pub fn validate(&self) -> Vec<String> {
        let rows = [
            ("max_bytes", self.max_bytes, 1, MAX_BYTES),
            ("max_count", self.max_count as u64, 0, MAX_COUNT as u64),
            ("max_bytes_per_day", self.max_bytes_per_day, 1, i64::MAX as u64),
            ("max_text_bytes", self.max_text_bytes as u64, 1, MAX_TEXT_BYTES as u64),
        ];
        let bad = rows.into_iter().filter(|(_, value, least, most)| !(*least..=*most).contains(value));
        bad.map(|(key, value, least, most)| format!("attachments.{key}: must be {least} to {most}, not {value}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_a_range() {
        assert!(AttachmentsConfig::default().validate().is_empty());
        let bad = AttachmentsConfig { max_bytes: 0, max_count: 21, ..AttachmentsConfig::default() };
        let keys: Vec<String> =
            bad.validate().iter().map(|line| line.split(':').next().unwrap_or_default().to_owned()).collect();
        assert_eq!(keys, ["attachments.max_bytes", "attachments.max_count"]);
    }
}
