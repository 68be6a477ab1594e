//! The order of a lane's messages when other nodes of a cluster receive some of them: mail that is in the store comes
//! before each message that arrives later, also if the dispatcher has not read that mail yet.
//!
//! The store refuses the acceptance of a message while earlier mail is open, see [`Acceptance::Behind`]. The lane takes
//! that mail first then. Commands and edits, which no acceptance protects, look for earlier mail themselves.
//!
//! [`Acceptance::Behind`]: belay_protocol::Acceptance::Behind

use std::collections::VecDeque;

use belay_protocol::store::MailPlace;
use belay_protocol::{Body, MailId, Refusal, UnixMillis};
use tokio::sync::oneshot;

use super::port::{note, refuse, refuse_mail};
use super::remote::{OPEN_MAX, may_pass, unpack};
use super::wire::WireAck;
use super::{Lane, LeaseLost};
use crate::mail::{LaneInput, LaneMail, LaneNote, Settled};
use crate::queue::BUSY_RETRY;

/// Most mail of other nodes that a lane remembers. 1024: more than its mailbox holds, and than it finds at its opening.
const REMEMBERED: usize = 1024;
/// Most mail that is held back in a search for earlier mail in the mailbox. 256: a mailbox holds less.
const SEARCHED: usize = 256;

/// The newest mail of other nodes that a lane has taken. The dispatcher may bring it once more.
#[derive(Default)]
pub(super) struct Taken {
    /// Oldest first. `true`: its answer is in the store.
    mails: VecDeque<(MailId, bool)>,
    /// Mail that was taken before the message that is to be accepted, and before no other message since.
    tried: Vec<MailId>,
}

impl Taken {
    /// Records mail. `false`: it was taken before.
    pub(super) fn take(&mut self, mail: MailId) -> bool {
        if self.has(mail) {
            return false;
        }
        if self.mails.len() >= REMEMBERED {
            self.mails.pop_front();
        }
        self.mails.push_back((mail, false));
        true
    }

    /// Records that a message was accepted, and that the store has the answer to its mail, if it has one.
    pub(super) fn accepted(&mut self, mail: Option<MailId>) {
        self.tried.clear();
        self.mails.iter_mut().filter(|(known, _)| Some(*known) == mail).for_each(|(_, answered)| *answered = true);
    }

    /// Forgets mail that is to be taken once more.
    fn leave(&mut self, mail: Option<MailId>) {
        self.mails.retain(|(known, _)| Some(*known) != mail);
    }

    fn has(&self, mail: MailId) -> bool {
        self.mails.iter().any(|(known, _)| *known == mail)
    }

    /// The mail whose answer may not be in the store yet.
    fn unanswered(&self) -> Vec<MailId> {
        self.mails.iter().filter(|(_, answered)| !answered).map(|(mail, _)| *mail).collect()
    }
}

impl Lane {
    /// The place of a message among the mail of its session; `None`: the daemon is alone.
    pub(super) fn place_of(&self, input: &LaneInput, at: UnixMillis, frozen: Option<&str>) -> Option<MailPlace> {
        self.services.cluster.as_ref()?;
        let own = input.forwarded.and_then(|mail| {
            let ack = WireAck::accepted(input.run.id, input.run.session.clone(), at, frozen);
            Some((mail, serde_json::to_value(ack).ok()?))
        });
        Some(MailPlace { own, handled: self.taken.unanswered() })
    }

    /// Returns a command or an edit if no earlier mail waits. Otherwise takes that mail first. Other mail is returned: the
    /// acceptance of a message looks itself, and an answer to a question does not wait.
    pub(super) async fn after_earlier(&mut self, mail: LaneMail) -> Result<Option<LaneMail>, LeaseLost> {
        let Some(cluster) = &self.services.cluster else { return Ok(Some(mail)) };
        match &mail {
            LaneMail::Command(_) => {}
            LaneMail::Input(input) if matches!(input.inbound.body, Body::Edit(_)) => {}
            LaneMail::Input(_) | LaneMail::Answer(_) => return Ok(Some(mail)),
        }
        let open = match cluster.mail.open_mail(self.services.boot, Some(&self.lease.session), OPEN_MAX).await {
            Ok(open) => open,
            Err(error) => {
                self.send_back(mail, Refusal::Store(error.to_string())).await;
                return Ok(None);
            }
        };
        let earlier = open.into_iter().map(|open| open.mail.id).take_while(|id| Some(*id) != mail.forwarded());
        let earlier: Vec<MailId> = earlier.filter(|id| !self.taken.has(*id)).collect();
        if earlier.is_empty() {
            return Ok(Some(mail));
        }
        self.go_behind(mail, earlier).await.map(|()| None)
    }

