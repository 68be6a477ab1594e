//! Calls that two persons must approve.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use belay_automation::JobsConfig;
use belay_protocol::{
    AccessDecision, Ack, ApprovalId, ApprovalRequest, ApprovalState, Authority, ChannelAccess, Control, Decision,
    EventKind, EventQuery, HookAnswer, HookPoint, Outbound, Refusal, SessionKey,
};
use belay_run::approvals::{Fallback, RuleAsk};
use belay_run::{ApprovalRule, ApprovalsConfig};
use belay_testkit::faulty::{Fault, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::hooks::{change, refuse, spy};
use crate::support::{Running, Setup, TestTool, faulty, saw};

/// Lets everybody in, each in a private conversation of their own.
struct Everybody;

impl ChannelAccess for Everybody {
    fn tells_persons_apart(&self) -> bool {
        true
    }

    fn standing_of(&self, _principal: &str, _conversation: Option<&str>) -> AccessDecision {
        AccessDecision::May(Authority::Conversation)
    }

    fn serves(&self, _conversation: &str) -> bool {
        true
    }

    fn session_of(&self, conversation: &str) -> Option<SessionKey> {
        Some(conversation.into())
    }
}

fn person(to: &str) -> Fallback {
    Fallback { channel: "one".into(), to: to.into() }
}

fn with_rule(setup: Setup, second: &[&str]) -> (Setup, Arc<AtomicUsize>) {
    let rule = ApprovalRule {
        tool: "ring".into(),
        arguments: Default::default(),
        ask: RuleAsk::UnlessApproved,
        allow_untrusted: false,
        second: true,
    };
    let approvals = ApprovalsConfig {
        rules: vec![rule],
        second: second.iter().map(|to| person(to)).collect(),
        ..ApprovalsConfig::default()
    };
    let bell = TestTool::named("echo").called("ring");
    let rung = bell.calls.clone();
    let setup = Setup { approvals, lists: Some(Arc::new(Everybody)), ..setup }.tool(bell);
    (setup, rung)
}

fn ring() -> Scripted {
    Scripted::call("ring", json!({"text": "noon"}))
}

/// An agent whose bell needs ann's yes and then bob's, or carl's.
fn setup(script: Vec<Scripted>) -> (Setup, Arc<AtomicUsize>) {
    with_rule(Setup::new(ScriptedModel::new(script)), &["bob", "carl"])
}

/// Lets ann ask for the bell. Returns the question.
async fn asked(agent: &mut Running) -> (ApprovalId, String) {
    let Ack::Accepted(_) = agent.one.text_of("ann", "ann", "ring the bell").await else { panic!("not accepted") };
    let question = agent.one.next_message().await;
    (question.question.expect("a question").approval, question.text)
}

async fn says(agent: &Running, who: &str, text: &str) -> Result<String, Refusal> {
    match agent.one.text_of(who, who, text).await {
        Ack::Command(reply) => Ok(reply.reply),
        Ack::Refused(refusal) => Err(refusal),
        other => panic!("{text:?} is no answer: {other:?}"),
    }
}

/// The next `n` deliveries, by conversation.
async fn deliveries(agent: &mut Running, n: usize) -> Vec<Outbound> {
    let mut found = Vec::new();
    for _ in 0..n {
        found.push(agent.one.next_message().await);
    }
    found.sort_by(|one, other| one.route.conversation.cmp(&other.route.conversation));
    found
}

async fn stored(setup: &Setup, id: ApprovalId) -> ApprovalRequest {
    setup.store.approvals.approval(id).await.expect("readable").expect("stored")
}

#[tokio::test(start_paused = true)]
async fn a_call_runs_after_the_yes_of_two_persons_and_both_are_told_and_recorded() {
    let (setup, rung) = setup(vec![ring(), Scripted::text("rung")]);
    let mut agent = setup.start().await;
    let (id, question) = asked(&mut agent).await;
    assert!(
        question.contains("After you, a second person must approve it.") && !question.contains("always"),
        "{question}"
    );
    assert!(says(&agent, "ann", "always").await.expect_err("not offered").to_string().contains("asked each time"));
    agent.one.next().await;

    assert_eq!(says(&agent, "ann", "yes").await.expect("taken"), "Approved, 1 of 2. bob is asked too.");
    let told = deliveries(&mut agent, 2).await;
    assert_eq!((&*told[0].route.conversation, told[0].text.as_str()), ("ann", "Approved, 1 of 2. bob is asked too."));
    assert_eq!(&*told[1].route.conversation, "bob");
    assert_eq!(told[1].question.as_ref().map(|question| question.approval), Some(id), "with buttons");
    for part in ["**1 of 2 approvals**: ann has approved this", "A request of ann asks:", "noon", "/approve"] {
        assert!(told[1].text.contains(part), "{part}: {}", told[1].text);
    }
    assert_eq!(rung.load(Ordering::SeqCst), 0);
    let half = stored(&setup, id).await;
    assert_eq!((half.state, half.first_yes().map(|first| &*first.by)), (ApprovalState::Waiting, Some("ann")));

    assert_eq!(says(&agent, "bob", &format!("/approve {id}")).await.expect("taken"), "Approved.");
    let told = deliveries(&mut agent, 2).await;
    assert_eq!(told.iter().map(|told| told.text.as_str()).collect::<Vec<_>>(), ["rung", "Approved."]);
    assert_eq!(rung.load(Ordering::SeqCst), 1);
    let whole = stored(&setup, id).await;
    assert_eq!((whole.state, whole.decided_by.as_deref()), (ApprovalState::Used, Some("bob")));
    assert_eq!(whole.digest, half.digest);
    let events = setup.store.events.read(EventQuery { run: Some(whole.run_id), ..EventQuery::default() }).await;
    let answers: Vec<String> = events
        .expect("readable")
        .into_iter()
        .filter_map(|event| match event.kind {
            EventKind::ApprovalFirstYes { actor, .. } => Some(format!("first {actor}")),
            EventKind::ApprovalResolved { state, actor, .. } => Some(format!("{state} {actor}")),
            _ => None,
        })
        .collect();
    assert_eq!(answers, ["first ann", "approved bob"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_plain_yes_of_the_second_person_counts_as_the_newest_message() {
    let (setup, rung) = setup(vec![ring(), Scripted::text("rung")]);
    let mut agent = setup.start().await;
    asked(&mut agent).await;
    says(&agent, "ann", "yes").await.expect("taken");
    deliveries(&mut agent, 2).await;
    assert_eq!(says(&agent, "bob", "yes").await.expect("taken"), "Approved.");
    deliveries(&mut agent, 2).await;
    assert_eq!(rung.load(Ordering::SeqCst), 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_gives_both_answers_and_others_give_none() {
    let (setup, rung) = with_rule(Setup::new(ScriptedModel::new([ring(), Scripted::text("rung")])), &["ann"]);
    let mut agent = setup.start().await;
    let (id, _) = asked(&mut agent).await;
    let reply = says(&agent, "ann", "yes").await.expect("taken");
    assert_eq!(reply, "Approved, 1 of 2. An operator must approve it too: `belay approvals`.");
    agent.one.next().await;
    let approve = format!("/approve {id}");
    assert!(says(&agent, "ann", &approve).await.expect_err("twice").to_string().contains("Another person"));
    assert!(
        says(&agent, "dora", &approve).await.expect_err("a stranger").to_string().contains("for the second person")
    );
    deliveries(&mut agent, 2).await;
    assert_eq!(rung.load(Ordering::SeqCst), 0);
    // An operator on the same platform is another person.
    let Ack::Command(reply) = agent.one.text("operators", &approve).await else { panic!("an operator may") };
    assert_eq!(reply.reply, "Approved.");
    deliveries(&mut agent, 2).await;
    assert_eq!(rung.load(Ordering::SeqCst), 1);
    agent.shut_down().await;
}

/// Without a list of persons, a channel cannot tell them apart: they count as one.
#[tokio::test(start_paused = true)]
async fn two_answers_through_the_terminal_and_the_api_are_of_one_person() {
    let (setup, rung) = setup(vec![ring(), Scripted::text("never")]);
    let setup = Setup { lists: None, ..setup };
    let mut agent = setup.start().await;
    agent.one.accepted("terminal", "ring the bell").await;
    let question = agent.one.next_message().await;
    let approval = question.question.expect("a question").approval;
    agent.one.text("terminal", "yes").await;
    let decide = Control::Decide { approval, decision: Decision::Approve };
    let Ack::Refused(refusal) = agent.two.control(decide).await else { panic!("the same person") };
    assert!(refusal.to_string().contains("Another person"), "{refusal}");
    assert_eq!(rung.load(Ordering::SeqCst), 0);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn either_no_ends_it() {
    for who in ["ann", "bob"] {
        let (setup, rung) = setup(vec![ring(), Scripted::text("not rung")]);
        let mut agent = setup.start().await;
        let (id, _) = asked(&mut agent).await;
        says(&agent, "ann", "yes").await.expect("taken");
        deliveries(&mut agent, 2).await;
        assert_eq!(says(&agent, who, &format!("/deny {id}")).await.expect("taken"), "Denied.", "{who}");
        deliveries(&mut agent, 2).await;
        assert_eq!((rung.load(Ordering::SeqCst), stored(&setup, id).await.state), (0, ApprovalState::Denied), "{who}");
        assert!(saw(&agent.model, 2).last().expect("a result").contains("denied: the user refused"), "{who}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_answers_at_once_one_counts() {
    let (setup, rung) = setup(vec![ring(), Scripted::text("rung")]);
    let mut agent = setup.start().await;
    let (id, _) = asked(&mut agent).await;
    says(&agent, "ann", "yes").await.expect("taken");
    deliveries(&mut agent, 2).await;
    let (approve, deny) = (format!("/approve {id}"), format!("/deny {id}"));
    let (bob, carl) = tokio::join!(says(&agent, "bob", &approve), says(&agent, "carl", &deny));
    assert_eq!(bob.expect("the first"), "Approved.");
    assert!(carl.expect_err("the second").to_string().contains("was approved before"));
    deliveries(&mut agent, 3).await;
    assert_eq!(rung.load(Ordering::SeqCst), 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_between_the_answers_asks_nobody_twice_and_keeps_the_first() {
    let (setup, rung) = setup(vec![ring()]);
    let mut agent = setup.start().await;
    let (id, _) = asked(&mut agent).await;
    says(&agent, "ann", "yes").await.expect("taken");
    deliveries(&mut agent, 2).await;
    agent.crash().await;

    let next = setup.next_boot(ScriptedModel::new([Scripted::text("rung")]));
    let mut agent = next.start().await;
    assert!(says(&agent, "ann", &format!("/approve {id}")).await.is_err(), "ann has answered");
    agent.one.next().await;
    assert_eq!(says(&agent, "bob", &format!("/approve {id}")).await.expect("taken"), "Approved.");
    let told = deliveries(&mut agent, 2).await;
    assert_eq!(told.iter().map(|told| told.text.as_str()).collect::<Vec<_>>(), ["rung", "Approved."]);
    assert_eq!(rung.load(Ordering::SeqCst), 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_first_yes_that_is_not_stored_asks_nobody_and_can_be_given_again() {
    for fault in [Fault::Fail, Fault::LoseAnswer] {
        let (first, store) = faulty(ScriptedModel::new([ring(), Scripted::text("rung")]));
        let (setup, rung) = with_rule(first, &["bob"]);
        let mut agent = setup.start().await;
        let (id, _) = asked(&mut agent).await;
        store.plan().nth_of(StoreOp::FirstYes, 1, fault);
        assert!(matches!(says(&agent, "ann", &format!("/approve {id}")).await, Err(Refusal::Store(_))), "{fault:?}");
        let reply = says(&agent, "ann", &format!("/approve {id}")).await.expect("taken");
        assert_eq!(reply, "Approved, 1 of 2. bob is asked too.", "{fault:?}");
        let told = deliveries(&mut agent, 3).await; // the refusal, the answer, and one question
        let to: Vec<&str> = told.iter().map(|told| &*told.route.conversation).collect();
        assert_eq!((to, rung.load(Ordering::SeqCst)), (vec!["ann", "ann", "bob"], 0), "{fault:?}");
        says(&agent, "bob", &format!("/approve {id}")).await.expect("taken");
        deliveries(&mut agent, 2).await;
        assert_eq!(rung.load(Ordering::SeqCst), 1);
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_second_person_is_reminded_once_and_silence_is_a_no() {
    let (setup, rung) = setup(vec![ring(), Scripted::text("too late then")]);
    let mut agent = setup.start().await;
    let (id, _) = asked(&mut agent).await;
    says(&agent, "ann", "yes").await.expect("taken");
    deliveries(&mut agent, 2).await;
    let half = stored(&setup, id).await;
    let day = i64::try_from(ApprovalsConfig::default().autonomous_expires().as_millis()).expect("in range");
    assert_eq!(half.expires_at.0 - half.first_yes().expect("given").at.0, day);
    setup.clock.forward(Duration::from_millis(day as u64 / 2 + 1));
    let reminder = agent.one.next_message().await;
    assert_eq!(&*reminder.route.conversation, "bob");
    assert!(reminder.text.starts_with("**Reminder:**"), "{}", reminder.text);
    setup.clock.set(half.expires_at.0);
    assert_eq!(agent.one.next().await, "too late then");
    assert_eq!((rung.load(Ordering::SeqCst), stored(&setup, id).await.state), (0, ApprovalState::Expired));
    agent.shut_down().await;
}

/// A hook can add to a reminder and hide nothing of it. A refused one is replaced, without buttons.
#[tokio::test(start_paused = true)]
async fn a_reminder_passes_the_hooks_and_keeps_its_call() {
    for refused in [false, true] {
        let (hooks, book) = spy(&[HookPoint::MessageSending], move |event| match event.data["kind"].as_str()? {
            "reminder" if refused => refuse("it is night"),
            "reminder" => change(json!({"text": "Say yes."})),
            _ => Some(HookAnswer::Continue),
        });
        let (setup, _rung) = setup(vec![ring()]);
        let setup = Setup { hooks, ..setup };
        let mut agent = setup.start().await;
        asked(&mut agent).await;
        says(&agent, "ann", "yes").await.expect("taken");
        deliveries(&mut agent, 2).await;
        setup.clock.forward(Duration::from_secs(43_201));
        let reminder = agent.one.next_message().await;
        assert_eq!((reminder.text.contains("noon"), reminder.question.is_some()), (!refused, !refused), "{reminder:?}");
        assert!(book.told(HookPoint::MessageSending).iter().any(|data| data["kind"] == "reminder"));
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_job_of_a_person_needs_two_persons_too_whatever_it_was_granted() {
    let done = Scripted::call("terminate", json!({"status": "success", "summary": "rung"}));
    let (setup, rung) = setup(vec![ring(), done]);
    let setup = Setup { jobs: JobsConfig::default(), ..setup };
    let mut agent = setup.start().await;
    says(&agent, "ann", "/job --yes --allow \"ring: text=noon\" ring the bell").await.expect("made");
    let told = deliveries(&mut agent, 2).await;
    let question = told.into_iter().find_map(|told| told.question).expect("the job asks all the same");
    let id = question.approval;
    let reply = says(&agent, "ann", &format!("/approve {id}")).await.expect("taken");
    assert_eq!(reply, "Approved, 1 of 2. bob is asked too.");
    let told = deliveries(&mut agent, 2).await;
    assert!(told[1].text.contains("1 of 2 approvals") && told[1].text.contains("Job “"), "{}", told[1].text);
    assert_eq!(rung.load(Ordering::SeqCst), 0);
    says(&agent, "bob", &format!("/approve {id}")).await.expect("taken");
    deliveries(&mut agent, 2).await;
    assert_eq!(rung.load(Ordering::SeqCst), 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_meanwhile_is_kept_and_its_sender_is_told_why() {
    let (setup, _rung) = setup(vec![ring(), Scripted::text("rung"), Scripted::text("yes, here")]);
    let mut agent = setup.start().await;
    let (id, _) = asked(&mut agent).await;
    says(&agent, "ann", "yes").await.expect("taken");
    deliveries(&mut agent, 2).await;
    let Ack::Accepted(_) = agent.one.text_of("ann", "ann", "are you there?").await else { panic!("not accepted") };
    assert!(agent.one.next().await.contains("approval of a second person"));
    says(&agent, "bob", &format!("/approve {id}")).await.expect("taken");
    let told = deliveries(&mut agent, 3).await;
    assert_eq!(told.iter().map(|told| told.text.as_str()).collect::<Vec<_>>(), ["rung", "yes, here", "Approved."]);
    agent.shut_down().await;
}
