//! What the model sees of a conversation after its commands.

use belay_protocol::{Ack, Body, Principal, PrincipalRole, Refusal};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};

use crate::support::{Setup, by_rule, end_of, saw};

#[tokio::test(start_paused = true)]
async fn undo_and_redo_take_turns_away_and_bring_them_back() {
    let setup = Setup::new(ScriptedModel::new((1..=5).map(|n| Scripted::text(format!("answer {n}")))));
    let mut agent = setup.start().await;
    assert_eq!(agent.one.command("alice", "/undo").await, "There is nothing to undo.");
    agent.one.ask("alice", "question 1").await;
    agent.one.ask("alice", "question 2").await;
    assert!(agent.one.command("alice", "/undo").await.contains("was undone"));
    agent.one.ask("alice", "question 3").await;
    assert_eq!(saw(&agent.model, 3), ["question 1", "answer 1", "question 3"]);
    assert_eq!(agent.one.command("alice", "/redo").await, "There is nothing to redo.", "a new turn has begun");
    assert!(agent.one.command("alice", "/undo").await.contains("was undone"));
    assert!(agent.one.command("alice", "/undo").await.contains("was undone"));
    assert!(agent.one.command("alice", "/redo").await.contains("was restored"));
    agent.one.ask("alice", "question 4").await;
    assert_eq!(saw(&agent.model, 4), ["question 1", "answer 1", "question 4"]);
    agent.shut_down().await;

    let next = setup.next_boot(ScriptedModel::new([Scripted::text("answer 5")]));
    let mut agent = next.start().await;
    agent.one.ask("alice", "question 5").await;
    assert_eq!(saw(&agent.model, 1), ["question 1", "answer 1", "question 4", "answer 4", "question 5"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn clear_and_new_begin_afresh_and_sessions_never_share() {
    let setup = Setup::new(ScriptedModel::new([]).then_forever(Scripted::text("ok")));
    let mut agent = setup.start().await;
    agent.one.ask("alice", "secret of alice").await;
    agent.two.ask("bob", "hello").await;
    assert_eq!(saw(&agent.model, 2), ["hello"]);
    for command in ["/clear", "/new", "/reset"] {
        agent.one.command("alice", command).await;
        agent.one.ask("alice", command.trim_start_matches('/')).await;
        assert_eq!(agent.model.seen().last().expect("asked").messages.len(), 1, "{command}");
    }
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_thread_is_not_changed_under_a_running_turn() {
    let setup = Setup::new(ScriptedModel::new([Scripted::hang()]));
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "hello").await;
    agent.asked(1).await;
    let reply = agent.one.command("alice", "/undo").await;
    assert_eq!(reply, "A message is still being answered. Send /stop first, then /undo.");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn compact_shortens_and_the_account_stays_in_sight_also_after_a_restart() {
    let setup = Setup::new(by_rule(ScriptedModel::new([]).then_forever(Scripted::text("ok"))));
    let mut agent = setup.start().await;
    assert_eq!(agent.one.command("alice", "/compact").await, "There is nothing to compact.");
    for n in 0..6 {
        agent.one.ask("alice", &format!("question {n} {}", "x".repeat(300))).await;
    }
    assert!(agent.one.command("alice", "/compact").await.starts_with("Replaced"));
    agent.one.ask("alice", "and now").await;
    let before = saw(&agent.model, 7);
    assert!(before.len() < 12 && before[0].contains("question 0"), "{before:#?}");
    agent.shut_down().await;

    let next = setup.next_boot(ScriptedModel::new([Scripted::text("ok")]));
    let mut agent = next.start().await;
    agent.one.ask("alice", "after").await;
    let mut expected = before;
    expected.extend(["ok".to_owned(), "after".to_owned()]);
    assert_eq!(saw(&agent.model, 1), expected);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn only_its_sender_replaces_the_last_message_and_not_while_it_is_answered() {
    let setup = Setup::new(ScriptedModel::new([Scripted::text("one"), Scripted::text("two"), Scripted::hang()]));
    let agent = setup.start().await;
    let say = async |id: &str, text: &str| {
        let who = Principal { id: id.into(), role: PrincipalRole::User };
        agent.one.said_by(who, "room", Body::Text(text.into())).await
    };
    let accepted = |ack: Ack| match ack {
        Ack::Accepted(run) => run,
        other => panic!("{other:?}"),
    };
    let refused = |ack: Ack| match ack {
        Ack::Refused(Refusal::Decided(why)) => why,
        other => panic!("{other:?}"),
    };
    end_of(accepted(say("ann", "question").await)).await;
    for text in ["/retry", "/edit mine"] {
        assert!(refused(say("bob", text).await).contains("from somebody else"), "{text}");
    }
    end_of(accepted(say("ann", "/edit other question").await)).await;
    assert_eq!(saw(&agent.model, 2), ["other question"]);
    accepted(say("ann", "/retry").await);
    agent.asked(3).await;
    assert_eq!(saw(&agent.model, 3), ["other question"]);
    assert!(refused(say("ann", "/retry").await).contains("/stop first"));
    agent.shut_down().await;
}
