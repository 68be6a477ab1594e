//! The job scheduler of a node of a cluster: what other nodes do to its jobs wakes it.

use std::sync::Arc;
use std::time::Duration;

use belay_automation::jobs::{JobScheduler, JobService, JobsConfig, Wakeup};
use belay_automation::submitter::Submitter;
use belay_protocol::cluster::Topic;
use belay_protocol::{
    Ack, Asker, Body, BootId, ChannelId, Clock, ClusterStore, Control, Envelope, HeldJobs, Hints, JobAttempts, JobCaps,
    JobCreated, JobId, JobReader, JobState, JobStore, NewJob, NoProcesses, Refusal, UnixMillis,
};
use belay_run::freeze::Freezer;
use belay_run::rights::AccessPolicy;
use belay_store::SqlStore;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// A minute, which is how long a scheduler without hints does not look.
const LONG: Duration = Duration::from_secs(59);
const CAPS: JobCaps = JobCaps { at_work: 9, at_work_each: 9, open_each: 9, open: 9 };

struct Fixed;

impl Clock for Fixed {
    fn now(&self) -> UnixMillis {
        UnixMillis(5_000)
    }
}

/// Hints that a test gives, one for each topic.
struct Given([(Topic, watch::Sender<u64>); 2]);

impl Given {
    fn new() -> Self {
        Self([Topic::Jobs, Topic::Nodes].map(|topic| (topic, watch::Sender::new(0))))
    }

    fn hint(&self, topic: Topic) {
        self.sender(topic).send_modify(|count| *count += 1);
    }

    fn sender(&self, topic: Topic) -> &watch::Sender<u64> {
        &self.0.iter().find(|(known, _)| *known == topic).expect("a topic of jobs").1
    }
}

impl Hints for Given {
    fn changes(&self, topic: Topic) -> watch::Receiver<u64> {
        self.sender(topic).subscribe()
    }
}

/// A scheduler on a store, with the messages that it sends to its agent.
struct Node {
    hints: Arc<Given>,
    messages: BoxStream<'static, (ChannelId, Option<Envelope>)>,
    stop: CancellationToken,
    draining: CancellationToken,
    scheduler: JoinHandle<()>,
}

impl Node {
    async fn start(store: &Arc<SqlStore>, boot: BootId, in_cluster: bool) -> Self {
        let (submitter, messages) = Submitter::new();
        let (stop, draining, hints) = (CancellationToken::new(), CancellationToken::new(), Arc::new(Given::new()));
        let service = JobService {
            config: JobsConfig::default(),
            jobs: store.clone(),
            job_store: store.clone(),
            attempts: store.clone(),
            runs: store.clone(),
            inputs: store.clone(),
            routines: store.clone(),
            processes: Arc::new(NoProcesses),
            clock: Arc::new(Fixed),
            boot,
            hints: in_cluster.then(|| hints.clone() as Arc<dyn Hints>),
            submitter,
            bell: Wakeup::default(),
            access: Arc::new(AccessPolicy::new(Arc::default(), Default::default())),
            has_workers: false,
            freezer: Arc::new(Freezer::load(store.clone()).await.expect("readable")),
            draining: draining.clone(),
        };
        let scheduler = tokio::spawn(JobScheduler::new(Arc::new(service), stop.clone()).run());
        sleep(Duration::from_millis(10)).await; // it has looked for the first time
        Self { hints, messages, stop, draining, scheduler }
    }

    /// The body of the next message, which the agent refuses for now.
    async fn next(&mut self) -> Option<Body> {
        let (_, envelope) = timeout(LONG, self.messages.next()).await.ok()??;
        let envelope = envelope?;
        envelope.ack.send(Ack::Refused(Refusal::ShuttingDown));
        Some(envelope.inbound.body)
    }

    async fn end(self) {
        self.stop.cancel();
        self.draining.cancel();
        drop(self.messages);
        self.scheduler.await.expect("no panic");
    }
}

fn new_job() -> NewJob {
    NewJob {
        id: JobId::new(),
        title: "count".into(),
        task: "count the stars".into(),
        plan: false,
        runs_in: Default::default(),
        budget: Default::default(),
        grants: Vec::new(),
        creator: Asker { principal: "ann".into(), authority: belay_protocol::Authority::Operator, relayed: false },
        channel: "http".into(),
        asked_in: "s".into(),
        reply_to: None,
        parent: None,
        routine_run: None,
        at: UnixMillis(1_000),
    }
}