    /// Puts mail behind earlier mail. It is refused if that was tried already: the earlier mail cannot be accepted now.
    pub(super) async fn go_behind(&mut self, mut mail: LaneMail, earlier: Vec<MailId>) -> Result<(), LeaseLost> {
        if earlier.iter().any(|id| self.taken.tried.contains(id)) {
            self.taken.tried.clear();
            let what = "an earlier message of this conversation cannot be accepted yet".to_owned();
            self.send_back(mail, Refusal::Busy { what, retry_after: BUSY_RETRY }).await;
            return Ok(());
        }
        tracing::debug!(session = %self.lease.session, mail = earlier.len(), "earlier mail comes first");
        self.taken.tried.extend(&earlier);
        self.taken.leave(mail.forwarded());
        if let LaneMail::Input(input) = &mut mail
            && input.repeat.is_some()
        {
            input.checked = false; // the turn that it repeats may be another one then
        }
        if !self.find_held(&earlier) {
            self.bring(&earlier).await;
            self.find_held(&earlier);
        }
        let place = |held: &LaneMail| held.forwarded().and_then(|id| earlier.iter().position(|other| *other == id));
        let (mut first, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.held).into_iter().partition(|held| place(held).is_some());
        first.sort_by_key(place);
        self.held = first.into_iter().chain([mail]).chain(rest).collect();
        Ok(())
    }

    /// Looks for mail in the mailbox, and holds back what comes before it. Returns whether all of it is held back now.
    fn find_held(&mut self, wanted: &[MailId]) -> bool {
        loop {
            let has = |id: &MailId| self.held.iter().any(|held| held.forwarded() == Some(*id));
            if wanted.iter().all(has) {
                return true;
            }
            if self.held.len() >= SEARCHED {
                return false;
            }
            let Ok(mail) = self.port.mail.try_recv() else { return false };
            self.held.push_back(mail);
        }
    }

    /// Lets the dispatcher put open mail into the mailbox. It may be the answer to a question, which only the dispatcher
    /// knows.
    async fn bring(&mut self, wanted: &[MailId]) {
        let Some(cluster) = &self.services.cluster else { return };
        let open = match cluster.mail.open_mail(self.services.boot, Some(&self.lease.session), OPEN_MAX).await {
            Ok(open) => open,
            Err(error) => return tracing::warn!(%error, "earlier mail of other nodes cannot be read"),
        };
        let mut ready = Vec::new();
        for open in open.into_iter().filter(|open| wanted.contains(&open.mail.id)) {
            match unpack(&self.services, cluster, open).await {
                Ok(mail) => ready.extend(mail),
                Err(error) => tracing::warn!(%error, "earlier mail of another node waits for the store"),
            }
        }
        let (handled, elsewhere) = oneshot::channel();
        note(&self.port.notes, LaneNote::Brought { mail: ready, handled }).await;
        // Fails only when the dispatcher ends.
        for mail in elsewhere.await.unwrap_or_default() {
            self.taken.take(mail);
        }
    }

    /// Refuses a message. Mail that may be accepted later stays open, and comes first again.
    pub(super) async fn turn_away(&mut self, input: LaneInput, refusal: Refusal) {
        if may_pass(&refusal) {
            self.taken.leave(input.forwarded);
        }
        refuse(&self.port.notes, input, refusal).await;
    }

    async fn send_back(&mut self, mail: LaneMail, refusal: Refusal) {
        match mail {
            LaneMail::Input(input) => self.turn_away(*input, refusal).await,
            other => refuse_mail(&self.port, other, refusal).await,
        }
    }

    /// Forgets a message whose mail is answered already: somebody has stopped it, or it was accepted before.
    pub(super) async fn pass_answered(&mut self, input: LaneInput) -> Result<(), LeaseLost> {
        self.taken.accepted(input.forwarded);
        let paused = self.state.paused().map(|paused| &paused.waiting);
        let mut alive = self.state.current().into_iter().chain(paused).chain(&self.queue);
        if alive.any(|waiting| waiting.run.id == input.run.id) {
            return Ok(());
        }
        let refusal = Refusal::Decided("This message was stopped before its work began.".to_owned());
        let outcome = Settled::Refused { refusal, reply_to: None };
        note(&self.port.notes, LaneNote::Settled { run: input.run.id, key: input.inbound.key, outcome }).await;
        Ok(())
    }
}
