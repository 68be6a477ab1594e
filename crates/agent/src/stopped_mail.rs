//! Stops of messages that wait as mail for the owner of their lane. The mail is answered, so that no owner begins with it.

use belay_protocol::store::MailEnd;
use belay_protocol::{NodeMail, RunId, StopTarget, StoreError};

use crate::agent_services::{AgentServices, ClusterServices};
use crate::lane::{OPEN_MAX, WireAck, WireMail};
use crate::stop_orders::{StopRequest, target_of};

/// Ends the messages that a stop concerns and no lane has accepted, at most [`OPEN_MAX`]. Returns their runs.
///
/// Call it before the order for the other nodes is written: a message that is accepted meanwhile has a run then, and the
/// order stops that run.
pub(crate) async fn stop_mail(
    services: &AgentServices,
    cluster: &ClusterServices,
    target: &StopTarget,
    request: &StopRequest,
) -> Vec<RunId> {
    if request.only_begun {
        return Vec::new();
    }
    let open = match cluster.mail.open_messages(&target_of(target), OPEN_MAX).await {
        Ok(open) => open,
        Err(error) => {
            tracing::error!(%error, "messages that wait for other nodes cannot be read, and are not stopped");
            return Vec::new();
        }
    };
    let mut stopped = Vec::new();
    for mail in open {
        let Some(run) = mail.run else { continue };
        match end(services, cluster, mail, run, request).await {
            Ok(true) => stopped.push(run),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, %run, "a message that waits for another node could not be stopped"),
        }
    }
    stopped
}

/// Ends a message. `false`: the stop is not for it, or its lane has accepted it.
async fn end(
    services: &AgentServices,
    cluster: &ClusterServices,
    mail: NodeMail,
    run: RunId,
    request: &StopRequest,
) -> Result<bool, StoreError> {
    let wire = WireMail::of_json(&mail.body).ok();
    let origin = wire.as_ref().and_then(WireMail::origin); // a sealed message is that of a person
    if !request.may_stop_work && origin.as_ref().is_some_and(|origin| origin.work.is_autonomous()) {
        return Ok(false);
    }
    let at = services.clock.now();
    let end = MailEnd { end: request.cause_of(&mail.session, origin.as_ref()).end(), at };
    let ack = WireAck::accepted(run, mail.session.clone(), mail.at, None);
    let Ok(ack) = serde_json::to_value(ack) else { return Ok(false) }; // it is always JSON
    let ended = cluster.mail.answer(mail.id, ack, Some(end)).await?;
    if ended && wire.as_ref().is_some_and(WireMail::is_in_vault) {
        services.store.vault.forget(&mail.session, &NodeMail::secret_name(mail.id)).await?;
    }
    Ok(ended)
}
