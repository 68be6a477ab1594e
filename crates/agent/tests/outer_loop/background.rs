//! Processes in the background: what stops, deletions and ends of runs ask for. The processes are the test's.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{
    Ack, BackgroundProcess, Body, Control, Inbound, OrderId, PrincipalRole, ProcessesOf, RunId, RunProcesses,
    SessionKey, StillRunning, StopReport, StopTarget,
};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::support::{Running, Setup, TestTool, end_of};

/// One process, which the conversation keeps and which takes this long to end.
struct Kept {
    slow: Duration,
    run: RunId,
    said: Mutex<Vec<String>>,
}

impl Kept {
    fn new(seconds: u64) -> Arc<Self> {
        Arc::new(Self { slow: Duration::from_secs(seconds), run: RunId::new(), said: Mutex::default() })
    }

    fn say(&self, what: String) {
        self.said.lock().expect("not poisoned").push(what);
    }

    fn said(&self) -> Vec<String> {
        self.said.lock().expect("not poisoned").clone()
    }

    fn still(&self) -> StillRunning {
        StillRunning { run_id: self.run, pid: Some(1), what: "a process".to_owned() }
    }
}

#[async_trait]
impl RunProcesses for Kept {
    async fn end(&self, run: RunId) {
        self.say(format!("end {run}"));
    }

    fn alive(&self, _run: RunId) -> Vec<StillRunning> {
        Vec::new()
    }

    fn in_background(&self) -> Vec<BackgroundProcess> {
        let process = |id: &str, session: &str, kept| BackgroundProcess {
            id: id.to_owned(),
            session: session.into(),
            run_id: self.run,
            command: "make serve".to_owned(),
            pid: Some(1),
            kept,
            for_ms: 1,
            printed_bytes: 0,
        };
        vec![process("p1", "alice", true), process("p2", "alice", false), process("p3", "bob", true)]
    }

    fn stop_background(&self, of: &ProcessesOf) -> usize {
        self.say(format!("stop {of:?}"));
        1
    }

    async fn background_ended(&self, _of: &ProcessesOf) {
        tokio::time::sleep(self.slow).await;
        self.say("ended".to_owned());
    }

    fn background_ending(&self, of: &ProcessesOf) -> Vec<StillRunning> {
        self.say(format!("ending {of:?}"));
        vec![self.still()]
    }

    fn forget_background(&self, session: &SessionKey) {
        self.say(format!("forget {session}"));
    }
}

fn of_alice() -> ProcessesOf {
    ProcessesOf::Session("alice".into())
}

