//! The part of an approval request that goes to a channel.

use serde::{Deserialize, Serialize};

use crate::ids::ApprovalId;

/// The data of an approval request that goes to a channel with its text, so that the channel can show buttons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The id of the approval request.
    pub approval: ApprovalId,
    /// Whether the person may answer "always".
    pub offers_always: bool,
    /// Whether it asks for a yes or no. A secret has to be typed.
    pub decidable: bool,
}
