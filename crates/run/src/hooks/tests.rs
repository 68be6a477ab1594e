//! The chain with scripted hooks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{BoundHook, Clock, EventKind, Hook, HookAnswer, HookEvent, HookFailure, HookPoint, UnixMillis};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::{About, HookChain, HookDecision, HookRefusal};

struct Noon;

impl Clock for Noon {
    fn now(&self) -> UnixMillis {
        UnixMillis(43_200_000)
    }
}

/// Behaviour of a hook.
#[derive(Clone)]
enum Act {
    Go,
    /// Adds its name to the text.
    Sign,
    Change(Value),
    Refuse,
    Fail,
    Panic,
    Hang,
    /// Continues once the semaphore has a permit.
    Wait(Arc<Semaphore>),
}

type Heard = Arc<Mutex<Vec<String>>>;

struct Scripted {
    name: &'static str,
    act: Act,
    heard: Heard,
}

#[async_trait]
impl Hook for Scripted {
    fn name(&self) -> &str {
        self.name
    }

    async fn call(&self, event: &HookEvent) -> Result<HookAnswer, String> {
        self.heard.lock().expect("no panic while it is held").push(self.name.to_owned());
        let change = |fields: Value| match fields {
            Value::Object(fields) => HookAnswer::Change(fields),
            other => panic!("{other} is no object"),
        };
        match &self.act {
            Act::Go => Ok(HookAnswer::Continue),
            Act::Sign => {
                let text = event.data["text"].as_str().unwrap_or_default();
                Ok(change(json!({ "text": format!("{text} {}", self.name) })))
            }
            Act::Change(fields) => Ok(change(fields.clone())),
            Act::Refuse => Ok(HookAnswer::Refuse("it is night".into())),
            Act::Fail => Err("out of paper".into()),
            Act::Panic => panic!("this hook panics on purpose"),
            Act::Hang => std::future::pending().await,
            Act::Wait(leave) => {
                leave.acquire().await.expect("never closed").forget();
                Ok(HookAnswer::Continue)
            }
        }
    }
}

/// Hooks at one point, which record their calls.
struct Table {
    point: HookPoint,
    heard: Heard,
    hooks: Vec<BoundHook>,
}

impl Table {
    fn at(point: HookPoint) -> Self {
        Self { point, heard: Heard::default(), hooks: Vec::new() }
    }

    fn with(mut self, name: &'static str, priority: i32, act: Act) -> Self {
        self.hooks.push(BoundHook {
            point: self.point,
            priority,
            timeout: Duration::from_secs(15),
            on_failure: self.point.default_failure(),
            tools: Vec::new(),
            hook: Arc::new(Scripted { name, act, heard: self.heard.clone() }),
        });
        self
    }

    fn failing(mut self, on_failure: HookFailure) -> Self {
        self.hooks.iter_mut().for_each(|hook| hook.on_failure = on_failure);
        self
    }

    fn chain(&self) -> HookChain {
        HookChain::new(self.hooks.clone(), Arc::new(Noon)).expect("the patterns are right")
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().expect("no panic while it is held").clone()
    }
}

fn refused(by: &str, why: &str) -> HookDecision {
    HookDecision::Refused(HookRefusal { by: by.into(), why: why.into() })
}

#[tokio::test]
async fn higher_priorities_are_asked_first_and_each_sees_what_the_one_before_has_made_of_it() {
    let table = Table::at(HookPoint::MessageReceived)
        .with("b", 0, Act::Sign)
        .with("c", 0, Act::Sign)
        .with("d", -5, Act::Sign)
        .with("a", 9, Act::Sign);
    let decided = table
        .chain()
        .decide(table.point, About::default(), json!({"text": "hi", "channel": "x"}), None, &mut Vec::new())
        .await;
    assert_eq!(decided, HookDecision::Go(json!({"text": "hi a b c d", "channel": "x"})));
    assert_eq!(table.heard(), ["a", "b", "c", "d"]);

    let table = Table::at(HookPoint::ToolResultPersist).with("b", 1, Act::Sign).with("a", 2, Act::Sign);
    let changed = table.chain().change(table.point, About::default(), json!({"text": "hi"}), &mut Vec::new()).await;
    assert_eq!(changed, json!({"text": "hi a b"}));
}

#[tokio::test]
async fn a_refusal_is_the_last_word_where_something_can_be_refused() {
    let hooks = |point| Table::at(point).with("a", 2, Act::Sign).with("b", 1, Act::Refuse).with("c", 0, Act::Sign);
    let table = hooks(HookPoint::MessageSending);
    let decided =
        table.chain().decide(table.point, About::default(), json!({"text": "hi"}), None, &mut Vec::new()).await;
    assert_eq!(decided, refused("b", "it is night"));
    assert_eq!(table.heard(), ["a", "b"]);

    let table = hooks(HookPoint::ToolResultPersist);
    let changed = table.chain().change(table.point, About::default(), json!({"text": "hi"}), &mut Vec::new()).await;
    assert_eq!(changed, json!({"text": "hi a c"}));
}

