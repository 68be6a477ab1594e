//! A lane that another node owns: its mail goes to that node through the store.
//!
//! ```text
//! this node                                   the owner of the lane
//! lane task ── send ──▶ table of mail ──▶ dispatcher ──▶ lane
//! wait_for_answer ◀──── its answer ◀───── mail_of ◀── acknowledgement
//! ```
//!
//! Before each mail the lane is claimed again: it comes here once it is idle, or once its owner has ended. Mail that
//! waits in the table comes first then, see [`find_mail`] and [`super::place`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::cluster::{NodeMail, OpenMail};
use belay_protocol::store::{MailEnd, joined_end};
use belay_protocol::{
    Ack, AckSender, BootId, KnownInput, MailId, Refusal, RunEnd, RunId, SessionKey, StopReason, StoreError, Topic,
    UnixMillis,
};
use belay_protocol::{ApprovalFilter, ApprovalKind, Secret};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::port::{not_acted_on, note, refuse_all, refuse_mail};
use super::wire::{WireAck, WireMail};
use crate::agent_services::{AgentServices, ClusterServices};
use crate::claims::UNKNOWN;
use crate::mail::{LaneMail, LaneNote, LanePort, RoutedMail, Settled};
use crate::queue::BUSY_RETRY;
use belay_run::retry::until_stored;

/// Time after which a message is acknowledged without an answer of the owner of its lane. It is in the store then. 2 s:
/// an owner that lives answers within 1.3 s of its last look.
const ACCEPT_AFTER: Duration = Duration::from_secs(2);
/// Time in which the store must record that such a message is acknowledged. 8 s: with [`ACCEPT_AFTER`] as long as a
/// person waits.
const PROMISE_WITHIN: Duration = Duration::from_secs(8);
/// Time after which a command, or an answer to a question, is given up. 10 s: an owner that has died is noticed after 15 s,
/// which is longer than a person waits.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);
/// Pause between two readings of answers if there are no hints.
const LOOK: Duration = Duration::from_secs(1);
/// Most open mail that is read at a time. 1000: more than the messages of all people that wait for one node.
pub(crate) const OPEN_MAX: u32 = 1000;

/// The next step of the lane's task.
pub(super) enum Next {
    /// It claims the lane again.
    Claim,
    /// It ends.
    End,
}

/// Sends mail to the owner of the lane, and waits for more.
pub(super) async fn forward(
    services: &AgentServices,
    cluster: &ClusterServices,
    port: &mut LanePort,
    held: &mut VecDeque<LaneMail>,
    owner: BootId,
) -> Next {
    tracing::debug!(session = %port.session, %owner, mail = held.len(), "another node owns the lane");
    for mail in std::mem::take(held) {
        match mail.forwarded() {
            Some(_) => leave_open(port, mail).await,
            None => send(services, cluster, port, mail).await,
        }
    }
    tokio::select! {
        biased; // nothing is forwarded after the drain has begun
        () = services.draining.cancelled() => {
            refuse_all(port, Refusal::ShuttingDown).await;
            Next::End
        }
        mail = port.mail.recv() => match mail {
            Some(mail) => {
                held.push_back(mail);
                Next::Claim
            }
            None => Next::End,
        },
        () = port.wake.notified() => Next::Claim,
    }
}

