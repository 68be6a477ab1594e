//! The test's end of a channel: messages in, deliveries out.

use std::sync::Arc;

use belay_protocol::inbound::HistoryLine;
use belay_protocol::{
    Accepted, Ack, AckSender, Body, Channel as _, ChannelId, Control, DeclaredOutput, Envelope, IdempotencyKey,
    Inbound, Outbound, Principal, PrincipalRole, QueueMode, ReplyRoute, RunOptions, RunRecord, RunStatus,
    SessionLifetime, Work,
};
use tokio::sync::mpsc;

use super::{PATIENCE, ProbeChannel};

/// The test's end of a channel.
pub(crate) struct Talker {
    pub(crate) channel: ChannelId,
    tx: mpsc::Sender<Envelope>,
    pub(crate) delivered: mpsc::Receiver<Outbound>,
    pub(crate) probe: Arc<ProbeChannel>,
}

impl Talker {
    pub(super) fn new(
        probe: Arc<ProbeChannel>,
        tx: mpsc::Sender<Envelope>,
        delivered: mpsc::Receiver<Outbound>,
    ) -> Self {
        Self { channel: probe.id().clone(), tx, delivered, probe }
    }

    pub(crate) fn inbound(&self, session: &str, role: PrincipalRole, body: Body, key: Option<&str>) -> Inbound {
        Inbound {
            key: key.map(|key| IdempotencyKey {
                channel: self.channel.clone(),
                account: session.into(),
                message_id: key.into(),
            }),
            reply_to: Some(ReplyRoute { channel: self.channel.clone(), conversation: session.into(), reply_to: None }),
            ..Inbound::new(self.channel.clone(), session.into(), Principal { id: "tester".into(), role }, body)
        }
    }

    pub(crate) async fn send(&self, inbound: Inbound) -> Ack {
        let (ack, answer) = AckSender::channel();
        self.tx.send(Envelope { inbound, ack }).await.expect("the agent listens");
        tokio::time::timeout(PATIENCE, answer).await.expect("an acknowledgement").expect("answered")
    }

    pub(crate) async fn text_as(&self, session: &str, role: PrincipalRole, text: &str) -> Ack {
        self.send(self.inbound(session, role, Body::Text(text.into()), None)).await
    }

    /// Sends a text as an operator.
    pub(crate) async fn text(&self, session: &str, text: &str) -> Ack {
        self.text_as(session, PrincipalRole::Operator, text).await
    }

    /// Sends a text as this person.
    pub(crate) async fn text_of(&self, who: &str, session: &str, text: &str) -> Ack {
        let inbound = self.inbound(session, PrincipalRole::User, Body::Text(text.into()), None);
        let principal = Principal { id: who.into(), role: PrincipalRole::User };
        self.send(Inbound { principal, ..inbound }).await
    }

    /// Sends a text that asks this of its run.
    pub(crate) async fn text_with(&self, session: &str, text: &str, options: RunOptions) -> Ack {
        let inbound = self.inbound(session, PrincipalRole::Operator, Body::Text(text.into()), None);
        self.send(Inbound { options, ..inbound }).await
    }

    /// Sends a text that a platform has relayed from a group.
    pub(crate) async fn relayed(&self, session: &str, text: &str) -> Ack {
        let inbound = self.inbound(session, PrincipalRole::User, Body::Text(text.into()), None);
        self.send(Inbound { relayed: true, ..inbound }).await
    }

    /// Sends a text that asks this of its run, and wants to read along.
    pub(crate) async fn asking(&self, session: &str, text: &str, options: RunOptions) -> Accepted {
        let inbound = self.inbound(session, PrincipalRole::Operator, Body::Text(text.into()), None);
        match self.send(Inbound { options, want_deltas: true, ..inbound }).await {
            Ack::Accepted(accepted) => accepted,
            other => panic!("{text:?} was not accepted: {other:?}"),
        }
    }

    /// The next delivered message.
    pub(crate) async fn next_message(&mut self) -> Outbound {
        let next = tokio::time::timeout(PATIENCE, self.delivered.recv()).await.expect("a delivery");
        next.expect("the agent delivers")
    }

