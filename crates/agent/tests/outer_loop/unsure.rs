//! Replies with an unknown result, on platforms that recognise a repetition, that can be asked, and that can do
//! neither.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{
    Channel, ChannelError, ChannelHealth, ChannelId, ChannelProfile, DeliverError, EventKind, EventQuery,
    InboundStream, LookUp, Outbound, Repeat, SentMessages, UnixMillis,
};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use tokio_util::sync::CancellationToken;

use crate::support::{Running, Setup};

/// The treatment of one request.
enum Act {
    /// The platform shows the piece, and its answer is lost.
    ShowAndLose,
    /// The platform never gets the piece, and nobody can tell.
    Lose,
    /// The platform shows the piece and does not answer while the daemon lives.
    ShowAndHang,
    /// It certainly shows nothing.
    Limit,
    /// It shows the piece, and the program crashes.
    ShowAndPanic,
}

/// A platform, which outlives the daemon. Words are its pieces.
#[derive(Default)]
struct Platform {
    repeat: Repeat,
    looks_up: bool,
    /// Nothing can be delivered.
    is_away: AtomicBool,
    /// The pieces that it shows, with their keys.
    shown: Mutex<Vec<(String, String)>>,
    /// The next requests; later ones succeed.
    acts: Mutex<VecDeque<Act>>,
    /// The next answers to questions.
    answers: Mutex<VecDeque<LookUp>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test panics with it")
}

impl Platform {
    fn keyed(seconds: u64, acts: impl IntoIterator<Item = Act>) -> Arc<Self> {
        let repeat = Repeat::Harmless { for_: Duration::from_secs(seconds) };
        Arc::new(Self { repeat, acts: Mutex::new(acts.into_iter().collect()), ..Self::default() })
    }

    fn asked(acts: impl IntoIterator<Item = Act>, answers: impl IntoIterator<Item = LookUp>) -> Arc<Self> {
        let answers = Mutex::new(answers.into_iter().collect());
        Arc::new(Self { looks_up: true, acts: Mutex::new(acts.into_iter().collect()), answers, ..Self::default() })
    }

    fn show(&self, key: String, piece: &str) {
        let mut shown = lock(&self.shown);
        let is_known = self.repeat != Repeat::Ambiguous && shown.iter().any(|(known, _)| *known == key);
        if !is_known {
            shown.push((key, piece.to_owned()));
        }
    }

    fn shows(&self) -> Vec<String> {
        lock(&self.shown).iter().map(|(_, piece)| piece.clone()).collect()
    }
}

/// The channel of the platform: its messages come through another one.
struct Posting {
    inner: Arc<dyn Channel>,
    platform: Arc<Platform>,
}

#[async_trait]
impl Channel for Posting {
    fn id(&self) -> &ChannelId {
        self.inner.id()
    }

    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError> {
        self.inner.start(intake).await
    }

    fn profile(&self) -> ChannelProfile<'_> {
        ChannelProfile { repeat: self.platform.repeat, ..self.inner.profile() }
    }

    async fn deliver(&self, message: &Outbound) -> Result<(), DeliverError> {
        for (number, piece) in (0..).zip(message.text.split(' ')).skip(message.pieces_sent as usize) {
            let act = lock(&self.platform.acts).pop_front();
            if !matches!(act, Some(Act::Lose | Act::Limit)) {
                self.platform.show(message.key().piece(number), piece);
            }
            let (detail, pieces_sent) = ("no answer".to_owned(), number);
            match act {
                None => {}
                Some(Act::ShowAndLose | Act::Lose) => return Err(DeliverError::Ambiguous { detail, pieces_sent }),
                Some(Act::ShowAndHang) => std::future::pending().await,
                Some(Act::Limit) => return Err(DeliverError::Retry { after: None, detail, pieces_sent }),
                Some(Act::ShowAndPanic) => panic!("a crash in a channel"),
            }
        }
        Ok(())
    }

    fn health(&self) -> ChannelHealth {
        ChannelHealth { trouble: None, can_deliver: !self.platform.is_away.load(Ordering::SeqCst) }
    }

    fn sent(&self) -> Option<&dyn SentMessages> {
        self.platform.looks_up.then_some(self as &dyn SentMessages)
    }
}

