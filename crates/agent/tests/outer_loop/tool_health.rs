//! Tools that fail again and again, over runs: reported, switched off, refused to everybody, tried again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use belay_automation::JobsConfig;
use belay_protocol::{
    Ack, Control, EventKind, EventQuery, FaultKind, JobFilter, JobOrder, JobRequest, MessageBody, PrincipalRole,
    Refusal, ToolHealth, ToolHealthAction, ToolHealthConfig, ToolHealthRule, ToolRequest, ToolResult, ToolState,
    ToolStatus,
};
use belay_testkit::faulty::{Fault, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use serde_json::json;

use crate::multiplying::{Who, setup_for};
use crate::support::{Running, Setup, TestTool, end_of, faulty, rest_of};

/// The tool that fails.
const WEB: &str = "web";

fn disable(failures: u32, runs: u32, for_s: u64) -> ToolHealthConfig {
    let rule = ToolHealthRule {
        tools: vec!["w*".into()],
        failures,
        within_s: 3600,
        runs,
        action: ToolHealthAction::Disable,
        for_s,
    };
    ToolHealthConfig { rules: vec![rule], ..ToolHealthConfig::default() }
}

/// A tool that is broken until somebody repairs it.
fn web() -> (TestTool, Arc<Mutex<String>>) {
    let tool = TestTool::named("moody").called(WEB);
    let world = tool.world();
    *world.lock().expect("not poisoned") = "broken".into();
    (tool, world)
}

fn call() -> Scripted {
    Scripted::call(WEB, json!({}))
}

/// Requests of so many turns, each of which calls the tool once.
fn turns(n: usize) -> Vec<Scripted> {
    (0..n).flat_map(|_| [call(), Scripted::text("that is all")]).collect()
}

/// One turn in a conversation; the result of its last call, and whether the tool was offered when it was made.
async fn turn(setup: &Setup, agent: &mut Running) -> (ToolResult, bool) {
    let at = setup.model.seen().len();
    end_of(agent.one.accepted("alice", "go").await).await;
    assert_eq!(agent.one.next().await, "that is all");
    let seen = setup.model.seen();
    let offered = seen[at].tools.clone().unwrap_or_default().iter().any(|tool| tool == WEB);
    let last = seen[at + 1].messages.last().cloned().expect("a message");
    let MessageBody::Tool(result) = &last.body else { panic!("{last:?}") };
    (result.clone(), offered)
}

/// The facts about tools, in words.
async fn facts(setup: &Setup) -> Vec<String> {
    let events = setup.store.events.read(EventQuery { limit: 1000, ..EventQuery::default() }).await.expect("readable");
    let word = |kind| match kind {
        EventKind::ToolFailing { name, failures, runs, kind, .. } => {
            Some(format!("{name} failing: {failures} in {runs} runs, {kind}"))
        }
        EventKind::ToolStateChanged { name, on, actor: by, .. } => {
            Some(format!("{name} {} by {by}", if on { "on" } else { "off" }))
        }
        _ => None,
    };
    events.into_iter().filter_map(|event| word(event.kind)).collect()
}

async fn tools(agent: &Running, role: PrincipalRole, request: ToolRequest) -> Result<Vec<ToolHealth>, Refusal> {
    match agent.one.control_as(role, Control::Tools(request)).await {
        Ack::Tools(tools) => Ok(tools),
        Ack::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

async fn web_of(agent: &Running, role: PrincipalRole) -> ToolHealth {
    let all = tools(agent, role, ToolRequest::List).await.expect("a list");
    all.into_iter().find(|tool| tool.name == WEB).expect("it is known")
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_fails_in_several_runs_is_reported_once_with_evidence_for_operators() {
    let (tool, world) = web();
    let setup = Setup::new(ScriptedModel::new(turns(8))).tool(tool);
    let mut agent = setup.start().await;
    for _ in 0..7 {
        let (result, offered) = turn(&setup, &mut agent).await;
        assert_eq!((result.status, offered), (ToolStatus::Error, true));
    }
    assert_eq!(facts(&setup).await, ["web failing: 5 in 5 runs, failed"]);

    let health = web_of(&agent, PrincipalRole::Operator).await;
    assert_eq!((health.state, health.failures, health.runs), (ToolState::Failing, 7, 7));
    let newest = health.last.last().expect("evidence");
    assert_eq!((newest.kind, &*newest.quote), (FaultKind::Failed, "no answer of 192.0.2.7 to ann"));
    assert!(health.last.iter().all(|fault| fault.fingerprint == newest.fingerprint), "{health:?}");
    let health = web_of(&agent, PrincipalRole::Client).await;
    assert_eq!((health.failures, health.last), (7, Vec::new()), "they may be of anybody's work");
    let status = agent.one.command("alice", "/status").await;
    assert!(status.contains("The tool web is failing: 7 times in a row, in 7 runs, since "), "{status}");

    world.lock().expect("not poisoned").clear();
    turn(&setup, &mut agent).await;
    assert_eq!(web_of(&agent, PrincipalRole::Operator).await.state, ToolState::Ok);
    assert!(!agent.one.command("alice", "/status").await.contains("web"));
    agent.shut_down().await;
}

/// What the gauges of this thread show.
#[derive(Default)]
struct Gauges(Mutex<HashMap<String, Arc<AtomicU64>>>);

impl Gauges {
    fn shows(&self, name: &str) -> Option<f64> {
        self.0.lock().expect("no panic").get(name).map(|value| f64::from_bits(value.load(Ordering::SeqCst)))
    }
}

impl Recorder for Gauges {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.0.lock().expect("no panic").entry(key.name().to_owned()).or_default().clone())
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[tokio::test(start_paused = true)]
async fn the_gauge_of_failing_tools_falls_when_one_works_again() {
    let gauges = Gauges::default();
    let _recorder = metrics::set_default_local_recorder(&gauges);
    let (tool, world) = web();
    let setup = Setup::new(ScriptedModel::new(turns(6))).tool(tool);
    let mut agent = setup.start().await;
    for _ in 0..5 {
        turn(&setup, &mut agent).await;
    }
    assert_eq!(gauges.shows("belay_tools_failing"), Some(1.0));
    world.lock().expect("not poisoned").clear();
    turn(&setup, &mut agent).await;
    assert_eq!(gauges.shows("belay_tools_failing"), Some(0.0));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_switched_off_by_hand_stays_off_although_a_rule_switches_it_off_meanwhile() {
    let (tool, _) = web();
    let (setup, store) = faulty(ScriptedModel::new(turns(2)));
    let setup = Setup { health: disable(2, 2, 60), ..setup.tool(tool) };
    let agent = setup.start().await;
    store.plan().nth_of(StoreOp::SwitchTool, 1, Fault::Stall);
    let by_hand = ToolRequest::Disable { name: WEB.into(), detail: "it lies".into() };
    let meanwhile = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for _ in 0..2 {
            end_of(agent.one.accepted("alice", "go").await).await;
        }
        assert_eq!(facts(&setup).await, ["web off by rule"]);
        store.plan().release();
    };
    let (answer, ()) = tokio::join!(tools(&agent, PrincipalRole::Operator, by_hand), meanwhile);
    let [off] = &answer.expect("done")[..] else { panic!("one tool") };
    assert_eq!((off.state, &*off.actor, &*off.detail, off.until), (ToolState::Off, "tester", "it lies", None));
    assert_eq!(facts(&setup).await, ["web off by rule", "web off by tester"], "each once");
    let stored = setup.store.switches.switches().await.expect("readable").remove(0);
    assert!(stored.off.is_some_and(|off| off.for_s == 0 && off.actor == "tester"));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn one_run_that_goes_in_circles_damns_no_tool() {
    let (tool, _) = web();
    let mut script: Vec<Scripted> = (0..4).map(|n| Scripted::call(WEB, json!({"text": n.to_string()}))).collect();
    script.push(Scripted::text("it does not work"));
    let setup = Setup { health: disable(2, 2, 60), ..Setup::new(ScriptedModel::new(script)).tool(tool) };
    let agent = setup.start().await;
    end_of(agent.one.accepted("alice", "go").await).await;
    assert_eq!(facts(&setup).await, [""; 0]);
    assert_eq!(web_of(&agent, PrincipalRole::Operator).await.failures, 4);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_rule_switches_a_tool_off_and_a_call_that_is_let_through_switches_it_on() {
    let (tool, world) = web();
    let calls = tool.calls.clone();
    let setup = Setup { health: disable(2, 2, 60), ..Setup::new(ScriptedModel::new(turns(7))).tool(tool) };
    let mut agent = setup.start().await;
    let later = async |seconds: u64| {
        setup.clock.forward(Duration::from_secs(seconds));
        tokio::time::advance(Duration::from_secs(seconds)).await;
    };
    for _ in 0..2 {
        assert_eq!(turn(&setup, &mut agent).await.0.status, ToolStatus::Error);
    }
    let (refused, offered) = turn(&setup, &mut agent).await;
    assert_eq!((refused.status, offered, calls.load(Ordering::SeqCst)), (ToolStatus::Denied, false, 2));
    assert!(refused.text.starts_with("denied: the tool web is disabled: it failed 2 times in a row, in 2 runs"));
    assert!(!refused.text.contains("ann"), "what was said in other conversations is not told: {}", refused.text);

    later(61).await;
    let (tried, offered) = turn(&setup, &mut agent).await;
    assert_eq!((tried.status, offered), (ToolStatus::Error, true));
    later(61).await;
    let (refused, offered) = turn(&setup, &mut agent).await;
    assert_eq!((refused.status, offered), (ToolStatus::Denied, false), "off for twice as long");
    assert!(refused.text.contains("it failed again on a trial call"), "{}", refused.text);

    world.lock().expect("not poisoned").clear();
    later(60).await;
    for _ in 0..2 {
        let (works, offered) = turn(&setup, &mut agent).await;
        assert_eq!((works.status, offered), (ToolStatus::Success, true));
    }
    assert_eq!(facts(&setup).await, ["web off by rule", "web off by trial", "web on by trial"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_off_is_neither_offered_to_anybody_nor_called_for_anybody() {
    for who in Who::ALL {
        let (script, after) = who.script(call());
        let tool = TestTool::named("moody").called(WEB);
        let calls = tool.calls.clone();
        let mut setup = setup_for(who, script).tool(tool);
        if let Some(workers) = &mut setup.workers {
            workers.config.host_tools = vec![WEB.to_owned()];
        }
        let mut agent = setup.start().await;
        let said = agent.one.command("alice", "/tools disable web it lies.").await;
        assert!(said.starts_with("The tool web has been disabled since "), "{said}");
        who.work(&mut agent).await;
        for request in &setup.model.seen()[..=after] {
            let offered = request.tools.clone().unwrap_or_default();
            assert!(!offered.iter().any(|tool| tool == WEB), "{who:?}: {offered:?}");
        }
        let request = setup.model.seen()[after].clone();
        let results: Vec<ToolResult> = request
            .messages
            .iter()
            .filter_map(|message| match &message.body {
                MessageBody::Tool(result) if result.name == WEB => Some(result.clone()),
                _ => None,
            })
            .collect();
        let [result] = &results[..] else { panic!("{who:?}: {results:?}") };
        assert_eq!(result.status, ToolStatus::Denied, "{who:?}: {result:?}");
        assert!(result.text.contains("web is disabled: an operator says: it lies."), "{who:?}: {}", result.text);
        assert_eq!(calls.load(Ordering::SeqCst), 0, "{who:?}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_yes_to_a_call_does_not_switch_its_tool_on() {
    let tool = TestTool::named("moody").called(WEB).asking();
    let calls = tool.calls.clone();
    let setup = Setup::new(ScriptedModel::new(turns(2))).tool(tool);
    let mut agent = setup.start().await;
    let mut accepted = agent.one.accepted("alice", "go").await;
    rest_of(&mut accepted).await;
    agent.one.next().await; // the question
    agent.one.command("ops", "/tools disable web it lies").await;
    agent.one.command("alice", "yes").await;
    end_of(accepted).await;
    let last = setup.model.seen()[1].messages.last().cloned().expect("a message");
    let MessageBody::Tool(result) = &last.body else { panic!("{last:?}") };
    assert_eq!((result.status, calls.load(Ordering::SeqCst)), (ToolStatus::Denied, 0), "{}", result.text);
    assert_eq!(agent.one.next().await, "that is all");

    // Nobody is asked about a call that would be refused.
    let (refused, _) = turn(&setup, &mut agent).await;
    assert!(refused.status == ToolStatus::Denied && refused.text.contains("is disabled"), "{}", refused.text);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn only_operators_switch_tools_and_what_runs_need_stays_on() {
    let setup = Setup::new(ScriptedModel::new(turns(1))).tool(web().0);
    let mut agent = setup.start().await;
    let off = |name: &str, why: &str| ToolRequest::Disable { name: name.into(), detail: why.into() };
    for (role, request, refused) in [
        (PrincipalRole::Client, off(WEB, "so"), "Only an operator may"),
        (PrincipalRole::User, ToolRequest::Enable(WEB.into()), "Only an operator may"),
        (PrincipalRole::Operator, off("terminate", "so"), "cannot be disabled"),
        (PrincipalRole::Operator, off("planning", "so"), "cannot be disabled"),
        (PrincipalRole::Operator, off("nothing", "so"), "There is no tool"),
        (PrincipalRole::Operator, off("mcp:files", "so"), "There is no tool"),
        (PrincipalRole::Operator, off(WEB, " \n "), "Give a reason"),
        (PrincipalRole::Operator, off(WEB, &"x".repeat(201)), "The reason has 201 characters"),
        (PrincipalRole::Operator, ToolRequest::Enable("nothing".into()), "There is no tool"),
    ] {
        let refusal = tools(&agent, role, request.clone()).await.expect_err("refused").to_string();
        assert!(refusal.contains(refused), "{request:?}: {refusal}");
    }
    assert_eq!(facts(&setup).await, [""; 0]);
    tools(&agent, PrincipalRole::Operator, off(WEB, "it lies")).await.expect("switched");
    for (role, by) in [(PrincipalRole::Operator, "tester"), (PrincipalRole::Client, "")] {
        let Ack::Status(status) = agent.one.control_as(role, Control::Status).await else { panic!("no status") };
        let health = web_of(&agent, role).await;
        assert_eq!((&*health.actor, &*status.tools[0].actor, &*health.detail), (by, by, "it lies"), "{role:?}");
    }
    assert_eq!(agent.one.command("alice", "/tools enable web").await, "The tool web is enabled.");
    assert!(agent.one.command("alice", "/tools switch").await.starts_with("/tools lists"));
    let (result, offered) = turn(&setup, &mut agent).await;
    assert_eq!((result.status, offered), (ToolStatus::Error, true));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_keeps_what_is_off_and_begins_the_count_anew() {
    let (tool, _) = web();
    let setup = Setup { health: disable(2, 2, 600), ..Setup::new(ScriptedModel::new(turns(2))).tool(tool) };
    let mut agent = setup.start().await;
    for _ in 0..2 {
        turn(&setup, &mut agent).await;
    }
    agent.crash().await;

    let setup = setup.next_boot(ScriptedModel::new(turns(2)));
    let mut agent = setup.start().await;
    let (refused, offered) = turn(&setup, &mut agent).await;
    assert_eq!((refused.status, offered), (ToolStatus::Denied, false));
    let listed = agent.one.command("alice", "/tools").await;
    assert!(
        listed.contains("The tool web has been disabled since ") && listed.contains("It is tried again"),
        "{listed}"
    );
    assert_eq!(agent.one.command("alice", "/tools enable web").await, "The tool web is enabled.");
    let (result, offered) = turn(&setup, &mut agent).await;
    assert_eq!((result.status, offered), (ToolStatus::Error, true));
    assert_eq!(web_of(&agent, PrincipalRole::Operator).await.failures, 1);
    agent.shut_down().await;

    let setup = setup.next_boot(ScriptedModel::new(turns(1)));
    let mut agent = setup.start().await;
    assert!(turn(&setup, &mut agent).await.1, "what was switched on stays on");
    assert_eq!(facts(&setup).await, ["web off by rule", "web on by tester"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_store_does_not_take_is_not_done_by_hand_and_holds_until_the_next_start_by_rule() {
    let (tool, _) = web();
    let (setup, store) = faulty(ScriptedModel::new(turns(3)));
    let setup = Setup { health: disable(2, 2, 600), ..setup.tool(tool) };
    let mut agent = setup.start().await;
    store.plan().every(StoreOp::SwitchTool, Fault::Fail);
    let request = ToolRequest::Disable { name: WEB.into(), detail: "it lies".into() };
    let refused = tools(&agent, PrincipalRole::Operator, request).await;
    assert!(matches!(refused, Err(Refusal::Store(_))), "{refused:?}");
    assert_eq!(web_of(&agent, PrincipalRole::Operator).await.state, ToolState::Ok);
    for _ in 0..2 {
        turn(&setup, &mut agent).await;
    }
    assert_eq!(turn(&setup, &mut agent).await.0.status, ToolStatus::Denied, "the run goes on, and the tool is off");
    agent.shut_down().await;
    store.plan().clear();

    let setup = setup.next_boot(ScriptedModel::new(turns(1)));
    let mut agent = setup.start().await;
    assert_eq!(turn(&setup, &mut agent).await.0.status, ToolStatus::Error);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_ends_since_a_tool_kept_failing_says_which() {
    let (tool, _) = web();
    let script: Vec<Scripted> = (0..5).map(|n| Scripted::call(WEB, json!({"text": n.to_string()}))).collect();
    let script = script.into_iter().chain([Scripted::text("It could not be done.")]);
    let setup = Setup { jobs: JobsConfig::default(), ..Setup::new(ScriptedModel::new(script)).tool(tool) };
    let mut agent = setup.start().await;
    let order = JobOrder { task: "look it up".into(), ..JobOrder::default() };
    let made = agent.one.control(Control::Job(JobRequest::Create(order))).await;
    assert!(matches!(made, Ack::Job(_)), "{made:?}");
    let told = agent.one.next().await;
    let jobs = setup.store.jobs.jobs(JobFilter::default()).await.expect("readable");
    let [job] = &jobs[..] else { panic!("{jobs:?}") };
    let named = "the tool web failed 5 times and did not work again";
    assert!(job.detail.contains(named), "{job:?}");
    assert!(told.contains(named), "{told}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_takes_all_its_tools_with_it() {
    let rule = ToolHealthRule { tools: vec!["mcp:*".into()], ..disable(2, 2, 600).rules.remove(0) };
    let script = turns(2).into_iter().chain([Scripted::call("other", json!({})), Scripted::text("that is all")]);
    let setup = Setup::new(ScriptedModel::new(script))
        .tool(web().0.of_server("files"))
        .tool(TestTool::named("echo").called("other").of_server("files"))
        .tool(TestTool::named("echo").called("another").of_server("notes"));
    let setup = Setup { health: ToolHealthConfig { rules: vec![rule], ..ToolHealthConfig::default() }, ..setup };
    let mut agent = setup.start().await;
    for _ in 0..2 {
        assert_eq!(turn(&setup, &mut agent).await.0.status, ToolStatus::Error);
    }
    let (refused, _) = turn(&setup, &mut agent).await;
    assert_eq!((&*refused.name, refused.status), ("other", ToolStatus::Denied));
    assert!(refused.text.starts_with("denied: the MCP server files, with all its tools, is disabled: "));
    let offered = setup.model.seen()[4].tools.clone().unwrap_or_default();
    let of_servers: Vec<_> = offered.iter().filter(|tool| ["web", "other", "another"].contains(&&***tool)).collect();
    assert_eq!(of_servers, ["another"]);
    assert_eq!(facts(&setup).await, ["mcp:files off by rule"]);
    let status = agent.one.command("alice", "/status").await;
    assert!(status.contains("The MCP server files has been disabled since "), "{status}");
    agent.shut_down().await;
}
