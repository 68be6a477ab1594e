//! Conversations that begin anew by themselves, and sessions that are deleted.

use std::time::Duration;

use belay_agent::ResetMode;

use belay_agent::SessionsConfig;
use belay_protocol::{Ack, Clock as _, Control, PrincipalRole, Refusal, Removed, Retention, SessionFilter, UnixMillis};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::support::{Setup, TestTool, end_of, rest_of, saw};

const MINUTE: Duration = Duration::from_secs(60);

const TOLD: &str = "_A new conversation was started; the earlier one is kept._";

fn after_an_hour(model: ScriptedModel) -> Setup {
    let sessions = SessionsConfig { reset: ResetMode::Idle, idle_minutes: 60, ..SessionsConfig::default() };
    Setup { sessions, ..Setup::new(model) }
}

fn answers() -> ScriptedModel {
    ScriptedModel::new([]).then_forever(Scripted::text("ok"))
}

#[tokio::test(start_paused = true)]
async fn after_a_silence_a_message_begins_a_new_conversation_and_its_person_is_told_once() {
    let setup = after_an_hour(answers());
    let mut agent = setup.start().await;
    assert_eq!(agent.one.ask("alice", "one").await, "ok", "nobody is told of a first conversation");
    setup.clock.forward(59 * MINUTE);
    assert_eq!(agent.one.ask("alice", "two").await, "ok");
    setup.clock.forward(60 * MINUTE);
    assert_eq!(agent.one.ask("alice", "three").await, format!("{TOLD}\n\nok"));
    assert_eq!(saw(&agent.model, 3), ["three"]);
    assert_eq!(agent.one.ask("alice", "four").await, "ok");
    assert_eq!(saw(&agent.model, 4), ["three", "ok", "four"]);
    let threads = setup.store.archive.threads(&"alice".into()).await.expect("read");
    assert_eq!(threads.iter().map(|thread| thread.active).collect::<Vec<_>>(), [false, true], "the old one is kept");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_silence_counts_over_a_restart_and_for_programs_the_answer_is_the_answer() {
    let setup = after_an_hour(answers());
    let mut agent = setup.start().await;
    agent.one.ask("alice", "one").await;
    agent.shut_down().await;
    setup.clock.forward(61 * MINUTE);
    let next = setup.next_boot(answers());
    let agent = next.start().await;
    let record = end_of(agent.one.unanswered("alice", "two").await).await;
    assert_eq!(record.reply.as_deref(), Some("ok"));
    assert_eq!(saw(&agent.model, 1), ["two"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_rule_a_conversation_goes_on_for_ever() {
    let setup = Setup::new(answers());
    let mut agent = setup.start().await;
    agent.one.ask("alice", "one").await;
    setup.clock.forward(100_000 * MINUTE);
    assert_eq!(agent.one.ask("alice", "two").await, "ok");
    assert_eq!(saw(&agent.model, 2), ["one", "ok", "two"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_timer_neither_begins_a_conversation_anew_nor_keeps_one_alive() {
    let setup = Setup { injector: true, ..after_an_hour(answers()) };
    let mut agent = setup.start().await;
    agent.one.ask("alice", "one").await;
    setup.clock.forward(61 * MINUTE);
    assert_eq!(agent.two.ask("alice", "tick").await, "ok");
    assert_eq!(saw(&agent.model, 2), ["one", "ok", "tick"]);
    setup.clock.forward(MINUTE);
    agent.one.ask("alice", "two").await;
    assert_eq!(saw(&agent.model, 3), ["two"], "the timer was no sign of life");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_conversation_in_which_something_is_unfinished_goes_on() {
    let call = Scripted::call("push", serde_json::json!({"text": "x"}));
    let model = ScriptedModel::new([call, Scripted::text("pushed"), Scripted::text("I am")]);
    let mut setup = after_an_hour(model).tool(TestTool::named("echo").called("push").asking());
    setup.approvals.expires_s = 86_400;
    let mut agent = setup.start().await;
    assert!(agent.one.ask("alice", "push it").await.contains("push"), "a question");
    setup.clock.forward(90 * MINUTE);
    let waits = agent.one.ask("alice", "are you still there?").await;
    assert!(waits.contains("is queued"), "{waits}");
    agent.one.command("alice", "/approve").await;
    assert_eq!([agent.one.next().await, agent.one.next().await], ["pushed", "I am"]);
    assert!(saw(&agent.model, 3).contains(&"push it".to_owned()), "{:?}", saw(&agent.model, 3));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_delivery_begins_nothing_anew() {
    let setup = after_an_hour(answers());
    let mut agent = setup.start().await;
    agent.one.keyed("alice", "one", "k").await;
    agent.one.next().await;
    setup.clock.forward(61 * MINUTE);
    let Ack::Accepted(again) = agent.one.keyed("alice", "one", "k").await else { panic!("known") };
    assert!(again.duplicate);
    assert_eq!(setup.store.archive.threads(&"alice".into()).await.expect("read").len(), 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_approved_for_good_ends_with_its_conversation() {
    let call = || Scripted::call("push", serde_json::json!({"text": "x"}));
    let model = ScriptedModel::new([call(), Scripted::text("pushed"), call(), Scripted::text("again")]);
    let mut setup = after_an_hour(model).tool(TestTool::named("echo").called("push").asking());
    setup.approvals.expires_s = 86_400;
    let mut agent = setup.start().await;
    agent.one.ask("alice", "push it").await;
    agent.one.command("alice", "/always").await;
    assert_eq!(agent.one.next().await, "pushed");
    setup.clock.forward(61 * MINUTE);
    assert!(agent.one.ask("alice", "push it").await.contains("push"), "it is asked again");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_session_is_gone_and_begins_anew_with_the_next_message() {
    let setup = Setup::new(answers());
    let mut agent = setup.start().await;
    agent.one.ask("alice", "secret of alice").await;
    agent.one.command("alice", "/loops off").await;
    let Ack::Removed(removed) = agent.one.control(Control::DeleteSession("alice".into())).await else {
        panic!("deleted")
    };
    assert_eq!((removed.sessions, removed.messages, removed.runs), (1, 2, 1));
    assert_eq!(setup.store.sessions.session(&"alice".into()).await.expect("read"), None);
    for text in ["hello", "and again"] {
        agent.one.ask("alice", text).await;
    }
    assert_eq!(saw(&agent.model, 3), ["hello", "ok", "and again"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn only_an_operator_deletes_and_only_what_rests() {
    let setup = Setup::new(ScriptedModel::new([Scripted::hang()]));
    let agent = setup.start().await;
    agent.one.accepted("alice", "hello").await;
    agent.asked(1).await;
    let refused = agent.one.control(Control::DeleteSession("alice".into())).await;
    assert!(
        matches!(&refused, Ack::Refused(Refusal::Decided(words)) if words.contains("stop it first")),
        "{refused:?}"
    );
    let refused = agent.one.control_as(PrincipalRole::Client, Control::DeleteSession("bob".into())).await;
    assert!(matches!(refused, Ack::Refused(Refusal::Forbidden(_))), "{refused:?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_session_of_one_request_goes_a_day_after_its_last_use_unless_something_waits_in_it() {
    let day = Duration::from_secs(24 * 3600);
    let model = ScriptedModel::new([
        Scripted::text("hi"),
        Scripted::text("hi, ada"),
        Scripted::call("ring", json!({ "text": "noon" })),
    ]);
    let setup = Setup::new(model).tool(TestTool::named("echo").called("ring").asking());
    let agent = setup.start().await;
    end_of(agent.one.for_one_request("once", "hello").await).await;
    end_of(agent.one.unanswered("ada", "hello").await).await;
    rest_of(&mut agent.one.for_one_request("asks", "ring the bell").await).await;
    let listed = async |filter| {
        let sessions = setup.store.sessions.sessions(filter).await.expect("read");
        let mut keys: Vec<_> = sessions.into_iter().map(|summary| summary.session.as_str().to_owned()).collect();
        keys.sort();
        keys
    };
    assert_eq!(listed(SessionFilter::lasting(9)).await, ["ada"]);
    assert_eq!(listed(SessionFilter::all(9)).await, ["ada", "asks", "once"]);

    let expire = async || {
        let before = UnixMillis(setup.clock.now().0 - i64::try_from(day.as_millis()).expect("in range"));
        let old = Retention { ephemeral_before: Some(before), ..Retention::default() };
        setup.store.archive.prune(old, 1_000).await.expect("pruned")
    };
    setup.clock.forward(day);
    assert!(expire().await.is_nothing(), "not before a day is over");
    setup.clock.forward(Duration::from_secs(1));
    let removed = expire().await;
    let whole = Removed { sessions: 1, threads: 1, messages: 2, runs: 1, ..Removed::default() };
    assert_eq!(Removed { events: 0, run_ids: Vec::new(), ..removed }, whole);
    assert_eq!(listed(SessionFilter::all(9)).await, ["ada", "asks"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_hidden_conversation_leaves_the_lists_until_its_next_message() {
    let setup = Setup::new(ScriptedModel::new(["one", "two", "three"].map(Scripted::text)));
    let mut agent = setup.start().await;
    let listed = async |hidden: bool| {
        let filter = SessionFilter { hidden, ..SessionFilter::lasting(9) };
        setup.store.sessions.sessions(filter).await.expect("readable").len()
    };
    assert_eq!(agent.one.ask("alice", "hello").await, "one");
    assert!(agent.one.command("alice", "/hide").await.starts_with("Hidden:"));
    assert_eq!((listed(false).await, listed(true).await), (0, 1));
    assert_eq!(agent.one.ask("alice", "hello again").await, "two");
    assert_eq!((listed(false).await, listed(true).await), (1, 0));
    // A message that follows at once.
    let (hidden, accepted) = tokio::join!(agent.one.text("alice", "/hide"), agent.one.text("alice", "and again"));
    assert!(matches!(hidden, Ack::Command(reply) if reply.reply.starts_with("Hidden:")));
    assert!(matches!(accepted, Ack::Accepted(_)), "{accepted:?}");
    let mut delivered = [agent.one.next().await, agent.one.next().await];
    delivered.sort();
    assert!(delivered[0].starts_with("Hidden:") && delivered[1] == "three", "{delivered:?}");
    assert_eq!((listed(false).await, listed(true).await), (1, 0));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn only_operators_hide_a_conversation() {
    let setup = Setup::new(ScriptedModel::new([Scripted::text("one")]));
    let mut agent = setup.start().await;
    assert_eq!(agent.one.ask("alice", "hello").await, "one");
    let Ack::Command(said) = agent.one.text_as("alice", PrincipalRole::Client, "/hide").await else {
        panic!("it is answered")
    };
    assert_eq!((said.refused, &*said.reply), (true, "Only an operator may hide a conversation from lists."));
    let hidden = SessionFilter { hidden: true, ..SessionFilter::lasting(9) };
    assert_eq!(setup.store.sessions.sessions(hidden).await.expect("readable"), []);
    agent.shut_down().await;
}
