//! Sessions that wait in the store, without a task: in their order, to be stopped and written to, also after a restart.

use std::time::Duration;

use belay_protocol::{Ack, Control, RunStatus, StopReason};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};

use crate::support::{Running, Setup, end_of, saw};

/// More sessions than may wait with a task of their own.
const SESSIONS: usize = 300;
/// Sessions with a task at most: the turn at work, and those with a wait permit.
const AWAKE: usize = 1 + 128;

fn setup() -> Setup {
    let first = Scripted::text("answer 0").after(Duration::from_secs(100));
    let answers = (1..=SESSIONS).map(|n| Scripted::text(format!("answer {n}")));
    let mut setup = Setup::new(ScriptedModel::new(std::iter::once(first).chain(answers)));
    setup.config.max_concurrent_turns = 1;
    setup
}

async fn awake(agent: &Running) -> (usize, usize) {
    match agent.two.control(Control::Status).await {
        Ack::Status(status) => (status.sessions_awake, status.queued + status.running.len()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn hundreds_of_sessions_wait_without_a_task_and_each_is_answered_once_in_order() {
    let setup = setup();
    let mut agent = setup.start().await;
    for n in 0..SESSIONS {
        agent.one.accepted(&format!("s{n}"), &format!("question {n}")).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (with_task, open) = awake(&agent).await;
    assert!(with_task <= AWAKE && open == SESSIONS, "{with_task} of {open} have a task");
    for n in 0..SESSIONS {
        let said = agent.one.next_message().await;
        assert_eq!((&*said.route.conversation, said.text.as_str()), (&*format!("s{n}"), &*format!("answer {n}")));
    }
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_parked_session_is_stopped_at_once_and_takes_messages() {
    let setup = setup();
    let mut agent = setup.start().await;
    let mut accepted = Vec::new();
    for n in 0..SESSIONS {
        accepted.push(agent.one.accepted(&format!("s{n}"), &format!("question {n}")).await);
    }
    let last = accepted.pop().expect("one");
    assert_eq!(agent.one.command("s299", "/stop").await, "Cleared 1 waiting message.");
    let record = end_of(last).await;
    assert_eq!((record.status, record.reason), (RunStatus::Stopped, Some(StopReason::UserStop)));
    // Written to, it waits behind the others again, with both messages.
    let second = agent.one.accepted("s298", "and one more").await;
    let answered = end_of(second).await;
    assert_eq!(answered.status, RunStatus::Completed);
    assert_eq!(saw(&agent.model, SESSIONS)[..1], ["question 298".to_owned()]);
    let first = end_of(accepted.pop().expect("one")).await;
    assert!(first.ended_at <= answered.ended_at);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_takes_up_what_waits_in_pages_and_each_is_answered_once() {
    let before = setup();
    let agent = before.start().await;
    for n in 0..SESSIONS {
        agent.one.accepted(&format!("s{n}"), &format!("question {n}")).await;
    }
    agent.crash().await;

    let first = Scripted::text("answer 0").after(Duration::from_secs(100));
    let answers = (1..SESSIONS).map(|n| Scripted::text(format!("answer {n}")));
    let mut next = before.next_boot(ScriptedModel::new(std::iter::once(first).chain(answers)));
    next.config.max_concurrent_turns = 1;
    let mut agent = next.start().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (with_task, open) = awake(&agent).await;
    assert!(with_task <= AWAKE && open == SESSIONS, "{with_task} of {open} have a task");
    let mut answered = Vec::new();
    for _ in 0..SESSIONS {
        answered.push(agent.one.next_message().await.route.conversation.to_string());
    }
    let expected: Vec<String> = (0..SESSIONS).map(|n| format!("s{n}")).collect();
    assert_eq!(answered, expected);
    agent.shut_down().await;
}
