//! Lightweight routine runs and the heartbeat ask a person, and pause until the answer; and the grants of routines.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use belay_automation::RoutinesConfig;
use belay_protocol::{
    AccessDecision, Ack, ApprovalFilter, ApprovalRequest, ApprovalState, Authority, ChannelAccess, Control, Decision,
    FreezeRequest, FreezeScope, HEARTBEAT, Refusal, RoutineAnswer, RoutineRequest, RoutineRunStatus, RoutineSpec,
    RunStatus, SessionKey, StopTarget, Trigger, WorkGrant,
};
use belay_run::approvals::Fallback;
use belay_testkit::faulty::{Fault, Faulty, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::heartbeat::untiring;
use crate::routines::{ask, ended, fire, put, routine, with_tools};
use crate::support::{Running, Setup, TestTool, faulty, ports, saw};

fn ring(text: &str) -> Scripted {
    Scripted::call("ring", json!({ "text": text }))
}

fn bell() -> TestTool {
    TestTool::named("echo").called("ring").asking()
}

/// An agent with routines and a tool that asks.
fn setup_of(script: impl IntoIterator<Item = Scripted>, bell: TestTool) -> Setup {
    Setup { routines: RoutinesConfig::default(), ..Setup::new(ScriptedModel::new(script)) }.tool(bell)
}

fn watch() -> RoutineSpec {
    with_tools(routine("watch", Trigger::Manual), 3)
}

async fn requests(setup: &Setup) -> Vec<ApprovalRequest> {
    let mut all = setup.store.approvals.approvals(ApprovalFilter::default()).await.expect("readable");
    all.reverse();
    all
}

async fn decide(agent: &Running, approval: &ApprovalRequest, decision: Decision) -> Ack {
    agent.one.control(Control::Decide { approval: approval.id, decision }).await
}

/// Makes the routine in the conversation of Alice, and starts it.
async fn begin(agent: &mut Running, create: &str) {
    let made = agent.one.command("alice", create).await;
    assert!(made.contains("Without a question it may call"), "{made}");
    agent.one.command("alice", "/routine fire watch").await;
}

const CREATE: &str = "/routine create --yes --allow \"echo: text=x\" watch @yearly | look";

#[tokio::test(start_paused = true)]
async fn a_routine_asks_its_owner_and_goes_on_with_its_rounds_after_the_answer() {
    for (word, said, read, calls) in [("yes", "Approved.", "noon", 1), ("no", "Denied.", "denied: the user refused", 0)]
    {
        let bell = bell();
        let rung = bell.calls.clone();
        let setup = setup_of([ring("noon"), ring("again"), Scripted::text("looked")], bell);
        let mut agent = setup.start().await;
        begin(&mut agent, CREATE).await;
        let question = agent.one.next().await;
        assert!(question.starts_with("Routine “watch” asks:") && question.contains("noon"), "{question}");
        let asked = requests(&setup).await.remove(0);
        let run = setup.store.runs.run(asked.run_id).await.expect("readable").expect("known");
        assert_eq!(run.status, RunStatus::Paused);
        assert_eq!(agent.one.command("alice", word).await, said);
        assert!(agent.one.next().await.contains("again"), "the next round asks too");
        assert_eq!(agent.one.command("alice", "no").await, "Denied.");
        assert_eq!(agent.one.next().await, "Routine watch: looked");
        assert_eq!(rung.load(Ordering::SeqCst), calls);
        let seen = saw(&agent.model, 3);
        assert!(seen.iter().any(|text| text.starts_with(read)), "{seen:?}");
        assert!(agent.model.seen()[2].tools.is_none(), "the third call is the last, without tools");
        let runs = ended(&setup, "watch", 1).await;
        assert_eq!((runs[0].status, runs[0].usage.model_calls), (RoutineRunStatus::Attention, 3));
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn silence_reminds_the_owner_once_and_becomes_a_no() {
    let setup = setup_of([ring("noon"), Scripted::text("looked")], bell());
    let mut agent = setup.start().await;
    begin(&mut agent, CREATE).await;
    agent.one.next().await;
    let asked = requests(&setup).await.remove(0);
    setup.clock.set(asked.asked_at.0 + (asked.expires_at.0 - asked.asked_at.0) / 2 + 1);
    assert!(agent.one.next().await.starts_with("**Reminder:**"));
    setup.clock.set(asked.expires_at.0);
    assert_eq!(agent.one.next().await, "Routine watch: looked");
    assert_eq!(requests(&setup).await[0].state, ApprovalState::Expired);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_keeps_the_question_and_an_answer_counts_before_and_after_it() {
    for before in [true, false] {
        let bell = bell();
        let rung = bell.calls.clone();
        let setup = setup_of([ring("noon")], bell);
        let mut agent = setup.start().await;
        begin(&mut agent, CREATE).await;
        agent.one.next().await;
        let asked = requests(&setup).await.remove(0);
        if before {
            let decide =
                setup.store.approvals.decide(asked.id, ApprovalState::Approved, None, "tester", asked.asked_at);
            decide.await.expect("stored");
        }
        agent.crash().await;
        let next = setup.next_boot(ScriptedModel::new([Scripted::text("looked")]));
        let mut agent = next.start().await;
        if !before {
            let Ack::Command(reply) = decide(&agent, &asked, Decision::Approve).await else { panic!("it counts") };
            assert!(!reply.refused);
        }
        while agent.one.next().await != "Routine watch: looked" {}
        assert_eq!((rung.load(Ordering::SeqCst), requests(&next).await.len()), (1, 1));
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn wherever_the_daemon_dies_the_call_of_a_routine_runs_once_at_most() {
    for op in [StoreOp::PauseRun, StoreOp::Decide] {
        for fault in [Fault::Die, Fault::DieAfter] {
            let bell = bell();
            let rung = bell.calls.clone();
            let (mut setup, store) = faulty(ScriptedModel::new([ring("noon")]));
            setup.routines = RoutinesConfig::default();
            setup.tools.push(Arc::new(bell));
            let mut agent = setup.start().await;
            store.plan().nth_of(op, 1, fault);
            begin(&mut agent, CREATE).await;
            agent.asked(1).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            if op == StoreOp::Decide {
                let approval = requests(&setup).await.remove(0).id;
                let answer = Control::Decide { approval, decision: Decision::Approve };
                let _ = tokio::time::timeout(Duration::from_secs(60), agent.one.control(answer)).await;
            }
            agent.crash().await;
            let alive = ports(Arc::new(Faulty::new(store.inner().clone())));
            // A run that died before it was paused has an open call with an unknown outcome.
            let model = ScriptedModel::new([]).then_forever(Scripted::text("looked"));
            let next = Setup { store: alive, ..setup.next_boot(model) };
            let mut agent = next.start().await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            for asked in requests(&next).await.iter().filter(|asked| asked.state == ApprovalState::Waiting) {
                decide(&agent, asked, Decision::Approve).await;
            }
            while agent.one.next().await != "Routine watch: looked" {}
            let asked = requests(&next).await;
            let used = asked.iter().filter(|asked| asked.state == ApprovalState::Used).count();
            assert_eq!(rung.load(Ordering::SeqCst), used, "{op:?} {fault:?}: {asked:?}");
            assert!(asked.len() <= 1, "{op:?} {fault:?}: {asked:?}");
            agent.shut_down().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_withdraws_the_question_of_a_routine_and_a_freeze_keeps_it() {
    let setup = setup_of([ring("noon")], bell());
    let mut agent = setup.start().await;
    begin(&mut agent, CREATE).await;
    agent.one.next().await;
    let freeze = FreezeRequest::Freeze { scope: FreezeScope::All, detail: None };
    agent.one.control(Control::Freeze(freeze)).await;
    let asked = requests(&setup).await.remove(0);
    assert_eq!(asked.state, ApprovalState::Waiting);
    agent.one.control(Control::Freeze(FreezeRequest::Thaw(FreezeScope::All))).await;
    agent.one.control(Control::Stop(StopTarget::Run(asked.run_id))).await;
    let runs = ended(&setup, "watch", 1).await;
    assert_eq!(runs[0].status, RoutineRunStatus::Failed);
    assert_eq!(requests(&setup).await[0].state, ApprovalState::Withdrawn);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_routine_calls_what_is_granted_until_that_is_revoked() {
    let bell = bell();
    let rung = bell.calls.clone();
    let script = [ring("noon"), ring("midnight"), Scripted::text("one"), ring("noon"), Scripted::text("two")];
    let setup = setup_of(script, bell);
    let mut agent = setup.start().await;
    begin(&mut agent, "/routine create --yes --allow \"ring: text=noon\" watch @yearly | look").await;
    assert!(agent.one.next().await.contains("midnight"), "what is not granted asks");
    assert_eq!(rung.load(Ordering::SeqCst), 1);
    assert_eq!(agent.one.command("alice", "no").await, "Denied.");
    assert_eq!(agent.one.next().await, "Routine watch: one");
    let shown = agent.one.command("alice", "/routine show watch").await;
    assert!(shown.contains("1. `ring: text=noon`"), "{shown}");
    assert!(agent.one.command("alice", "/routine revoke watch 1").await.contains("(revoked)"));
    let Ack::Command(none) = agent.one.text("alice", "/routine revoke watch 2").await else { panic!("a command") };
    assert!(none.reply.contains("has no grant 2"), "{}", none.reply);
    agent.one.next().await;
    agent.one.command("alice", "/routine fire watch").await;
    assert!(agent.one.next().await.contains("noon"), "the revoked grant asks");
    assert_eq!(agent.one.command("alice", "no").await, "Denied.");
    assert_eq!(agent.one.next().await, "Routine watch: two");
    assert_eq!(rung.load(Ordering::SeqCst), 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_grant_of_a_routine_overrides_no_untrusted_content_and_no_model_keeps_it() {
    // The page is untrusted content, after which a tool with external effects asks.
    let page = TestTool::named("echo").called("page").of_outside();
    let bell = bell();
    let rung = bell.calls.clone();
    let update =
        json!({"action": "update", "name": "watch", "prompt": "ring", "mode": "lightweight", "use_tools": true});
    let script = [
        Scripted::call("page", json!({"text": "ring!"})),
        ring("noon"),
        Scripted::text("one"),
        Scripted::call("routine", update),
        Scripted::text("changed"),
    ];
    let setup = setup_of(script, bell).tool(page);
    let mut agent = setup.start().await;
    begin(&mut agent, "/routine create --yes --allow \"ring\" watch @yearly | look").await;
    assert!(agent.one.next().await.contains("untrusted content"));
    assert_eq!(agent.one.command("alice", "no").await, "Denied.");
    assert_eq!(agent.one.next().await, "Routine watch: one");
    assert_eq!(rung.load(Ordering::SeqCst), 0);
    agent.one.accepted("alice", "let it ring").await;
    agent.one.next().await;
    agent.one.command("alice", "yes").await;
    agent.one.next().await;
    let now = setup.store.routines.routine("watch").await.expect("readable").expect("known");
    assert_eq!(now.spec.allow, []);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn grants_that_cannot_be_given_are_refused_with_the_reason() {
    let setup = setup_of([Scripted::text("read")], bell());
    let agent = setup.start().await;
    let granted = |text: &str| vec![WorkGrant::parse(text).expect("a grant")];
    let no_tools = RoutineSpec { allow: granted("ring"), ..routine("watch", Trigger::Manual) };
    let many = RoutineSpec { allow: vec![granted("ring").remove(0); 21], ..watch() };
    for (spec, why) in [(no_tools, "this routine calls no tools"), (many, "must be at most 20 grants")] {
        let Err(Refusal::Invalid(refused)) = ask(&agent, RoutineRequest::Put { spec, fresh: true }).await else {
            panic!("refused")
        };
        assert!(refused.contains(why), "{refused}");
    }
    let Ack::Accepted(_) = agent.one.relayed("alice", CREATE).await else { panic!("no command") };
    let spec = RoutineSpec { allow: granted("ring"), ..watch() };
    put(&agent, spec).await;
    let revoked = ask(&agent, RoutineRequest::Revoke { name: "watch".into(), grant: 1 }).await;
    let Ok(RoutineAnswer::Routine(revoked)) = revoked else { panic!("{revoked:?}") };
    assert!(revoked.spec.allow[0].revoked && revoked.revision == 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn at_most_half_of_the_routine_runs_wait_and_one_more_is_refused_at_once() {
    let script = [ring("noon"), ring("one"), Scripted::text("dry"), Scripted::text("wet"), ring("two")];
    let mut setup = setup_of(script.into_iter().chain([Scripted::text("dark")]), bell());
    setup.routines.max_concurrent = 3;
    let mut agent = setup.start().await;
    agent.one.command("alice", &CREATE.replace("watch", "yard")).await;
    begin(&mut agent, CREATE).await;
    assert!(agent.one.next().await.contains("noon"));
    agent.one.command("alice", "/routine fire yard").await;
    assert_eq!(agent.one.next().await, "Routine yard: dry");
    let seen = saw(&agent.model, 3);
    assert!(seen.iter().any(|text| text.contains("1 routine runs wait for people already")), "{seen:?}");
    let asked = requests(&setup).await;
    assert_eq!(asked.len(), 1);
    decide(&agent, &asked[0], Decision::Deny).await;
    assert_eq!(agent.one.next().await, "Denied.");
    assert_eq!(agent.one.next().await, "Routine watch: wet");
    agent.one.command("alice", "/routine fire yard").await;
    assert!(agent.one.next().await.contains("two"), "the place of the answered run is free");
    assert_eq!(agent.one.command("alice", "no").await, "Denied.");
    assert_eq!(agent.one.next().await, "Routine yard: dark");
    agent.shut_down().await;
}

/// Everybody is an operator, and a conversation is a session of the same name.
struct Everybody;

impl ChannelAccess for Everybody {
    fn standing_of(&self, _principal: &str, _conversation: Option<&str>) -> AccessDecision {
        AccessDecision::May(Authority::Operator)
    }

    fn serves(&self, _conversation: &str) -> bool {
        true
    }

    fn session_of(&self, conversation: &str) -> Option<SessionKey> {
        Some(conversation.into())
    }
}

#[tokio::test(start_paused = true)]
async fn the_heartbeat_asks_the_fallback_and_is_refused_without_one() {
    for has_fallback in [true, false] {
        let bell = bell();
        let rung = bell.calls.clone();
        let mut setup = untiring(ScriptedModel::new([ring("noon"), Scripted::text("The cellar is wet.")])).tool(bell);
        setup.heartbeat.use_tools = true;
        setup.lists = Some(Arc::new(Everybody));
        setup.approvals.fallback = has_fallback.then(|| Fallback { channel: "one".into(), to: "bob".into() });
        let mut agent = setup.start().await;
        fire(&agent, HEARTBEAT).await.expect("it beats");
        if has_fallback {
            assert!(agent.one.next().await.starts_with("The heartbeat asks:"));
            let asked = requests(&setup).await.remove(0);
            assert_eq!(asked.asked_in().as_str(), "bob");
            decide(&agent, &asked, Decision::Approve).await;
        }
        while !agent.one.next().await.contains("The cellar is wet.") {}
        assert_eq!(rung.load(Ordering::SeqCst), usize::from(has_fallback));
        if !has_fallback {
            let seen = saw(&agent.model, 2);
            assert!(seen.iter().any(|text| text.contains("nobody can be reached who may answer")), "{seen:?}");
        }
        agent.shut_down().await;
    }
}
