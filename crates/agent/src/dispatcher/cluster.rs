//! Lanes that come from other nodes of a cluster, and go to them. A daemon that is alone has none.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use belay_protocol::store::UnfinishedRun;
use belay_protocol::{
    Ack, Body, ClaimMode, MailId, Refusal, RunId, SessionKey, SessionLifetime, StoreError, Topic, UnixMillis,
};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::admission::{Sender, bytes_of};
use super::guards::Arrival;
use super::{Dispatcher, TaskEnd, end_processes};
use crate::agent_services::{AgentServices, ClusterServices};
use crate::lane::{LaneStart, OPEN_MAX, is_message, mail_of, unpack, wait_for_answer};
use crate::mail::{LaneAnswer, LaneCommand, LaneInput, LaneMail, LaneNote, RoutedMail};
use crate::queue::BUSY_RETRY;
use crate::submission::Submission;
use belay_run::restart::supervise;

/// Shortest time between two readings of what other nodes have left. 1 s: a lane of a dead node waits for 15 s already.
const LOOK: Duration = Duration::from_secs(1);

impl Dispatcher {
    /// Begins to look for runs whose node has ended, if this is a node of a cluster.
    pub(super) fn watch_nodes(&mut self) {
        let Some(cluster) = self.services.cluster.clone() else { return };
        let (services, notes, draining) = (self.services.clone(), self.notes.clone(), self.services.draining.clone());
        self.tasks.spawn(async move {
            let look = || async {
                let mut changes = cluster.hints.changes(Topic::Nodes);
                while changed(&mut changes, &draining).await {
                    find_unfinished(&services, &notes).await;
                }
            };
            supervise("nodes", draining.clone(), look).await;
            TaskEnd::Background
        });
    }

    /// Begins to look for mail of other nodes, if this is a node of a cluster.
    pub(super) fn watch_mail(&mut self) {
        let Some(cluster) = self.services.cluster.clone() else { return };
        let (services, notes, draining) = (self.services.clone(), self.notes.clone(), self.services.draining.clone());
        self.spawn(async move {
            let look = || async {
                let mut changes = cluster.hints.changes(Topic::Mail);
                let mut routed = HashMap::new();
                loop {
                    route_open(&services, &cluster, &notes, &mut routed).await;
                    tokio::select! {
                        biased; // nothing is routed after the drain has begun
                        () = draining.cancelled() => return,
                        changed = changes.changed() => if changed.is_err() { return },
                    }
                }
            };
            supervise("mail", draining.clone(), look).await;
        });
    }

