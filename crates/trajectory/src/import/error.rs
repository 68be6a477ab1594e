//! Why a file cannot be imported.

use thiserror::Error;

use super::Format;

/// Why a file cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImportError {
    /// Reading failed.
    #[error("cannot be read: {0}")]
    Io(String),
    /// A document is longer than this many MiB.
    #[error("longer than {0} MiB, and not one record a line")]
    TooLong(u64),
    /// The file is neither JSON nor JSON Lines.
    #[error("line {line}, column {column}: not JSON: {what}")]
    NotJson {
        /// The line, from 1.
        line: usize,
        /// The column, from 1, in bytes.
        column: usize,
        /// The message of the JSON parser.
        what: String,
    },
    /// The file is JSON of an unknown format.
    #[error("no known form: expected {}", Format::ALL.iter().map(|format| format!("{} ({})", format.expected(), format.word())).collect::<Vec<_>>().join("; or "))]
    UnknownForm,
    /// The file does not have the requested format.
    #[error("this is not {}: expected {}", .0.word(), .0.expected())]
    OtherForm(Format),
    /// The file holds nothing that can be used, and this part is invalid.
    #[error("{place}: {what}")]
    Broken {
        /// The position of the part.
        place: String,
        /// The problem.
        what: String,
    },
}

/// An invalid message of a conversation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidItem {
    /// Its number, from 0.
    pub(super) index: usize,
    /// The kind of item: message, step.
    pub(super) item_kind: &'static str,
    pub(super) what: String,
}

impl InvalidItem {
    pub(super) fn into_error(self, conversation: Option<usize>) -> ImportError {
        let of = conversation.map(|index| format!("conversation {index}, ")).unwrap_or_default();
        ImportError::Broken { place: format!("{of}{} {}", self.item_kind, self.index), what: self.what }
    }
}
