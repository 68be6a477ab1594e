//! An answer to a question.

use serde::{Deserialize, Serialize};

/// An answer to an approval request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Approve this call.
    Approve,
    /// Approve this call, and the calls in this session that [`ApprovalRequest::covers`](crate::ApprovalRequest::covers) covers. See [`Asker::is_served_by`](crate::Asker::is_served_by).
    Always,
    /// Deny this call.
    Deny,
}

impl Decision {
    /// Reads a text that is nothing but one of the words that answer a question; `None`: it is another text.
    pub fn from_words(text: &str) -> Option<Self> {
        match text.trim().trim_end_matches(['.', '!']).to_lowercase().as_str() {
            "yes" | "y" | "approve" | "approved" => Some(Self::Approve),
            "always" => Some(Self::Always),
            "no" | "n" | "deny" | "denied" => Some(Self::Deny),
            _ => None,
        }
    }
}
