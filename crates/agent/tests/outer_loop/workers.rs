//! Workers: each of their ends, with the worker's own side in this process and no wire between. What the wire and the
//! walls add is in the tests of the gateway and in the scenarios.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use belay_delegates::WorkersConfig;
use belay_delegates::WorkersParts;
use belay_delegates::container::work;
use belay_protocol::{
    EventKind, EventQuery, JobToken, LinkError, LinkId, Message, ModelAnswer, ModelAsk, ModelErrorKind, OpenLink,
    RunId, RunStatus, StopReason, Termination, Tool, ToolSet, WORKER_TOOLS, WorkerEnd, WorkerHost, WorkerLink,
    WorkerLinks, WorkerProcess, WorkerStart,
};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{Running, Setup, TestTool, end_of, saw};

/// What a worker of these tests does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Deed {
    /// What a worker should.
    Work,
    /// It ends without a word.
    Die,
    /// It does nothing.
    Hang,
    /// It says that it has ended like this, and ends.
    Say(&'static [u8]),
    /// It asks the model until the host has had enough.
    AskForEver,
    /// It says twice how it ended; the first counts.
    SayTwice,
    /// There is none.
    Refuse,
}

/// Links without a wire: the desk itself is what the worker asks.
#[derive(Clone, Default)]
struct Direct(Arc<Mutex<HashMap<LinkId, Arc<dyn WorkerLink>>>>);

impl Direct {
    fn open_links(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl WorkerLinks for Direct {
    fn open(&self, desk: Arc<dyn WorkerLink>) -> Result<OpenLink, String> {
        let job = LinkId::new();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(job, desk);
        let this = self.clone();
        let token = JobToken::from_bytes([1; JobToken::BYTES]);
        Ok(OpenLink::new(job, "/nowhere".into(), token, move || {
            this.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&job);
        }))
    }
}

/// How many workers were started, and what the last one found when it told its end a second time.
type Seen = (u32, Option<Result<(), LinkError>>);

/// Starts workers as tasks of this process.
struct Here {
    links: Direct,
    deed: Deed,
    /// What the worker's own tools do, by their names.
    own: fn(&str) -> TestTool,
    seen: Arc<Mutex<Seen>>,
}

#[async_trait]
impl WorkerHost for Here {
    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    async fn start(&self, start: WorkerStart) -> Result<Box<dyn WorkerProcess>, String> {
        if self.deed == Deed::Refuse {
            return Err("the sandbox is missing".into());
        }
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).0 += 1;
        let link = self.links.0.lock().unwrap_or_else(PoisonError::into_inner)[&start.job].clone();
        let gone = CancellationToken::new();
        let (deed, own, seen, guard) = (self.deed, self.own, self.seen.clone(), gone.clone().drop_guard());
        let task = tokio::spawn(async move {
            let _guard = guard;
            act(deed, own, link, seen).await;
        });
        Ok(Box::new(Task { gone, task }))
    }
}

async fn act(deed: Deed, own: fn(&str) -> TestTool, link: Arc<dyn WorkerLink>, seen: Arc<Mutex<Seen>>) {
    match deed {
        Deed::Work => {
            let tools = WORKER_TOOLS.iter().map(|name| Arc::new(own(name)) as Arc<dyn Tool>).collect();
            let _ = work(link, ToolSet::new(tools)).await;
        }
        Deed::Hang => std::future::pending().await,
        Deed::Say(wire) => {
            let _ = link.finish(WorkerEnd::read(wire)).await;
        }
        Deed::SayTwice => {
            let _ = link.finish(WorkerEnd::Completed { reply: "first".into() }).await;
            let second = link.finish(WorkerEnd::Completed { reply: "second".into() }).await;
            seen.lock().unwrap_or_else(PoisonError::into_inner).1 = Some(second);
        }
        Deed::AskForEver => loop {
            let ask = ModelAsk { step: 1, force_text: false, messages: vec![Message::user("go")] };
            if !matches!(link.model(ask).await, Ok(ModelAnswer::Reply(_))) {
                return;
            }
        },
        Deed::Die | Deed::Refuse => {}
    }
}

/// The worker's own tools do what their names in these tests say.
fn own_tool(name: &str) -> TestTool {
    let does = match name {
        "read_file" => "echo",
        "write_file" => "fail",
        "list_files" => "deaf",
        _ => "wait",
    };
    TestTool::named(does).called(name)
}

struct Task {
    gone: CancellationToken,
    task: JoinHandle<()>,
}

#[async_trait]
impl WorkerProcess for Task {
    async fn ended(&mut self) -> String {
        self.gone.cancelled().await;
        "the task is gone".into()
    }