    /// Sends a text with an idempotency key.
    pub(crate) async fn keyed(&self, session: &str, text: &str, key: &str) -> Ack {
        self.send(self.inbound(session, PrincipalRole::Operator, Body::Text(text.into()), Some(key))).await
    }

    /// The same, of a text that asks this of its run and must come up with these outputs.
    pub(crate) async fn keyed_with(
        &self,
        session: &str,
        text: &str,
        key: &str,
        options: RunOptions,
        outputs: Vec<DeclaredOutput>,
    ) -> Ack {
        let inbound = self.inbound(session, PrincipalRole::Operator, Body::Text(text.into()), Some(key));
        self.send(Inbound { options, outputs, ..inbound }).await
    }

    pub(crate) async fn control_as(&self, role: PrincipalRole, control: Control) -> Ack {
        self.send(self.inbound("control", role, Body::Control(control), None)).await
    }

    pub(crate) async fn control(&self, control: Control) -> Ack {
        self.send(self.inbound("control", PrincipalRole::Operator, Body::Control(control), None)).await
    }

    /// Sends a text that must be accepted.
    pub(crate) async fn accepted(&self, session: &str, text: &str) -> Accepted {
        match self.text(session, text).await {
            Ack::Accepted(accepted) => accepted,
            other => panic!("{text:?} was not accepted: {other:?}"),
        }
    }

    /// Sends a command and returns its answer; its delivery to the conversation is taken too.
    pub(crate) async fn command(&mut self, session: &str, text: &str) -> String {
        let reply = match self.text(session, text).await {
            Ack::Command(reply) => reply.reply,
            other => panic!("{text:?} was not answered as a command: {other:?}"),
        };
        assert_eq!(self.next().await, reply);
        reply
    }

    /// The next delivered text.
    pub(crate) async fn next(&mut self) -> String {
        let next = tokio::time::timeout(PATIENCE, self.delivered.recv()).await.expect("a delivery");
        next.expect("the agent delivers").text
    }

    /// Sends a text and returns the next delivery.
    pub(crate) async fn ask(&mut self, session: &str, text: &str) -> String {
        self.accepted(session, text).await;
        self.next().await
    }

    /// Sends a text whose answer is not delivered: the sender reads the run.
    pub(crate) async fn silently(&self, session: &str, text: &str) -> Ack {
        let inbound = self.inbound(session, PrincipalRole::Client, Body::Text(text.into()), None);
        self.send(Inbound { reply_to: None, ..inbound }).await
    }

    /// The same, which must be accepted.
    pub(crate) async fn unanswered(&self, session: &str, text: &str) -> Accepted {
        match self.silently(session, text).await {
            Ack::Accepted(accepted) => accepted,
            other => panic!("{text:?} was not accepted: {other:?}"),
        }
    }

    /// Sends a text in a session that is created for it, whose sender reads the run; it must be accepted.
    pub(crate) async fn for_one_request(&self, session: &str, text: &str) -> Accepted {
        let inbound = self.inbound(session, PrincipalRole::Client, Body::Text(text.into()), None);
        match self.send(Inbound { reply_to: None, lifetime: SessionLifetime::Ephemeral, ..inbound }).await {
            Ack::Accepted(accepted) => accepted,
            other => panic!("{text:?} was not accepted: {other:?}"),
        }
    }

    /// Sends a text with a history.
    pub(crate) async fn with_history(&self, session: &str, text: &str, history: Vec<HistoryLine>) -> Ack {
        let inbound = self.inbound(session, PrincipalRole::Operator, Body::Text(text.into()), None);
        self.send(Inbound { history, ..inbound }).await
    }

    /// Sends what a user says in a message that claims to be this work.
    pub(crate) async fn claiming(&self, work: Work, session: &str, body: Body) -> Ack {
        let inbound = self.inbound(session, PrincipalRole::User, body, None);
        self.send(Inbound { work, ..inbound }).await
    }

    /// Sends a text in the name of another principal.
    pub(crate) async fn said_by(&self, who: Principal, session: &str, body: Body) -> Ack {
        let inbound = self.inbound(session, who.role, body, None);
        self.send(Inbound { principal: who, ..inbound }).await
    }

