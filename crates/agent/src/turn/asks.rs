//! The place where autonomous work asks for approvals: the conversation of its creator, or the operator's fallback.

use std::sync::Arc;

use belay_automation::RoutineWork;
use belay_automation::jobs::JobContext;
use belay_protocol::{
    AskedIn, Asker, Authority, ChannelId, JobRecord, NO_SESSION, ReplyRoute, RoutineOrigin, RoutineRecord,
    RoutineRunId, SessionKey, StoreError,
};
use belay_run::core::RunCore;
use belay_run::rights;

use crate::agent_services::AgentServices;

/// Why work cannot ask: there is no conversation.
const UNREACHABLE: &str = "nobody can be reached who may answer; do what is possible without it";

/// A person who may be asked.
struct Reachable {
    asker: Asker,
    session: SessionKey,
    route: Option<ReplyRoute>,
}

/// Lets the run of a job ask its creator, if the creator can be reached.
///
/// # Errors
/// The store does not answer.
pub(super) async fn for_job(
    core: &mut RunCore,
    services: &AgentServices,
    context: &JobContext,
) -> Result<(), StoreError> {
    let job = &context.job;
    let creator = match job.routine_run {
        None => creator_of(job, services),
        Some(id) => owner_of(services, id).await?,
    };
    ask_at(core, services, format!("Job “{}” ({})", job.title, job.job_id), creator);
    Ok(())
}

/// Lets a lightweight routine run ask the owner of the routine, and gives it the grants of the routine.
pub(super) fn for_routine_run(core: &mut RunCore, services: &AgentServices, routine: &RoutineRecord, id: RoutineRunId) {
    let work = match routine.origin {
        RoutineOrigin::Heartbeat => "The heartbeat".to_owned(),
        RoutineOrigin::Made | RoutineOrigin::Config => format!("Routine “{}”", routine.spec.name),
    };
    ask_at(core, services, work, reach_owner(routine, services));
    if !routine.spec.allow.is_empty() {
        core.work = Some(Arc::new(RoutineWork { routines: services.store.routines.clone(), id }));
    }
}

/// The conversation of a job's creator.
fn creator_of(job: &JobRecord, services: &AgentServices) -> Option<Reachable> {
    let route = job.reply_to.clone().filter(|route| rights::may_tell(&services.jobs.access, route));
    let has_place = route.is_some() || job.asked_in.as_str() != NO_SESSION;
    has_place.then(|| Reachable { asker: job.creator.clone(), session: job.asked_in.clone(), route })
}

/// The conversation of the owner of a routine run. A routine of the settings has none.
async fn owner_of(services: &AgentServices, id: RoutineRunId) -> Result<Option<Reachable>, StoreError> {
    let store = &services.store.routines;
    let Some(run) = store.routine_run(id).await? else { return Ok(None) };
    let Some(routine) = store.routine(&run.routine).await?.filter(|made| made.routine_id == run.routine_id) else {
        return Ok(None);
    };
    Ok(rights::of_routine(&services.jobs.access, &routine).ok().and_then(|routine| reach_owner(&routine, services)))
}

fn reach_owner(routine: &RoutineRecord, services: &AgentServices) -> Option<Reachable> {
    let route = routine.reply_to.clone().filter(|route| rights::may_tell(&services.jobs.access, route));
    let has_owner = routine.origin == RoutineOrigin::Made;
    let has_place = route.is_some() || (has_owner && routine.made_in.as_str() != NO_SESSION);
    has_place.then(|| Reachable { asker: routine.creator.clone(), session: routine.made_in.clone(), route })
}

/// Sets the place of the questions. Without a person who gets messages, the fallback is asked, if there is one.
fn ask_at(core: &mut RunCore, services: &AgentServices, work: String, creator: Option<Reachable>) {
    if core.request.asker.relayed {
        return;
    }
    let reached = creator.as_ref().is_some_and(|creator| creator.route.is_some());
    let asked = if reached { creator } else { fallback(services).or(creator) };
    match asked {
        Some(Reachable { asker, session, route }) => {
            core.may_ask = Ok(());
            core.asks_in = Some(Arc::new(AskedIn { work, session, route, asker, in_place: false }));
        }
        None => core.may_ask = Err(UNREACHABLE),
    }
}

/// The person of `approvals.fallback`, if their channel admits them and serves the conversation.
fn fallback(services: &AgentServices) -> Option<Reachable> {
    let approvals = services.approvals.load();
    let to = approvals.fallback.as_ref()?;
    let channel = ChannelId::new(&to.channel);
    let route = ReplyRoute { channel: channel.clone(), conversation: to.to.as_str().into(), reply_to: None };
    let access = &services.jobs.access;
    if !rights::may_tell(access, &route) {
        return None;
    }
    let asker = Asker { principal: to.to.clone(), authority: Authority::Operator, relayed: false };
    let asker = rights::now(access, &channel, &asker, Some(&route)).ok()?;
    Some(Reachable { asker, session: rights::session_of(access, &route)?, route: Some(route) })
}
