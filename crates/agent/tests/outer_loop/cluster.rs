//! Two agents over one store, as two nodes of a cluster. A client reads the runs in the store, because the node that it
//! talks to may not be the one that works.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use belay_agent::{AgentParts, ClusterServices, StorePorts};
use belay_protocol::cluster::{NodeMail, OpenMail, OrderTarget};
use belay_protocol::store::MailEnd;
use belay_protocol::{
    Accepted, Ack, Body, BootId, ClusterStore, Hints, Inbound, Lease, MailId, MailStore, PrincipalRole, ProcessesOf,
    QueueMode, Refusal, RunFilter, RunId, RunOptions, RunProcesses, RunReader, RunRecord, RunStatus, SecretVault,
    SessionKey, StillRunning, StoreError, Topic,
};
use belay_store::SqlStore;
use belay_testkit::faulty::Faulty;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::support::{PATIENCE, Running, Setup, Talker, TestTool, ports, saw};

/// Hints that come four times a second, and no others: rows are the truth.
struct Ticks(watch::Sender<u64>);

impl Ticks {
    fn begin() -> Arc<Self> {
        let ticks = Arc::new(Self(watch::Sender::new(0)));
        let weak = Arc::downgrade(&ticks);
        tokio::spawn(async move {
            while let Some(ticks) = weak.upgrade() {
                ticks.0.send_modify(|n| *n += 1);
                drop(ticks);
                sleep(Duration::from_millis(250)).await;
            }
        });
        ticks
    }
}

impl Hints for Ticks {
    fn changes(&self, _topic: Topic) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// Processes that the test only hears of.
#[derive(Default)]
struct Ended {
    runs: Mutex<Vec<RunId>>,
    /// How long each takes to end.
    slow: Mutex<Duration>,
    /// Whose processes in the background were ended.
    background: Mutex<Vec<ProcessesOf>>,
}

#[async_trait]
impl RunProcesses for Ended {
    async fn end(&self, run: RunId) {
        let slow = *self.slow.lock().expect("not poisoned");
        sleep(slow).await;
        self.runs.lock().expect("not poisoned").push(run);
    }

    fn alive(&self, run: RunId) -> Vec<StillRunning> {
        let has_ended = self.runs.lock().expect("not poisoned").contains(&run);
        let still = StillRunning { run_id: run, pid: Some(1), what: "a process".to_owned() };
        (!has_ended && !self.slow.lock().expect("not poisoned").is_zero()).then_some(still).into_iter().collect()
    }

    fn stop_background(&self, of: &ProcessesOf) -> usize {
        self.background.lock().expect("not poisoned").push(of.clone());
        0
    }
}

/// The table of mail, whose bodies the test can read. A blind node does not notice that mail came. A late one refuses mail
/// after [`LATE`]. A mute one cannot record that it acknowledges a message.
struct Seen {
    store: Arc<SqlStore>,
    sent: Arc<Mutex<Vec<String>>>,
    blind: Arc<AtomicBool>,
    late: Arc<AtomicBool>,
    mute: Arc<AtomicBool>,
}

/// Longer than a sender waits for the answer of an owner.
const LATE: Duration = Duration::from_secs(5);

#[async_trait]
impl MailStore for Seen {
    async fn send(&self, mail: NodeMail) -> Result<(), StoreError> {
        self.sent.lock().expect("not poisoned").push(mail.body.to_string());
        self.store.send(mail).await
    }

    async fn open_mail(
        &self,
        owner: BootId,
        session: Option<&SessionKey>,
        limit: u32,
    ) -> Result<Vec<OpenMail>, StoreError> {
        if session.is_none() && self.blind.load(Ordering::Relaxed) {
            return Err(StoreError::Unavailable("the test".into()));
        }
        self.store.open_mail(owner, session, limit).await
    }

    async fn open_messages(&self, target: &OrderTarget, limit: u32) -> Result<Vec<NodeMail>, StoreError> {
        self.store.open_messages(target, limit).await
    }

    async fn take(&self, mail: MailId, lease: &Lease) -> Result<bool, StoreError> {
        self.store.take(mail, lease).await
    }

    async fn answer(&self, mail: MailId, ack: Value, end: Option<MailEnd>) -> Result<bool, StoreError> {
        self.store.answer(mail, ack, end).await
    }

    async fn refuse(&self, mail: MailId, ack: Value, end: Option<MailEnd>) -> Result<bool, StoreError> {
        if self.late.swap(false, Ordering::Relaxed) {
            sleep(LATE).await;
        }
        self.store.refuse(mail, ack, end).await
    }

    async fn promise(&self, mail: MailId) -> Result<bool, StoreError> {
        if self.mute.load(Ordering::Relaxed) {
            return Err(StoreError::Unavailable("the test".into()));
        }
        self.store.promise(mail).await
    }

