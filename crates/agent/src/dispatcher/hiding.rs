//! `/hide`: leaves a conversation out of lists until its next message.

use belay_protocol::{AckSender, Inbound, Refusal, Sent, SessionChange, SessionKey, StoreError};

use super::{Dispatcher, Flow};
use crate::agent_services::StorePorts;

impl Dispatcher {
    /// Hides the conversation in a background task, because it is stored.
    pub(super) fn hide_command(&mut self, word: String, sent: Option<Sent>, inbound: Inbound, ack: AckSender) -> Flow {
        let (services, session) = (self.services.clone(), inbound.session.clone());
        let answer = self.answer_of(word, sent, inbound, ack);
        self.background(async move {
            answer.carry_out(true, hide(&services.store, &session)).await;
        });
        Flow::Continue
    }
}

async fn hide(store: &StorePorts, session: &SessionKey) -> Result<String, Refusal> {
    let unavailable = |error: StoreError| Refusal::Store(error.to_string());
    if store.sessions.session(session).await.map_err(unavailable)?.is_none() {
        return Err(Refusal::Unknown("Nothing was said here yet, so that no list shows this conversation.".to_owned()));
    }
    store.archive.change_session(session, SessionChange::Hide).await.map_err(unavailable)?;
    Ok("Hidden: lists leave this conversation out. Your next message shows it again.".to_owned())
}