    /// Begins to repeat `work` whenever other nodes may have changed something, if this is a node of a cluster. It ends when
    /// the drain begins.
    pub(super) fn watch<F>(
        &mut self,
        task: &'static str,
        topic: Topic,
        work: impl Fn(Arc<AgentServices>, mpsc::Sender<LaneNote>) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<(), StoreError>> + Send,
    {
        let Some(cluster) = self.services.cluster.clone() else { return };
        let (services, notes, draining) = (self.services.clone(), self.notes.clone(), self.services.draining.clone());
        self.spawn(async move {
            let look = || async {
                let mut changes = cluster.hints.changes(topic);
                loop {
                    if let Err(error) = work(services.clone(), notes.clone()).await {
                        tracing::warn!(%error, task, "the changes of other nodes cannot be read; trying again");
                    }
                    tokio::select! {
                        biased; // the drain first
                        () = draining.cancelled() => return,
                        changed = changes.changed() => if changed.is_err() { return },
                    }
                }
            };
            supervise(task, draining.clone(), look).await;
        });
    }

    /// Runs a task that ends by itself.
    pub(super) fn spawn(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(async move {
            work.await;
            TaskEnd::Background
        });
    }

    /// Waits for the answer to mail that was sent to another node.
    pub(super) fn await_answer(&mut self, id: MailId, at: UnixMillis, session: SessionKey, mail: LaneMail) {
        let Some(cluster) = self.services.cluster.clone() else { return };
        let notes = self.notes.clone();
        self.spawn(wait_for_answer(cluster, notes, (id, at), session, mail));
    }

    /// Puts mail of another node into its lane. If another node has the lane, its task leaves the mail to that node. Returns
    /// the mail if it was handled without the lane.
    pub(super) fn route_mail(&mut self, mail: RoutedMail) -> Option<MailId> {
        let cluster = self.services.cluster.clone()?;
        if let Some(session) = mail.run.and_then(|run| self.sessions.get(&run)) {
            // It is on its way. If this node has sent it to a node that has ended, the lane can be claimed now.
            self.lanes.get(session).iter().for_each(|lane| lane.wake.notify_one());
            return None;
        }
        let (id, session) = (mail.id, mail.session.clone());
        if self.handled.contains(&id) {
            return Some(id);
        }
        let (mail, answering) = mail_of(mail, self.services.clone(), cluster)?;
        let handled = match mail {
            LaneMail::Input(input) => self.route_input(*input).is_break(),
            LaneMail::Command(command) => {
                self.route_command(command);
                false
            }
            LaneMail::Answer(answer) => {
                self.route_answer(&session, answer);
                false
            }
        };
        if !handled {
            self.spawn(answering);
            return None;
        }
        self.handled.insert(id);
        self.tasks.spawn(async move {
            answering.await;
            TaskEnd::Mail(id)
        });
        Some(id)
    }

    /// Puts a message of another node into its lane, unless it is an answer or a redelivery: then it is handled.
    fn route_input(&mut self, input: LaneInput) -> ControlFlow<()> {
        let LaneInput { run, inbound, text, sent, repeat, checked, forwarded, ack } = input;
        let is_edit = matches!(inbound.body, Body::Edit(_));
        let submission = repeat.clone().map_or(Submission::Input, Submission::Repeat);
        let mut message = Arrival { inbound, ack, text, sent, submission };
        for guard in [Self::first_delivery, Self::take_secret] {
            if !is_edit && !message.inbound.work.is_autonomous() {
                match guard(self, message) {
                    ControlFlow::Continue(passed) => message = passed,
                    ControlFlow::Break(_) => return ControlFlow::Break(()),
                }
            }
        }
        let Arrival { inbound, ack, text, sent, .. } = message;
        let sender = Sender::of(&inbound).map(|sender| (sender, bytes_of(&text, &inbound)));
        let lane = self.lane(&inbound.session, inbound.lifetime);
        let input = LaneInput { run: run.clone(), inbound, text, sent: sent.clone(), repeat, checked, forwarded, ack };
        if let Err(mail) = lane.post(LaneMail::Input(Box::new(input))) {
            refuse(mail);
            return ControlFlow::Continue(());
        }
        lane.runs.push(run.clone());
        if let Some((sender, bytes)) = sender {
            self.admission.add(run.id, sender, bytes);
        }
        self.sessions.insert(run.id, run.session.clone());
        if let Some(sent) = sent {
            self.keys.take_in(run, sent);
        }
        ControlFlow::Continue(())
    }

    fn route_answer(&mut self, session: &SessionKey, mut answer: Box<LaneAnswer>) {
        if let Some(sent) = answer.sent.clone() {
            let Some(ack) = self.keys.join(&sent.key, &answer.word, answer.ack) else { return };
            answer.ack = ack;
            let acted_on = answer.reply.acted_on(sent);
            answer.ack = self.keys.act_on(acted_on, answer.ack);
        }
        self.post_answer(session, answer);
    }

    fn route_command(&mut self, mut command: Box<LaneCommand>) {
        if let Some(sent) = command.sent.clone() {
            let Some(ack) = self.keys.join(&sent.key, &command.word, command.ack) else { return };
            command.ack = self.keys.act_on(sent.into(), ack);
        }
        let (session, key) = (command.session.clone(), command.sent.as_ref().map(|sent| sent.key.clone()));
        let lane = self.lane(&session, SessionLifetime::Lasting);
        match lane.post(LaneMail::Command(command)) {
            Ok(()) => lane.commands += 1,
            Err(mail) => {
                key.iter().for_each(|key| self.keys.not_acted_on(key));
                refuse(mail);
            }
        }
    }

    /// Takes over the runs of nodes that have ended. A session that is known here keeps its lane.
    pub(super) fn take_over(&mut self, runs: Vec<UnfinishedRun>) {
        if self.services.draining.is_cancelled() {
            return;
        }
        let mut new = Vec::new();
        for run in runs {
            match self.lanes.get(&run.session) {
                None => new.push(run),
                // This node had the lane, and does not know yet that another one has taken it since.
                Some(lane) if !self.sessions.contains_key(&run.run_id) => {
                    lane.stale.store(true, Ordering::Release);
                    lane.wake.notify_one();
                }
                Some(_) => {}
            }
        }
        if new.is_empty() {
            return;
        }
        tracing::info!(runs = new.len(), "runs of nodes that have ended are taken over");
        self.adopt(new);
        self.resume_next();
    }

    /// Forgets runs of a session whose lane another node owns.
    pub(super) fn leave(&mut self, session: &SessionKey, runs: Vec<RunId>) {
        runs.into_iter().for_each(|run| self.forget(run));
        if let Some(lane) = self.lanes.get_mut(session) {
            lane.opening = false;
        }
        self.resumed(session);
    }

    /// Ends what is left of a lane that another owner has taken, and opens the lane anew for the mail that it had not
    /// accepted.
    pub(super) fn lease_lost(
        &mut self,
        session: SessionKey,
        mut mail: Vec<LaneMail>,
        mut mailbox: mpsc::Receiver<LaneMail>,
    ) {
        let Some(lane) = self.lanes.get(&session) else { return };
        if mailbox.is_closed() && !lane.is_without_task() {
            return; // the lane refused its mail, and the session has another task already
        }
        mailbox.close();
        while let Ok(late) = mailbox.try_recv() {
            mail.push(late);
        }
        // Mail of other nodes stays in the store, for the new owner.
        for foreign in mail.extract_if(.., |mail| mail.forwarded().is_some()) {
            foreign.acted_on_key().iter().for_each(|key| self.keys.not_acted_on(key));
        }
        let returned: HashSet<RunId> = mail.iter().filter_map(LaneMail::run).collect();
        for run in lane.runs.iter().filter(|run| run.activity.has_begun()) {
            end_processes(&mut self.tasks, &self.services, run);
        }
        if mail.is_empty() {
            return; // the end of its task makes the dispatcher forget its runs
        }
        let gone: Vec<RunId> = lane.runs.iter().map(|run| run.id).filter(|run| !returned.contains(run)).collect();
        gone.into_iter().for_each(|run| self.forget(run));
        let Some(lost) = self.lanes.remove(&session) else { return };
        let lifetime = mail.iter().find_map(LaneMail::lifetime).unwrap_or(SessionLifetime::Lasting);
        let commands = mail.iter().filter(|mail| mail.run().is_none()).count();
        let lane = self.spawn_lane(LaneStart {
            session: session.clone(),
            lifetime,
            claim: ClaimMode::Idle,
            mail,
            adopted: Vec::new(),
            insist: false,
            crashes: 0,
            wait_permit: None,
        });
        self.lanes.insert(session, super::Lane { runs: lost.runs, commands, listed: lost.listed, ..lane });
    }
}

/// How long a message that is routed and not answered is left to its lane. 30 s: a lane that is busy with a slow store
/// answers in that time.
const ROUTE_AGAIN: Duration = Duration::from_secs(30);

/// Routes the open mail of other nodes. `routed`: the mail that was routed before, with the time.
async fn route_open(
    services: &AgentServices,
    cluster: &ClusterServices,
    notes: &mpsc::Sender<LaneNote>,
    routed: &mut HashMap<MailId, Instant>,
) {
    let open = match cluster.mail.open_mail(services.boot, None, OPEN_MAX).await {
        Ok(open) => open,
        Err(error) => return tracing::warn!(%error, "mail of other nodes cannot be read; trying again"),
    };
    let still_open: HashSet<MailId> = open.iter().map(|open| open.mail.id).collect();
    routed.retain(|id, _| still_open.contains(id));
    let (mut ready, mut waiting) = (Vec::new(), HashSet::new());
    for open in open {
        let id = open.mail.id;
        if waiting.contains(&open.mail.session) {
            continue; // it comes after mail that cannot be read yet
        }
        let before = routed.get(&id).is_some_and(|at| at.elapsed() < ROUTE_AGAIN);
        if before || (routed.contains_key(&id) && !is_message(&open)) {
            continue; // a command that takes long must not be begun twice
        }
        let session = open.mail.session.clone();
        match unpack(services, cluster, open).await {
            Ok(Some(mail)) => {
                routed.insert(id, Instant::now());
                ready.push(mail);
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "mail of another node waits for the store");
                waiting.insert(session);
            }
        }
    }
    if !ready.is_empty() {
        let _ = notes.send(LaneNote::Routed(ready)).await; // fails only when the dispatcher ends
    }
}