async fn stop(agent: &Running, target: StopTarget, order: OrderId) -> StopReport {
    let (stop, key) = (Body::Control(Control::Stop(target)), order.to_string());
    match agent.one.send(agent.one.inbound("control", PrincipalRole::Operator, stop, Some(&key))).await {
        Ack::Stopped(report) => report,
        other => panic!("not a report: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_is_repeated_ends_nothing_again_and_lists_what_has_not_ended() {
    for by_run in [false, true] {
        let processes = Kept::new(3600);
        let setup = Setup { processes: processes.clone(), ..Setup::new(ScriptedModel::new([Scripted::hang()])) };
        let agent = setup.start().await;
        let run = agent.one.accepted("alice", "serve").await.run_id;
        agent.asked(1).await;
        let target = if by_run { StopTarget::Run(run) } else { StopTarget::Session("alice".into()) };
        let order = OrderId::new();
        let first = stop(&agent, target.clone(), order).await;
        assert_eq!((first.still_running, first.ended_processes), (vec![processes.still()], 1));
        // The run has ended meanwhile.
        let again = stop(&agent, target, order).await;
        assert_eq!((again.still_running, again.ended_processes), (vec![processes.still()], 0), "{by_run}");
        let stops: Vec<String> = processes.said().into_iter().filter(|said| said.starts_with("stop")).collect();
        assert_eq!(stops, [format!("stop {:?}", of_alice())]);
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_ends_its_run_and_nothing_that_a_person_has_kept() {
    let processes = Kept::new(0);
    let setup = Setup { processes: processes.clone(), ..Setup::new(ScriptedModel::new([Scripted::hang()])) };
    let agent = setup.start().await;
    let run = agent.one.accepted("alice", "hello").await.run_id;
    agent.asked(1).await;
    let report = stop(&agent, StopTarget::RunOfGoneClient(run), OrderId::new()).await;
    assert_eq!((report.stopped, report.ended_processes), (vec![run], 0));
    assert!(
        processes.said().contains(&format!("end {run}"))
            && !processes.said().iter().any(|said| said.starts_with("stop"))
    );
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_drops_what_its_processes_have_printed_although_none_is_alive() {
    let processes = Kept::new(0);
    let setup = Setup { processes: processes.clone(), ..Setup::new(ScriptedModel::new([Scripted::text("done")])) };
    let agent = setup.start().await;
    let run = agent.one.accepted("alice", "build it").await;
    let id = run.run_id;
    end_of(run).await;
    assert!(processes.said().contains(&format!("end {id}")), "{:?}", processes.said());
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_waits_for_the_processes_of_the_conversation_and_forgets_them() {
    let processes = Kept::new(3);
    let model = ScriptedModel::new([]).then_forever(Scripted::text("ok"));
    let setup = Setup { processes: processes.clone(), ..Setup::new(model) };
    let mut agent = setup.start().await;
    let expected = [format!("stop {:?}", of_alice()), "forget alice".to_owned(), "ended".to_owned()];
    agent.one.ask("alice", "serve").await;
    processes.said.lock().expect("not poisoned").clear();
    agent.one.command("alice", "/clear").await;
    assert_eq!(processes.said()[..3], expected);
    agent.one.ask("alice", "serve").await;
    processes.said.lock().expect("not poisoned").clear();
    assert!(matches!(agent.one.control(Control::DeleteSession("alice".into())).await, Ack::Removed(_)));
    assert_eq!(processes.said(), expected);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_says_what_the_conversation_keeps_and_how_that_is_ended() {
    let processes = Kept::new(0);
    let setup = Setup { processes: processes.clone(), ..Setup::new(ScriptedModel::new([Scripted::hang()])) };
    let mut agent = setup.start().await;
    let kept = "A background process lives on: p1 (make serve). /stop ends it.";
    assert_eq!(agent.one.command("alice", "/interrupt").await, format!("Nothing is running. {kept}"));
    agent.one.accepted("alice", "hello").await;
    agent.asked(1).await;
    assert_eq!(agent.one.command("alice", "/interrupt").await, format!("Interrupted. {kept}"));
    assert_eq!(agent.one.command("carol", "/interrupt").await, "Nothing is running.");
    // The signer of a webhook writes here and reads nothing.
    let signed = agent.one.inbound("alice", PrincipalRole::User, Body::Text("/interrupt".into()), None);
    let Ack::Command(said) = agent.one.send(Inbound { reply_to: None, ..signed }).await else { panic!("no command") };
    assert!(!said.reply.contains("make serve"), "{}", said.reply);
    assert!(!processes.said().iter().any(|said| said.starts_with("stop")));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_run_has_its_step_and_the_tools_that_work_for_it() {
    let wait = TestTool::named("wait");
    let calls = wait.calls.clone();
    let setup = Setup::new(ScriptedModel::new([Scripted::call("wait", json!({}))])).tool(wait);
    let agent = setup.start().await;
    let run = agent.one.accepted("alice", "wait").await.run_id;
    while calls.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let Ack::Status(status) = agent.one.control(Control::Status).await else { panic!("no status") };
    let [live] = &status.running[..] else { panic!("{:?}", status.running) };
    assert_eq!((live.run_id, live.step, &live.tools[..]), (run, 1, &["wait".to_owned()][..]));
    agent.one.control(Control::Stop(StopTarget::All)).await;
    agent.shut_down().await;
}
