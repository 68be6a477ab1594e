//! Second approvals: who may give one, and who is asked for it.

use belay_protocol::{AskedIn, Asker, Authority, ChannelId, Principal, ReplyRoute};
use belay_run::approvals::Fallback;
use belay_run::rights;

use crate::agent_services::AgentServices;

/// The person of everybody who answers without a platform: the API token, the control socket, a terminal. Belay cannot
/// tell these persons apart.
const OF_THE_MACHINE: &str = "the machine";

/// The person behind a principal that answers through this channel.
pub(crate) fn person(services: &AgentServices, through: &ChannelId, who: &Principal) -> String {
    match rights::tells_persons_apart(&services.jobs.access, through) {
        true => named(through.as_str(), &who.id),
        false => OF_THE_MACHINE.to_owned(),
    }
}

/// The person of an entry of `approvals.second`.
fn person_named(services: &AgentServices, to: &Fallback) -> String {
    match rights::tells_persons_apart(&services.jobs.access, &ChannelId::new(&to.channel)) {
        true => named(&to.channel, &to.to),
        false => OF_THE_MACHINE.to_owned(),
    }
}

fn named(channel: &str, id: &str) -> String {
    format!("{channel}:{id}")
}

/// Whether this principal may give a second approval, or deny it: an operator, or a person of `approvals.second`.
pub(crate) fn has_authority(services: &AgentServices, through: &ChannelId, who: &Principal) -> bool {
    let is_listed = |to: &Fallback| to.channel == through.as_str() && *to.to == *who.id;
    who.is_operator() || services.approvals.load().second.iter().any(is_listed)
}

/// The conversation in which the second person is asked: the first one in `approvals.second` that is not `first`, has
/// access and can be sent a message. `work`: what asks, for people.
pub(crate) fn place(services: &AgentServices, first: &str, work: &str) -> Option<AskedIn> {
    let approvals = services.approvals.load();
    let others = approvals.second.iter().filter(|to| person_named(services, to) != first);
    others.into_iter().find_map(|to| reach(services, to, work))
}

fn reach(services: &AgentServices, to: &Fallback, work: &str) -> Option<AskedIn> {
    let (access, channel) = (&services.jobs.access, ChannelId::new(&to.channel));
    let route = ReplyRoute { channel: channel.clone(), conversation: to.to.as_str().into(), reply_to: None };
    if !rights::may_tell(access, &route) {
        return None;
    }
    let asker = Asker { principal: to.to.clone(), authority: Authority::Operator, relayed: false };
    let asker = rights::now(access, &channel, &asker, Some(&route)).ok()?;
    let session = rights::session_of(access, &route)?;
    Some(AskedIn { work: work.to_owned(), session, route: Some(route), asker, in_place: false })
}