/// Writes mail for the owner of the lane. From then on a task of the dispatcher waits for the answer.
async fn send(services: &AgentServices, cluster: &ClusterServices, port: &LanePort, mail: LaneMail) {
    let (id, at, session) = (MailId::new(), services.clock.now(), port.session.clone());
    let sent = async {
        let body = WireMail::of(&mail).and_then(|wire| serde_json::to_value(wire).ok());
        let mut body = body.ok_or_else(|| StoreError::Unavailable("mail for another node cannot be written".into()))?;
        let mut secret = mail.secret().cloned();
        if mail.run().is_some() && waits_for_secret(services, &session).await? {
            secret = Some(Secret::new(body.to_string()));
            body = json!(WireMail::Sealed);
        }
        if let Some(secret) = &secret {
            services.store.vault.keep(&session, &NodeMail::secret_name(id), secret, at).await?;
        }
        cluster
            .mail
            .send(NodeMail { id, session: session.clone(), source: services.boot, at, run: mail.run(), body })
            .await
    };
    match sent.await {
        Ok(()) => note(&port.notes, LaneNote::Sent { id, at, session, mail: Box::new(mail) }).await,
        Err(error) => {
            tracing::error!(%error, session = %port.session, "mail for another node could not be stored");
            refuse_mail(port, mail, Refusal::Store(error.to_string())).await;
        }
    }
}

/// Whether a run of the session asks a person for a secret. The next message may be that secret.
async fn waits_for_secret(services: &AgentServices, session: &SessionKey) -> Result<bool, StoreError> {
    let filter = ApprovalFilter { session: Some(session.clone()), waiting: true, ..ApprovalFilter::default() };
    let asked = services.store.approvals.approvals(filter).await?;
    Ok(asked.iter().any(|asked| matches!(asked.kind, ApprovalKind::Credential { .. })))
}

/// Forgets mail of another node. It stays open in the store, for the owner of its lane.
pub(super) async fn leave_open(port: &LanePort, mail: LaneMail) {
    let session = port.session.clone();
    match mail {
        LaneMail::Input(input) => {
            note(&port.notes, LaneNote::Foreign { session, runs: vec![input.run.id] }).await;
        }
        LaneMail::Command(command) => {
            not_acted_on(&port.notes, command.sent.map(|sent| sent.key)).await;
            note(&port.notes, LaneNote::Commanded { session, say: None }).await;
        }
        LaneMail::Answer(answer) => {
            not_acted_on(&port.notes, answer.sent.map(|sent| sent.key)).await;
            note(&port.notes, LaneNote::Commanded { session, say: None }).await;
        }
    }
}

/// Waits for the answer to mail that was sent at `at`, and acknowledges the mail.
pub(crate) async fn wait_for_answer(
    cluster: ClusterServices,
    notes: mpsc::Sender<LaneNote>,
    (id, at): (MailId, UnixMillis),
    session: SessionKey,
    mail: LaneMail,
) {
    let limit = if mail.run().is_some() { ACCEPT_AFTER } else { GIVE_UP_AFTER };
    let until = Instant::now() + limit;
    let mut changes = cluster.hints.changes(Topic::Mail);
    let answer = loop {
        if let Some(answer) = answer_to(&cluster, id).await {
            break Some(answer);
        }
        tokio::select! {
            () = sleep_until(until) => break None,
            changed = changes.changed() => if changed.is_err() { sleep(LOOK).await },
            () = sleep(LOOK) => {}
        }
    };
    let answer = match (answer, mail.run()) {
        (Some(answer), _) => answer,
        (None, Some(run)) => {
            let accepted = WireAck::accepted(run, session.clone(), at, None);
            promise(&cluster, id, accepted).await.unwrap_or_else(|| not_promised(&mail))
        }
        (None, None) => give_up(&cluster, id).await,
    };
    acknowledge(&notes, session, mail, answer).await;
}

/// The answer to mail; `None`: there is none yet.
async fn answer_to(cluster: &ClusterServices, id: MailId) -> Option<WireAck> {
    match cluster.mail.answers(&[id]).await {
        Ok(answers) => answers.into_iter().next().and_then(|(_, ack)| serde_json::from_value(ack).ok()),
        Err(error) => {
            tracing::warn!(%error, "the answer of another node cannot be read; trying again");
            None
        }
    }
}

