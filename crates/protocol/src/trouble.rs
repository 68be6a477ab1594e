//! Troubles: parts of the daemon that do not work as they should. Every display takes its words from here.

use async_trait::async_trait;
use serde::Serialize;

use crate::freeze::{Freeze, FreezeScope};
use crate::time::UnixMillis;

/// A part that does not work as it should.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trouble {
    /// The part.
    pub part: TroubledPart,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong and what to do, on one line.
    pub detail: String,
    /// Since when; absent if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<UnixMillis>,
}

/// The parts that may be in trouble. The order is that of the displays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TroubledPart {
    /// The store refuses or does not answer.
    Store,
    /// The disk of the data is full, or nearly.
    Disk,
    /// The model cannot be used.
    Model,
    /// Work is frozen.
    Freeze,
    /// A channel takes no messages.
    Channel,
    /// There is no sandbox, so commands are refused.
    Sandbox,
}

impl TroubledPart {
    /// All parts.
    pub const ALL: [Self; 6] = [Self::Store, Self::Disk, Self::Model, Self::Freeze, Self::Channel, Self::Sandbox];

    /// The name in JSON, metrics and on displays.
    pub fn word(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Disk => "disk",
            Self::Model => "model",
            Self::Freeze => "freeze",
            Self::Channel => "channel",
            Self::Sandbox => "sandbox",
        }
    }
}

/// How bad a trouble is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Messages are refused, or not answered.
    Critical,
    /// A part of the work is not done.
    Warning,
}

impl Trouble {
    /// A critical trouble.
    pub fn critical(part: TroubledPart, detail: impl Into<String>) -> Self {
        Self { part, severity: Severity::Critical, detail: detail.into(), since: None }
    }

    /// A trouble of a part of the work.
    pub fn warning(part: TroubledPart, detail: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::critical(part, detail) }
    }

    /// A freeze in force.
    pub fn of_freeze(freeze: &Freeze) -> Self {
        let severity = if freeze.scope == FreezeScope::All { Severity::Critical } else { Severity::Warning };
        let detail = format!("{} is {}; messages are kept", freeze.scope, freeze.by());
        Self { severity, since: Some(freeze.at), ..Self::critical(TroubledPart::Freeze, detail) }
    }

    /// The same for people who are no operators: without paths, addresses and words of a provider.
    #[must_use]
    pub fn for_everybody(self) -> Self {
        let detail = match self.part {
            TroubledPart::Freeze => return self,
            TroubledPart::Store => "messages cannot be stored",
            TroubledPart::Disk => "the disk is full, or nearly",
            TroubledPart::Model => "the model cannot be used",
            TroubledPart::Channel => "a channel takes no messages",
            TroubledPart::Sandbox => "commands are refused",
        };
        Self { detail: detail.to_owned(), ..self }
    }

    /// The line of a display: `model: The provider …`.
    pub fn line(&self) -> String {
        format!("{}: {}", self.part.word(), self.detail)
    }
}

/// Knows the troubles of the machine, which the agent cannot see itself.
#[async_trait]
pub trait TroubleSource: Send + Sync {
    /// The present troubles. Asked when somebody wants to know, so it is quick, and changes nothing.
    async fn troubles(&self) -> Vec<Trouble>;
}

/// A machine without troubles.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTroubles;

#[async_trait]
impl TroubleSource for NoTroubles {
    async fn troubles(&self) -> Vec<Trouble> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::FreezeId;

    #[test]
    fn a_freeze_is_a_trouble_with_its_reason() {
        let freeze = Freeze {
            id: FreezeId::new(),
            scope: FreezeScope::All,
            detail: Some("maintenance".into()),
            actor: "ann".into(),
            source: "http".into(),
            at: UnixMillis(0),
            receipt: None,
            thawed_at: None,
        };
        let trouble = Trouble::of_freeze(&freeze);
        let line = "freeze: everything is frozen by ann since 1970-01-01T00:00:00.000Z: maintenance; messages are kept";
        assert_eq!((trouble.severity, trouble.line().as_str()), (Severity::Critical, line));
        let part = Trouble::of_freeze(&Freeze { scope: FreezeScope::person("bob"), detail: None, ..freeze });
        let line = "freeze: person bob is frozen by ann since 1970-01-01T00:00:00.000Z; messages are kept";
        assert_eq!((part.severity, part.line().as_str()), (Severity::Warning, line));
    }

    #[test]
    fn people_who_are_no_operators_read_no_addresses_and_paths() {
        for part in TroubledPart::ALL {
            let told = Trouble::critical(part, "SECRET").for_everybody();
            assert_eq!(told.detail.contains("SECRET"), part == TroubledPart::Freeze, "{told:?}");
        }
    }
}
