//! How wide everything is: turns of all sessions, subagents of all sessions, and sessions that sleep.

use std::time::Duration;

use belay_protocol::{Ack, Control};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::support::{Setup, end_of};

/// Sessions that are put to sleep, unless [`HOW_MANY`] says another number: as many as a test can wake in a moment, on a busy
/// machine.
const USUALLY: usize = 2000;

/// The variable that says another number; see `docs/develop/testing.md`. With it the test is alone in its process, and counts
/// memory too.
const HOW_MANY: &str = "BELAY_SESSIONS";

/// Sessions that are awake together while they are put to sleep in batches.
const BATCH: usize = 100;

/// Most that a sleeping session may cost, in bytes, with all that a store in memory and the record of the scripted model keep
/// of it.
const BYTES_ASLEEP: usize = 32 * 1024;

#[tokio::test(start_paused = true)]
async fn a_session_with_a_long_queue_does_not_hold_up_the_others() {
    let second = Duration::from_secs(1);
    let mut setup = Setup::new(ScriptedModel::new([]).then_forever(Scripted::text("done").after(second)));
    setup.config.max_concurrent_turns = 2;
    setup.queue.mode = Some(belay_protocol::QueueMode::Followup);
    let agent = setup.start().await;
    let begun = Instant::now();
    let mut long = Vec::new();
    for n in 0..10 {
        long.push(agent.one.unanswered("busy", &format!("message {n}")).await);
    }
    let other = agent.one.unanswered("other", "hello").await;
    end_of(other).await;
    assert_eq!(begun.elapsed(), second, "it had a place of its own at once");
    // A third and a fourth session wait for a place behind one turn of the long queue, not behind all of it.
    let others = [agent.one.unanswered("third", "hello").await, agent.one.unanswered("fourth", "hello").await];
    for other in others {
        end_of(other).await;
    }
    assert!(begun.elapsed() <= 4 * second, "{:?}", begun.elapsed());
    for accepted in long {
        end_of(accepted).await;
    }
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn subagents_of_all_sessions_share_their_places_and_waiting_is_no_time_of_theirs() {
    // Each session starts two subagents at once, each of which takes a second of a model; two may work at a time.
    let second = Duration::from_secs(1);
    let spawn = |n: u32| ("spawn_subagent", json!({ "task": format!("part {n}"), "max_time_s": 3 }));
    let mut setup = Setup::new(
        ScriptedModel::new((0..3).map(|n| Scripted::calls([spawn(2 * n), spawn(2 * n + 1)]).after(second)))
            .then_forever(Scripted::text("part done").after(2 * second)),
    );
    setup.config.subagents.max_concurrent = 2;
    let agent = setup.start().await;
    let begun = Instant::now();
    let mut runs = Vec::new();
    for session in ["alice", "bob", "carol"] {
        runs.push(agent.one.unanswered(session, "go").await);
    }
    for run in runs {
        assert_eq!(end_of(run).await.reply.as_deref(), Some("part done"));
    }
    // A second of each parent; six subagents, two at a time, two seconds each; then the last parent's own answer.
    assert_eq!(begun.elapsed(), 9 * second);
    let results = agent.model.seen();
    let texts: Vec<&str> = results.iter().flat_map(|seen| seen.messages.iter()).map(|message| message.text()).collect();
    assert!(texts.iter().all(|text| !text.contains("TIMEOUT")), "three seconds were enough for each: {texts:#?}");
    agent.shut_down().await;
}

/// Memory that this process has in use, in bytes.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim_end_matches("kB").trim().parse::<usize>().expect("a number") * 1024
}

#[tokio::test(start_paused = true)]
async fn thousands_of_sessions_asleep_cost_no_task() {
    let asked: Option<usize> = std::env::var(HOW_MANY).ok().map(|number| number.parse().expect("a number"));
    let sessions = asked.unwrap_or(USUALLY);
    let setup = Setup::new(ScriptedModel::new([]).then_forever(Scripted::text("hello")));
    let agent = setup.start().await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let (before, memory_before) = (tasks(), memory());
    let mut most = 0;
    for first in (0..sessions).step_by(BATCH) {
        let mut batch = Vec::with_capacity(BATCH);
        for n in first..sessions.min(first + BATCH) {
            batch.push(agent.one.unanswered(&format!("session {n}"), "hi").await);
        }
        most = most.max(tasks());
        for accepted in batch {
            assert_eq!(end_of(accepted).await.reply.as_deref(), Some("hello"));
        }
    }
    assert!(most >= before + BATCH, "each had a lane while it was awake: {before} to {most}");
    sleep(Duration::from_secs(120)).await;
    let Ack::Status(status) = agent.one.control(Control::Status).await else { panic!("a status") };
    assert_eq!((status.sessions_awake, tasks()), (0, before));
    if asked.is_some() {
        let each = memory().saturating_sub(memory_before) / sessions;
        println!("{sessions} sessions asleep: no task, {each} bytes each");
        assert!(each < BYTES_ASLEEP, "{each} bytes for each");
    }
    agent.shut_down().await;
}