/// Refuses mail of another node that found its mailbox full.
fn refuse(mail: LaneMail) {
    let what = "too many messages of this conversation are waiting".to_owned();
    let refusal = Ack::Refused(Refusal::Busy { what, retry_after: BUSY_RETRY });
    match mail {
        LaneMail::Input(input) => input.ack.send(refusal),
        LaneMail::Command(command) => command.ack.send(refusal),
        LaneMail::Answer(answer) => answer.ack.send(refusal),
    }
}

/// Waits for a change, at least [`LOOK`] after the one before. `false`: the daemon shuts down, or there are no hints.
async fn changed(changes: &mut watch::Receiver<u64>, draining: &CancellationToken) -> bool {
    let next = async {
        sleep(LOOK).await;
        changes.changed().await.is_ok()
    };
    tokio::select! {
        biased; // nothing is taken over after the drain has begun
        () = draining.cancelled() => false,
        changed = next => changed,
    }
}

/// Reports the runs that no living node has.
async fn find_unfinished(services: &AgentServices, notes: &mpsc::Sender<LaneNote>) {
    match services.store.dispatcher.unfinished_runs().await {
        Ok(runs) if runs.is_empty() => {}
        // Fails only when the dispatcher ends.
        Ok(runs) => drop(notes.send(LaneNote::Unfinished(runs)).await),
        Err(error) => tracing::warn!(%error, "the runs of nodes that have ended cannot be read; trying again"),
    }
}
