//! Messages for the model, on their way to their lane. A second delivery joins the first.

use std::sync::Arc;

use belay_protocol::store::input_digest;
use belay_protocol::{Accepted, Ack, AckSender, Inbound, Refusal, RunId, UnixMillis};
use tokio::sync::mpsc;

use super::{BUSY_RETRY, Dispatcher, KeyState, Known, MAX_TEXT_BYTES, worth_saying};
use crate::live::LiveRun;
use crate::mail::{LaneInput, LaneMail};

impl Dispatcher {
    /// `sent`: the digest of what was typed, where `text` is made of it.
    pub(super) fn input(&mut self, text: String, sent: Option<String>, inbound: Inbound, ack: AckSender) {
        if text.trim().is_empty() || text.contains('\0') || text.len() > MAX_TEXT_BYTES {
            let what =
                format!("a message must have text, at most {MAX_TEXT_BYTES} bytes of it, without NUL characters");
            return self.refuse(&inbound, ack, Refusal::Invalid(what));
        }
        let digest = sent.clone().unwrap_or_else(|| input_digest(&text));
        if let Some(key) = &inbound.key
            && let Some(known) = self.keys.get_mut(key)
        {
            if known.digest != digest {
                let run_id = known.run.id;
                return self.refuse(&inbound, ack, Refusal::Conflict { run_id });
            }
            match &mut known.state {
                KeyState::InFlight(waiters) => waiters.push(ack),
                KeyState::Accepted(at) => ack.send(Ack::Accepted(joined(&known.run, *at))),
            }
            return;
        }
        let lane = self.lane(&inbound.session);
        let run = LiveRun::new(RunId::new(), inbound.session.clone(), inbound.want_deltas);
        let key = inbound.key.clone();
        let session = inbound.session.clone();
        let mail = LaneMail::Input(Box::new(LaneInput { run: run.clone(), inbound, text, sent, ack }));
        if let Err(error) = lane.mail.try_send(mail) {
            let (mpsc::error::TrySendError::Full(mail) | mpsc::error::TrySendError::Closed(mail)) = error;
            if let LaneMail::Input(input) = mail {
                let LaneInput { inbound, ack, .. } = *input;
                self.busy(inbound, digest, ack);
            }
            return;
        }
        lane.runs.push(run.clone());
        self.sessions.insert(run.id, session);
        if let Some(key) = key {
            self.run_keys.insert(run.id, key.clone());
            self.keys.insert(key, Known { run, digest, state: KeyState::InFlight(Vec::new()) });
        }
    }

    /// A full mailbox answers "busy", but never to a duplicate: that joins its first acceptance, which the store knows. How many
    /// may wait behind a turn, the lane says.
    fn busy(&mut self, inbound: Inbound, digest: String, ack: AckSender) {
        let what = "too many messages of this conversation are on their way".to_owned();
        let busy = Refusal::Busy { what, retry_after: BUSY_RETRY };
        let Some(key) = inbound.key.clone() else { return self.refuse(&inbound, ack, busy) };
        let (threads, speaker) = (self.house.store.threads.clone(), self.speaker.clone());
        self.errand(async move {
            let refusal = match threads.find(&key).await {
                Ok(Some(known)) if known.digest == digest => {
                    return ack.send(Ack::Accepted(Accepted {
                        run_id: known.run_id,
                        session: known.session,
                        accepted_at: known.accepted_at,
                        duplicate: true,
                        watch: None,
                    }));
                }
                Ok(Some(known)) => Refusal::Conflict { run_id: known.run_id },
                Ok(None) => busy,
                Err(error) => Refusal::Store(error.to_string()),
            };
            ack.send(Ack::Refused(refusal.clone()));
            if worth_saying(&refusal) {
                speaker.say(inbound.reply_to, refusal.to_string());
            }
        });
    }
}

/// The acceptance that a duplicate of a living run joins.
pub(super) fn joined(run: &Arc<LiveRun>, at: UnixMillis) -> Accepted {
    Accepted {
        run_id: run.id,
        session: run.session.clone(),
        accepted_at: at,
        duplicate: true,
        watch: Some(run.watch(false)),
    }
}
