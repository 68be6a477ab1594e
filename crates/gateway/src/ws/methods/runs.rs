//! `agent` and `agent.wait`.

use belay_protocol::{Accepted, Ack};

use super::{Begun, Caller, Kind, Outcome, RunEnd};
use crate::agent_rpc::{AcceptedAnswer, CommandAnswer, WaitParams, WaitedRun, finished, wait_for};
use crate::error::ApiError;
use crate::submit::AgentParams;
use crate::ws::connection::json_of;

pub(super) async fn agent(caller: &Caller, params: AgentParams) -> Result<Outcome, ApiError> {
    let app = &caller.app;
    let inbound = params.check(app, caller.principal.clone(), caller.may_follow())?;
    match app.ask(inbound).await? {
        Ack::Accepted(accepted) => match finished(app, &accepted).await? {
            Some(end) => {
                let Accepted { run_id: run, session, .. } = accepted;
                Ok(Outcome::RunEnd(RunEnd { run, session, payload: json_of(&end) }))
            }
            None => {
                let answer = json_of(&AcceptedAnswer::from(&accepted));
                let Accepted { run_id: run, session, watch, .. } = accepted;
                Ok(Outcome::Accepted(answer, Begun { kind: Kind::Agent, run, session, watch, answers_twice: true }))
            }
        },
        Ack::Command(reply) => Ok(Outcome::Answered(json_of(&CommandAnswer::from(&reply)))),
        other => Err(ApiError::unexpected(&other)),
    }
}

pub(super) async fn wait(caller: &Caller, params: WaitParams) -> Result<Outcome, ApiError> {
    let record = wait_for(&caller.app, caller.principal.clone(), params).await?;
    let payload = json_of(&WaitedRun::from(&*record));
    Ok(if record.status.is_end() {
        Outcome::RunEnd(RunEnd { run: record.run_id, session: record.session.clone(), payload })
    } else {
        Outcome::Answered(payload)
    })
}