    /// Sends a text that asks this of its run.
    pub(crate) async fn with_options(&self, session: &str, text: &str, options: RunOptions) -> Ack {
        let inbound = self.inbound(session, PrincipalRole::Operator, Body::Text(text.into()), None);
        self.send(Inbound { options, ..inbound }).await
    }

    /// Sends a text that must come up with these outputs.
    pub(crate) async fn with_outputs(&self, session: &str, text: &str, outputs: Vec<DeclaredOutput>) -> Ack {
        self.with_outputs_and(session, text, outputs, RunOptions::default()).await
    }

    /// The same with options.
    pub(crate) async fn with_outputs_and(
        &self,
        session: &str,
        text: &str,
        outputs: Vec<DeclaredOutput>,
        options: RunOptions,
    ) -> Ack {
        let inbound = self.inbound(session, PrincipalRole::Operator, Body::Text(text.into()), None);
        self.send(Inbound { outputs, options, ..inbound }).await
    }

    /// Sends a text and listens to every word of the answer.
    pub(crate) async fn watching(&self, session: &str, text: &str) -> Accepted {
        let inbound = self.inbound(session, PrincipalRole::Operator, Body::Text(text.into()), None);
        match self.send(Inbound { want_deltas: true, ..inbound }).await {
            Ack::Accepted(accepted) => accepted,
            other => panic!("{text:?} was not accepted: {other:?}"),
        }
    }

    /// Somebody else who writes in the same channel, and does not read it.
    pub(crate) fn writer(&self) -> Talker {
        let (_, delivered) = mpsc::channel(1);
        Talker { channel: self.channel.clone(), tx: self.tx.clone(), delivered, probe: self.probe.clone() }
    }

    /// Sends a text that asks for this mode.
    pub(crate) async fn in_mode(&self, session: &str, mode: QueueMode, text: &str) -> Accepted {
        let inbound = self.inbound(session, PrincipalRole::Operator, Body::Text(text.into()), None);
        let options = RunOptions { queue: Some(mode), ..RunOptions::default() };
        match self.send(Inbound { options, ..inbound }).await {
            Ack::Accepted(accepted) => accepted,
            other => panic!("{text:?} was not accepted: {other:?}"),
        }
    }

    /// The same, for another conversation of the same session.
    pub(crate) async fn elsewhere(&self, session: &str, place: &str, mode: QueueMode, text: &str) -> Accepted {
        let inbound = self.inbound(session, PrincipalRole::Operator, Body::Text(text.into()), None);
        let options = RunOptions { queue: Some(mode), ..RunOptions::default() };
        let reply_to = inbound.reply_to.clone().map(|route| ReplyRoute { conversation: place.into(), ..route });
        match self.send(Inbound { options, reply_to, ..inbound }).await {
            Ack::Accepted(accepted) => accepted,
            other => panic!("{text:?} was not accepted: {other:?}"),
        }
    }

    /// Lets the channel go on yielding while the agent drains, as one does that can still take control.
    pub(crate) fn keep_open(&self) {
        self.probe.keep_open();
    }

    /// Ends the channel's stream.
    pub(crate) fn hang_up(self) -> mpsc::Receiver<Outbound> {
        self.delivered
    }
}

/// Waits for the end of an accepted run.
pub(crate) async fn end_of(accepted: Accepted) -> Arc<RunRecord> {
    let mut finished = accepted.watch.expect("alive").finished;
    let ended = |record: &Option<Arc<RunRecord>>| record.as_ref().is_some_and(|record| record.status.is_end());
    let record = tokio::time::timeout(PATIENCE, finished.wait_for(ended)).await.expect("an end");
    record.expect("published").clone().expect("some")
}

/// Waits until an accepted run is paused on an approval request.
pub(crate) async fn rest_of(accepted: &mut Accepted) -> Arc<RunRecord> {
    let finished = &mut accepted.watch.as_mut().expect("alive").finished;
    let record = tokio::time::timeout(PATIENCE, finished.wait_for(Option::is_some)).await.expect("a rest");
    let record = record.expect("published").clone().expect("some");
    assert_eq!(record.status, RunStatus::Paused);
    record
}
