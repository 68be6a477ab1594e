//! The promise of a channel about its deliveries, and the evidence for it.

use serde::{Deserialize, Serialize};

/// The quality of a channel's deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Quality {
    /// How often a message arrives.
    pub delivery: DeliveryQuality,
    /// The evidence for that.
    pub confirmed_by: Confirmation,
}

impl Default for Quality {
    fn default() -> Self {
        Self { delivery: DeliveryQuality::OnceOrUnknown, confirmed_by: Confirmation::StandIn }
    }
}

/// How often an accepted message arrives at the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeliveryQuality {
    /// Once: the platform recognises a repetition, or says whether it has the message.
    ExactlyOnce,
    /// Once, or its result is unknown and reported as `ambiguous`. Never twice.
    OnceOrUnknown,
}

impl DeliveryQuality {
    /// The words for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::ExactlyOnce => "exactly once",
            Self::OnceOrUnknown => "once, or known unknown",
        }
    }
}

/// The counterpart in the test that has confirmed the quality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Confirmation {
    /// The real server of the platform, a real client, a real terminal.
    RealServer,
    /// A stand-in of Belay's own, which an official client of the platform accepts as well.
    OfficialClient,
    /// A stand-in of Belay's own alone.
    StandIn,
}

impl Confirmation {
    /// The words for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::RealServer => "the real thing",
            Self::OfficialClient => "stand-in, checked by an official client",
            Self::StandIn => "stand-in only",
        }
    }
}