async fn created(store: &SqlStore) -> JobId {
    match store.create(new_job(), CAPS).await.expect("stored") {
        JobCreated::New(job) => job.job_id,
        other => panic!("{other:?}"),
    }
}

/// A job in progress of this node.
async fn begun_by(store: &SqlStore, boot: BootId) -> JobId {
    let job = created(store).await;
    store.begin_next(CAPS, HeldJobs::default(), boot, UnixMillis(2_000)).await.expect("stored").expect("a slot");
    job
}

fn is_task(body: Option<Body>) -> bool {
    matches!(body, Some(Body::Text(text)) if text.contains("count the stars"))
}

/// A store with the rows of these nodes.
async fn store_with(nodes: &[BootId]) -> Arc<SqlStore> {
    let store = SqlStore::in_memory().expect("there is memory");
    for node in nodes {
        store.put_node(*node, &node.to_string(), 60_000).await.expect("stored");
    }
    Arc::new(store)
}

#[tokio::test(start_paused = true)]
async fn a_job_of_another_node_begins_at_once_where_hints_come() {
    for (in_cluster, expected) in [(true, true), (false, false)] {
        let boot = BootId::new();
        let store = store_with(&[boot]).await;
        let mut node = Node::start(&store, boot, in_cluster).await;
        let job = created(&store).await; // by another node: nobody rings here
        let before = Instant::now();
        node.hints.hint(Topic::Jobs);
        assert_eq!(is_task(node.next().await), expected);
        assert_eq!(before.elapsed() < Duration::from_secs(1), expected);
        let state = store.job(job).await.expect("readable").expect("there").state;
        assert_eq!(state == JobState::InProgress, expected);
        node.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_jobs_of_a_node_are_taken_over_when_it_ends_and_each_is_supervised_once() {
    let (boot, other) = (BootId::new(), BootId::new());
    let store = store_with(&[boot, other]).await;
    let job = begun_by(&store, other).await;
    let mut node = Node::start(&store, boot, true).await;
    node.hints.hint(Topic::Nodes);
    assert!(node.next().await.is_none(), "the other one lives");

    store.release(other).await.expect("stored");
    node.hints.hint(Topic::Nodes);
    assert!(is_task(node.next().await));
    assert_eq!(store.job(job).await.expect("readable").expect("there").crashes, 0, "it was released");

    // Each message of a supervisor that is refused comes again after a pause. A second supervisor would double them.
    let mut messages = 0;
    let end = Instant::now() + Duration::from_secs(50);
    while Instant::now() < end {
        node.hints.hint(Topic::Nodes);
        assert!(is_task(node.next().await));
        messages += 1;
    }
    assert!((10..=16).contains(&messages), "{messages} messages of one supervisor, with pauses of up to 5 s");
    node.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_nodes_crash_again_and_again_is_given_up_and_stopped() {
    let (boot, first, second) = (BootId::new(), BootId::new(), BootId::new());
    let store = store_with(&[boot]).await;
    let job = begun_by(&store, first).await;
    assert_eq!(store.reclaim(second).await.expect("stored")[0].crashes, 1);
    store.put_node(second, "second", 0).await.expect("stored"); // its lease is over
    let mut node = Node::start(&store, boot, true).await;
    assert_eq!(store.end_expired().await.expect("stored"), [second]);
    node.hints.hint(Topic::Nodes);
    let stopped = node.next().await;
    assert!(matches!(stopped, Some(Body::Control(Control::Stop(_)))), "{stopped:?}");
    let given_up = store.job(job).await.expect("readable").expect("there");
    assert_eq!((given_up.state, given_up.crashes), (JobState::Failed, 2));
    node.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_orderly_end_defers_the_jobs_of_this_node_alone() {
    let (boot, other, later) = (BootId::new(), BootId::new(), BootId::new());
    let store = store_with(&[boot, later]).await;
    store.put_node(other, "other", 0).await.expect("stored"); // its lease is over, and nobody has ended it yet
    let (own, foreign) = (begun_by(&store, boot).await, begun_by(&store, other).await);
    let taken = async || {
        let owned = store.reclaim(later).await.expect("stored");
        owned.into_iter().map(|job| (job.job_id, job.crashes)).collect::<Vec<_>>()
    };
    Node::start(&store, boot, true).await.end().await;
    assert_eq!(taken().await, [], "it is still its job");
    store.release(boot).await.expect("stored");
    assert_eq!(taken().await, [(own, 0)]);
    assert_eq!(store.end_expired().await.expect("stored"), [other]);
    assert_eq!(taken().await, [(own, 0), (foreign, 1)]);
}
