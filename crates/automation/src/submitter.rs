//! Submits messages of the agent itself to its merged input stream: an attempt of a job, a routine run, a message
//! passed on to a job. The agent handles them like any other message. The acknowledgement of an accepted run contains
//! a watch on that run.

use belay_protocol::{
    Ack, AckSender, Body, ChannelId, Control, Envelope, Inbound, Principal, Purpose, Refusal, RunId, RunWatch,
    SessionKey,
};
use belay_run::retry::STORE;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

/// Messages in the queue that the outer loop has not read yet. When it is full, [`Submitter::send`] waits.
const CAPACITY: usize = 64;

/// An accepted run.
pub(crate) struct Submitted {
    pub(crate) run: RunId,
    /// `None`: the run is not live, or the stored message has another text. The store knows the run.
    pub(crate) watch: Option<RunWatch>,
}

/// Sending half of the queue. Clones share the queue.
#[derive(Clone, Debug)]
pub struct Submitter(mpsc::Sender<Envelope>);

impl Submitter {
    /// Makes the queue: the sending half, and the stream that the outer loop merges with the streams of its channels.
    pub fn new() -> (Self, BoxStream<'static, (ChannelId, Option<Envelope>)>) {
        let (tx, rx) = mpsc::channel(CAPACITY);
        let named = |envelope: Envelope| (envelope.inbound.channel.clone(), Some(envelope));
        (Self(tx), ReceiverStream::new(rx).map(named).boxed())
    }

    /// Submits a message and waits for its acknowledgement. Returns `None` when the agent or the lane ends first; the
    /// message may then have been accepted. A caller can send a message again when it has an idempotency key.
    ///
    /// # Cancel safety
    /// Dropped midway, the message may have been accepted.
    pub async fn send(&self, inbound: Inbound) -> Option<Ack> {
        let (ack, answer) = AckSender::channel();
        self.0.send(Envelope { inbound, ack }).await.ok()?;
        answer.await.ok()
    }

    /// Makes the lane of a session read a new notice, if the lane is open, so that its next turn contains it. A session
    /// without a lane reads it when it gets one.
    pub(crate) async fn refresh(&self, session: SessionKey) {
        let body = Body::Control(Control::Refresh(session.clone()));
        self.send(Inbound::new(Purpose::Routine.channel(), session, Principal::operator("belay"), body)).await;
    }

    /// Submits the message of a run, and repeats until the agent accepts it or refuses it permanently (`Err` with the
    /// reason). The message needs an idempotency key, so that a repetition, even after a crash, finds the same run.
    /// Returns `None` when the agent ends.
    ///
    /// # Cancel safety
    /// Dropped midway, the message may have been accepted.
    pub(crate) async fn submit(
        &self,
        message: &Inbound,
        draining: &CancellationToken,
    ) -> Option<Result<Submitted, String>> {
        let mut pauses = STORE.pauses();
        while !draining.is_cancelled() {
            match self.send(message.clone()).await {
                Some(Ack::Accepted(accepted)) => {
                    return Some(Ok(Submitted { run: accepted.run_id, watch: accepted.watch }));
                }
                // The run exists already, made from a message with another text.
                Some(Ack::Refused(Refusal::Conflict { run_id })) => {
                    return Some(Ok(Submitted { run: run_id, watch: None }));
                }
                Some(Ack::Refused(Refusal::Forbidden(why) | Refusal::Invalid(why))) => return Some(Err(why)),
                // The lane is busy, the store does not answer, or the lane ended.
                _ => pauses.wait(draining).await,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use belay_protocol::{Accepted, Body, Principal, UnixMillis};

    use super::*;

    /// The result of `submit` when the agent gives these answers one after the other.
    async fn submitted(answers: Vec<Ack>) -> Option<Result<RunId, String>> {
        let (submitter, mut stream) = Submitter::new();
        let draining = CancellationToken::new();
        let message = Inbound::new("job".into(), "job".into(), Principal::operator("ann"), Body::Text("do it".into()));
        let agent = async {
            for answer in answers {
                let (_, envelope) = stream.next().await.expect("it is sent again");
                envelope.expect("a message").ack.send(answer);
            }
            draining.cancel();
        };
        let (submitted, ()) = tokio::join!(submitter.submit(&message, &draining), agent);
        submitted.map(|submitted| submitted.map(|submitted| submitted.run))
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_is_sent_until_it_is_a_run_or_refused_for_good() {
        let run_id = RunId::new();
        let accepted = || {
            let (session, accepted_at) = ("job".into(), UnixMillis(0));
            Ack::Accepted(Accepted { run_id, session, accepted_at, duplicate: false, frozen: None, watch: None })
        };
        let refused = |refusal| Ack::Refused(refusal);
        let busy = || refused(Refusal::Busy { what: "full".into(), retry_after: Duration::ZERO });
        for (answers, expected) in [
            (vec![accepted()], Some(Ok(run_id))),
            (vec![busy(), refused(Refusal::Store("away".into())), accepted()], Some(Ok(run_id))),
            (vec![refused(Refusal::Conflict { run_id })], Some(Ok(run_id))),
            (vec![busy(), refused(Refusal::Forbidden("not here".into()))], Some(Err("not here".to_owned()))),
            (vec![refused(Refusal::Invalid("no text".into()))], Some(Err("no text".to_owned()))),
            (vec![busy()], None),
        ] {
            let name = format!("{answers:?}");
            assert_eq!(submitted(answers).await, expected, "{name}");
        }
    }
}
