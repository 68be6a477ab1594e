//! The troubles of the daemon, for the status. They are looked for when somebody asks.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{
    Channel, ChannelId, ChannelState, ChannelStatus, StatusReport, StoreError, Trouble, TroubledPart,
};
use tokio::time::timeout;

use crate::agent_services::AgentServices;
use belay_run::metrics;

/// Longest time for the store to take a test write. A slower one does not answer.
const LIMIT: Duration = Duration::from_secs(1);

/// The report with the present troubles, which become gauges too. `operator`: whether the reader is one.
///
/// # Cancel safety
/// Nothing is changed.
pub(crate) async fn added(services: &AgentServices, mut report: StatusReport, operator: bool) -> StatusReport {
    let mut found: Vec<Trouble> = store(services).await.into_iter().collect();
    found.extend(services.machine.troubles().await);
    found.extend(report.model_trouble.as_ref().map(|trouble| Trouble {
        since: Some(trouble.since),
        ..Trouble::critical(TroubledPart::Model, &trouble.line)
    }));
    found.extend(services.run.freezer.in_force().iter().map(Trouble::of_freeze));
    found.extend(services.channels.iter().filter_map(|(id, channel)| {
        Some(Trouble::warning(TroubledPart::Channel, format!("{id}: {}", channel.health().trouble?)))
    }));
    found.sort_by(|one, other| (one.part, &one.detail).cmp(&(other.part, &other.detail)));
    metrics::set_trouble_gauges(&found);
    if !operator {
        // Freezes of parts name people and routines.
        found.retain(|trouble| trouble.part != TroubledPart::Freeze);
        found.extend(report.frozen.iter().map(Trouble::of_freeze));
        found = found.into_iter().map(Trouble::for_everybody).collect();
    }
    report.degraded = found;
    report.beside.channel_states = channels(services, operator);
    report
}

/// The states of the channels through which people and programs write, by name.
fn channels(services: &AgentServices, operator: bool) -> Vec<ChannelStatus> {
    let state = |(id, channel): (&ChannelId, &Arc<dyn Channel>)| {
        let (profile, trouble) = (channel.profile(), channel.health().trouble);
        let is_elsewhere = services.leases.as_ref().is_some_and(|leased| !leased.may_send(id));
        let state = match &trouble {
            Some(_) => ChannelState::Troubled,
            None if is_elsewhere => ChannelState::Elsewhere,
            None => ChannelState::Ready,
        };
        let (channel, trouble) = (id.clone(), trouble.filter(|_| operator));
        profile.carries_people.then_some(ChannelStatus { channel, state, trouble, quality: profile.quality })
    };
    let mut states: Vec<_> = services.channels.iter().filter_map(state).collect();
    states.sort_unstable_by(|one, other| one.channel.cmp(&other.channel));
    states
}

/// The trouble of the store. A test write happens only after one has failed.
async fn store(services: &AgentServices) -> Option<Trouble> {
    let health = &services.store.health;
    let critical = |detail: String| Some(Trouble::critical(TroubledPart::Store, detail));
    if let Some(words) = health.trouble() {
        return critical(words);
    }
    if !health.is_failing() {
        return None;
    }
    match timeout(LIMIT, health.ping()).await {
        Ok(Ok(())) => None,
        Ok(Err(StoreError::Unavailable(words))) => critical(format!("messages cannot be stored: {words}")),
        Ok(Err(error)) => critical(format!("messages cannot be stored: {error}")),
        Err(_elapsed) => critical("the store does not answer; messages wait or are refused".to_owned()),
    }
}