#[tokio::test]
async fn a_change_that_is_not_allowed_is_ignored_and_the_rest_of_it_counts() {
    let fields = json!({"text": "ho", "channel": "other", "new": 1});
    let table = Table::at(HookPoint::MessageReceived).with("a", 0, Act::Change(fields));
    let decided = table
        .chain()
        .decide(table.point, About::default(), json!({"text": "hi", "channel": "x"}), None, &mut Vec::new())
        .await;
    assert_eq!(decided, HookDecision::Go(json!({"text": "ho", "channel": "x"})));
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_fails_hangs_or_panics_is_passed_or_refuses_as_it_is_configured() {
    let closed = || refused("bad", "it failed, and nothing may go past it while it does");
    for act in [Act::Fail, Act::Panic, Act::Hang] {
        let hooks = |point| Table::at(point).with("bad", 1, act.clone()).with("good", 0, Act::Sign);

        let open = hooks(HookPoint::MessageReceived).failing(HookFailure::Open);
        let begun = Instant::now();
        let decided =
            open.chain().decide(open.point, About::default(), json!({"text": "hi"}), None, &mut Vec::new()).await;
        assert_eq!(decided, HookDecision::Go(json!({"text": "hi good"})));
        assert!(begun.elapsed() < Duration::from_secs(16), "it has 15 s");

        let shut = hooks(HookPoint::MessageReceived).failing(HookFailure::Closed);
        assert_eq!(
            shut.chain().decide(shut.point, About::default(), json!({"text": "hi"}), None, &mut Vec::new()).await,
            closed()
        );

        // At a point without refusals, a hook that fails closed behaves as one that fails open.
        let change = hooks(HookPoint::ToolResultPersist).failing(HookFailure::Closed);
        let changed =
            change.chain().change(change.point, About::default(), json!({"text": "hi"}), &mut Vec::new()).await;
        assert_eq!(changed, json!({"text": "hi good"}));

        let watch = hooks(HookPoint::AgentEnd);
        let chain = watch.chain();
        chain.observe(watch.point, About::default(), || json!({}));
        chain.drain(Duration::from_secs(60)).await;
        assert_eq!(watch.heard(), ["bad", "good"]);
    }
}

#[tokio::test]
async fn hooks_of_tools_are_asked_about_theirs() {
    for (patterns, tool, asked) in [
        (vec![], "run_command", true),
        (vec!["run_*"], "run_command", true),
        (vec!["run_*"], "write_file", false),
        (vec!["read_file", "write_file"], "write_file", true),
        (vec!["write"], "write_file", false),
        (vec!["{read,write}_file"], "read_file", true),
    ] {
        let mut table = Table::at(HookPoint::BeforeToolCall).with("a", 0, Act::Refuse);
        table.hooks[0].tools = patterns.iter().map(ToString::to_string).collect();
        let about = About { tool: Some(tool), ..About::default() };
        let decided = table.chain().decide(table.point, about, json!({"arguments": {}}), None, &mut Vec::new()).await;
        assert_eq!(decided == refused("a", "it is night"), asked, "{patterns:?} {tool}");
    }
}

#[tokio::test]
async fn nothing_is_gathered_for_a_point_without_hooks() {
    let mut table = Table::at(HookPoint::AfterToolCall).with("a", 0, Act::Go);
    table.hooks[0].tools = vec!["run_*".into()];
    let chain = table.chain();
    let made = AtomicUsize::new(0);
    let data = || {
        made.fetch_add(1, Ordering::SeqCst);
        json!({})
    };
    chain.observe(HookPoint::AgentEnd, About::default(), data);
    chain.observe(HookPoint::AfterToolCall, About { tool: Some("write_file"), ..About::default() }, data);
    assert_eq!(made.load(Ordering::SeqCst), 0);
    chain.observe(HookPoint::AfterToolCall, About { tool: Some("run_it"), ..About::default() }, data);
    assert_eq!(made.load(Ordering::SeqCst), 1);
    assert!(!chain.is_bound(HookPoint::AgentEnd));
    assert!(chain.is_bound(HookPoint::AfterToolCall));
}

#[tokio::test(start_paused = true)]
async fn whoever_looks_on_is_not_waited_for_and_too_many_of_them_are_dropped() {
    let leave = Arc::new(Semaphore::new(0));
    let table = Table::at(HookPoint::AgentEnd).with("slow", 0, Act::Wait(leave.clone()));
    let chain = table.chain();
    for _ in 0..300 {
        chain.observe(table.point, About::default(), || json!({}));
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(table.heard().len(), 256, "the others were dropped");
    leave.add_permits(256);
    sleep(Duration::from_secs(1)).await;
    chain.observe(table.point, About::default(), || json!({}));
    leave.add_permits(1);
    chain.drain(Duration::from_secs(1)).await;
    assert_eq!(table.heard().len(), 257, "there is room again");
}

#[tokio::test(start_paused = true)]
async fn draining_waits_for_whoever_looks_on_and_no_longer_than_its_limit() {
    let table = Table::at(HookPoint::GatewayStop).with("quick", 0, Act::Go).with("slow", 0, Act::Hang);
    let chain = table.chain();
    chain.observe(table.point, About::default(), || json!({}));
    let begun = Instant::now();
    chain.drain(Duration::from_secs(2)).await;
    assert_eq!(table.heard(), ["quick", "slow"]);
    assert_eq!(begun.elapsed().as_secs(), 2);
}

#[tokio::test]
async fn what_hooks_do_is_told_as_facts() {
    let table = Table::at(HookPoint::MessageReceived)
        .with("quiet", 5, Act::Go)
        .with("sign", 4, Act::Sign)
        .with("wrong", 3, Act::Change(json!({"channel": "other"})))
        .with("broken", 2, Act::Fail)
        .with("no", 1, Act::Refuse);
    let mut facts = Vec::new();
    table.chain().decide(table.point, About::default(), json!({"text": "hi", "channel": "x"}), None, &mut facts).await;
    let told: Vec<String> = facts
        .into_iter()
        .map(|fact| match fact {
            EventKind::Hook { point, name, outcome } => format!("{name} {outcome} at {point}"),
            other => format!("{other:?}"),
        })
        .collect();
    let at = "at message_received";
    assert_eq!(told, [format!("sign changed {at}"), format!("broken failed {at}"), format!("no refused {at}")]);
}