    async fn answers(&self, mails: &[MailId]) -> Result<Vec<(MailId, Value)>, StoreError> {
        self.store.answers(mails).await
    }
}

/// A store, and what its nodes share.
pub(crate) struct Cluster {
    sent: Arc<Mutex<Vec<String>>>,
    pub(crate) store: Arc<SqlStore>,
    hints: Arc<Ticks>,
    pub(crate) tool: Option<Arc<TestTool>>,
    processes: Arc<Ended>,
    vault: Arc<dyn SecretVault>,
}

/// A node.
pub(crate) struct Node {
    pub(crate) agent: Running,
    pub(crate) boot: BootId,
    /// Whether it does not notice mail, as if it had lost the database for a while.
    pub(crate) blind: Arc<AtomicBool>,
    /// Whether it refuses mail late, once.
    pub(crate) late: Arc<AtomicBool>,
    /// Whether it cannot record that it acknowledges a message.
    pub(crate) mute: Arc<AtomicBool>,
    /// The store as this node sees it.
    pub(crate) store: Arc<Faulty<SqlStore>>,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let store = Arc::new(SqlStore::in_memory().expect("a store in memory opens"));
        let vault = ports(Arc::new(Faulty::new(store.clone()))).vault;
        Self { sent: Arc::default(), store, hints: Ticks::begin(), tool: None, processes: Arc::default(), vault }
    }

    /// From now on, processes of runs take this long to end.
    pub(crate) fn end_slowly(&self, slow: Duration) {
        *self.processes.slow.lock().expect("not poisoned") = slow;
    }

    /// Whether the processes in the background of this run were ended.
    pub(crate) fn has_ended_background(&self, run: RunId) -> bool {
        self.processes.background.lock().expect("not poisoned").contains(&ProcessesOf::Run(run))
    }

    pub(crate) async fn node(&self, name: &str, replies: impl IntoIterator<Item = Scripted>) -> Node {
        self.node_with(name, replies, |_| {}).await
    }

    pub(crate) async fn node_with(
        &self,
        name: &str,
        replies: impl IntoIterator<Item = Scripted>,
        change: impl FnOnce(&mut AgentParts),
    ) -> Node {
        let boot = BootId::new();
        self.store.put_node(boot, name, 60_000).await.expect("registered");
        let faulty = Arc::new(Faulty::new(self.store.clone()));
        let (own, [blind, late, mute]) = (ports(faulty.clone()), [(); 3].map(|()| Arc::new(AtomicBool::new(false))));
        let store = StorePorts { vault: self.vault.clone(), ..own };
        let mut setup = Setup { store, processes: self.processes.clone(), ..Setup::new(ScriptedModel::new(replies)) };
        setup.tools.extend(self.tool.clone().map(|tool| tool as Arc<_>));
        let mail = Arc::new(Seen {
            store: self.store.clone(),
            sent: self.sent.clone(),
            blind: blind.clone(),
            late: late.clone(),
            mute: mute.clone(),
        });
        let (slices, orders) = (self.store.clone(), self.store.clone());
        let cluster = ClusterServices { hints: self.hints.clone(), mail, slices, orders, nodes: self.store.clone() };
        let agent = setup
            .start_with(|parts| {
                parts.boot = boot;
                parts.cluster = Some(cluster);
                change(parts);
            })
            .await;
        Node { agent, boot, blind, late, mute, store: faulty }
    }

