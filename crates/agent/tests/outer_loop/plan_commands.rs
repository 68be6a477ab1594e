//! The commands about a plan: people see it, approve it, and change the steps that have not begun.

use belay_protocol::{Ack, ApprovalState, EventKind, EventQuery, PrincipalRole, RunId, RunStatus, StopReason};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::in_place::{pass, requests, ring, states};
use crate::jobs::done;
use crate::support::{Running, Setup, TestTool, end_of, saw};

const SHORTLY: std::time::Duration = std::time::Duration::from_millis(50);

fn planned(steps: &[&str]) -> Scripted {
    Scripted::call("planning", json!({"command": "create", "title": "The work", "steps": steps}))
}

/// A setup with a tool that asks, so that a step waits as long as the test wants.
fn setup(script: impl IntoIterator<Item = Scripted>) -> Setup {
    Setup::new(ScriptedModel::new(script)).tool(TestTool::named("echo").called("ring").asking())
}

/// The answer to a command, and whether it was refused. Its delivery is left to the caller.
async fn told(agent: &Running, text: &str) -> (String, bool) {
    match agent.one.text("alice", text).await {
        Ack::Command(reply) => (reply.reply, reply.refused),
        other => panic!("{text:?} was not answered as a command: {other:?}"),
    }
}

/// The answer to a command that is carried out.
async fn carried_out(agent: &Running, text: &str) -> String {
    let (reply, refused) = told(agent, text).await;
    assert!(!refused, "{text}: {reply}");
    reply
}

/// Approves what a step has asked. A plain yes counts only while the question is the newest message.
async fn approve_step(setup: &Setup, agent: &Running) {
    let asked =
        requests(setup).await.into_iter().find(|asked| asked.state == ApprovalState::Waiting).expect("it waits");
    agent.one.text("alice", &format!("/approve {}", asked.id)).await;
}

/// The next delivery with this text in it.
async fn heard(agent: &mut Running, part: &str) -> String {
    loop {
        let text = agent.one.next().await;
        if text.contains(part) {
            return text;
        }
    }
}

