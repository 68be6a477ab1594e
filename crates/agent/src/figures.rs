//! The figures of a conversation for `/status`: how full the context is, and the newest run's tokens and cost.

use std::time::Duration;

use belay_protocol::{ContextUse, Inbound, RunFilter};
use belay_text::figures::known;
use tokio::time::timeout;

use crate::agent_services::AgentServices;
use crate::context_report;

/// Time limit for the store and the workspace. After it, the status goes without the line.
const LIMIT: Duration = Duration::from_secs(1);

/// The line about the conversation of this message; `None`: it has no run yet, or nothing answers in time.
///
/// # Cancel safety
/// Nothing is changed.
pub(crate) async fn line(services: &AgentServices, inbound: &Inbound) -> Option<String> {
    let filter = RunFilter { session: Some(inbound.session.clone()), limit: 1, ..RunFilter::default() };
    let reader = (&inbound.principal, &inbound.channel);
    let asked = async {
        let run = services.store.runs.runs(filter).await.ok()?.pop()?;
        let report = context_report::of(services, &inbound.session, false, reader).await.ok();
        Some((run, report))
    };
    let (run, report) = timeout(LIMIT, asked).await.ok()??;
    let context = report.and_then(|report| {
        ContextUse { used_tokens: report.used_tokens, context_tokens: report.context_tokens }.percent()
    });
    let facts = known(context, run.usage.input.saturating_add(run.usage.output), run.cost_micro_usd);
    let facts = facts.join(" · ");
    (!facts.is_empty()).then(|| format!("This conversation and its newest run: {facts}."))
}