/// Acknowledges a message without an answer: it is in the store, and its owner, or the next one, accepts it under this run.
/// The owner may have answered first. `None`: the store has not answered in time.
async fn promise(cluster: &ClusterServices, id: MailId, accepted: WireAck) -> Option<WireAck> {
    let promised = async {
        loop {
            match cluster.mail.promise(id).await {
                Ok(true) => return accepted,
                Ok(false) => {
                    if let Some(answer) = answer_to(cluster, id).await {
                        return answer;
                    }
                }
                Err(error) => tracing::warn!(%error, mail = %id, "a message cannot be acknowledged; trying again"),
            }
            sleep(LOOK).await;
        }
    };
    timeout(PROMISE_WITHIN, promised).await.ok()
}

/// The refusal of a message that may be accepted all the same. With a key it can be sent again without harm.
fn not_promised(mail: &LaneMail) -> WireAck {
    let has_key = matches!(mail, LaneMail::Input(input) if input.inbound.key.is_some());
    WireAck::Refused(if has_key {
        Refusal::Store("the message may be accepted: send it again with the same key".to_owned())
    } else {
        let what = "Outcome unknown: the database does not answer. Look before you send the message again.";
        Refusal::Decided(what.to_owned())
    })
}

/// Closes mail that was not answered in time, so that no owner begins with it later. The owner may have answered first.
async fn give_up(cluster: &ClusterServices, id: MailId) -> WireAck {
    let what =
        "the node that works on this conversation does not answer; it may have carried this out: look before you \
                repeat it"
            .to_owned();
    let refusal = WireAck::Refused(Refusal::Busy { what, retry_after: BUSY_RETRY });
    let closed = match serde_json::to_value(&refusal) {
        Ok(value) => cluster.mail.answer(id, value, None).await,
        Err(_) => Ok(false), // a refusal is always JSON
    };
    if let Err(error) = closed {
        tracing::warn!(%error, "mail that was given up could not be closed");
    }
    answer_to(cluster, id).await.unwrap_or(refusal)
}

/// Passes the answer to the sender. The owner has told the conversation already, where that was due.
async fn acknowledge(notes: &mpsc::Sender<LaneNote>, session: SessionKey, mail: LaneMail, answer: WireAck) {
    let again = matches!(&answer, WireAck::Refused(refusal) if may_pass(refusal));
    match mail {
        LaneMail::Input(input) => {
            let key = input.inbound.key.clone();
            let outcome = match &answer {
                WireAck::Refused(refusal) => Settled::Refused { refusal: refusal.clone(), reply_to: None },
                WireAck::Accepted { run, session, at, .. } => {
                    let digest = input.sent.map(|sent| sent.digest).unwrap_or_default();
                    let known =
                        KnownInput { run_id: *run, session: session.clone(), accepted_at: UnixMillis(*at), digest };
                    Settled::Known(known)
                }
                // No lane answers a message so.
                WireAck::Command(_) | WireAck::Removed(_) => {
                    Settled::Refused { refusal: Refusal::Store("it was not accepted".into()), reply_to: None }
                }
            };
            input.ack.send(answer.into_ack());
            note(notes, LaneNote::Elsewhere { run: input.run, key, outcome }).await;
        }
        LaneMail::Command(command) => {
            // Before the refusal is sent: the command may come again under its key.
            not_acted_on(notes, command.sent.filter(|_| again).map(|sent| sent.key)).await;
            command.ack.send(answer.into_ack());
            note(notes, LaneNote::Commanded { session, say: None }).await;
        }
        LaneMail::Answer(sent) => {
            not_acted_on(notes, sent.sent.filter(|_| again).map(|sent| sent.key)).await;
            sent.ack.send(answer.into_ack());
            note(notes, LaneNote::Commanded { session, say: None }).await;
        }
    }
}

/// Whether open mail is a message, as far as it can be read.
pub(crate) fn is_message(open: &OpenMail) -> bool {
    matches!(WireMail::of_json(&open.mail.body), Ok(WireMail::Input(_) | WireMail::Sealed))
}