/// The changes of a plan, as its events tell them.
async fn changes(setup: &Setup, run: RunId) -> Vec<String> {
    let query = EventQuery { run: Some(run), ..EventQuery::default() };
    let events = setup.store.events.read(query).await.expect("readable");
    let line = |kind| match kind {
        EventKind::PlanChanged { change, index, steps, actor } => Some(format!(
            "{change} {} by {actor}: {}",
            index.map_or("-".into(), |at| at.to_string()),
            steps.join(" | ")
        )),
        _ => None,
    };
    events.into_iter().filter_map(|event| line(event.kind)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_person_sees_the_plan_and_changes_the_steps_that_have_not_begun() {
    let setup = setup([
        planned(&["a", "b", "c"]),
        ring("1"),
        done("A"),
        done("B"),
        done("N"),
        Scripted::text("All but c."),
        Scripted::text("hello"),
    ]);
    let mut agent = setup.start().await;
    assert!(told(&agent, "/plan").await.0.starts_with("No plan is being carried out here."));
    let accepted = agent.one.accepted("alice", "/plan tidy").await;
    heard(&mut agent, "Step 1 of the plan asks:").await;

    let shown = carried_out(&agent, "/plan").await;
    assert!(shown.starts_with("Plan: The work (0 of 3 steps completed)\n\n1. a (running)\n2. b\n3. c\n"), "{shown}");
    for (command, why) in [
        ("/plan change 1 x", "Step 1 is running."),
        ("/plan drop 1", "Step 1 is running."),
        ("/plan change 9 x", "There is no step 9: the steps of this plan are 1 to 3."),
        ("/plan add 1 x", "A new step can have the numbers 2 to 4"),
        ("/plan change 2", "/plan shows the plan here."),
        ("/plan approve", "The plan does not wait for an approval."),
    ] {
        let (reply, refused) = told(&agent, command).await;
        assert!(refused && reply.starts_with(why), "{command}: {reply}");
    }
    let long = told(&agent, &format!("/plan change 2 {}", "x".repeat(501))).await;
    assert_eq!(
        long,
        ("Nothing was changed: the text of the step has 501 characters, and at most 500 are allowed.".into(), true)
    );
    assert!(carried_out(&agent, "/plan change 2 b, but better").await.contains("\n2. b, but better\n"));
    assert!(carried_out(&agent, "/plan drop 3").await.starts_with("Step 3 is dropped: c\n\n"));
    let shown = carried_out(&agent, "/Plan add 3 new").await;
    assert!(shown.contains("\n2. b, but better\n3. new\n4. c (dropped)\n"), "{shown}");

    approve_step(&setup, &agent).await;
    assert_eq!(heard(&mut agent, "All but").await, "All but c.");
    let record = end_of(accepted).await;
    assert_eq!((record.status, record.reason), (RunStatus::Completed, Some(StopReason::PlanCompleted)));
    assert_eq!(
        serde_json::Value::from(record.evidence.clone()),
        json!({"completed": 3, "blocked": 0, "dropped": 1, "executions": 3})
    );
    assert!(saw(&agent.model, 4)[0].ends_with("Your step is number 1: b, but better"));
    assert!(saw(&agent.model, 5)[0].ends_with("Your step is number 2: new"));
    let expected = [
        "changed 1 by tester: a | b, but better | c",
        "dropped 2 by tester: a | b, but better | c",
        "added 2 by tester: a | b, but better | new | c",
    ];
    assert_eq!(changes(&setup, record.run_id).await, expected);
    assert!(told(&agent, "/plan drop 1").await.0.starts_with("No plan is being carried out here."), "it makes no plan");
    agent.one.accepted("alice", "hi").await;
    heard(&mut agent, "hello").await;
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_waits_for_an_approval_before_its_first_step_also_over_restarts() {
    let setup = setup([planned(&["a", "b"])]);
    let mut agent = setup.start().await;
    let id = agent.one.accepted("alice", "/plan --review tidy").await.run_id;
    let question = heard(&mut agent, "The plan asks:").await;
    assert!(question.contains("The work\n\n1. a\n2. b") && question.contains("/plan change N TEXT"), "{question}");
    assert!(carried_out(&agent, "/plan").await.contains("\nIt waits: /plan approve lets it go on."));
    carried_out(&agent, "/plan change 2 B").await;
    let question = heard(&mut agent, "The plan asks:").await;
    assert!(question.contains("1. a\n2. B"), "{question}");
    agent.crash().await;

    let next = setup.next_boot(ScriptedModel::new([done("A"), done("B"), Scripted::text("Tidy.")]));
    let mut agent = next.start().await;
    let shown = loop {
        match told(&agent, "/plan").await {
            (shown, false) => break shown,
            _ => tokio::time::sleep(SHORTLY).await, // the plan begins again
        }
    };
    assert!(shown.contains("\n2. B\n") && shown.contains("It waits"), "{shown}");
    pass(&setup, SHORTLY * 20).await;
    assert_eq!(agent.model.seen().len(), 0, "no step begins");
    let waiting = requests(&setup).await.into_iter().filter(|asked| asked.state == ApprovalState::Waiting).count();
    assert_eq!(waiting, 1, "nobody is asked twice");
    assert!(carried_out(&agent, "/plan approve").await.starts_with("Approved: the plan goes on."));
    heard(&mut agent, "Tidy.").await;
    let record = setup.store.runs.run(id).await.expect("readable").expect("known");
    assert_eq!((record.reason, record.evidence["executions"].as_u64()), (Some(StopReason::PlanCompleted), Some(2)));
    assert!(saw(&agent.model, 1)[0].contains("The request behind the plan:\ntidy\n"), "the option is no part of it");
    assert!(!states(&setup).await.contains(&ApprovalState::Waiting), "no question stays open");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_question_about_a_plan_is_answered_like_any_other() {
    for (word, reason) in
        [("yes", StopReason::PlanCompleted), ("no", StopReason::UserStop), ("", StopReason::ApprovalUnavailable)]
    {
        let setup = setup([planned(&["a"]), done("A"), Scripted::text("Tidy.")]);
        let mut agent = setup.start().await;
        let accepted = agent.one.accepted("alice", "/plan --review tidy").await;
        heard(&mut agent, "The plan asks:").await;
        match word {
            "" => pass(&setup, std::time::Duration::from_secs(1801)).await,
            word => drop(agent.one.text("alice", word).await),
        }
        let record = end_of(accepted).await;
        assert_eq!(record.reason, Some(reason), "{record:?}");
        assert_eq!(agent.model.seen().len(), if word == "yes" { 3 } else { 1 });
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_held_before_its_next_step_and_goes_on_after_an_approval() {
    let setup = setup([planned(&["a", "b"]), ring("1"), done("A"), done("B"), Scripted::text("Tidy.")]);
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "/plan tidy").await;
    heard(&mut agent, "Step 1 of the plan asks:").await;
    assert!(carried_out(&agent, "/plan hold").await.starts_with("No further step begins before /plan approve."));
    assert!(told(&agent, "/plan hold").await.0.starts_with("The plan waits for an approval already."));
    approve_step(&setup, &agent).await;
    let question = heard(&mut agent, "The plan asks:").await;
    assert!(question.contains("1. a (done: A)\n2. b"), "{question}");
    assert_eq!(agent.model.seen().len(), 3);
    assert!(told(&agent, "/plan change 1 x").await.0.starts_with("Step 1 has ended (completed)."));
    carried_out(&agent, "/plan approve").await;
    heard(&mut agent, "Tidy.").await;
    assert_eq!(end_of(accepted).await.reason, Some(StopReason::PlanCompleted));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_cancelled_or_loses_all_its_steps() {
    for drops in [false, true] {
        let setup = setup([planned(&["a", "b"])]);
        let mut agent = setup.start().await;
        let accepted = agent.one.accepted("alice", "/plan --review tidy").await;
        heard(&mut agent, "The plan asks:").await;
        match drops {
            false => assert_eq!(carried_out(&agent, "/plan cancel").await, "The plan was cancelled."),
            true => {
                carried_out(&agent, "/plan drop 1").await;
                carried_out(&agent, "/plan drop 2").await;
                let told = heard(&mut agent, "2 are dropped").await;
                assert!(told.contains("0 of 2 steps are completed") && told.contains("- a (dropped)"), "{told}");
            }
        }
        let record = end_of(accepted).await;
        assert_eq!((record.status, record.reason), (RunStatus::Stopped, Some(StopReason::UserStop)));
        assert_eq!(agent.model.seen().len(), 1, "nothing else was asked");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_person_whose_plan_it_is_or_an_operator_adds_to_it_and_relayed_text_is_no_command() {
    let setup = setup([planned(&["a", "b"]), Scripted::text("done")]);
    let mut agent = setup.start().await;
    let Ack::Accepted(accepted) = agent.one.text_of("ann", "alice", "/plan --review tidy").await else {
        panic!("accepted")
    };
    heard(&mut agent, "The plan asks:").await;
    for (who, command, refused) in [
        ("bob", "/plan", false),
        ("bob", "/plan change 1 buy shoes", true),
        ("bob", "/plan add 1 buy shoes", true),
        ("bob", "/plan approve", true),
        ("bob", "/plan drop 2", false),
        ("ann", "/plan change 1 A", false),
    ] {
        let Ack::Command(reply) = agent.one.text_of(who, "alice", command).await else { panic!("a command") };
        assert_eq!(reply.refused, refused, "{who} {command}: {}", reply.reply);
        assert_eq!(reply.reply.contains("Somebody else"), refused, "{}", reply.reply);
    }
    let Ack::Accepted(_) = agent.one.relayed("alice", "/plan cancel").await else { panic!("it is a message") };
    let plan = carried_out(&agent, "/plan").await;
    assert!(plan.contains("1. A\n2. b (dropped)"), "{plan}");
    let Ack::Command(reply) = agent.one.text_as("alice", PrincipalRole::Operator, "/plan cancel").await else {
        panic!("a command")
    };
    assert!(!reply.refused);
    assert_eq!(end_of(accepted).await.reason, Some(StopReason::UserStop));
    agent.shut_down().await;
}
