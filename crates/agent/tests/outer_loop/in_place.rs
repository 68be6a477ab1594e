//! Runs that other runs have started ask a person and wait in their place: subagents, steps of plans, workers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use belay_agent_loop::StopRules;
use belay_agent_loop::policies::{RunLimits, StopsConfig};
use belay_automation::JobsConfig;
use belay_protocol::{
    Ack, ApprovalFilter, ApprovalRequest, ApprovalState, Control, Decision, EventKind, EventQuery, FreezeRequest,
    FreezeScope, JobFilter, JobOrder, Refusal, RunId, RunStatus, StopReason, StopTarget, WorkGrant,
};
use belay_run::AgentConfig;
use belay_testkit::faulty::{Fault, Faulty, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::{Value, json};

use crate::jobs::{create, done, order, setup_of};
use crate::support::{Running, Setup, TestTool, end_of, faulty, ports, saw};
use crate::workers::{employ_here, hand_over};

const MINUTE: Duration = Duration::from_secs(60);

fn spawn(task: &str) -> Scripted {
    Scripted::call("spawn_subagent", json!({ "task": task }))
}

pub(crate) fn ring(text: &str) -> Scripted {
    Scripted::call("ring", json!({ "text": text }))
}

/// A tool that asks, under the name `ring`.
fn bell() -> TestTool {
    TestTool::named("echo").called("ring").asking()
}

fn text(text: &str) -> Scripted {
    Scripted::text(text)
}

fn planned(steps: Value) -> Scripted {
    Scripted::call("planning", json!({"command": "create", "title": "The work", "steps": steps}))
}

/// All approval requests, oldest first.
pub(crate) async fn requests(setup: &Setup) -> Vec<ApprovalRequest> {
    let mut all = setup.store.approvals.approvals(ApprovalFilter::default()).await.expect("readable");
    all.reverse();
    all
}

pub(crate) async fn states(setup: &Setup) -> Vec<ApprovalState> {
    requests(setup).await.into_iter().map(|approval| approval.state).collect()
}

/// Waits until so many requests were made, and returns them.
async fn until_asked(setup: &Setup, count: usize) -> Vec<ApprovalRequest> {
    for _ in 0..1000 {
        let all = requests(setup).await;
        if all.len() >= count {
            return all;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{count} requests were never made")
}

/// Lets time pass for the clock of dates too.
pub(crate) async fn pass(setup: &Setup, time: Duration) {
    setup.clock.forward(time);
    tokio::time::sleep(time).await;
}

async fn decide(agent: &Running, approval: &ApprovalRequest, decision: Decision) -> Ack {
    agent.one.control(Control::Decide { approval: approval.id, decision }).await
}

/// The questions of a run, as its events tell them.
async fn resolved(setup: &Setup, run: RunId) -> Vec<(String, String)> {
    let query = EventQuery { run: Some(run), ..EventQuery::default() };
    let events = setup.store.events.read(query).await.expect("readable");
    let resolved = events.into_iter().filter_map(|event| match event.kind {
        EventKind::ApprovalResolved { state, actor, .. } => Some((state, actor)),
        _ => None,
    });
    resolved.collect()
}

#[tokio::test(start_paused = true)]
async fn a_subagent_asks_in_the_conversation_and_goes_on_after_a_plain_answer() {
    for (word, answer, expected, calls) in
        [("yes", "Approved.", "noon", 1), ("no", "Denied.", "denied: the user refused", 0), ("always", "", "", 0)]
    {
        let bell = bell();
        let rung = bell.calls.clone();
        let script = [spawn("ring the bell"), ring("noon"), text("over"), text("done")];
        let setup = Setup::new(ScriptedModel::new(script)).tool(bell);
        let mut agent = setup.start().await;
        let accepted = agent.one.accepted("alice", "go").await;
        let question = agent.one.next().await;
        assert!(question.starts_with("A subagent asks:") && question.contains("noon"), "{question}");
        assert!(!question.contains("always"), "{question}");
        let run = setup.store.runs.run(accepted.run_id).await.expect("readable").expect("known");
        assert_eq!((run.status, rung.load(Ordering::SeqCst)), (RunStatus::Running, 0), "nothing is paused");
        let Ack::Status(status) = agent.one.control(Control::Status).await else { panic!("a report") };
        assert_eq!((status.running.len(), status.paused, status.queued), (1, 1, 0));
        if word == "always" {
            let Ack::Refused(refused) = agent.one.text("alice", word).await else { panic!("it is not offered") };
            assert!(refused.to_string().contains("asked each time"), "{refused}");
            agent.shut_down().await;
            continue;
        }
        assert_eq!(agent.one.command("alice", word).await, answer);
        assert_eq!(agent.one.next().await, "done");
        assert_eq!(end_of(accepted).await.status, RunStatus::Completed);
        let read = saw(&agent.model, 3).pop().expect("a result");
        assert!(read.starts_with(expected), "{read}");
        assert_eq!(rung.load(Ordering::SeqCst), calls);
        let Ack::Status(status) = agent.one.control(Control::Status).await else { panic!("a report") };
        assert_eq!(status.paused, 0);
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_plain_yes_behind_another_message_is_no_answer_and_a_line_says_how_to_answer() {
    let script = [spawn("ring"), ring("noon"), text("over"), text("both")];
    let bell = bell();
    let rung = bell.calls.clone();
    let setup = Setup::new(ScriptedModel::new(script)).tool(bell);
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "go").await;
    agent.one.next().await;
    agent.one.accepted("alice", "and hurry").await;
    agent.one.accepted("alice", "yes").await;
    assert!(agent.one.next().await.contains("Your message did not answer it"));
    assert_eq!(rung.load(Ordering::SeqCst), 0);
    agent.one.command("alice", "/approve").await;
    assert_eq!(agent.one.next().await, "both");
    assert_eq!(end_of(accepted).await.status, RunStatus::Completed);
    assert!(saw(&agent.model, 4).iter().any(|message| message == "and hurry"), "{:?}", saw(&agent.model, 4));
    assert_eq!(rung.load(Ordering::SeqCst), 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn silence_reminds_once_and_becomes_a_no_and_waiting_counts_for_no_limit() {
    let bell = bell();
    let rung = bell.calls.clone();
    let script = [spawn("ring"), ring("noon"), ring("noon"), text("over"), text("done")];
    let mut setup = Setup::new(ScriptedModel::new(script)).tool(bell);
    // Each of these is shorter than the time of the question.
    let limits = RunLimits { active_s: 300, ..RunLimits::none() };
    setup.rules = StopRules::compile(&StopsConfig::default(), &limits).into();
    setup.config.subagents.max_time_s = 120;
    setup.queue.stuck_after_s = 200;
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "go").await;
    assert!(agent.one.next().await.starts_with("A subagent asks:"));
    pass(&setup, 16 * MINUTE).await;
    assert!(agent.one.next().await.starts_with("**Reminder:** this question still waits. A subagent asks:"));
    pass(&setup, 15 * MINUTE).await;
    assert_eq!(agent.one.next().await, "done");
    let end = end_of(accepted).await;
    assert_eq!((end.status, rung.load(Ordering::SeqCst)), (RunStatus::Completed, 0), "{end:?}");
    assert!(saw(&agent.model, 3)[2].contains("nobody answered the approval request in time"));
    // The same call is not asked about again in this run.
    assert!(saw(&agent.model, 4)[4].contains("nobody answered the approval request in time"));
    assert_eq!(states(&setup).await, [ApprovalState::Expired]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_after_hours_finds_the_subagent_with_the_time_that_it_had() {
    let script = [
        Scripted::call("spawn_subagent", json!({"task": "ring", "max_time_s": 60})),
        ring("noon"),
        Scripted::hang(),
        text("half"),
        text("done"),
    ];
    let mut setup = Setup::new(ScriptedModel::new(script)).tool(bell());
    setup.approvals.expires_s = 86_400;
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "go").await;
    agent.one.next().await;
    pass(&setup, 300 * MINUTE).await;
    let asked = requests(&setup).await.remove(0);
    decide(&agent, &asked, Decision::Approve).await;
    agent.asked(3).await;
    let before = tokio::time::Instant::now();
    agent.dropped(1).await;
    let left = before.elapsed();
    // A quarter of the time is for the closing turn.
    assert!(left > Duration::from_secs(35) && left <= Duration::from_secs(46), "{left:?}");
    let end = end_of(accepted).await;
    assert_eq!(end.status, RunStatus::Completed, "{end:?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn two_subagents_ask_at_once_and_each_answer_needs_an_id() {
    let two = Scripted::calls([1, 2].map(|n| ("spawn_subagent", json!({"task": format!("ring {n}")}))));
    let script = [two, ring("one"), ring("two"), text("over"), text("over"), text("done")];
    let bell = bell();
    let rung = bell.calls.clone();
    let setup = Setup::new(ScriptedModel::new(script)).tool(bell);
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "go").await;
    agent.one.next().await;
    agent.one.next().await;
    let asked = until_asked(&setup, 2).await;
    assert_ne!(asked[0].digest, asked[1].digest);
    let Ack::Command(refused) = agent.one.text("alice", "/approve").await else { panic!("a command") };
    assert!(refused.refused && refused.reply.contains("More than one question"), "{}", refused.reply);
    agent.one.next().await;
    decide(&agent, &asked[1], Decision::Approve).await;
    agent.asked(4).await;
    assert_eq!((states(&setup).await[0], rung.load(Ordering::SeqCst)), (ApprovalState::Waiting, 1), "one goes on");
    decide(&agent, &asked[0], Decision::Deny).await;
    assert_eq!(end_of(accepted).await.status, RunStatus::Completed);
    assert_eq!(states(&setup).await, [ApprovalState::Denied, ApprovalState::Used]);
    assert_eq!(rung.load(Ordering::SeqCst), 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_subagent_goes_on_while_the_one_beside_it_waits() {
    let two = Scripted::calls([1, 2].map(|n| ("spawn_subagent", json!({"task": format!("part {n}")}))));
    let echo = || Scripted::call("echo", json!({"text": "busy"}));
    let script = [two, ring("one"), echo(), echo(), text("two is done"), text("one is done"), text("done")];
    let setup = Setup::new(ScriptedModel::new(script)).tool(bell());
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "go").await;
    agent.asked(5).await;
    assert_eq!(states(&setup).await, [ApprovalState::Waiting], "the other has come to its end meanwhile");
    agent.one.next().await;
    assert_eq!(agent.one.command("alice", "yes").await, "Approved.");
    assert_eq!(end_of(accepted).await.status, RunStatus::Completed);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_and_a_freeze_withdraw_the_question_and_a_late_yes_runs_nothing() {
    for by_freeze in [false, true] {
        let bell = bell();
        let rung = bell.calls.clone();
        let setup = Setup::new(ScriptedModel::new([spawn("ring"), ring("noon")])).tool(bell);
        let mut agent = setup.start().await;
        let accepted = agent.one.accepted("alice", "go").await;
        let run = accepted.run_id;
        agent.one.next().await;
        if by_freeze {
            let freeze = FreezeRequest::Freeze { scope: FreezeScope::All, detail: None };
            agent.one.control(Control::Freeze(freeze)).await;
        } else {
            agent.one.control(Control::Stop(StopTarget::Run(run))).await;
        }
        let end = end_of(accepted).await;
        assert_eq!(end.status, RunStatus::Stopped, "{end:?}");
        assert_eq!(states(&setup).await, [ApprovalState::Withdrawn]);
        let Ack::Refused(Refusal::Decided(late)) = decide(&agent, &requests(&setup).await[0], Decision::Approve).await
        else {
            panic!("too late")
        };
        assert!(late.contains("no longer asked"), "{late}");
        assert_eq!(rung.load(Ordering::SeqCst), 0);
        assert_eq!(resolved(&setup, run).await, [("withdrawn".to_owned(), "the end of its run".to_owned())]);
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_question_of_a_step_that_ends_while_its_run_goes_on_is_withdrawn() {
    let echo = || Scripted::call("echo", json!({"text": "busy"}));
    let steps = json!(["ring", {"step": "look", "after": []}]);
    // The closing turn takes its time, so that the run goes on for a while.
    let script = [planned(steps), ring("noon"), echo(), Scripted::hang()];
    let mut setup = Setup::new(ScriptedModel::new(script)).tool(bell());
    let limits = RunLimits { model_calls: Some(3), ..RunLimits::none() };
    setup.rules = StopRules::compile(&StopsConfig::default(), &limits).into();
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "/plan ring").await;
    let run = accepted.run_id;
    agent.one.next().await;
    agent.one.next().await;
    assert_eq!(end_of(accepted).await.reason, Some(StopReason::ModelCalls));
    assert_eq!(resolved(&setup, run).await, [("withdrawn".to_owned(), "the end of its call".to_owned())]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_the_same_call_finds_its_question_or_its_answer_and_a_yes_counts_once() {
    // When the answer comes: before the crash, between the two boots, or after the call has found its question.
    for (when, decision) in [
        (0, Decision::Approve),
        (1, Decision::Approve),
        (2, Decision::Approve),
        (1, Decision::Deny),
        (2, Decision::Deny),
    ] {
        let bell = bell();
        let rung = bell.calls.clone();
        let setup =
            setup_of(ScriptedModel::new([planned(json!(["ring it"])), ring("noon"), Scripted::hang()])).tool(bell);
        let mut agent = setup.start().await;
        create(&agent.one, JobOrder { plan: true, ..order("ring") }).await;
        let question = agent.one.next().await;
        assert!(question.starts_with("Step 1 of the plan of Job “ring”"), "{question}");
        let asked = requests(&setup).await.remove(0);
        if when == 0 {
            // The answer is stored, and the daemon dies before the call uses it.
            setup
                .store
                .approvals
                .decide(asked.id, ApprovalState::Approved, None, "tester", asked.asked_at)
                .await
                .expect("stored");
        }
        agent.crash().await;
        let script = match decision {
            Decision::Deny => vec![ring("noon"), done("it stays silent"), text("all")],
            _ => vec![ring("noon"), ring("noon"), done("it has rung"), text("all")],
        };
        let next = setup.next_boot(ScriptedModel::new(script));
        let mut agent = next.start().await;
        if when == 1 {
            let Ack::Command(reply) = decide(&agent, &asked, decision).await else { panic!("it still counts") };
            assert!(!reply.refused);
        }
        if when == 2 {
            agent.asked(1).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(requests(&next).await.len(), 1, "nobody is asked twice");
            decide(&agent, &asked, decision).await;
        }
        if decision == Decision::Approve {
            // The second identical call is another call.
            let second = until_asked(&next, 2).await.remove(1);
            assert_eq!((rung.load(Ordering::SeqCst), second.state), (1, ApprovalState::Waiting), "{when}");
            decide(&agent, &second, Decision::Deny).await;
        }
        while !agent.one.next().await.contains("all") {}
        assert_eq!(rung.load(Ordering::SeqCst), usize::from(decision == Decision::Approve), "{when}");
        let jobs = next.store.jobs.jobs(JobFilter::default()).await.expect("readable");
        assert_eq!(jobs[0].crashes, 0, "a job that waits for a person has crashed nothing");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_a_person_and_keeps_the_question_of_a_job() {
    let bell = bell();
    let rung = bell.calls.clone();
    let setup = setup_of(ScriptedModel::new([planned(json!(["ring it"])), ring("noon")])).tool(bell);
    let mut agent = setup.start().await;
    create(&agent.one, JobOrder { plan: true, ..order("ring") }).await;
    agent.one.next().await;
    let began = tokio::time::Instant::now();
    agent.shut_down().await;
    assert!(began.elapsed() < AgentConfig::default().drain(), "{:?}", began.elapsed());
    let asked = requests(&setup).await.remove(0);
    assert_eq!(asked.state, ApprovalState::Waiting);
    let next = setup.next_boot(ScriptedModel::new([ring("noon"), done("it has rung"), text("all")]));
    let mut agent = next.start().await;
    decide(&agent, &asked, Decision::Approve).await;
    while !agent.one.next().await.contains("all") {}
    assert_eq!((rung.load(Ordering::SeqCst), states(&next).await), (1, vec![ApprovalState::Used]));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_question_is_shown_once_and_after_it_is_stored_also_by_a_store_that_fails() {
    for fault in [Fault::Fail, Fault::LoseAnswer] {
        let (mut setup, store) = faulty(ScriptedModel::new([spawn("ring"), ring("noon"), text("over"), text("done")]));
        setup.tools.push(Arc::new(bell()));
        let mut agent = setup.start().await;
        store.plan().every(StoreOp::AskInPlace, fault);
        let accepted = agent.one.accepted("alice", "go").await;
        agent.asked(2).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let shown = agent.one.delivered.try_recv().is_ok();
        assert_eq!((shown, requests(&setup).await.len()), (fault == Fault::LoseAnswer, usize::from(shown)));
        store.plan().clear();
        if !shown {
            agent.one.next().await;
        }
        tokio::time::sleep(MINUTE).await;
        assert_eq!(states(&setup).await, [ApprovalState::Waiting]);
        assert_eq!(agent.one.command("alice", "yes").await, "Approved.");
        assert_eq!(agent.one.next().await, "done");
        assert_eq!(end_of(accepted).await.status, RunStatus::Completed);
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn wherever_the_daemon_dies_the_call_runs_once_at_most_and_the_run_ends() {
    for op in [StoreOp::AskInPlace, StoreOp::Decide] {
        for fault in [Fault::Die, Fault::DieAfter] {
            let bell = bell();
            let rung = bell.calls.clone();
            let script = [planned(json!(["ring it"])), ring("noon"), done("it has rung"), text("all")];
            let (mut setup, store) = faulty(ScriptedModel::new(script));
            setup.jobs = JobsConfig::default();
            setup.tools.push(Arc::new(bell));
            let agent = setup.start().await;
            store.plan().nth_of(op, 1, fault);
            create(&agent.one, JobOrder { plan: true, ..order("ring") }).await;
            agent.asked(2).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            if op == StoreOp::Decide {
                let approval = requests(&setup).await.remove(0).id;
                let answer = Control::Decide { approval, decision: Decision::Approve };
                let _ = tokio::time::timeout(MINUTE, agent.one.control(answer)).await;
            }
            agent.crash().await;
            // The wrapper around the store is dead; the store is not.
            let alive = ports(Arc::new(Faulty::new(store.inner().clone())));
            let next = setup.next_boot(ScriptedModel::new([ring("noon"), done("it has rung"), text("all")]));
            let next = Setup { store: alive, ..next };
            let mut agent = next.start().await;
            agent.asked(1).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            for asked in requests(&next).await.iter().filter(|asked| asked.state == ApprovalState::Waiting) {
                decide(&agent, asked, Decision::Approve).await;
            }
            while !agent.one.next().await.contains("all") {}
            assert_eq!((rung.load(Ordering::SeqCst), requests(&next).await.len()), (1, 1), "{op:?} {fault:?}");
            agent.shut_down().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_approval_of_a_subagent_does_not_outlive_what_it_was_given_for() {
    let bell = bell();
    let (rung, world) = (bell.calls.clone(), bell.world());
    *world.lock().expect("not poisoned") = "script of yesterday".into();
    let script = [spawn("ring"), ring("noon"), text("over"), text("done")];
    let setup = Setup::new(ScriptedModel::new(script)).tool(bell);
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "go").await;
    agent.one.next().await;
    *world.lock().expect("not poisoned") = "script of today".into();
    assert_eq!(agent.one.command("alice", "yes").await, "Approved.");
    let again = agent.one.next().await;
    assert!(again.contains("script of today") && again.contains("has changed since"), "{again}");
    assert_eq!((rung.load(Ordering::SeqCst), states(&setup).await.len()), (0, 2));
    assert_eq!(agent.one.command("alice", "yes").await, "Approved.");
    assert_eq!(end_of(accepted).await.status, RunStatus::Completed);
    assert_eq!(states(&setup).await, [ApprovalState::Used, ApprovalState::Used]);
    assert_eq!(rung.load(Ordering::SeqCst), 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn only_half_of_the_turns_may_wait_for_people() {
    let script = [spawn("ring"), ring("1"), spawn("ring"), ring("2"), text("refused"), text("done")];
    let mut setup = Setup::new(ScriptedModel::new(script)).tool(bell());
    setup.config.max_concurrent_turns = 2;
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "go").await;
    agent.one.next().await;
    let second = end_of(agent.one.accepted("bob", "go").await).await;
    assert_eq!(second.status, RunStatus::Completed);
    let read = saw(&agent.model, 5)[2].clone();
    assert!(read.starts_with("denied:") && read.contains("agent.max_concurrent_turns"), "{read}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_step_that_waits_lets_a_step_work_that_does_not_need_it() {
    let steps = json!(["ring", "sum up", {"step": "look around", "after": []}]);
    let script =
        [planned(steps), ring("noon"), done("looked around"), done("it has rung"), done("summed up"), text("all")];
    let setup = Setup::new(ScriptedModel::new(script)).tool(bell());
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "/plan ring").await;
    assert!(agent.one.next().await.starts_with("Step 1 of the plan asks:"));
    agent.asked(3).await;
    assert!(saw(&agent.model, 3)[0].contains("Your step is number 2: look around"));
    tokio::time::sleep(MINUTE).await;
    assert_eq!(agent.model.seen().len(), 3, "step 1 needs step 0");
    assert_eq!(agent.one.command("alice", "yes").await, "Approved.");
    assert_eq!(agent.one.next().await, "all");
    let end = end_of(accepted).await;
    assert_eq!(end.reason, Some(StopReason::PlanCompleted), "{end:?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_all_steps_of_a_plan_that_wait() {
    let steps = json!(["ring", {"step": "ring too", "after": []}]);
    let setup = Setup::new(ScriptedModel::new([planned(steps), ring("1"), ring("2")])).tool(bell());
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "/plan ring").await;
    agent.one.next().await;
    agent.one.next().await;
    agent.one.control(Control::Stop(StopTarget::Run(accepted.run_id))).await;
    assert_eq!(end_of(accepted).await.status, RunStatus::Stopped);
    assert_eq!(states(&setup).await, [ApprovalState::Withdrawn, ApprovalState::Withdrawn]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_waits_for_a_person_longer_than_its_own_time() {
    fn own(name: &str) -> TestTool {
        TestTool::named("echo").called(name)
    }
    for (word, reads) in [("yes", "mine"), ("no", "denied: the user refused")] {
        let script = [
            hand_over(json!({"task": "look", "max_time_s": 60})),
            Scripted::call("read_file", json!({"text": "mine"})),
            text("that is it"),
            text("done"),
        ];
        let mut setup = Setup::new(ScriptedModel::new(script));
        setup.tools = vec![Arc::new(TestTool::named("deaf").called("read_file").asking())];
        employ_here(&mut setup, own);
        let mut agent = setup.start().await;
        let accepted = agent.one.accepted("alice", "go").await;
        assert!(agent.one.next().await.starts_with("A worker asks:"));
        pass(&setup, 14 * MINUTE).await;
        agent.one.command("alice", word).await;
        assert_eq!(agent.one.next().await, "done");
        assert_eq!(end_of(accepted).await.status, RunStatus::Completed);
        let read = saw(&agent.model, 3).pop().expect("a result");
        assert!(read.starts_with(reads), "{read}");
        assert!(saw(&agent.model, 4)[2].contains("that is it"), "{:?}", saw(&agent.model, 4));
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn grants_of_a_job_hold_for_its_plan_and_its_subagents() {
    let bell = bell();
    let rung = bell.calls.clone();
    let script = [
        planned(json!(["ring it"])),
        ring("noon"),
        spawn("ring again"),
        ring("noon"),
        text("rung"),
        ring("midnight"),
        done("over"),
        text("all"),
    ];
    let setup = setup_of(ScriptedModel::new(script)).tool(bell);
    let mut agent = setup.start().await;
    let allow = vec![WorkGrant::parse("ring: text=noon").expect("a grant")];
    create(&agent.one, JobOrder { plan: true, allow, ..order("ring") }).await;
    let question = agent.one.next().await;
    assert!(question.contains("midnight"), "{question}");
    assert_eq!((rung.load(Ordering::SeqCst), requests(&setup).await.len()), (2, 1));
    decide(&agent, &requests(&setup).await[0], Decision::Deny).await;
    while !agent.one.next().await.contains("all") {}
    assert_eq!(rung.load(Ordering::SeqCst), 2);
    agent.shut_down().await;
}