    async fn end(&mut self) {
        self.task.abort();
        self.gone.cancelled().await;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Played {
    setup: Setup,
    agent: Running,
    run: RunId,
    links: Direct,
    seen: Arc<Mutex<Seen>>,
}

/// Has the agent start workers in this process, whose own tools are these.
fn employ(setup: &mut Setup, links: &Direct, own: fn(&str) -> TestTool) {
    let host = Here { links: links.clone(), deed: Deed::Work, own, seen: Arc::default() };
    let config = WorkersConfig { enabled: true, ..WorkersConfig::default() };
    setup.workers = Some(WorkersParts { config, host: Arc::new(host), links: Arc::new(links.clone()) });
}

/// The same, for tests that look at nothing of the links.
pub(crate) fn employ_here(setup: &mut Setup, own: fn(&str) -> TestTool) {
    employ(setup, &Direct::default(), own);
}

pub(crate) fn hand_over(arguments: Value) -> Scripted {
    Scripted::call("run_in_worker", arguments)
}

/// The tools of the host: those of the worker's names, which must not be called here, and three others.
fn host_tools() -> Vec<Arc<dyn Tool>> {
    let named = |name: &str, does: &str| Arc::new(TestTool::named(does).called(name)) as Arc<dyn Tool>;
    let mut tools: Vec<_> = WORKER_TOOLS.iter().map(|name| named(name, "deaf")).collect();
    tools.push(named("calculate", "echo"));
    tools.push(named("fetch_url", "echo"));
    tools
}

async fn play(deed: Deed, script: Vec<Scripted>, change: impl FnOnce(&mut Setup, &mut WorkersConfig)) -> Played {
    let mut setup = Setup::new(ScriptedModel::new(script));
    setup.tools = host_tools();
    let mut config = WorkersConfig { enabled: true, ..WorkersConfig::default() };
    change(&mut setup, &mut config);
    let (links, seen) = (Direct::default(), Arc::default());
    let host = Here { links: links.clone(), deed, own: own_tool, seen: Arc::clone(&seen) };
    setup.workers = Some(WorkersParts { config, host: Arc::new(host), links: Arc::new(links.clone()) });
    let agent = setup.start().await;
    let record = end_of(agent.one.accepted("alice", "go").await).await;
    assert_eq!(record.status, RunStatus::Completed, "{record:?}");
    Played { setup, agent, run: record.run_id, links, seen }
}

impl Played {
    /// How its workers ended, by the run's events; and that none has left a link.
    async fn endings(&self) -> Vec<(Termination, StopReason, u32)> {
        assert_eq!(self.links.open_links(), 0, "each link is revoked");
        let query = EventQuery { run: Some(self.run), ..EventQuery::default() };
        let events = self.setup.store.events.read(query).await.expect("readable");
        let ended = events.into_iter().filter_map(|event| match event.kind {
            EventKind::SubagentEnded { termination, reason, turns, .. } => Some((termination, reason, turns)),
            _ => None,
        });
        ended.collect()
    }

    /// What the last request of the run was told as the result of the worker.
    fn told(&self) -> String {
        let requests = self.setup.model.seen().len();
        saw(&self.setup.model, requests)[2].clone()
    }
}

#[tokio::test(start_paused = true)]
async fn the_final_text_is_the_result_and_calls_run_where_they_belong() {
    let batch = [
        ("read_file", json!({"text": "mine"})),
        ("write_file", json!({})),
        ("calculate", json!({"text": "the host's"})),
        ("fetch_url", json!({"text": "not lent"})),
    ];
    let script = vec![
        hand_over(json!({"task": "look", "context": "here", "max_turns": 9})),
        Scripted::calls(batch),
        Scripted::text("I looked."),
        Scripted::text("done"),
    ];
    let played = play(Deed::Work, script, |_, _| {}).await;
    assert_eq!(played.endings().await, [(Termination::Goal, StopReason::FinalText, 2)]);
    let asked = &played.setup.model.seen()[2].messages;
    let results: Vec<_> = asked[2..].iter().map(|message| message.text().to_owned()).collect();
    assert_eq!(results[..3], ["mine", "it does not work", "the host's"]);
    assert!(results[3].contains("fetch_url"), "{results:?}");
    assert_eq!(asked[0].text(), "look\n\nContext:\nhere");
    let told = played.told();
    assert!(told.contains("\"result\":\"I looked.\"") && told.ends_with("The worker completed its task."), "{told}");
    played.agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn each_end_has_its_word() {
    let answers = |n: usize| (0..n).map(|_| Scripted::text("hm"));
    let one = || json!({"task": "look"});
    let go_on = || Scripted::call("read_file", json!({"text": "again"}));
    let garbage: &'static [u8] = br#"{"end":"glorious","reply":"42"}"#;
    for (deed, arguments, script, expected, words) in [
        (
            Deed::Work,
            json!({"task": "look", "max_turns": 2}),
            vec![go_on(), Scripted::call("read_file", json!({"text": "more"}))],
            (Termination::MaxTurns, StopReason::MaxIterations, 2),
            "reached its step limit",
        ),
        (
            Deed::Work,
            json!({"task": "look", "max_time_s": 20}),
            vec![Scripted::call("run_command", json!({}))],
            (Termination::Timeout, StopReason::ActiveTime, 1),
            "its time limit",
        ),
        (
            Deed::Work,
            one(),
            vec![Scripted::error(ModelErrorKind::BadRequest)],
            (Termination::Error, StopReason::BadRequest, 1),
            "refused the request",
        ),
        (
            Deed::Work,
            json!({"task": "look", "max_time_s": 20}),
            vec![Scripted::hang()],
            (Termination::Timeout, StopReason::ActiveTime, 1),
            "its time limit",
        ),
        (Deed::Die, one(), vec![], (Termination::Error, StopReason::Internal, 0), "process ended before"),
        (Deed::Refuse, one(), vec![], (Termination::Error, StopReason::Internal, 0), "the sandbox is missing"),
        (
            Deed::Hang,
            json!({"task": "look", "max_time_s": 20}),
            vec![],
            (Termination::Timeout, StopReason::ActiveTime, 0),
            "its time limit",
        ),
        (Deed::Say(garbage), one(), vec![], (Termination::Error, StopReason::Internal, 0), "cannot be read"),
        (
            Deed::Say(br#"{"end":"max_turns"}"#),
            one(),
            vec![],
            (Termination::MaxTurns, StopReason::MaxIterations, 0),
            "its step limit",
        ),
        (
            Deed::Say(br#"{"end":"stopped"}"#),
            one(),
            vec![],
            (Termination::Error, StopReason::Internal, 0),
            "nobody stopped it",
        ),
        (
            Deed::Say(br#"{"end":"completed","reply":" "}"#),
            one(),
            vec![],
            (Termination::Error, StopReason::Internal, 0),
            "without an answer",
        ),
        (Deed::SayTwice, one(), vec![], (Termination::Goal, StopReason::FinalText, 0), "\"result\":\"first\""),
        (
            Deed::AskForEver,
            json!({"task": "look", "max_turns": 3}),
            answers(3).collect(),
            (Termination::MaxTurns, StopReason::MaxIterations, 3),
            "reached its step limit",
        ),
    ] {
        let script = [vec![hand_over(arguments)], script, vec![Scripted::text("done")]].concat();
        let played = play(deed, script, |_, _| {}).await;
        assert_eq!(played.endings().await, [expected], "{deed:?}: {}", played.told());
        assert!(played.told().contains(words), "{deed:?}: {}", played.told());
        if deed == Deed::SayTwice {
            let second = played.seen.lock().unwrap_or_else(PoisonError::into_inner).1.clone();
            assert_ne!(second, Some(Ok(())), "the second end is nobody's");
        }
        played.agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_tool_takes_too_long_is_told_to_give_it_up_and_goes_on() {
    let script = vec![
        hand_over(json!({"task": "look"})),
        Scripted::call("list_files", json!({})),
        Scripted::call("read_file", json!({"text": "still there"})),
        Scripted::text("It was slow."),
        Scripted::text("done"),
    ];
    let played = play(Deed::Work, script, |_, _| {}).await;
    assert_eq!(saw(&played.setup.model, 4)[4], "still there");
    assert_eq!(played.endings().await, [(Termination::Goal, StopReason::FinalText, 3)]);
    played.agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn caps_of_the_tree_and_of_the_settings_hold_for_workers_too() {
    let two = [("run_in_worker", json!({"task": "a"})), ("run_in_worker", json!({"task": "b"}))];
    let script = vec![Scripted::calls(two), Scripted::text("done")];
    let said: &'static [u8] = br#"{"end":"completed","reply":"ok"}"#;
    let played = play(Deed::Say(said), script, |setup, _| setup.config.subagents.max_total = 1).await;
    assert_eq!(played.endings().await, [(Termination::Goal, StopReason::FinalText, 0)]);
    assert!(
        saw(&played.setup.model, 2)[3].contains("1 subagents have been started for this request"),
        "{:?}",
        saw(&played.setup.model, 2)
    );
    assert_eq!(played.seen.lock().unwrap_or_else(PoisonError::into_inner).0, 1);
    played.agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn without_the_setting_the_tool_is_not_offered() {
    for (enabled, offered) in [(false, false), (true, true)] {
        let played = play(Deed::Work, vec![Scripted::text("hello")], |_, config| config.enabled = enabled).await;
        let seen = played.setup.model.seen();
        assert_eq!(seen[0].tools.iter().flatten().any(|name| name == "run_in_worker"), offered);
        played.agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_worker_and_revokes_its_link() {
    let script = vec![hand_over(json!({"task": "look"})), Scripted::call("run_command", json!({}))];
    let mut setup = Setup::new(ScriptedModel::new(script));
    setup.tools = host_tools();
    let links = Direct::default();
    employ(&mut setup, &links, own_tool);
    let agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "go").await;
    while setup.model.seen().len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(links.open_links(), 1);
    agent.one.text("alice", "/stop").await;
    let record = end_of(accepted).await;
    assert_eq!(record.status, RunStatus::Stopped);
    while links.open_links() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(setup.model.seen().len(), 2);
    agent.shut_down().await;
}
