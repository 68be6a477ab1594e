//! Stop means stopped: while a model streams, while a tool runs, for one, for all, and at shutdown.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use belay_agent::{AgentExit, DRAIN_REST_S};
use belay_protocol::{
    Ack, Body, Control, Principal, PrincipalRole, RunId, RunProcesses, RunStatus, StillRunning, StopReason, StopTarget,
    Tool, ToolContext, ToolOutput, ToolSpec,
};
use belay_testkit::faulty::Fault;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::support::{PATIENCE, Setup, TestTool, end_of, faulty};

#[tokio::test(start_paused = true)]
async fn a_stop_from_another_channel_drops_the_model_call_at_once() {
    let setup = Setup::new(ScriptedModel::new([Scripted::hang().after_pieces(["still ", "talking"])]));
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "tell me a story").await;
    let run = accepted.run_id;
    agent.asked(1).await;

    let begun = Instant::now();
    let reply = agent.two.command("operator", &format!("/stop {run}")).await;
    assert!(begun.elapsed() <= Duration::from_millis(100), "took {:?}", begun.elapsed());
    assert_eq!(reply, "Interrupted.");
    agent.dropped(1).await;
    let record = end_of(accepted).await;
    assert_eq!((record.status, record.reason), (RunStatus::Stopped, Some(StopReason::OperatorStop)));
    assert_eq!(agent.one.next().await, "Stopped by the operator.", "its own conversation is told");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_from_the_same_conversation_is_answered_once() {
    let setup = Setup::new(ScriptedModel::new([Scripted::hang(), Scripted::text("next")]));
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "hello").await;
    agent.asked(1).await;
    assert_eq!(agent.one.command("alice", "/stop").await, "Interrupted.");
    assert_eq!(end_of(accepted).await.reason, Some(StopReason::UserStop));
    assert_eq!(agent.one.ask("alice", "again").await, "next", "nothing else was said in between");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_waits_on_its_token_is_stopped_and_its_call_has_a_result() {
    let model = ScriptedModel::new([Scripted::call("wait", json!({})), Scripted::text("what now?")]);
    let setup = Setup::new(model).tool(TestTool::named("wait"));
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "wait for it").await;
    agent.asked(1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;

    let begun = Instant::now();
    let Ack::Stopped(report) = agent.two.control(Control::Stop(StopTarget::Run(accepted.run_id))).await else {
        panic!("a stop is answered with a report");
    };
    assert!(begun.elapsed() <= Duration::from_millis(100));
    assert_eq!((report.stopped, report.still_running), (vec![accepted.run_id], vec![]));
    assert_eq!(agent.one.next().await, "Stopped by the operator.");
    assert_eq!(agent.one.ask("alice", "go on").await, "what now?");
    let seen = agent.model.seen();
    let results: Vec<_> = seen[1].messages.iter().map(|message| message.text().to_owned()).collect();
    assert_eq!(results, ["wait for it", "", "cancelled: the run was stopped", "go on"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_command_that_a_stop_has_ended_has_no_unknown_outcome() {
    for (tool, expected) in [
        (
            TestTool::named("deaf").starting_programs(),
            "cancelled: the run was stopped, and the daemon ends the processes",
        ),
        (TestTool::named("deaf").writing(), "outcome unknown: the run was stopped"),
    ] {
        let setup =
            Setup::new(ScriptedModel::new([Scripted::call("deaf", json!({})), Scripted::text("ok")])).tool(tool);
        let mut agent = setup.start().await;
        let accepted = agent.one.accepted("alice", "go").await;
        agent.asked(1).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(agent.one.command("alice", "/stop").await, "Interrupted.");
        end_of(accepted).await;
        assert_eq!(agent.one.ask("alice", "go on").await, "ok");
        let seen = agent.model.seen();
        let result = seen[1].messages[2].text();
        assert!(result.starts_with(expected), "{result}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_deaf_to_its_token_is_abandoned_within_the_answer_time() {
    let model = ScriptedModel::new([Scripted::calls([("deaf", json!({})), ("echo", json!({"text": "fine"}))])]);
    let setup = Setup::new(model).tool(TestTool::named("deaf"));
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "go").await;
    agent.asked(1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begun = Instant::now();
    assert_eq!(agent.one.command("alice", "/stop").await, "Interrupted.");
    assert!(begun.elapsed() <= Duration::from_millis(100));
    let record = end_of(accepted).await;
    assert_eq!((record.status, record.usage.tool_calls), (RunStatus::Stopped, 2));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn interrupt_ends_the_turn_and_stop_clears_the_queue_too() {
    let setup = Setup::new(ScriptedModel::new([Scripted::hang(), Scripted::hang()]));
    let mut agent = setup.start().await;
    let first = agent.one.accepted("alice", "first").await;
    let second = agent.one.accepted("alice", "second").await;
    let third = agent.one.accepted("alice", "third").await;
    let other = agent.two.accepted("bob", "not mine").await;
    agent.asked(2).await;
    agent.model.push(Scripted::hang());

    assert_eq!(agent.one.command("alice", "/interrupt").await, "Interrupted.");
    assert_eq!(end_of(first).await.status, RunStatus::Stopped);
    agent.asked(3).await; // the queue goes on
    assert_eq!(agent.one.command("alice", "/stop").await, "Interrupted; cleared 1 waiting message.");
    for run in [second, third] {
        assert_eq!(end_of(run).await.reason, Some(StopReason::UserStop));
    }
    assert_eq!(agent.one.command("alice", "/stop").await, "Nothing is running.");
    assert_eq!(agent.model.dropped_count(), 2, "bob's call goes on");

    let Ack::Stopped(report) = agent.two.control(Control::Stop(StopTarget::All)).await else { panic!() };
    assert_eq!(report.stopped, [other.run_id]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn everyone_may_stop_what_is_theirs_also_by_name() {
    for by_run in [true, false] {
        let setup = Setup::new(ScriptedModel::new([Scripted::hang()]));
        let agent = setup.start().await;
        let run = agent.one.accepted("alice", "hello").await;
        agent.asked(1).await;
        let text = if by_run { format!("/stop {}", run.run_id) } else { "/stop alice".into() };
        let Ack::Command(reply) = agent.one.text_as("alice", PrincipalRole::User, &text).await else { panic!() };
        assert_eq!(reply.reply, "Interrupted.");
        assert_eq!(end_of(run).await.reason, Some(StopReason::UserStop));
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn only_an_operator_who_stops_the_run_of_another_principal_gives_operator_stop_by_whatever_road() {
    let who = |id: &str, role| Principal { id: id.into(), role };
    let (user, client, operator) = (PrincipalRole::User, PrincipalRole::Client, PrincipalRole::Operator);
    for (owner, by, from, expected) in [
        (who("ann", user), who("ann", user), "room", StopReason::UserStop),
        (who("ann", user), who("bob", user), "room", StopReason::UserStop),
        (who("ann", client), who("ann", client), "control", StopReason::UserStop),
        (who("ann", user), who("bob", client), "control", StopReason::UserStop),
        (who("ann", operator), who("ann", operator), "room", StopReason::UserStop),
        (who("ann", operator), who("ann", operator), "elsewhere", StopReason::UserStop),
        (who("ann", operator), who("ann", operator), "control", StopReason::UserStop),
        (who("ann", user), who("bob", operator), "room", StopReason::OperatorStop),
        (who("ann", user), who("bob", operator), "elsewhere", StopReason::OperatorStop),
        (who("ann", user), who("bob", operator), "control", StopReason::OperatorStop),
    ] {
        let setup = Setup::new(ScriptedModel::new([Scripted::hang()]));
        let agent = setup.start().await;
        let Ack::Accepted(run) = agent.one.said_by(owner.clone(), "room", Body::Text("hello".into())).await else {
            panic!("accepted");
        };
        agent.asked(1).await;
        let body = match from {
            "control" => Body::Control(Control::Stop(StopTarget::Run(run.run_id))),
            _ => Body::Text(format!("/stop {}", run.run_id)),
        };
        let answer = agent.one.said_by(by.clone(), from, body).await;
        assert!(matches!(&answer, Ack::Stopped(_) | Ack::Command(_)), "{answer:?}");
        assert_eq!(end_of(run).await.reason, Some(expected), "of {owner:?}, by {by:?} from {from}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn only_operators_shut_down_or_stop_others() {
    let setup = Setup::new(ScriptedModel::new([Scripted::hang()]));
    let mut agent = setup.start().await;
    let run = agent.one.accepted("alice", "hello").await;
    agent.asked(1).await;
    for text in ["/quit", "/exit", "/shutdown", "/stop all", "/stop alice"] {
        let Ack::Command(reply) = agent.two.text_as("mallory", PrincipalRole::User, text).await else {
            panic!("{text}");
        };
        assert!(reply.reply.starts_with("Only an operator"), "{text}: {}", reply.reply);
        agent.two.next().await;
    }
    assert!(run.watch.as_ref().is_some_and(|watch| watch.finished.borrow().is_none()), "alice's run goes on");
    let Ack::Command(reply) = agent.two.text("operator", "/quit").await else { panic!() };
    assert_eq!(reply.reply, "Shutting down.");
    assert_eq!(agent.task.await.expect("no panic"), AgentExit::Quit);
    assert_eq!(end_of(run).await.reason, Some(StopReason::Shutdown));
}

#[tokio::test(start_paused = true)]
async fn a_running_turn_may_finish_during_the_grace_and_queued_ones_wait_for_the_next_start() {
    let setup = Setup::new(ScriptedModel::new([Scripted::text("in time").after(Duration::from_secs(9))]));
    let agent = setup.start().await;
    let first = agent.one.accepted("alice", "first").await;
    agent.one.accepted("alice", "second").await;
    agent.asked(1).await;
    let begun = Instant::now();
    let (mut one, _two) = agent.shut_down().await;
    assert_eq!(begun.elapsed().as_secs(), 9, "the drain ends with the turn");
    assert_eq!(one.next().await, "in time");
    assert_eq!(end_of(first).await.status, RunStatus::Completed);

    let next = setup.next_boot(ScriptedModel::new([Scripted::text("later")]));
    let mut agent = next.start().await;
    assert_eq!(agent.one.next().await, "later");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_outlives_the_grace_is_cancelled_and_recorded() {
    let setup = Setup::new(ScriptedModel::new([Scripted::hang()]));
    let agent = setup.start().await;
    let run = agent.one.accepted("alice", "hello").await;
    agent.asked(1).await;
    let begun = Instant::now();
    let model = agent.model.clone();
    let (mut one, _two) = agent.shut_down().await;
    assert_eq!(begun.elapsed().as_secs(), 10);
    assert_eq!(model.dropped_count(), 1);
    assert_eq!(end_of(run).await.reason, Some(StopReason::Shutdown));
    assert_eq!(one.next().await, StopReason::Shutdown.user_line());
}

#[tokio::test(start_paused = true)]
async fn the_daemon_ends_with_its_last_channel_but_not_for_an_injector_alone() {
    let setup = Setup { injector: true, ..Setup::new(ScriptedModel::new([Scripted::text("bye")])) };
    let mut agent = setup.start().await;
    assert_eq!(agent.one.ask("alice", "hello").await, "bye");
    let two = agent.two;
    agent.one.hang_up();
    assert_eq!(agent.task.await.expect("no panic"), AgentExit::ChannelsEnded, "the injector still lives");
    drop(two);
}

#[tokio::test(start_paused = true)]
async fn errors_empty_replies_and_silence_never_end_the_daemon() {
    use belay_protocol::ModelErrorKind::{Auth, BadRequest, Network, Overloaded, RateLimited};
    let errors = [
        (RateLimited { retry_after: None }, StopReason::RateLimited),
        (Overloaded { retry_after: None }, StopReason::Overloaded),
        (Auth, StopReason::ProviderAuth),
        (BadRequest, StopReason::BadRequest),
        (Network, StopReason::Network),
    ];
    let script = errors.iter().map(|(kind, _)| Scripted::error(*kind)).chain([
        Scripted::text(""),
        Scripted::text("NO_REPLY"),
        Scripted::panic("the model adapter panics"),
        Scripted::text("still here"),
    ]);
    let setup = Setup::new(ScriptedModel::new(script));
    let mut agent = setup.start().await;
    for (_, reason) in errors {
        let line = agent.one.ask("alice", "hello").await;
        let told = line.starts_with("The model could not be used: scripted.");
        assert!(line == reason.user_line() || (told && reason == StopReason::Network), "{reason:?}: {line}");
    }
    assert_eq!(agent.one.ask("alice", "hello").await, StopReason::EmptyReply.user_line());
    let silent = end_of(agent.one.accepted("alice", "hello").await).await;
    assert_eq!((silent.status, silent.reply.as_deref()), (RunStatus::Completed, None));
    assert_eq!(agent.one.ask("alice", "hello").await, StopReason::Internal.user_line(), "a panic has an ending too");
    assert_eq!(agent.one.ask("alice", "hello").await, "still here");
    agent.shut_down().await;
}

/// Processes that do not die, although their end is over.
struct Undying;

#[async_trait]
impl RunProcesses for Undying {
    async fn end(&self, _run: RunId) {}

    fn alive(&self, run: RunId) -> Vec<StillRunning> {
        vec![StillRunning { run_id: run, pid: Some(1), what: "a process".to_owned() }]
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_die_is_in_the_answer_to_the_stop() {
    let setup = Setup { processes: Arc::new(Undying), ..Setup::new(ScriptedModel::new([Scripted::hang()])) };
    let agent = setup.start().await;
    let run = agent.one.accepted("alice", "hello").await;
    agent.asked(1).await;
    let Ack::Stopped(report) = agent.one.control(Control::Stop(StopTarget::Run(run.run_id))).await else { panic!() };
    assert_eq!((report.stopped, report.still_running), (vec![run.run_id], Undying.alive(run.run_id)));
    agent.shut_down().await;
}

/// A tool that blocks its thread until the test lets it go.
struct Blocking {
    spec: ToolSpec,
    began: Notify,
    gate: Mutex<std::sync::mpsc::Receiver<()>>,
}

#[async_trait]
impl Tool for Blocking {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _arguments: &Map<String, Value>, _context: &ToolContext) -> ToolOutput {
        self.began.notify_one();
        let _ = self.gate.lock().expect("one call").recv(); // also when the test has ended
        Ok("let go".into())
    }
}

/// On threads and in real time: the tool blocks one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_tool_that_never_reacts_is_in_the_answer_to_the_stop_until_it_has_ended() {
    let (open, gate) = std::sync::mpsc::channel();
    let schema = json!({"type": "object", "properties": {}});
    let spec = ToolSpec { timeout: PATIENCE, ..ToolSpec::new("block", "blocks", schema) };
    let tool = Arc::new(Blocking { spec, began: Notify::new(), gate: Mutex::new(gate) });
    let mut setup = Setup::new(ScriptedModel::new([Scripted::call("block", json!({}))]));
    setup.tools.push(tool.clone());
    let agent = setup.start().await;
    let run = agent.one.accepted("alice", "hello").await.run_id;
    tool.began.notified().await;
    let stop = || agent.one.control(Control::Stop(StopTarget::Run(run)));
    let Ack::Stopped(report) = stop().await else { panic!() };
    let still = StillRunning { run_id: run, pid: None, what: "the tool block".to_owned() };
    assert!(report.still_running.contains(&still), "{report:?}");
    open.send(()).expect("it waits");
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        let Ack::Stopped(report) = stop().await else { panic!() };
        if report.still_running.is_empty() {
            break;
        }
        assert!(std::time::Instant::now() < until, "{report:?}");
    }
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_takes_no_longer_than_its_limit_while_the_store_does_not_answer() {
    let (setup, store) = faulty(ScriptedModel::new([Scripted::hang()]));
    let agent = setup.start().await;
    agent.one.accepted("alice", "hello").await;
    agent.asked(1).await;
    store.plan().all(Fault::Stall);
    let begun = Instant::now();
    agent.shut_down().await;
    assert!(begun.elapsed() <= Duration::from_secs(10 + DRAIN_REST_S), "took {:?}", begun.elapsed());
}