/// Prepares open mail for its lane. Answers mail that is done or cannot be read, and returns `None` for it.
///
/// # Errors
/// The vault does not answer: the mail, and later mail of its session, must wait.
pub(crate) async fn unpack(
    services: &AgentServices,
    cluster: &ClusterServices,
    open: OpenMail,
) -> Result<Option<RoutedMail>, StoreError> {
    let (id, session) = (open.mail.id, open.mail.session.clone());
    let mut body = open.mail.body.clone();
    let read = WireMail::of_json(&body);
    let in_vault = read.as_ref().is_ok_and(WireMail::is_in_vault);
    let mut secret = None;
    if in_vault {
        secret = services.store.vault.find(&session, &NodeMail::secret_name(id)).await?;
    }
    let read = match (read, &secret) {
        (Ok(WireMail::Sealed), Some(sealed)) => {
            body = serde_json::from_str(sealed.expose()).unwrap_or_default();
            WireMail::of_json(&body)
        }
        (read, _) => read,
    };
    let wire = match read {
        Ok(WireMail::Sealed) => {
            tracing::error!(mail = %id, "the vault does not have the mail of another node: do all nodes have the same key?");
            let what = "this could not be decrypted by the node that works on this conversation; send it again";
            close(services, cluster, &open.mail, Refusal::Store(what.to_owned())).await;
            return Ok(None);
        }
        Ok(wire) => wire,
        Err(error) => {
            tracing::error!(%error, mail = %id, "mail of another node cannot be read");
            let what = "the nodes of the cluster do not understand each other: are their versions too different?";
            close(services, cluster, &open.mail, Refusal::Invalid(what.to_owned())).await;
            return Ok(None);
        }
    };
    let (run, is_command) = match &wire {
        WireMail::Input(input) => (Some(input.run), false),
        WireMail::Command(_) | WireMail::Answer(_) | WireMail::Sealed => (None, true),
    };
    if is_command && open.begun {
        close(services, cluster, &open.mail, Refusal::Decided(UNKNOWN.to_owned())).await;
        return Ok(None);
    }
    Ok(Some(RoutedMail { id, session, run, body, secret, in_vault }))
}

/// Refuses mail that no lane gets.
async fn close(services: &AgentServices, cluster: &ClusterServices, mail: &NodeMail, refusal: Refusal) {
    let end = MailEnd { end: refused_end(&refusal), at: services.clock.now() };
    let Ok(value) = serde_json::to_value(WireAck::Refused(refusal)) else { return };
    let in_vault = WireMail::of_json(&mail.body).is_ok_and(|wire| wire.is_in_vault());
    let closed = match cluster.mail.refuse(mail.id, value, Some(end)).await {
        Ok(true) if in_vault => services.store.vault.forget(&mail.session, &NodeMail::secret_name(mail.id)).await,
        other => other,
    };
    if let Err(error) = closed {
        tracing::warn!(%error, mail = %mail.id, "mail of another node could not be closed: it stays open, or its secret stays in the vault");
    }
}

