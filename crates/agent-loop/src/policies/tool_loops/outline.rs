//! The facts about one call for the account of a strike.

use belay_protocol::{Arguments, ToolSpec};

use super::ToolLoopConfig;
use super::call::CallAnalysis;
use super::words::Kind;

/// The role of a call in a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It changes something, such as a file.
    Changes,
    /// It runs a program.
    Runs,
    /// It lets time pass, or tells nothing about the work.
    Aside,
    /// Anything else.
    Other,
}

/// The identity and the role of a call, as loop detection sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outline {
    /// The number behind the fingerprint of the call in a finding.
    pub fingerprint: u64,
    /// Its role.
    pub role: Role,
}

impl Outline {
    /// Analyses a call. `spec`: the specification of its tool, if it has one.
    pub fn of(config: &ToolLoopConfig, name: &str, arguments: &Arguments, spec: Option<&ToolSpec>) -> Self {
        let call = CallAnalysis::of(config, name, arguments, spec);
        let role = match call.kind {
            Kind::Write => Role::Changes,
            Kind::Run => Role::Runs,
            Kind::Wait | Kind::Harmless | Kind::Note => Role::Aside,
            Kind::Other | Kind::Read | Kind::Poll => Role::Other,
        };
        Self { fingerprint: call.key, role }
    }
}
