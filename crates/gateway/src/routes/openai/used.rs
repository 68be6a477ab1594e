//! The tokens of one answer among those of its run.
//!
//! A run counts its tokens from its beginning. The results of a client's tools keep what it had used before them.

use belay_protocol::run::RunUsage;
use belay_protocol::{ApprovalKind, RunId, UsedTokens};

use crate::app::App;

/// The tokens that the run of a request had used before the results; `None`: no results have come, or they are of an earlier
/// version.
pub(super) fn used_before(kind: &ApprovalKind) -> Option<UsedTokens> {
    match kind {
        ApprovalKind::ClientCalls { results, .. } => results.iter().find_map(|result| result.used),
        ApprovalKind::Approval | ApprovalKind::Credential { .. } | ApprovalKind::Form { .. } => None,
    }
}

/// The tokens of a run before the newest results that it has got; zero, if there are none, or the store cannot be read.
pub(super) async fn used_before_newest(app: &App, run: RunId) -> UsedTokens {
    let requests = app.approvals.approvals_of(run).await.unwrap_or_default();
    requests.iter().rev().find_map(|request| used_before(&request.kind)).unwrap_or_default()
}

/// The tokens of a run so far.
pub(super) fn used_by(usage: &RunUsage) -> UsedTokens {
    UsedTokens { input: usage.input, output: usage.output }
}

/// The tokens between two moments of a run.
pub(super) fn used_since(before: UsedTokens, now: UsedTokens) -> UsedTokens {
    UsedTokens { input: now.input.saturating_sub(before.input), output: now.output.saturating_sub(before.output) }
}
