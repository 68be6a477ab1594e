//! The lane's side of its channels with the dispatcher: sends notes, and refuses mail that the lane cannot accept.

use std::time::Duration;

use belay_protocol::{Ack, IdempotencyKey, Refusal, StoreError};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::LeaseLost;
use crate::mail::{LaneCommand, LaneInput, LaneMail, LaneNote, LanePort, Settled};
use belay_run::retry::STORE;

/// Closes the mailbox and refuses all mail in it. None of it was accepted.
pub(super) async fn refuse_all(port: &mut LanePort, refusal: Refusal) {
    port.mail.close();
    while let Some(mail) = port.mail.recv().await {
        refuse_mail(port, mail, refusal.clone()).await;
    }
}

/// Refuses all mail that arrives during a pause.
pub(super) async fn refuse_for(port: &mut LanePort, refusal: Refusal, pause: Duration) {
    let until = Instant::now() + pause;
    while let Ok(Some(mail)) = timeout_at(until, port.mail.recv()).await {
        refuse_mail(port, mail, refusal.clone()).await;
    }
    sleep_until(until).await;
}

/// Repeats a query until the store answers, and refuses mail that arrives meanwhile. `what` describes the failure in
/// the log.
pub(super) async fn until_stored<T, F: Future<Output = Result<T, StoreError>>>(
    port: &mut LanePort,
    what: &'static str,
    ask: impl Fn() -> F,
) -> Result<T, LeaseLost> {
    let mut pauses = STORE.pauses();
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(StoreError::LeaseLost(_)) => return Err(LeaseLost),
            Err(error) => {
                tracing::error!(%error, session = %port.session, "{what}; trying again");
                refuse_for(port, Refusal::Store(error.to_string()), pauses.next_pause()).await;
            }
        }
    }
}

pub(super) async fn refuse_mail(port: &LanePort, mail: LaneMail, refusal: Refusal) {
    let LanePort { notes, session, .. } = port;
    match mail {
        LaneMail::Input(input) => refuse(notes, *input, refusal).await,
        LaneMail::Command(command) => refuse_command(notes, *command, refusal).await,
        LaneMail::Answer(answer) => {
            not_acted_on(notes, answer.sent.map(|sent| sent.key)).await;
            let say = answer.reply_to.map(|route| (route, refusal.to_string()));
            answer.ack.send(Ack::Refused(refusal));
            note(notes, LaneNote::Commanded { session: session.clone(), say }).await;
        }
    }
}

pub(super) async fn refuse(notes: &mpsc::Sender<LaneNote>, input: LaneInput, refusal: Refusal) {
    input.ack.send(Ack::Refused(refusal.clone()));
    let outcome = Settled::Refused { refusal, reply_to: input.inbound.reply_to };
    note(notes, LaneNote::Settled { run: input.run.id, key: input.inbound.key, outcome }).await;
}

/// Refuses a command that was not carried out.
pub(super) async fn refuse_command(notes: &mpsc::Sender<LaneNote>, command: LaneCommand, refusal: Refusal) {
    not_acted_on(notes, command.sent.map(|sent| sent.key)).await;
    let say = command.reply_to.map(|route| (route, refusal.to_string()));
    command.ack.send(Ack::Refused(refusal));
    note(notes, LaneNote::Commanded { session: command.session, say }).await;
}

/// Makes the dispatcher forget the key of refused mail. Call it before the refusal is sent: mail that is sent again
/// because of the refusal must not count as a duplicate.
pub(super) async fn not_acted_on(notes: &mpsc::Sender<LaneNote>, key: Option<IdempotencyKey>) {
    if let Some(key) = key {
        note(notes, LaneNote::NotActedOn { key }).await;
    }
}

/// Sends a note to the dispatcher. If the dispatcher has ended, the note is dropped: all lanes end with it.
pub(super) async fn note(notes: &mpsc::Sender<LaneNote>, what: LaneNote) {
    let _ = notes.send(what).await;
}