/// The mail for the lane, and the task that writes its acknowledgement as the answer. `None`: it cannot be read, see
/// [`unpack`].
pub(crate) fn mail_of(
    routed: RoutedMail,
    services: Arc<AgentServices>,
    cluster: ClusterServices,
) -> Option<(LaneMail, impl Future<Output = ()> + Send + 'static)> {
    let RoutedMail { id, session, run, body, secret, in_vault } = routed;
    let wire = WireMail::of_json(&body).ok()?;
    let (ack, answer) = AckSender::channel();
    let mail = wire.into_mail(id, secret, ack)?;
    let write = async move {
        let Ok(ack) = answer.await else { return }; // it stays open, for the next owner of the lane
        if matches!(ack, Ack::Refused(Refusal::ShuttingDown)) {
            return; // it stays open, for the next owner of the lane
        }
        // The acceptance has answered the mail already.
        if !matches!(&ack, Ack::Accepted(accepted) if Some(accepted.run_id) == run && !accepted.duplicate) {
            let refused = run.and_then(|run| Unaccepted::of(&ack, run));
            let Some(value) = WireAck::of(ack).and_then(|ack| serde_json::to_value(ack).ok()) else { return };
            let mail = &cluster.mail;
            let answer = || async {
                let at = services.clock.now();
                match &refused {
                    None => mail.answer(id, value.clone(), None).await.map(|_| true),
                    // A repeated refusal finds its own answer.
                    Some(Unaccepted::ForNow) => {
                        Ok(mail.refuse(id, value.clone(), None).await? || !mail.answers(&[id]).await?.is_empty())
                    }
                    Some(Unaccepted::Ended(end)) => {
                        let end = MailEnd { end: end.clone(), at };
                        mail.refuse(id, value.clone(), Some(end)).await.map(|_| true)
                    }
                }
            };
            if until_stored(&services.draining, answer).await != Some(true) {
                return; // it stays open
            }
        }
        if in_vault && let Err(error) = services.store.vault.forget(&session, &NodeMail::secret_name(id)).await {
            tracing::warn!(%error, "the secret of mail that is answered could not be removed");
        }
    };
    Some((mail, write))
}

/// Whether a message that is refused so may be accepted later.
pub(super) fn may_pass(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Busy { .. } | Refusal::Overloaded { .. } | Refusal::Store(_) | Refusal::ShuttingDown)
}

/// A message that was not accepted.
enum Unaccepted {
    /// It may be accepted later: its mail stays open if its sender has acknowledged it.
    ForNow,
    /// Its run ends so if its sender has acknowledged it.
    Ended(RunEnd),
}

impl Unaccepted {
    /// `None`: the run of the message exists.
    fn of(ack: &Ack, run: RunId) -> Option<Self> {
        let end = match ack {
            Ack::Accepted(accepted) if accepted.run_id == run => return None,
            Ack::Accepted(accepted) => joined_end(accepted.run_id, "duplicate"),
            // It was the answer to a question.
            Ack::Command(_) => RunEnd::of(StopReason::Joined).with("mode", "answer"),
            Ack::Refused(refusal) if may_pass(refusal) => return Some(Self::ForNow),
            Ack::Refused(refusal) => refused_end(refusal),
            _ => return None,
        };
        Some(Self::Ended(end))
    }
}

fn refused_end(refusal: &Refusal) -> RunEnd {
    let reason = match refusal {
        Refusal::Forbidden(_) => StopReason::HookRefused,
        _ => StopReason::Internal,
    };
    RunEnd::of(reason).with("refusal", refusal.to_string())
}

/// Finds the open mail of a lane that was just opened, and puts it before all other mail, in order.
pub(super) async fn find_mail(
    services: &Arc<AgentServices>,
    cluster: &ClusterServices,
    port: &LanePort,
    mail: &mut VecDeque<LaneMail>,
) -> Result<(), StoreError> {
    let open = cluster.mail.open_mail(services.boot, Some(&port.session), OPEN_MAX).await?;
    let mut found = VecDeque::new();
    for open in open {
        let routed = match unpack(services, cluster, open).await {
            Ok(Some(routed)) => routed,
            Ok(None) => continue,
            Err(error) => {
                tracing::warn!(%error, session = %port.session, "mail of another node waits for the store");
                break; // what follows must not come before it
            }
        };
        let Some((mail, answering)) = mail_of(routed, services.clone(), cluster.clone()) else { continue };
        note(&port.notes, LaneNote::Background(Box::pin(answering))).await;
        if let LaneMail::Input(input) = &mail {
            note(&port.notes, LaneNote::Recovered { run: input.run.clone() }).await;
        }
        found.push_back(mail);
    }
    // The dispatcher may have brought some of it already.
    mail.retain(|mail| mail.forwarded().is_none());
    found.append(mail);
    *mail = found;
    Ok(())
}