    /// The record of a run that has this status, which it must come to have.
    pub(crate) async fn run(&self, run: RunId, status: RunStatus) -> RunRecord {
        let until = Instant::now() + PATIENCE;
        loop {
            let record = self.store.run(run).await.expect("readable");
            if let Some(record) = record.clone().filter(|record| record.status == status) {
                return record;
            }
            assert!(Instant::now() < until, "{status:?}: {record:?}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn reply(&self, run: RunId) -> String {
        self.run(run, RunStatus::Completed).await.reply.unwrap_or_default()
    }

    /// The number of runs of accepted messages.
    pub(crate) async fn runs(&self) -> usize {
        let waiting = self.store.open_messages(&OrderTarget::All, 100).await.expect("readable").len();
        let listed = self.store.runs(RunFilter { limit: 100, ..RunFilter::default() }).await.expect("readable").len();
        listed - waiting
    }

    pub(crate) async fn open_mail(&self, of: BootId) -> usize {
        self.store.open_mail(of, None, 100).await.expect("readable").len()
    }
}

/// Sends a text whose answer is read in the store.
pub(crate) async fn say(to: &Talker, text: &str, key: Option<&str>) -> Ack {
    let inbound = to.inbound("alice", PrincipalRole::Operator, Body::Text(text.into()), key);
    // Each message gets a turn of its own.
    let options = RunOptions { queue: Some(QueueMode::Followup), ..RunOptions::default() };
    to.send(Inbound { reply_to: None, options, ..inbound }).await
}

pub(crate) async fn accepted(to: &Talker, text: &str) -> Accepted {
    match say(to, text, None).await {
        Ack::Accepted(accepted) => accepted,
        other => panic!("{text:?} was not accepted: {other:?}"),
    }
}

pub(crate) async fn command(to: &Talker, text: &str, key: Option<&str>) -> String {
    match say(to, text, key).await {
        Ack::Command(reply) => reply.reply,
        other => panic!("{text:?} was not answered as a command: {other:?}"),
    }
}

pub(crate) fn slow(text: &str) -> Scripted {
    Scripted::text(text).after(Duration::from_secs(20))
}

#[tokio::test(start_paused = true)]
async fn messages_for_a_busy_lane_of_another_node_are_answered_there_in_order() {
    let cluster = Cluster::new();
    let a = cluster.node("a", [slow("one"), Scripted::text("two"), Scripted::text("three")]).await;
    let b = cluster.node("b", []).await;
    let first = accepted(&a.agent.one, "first").await;
    a.agent.asked(1).await;
    let began = Instant::now();
    let second = accepted(&b.agent.one, "second").await;
    assert!(second.watch.is_none(), "its run is not on the node that took it");
    assert!(began.elapsed() < Duration::from_secs(1), "its owner has answered: {:?}", began.elapsed());
    let third = accepted(&b.agent.one, "third").await;
    let mut replies = Vec::new();
    for run in [first.run_id, second.run_id, third.run_id] {
        replies.push(cluster.reply(run).await);
    }
    assert_eq!(replies, ["one", "two", "three"]);
    assert_eq!(saw(&a.agent.model, 3), ["first", "one", "second", "two", "third"]);
    assert_eq!(cluster.runs().await, 3);
    assert_eq!(cluster.open_mail(a.boot).await, 0);
    a.agent.shut_down().await;
    b.agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_command_for_a_busy_lane_of_another_node_is_carried_out_there_once() {
    let cluster = Cluster::new();
    let a = cluster.node("a", [slow("one")]).await;
    let b = cluster.node("b", []).await;
    let first = accepted(&a.agent.one, "first").await;
    a.agent.asked(1).await;
    let busy = command(&b.agent.one, "/undo", None).await;
    assert!(busy.contains("still being answered"), "{busy}");
    let done = command(&b.agent.one, "/loops off", Some("k")).await;
    assert!(done.contains("off in this conversation"), "{done}");
    let again = command(&a.agent.one, "/loops off", Some("k")).await;
    assert!(again.contains("delivered before"), "{again}");
    assert_eq!(cluster.reply(first.run_id).await, "one");
    let undone = command(&b.agent.one, "/undo", None).await;
    assert!(undone.contains("was undone"), "an idle lane comes to the node of its client: {undone}");
    let nothing = command(&a.agent.one, "/undo", None).await;
    assert!(nothing.contains("nothing to undo"), "{nothing}");
    a.agent.shut_down().await;
    b.agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_question_of_one_node_is_answered_at_another() {
    for (answer, expected) in [("yes", "Approved."), ("/approve", "Approved."), ("/deny", "Denied.")] {
        let mut cluster = Cluster::new();
        cluster.tool = Some(Arc::new(TestTool::named("echo").called("ring").asking()));
        let ring = Scripted::call("ring", json!({ "text": "noon" }));
        let a = cluster.node("a", [ring, Scripted::text("done")]).await;
        let b = cluster.node("b", []).await;
        let asked = accepted(&a.agent.one, "ring the bell").await;
        cluster.run(asked.run_id, RunStatus::Paused).await;
        assert_eq!(command(&b.agent.one, answer, None).await, expected, "{answer}");
        assert_eq!((cluster.reply(asked.run_id).await.as_str(), cluster.runs().await), ("done", 1), "{answer}");
        a.agent.shut_down().await;
        b.agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_reaches_another_node_through_the_vault_alone() {
    let mut cluster = Cluster::new();
    let tool = Arc::new(TestTool::named("echo").called("login").secret("password").writing());
    let secrets = tool.secrets.clone();
    cluster.tool = Some(tool);
    let login = Scripted::call("login", json!({}));
    let a = cluster.node("a", [login, Scripted::text("done")]).await;
    let b = cluster.node("b", []).await;
    let asked = accepted(&a.agent.one, "log in").await;
    cluster.run(asked.run_id, RunStatus::Paused).await;
    // The other node does not know that this is a secret, and takes it for a message.
    let said = command(&b.agent.one, "hunter2", None).await;
    assert!(!said.contains("hunter2"), "{said}");
    let sent = cluster.sent.lock().expect("not poisoned").clone();
    assert!(sent.len() == 1 && !sent[0].contains("hunter2"), "{sent:?}");
    assert_eq!(cluster.reply(asked.run_id).await, "done");
    assert_eq!(*secrets.lock().expect("not poisoned"), ["hunter2"]);
    a.agent.shut_down().await;
    b.agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_takes_over_the_run_and_the_mail_of_one_that_died() {
    let cluster = Cluster::new();
    let a = cluster.node("a", [Scripted::hang()]).await;
    let b = cluster.node("b", [Scripted::text("one"), Scripted::text("two"), Scripted::text("three")]).await;
    let first = accepted(&a.agent.one, "first").await;
    a.agent.asked(1).await;
    a.agent.crash().await;
    let began = Instant::now();
    let second = accepted(&b.agent.one, "second").await;
    assert!(began.elapsed() >= Duration::from_secs(2), "nobody has answered: it is in the store");
    assert!(second.watch.is_none());
    let unanswered = say(&b.agent.one, "/loops off", None).await;
    assert!(matches!(unanswered, Ack::Refused(Refusal::Busy { .. })), "{unanswered:?}");
    assert_eq!(cluster.runs().await, 1, "no owner has accepted it");
    cluster.run(second.run_id, RunStatus::Queued).await;

    cluster.store.release(a.boot).await.expect("ended");
    let third = accepted(&b.agent.one, "third").await;
    let mut replies = Vec::new();
    for run in [first.run_id, second.run_id, third.run_id] {
        replies.push(cluster.reply(run).await);
    }
    assert_eq!(replies, ["one", "two", "three"]);
    assert_eq!((cluster.runs().await, cluster.open_mail(b.boot).await), (3, 0));
    assert_eq!(cluster.run(first.run_id, RunStatus::Completed).await.attempt, 2);
    b.agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn runs_of_a_node_that_ended_go_on_without_a_client() {
    let cluster = Cluster::new();
    let a = cluster.node("a", [Scripted::hang()]).await;
    let b = cluster.node("b", [Scripted::text("one")]).await;
    let first = accepted(&a.agent.one, "first").await;
    a.agent.asked(1).await;
    a.agent.crash().await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(b.agent.model.seen().len(), 0, "its node has not ended");
    cluster.store.release(a.boot).await.expect("ended");
    assert_eq!(cluster.reply(first.run_id).await, "one");
    b.agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_lane_comes_to_the_node_that_its_client_talks_to() {
    let cluster = Cluster::new();
    let a = cluster.node("a", [Scripted::text("one"), Scripted::text("three")]).await;
    let b = cluster.node("b", [Scripted::text("two")]).await;
    let first = accepted(&a.agent.one, "first").await;
    assert_eq!(cluster.reply(first.run_id).await, "one");
    let second = accepted(&b.agent.one, "second").await;
    assert!(second.watch.is_some(), "it reads the answer as it comes");
    assert_eq!(cluster.reply(second.run_id).await, "two");
    let third = accepted(&a.agent.one, "third").await;
    assert!(third.watch.is_some());
    assert_eq!(cluster.reply(third.run_id).await, "three");
    assert_eq!(saw(&a.agent.model, 2), ["first", "one", "second", "two", "third"]);
    a.agent.shut_down().await;
    b.agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_stale_owner_writes_nothing_and_ends_its_processes() {
    let cluster = Cluster::new();
    let a = cluster.node("a", [slow("late"), Scripted::text("three")]).await;
    let b = cluster.node("b", [Scripted::text("one")]).await;
    let mut first = accepted(&a.agent.one, "first").await;
    a.agent.asked(1).await;
    cluster.store.release(a.boot).await.expect("ended");
    assert_eq!(cluster.reply(first.run_id).await, "one");
    // The new owner has ended the run, and what is left of its own attempt.
    assert_eq!(std::mem::take(&mut *cluster.processes.runs.lock().expect("not poisoned")), [first.run_id]);
    let watch = first.watch.as_mut().expect("it was live");
    let gone = tokio::time::timeout(PATIENCE, watch.ended()).await.expect("its watcher is told");
    assert!(gone.is_none(), "{gone:?}");
    let ended = || cluster.processes.runs.lock().expect("not poisoned").contains(&first.run_id);
    let until = Instant::now() + PATIENCE;
    while !ended() {
        assert!(Instant::now() < until, "its processes live");
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(cluster.reply(first.run_id).await, "one");
    let record = cluster.run(first.run_id, RunStatus::Completed).await;
    assert_eq!((record.attempt, cluster.runs().await), (2, 1));
    a.agent.shut_down().await;
    b.agent.shut_down().await;
}
