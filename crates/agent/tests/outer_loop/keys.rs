//! Idempotency keys: the same thing again is the same thing, anything else is refused, and nothing is lost or done twice.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{
    Accepted, Ack, ApprovalState, CommandReply, DeclaredOutput, DispatcherStore, QueueMode, Refusal, RunId, RunOptions,
    Thinking,
};
use belay_testkit::faulty::{Fault, Faulty, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::compaction::three_turns;
use crate::support::{Setup, TestTool, end_of, faulty, ports, rest_of, saw};

const BEFORE: &str = "This was delivered before and has been carried out.";
const REFUSED_BEFORE: &str = "This was delivered before and was refused; send it with a new key to try again.";

fn asking_tool() -> TestTool {
    TestTool::named("echo").called("mark").asking()
}

/// What was refused because a message, of this run, has used the key.
fn conflict(ack: Ack) -> RunId {
    match ack {
        Ack::Refused(Refusal::Conflict { run_id }) => run_id,
        other => panic!("not a conflict with a message: {other:?}"),
    }
}

fn conflict_with_command(ack: &Ack) -> bool {
    matches!(ack, Ack::Refused(Refusal::ConflictWithCommand))
}

fn answered(ack: Ack) -> CommandReply {
    match ack {
        Ack::Command(reply) => reply,
        other => panic!("not answered: {other:?}"),
    }
}

fn accepted(ack: Ack) -> Accepted {
    match ack {
        Ack::Accepted(accepted) => accepted,
        other => panic!("not accepted: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_under_the_key_of_a_command_or_an_answer_is_that_again_or_refused() {
    let script = [Scripted::text("ok"), Scripted::call("mark", json!({})), Scripted::text("marked")];
    let setup = Setup::new(ScriptedModel::new(script)).tool(asking_tool());
    let mut agent = setup.start().await;
    agent.one.ask("alice", "question").await;
    let mut asking = agent.one.accepted("alice", "mark it").await;
    rest_of(&mut asking).await;
    let used = [("yes", "answer"), ("/undo", "of the lane"), ("/status", "at once")];
    for (text, key) in used {
        answered(agent.one.keyed("alice", text, key).await);
    }
    end_of(asking).await;
    tokio::time::sleep(Duration::from_secs(1)).await;

    let mut next = None;
    for boot in 1..=2 {
        for (text, key) in used {
            assert_eq!(answered(agent.one.keyed("alice", text, key).await).reply, BEFORE, "{boot} {text}");
            for other in ["please do that", "no", "/ping", "/redo", "/plan a journey", "/nonsense"] {
                let ack = agent.one.keyed("alice", other, key).await;
                assert!(conflict_with_command(&ack), "{boot} {other} under {key}: {ack:?}");
            }
        }
        if boot == 1 {
            agent.crash().await;
            let setup = next.insert(setup.next_boot(ScriptedModel::new([Scripted::text("done")])));
            agent = setup.start().await;
        }
    }
    // Nothing was lost: whoever is refused sends it again under a key of its own.
    let run = accepted(agent.one.keyed("alice", "please do that", "fresh").await);
    assert_eq!(end_of(run).await.reply.as_deref(), Some("done"));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn of_a_secret_no_digest_is_kept_and_whatever_comes_under_its_key_goes_nowhere() {
    let mail = TestTool::named("echo").called("mail").secret("mail_key").writing();
    let (setup, store) = faulty(ScriptedModel::new([Scripted::call("mail", json!({})), Scripted::text("mailed")]));
    let setup = setup.tool(mail);
    let agent = setup.start().await;
    let mut asking = agent.one.accepted("alice", "send it").await;
    rest_of(&mut asking).await;
    answered(agent.one.keyed("alice", "hunter2", "k").await);
    end_of(asking).await;
    let kept = store.inner().acted_on().await.expect("read");
    assert_eq!(kept.iter().map(|acted_on| &acted_on.digest).collect::<Vec<_>>(), [&None]);
    for text in ["hunter2", "something else"] {
        let reply = answered(agent.one.keyed("alice", text, "k").await);
        assert_eq!((reply.reply.as_str(), reply.command.as_str()), (BEFORE, "/secret"), "{text}");
    }
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_command_under_the_key_of_a_message_is_refused_and_not_acted_on() {
    let setup = Setup::new(ScriptedModel::new([Scripted::text("ok"), Scripted::hang()]));
    let agent = setup.start().await;
    let ended = accepted(agent.one.keyed("alice", "hello", "ended").await);
    let first = ended.run_id;
    end_of(ended).await;
    let alive = accepted(agent.one.keyed("alice", "and now", "alive").await);
    agent.asked(2).await;
    let commands = ["/status", "/undo", "/stop", "/interrupt", "/quit", "/think high", "/approve", "/nonsense"];
    for (key, run) in [("ended", first), ("alive", alive.run_id)] {
        for command in commands {
            assert_eq!(conflict(agent.one.keyed("alice", command, key).await), run, "{command} under {key}");
        }
    }
    assert!(alive.watch.as_ref().is_some_and(|watch| watch.finished.borrow().is_none()), "nothing has stopped it");
    agent.crash().await;

    let next = setup.next_boot(ScriptedModel::new([Scripted::hang()]));
    let agent = next.start().await;
    agent.asked(1).await;
    for (key, run) in [("ended", first), ("alive", alive.run_id)] {
        for command in commands {
            assert_eq!(conflict(agent.one.keyed("alice", command, key).await), run, "{command} under {key}, restarted");
        }
    }
    assert_eq!(answered(agent.one.text("alice", "/stop").await).reply, "Interrupted.", "it is still at work");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_yes_that_was_a_message_approves_nothing_when_it_comes_again() {
    let script = [Scripted::text("yes what?"), Scripted::call("mark", json!({}))];
    let setup = Setup::new(ScriptedModel::new(script)).tool(asking_tool());
    let mut agent = setup.start().await;
    let first = accepted(agent.one.keyed("alice", "yes", "update 1").await);
    let message = first.run_id;
    end_of(first).await;
    let mut asking = agent.one.accepted("alice", "mark it").await;
    let approval = rest_of(&mut asking).await.waiting_for.clone().expect("waits").approval;
    for boot in 1..=2 {
        let again = accepted(agent.one.keyed("alice", "yes", "update 1").await);
        assert_eq!((again.run_id, again.duplicate), (message, true), "{boot}");
        assert_eq!(conflict(agent.one.keyed("alice", "no", "update 1").await), message, "{boot}");
        let kept = setup.store.approvals.approval(approval).await.expect("read").expect("kept");
        assert_eq!(kept.state, ApprovalState::Waiting, "{boot}");
        if boot == 1 {
            agent.crash().await;
            agent = setup.next_boot(ScriptedModel::new([Scripted::text("marked")])).start().await;
            // What the question is for is known once its lane is open.
            let status = answered(agent.one.text("alice", "/approve nothing").await);
            assert!(status.reply.contains("is not the id of a question"), "{status:?}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    // Its key is the message's still, and a yes of its own is an answer.
    assert_eq!(answered(agent.one.keyed("alice", "yes", "update 2").await).reply, "Approved.");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_refused_approves_no_question_that_is_asked_later() {
    let mail = TestTool::named("echo").called("mail").secret("mail_key").writing();
    let mark = || Scripted::call("mark", json!({}));
    let script =
        [mark(), Scripted::text("marked"), Scripted::call("mail", json!({})), Scripted::text("mailed"), mark()];
    let setup = Setup::new(ScriptedModel::new(script)).tool(asking_tool()).tool(mail);
    let agent = setup.start().await;
    let reply = answered(agent.one.keyed("alice", "/approve", "nothing waits").await);
    assert_eq!((reply.reply.as_str(), reply.refused), ("Nothing is waiting for approval.", true));
    let mut asking = agent.one.accepted("alice", "mark it").await;
    rest_of(&mut asking).await;
    let yes = tokio::join!(agent.one.keyed("alice", "yes", "first"), agent.one.keyed("alice", "yes", "decided"));
    assert!(matches!(&yes, (Ack::Command(_), Ack::Refused(Refusal::Decided(_)))), "{yes:?}");
    end_of(asking).await;
    let mut asking = agent.one.accepted("alice", "send it").await;
    rest_of(&mut asking).await;
    let ack = agent.one.keyed("alice", "/approve", "invalid").await;
    assert!(matches!(&ack, Ack::Refused(Refusal::Invalid(_))), "{ack:?}");
    answered(agent.one.text("alice", "hunter2").await);
    end_of(asking).await;
    let mut asking = agent.one.accepted("alice", "mark it again").await;
    let approval = rest_of(&mut asking).await.waiting_for.clone().expect("waits").approval;
    agent.crash().await;

    let next = setup.next_boot(ScriptedModel::new([Scripted::text("not marked")]));
    let agent = next.start().await;
    tokio::time::sleep(Duration::from_secs(1)).await; // its lane is open, and the question known
    for (text, key) in [("/approve", "nothing waits"), ("yes", "decided"), ("/approve", "invalid")] {
        let reply = answered(agent.one.keyed("alice", text, key).await);
        assert_eq!((reply.reply.as_str(), reply.refused), (REFUSED_BEFORE, true), "{key}");
        let kept = setup.store.approvals.approval(approval).await.expect("read").expect("kept");
        assert_eq!(kept.state, ApprovalState::Waiting, "{key}");
    }
    assert_eq!(answered(agent.one.keyed("alice", "/deny", "of its own").await).reply, "Denied.");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_command_that_was_refused_is_refused_when_it_comes_again() {
    let setup = Setup::new(ScriptedModel::new([Scripted::hang()]));
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "hello").await;
    agent.asked(1).await;
    let refused = [("/undo", "of the lane"), ("/think nonsense", "at once")];
    for (text, key) in refused {
        let reply = answered(agent.one.keyed("alice", text, key).await);
        assert!(reply.refused && reply.reply != REFUSED_BEFORE, "{text}: {reply:?}");
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for boot in 1..=2 {
        for (text, key) in refused {
            let reply = answered(agent.one.keyed("alice", text, key).await);
            assert_eq!((reply.reply.as_str(), reply.refused), (REFUSED_BEFORE, true), "{boot} {text}");
        }
        if boot == 1 {
            agent.crash().await;
            agent = setup.next_boot(ScriptedModel::new([Scripted::hang()])).start().await;
        }
    }
    agent.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_command_that_could_not_be_stored_may_be_given_again() {
    let (setup, store) = faulty(ScriptedModel::new([]));
    let agent = setup.start().await;
    for (op, text) in
        [(StoreOp::EditThread, "/new"), (StoreOp::SetOptions, "/think high"), (StoreOp::SetLoopDetection, "/loops off")]
    {
        store.plan().nth_of(op, 1, Fault::Fail);
        let first = answered(agent.one.keyed("alice", text, text).await);
        assert!(first.refused && first.reply.contains("could not be stored"), "{text}: {first:?}");
        let second = answered(agent.one.keyed("alice", text, text).await);
        assert!(!second.refused && second.reply != BEFORE, "{text}: {second:?}");
        assert_eq!(answered(agent.one.keyed("alice", text, text).await).reply, BEFORE, "{text}");
    }
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_again_while_the_first_is_at_work_has_the_same_answer() {
    let setup = Setup::new(ScriptedModel::new([]));
    let mut agent = setup.start().await;
    three_turns(&mut agent).await;
    agent.model.push(Scripted::hang());
    let twice = [1, 2].map(|_| {
        let one = agent.one.writer();
        tokio::spawn(async move { one.keyed("alice", "/compact", "k").await })
    });
    agent.asked(4).await;
    assert!(conflict_with_command(&agent.one.keyed("alice", "/undo", "k").await), "it is something else");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(twice.iter().all(|answer| !answer.is_finished()), "nobody is told that it was done");
    answered(agent.one.text("alice", "/interrupt").await);
    for answer in twice {
        let reply = answered(answer.await.expect("no panic"));
        assert_eq!((reply.reply.as_str(), reply.refused), ("Stopped: the conversation is unchanged.", true));
    }
    assert_eq!(answered(agent.one.keyed("alice", "/compact", "k").await).reply, REFUSED_BEFORE);
    // Refused for now, each is told so, and the key is free.
    agent.model.push(Scripted::hang());
    let twice = [1, 2].map(|_| {
        let one = agent.one.writer();
        tokio::spawn(async move { one.keyed("alice", "/compact", "l").await })
    });
    agent.asked(5).await;
    agent.shut_down().await;
    for answer in twice {
        let ack = answer.await.expect("no panic");
        assert!(matches!(&ack, Ack::Refused(Refusal::ShuttingDown)), "{ack:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_again_while_its_run_asks_for_a_secret_is_not_the_secret() {
    let mail = TestTool::named("echo").called("mail").secret("mail_key").writing();
    let secrets = mail.secrets.clone();
    let setup =
        Setup::new(ScriptedModel::new([Scripted::call("mail", json!({})), Scripted::text("mailed")])).tool(mail);
    let agent = setup.start().await;
    let mut asking = accepted(agent.one.keyed("alice", "send it", "k").await);
    rest_of(&mut asking).await;
    let again = accepted(agent.one.keyed("alice", "send it", "k").await);
    assert_eq!((again.run_id, again.duplicate), (asking.run_id, true));
    answered(agent.one.text("alice", "the-key").await);
    end_of(asking).await;
    assert_eq!(*secrets.lock().expect("no test panics with it"), ["the-key"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_same_text_that_asks_for_something_else_is_another_message() {
    let setup = Setup::new(ScriptedModel::new([Scripted::text("ok").after(Duration::from_secs(60))]));
    let mut agent = setup.start().await;
    let asked = || RunOptions { thinking: Some(Thinking::Low), ..RunOptions::default() };
    let output = |word: &str| DeclaredOutput { name: "n".into(), schema: json!({ "type": word }), description: None };
    let others = [
        (RunOptions::default(), vec![]),
        (RunOptions { thinking: Some(Thinking::High), ..asked() }, vec![]),
        (RunOptions { queue: Some(QueueMode::Followup), ..asked() }, vec![]),
        (RunOptions { timeout_ms: Some(1000), ..asked() }, vec![]),
        (asked(), vec![output("string")]),
    ];
    let first = accepted(agent.one.keyed_with("alice", "hello", "k", asked(), vec![]).await);
    let run = first.run_id;
    let mut first = Some(first);
    for when in ["at work", "ended", "restarted"] {
        for (options, outputs) in others.clone() {
            let ack = agent.one.keyed_with("alice", "hello", "k", options.clone(), outputs).await;
            assert_eq!(conflict(ack), run, "{when}: {options:?}");
        }
        let again = accepted(agent.one.keyed_with("alice", "hello", "k", asked(), vec![]).await);
        assert_eq!((again.run_id, again.duplicate), (run, true), "{when}");
        match first.take() {
            Some(first) => drop(end_of(first).await),
            None if when == "ended" => {
                agent.crash().await;
                agent = setup.next_boot(ScriptedModel::new([])).start().await;
            }
            None => {}
        }
    }
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_command_whose_key_could_not_be_looked_up_may_be_given_again() {
    let (setup, store) = faulty(ScriptedModel::new([]));
    let agent = setup.start().await;
    store.plan().nth_of(StoreOp::ClaimKey, 1, Fault::Fail);
    let ack = agent.one.keyed("alice", "/new", "update 1").await;
    assert!(matches!(&ack, Ack::Refused(Refusal::Store(_))), "{ack:?}");
    for reply in ["Started a new conversation.", BEFORE] {
        assert_eq!(answered(agent.one.keyed("alice", "/new", "update 1").await).reply, reply);
    }
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_not_configured_is_refused_before_anything_is_accepted() {
    let setup = Setup::new(ScriptedModel::new([Scripted::text("hello")]));
    let agent = setup.start().await;
    let named = |name: &str| RunOptions { model: Some(name.into()), ..RunOptions::default() };
    let told = |ack| match ack {
        Ack::Refused(Refusal::Invalid(told)) => told,
        other => panic!("not refused: {other:?}"),
    };
    let sentence = "There is no model script. Did you mean scripted? Available models: scripted.";
    let refused = told(agent.one.keyed_with("alice", "hi", "k", named("script"), vec![]).await);
    assert_eq!(refused, format!("model: {sentence}"), "the message has it in a field");
    assert_eq!(told(agent.one.keyed("alice", "/model script", "k").await), sentence);
    // Neither has used the key.
    let run = accepted(agent.one.keyed_with("alice", "hi", "k", named("scripted"), vec![]).await);
    assert_eq!(end_of(run).await.reply.as_deref(), Some("hello"));
    assert_eq!(agent.model.seen()[0].model.as_deref(), Some("scripted"));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_a_command_that_a_crash_has_interrupted_is_unknown_unless_it_may_be_repeated() {
    let (setup, store) = faulty(ScriptedModel::new([]).then_forever(Scripted::text("ok")));
    let mut agent = setup.start().await;
    for text in ["first", "second"] {
        agent.one.ask("alice", text).await;
    }
    store.plan().nth_of(StoreOp::EditThread, 1, Fault::DieAfter);
    let one = agent.one.writer();
    let undo = tokio::spawn(async move { one.keyed("alice", "/undo", "u").await });
    tokio::time::timeout(Duration::from_secs(300), store.plan().died()).await.expect("it dies");
    undo.abort();
    agent.crash().await;

    let revived = Faulty::new(store.inner().clone());
    let mut setup = setup.next_boot(ScriptedModel::new([Scripted::text("third")]));
    setup.store = ports(Arc::new(revived.clone()));
    let mut agent = setup.start().await;
    for text in ["/undo", "/redo", "/undo"] {
        let ack = agent.one.keyed("alice", text, "u").await;
        let unknown = matches!(&ack, Ack::Refused(Refusal::Decided(detail)) if detail.starts_with("Outcome unknown"));
        assert!(if text == "/undo" { unknown } else { conflict_with_command(&ack) }, "{text}: {ack:?}");
    }
    revived.plan().nth_of(StoreOp::SetOptions, 1, Fault::DieAfter);
    let one = agent.one.writer();
    let think = tokio::spawn(async move { one.keyed("alice", "/think high", "t").await });
    tokio::time::timeout(Duration::from_secs(300), revived.plan().died()).await.expect("it dies");
    think.abort();
    agent.crash().await;

    let mut setup = setup.next_boot(ScriptedModel::new([Scripted::text("third")]));
    setup.store = ports(Arc::new(Faulty::new(store.inner().clone())));
    agent = setup.start().await;
    assert_eq!(answered(agent.one.keyed("alice", "/think high", "t").await).reply, "Thinking: high.");
    assert_eq!(answered(agent.one.keyed("alice", "/think high", "t").await).reply, BEFORE);
    assert_eq!(end_of(accepted(agent.one.text("alice", "and now").await)).await.reply.as_deref(), Some("third"));
    assert_eq!(saw(&agent.model, 1), ["first", "ok", "and now"], "one turn was undone");
    agent.shut_down().await;
}