#[async_trait]
impl SentMessages for Posting {
    async fn look_up(&self, _message: &Outbound, _since: UnixMillis) -> LookUp {
        lock(&self.platform.answers).pop_front().unwrap_or(LookUp::Unknown)
    }
}

/// A daemon on the platform. Its model says each of these.
struct World {
    setup: Setup,
    platform: Arc<Platform>,
}

impl World {
    fn new<const N: usize>(platform: Arc<Platform>, replies: [&str; N]) -> Self {
        Self { setup: Setup::new(ScriptedModel::new(replies.map(Scripted::text))), platform }
    }

    async fn start(&self) -> Running {
        let platform = self.platform.clone();
        self.setup
            .start_with(|parts| {
                let inner = parts.channels[0].clone();
                parts.channels[0] = Arc::new(Posting { inner, platform });
            })
            .await
    }

    /// The same store and platform with another daemon.
    fn next_boot(self) -> Self {
        Self { setup: self.setup.next_boot(ScriptedModel::new([])), ..self }
    }

    /// Waits in seconds of both clocks until something is true.
    async fn until(&self, what: &str, mut is_true: impl AsyncFnMut() -> bool) {
        for _ in 0..1000 {
            if is_true().await {
                return;
            }
            self.setup.clock.forward(Duration::from_secs(1));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("it does not come to this: {what}; shown: {:?}", self.platform.shows());
    }

    async fn outcomes(&self) -> Vec<String> {
        let events = self.setup.store.events.read(EventQuery::default()).await.expect("readable");
        let outcomes = events.into_iter().filter_map(|event| match event.kind {
            EventKind::Delivered { outcome } => Some(outcome),
            _ => None,
        });
        outcomes.collect()
    }

    /// Waits until so many deliveries have ended, and returns their outcomes.
    async fn ends(&self, count: usize) -> Vec<String> {
        self.until("deliveries end", async || self.outcomes().await.len() >= count).await;
        self.outcomes().await
    }

    /// What one reply comes to: the pieces that the platform shows, and the outcome.
    async fn reply(platform: Arc<Platform>, text: &str) -> (Vec<String>, Vec<String>) {
        let world = Self::new(platform, [text]);
        let agent = world.start().await;
        agent.one.accepted("alice", "hi").await;
        let outcomes = world.ends(1).await;
        agent.shut_down().await;
        (world.platform.shows(), outcomes)
    }

    /// The same with a crash as soon as the platform shows so many pieces.
    async fn reply_with_crash(platform: Arc<Platform>, text: &str, pieces: usize) -> (Vec<String>, Vec<String>) {
        let world = Self::new(platform, [text]);
        let agent = world.start().await;
        agent.one.accepted("alice", "hi").await;
        world.until("pieces are shown", async || world.platform.shows().len() >= pieces).await;
        agent.crash().await;
        assert_eq!(world.outcomes().await, [""; 0]);
        let world = world.next_boot();
        let agent = world.start().await;
        let outcomes = world.ends(1).await;
        agent.shut_down().await;
        (world.platform.shows(), outcomes)
    }
}

fn seen(pieces: &[&str], outcome: &str) -> (Vec<String>, Vec<String>) {
    (pieces.iter().map(|piece| (*piece).to_owned()).collect(), vec![outcome.to_owned()])
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_asked_for_again_under_the_same_key_and_shows_nothing_twice() {
    use Act::{Limit, Lose, ShowAndHang, ShowAndLose};
    for (case, acts) in [
        ("shown", vec![ShowAndLose]),
        ("not shown", vec![Lose]),
        ("again and again", vec![Lose, ShowAndLose, Lose, ShowAndLose]),
        ("limited in between", vec![ShowAndLose, Limit, Limit]),
        ("no answer at all", vec![ShowAndHang]),
    ] {
        let (shown, outcomes) = World::reply(Platform::keyed(1000, acts), "one two").await;
        assert_eq!((shown, outcomes), seen(&["one", "two"], "sent"), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_is_given_up_when_the_platform_forgets_its_key_and_the_next_one_follows() {
    let endless = || std::iter::repeat_with(|| Act::Lose).take(9);
    let world = World::new(Platform::keyed(20, endless()), ["one", "two"]);
    let agent = world.start().await;
    agent.one.accepted("alice", "hi").await;
    assert_eq!(world.ends(1).await, ["ambiguous"]);
    let left = std::mem::take(&mut *lock(&world.platform.acts));
    assert!((1..8).contains(&left.len()), "some repetitions, and not all: {} left", left.len());
    agent.one.accepted("alice", "and now").await;
    assert_eq!(world.ends(2).await, ["ambiguous", "sent"]);
    assert_eq!(world.platform.shows(), ["two"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_the_platform_and_the_commit_shows_nothing_twice() {
    use Act::ShowAndHang;
    let keyed = World::reply_with_crash(Platform::keyed(1000, [ShowAndHang]), "one two", 1).await;
    assert_eq!(keyed, seen(&["one", "two"], "sent"));
    let neither = Arc::new(Platform { acts: Mutex::new([ShowAndHang].into()), ..Platform::default() });
    assert_eq!(World::reply_with_crash(neither, "one two", 1).await, seen(&["one"], "ambiguous"));
    let asked = Platform::asked([ShowAndHang], [LookUp::Sent { pieces: 1 }]);
    assert_eq!(World::reply_with_crash(asked, "one two", 1).await, seen(&["one", "two"], "sent"));
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_panics_after_it_has_sent_shows_nothing_twice() {
    let keyed = World::reply(Platform::keyed(1000, [Act::ShowAndPanic]), "one").await;
    assert_eq!(keyed, seen(&["one"], "sent"));
    let neither = Arc::new(Platform { acts: Mutex::new([Act::ShowAndPanic].into()), ..Platform::default() });
    assert_eq!(World::reply(neither, "one").await, seen(&["one"], "ambiguous"));
}

#[tokio::test(start_paused = true)]
async fn a_platform_that_can_be_asked_is_asked_before_a_reply_is_given_up() {
    use Act::{Lose, ShowAndHang, ShowAndLose};
    let later = || LookUp::Later { after: Some(Duration::from_secs(7)), detail: "down".into() };
    for (case, acts, answers, expected) in [
        ("all but one piece", vec![ShowAndLose], vec![LookUp::Sent { pieces: 1 }], seen(&["one", "two"], "sent")),
        ("all pieces", vec![], vec![], seen(&["one", "two"], "sent")),
        ("none", vec![Lose], vec![LookUp::NotSent], seen(&["one", "two"], "sent")),
        ("later", vec![Lose], vec![later(), later(), LookUp::NotSent], seen(&["one", "two"], "sent")),
        ("unknown", vec![ShowAndLose], vec![later(), LookUp::Unknown], seen(&["one"], "ambiguous")),
        ("never", vec![ShowAndLose], std::iter::repeat_with(later).take(20).collect(), seen(&["one"], "ambiguous")),
        ("twice", vec![Lose, ShowAndHang], vec![LookUp::NotSent, LookUp::Sent { pieces: 2 }], seen(&["one"], "sent")),
    ] {
        assert_eq!(World::reply(Platform::asked(acts, answers), "one two").await, expected, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_platform_without_a_key_that_cannot_be_asked_shows_nothing_twice() {
    for (act, shown) in [(Act::ShowAndLose, &["one"][..]), (Act::Lose, &[]), (Act::ShowAndHang, &["one"])] {
        let platform = Arc::new(Platform { acts: Mutex::new([act].into()), ..Platform::default() });
        assert_eq!(World::reply(platform, "one two").await, seen(shown, "ambiguous"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_waits_without_attempts_for_a_channel_that_is_away() {
    let platform = Arc::new(Platform { is_away: AtomicBool::new(true), ..Platform::default() });
    let world = World::new(platform, ["one"]);
    let agent = world.start().await;
    agent.one.accepted("alice", "hi").await;
    for _ in 0..7200 {
        world.setup.clock.forward(Duration::from_secs(1)); // two hours, longer than all attempts of a delivery
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(world.outcomes().await, [""; 0]);
    world.platform.is_away.store(false, Ordering::SeqCst);
    assert_eq!(world.ends(1).await, ["sent"]);
    assert_eq!(world.platform.shows(), ["one"]);
    agent.shut_down().await;
}
